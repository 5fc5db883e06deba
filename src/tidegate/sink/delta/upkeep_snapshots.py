"""The published snapshots as upkeep sees them, and forgetting them in two moves.

    _tidegate/snapshots/N.json ──copied, then deleted──► _tidegate/forgotten/N.json ──after the grace──► gone
                      readers find it                          readers that found it may go on              files go

The copy's time is the moment of forgetting.  Files that a forgotten snapshot names stay as long as it lies there, so
a query that began a moment before ends in peace.  Killed between copy and deletion, both exist, and the next pass
deletes the original.

    _tidegate/retired/<incarnation>        an empty file whose time says since when a dropped table is known as such
"""

from array import array
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import msgspec
import obstore

from tidegate.engine.retention import Limits, RetainedSnapshot, forgettable
from tidegate.model.kept_state import StateKind, decode_state
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.lifespan import StoredFile, delete, stored_files
from tidegate.objectstore.stores import store
from tidegate.sink.delta.options import DeltaOptions

PUBLISHED: Final = "snapshots/"
FORGOTTEN: Final = "forgotten/"
RETIRED: Final = "retired/"
SCHEMAS: Final = "schemas/"


class _Table(msgspec.Struct, frozen=True):
    version: int


class _Parked(msgspec.Struct, frozen=True):
    schema: str


class _Body(msgspec.Struct, frozen=True):
    schema: str
    tables: dict[str, _Table]
    retired: dict[str, int]
    published_ms: int
    checkpoint_ts: int
    parked: tuple[_Parked, ...] = ()


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest snapshot: what must stay whatever the limits say."""

    number: int
    checkpoint_ts: int
    versions: dict[str, int]
    retired: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A snapshot in little memory: there are thousands, and a lake may have hundreds of tables."""

    number: int
    published_ms: int
    schemas: tuple[str, ...]
    names: tuple[str, ...]
    versions: "array[int]"

    def moment(self) -> RetainedSnapshot:
        return RetainedSnapshot(self.number, self.published_ms, dict(zip(self.names, self.versions, strict=True)))


class Shelf:
    """Snapshots by number; each is read once, however many passes there are."""

    def __init__(self, options: DeltaOptions, *, dry_run: bool = False) -> None:
        self._place = store(options.control_uri)
        self._uri = options.control_uri
        self._dry_run = dry_run
        self._known: dict[str, _Kept] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The sets of tables that snapshots have, each once."""
        self._newest: Newest | None = None

    def newest(self) -> Newest | None:
        """Return the newest snapshot of the last `refresh`; None for a lake without any."""
        return self._newest

    def refresh(self) -> None:
        """Read what was published since, and let go of what is gone."""
        paths = sorted(file.path for prefix in (PUBLISHED, FORGOTTEN) for file in self._listed(prefix))
        self._known = {path: kept for path in paths if (kept := self._kept(path)) is not None}
        self._names = {kept.names: kept.names for kept in self._known.values()}
        published = [path for path in self._known if path.startswith(PUBLISHED)]
        self._newest = self._read_newest(max(published)) if published else None

    def moments(self) -> Iterator[RetainedSnapshot]:
        """Return all snapshots whose tables must stay readable: the published ones, and the lately forgotten."""
        return (kept.moment() for kept in self._known.values())

    def forget(self, now_ms: int, limits: Limits) -> list[int]:
        """Forget what the limits say; give the numbers."""
        published = [
            RetainedSnapshot(kept.number, kept.published_ms, {})
            for path, kept in self._known.items()
            if path.startswith(PUBLISHED)
        ]
        numbers = forgettable(published, now_ms, limits)
        for number in numbers:
            old, new = (f"{prefix}{number:020d}.json" for prefix in (PUBLISHED, FORGOTTEN))
            if not self._dry_run:
                self._move(old, new)
            self._known[new] = self._known.pop(old)
        return numbers

    def _move(self, old: str, new: str) -> None:
        try:
            body = obstore.get(self._place, old).bytes().to_bytes()
        except FileNotFoundError:  # another upkeep was faster
            return
        obstore.put(self._place, new, body)
        reach("upkeep/snapshot-copied")
        delete(self._uri, [old])

    def drop_forgotten(self, forgotten_before_ms: int) -> None:
        """Delete what was forgotten at or before a time, and schemas that no snapshot has any more."""
        if self._dry_run:
            return
        over = [file.path for file in self._listed(FORGOTTEN) if file.written_ms <= forgotten_before_ms]
        delete(self._uri, over)
        for path in over:
            self._known.pop(path, None)
        schemas = {f"{SCHEMAS}{schema}.json" for kept in self._known.values() for schema in kept.schemas}
        unused = [
            file.path
            for file in self._listed(SCHEMAS)
            if file.path not in schemas and file.written_ms <= forgotten_before_ms
        ]
        if self._newest is not None:
            delete(self._uri, unused)

    def retired_since_ms(self, retired: AbstractSet[str]) -> dict[str, int]:
        """Since when each of `retired` is known to be so; those that have come back are struck off."""
        since_ms = {file.path.removeprefix(RETIRED): file.written_ms for file in self._listed(RETIRED)}
        if self._dry_run:
            return since_ms
        delete(self._uri, [f"{RETIRED}{incarnation}" for incarnation in since_ms if incarnation not in retired])
        for incarnation in retired - set(since_ms):
            obstore.put(self._place, f"{RETIRED}{incarnation}", b"")
        return since_ms

    def _listed(self, prefix: str) -> list[StoredFile]:
        return stored_files(self._uri, prefix)

    def _kept(self, path: str) -> _Kept | None:
        if path in self._known:
            return self._known[path]
        try:
            body = self._read(path)
        except FileNotFoundError:
            return None
        names = tuple(body.tables)
        names = self._names.setdefault(names, names)
        versions = array("q", (table.version for table in body.tables.values()))
        schemas = (body.schema, *(group.schema for group in body.parked))
        return _Kept(int(path.rpartition("/")[2].removesuffix(".json")), body.published_ms, schemas, names, versions)

    def _read(self, path: str) -> _Body:
        body = obstore.get(self._place, path).bytes().to_bytes()
        return decode_state(StateKind.SNAPSHOT, body, _Body, f"{self._uri}/{path}")

    def _read_newest(self, path: str) -> Newest:
        body = self._read(path)
        moment = self._known[path].moment()
        return Newest(moment.number, body.checkpoint_ts, dict(moment.versions), body.retired)
