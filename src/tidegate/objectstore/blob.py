"""A stored file as something that Parquet readers can seek in: the file itself, or ranges of an object.

first request    the last TAIL bytes, which hold the footer and tell the size        all of a small object
each read        one more, unless the tail has it
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import obstore
import pyarrow as pa
from obstore.exceptions import NotSupportedError

from tidegate.objectstore.stores import store

TAIL: Final = 64 << 10


class _Ranges(io.RawIOBase):
    """An object of a store."""

    def __init__(self, where: Any, path: str, size: int | None) -> None:
        super().__init__()
        self._where, self._path, self._at = where, path, 0
        self._size, self._tail = _end(where, path) if size is None else (size, b"")

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
        begin, end = self._at, self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= begin:
            return b""
        self._at = end
        kept = self._size - len(self._tail)
        if begin >= kept:
            return self._tail[begin - kept : end - kept]
        return bytes(obstore.get_range(self._where, self._path, start=begin, end=end).to_bytes())


def _end(where: Any, path: str) -> tuple[int, bytes]:
    """The size of an object and its last bytes; none of these where a store knows no ranges from the end (Azure)."""
    try:
        found = obstore.get(where, path, options={"range": {"suffix": TAIL}})
    except NotSupportedError:
        return int(obstore.head(where, path)["size"]), b""
    return int(found.meta["size"]), bytes(found.bytes())


@contextmanager
def opened(uri: str, path: str, size: int | None = None) -> Iterator[Any]:
    """The file at `path` below `uri`, open for reading; for whoever knows its footer, `size` saves a request."""
    if "://" not in uri:
        with pa.OSFile(str(Path(uri, path))) as source:
            yield source
        return
    with _Ranges(store(uri), path, size) as source:
        yield source
