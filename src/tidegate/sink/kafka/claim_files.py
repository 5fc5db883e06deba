"""Claim checks as files: the storage that `claim-check-storage-uri` names.

    file:///var/claims, /var/claims      a directory of this machine, without any library
    s3://…, gs://…, azure://…            an object store, with TiCDC's parameters or the environment's keys

Names are a random UUID and `.json`, as TiCDC's, or come from a list, one after the other.

Source: TiCDC's "Send large messages to external storage" document.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.model.errors import SinkError


def random_names() -> Iterator[str]:
    """File names without end, no two alike."""
    while True:
        yield f"{uuid.uuid4()}.json"


def _no_link(path: str, flags: int) -> int:
    """Open a file itself and not what a link in its place leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


class ClaimFiles:
    """A `codec.batch.ClaimStore` in a directory or object store."""

    def __init__(self, storage_uri: str, names: Iterator[str]) -> None:
        self._uri = storage_uri
        self._names = names

    def new_name(self) -> str:
        """Return the next name; SinkError when a list of names is at its end."""
        name = next(self._names, None)
        if name is None:
            raise SinkError("there are more claim checks than names for them")
        return name

    def put(self, name: str, body: bytes) -> None:
        """Write a file; SinkError when the storage refuses it. Its address is not shown: it may hold keys."""
        try:
            if urlsplit(self._uri).scheme in {"", "file"}:
                directory = Path(unquote(urlsplit(self._uri).path))
                directory.mkdir(parents=True, exist_ok=True)
                with open(directory / name, "wb", opener=_no_link) as file:
                    file.write(body)
            else:
                self._put_remote(name, body)
        except (OSError, ValueError, ImportError) as away:
            raise SinkError(f"{name} cannot be written to the claim-check storage ({type(away).__name__})") from away

    def _put_remote(self, name: str, body: bytes) -> None:
        import obstore
        from obstore.exceptions import BaseError

        from tidegate.objectstore.stores import store

        try:
            obstore.put(store(self._uri), name, body)
        except BaseError as away:
            raise SinkError(f"{name} cannot be written to the claim-check storage ({type(away).__name__})") from away
