"""A stored file as something that Parquet readers can seek in: the file itself, or ranges of an object."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa

from tidegate.objectstore.deltalog import store


class _Ranges(io.RawIOBase):
    """An object of a store; every read is one request."""

    def __init__(self, where: Any, path: str) -> None:
        super().__init__()
        self._where, self._path, self._at = where, path, 0
        self._size = int(obstore.head(where, path)["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        body = obstore.get_range(self._where, self._path, start=self._at, end=end).to_bytes()
        self._at = end
        return bytes(body)


@contextmanager
def opened(uri: str, path: str) -> Iterator[Any]:
    """The file at `path` below `uri`, open for reading."""
    if "://" not in uri:
        with pa.OSFile(str(Path(uri, path))) as source:
            yield source
        return
    with _Ranges(store(uri), path) as source:
        yield source
