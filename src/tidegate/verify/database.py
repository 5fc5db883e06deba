"""Readers of servers of MySQL's protocol at one timestamp, without stopping their writers.

    upstream, TiDB          SET tidb_snapshot = T
    upstream, another       START TRANSACTION WITH CONSISTENT SNAPSHOT      current state: the server keeps no history
    replica, TiDB           SET tidb_snapshot = the secondary_ts of the sync point T
    replica, any            START TRANSACTION WITH CONSISTENT SNAPSHOT      while the feed waits at T: a lease holds it
                                                                            there until the snapshot has begun

A feed is at T if its checkpoint is T, no shard is ahead of it, and no DDL above T has begun.  This is checked within
the snapshot, and again after reading the names of tables and columns, which are not part of a snapshot in MySQL.

Source: TiDB documentation, "Read Historical Data"; MySQL manual, "Consistent Nonlocking Reads".
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import ConfigError, LoginRefused, SinkError
from tidegate.model.name import lowered, parts_of, qualified
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import abandon, faults, raw_result
from tidegate.mysql.rows import ResultBroken, ResultRows
from tidegate.sink.sql.connection import SqlOptions, TargetSession, probe, sink_error
from tidegate.sink.sql.progress import MAIN, lease_at, secondary_of
from tidegate.verify.compare import (
    INTEGER,
    Columns,
    ComparedTable,
    Key,
    Part,
    Passes,
    TableReader,
    TruthColumn,
    Watch,
    chunk_sql,
    form_of,
    row_sql,
    summed_sql,
)
from tidegate.verify.sums import ChunkPlan, ChunkSums

BeginSnapshot: TypeAlias = Callable[[TargetSession], None]
"""Takes a session to the moment of another one; pickles."""
_ALTERED: Final = {(1054,), (1146,), (1412,)}
"""The column or table no longer exists, or has changed since the snapshot: a snapshot of MySQL has no definitions."""


class DatabaseReader(TableReader):
    """The tables of a server that `passes(schema, table)` lets through, by their names in lower case; `how`
    says at what moment it is read, and `begin` takes another session to it, if that is possible. Rows are those
    of the WHERE clause `some`."""

    def __init__(
        self, session: TargetSession, passes: Passes, how: str, begin: BeginSnapshot | None = None, *, some: str = ""
    ) -> None:
        session.connection.decoders = {}  # values come as texts and bytes
        self._session, self._begin_snapshot, self._some = session, begin, some
        self.whole = "" if begin else "its snapshot is that of one connection"
        self.label = session.options.address + how
        columns_by_table: dict[tuple[str, str], list[Any]] = {}
        for schema, table, *rest in () if some else map(_texts, session.ask(sent.COMPARED_COLUMNS)):
            columns_by_table.setdefault((schema, table), []).append(rest)
        self.tables = {
            lowered(qualified(*name)): _shape(qualified(*name), columns)
            for name, columns in columns_by_table.items()
            if passes(*name)
        }

    def count(self, shape: ComparedTable) -> int:
        ((count,),) = self._ask(shape, sent.COUNT.format(table=_sql_name(shape)))
        return int(count)

    def columns(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Columns]:
        question = sent.ALL_ROWS.format(columns=summed_sql(shape, plan), table=_sql_name(shape), some=self._some)
        connection, ended = self._session.connection, False
        try:
            with self._read(shape):
                try:
                    yield from ResultRows(*raw_result(connection, question)).batches()
                except faults(OSError, ResultBroken) as error:
                    raise sink_error(error, self._session.options) from error
            ended = True
        finally:
            if not ended:
                abandon(connection)

    def parts(self, shape: ComparedTable, count: int) -> Sequence[Part]:
        kinds = {lowered(column.name): form_of(column.type) for column in shape.columns}
        if self._begin_snapshot is None or len(shape.key) != 1 or kinds[lowered(shape.key[0])] is not INTEGER:
            return ()
        key = quote_name(shape.key[0])
        ((low, high),) = self._ask(shape, sent.ENDS.format(key=f"{key} + 0", table=_sql_name(shape)))
        if low is None:
            return ()
        width = -(-(int(high) - int(low) + 1) // count)
        ends = [None, *range(int(low) + width, int(high) + 1, width), None]
        return [_KeyRange(self._session.options, self._begin_snapshot, key, ends) for ends in pairwise(ends)]

    def rows(
        self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int], watch: Watch = lambda _: None
    ) -> Iterator[tuple[int, Key]]:
        chunk, reads = chunk_sql(shape, plan), [form_of(column.type).read for column in shape.chosen(plan.columns)]
        listed = ", ".join(map(str, chunks))
        some = sent.SOME_CHUNKS.format(chunk=chunk, chunks=listed) if plan.chunks > 1 else ""
        question = sent.ROWS.format(chunk=chunk, row=row_sql(shape, plan), table=_sql_name(shape), some=some)
        with self._read(shape):
            for number, *row in self._session.stream(question):
                values = (None if value is None else read(value) for value, read in zip(row, reads, strict=True))
                yield int(number), tuple(values)
                watch(1)

    def _ask(self, shape: ComparedTable, question: str) -> Sequence[Sequence[Any]]:
        with self._read(shape):
            return self._session.ask(question)

    @contextmanager
    def _read(self, shape: ComparedTable) -> Iterator[None]:
        try:
            yield
        except SinkError as error:
            cause = error.__cause__
            if cause is None or cause.args[:1] not in _ALTERED:
                raise
            raise SinkError(
                f"{self.label}: a DDL changed table {shape.name} while it was compared; its rows of that moment "
                "cannot be read any more, so verify again"
            ) from error


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """The rows of a table with keys within `ends`, read by a session of its own."""

    options: SqlOptions
    begin: BeginSnapshot
    key: str
    ends: tuple[int | None, int | None]

    def __call__(self, shape: ComparedTable, plan: ChunkPlan, watch: Watch) -> ChunkSums:
        bounds = [
            f"{self.key} {sign} {end}" for sign, end in zip((">=", "<"), self.ends, strict=True) if end is not None
        ]
        with closing(TargetSession(self.options)) as session:
            session.prepare(probe(session))
            self.begin(session)
            some = f" WHERE {' AND '.join(bounds)}" if bounds else ""
            return DatabaseReader(session, lambda *_: True, "", some=some).sums(shape, plan, watch)


def _sql_name(shape: ComparedTable) -> str:
    return quote_names(*parts_of(shape.name))


def _texts(row: Any) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in row]


def _shape(name: str, columns: list[list[str]]) -> ComparedTable:
    return ComparedTable(
        name,
        key=tuple(column for column, _, _, key in columns if key == "PRI"),
        columns=tuple(
            TruthColumn(column, kind, generated="virtual" if "VIRTUAL" in extra.upper() else "")
            for column, kind, extra, _ in columns
        ),
        has_key=any(key for *_, key in columns),
    )


_BEGIN: Final = (sent.REPEATABLE, sent.SNAPSHOT)
_PATIENT: Final = sent.SETTING.format(name="net_write_timeout", value=86400)
"""Timeout for a side that waits until the other one has sorted its rows."""
_POLL_S: Final = 0.1


class RequestedMoment(NamedTuple):
    """A timestamp, or None for the newest moment available, how long to wait for it, and whether it may be a sync
    point."""

    ts: int | None
    wait_s: float = 30.0
    points: bool = True


class FeedPosition(NamedTuple):
    """The checkpoint of a changefeed, and whether the target holds exactly what the upstream had then."""

    checkpoint_ts: int
    stands: bool


def upstream_at(session: TargetSession, ts: int, passes: Passes) -> DatabaseReader:
    """Return the tables of an upstream: of a TiDB at `ts`, of another server as of now. Raises ConfigError if a TiDB
    does not have that ts."""
    past = probe(session).traits.past
    begin = partial(_set_snapshot, ts=ts) if past else _begin
    begin(session)
    return DatabaseReader(session, passes, " at that ts" if past else " as it is now", begin)


def _begin(session: TargetSession) -> None:
    session.ask(_PATIENT, *_BEGIN)


def replica_at(
    session: TargetSession, feed: str, moment: RequestedMoment, passes: Passes
) -> tuple[DatabaseReader, int]:
    """Return the tables of a replica at a moment, and its timestamp. Raises ConfigError if the changefeed does not
    reach it in time."""
    has_past = probe(session).traits.past
    point = _readable_point(session, feed, moment.ts) if has_past and moment.points else None
    if point is not None:
        begin = partial(_set_snapshot, ts=point[1])
        return DatabaseReader(session, passes, " at a sync point", begin), point[0]
    if not has_past:
        session.ask(_PATIENT)
    with closing(TargetSession(session.options)) as second:
        if side := _side(session, second, feed, moment.ts, passes, how=" where its changefeed stood"):
            return side
        position = position_of(second, feed)
        if moment.ts is not None and position.checkpoint_ts > moment.ts:
            past = "no sync point was written there" if has_past else "the server has no past to read"
            raise ConfigError(
                f"changefeed {feed} is at {position.checkpoint_ts} in {session.options.address}, past {moment.ts}, "
                f"and {past}; verify --at latest, or at a later time"
            )
        try:
            if side := _held_side(session, second, feed, moment, passes):
                return side
        except LoginRefused as error:
            raise ConfigError(
                f"changefeed {feed} has to be held while a snapshot begins: {error}; let the account INSERT, UPDATE "
                f"and DELETE in {sent.HOLDS}, or verify while the changefeed does not run"
            ) from error
        position = position_of(second, feed)
    where = (
        f"at {position.checkpoint_ts}"
        if position.stands
        else f"between {position.checkpoint_ts} and where it stands next"
    )
    raise ConfigError(
        f"changefeed {feed} is {where} in {session.options.address}, not at {moment.ts or 'rest'}, after "
        f"{moment.wait_s:g} s; is it running? Wait longer with --wait, run it with --until {moment.ts or 'TSO'}, or "
        "verify --at latest"
    )


def _held_side(
    session: TargetSession, second: TargetSession, feed: str, moment: RequestedMoment, passes: Passes
) -> tuple[DatabaseReader, int] | None:
    """Return the tables in a snapshot that begins while the feed is held; None if it does not stand still in time."""
    with lease_at(second, feed, moment.ts) as lease:
        until_s = time.monotonic() + moment.wait_s
        while time.monotonic() < until_s:
            stands = lease.stands() or position_of(second, feed).stands
            if stands and (
                side := _side(session, second, feed, moment.ts, passes, how=" where its changefeed was held")
            ):
                return side
            time.sleep(_POLL_S)
    return None


def _readable_point(session: TargetSession, feed: str, ts: int | None) -> tuple[int, int] | None:
    """Return the sync point of a TiDB at `ts`, or the newest one, with the TiDB's own ts, once the session reads at it;
    None if there is none, or the newest is no longer kept."""
    point = secondary_of(session, feed, ts) if _has_table(session, "tidb_cdc", "syncpoint_v1") else None
    if point is None:
        return None
    try:
        _set_snapshot(session, point[1])
    except ConfigError:
        if ts is not None:
            raise
        return None
    return point


def _side(
    session: TargetSession, second: TargetSession, feed: str, ts: int | None, passes: Passes, *, how: str
) -> tuple[DatabaseReader, int] | None:
    session.ask(*_BEGIN)
    position = position_of(session, feed)
    if position.stands and ts in {None, position.checkpoint_ts}:
        side = DatabaseReader(session, passes, how)
        if position_of(second, feed) == position:
            return side, position.checkpoint_ts
    session.ask(sent.ROLLBACK)
    return None


def position_of(session: TargetSession, feed: str) -> FeedPosition:
    """Return the position of a feed in its target, as the session sees it."""
    rows = session.ask(sent.POSITIONS, values=(feed.encode(),))
    positions = {int(shard): int(position) for shard, position in rows}
    ts = positions[MAIN]
    has_ledger = _has_table(session, sent.DATABASE, "ddl_history")
    is_amid_ddl = has_ledger and bool(session.ask(sent.HAS_BEGUN, values=(feed, ts, ts)))
    return FeedPosition(ts, stands=max(positions.values()) <= ts and not is_amid_ddl)


def _has_table(session: TargetSession, schema: str, table: str) -> bool:
    return bool(session.ask(sent.HAS_TABLE, values=(schema, table)))


def _set_snapshot(session: TargetSession, ts: int) -> None:
    try:
        session.ask(sent.AT_TS, values=(str(ts),))
    except SinkError as error:
        session.ask(sent.AT_TS, values=("",))  # a TiDB keeps the refused text
        raise ConfigError(
            f"{session.options.address} cannot be read at {ts}: {error}; verify at a later ts, or let the server keep "
            "more: SET GLOBAL tidb_gc_life_time = '24h'"
        ) from error
