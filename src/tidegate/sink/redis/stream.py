"""The mode stream: an entry of a stream for each change, in commit order, each once.

    stream-template=changes:{schema}:{table}         a stream a table;  without names, one for all

    470606747354005504-0                     type insert   table shop.orders   event {"kind":"row","op":"c",..}
    470606747354005504-1                     type update   ..
    470606747354005504-1000000000000000000   type ddl      ..                  behind the rows of its ts
    └ commit_ts ─────┘ └ its number in the stream

A stream takes no id that is not above its last one, so what is written again, by whomever, adds nothing.  For the same
reason nothing can be put before what is there.  So a call has what follows the call before it, and no call is sent
before the one before it is answered; and a server takes entries only in the run in which it was asked whether it still
has the progress (`run_ids`).  One that was restarted refuses them until the round begins anew.

Rows that a source repeats within a commit_ts are told once: those that are alike in all they say.  A source that tells
start_ts repeats none, so all are taken.

Source: Redis documentation, XADD, "Entry IDs"; XINFO STREAM, "last-generated-id".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.neutral import event_object, render
from tidegate.engine.change import Chunk
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Tasks, Written
from tidegate.model.errors import TidegateError
from tidegate.model.event import Event, RowChange
from tidegate.model.name import qualified
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.meant import about
from tidegate.sink.calls import calls_of
from tidegate.sink.redis.options import RedisOptions
from tidegate.sink.redis.places import amid_ddl, writing
from tidegate.sink.redis.scripts import APPEND
from tidegate.sink.redis.servers import RedisServers, ScriptCall
from tidegate.sink.redis.templates import stream_of
from tidegate.sink.redis.work import DdlWork

DDL_SEQ: Final = 10**18
"""Above the numbers of all rows of a ts, and below 2^63."""
CALL_BYTES: Final = 1 << 20
"""A call has about as much at most, but for a single entry."""
_TYPES: Final = {"Insert": "insert", "Update": "update", "Delete": "delete"}


class StreamEntry(NamedTuple):
    """An entry of a stream, in the order in which a script reads it."""

    id: str
    type: str
    table: str
    event: str


class ChangeStreams:
    """The mode, for one feed."""

    needs_key = follows = False

    def __init__(self, options: RedisOptions) -> None:
        self._options = options

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Take any tables."""

    def run(
        self, tasks: Tasks, changes: Changes, steps: Sequence[Rows], run_ids: Mapping[str, str]
    ) -> Sequence[Written]:
        """Add the rows of steps, those of a stream in a task."""
        streams: dict[bytes, list[Rows]] = {}
        for step in steps:
            streams.setdefault(stream_of(self._options.stream, step.table.name), []).append(step)
        ids = tuple(run_ids.values())
        jobs = [StreamJob(changes, stream, tuple(mine), ids, self._options) for stream, mine in streams.items()]
        return tasks.run(add_rows, jobs)

    def ddl(self, servers: RedisServers, work: DdlWork) -> None:
        """Add a DDL to the streams of all its tables."""
        ddl = work.ddl
        names = [about(ddl, work.effects), *_tables(work)]
        entry = StreamEntry(f"{work.commit_ts}-{DDL_SEQ + work.number}", "ddl", _shown(names[0]), _rendered(ddl))
        for stream in dict.fromkeys(stream_of(self._options.stream, name) for name in names):
            _append(servers, stream, [entry], tuple(work.run_ids.values()))
            amid_ddl()


def _tables(work: DdlWork) -> Iterator[TableName]:
    """The names of the tables, before and after."""
    for effect in work.effects:
        for field in effect.__struct_fields__:
            if isinstance(table := getattr(effect, field), TableInfo):
                yield table.name


@dataclass(frozen=True, slots=True)
class StreamJob:
    """The rows of steps that go to one stream."""

    changes: Changes
    stream: bytes
    steps: tuple[Rows, ...]
    run_ids: tuple[str, ...]
    options: RedisOptions


def add_rows(job: StreamJob) -> Written:
    """Add the job's rows; return when Redis has them."""
    (after, upto), *others = {(step.after, step.upto) for step in job.steps}
    assert not others, "a DDL cuts all tables"
    names = [step.table.name for step in job.steps]
    done = Written(names[0] if len(names) == 1 else None)
    numbers = EntryNumbers()
    servers = RedisServers(job.options)
    try:
        for chunk in done.coming(job.changes.in_order(names, after, upto)):
            done.rows += len(chunk)
            for entries in calls_of(numbers.entries(chunk), _size, most=job.options.batch_rows, most_bytes=CALL_BYTES):
                with writing():
                    done.size_bytes += _append(servers, job.stream, entries, job.run_ids)
                done.messages += len(entries)
    except TidegateError as error:
        raise error.at(table=str(done.name or ""), commit_ts=numbers.ts or after) from None
    finally:
        servers.close()
    return done


class EntryNumbers:
    """Numbers the rows of each commit_ts, those of one stream."""

    def __init__(self) -> None:
        self.ts = self._seq = 0
        self._seen: set[str] = set()

    def entries(self, chunk: Chunk) -> Iterator[StreamEntry]:
        """Return the entries of a chunk, in commit order."""
        for row, repeats in _rows(chunk):
            ts = row.commit_ts or 0
            if ts != self.ts:
                self.ts, self._seq = ts, 0
                self._seen.clear()
            event = _rendered(row)
            if repeats:
                if event in self._seen:
                    continue
                self._seen.add(event)
            table = _shown(TableName(row.schema, row.table))
            yield StreamEntry(f"{ts}-{self._seq}", _TYPES[type(row).__name__], table, event)
            self._seq += 1


def _rows(chunk: Chunk) -> Iterable[tuple[RowChange, bool]]:
    """The rows in their order, and whether the source may have repeated them."""
    found = [
        (number, row, batch.start_ts is None)
        for batch, numbers in chunk.parts
        for number, row in zip(numbers.tolist(), events_of(batch), strict=True)
    ]
    found.sort(key=lambda one: one[0])
    return ((row, repeats) for _, row, repeats in found)


def _shown(name: TableName) -> str:
    return qualified(*filter(None, name)).encode("utf-8", "replace").decode()


def _size(entry: StreamEntry) -> int:
    return len(entry.event)


def _rendered(event: Event) -> str:
    return render(event_object(event)).decode()


def _append(servers: RedisServers, stream: bytes, entries: Sequence[StreamEntry], run_ids: Sequence[str]) -> int:
    """Add entries in one call; how many bytes were sent."""
    told = msgspec.msgpack.encode(entries)
    servers.call([ScriptCall(APPEND, [stream], [told, servers.options.stream_entries, *run_ids])])
    return len(told)
