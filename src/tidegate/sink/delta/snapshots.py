"""The lake's published states: which version of every table belongs to a resolved ts.

    _tidegate/
      snapshots/00000000000000000042.json    {"checkpoint": {ts, done}, "schema": "<digest>", "tables": {...}}
      schemas/<digest>.json                  the schema state, written when it changes
      changelog/                             what has landed (source/kafka/changelog.py)
    tables/<incarnation>/                    one Delta table each

A snapshot is written once, under the next number, only if that number is free: the newest number is the lake's state,
and a second writer finds its number taken and stops (`Fenced`).  Tables may be ahead of it after a crash; each knows
its own position, so the next round goes on from there.
"""

import hashlib
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError

from tidegate.feed.plan import Checkpoint
from tidegate.model.errors import Fenced, SinkRefused
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.options import DeltaOptions
from tidegate.spark.deltalog import store

__all__ = ["PublishedTable", "Snapshot", "latest", "publish", "published_at"]


class PublishedTable(msgspec.Struct, frozen=True):
    """One table of a snapshot: its name, where its rows lie and at which Delta version."""

    schema: str
    table: str
    version: int

    @property
    def name(self) -> TableName:
        """The table's name."""
        return TableName(self.schema, self.table)


class _Body(msgspec.Struct, frozen=True):
    checkpoint_ts: int
    done: tuple[str, ...]
    schema: str
    tables: dict[str, PublishedTable]
    retired: dict[str, int]
    feed: str
    published_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lake at one checkpoint; `tables` by incarnation, `retired` (dropped, recoverable) with their versions."""

    number: int = -1
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    state: SchemaState = field(default_factory=SchemaState)
    tables: Mapping[str, PublishedTable] = field(default_factory=dict)
    retired: Mapping[str, int] = field(default_factory=dict)


def latest(options: DeltaOptions) -> Snapshot:
    """The newest published state; an empty one for a new lake."""
    numbers = _numbers(options)
    return _read(options, numbers[-1]) if numbers else Snapshot()


def published_at(options: DeltaOptions, ts: int) -> Snapshot:
    """The newest published state whose checkpoint is not above `ts`; an empty one when there is none."""
    numbers = _numbers(options)
    at = bisect_right(numbers, ts, key=lambda number: _body(options, number).checkpoint_ts)
    return _read(options, numbers[at - 1]) if at else Snapshot()


def _read(options: DeltaOptions, number: int) -> Snapshot:
    body = _body(options, number)
    if options.feed and body.feed != options.feed:
        raise SinkRefused(
            f"lake {options.root} belongs to changefeed {body.feed!r}, not {options.feed!r}: "
            "give --changefeed-id or another sink directory",
        )
    schema = obstore.get(store(options.control_uri), f"schemas/{body.schema}.json").bytes().to_bytes()
    checkpoint = Checkpoint(body.checkpoint_ts, body.done)
    return Snapshot(number, checkpoint, SchemaState.from_json(schema), body.tables, body.retired)


def _body(options: DeltaOptions, number: int) -> _Body:
    raw = obstore.get(store(options.control_uri), _path(number)).bytes().to_bytes()
    return msgspec.json.decode(raw, type=_Body)


def publish(options: DeltaOptions, snapshot: Snapshot) -> None:
    """Write `snapshot` under its number. Raises Fenced when another writer took it."""
    place = store(options.control_uri)
    schema = snapshot.state.to_json()
    digest = hashlib.sha256(schema).hexdigest()[:32]
    obstore.put(place, f"schemas/{digest}.json", schema)
    checkpoint = snapshot.checkpoint
    now_ms = int(time.time() * 1000)
    tables, retired = dict(snapshot.tables), dict(snapshot.retired)
    body = _Body(checkpoint.ts, checkpoint.done, digest, tables, retired, options.feed, now_ms)
    try:
        obstore.put(place, _path(snapshot.number), msgspec.json.encode(body), mode="create")
    except AlreadyExistsError as taken:
        raise Fenced(
            f"lake {options.root}: snapshot {snapshot.number} was published by another writer; "
            "run one changefeed per lake",
        ) from taken


def _path(number: int) -> str:
    return f"snapshots/{number:020d}.json"


def _numbers(options: DeltaOptions) -> list[int]:
    place = store(options.control_uri)
    paths = [entry["path"] for batch in obstore.list(place, "snapshots") for entry in batch]
    return sorted(int(path.rsplit("/", 1)[-1].removesuffix(".json")) for path in paths if path.endswith(".json"))
