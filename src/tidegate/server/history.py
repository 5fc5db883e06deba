"""The history of a changefeed for its page and API: DDLs, definitions, newest rows, dead letters and parked tables.

    a source read directly    ── LogHistory       jobs, definitions and rows of the change log
    a source that lands       ── LandedHistory    DDLs and rows of the changelog, definitions of the lake, or beside the
                                               checkpoint

None of this is part of a run: each request reads immutable files, up to the requested number of rows and from the
newest files only.  What it has opened stays open for the next one (`Histories`), which asks a store for news alone.
A changelog is trimmed behind the checkpoint, so its history is as long as its retention.

Messages and tables that a changefeed could not read or its sink refused can be listed and resolved:

    failed at shop/2/7041 ──► letters   the message, with its bytes
                          ──► skip      it becomes a dead letter        ─┐
                          ──► replay    other bytes are read instead    ─┴─► resume

    table is parked       ──► unpark    the current run, or the next one, applies its changes since

A decision is recorded with its user.  Replayed rows are appended to the changelog, so the changefeed must not run
meanwhile.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.config.entry import FeedConfig, checkpoints_of, is_landed
from tidegate.config.registry import entries_of, home_of
from tidegate.config.tidb import TidbSource, log_of
from tidegate.config.uri import mask_text
from tidegate.engine.change import Chunk, DeadLetter, EventPosition
from tidegate.engine.event_filter import EventFilter
from tidegate.lakes.lake import LATEST, Lake, LakeStates
from tidegate.model.errors import ConfigError, TidegateError
from tidegate.model.name import lowered, table_key
from tidegate.model.table import TableInfo
from tidegate.model.tso import MAX_TS
from tidegate.objectstore.store_path import location
from tidegate.schema.columns import render_type
from tidegate.schema.job import JobState, decode_job_row
from tidegate.schema.stored.create import render_create_table
from tidegate.schema.stored.snapshot import TableVersion, table_info
from tidegate.server.changefeeds import ANSWER_S, Changefeeds
from tidegate.server.record import FeedId, FeedView, UpdateRefused
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import ask, latest
from tidegate.source import kafka_client
from tidegate.source.kafka_options import KafkaTopics
from tidegate.source.kafka_replay import Bytes, Replayed, State, listed, replay, skip
from tidegate.source.tidb_changes import LogChanges, MountOptions
from tidegate.source.tidb_ddl import JOBS, Timeline, stage_of
from tidegate.source.tidb_log import KvLog, name_of
from tidegate.source.tidb_segment import SegmentLog
from tidegate.source.tidb_states import ShownLog

CELL_CHARS: Final = 200
"""Longest value shown; a longer one is truncated."""
OPEN_S: Final = 60.0
"""Longest time between two requests that share what is open."""
UNIQUE: Final = ("KEY", "UNIQUE KEY")
TAIL_FILES: Final = 16
TAIL_BYTES: Final = 32 << 20
"""Most bytes read for a tail; at least one file is read whole."""


class JobStep(msgspec.Struct, frozen=True):
    """A state that an online DDL has reached upstream."""

    state: str
    commit_ts: int


class ShownDdl(msgspec.Struct, frozen=True, kw_only=True):
    """A DDL. `commit_ts` is 0 if it is not done upstream; `steps` are empty if the source does not report them."""

    commit_ts: int
    schema: str
    table: str
    query: str
    left_out: bool = False
    error: str = ""
    steps: tuple[JobStep, ...] = ()


class ShownColumn(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    default: str | None
    generated: str | None
    comment: str


class ShownTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table's definition as of `as_of_ts`; `since_ts` is the timestamp of its last DDL."""

    table: str
    as_of_ts: int
    since_ts: int
    columns: tuple[ShownColumn, ...]
    key: tuple[str, ...]
    indexes: tuple[str, ...]
    statement: str = ""


class ShownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row change: the row's values, and the old values that an UPDATE changed."""

    commit_ts: int
    table: str
    op: str
    values: dict[str, str | None]
    old: dict[str, str | None]


class FeedHistory(Protocol):
    """The DDLs, definitions and rows of a changefeed; `lake` is the one that it fills, None for another sink."""

    lake: LakeStates | None

    def ddls(self, most: int) -> list[ShownDdl]:
        """Return the newest DDLs, newest first."""

    def tables(self, ts: int) -> tuple[str, ...]:
        """Return the names of the tables at `ts`; 0 is now."""

    def definition(self, table: str, ts: int) -> ShownTable:
        """Return a table's definition at `ts`; 0 is now. Raises ConfigError if there is none."""

    def tail(self, table: str, after: int, most: int) -> list[ShownRow]:
        """Return the newest rows above `after` of one table or of all, oldest first."""

    def letters(self, checkpoint_ts: int, most: int) -> "Letters":
        """Return the dead letters: those that block the changefeed first, then the newest."""


class Letters(NamedTuple):
    """The newest dead letters of a changefeed, and the number of all."""

    total: int
    shown: list[tuple[DeadLetter, State]]


@dataclass(slots=True)
class OpenHistory:
    """A history that requests use one after the other, and when the last one came."""

    of: tuple[Any, ...]
    history: FeedHistory
    used_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Histories:
    """Histories of changefeeds, each open until nobody has asked for it for OPEN_S. Thread-safe."""

    def __init__(self, feeds: Changefeeds) -> None:
        self._feeds, self._lock = feeds, threading.Lock()
        self._open: dict[FeedId, OpenHistory] = {}

    @contextmanager
    def opened(self, view: FeedView) -> Iterator[FeedHistory]:
        """Lend the history of a changefeed; an error in the block closes it."""
        record, now_s = view.record, time.monotonic()
        of = record.create_time, record.source_uri, record.sink_uri, record.config
        with self._lock:
            self._open = {feed: each for feed, each in self._open.items() if now_s - each.used_s < OPEN_S}
            entry = self._open.get(view.id)
            if entry is None or entry.of != of:
                entry = self._open[view.id] = OpenHistory(of, history_of(self._feeds.config_of(record)))
            entry.used_s = now_s
        try:
            with entry.lock:
                yield entry.history
        except BaseException:
            with self._lock:
                self._open.pop(view.id, None)
            raise


def history_of(config: FeedConfig) -> FeedHistory:
    """Return the history of a changefeed."""
    steps, (source, sink) = online_of(config), entries_of(config)
    lake = LakeStates(DeltaOptions(root=home_of(config), feed="")) if sink.keeps_progress else None
    if is_landed(source, sink):
        return LandedHistory(config, Changelog(changelog_uri(home_of(config))), steps, lake)
    return LogHistory(config, steps, lake)


def begin_of(config: FeedConfig) -> int:
    """Return the ts above which what a changefeed reads has all changes, a log or topics; 0 if it has all that there
    were, or is neither. Raises SourceError if the broker does not answer within ANSWER_S."""
    match source := config.source:
        case TidbSource():
            return SegmentLog(location(source.directory)).begin().ts
        case KafkaTopics():
            return kafka_client.begin_of(msgspec.structs.replace(source, read_timeout_ms=int(ANSWER_S * 1000)))
    return 0


def online_of(config: FeedConfig) -> Callable[[], "list[ShownDdl]"]:
    """Return a function that lists the online DDLs of a source that reports their states; an empty list for others."""
    if not isinstance(config.source, TidbSource):
        return list
    log = SegmentLog(location(config.source.directory))
    return lambda: online_ddls(log)


def online_ddls(log: KvLog) -> list[ShownDdl]:
    """Return the DDL jobs of a change log with their states, ordered by when each was last written."""
    ddls: dict[int, ShownDdl] = {}
    parts = log.parts(0)
    for row in log.rows(log.begin().ts, parts[-1].high, (JOBS,)) if parts else ():
        if not row.value:
            continue
        job = decode_job_row(row.key, row.value)
        before = ddls.pop(job.id, None)
        steps = before.steps if before else ()
        done = before.commit_ts if before else 0
        state = stage_of(job)
        if not steps or steps[-1].state != state:
            steps = (*steps, JobStep(state, row.commit_ts))
        if job.state == JobState.DONE and not done:
            done = row.commit_ts
        ddls[job.id] = ShownDdl(
            commit_ts=done, schema=job.schema_name, table=job.table_name, query=job.query, steps=steps
        )
    return list(ddls.values())


def _joined(ddls: Iterable[ShownDdl], online: Sequence[ShownDdl], most: int) -> list[ShownDdl]:
    """Return DDLs with their states: those that still run upstream first, then the newest first."""
    steps = {ddl.commit_ts: ddl.steps for ddl in online}
    running = [ddl for ddl in online if not ddl.commit_ts and ddl.steps[-1].state not in {"cancelled", "rollback done"}]
    ddls_with_steps = [msgspec.structs.replace(ddl, steps=steps.get(ddl.commit_ts, ())) for ddl in ddls]
    return [*running, *sorted(ddls_with_steps, key=lambda ddl: -ddl.commit_ts)][:most]


@dataclass(slots=True)
class LandedHistory:
    """The history of a changefeed whose changes land in a changelog."""

    config: FeedConfig
    changelog: Changelog
    online: Callable[[], list[ShownDdl]]
    lake: LakeStates | None

    def ddls(self, most: int) -> list[ShownDdl]:
        self.changelog.refresh()
        ddls = (
            ShownDdl(
                commit_ts=event.ddl.commit_ts or 0,
                schema=event.ddl.schema,
                table=event.ddl.table,
                query=event.ddl.query,
                left_out=event.left_out,
            )
            for event in self.changelog.ddls(0, MAX_TS)
        )
        return _joined(ddls, self.online(), most)

    def tables(self, ts: int) -> tuple[str, ...]:
        """Return the names of the tables at `ts`; 0 is now."""
        return tuple(sorted(str(table.name) for table in self._state(ts)[1].values()))

    def definition(self, table: str, ts: int) -> ShownTable:
        """Return a table's definition at `ts`; 0 is now. Raises ConfigError if there is none."""
        as_of, tables = self._state(ts)
        for info in tables.values():
            if lowered(str(info.name)) == table_key(table):
                return _shown_table(info, as_of)
        raise ConfigError(f"no table {table} at ts {as_of}")

    def tail(self, table: str, after: int, most: int) -> list[ShownRow]:
        self.changelog.refresh()
        files = [file for file in self.changelog.files() if file.part == "rows"]
        newest = sorted(files, key=lambda file: -(file.max_ts or 0))[:TAIL_FILES]
        sizes = accumulate(file.size_bytes for file in newest)
        within = [file for file, size in zip(newest, sizes, strict=True) if size <= TAIL_BYTES] or newest[:1]
        low = max(after, min((file.min_ts or 1 for file in within), default=1) - 1)
        whole = self.changelog.slice(low, MAX_TS)
        groups = [group for group in whole.groups if not table or lowered(str(group.name)) == table_key(table)]
        groups.sort(key=lambda group: -group.max_ts)
        for index, rows in enumerate(accumulate(group.rows for group in groups)):
            if rows >= most:
                low = max(low, min(group.min_ts for group in groups[: index + 1]) - 1)
                break
        names = {group.name.key: group.name for group in groups}
        return _newest(whole.in_order(list(names.values()), low, MAX_TS), after, most)

    def letters(self, checkpoint_ts: int, most: int) -> Letters:
        self.changelog.refresh()
        letters = [] if self.changelog.version < 0 else listed(self.changelog, checkpoint_ts)
        waiting = [pair for pair in letters if pair[1] != "dead"]
        dead = [pair for pair in letters if pair[1] == "dead"]
        return Letters(len(letters), [*waiting, *reversed(dead)][:most])

    def _state(self, ts: int) -> tuple[int, Any]:
        """Return the last known timestamp at or before `ts`, and the definitions then."""
        if self.lake is not None:
            snapshot = Lake(home_of(self.config), ts or LATEST, changelog=self.changelog, states=self.lake).snapshot
            return snapshot.checkpoint.ts, snapshot.state.tables
        saved = checkpoints_of(self.config).load()
        if saved is None:
            raise ConfigError("the changefeed has no checkpoint yet")
        if ts and ts < saved.position.checkpoint.ts:
            raise ConfigError(
                f"definitions are kept only as of the checkpoint {saved.position.checkpoint.ts}; a lake keeps those "
                "of each snapshot"
            )
        return saved.position.checkpoint.ts, saved.position.state.tables


@dataclass(slots=True)
class LogHistory:
    """The history of a changefeed that reads a change log directly."""

    config: FeedConfig
    online: Callable[[], list[ShownDdl]]
    lake: LakeStates | None

    def ddls(self, most: int) -> list[ShownDdl]:
        return _joined(deque(self._ddls(), maxlen=most), self.online(), most)

    def tables(self, ts: int) -> tuple[str, ...]:
        """Return the names of the tables at `ts`; 0 is now."""
        return tuple(sorted(str(name_of(version)) for version in self._versions_at(ts)[1]))

    def definition(self, table: str, ts: int) -> ShownTable:
        """Return a table's definition at `ts`; 0 is now. Raises ConfigError if there is none."""
        as_of, versions = self._versions_at(ts)
        for version in versions:
            if lowered(str(name_of(version))) == table_key(table):
                info = table_info(version.stored, version.schema, version.version)
                statement = render_create_table(version.stored, schema=version.schema)
                return msgspec.structs.replace(_shown_table(info, as_of), statement=statement)
        raise ConfigError(f"no table {table} at ts {as_of}")

    def tail(self, table: str, after: int, most: int) -> list[ShownRow]:
        log, mount, _ = self._log()
        parts = log.parts(after)
        if not parts:
            return []
        high = parts[-1].high
        physical = {table_id for each in self._versions_at(0)[1] for table_id in each.stored.physical_ids}
        ts = max(after, log.begin().ts)
        rows = size = 0
        for count, part in enumerate(reversed(parts)):  # down to where parts hold enough rows for a tail
            replicated = [stored for stored in part.stored if stored.table_id in physical]
            rows += sum(stored.rows for stored in replicated)
            size += sum(stored.size_bytes for stored in replicated)
            if rows >= most or size >= TAIL_BYTES or count >= TAIL_FILES or part is parts[0]:
                ts = max(ts, part.low)
                break
        timeline = self._timeline()
        timeline.start(ts)
        timeline.read(high)

        def chunks() -> Iterator[Chunk]:
            nonlocal ts
            while ts < high:
                stop = min(timeline.stop() or high, high)
                tables_now = timeline.tables.replicated(timeline.snapshot)
                versions = tuple(
                    version for version in tables_now if not table or lowered(str(name_of(version))) == table_key(table)
                )
                names = [name_of(table) for table in versions]
                yield from LogChanges(log, ts, stop, versions, mount, self.config.events).in_order(names, ts, stop)
                if timeline.stop() == stop:
                    timeline.walk(stop)
                ts = stop

        return _newest(chunks(), after, most)

    def letters(self, checkpoint_ts: int, most: int) -> Letters:  # noqa: ARG002
        return Letters(0, [])

    def _log(self) -> tuple[ShownLog, MountOptions, bool]:
        return log_of(self.config, entries_of(self.config)[1], home_of(self.config))

    def _timeline(self) -> Timeline:
        log, mount, ticdc_texts = self._log()
        rules = self.config.table_filter()
        force, keeps = mount.force_replicate, mount.keeps
        return Timeline(log, rules, force=force, keeps=keeps, events=EventFilter(), ticdc_texts=ticdc_texts)

    def _versions_at(self, ts: int) -> tuple[int, Sequence[TableVersion]]:
        """Return the timestamp of the definitions, and the tables then."""
        parts = self._log()[0].parts(0)
        if not parts:
            return 0, ()
        timeline = self._timeline()
        timeline.start(min(ts or MAX_TS, parts[-1].high))
        return timeline.ts, tuple(timeline.tables.replicated(timeline.snapshot))

    def _ddls(self) -> Iterator[ShownDdl]:
        log = self._log()[0]
        parts = log.parts(0)
        if not parts:
            return
        timeline = self._timeline()
        timeline.start(log.begin().ts)
        timeline.read(parts[-1].high)
        while (ts := timeline.stop()) is not None:
            try:
                events = timeline.walk(ts)
            except TidegateError as error:  # the changefeed ends there
                yield ShownDdl(commit_ts=ts, schema="", table="", query="", error=f"{error.code}: {error}")
                return
            for event in events:
                ddl = event.ddl
                yield ShownDdl(
                    commit_ts=ts, schema=ddl.schema, table=ddl.table, query=ddl.query, left_out=event.left_out
                )


def _shown_table(table: TableInfo, as_of: int) -> ShownTable:
    columns = tuple(
        ShownColumn(
            column.name,
            render_type(column.type),
            column.nullable,
            None if column.default is None else _cell(column.default),
            column.generated,
            column.comment,
        )
        for column in table.columns
    )
    indexes = tuple(
        f"{'PRIMARY KEY' if index.primary else f'{UNIQUE[index.unique]} {index.name}'} ({', '.join(index.columns)})"
        for index in table.indexes
    )
    return ShownTable(
        table=str(table.name),
        as_of_ts=as_of,
        since_ts=table.version,
        columns=columns,
        key=table.handle_key,
        indexes=indexes,
    )


# Rows for people.


def _newest(chunks: Iterable[Chunk], after: int, most: int) -> list[ShownRow]:
    rows: deque[ShownRow] = deque(maxlen=most)
    for chunk in chunks:
        rows.extend(row for row in _rows(chunk, most) if row.commit_ts > after)
    return list(rows)


def _rows(chunk: Chunk, most: int) -> list[ShownRow]:
    """Return the last rows of a chunk, in commit order."""
    floor = len(chunk) - most
    numbered: list[tuple[int, ShownRow]] = []
    for part in chunk.parts:
        batch = part.batch
        ops = np.array(batch.op.to_pylist(), dtype=str)
        befores, afters = np.cumsum(ops != "I") - 1, np.cumsum(ops != "D") - 1
        names = [field.name for field in batch.fields]
        table = f"{batch.schema}.{batch.table}"
        for index in range(int(np.searchsorted(part.numbers, floor)), batch.rows):
            op = str(ops[index])
            before = {} if op == "I" else _image(names, batch.before, int(befores[index]))
            after = before if op == "D" else _image(names, batch.after, int(afters[index]))
            old = {name: value for name, value in before.items() if op == "U" and after.get(name) != value}
            row = ShownRow(commit_ts=batch.commit_ts[index].as_py(), table=table, op=op, values=after, old=old)
            numbered.append((int(part.numbers[index]), row))
    return [row for _, row in sorted(numbered, key=lambda pair: pair[0])]


def _image(names: Sequence[str], image: Any, index: int) -> dict[str, str | None]:
    return {name: _cell(column[index].as_py()) for name, column in zip(names, image.columns, strict=True)}


def _cell(value: object) -> str | None:
    """Return a value as short text; secrets in addresses are masked."""
    if value is None:
        return None
    text = mask_text(f"0x{value.hex()}" if isinstance(value, bytes) else str(value))
    return text if len(text) <= CELL_CHARS else f"{text[: CELL_CHARS - 1]}…"


def skip_letter(feeds: Changefeeds, feed: FeedId, position: EventPosition, who: str) -> None:
    """Skip the message that blocks a changefeed. Raises ConfigError for any other message."""
    with feeds.operation_log.noting("skip", feed, who, str(position)):
        view = _resting(feeds, feed)
        skip(home_of(feeds.config_of(view.record)), position, checkpoint_ts=view.checkpoint_ts)


def replay_letter(feeds: Changefeeds, feed: FeedId, position: EventPosition, instead: Bytes, who: str) -> Replayed:
    """Replay a message, with other bytes or options. Raises what `replay` does."""
    with feeds.operation_log.noting("replay", feed, who, str(position)):
        view = _resting(feeds, feed)
        home = home_of(feeds.config_of(view.record))
        return replay(home, position, instead, checkpoint_ts=view.checkpoint_ts)


def unpark_table(feeds: Changefeeds, feed: FeedId, table: str, who: str) -> tuple[str, ...]:
    """Resume a parked table of a lake; return the tables that are resumed with it. Raises ConfigError if it is not
    parked."""
    with feeds.operation_log.noting("unpark", feed, who, table):
        config = feeds.config_of(feeds.get(feed).record)
        if not entries_of(config)[1].keeps_progress:
            raise ConfigError(f"{feed.name} does not write into a lake: nothing is parked there")
        options = DeltaOptions(root=home_of(config), feed="")
        return tuple(name for group in ask(options, latest(options), (table,)) for name in group.names)


def _resting(feeds: Changefeeds, feed: FeedId) -> FeedView:
    view = feeds.get(feed)
    if view.running:
        raise UpdateRefused(f"{feed.name} is running: pause it before a message is skipped or replayed")
    return view
