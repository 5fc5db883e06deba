"""A directory or a bucket as the storage sink uses it: files made once, small files that only go up, lists.

    create    put if absent: what stands there is the same already, or somebody else's (`NameTaken`)
    raise_    index and `metadata`: replaced only by what ranks higher, and only where nobody else replaced it meanwhile

A local directory knows no conditional replacement; there, a lock of the state directory keeps a second writer out.
Errors name `shown`: the address that is opened may hold keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from tidegate.model.errors import SinkError
from tidegate.objectstore.lifespan import delete
from tidegate.objectstore.probe import check_store
from tidegate.objectstore.stores import store, unchanged
from tidegate.objectstore.storing import storing


class StoredObject(NamedTuple):
    """What a file holds, and what tells whether it was replaced since."""

    body: bytes
    version: Any


class NameTaken(SinkError):
    """A file of that name holds something else: another writer is at work, or a try before this one stopped amid it."""

    code = "CDC:ErrStorageNameTaken"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where files are; `uri` is a directory or the address of an object store, `shown` its name for people."""

    uri: str = field(repr=False)
    shown: str

    def check(self) -> None:
        """Raise SinkRefused for an object store in which two writers can win, or for one that is not there."""
        if self._is_remote:
            try:
                check_store(self.uri, overwrites=True)
            except SinkError as refused:
                raise type(refused)(str(refused).replace(self.uri, self.shown)) from None

    def read(self, path: str) -> StoredObject | None:
        """Return a file; None where there is none."""
        try:
            with storing(self.shown):
                found = obstore.get(store(self.uri), path)
                return StoredObject(bytes(found.bytes()), unchanged(found.meta))
        except FileNotFoundError:
            return None

    def create(self, path: str, *body: bytes | memoryview) -> None:
        """Write a file that is not there, of some pieces; one with these very bytes is as good. Raises NameTaken."""
        try:
            self._put(path, body, "create")
        except NameTaken:
            found = self.read(path)
            if found is None or found.body != b"".join(body):
                raise

    def write(self, path: str, body: bytes) -> None:
        """Write a file, whatever is there."""
        self._put(path, (body,), "overwrite")

    def raise_(self, path: str, body: bytes, rank: Callable[[bytes], int]) -> None:
        """Replace a file by `body` if that ranks higher than what is there."""
        found = self.read(path)
        if found is not None and rank(found.body) >= rank(body):
            return
        self._put(path, (body,), "create" if found is None else found.version if self._is_remote else "overwrite")

    def names(self, directory: str, after: str = "") -> list[str]:
        """Return the names of the files in a directory, not those further down, that sort behind `after`."""
        offset = f"{directory}/{after}" if after else None
        with storing(self.shown):
            found = [one["path"] for page in obstore.list(store(self.uri), directory, offset=offset) for one in page]
        names = (path.removeprefix(f"{directory}/") for path in found)
        return sorted(name for name in names if "/" not in name)

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories in a directory."""
        with storing(self.shown):
            found = obstore.list_with_delimiter(store(self.uri), directory)["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def pages(self) -> Iterator[list[str]]:
        """Return the paths of all files, some at a time."""
        with storing(self.shown):
            for page in obstore.list(store(self.uri)):
                yield [one["path"] for one in page]

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that is gone already is as good."""
        with storing(self.shown):
            delete(self.uri, paths)

    @property
    def _is_remote(self) -> bool:
        return "://" in self.uri

    def _put(self, path: str, body: Iterable[bytes | memoryview], mode: Any) -> None:
        try:
            with storing(self.shown), _races(f"{self.shown}/{path}"):
                obstore.put(store(self.uri), path, iter(body), mode=mode, use_multipart=False)
        except FileNotFoundError as missing:
            raise SinkError(f"{self.shown}: there is no such place") from missing


@contextmanager
def _races(where: str) -> Iterator[None]:
    """A conditional write that finds its condition broken fails with NameTaken."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as raced:
        raise NameTaken(f"{where} is another writer's, or was left by a try that stopped amid it") from raced
