"""The place that is read: a directory or a bucket, as far as a reader needs it.

Errors name `shown`: the address that is opened may hold keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore

from tidegate.model.errors import SourceError
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import STORE_ERRORS, first_line
from tidegate.source.storage.listing import PlacedFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where files are; `uri` is a directory or the address of an object store, `shown` its name for people."""

    uri: str = field(repr=False)
    shown: str

    def is_there(self) -> bool:
        """Return False for a directory that is missing; a bucket says so when it is read."""
        return "://" in self.uri or Path(self.uri).is_dir()

    def read(self, path: str) -> bytes | None:
        """Return a file; None where there is none. SourceError where the place does not answer."""
        try:
            with self._answering():
                return bytes(obstore.get(store(self.uri), path).bytes())
        except FileNotFoundError:
            return None

    def files(self) -> Iterator[PlacedFile]:
        """Return all files. SourceError where the place does not answer."""
        with self._answering():
            for page in obstore.list(store(self.uri)):
                for one in page:
                    changed_us = round(one["last_modified"].timestamp() * 1_000_000)
                    yield PlacedFile(one["path"], one["size"], _version(one), changed_us)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except STORE_ERRORS as error:
            raise SourceError(f"{self.shown} cannot be read: {first_line(error)}") from error


def _version(meta: Any) -> str:
    return str(meta["e_tag"] or f"{meta['last_modified'].timestamp()}-{meta['size']}")
