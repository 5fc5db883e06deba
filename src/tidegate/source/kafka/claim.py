"""Fetching claim checks: the rows too large for a topic, which TiCDC keeps as files beside it.

The address in a message is the writer's; only its base name counts, and it is looked up in the storage that the
reader was given (codec/claim.py reads what the file holds).  Messages of this file never show that address whole, as
it may carry the keys of an object store.
"""

import posixpath
from functools import lru_cache
from typing import Any

from fsspec.core import url_to_fs

from tidegate.codec.claim import claim_name
from tidegate.model.errors import SourceError

__all__ = ["fetch"]


@lru_cache(maxsize=8)
def _storage(uri: str) -> tuple[Any, str]:
    filesystem, root = url_to_fs(uri)
    return filesystem, root


def fetch(location: str, storage_uri: str) -> bytes:
    """The body of the claim check at `location`. Raises DecodeError for no file name, SourceError when it is away."""
    name = claim_name(location)
    if not storage_uri:
        raise SourceError(f"{name}: claim-check-storage-uri is not set, so the whole row cannot be fetched")
    try:
        filesystem, root = _storage(storage_uri)
        return bytes(filesystem.cat_file(posixpath.join(root, name)))
    except FileNotFoundError as missing:
        raise SourceError(f"{name} is not in the claim-check storage") from missing
    except (OSError, ValueError, ImportError) as away:
        raise SourceError(f"{name} cannot be fetched from the claim-check storage ({type(away).__name__})") from away
