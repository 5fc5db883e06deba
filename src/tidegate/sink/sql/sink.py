"""The sink of a database: an equal copy of the upstream in MySQL, MariaDB or TiDB.

    recover   become the writer: raise the epoch of `tidegate.progress`
    open      preflight: the account's rights, and tables that differ from the upstream's
    run       shards in tasks, each over a connection of its own; a transaction moves its shard's position (progress.py)
    ddl       one by one, when all rows before it are committed: each once, by a ledger (ddl/)
    advance   the checkpoint; where it is a sync point, with the pair
    gate      rounds end at sync points, and where a reader has a lease

Guarantee: exactly once, including tables without a key; of equal rows that one transaction inserts into such a table, a
topic carries one (rows.py).  Progress is stored in the target, in the transactions of the data.  A DDL cuts all tables
(barrier ALL).

    transaction-atomicity     a reader of the target sees                          written in parallel
    global                    whole transactions of the upstream                   nothing: one shard
    table                     whole transactions of each table                     tables, or families of them
    none                      rows                                                 the same, and rows by their key

`global` is the default: a shard spends most of its time in the server, and one shard has transactions of many rows.

A family is a set of tables connected by foreign keys.  One shard writes it in commit order, so that no reader sees a
row before the row that it references.  The foreign keys are read from the target after each DDL.

The preflight of a new feed refuses a target without the upstream's tables and columns; other types, NULL and primary
keys are a warning.  Without SELECT, INSERT, UPDATE and DELETE the feed ends with the GRANT to run; rights that only
DDLs need are a warning.  If the ledger has a DDL above the checkpoint, or one that waits for the user, the tables may
be ahead and are not compared.  Grants by roles, and those of a TiDB, are not read.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias
from zlib import crc32

from tidegate.engine.filter import TableFilter
from tidegate.engine.load import LoadChanges
from tidegate.engine.plan import PlannedDdl, Round, Segment
from tidegate.engine.ports import (
    Changes,
    FlushPolicy,
    RoundLimit,
    SegmentSink,
    SinkPosition,
    Tasks,
    WithCheck,
    WithGate,
    WithKeys,
    Written,
)
from tidegate.engine.reload import key_column
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import AccountRefused, SinkError, SinkRefused
from tidegate.model.left_out import NO_KEY
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import abandon, faults, raw_result
from tidegate.mysql.rows import ResultBroken, ResultRows
from tidegate.mysql.server_answer import granted, has_right
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import (
    WORKERS_MAX,
    SqlOptions,
    TargetServer,
    TargetSession,
    number_of,
    probe,
    sink_error,
)
from tidegate.sink.sql.ddl_ledger import DdlWriter, fence_by_progress, has_ddl_above
from tidegate.sink.sql.ddl_rewrite import TAKES_ALL
from tidegate.sink.sql.ddl_runner import DdlRunner
from tidegate.sink.sql.ddl_shape import type_in, type_shown
from tidegate.sink.sql.progress import ShardLayout, SyncPointTable, TargetProgress, leased_ts, reached
from tidegate.sink.sql.rows import splits
from tidegate.sink.sql.task import ShardJob, write_shard

LOGGER: Final = logging.getLogger(__name__)
LEASE_POLL_S: Final = 0.5
"""Seconds between reads of the leases."""


class SqlSink(SegmentSink[Written], WithCheck, WithGate, WithKeys):
    """Writes to the server of `options`; `run_lock` keeps another run of the feed on this machine out, `rules` are
    those of the tables that are replicated (None: all)."""

    flush_policy = FlushPolicy(limit=RoundLimit(rows=500_000, size_bytes=256 << 20), idle_s=5.0)
    brings_again = "rows"

    def __init__(
        self,
        options: SqlOptions,
        *,
        run_lock: Callable[[], AbstractContextManager[None]] = nullcontext,
        rules: TableFilter = TAKES_ALL,
    ) -> None:
        self.options = options
        self._run_lock, self._rules = run_lock, rules
        self._progress = TargetProgress(options.feed)
        self._session: TargetSession | None = None
        self._target: TargetServer | None = None
        self._state = SchemaState()
        self._warned: set[str] = set()
        points = options.sync_points
        self._points = None if points is None else SyncPointTable(options.feed, points)
        self._families: Mapping[tuple[str, str], tuple[str, str]] | None = None
        self._leased_ts: int | None = None
        self._polled_s = -LEASE_POLL_S

    def run_lock(self) -> AbstractContextManager[None]:
        return self._run_lock()

    def recover(self) -> SinkPosition:
        with self._connected() as session:
            position = self._progress.take(session)
            if self._points is not None:
                self._points.create(session)
        return position

    def check(self) -> bool:
        with self._connected():
            return True

    def open(self, position: SinkPosition) -> None:
        """Start at a position, after the preflight. SinkRefused for tables of a new feed that the target lacks, or
        columns of them; AccountRefused for missing rights to write rows."""
        self._progress.start(position)
        self._state = position.state
        tables = [table for table in position.state.tables.values() if self._rules.matches(*table.name)]
        if not tables:
            return
        self._warn_keyless(tables)
        with self._connected() as session:
            target = self._target
            assert target is not None
            for warning in check_rights(session, target, tables):
                self._warn_once(warning)
            is_fresh = self._progress.is_fresh
            if not is_fresh and has_ddl_above(session, self.options.feed, position.checkpoint.ts):
                return
            differences = list(_differences(session, target, tables))
        texts = [text for text, _ in differences]
        lacking = [text for text, lacks in differences if lacks]
        if is_fresh and lacking:
            raise SinkRefused(
                f"{self.options.address}: {summary(lacking)}: a replica of tables with rows must start from a copy of "
                f"them, as of the start ts"
            )
        if texts:
            self._warn_once(
                f"tables of {self.options.address} differ from the upstream's: {summary(texts)}. Rows that do not fit "
                f"will fail the changefeed; ALTER the tables unless this is intended"
            )

    def filled(self, tables: Sequence[TableInfo]) -> Mapping[TableName, str]:
        with self._connected() as session:
            filled = [table.name for table in tables if has_rows(session, table.name)]
        return {name: f"table {name} of {self.options.address} has rows" for name in filled}

    def keys(self, table: TableInfo) -> Iterator[tuple[str, ...]]:
        columns = [column for name in table.handle_key if (column := table.column(name)) is not None]
        texts = ", ".join(key_column(column.type, quote_name(column.name)) for column in columns)
        with closing(TargetSession(self.options)) as session:
            session.ask(sent.SETTING.format(name="net_write_timeout", value=86400))
            question = sent.ALL_ROWS.format(columns=texts, table=quote_names(*table.name), some="")
            try:
                for arrays in ResultRows(*raw_result(session.connection, question)).batches():
                    texts_of = ([str(value, "utf-8", "replace") for value in array.to_pylist()] for array in arrays)
                    yield from zip(*texts_of, strict=True)
            except faults(OSError, ResultBroken) as error:
                raise sink_error(error, self.options) from error
            finally:
                abandon(session.connection)  # closed, the driver would read the rest

    def has_lock(self, name: str) -> bool:
        with self._connected() as session:
            return bool(session.ask(sent.IS_LOCKED, values=(name, name))[0][0] == 0)

    def _warn_keyless(self, tables: Iterable[TableInfo]) -> None:
        keyless = sorted(str(table.name) for table in tables if not table.handle_key)
        if keyless:
            self._warn_once(
                f"{', '.join(keyless)}: {NO_KEY}; replicated, but a row is found by all its columns: a key is much "
                f"faster"
            )

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            LOGGER.warning(warning)

    def gate(self, checkpoint_ts: int) -> int | None:
        """Return the next sync point or lease. A feed that begins at 0 has none before its first round:
        there would be one for each interval since 1970."""
        if time.monotonic() - self._polled_s >= LEASE_POLL_S or self._leased_ts == checkpoint_ts:
            with self._connected() as session:
                ts = leased_ts(session, self.options.feed, checkpoint_ts)
            if ts is not None and ts != self._leased_ts:
                LOGGER.warning("changefeed %s is held at %d by a reader of its target", self.options.feed, ts)
            self._leased_ts, self._polled_s = ts, time.monotonic()
        point = None if self._points is None or not checkpoint_ts else self._points.points.after(checkpoint_ts)
        return min((ts for ts in (self._leased_ts, point) if ts is not None), default=None)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[Written]:
        if not segment.tables:
            return []
        with self._connected() as session:
            self._progress.lay_out(session, self._layout(session, segment.tables, tasks.slots))
            target = self._target
        assert target is not None
        overwrites = isinstance(changes, LoadChanges) and changes.over
        options = replace(self.options, safe_mode=True) if overwrites else self.options
        return tasks.run(write_shard, list(self._jobs(segment, changes, target, options)))

    def ddl(self, planned: PlannedDdl) -> None:
        with self._connected():
            target = self._target
        assert target is not None
        feed, epoch = self.options.feed, self._progress.epoch
        writer = DdlWriter(feed, epoch, fence_by_progress(feed, epoch))
        runner = DdlRunner(
            lambda: TargetSession(self.options).connection,
            target,
            writer,
            LOGGER.warning,
            self._warned,
            rules=self._rules,
            whole_from=self.whole_from,
        )
        self._families = None
        runner.run(planned)
        before, after = planned.before.tables, planned.after.tables
        self._warn_keyless(table for key, table in after.items() if key not in before)

    def advance(self, planned: Round, results: Sequence[Written]) -> SinkPosition:  # noqa: ARG002  their rows are committed
        position, ts = SinkPosition(planned.checkpoint, planned.state), planned.resolved_ts
        failpoint("sql/before-advance")
        with self._connected() as session:
            target = self._target
            assert target is not None
            points = self._points if self._points is not None and self._points.points.is_one(ts) else None
            if points is not None and reached(session, self.options.feed) > ts:
                LOGGER.warning("no sync point at %d: an earlier run with another interval has passed it", ts)
                points = None
            if points is None:
                self._progress.advance(session, position, ts)
            else:
                noted: list[int] = []
                note = partial(points.note, session, target, ts)
                self._progress.advance(session, position, ts, lambda: noted.append(note()))
                points.show(session, target, noted[0])
        self._state = planned.state
        return position

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _layout(self, session: TargetSession, rows_of: Sequence[TableInfo], slots: int) -> ShardLayout:
        options = self.options
        shards = max(1, min(options.workers, WORKERS_MAX, slots))
        if options.atomicity == "global" or shards == 1:
            return ShardLayout(1, options.atomicity)
        if self._families is None:
            rows = session.ask(sent.FOREIGN_KEYS)
            self._families = families((TableName(*row[:2]).key, TableName(*row[2:4]).key) for row in rows)
        split_keys = set(self._progress.layout.splits)
        if options.atomicity == "none":
            tables = {table.name.key: table for table in rows_of}
            tables |= {key: table for key, table in self._state.tables.items() if key in split_keys}
            split_keys = {key for key, table in tables.items() if splits(table)} - self._families.keys()
        else:
            split_keys = set()
        return ShardLayout(shards, options.atomicity, tuple(sorted(split_keys)), tuple(sorted(self._families.items())))

    def _jobs(
        self, segment: Segment, changes: Changes, target: TargetServer, options: SqlOptions
    ) -> Iterator[ShardJob]:
        layout, epoch = self._progress.layout, self._progress.epoch
        split, heads = frozenset(layout.splits), dict(layout.ties)

        def is_mine(key: tuple[str, str], shard: int) -> bool:
            head = "\0".join(heads.get(key, key)).encode("utf-8", "surrogatepass")
            return key in split or crc32(head) % layout.shards == shard

        for shard in range(layout.shards):
            mine = tuple(table for table in segment.tables if is_mine(table.name.key, shard))
            if mine:
                own = Segment(segment.after, segment.upto, mine)
                yield ShardJob(changes, own, split, layout.shards, shard, epoch, options, target)

    @contextmanager
    def _connected(self) -> Iterator[TargetSession]:
        """The driver's session, for all but DDLs; after an error the next call makes a new one."""
        if self._session is None:
            session = TargetSession(self.options, read_s=self.options.read_s)
            self._target = self._target or probe(session)
            self._session = session.prepare(self._target)
        try:
            yield self._session
        except SinkError:
            self.close()
            raise


TableKey: TypeAlias = tuple[str, str]


def families(edges: Iterable[tuple[TableKey, TableKey]]) -> Mapping[TableKey, TableKey]:
    """Return the name of its family for each table that a foreign key comes from or leads to."""
    heads: dict[TableKey, TableKey] = {}
    for table, other in edges:
        first, second = sorted((heads.setdefault(table, table), heads.setdefault(other, other)))
        heads |= {table: first for table, head in heads.items() if head == second}
    return heads


ROW_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
DDL_RIGHTS: Final = ("CREATE", "DROP", "ALTER", "INDEX")
SUMMARY_COUNT: Final = 5
"""Differences that a message names."""

ABSENT: Final = frozenset({1049, 1146})
"""There is no such database, or no such table."""


def has_rows(session: TargetSession, name: TableName) -> bool:
    """Return True for a table that exists and is not empty."""
    try:
        return bool(session.ask(sent.ANY_ROW.format(table=quote_names(*name))))
    except SinkError as error:
        if number_of(error) not in ABSENT:
            raise
        return False


def check_rights(session: TargetSession, target: TargetServer, tables: Sequence[TableInfo]) -> Iterator[str]:
    """Return warnings of rights that DDLs will miss. AccountRefused where a right to write rows is missing, with the
    statement that grants it."""
    if not target.traits.grants:
        return
    grants = granted(str(row[0]) for row in session.ask(sent.GRANTS))
    if grants is None:
        return
    ((account,),) = session.ask(sent.ACCOUNT)
    user, _, host = str(account).rpartition("@")
    for schema in dict.fromkeys(table.name.schema for table in tables):
        names = [table.name.table for table in tables if table.name.schema == schema]
        rows, ddls = (
            [right for right in rights if not all(has_right(grants, right, schema, name) for name in names)]
            for rights in (ROW_RIGHTS, DDL_RIGHTS)
        )
        statement = f"GRANT {', '.join([*rows, *ddls])} ON {quote_name(schema)}.* TO '{user}'@'{host}'"
        if rows:
            error = f"{session.options.address}: the account lacks {', '.join(rows)} on database {schema}: {statement}"
            raise AccountRefused(error).at(table=schema)
        if ddls:
            yield f"DDLs of database {schema} need privileges that the account lacks: {statement}"


def summary(differences: Sequence[str]) -> str:
    """Return differences as one text."""
    more = len(differences) - SUMMARY_COUNT
    return "; ".join(differences[:SUMMARY_COUNT]) + (f" and {more} more" if more > 0 else "")


def _differences(
    session: TargetSession, target: TargetServer, tables: Sequence[TableInfo]
) -> Iterator[tuple[str, bool]]:
    """The differences between the target's tables and `tables`, and True if a table or column is missing there."""
    types: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    schemas = sorted({lowered(table.name.schema) for table in tables})
    columns = session.ask(sent.MET_COLUMNS.format(marks=", ".join(["%s"] * len(schemas))), values=schemas)
    for schema, table, column, kind, null, key in columns:
        own = (lowered(schema), lowered(table))
        types[own][lowered(column)] = type_shown(str(kind)) + ("" if null == "YES" else " not null")
        if key == "PRI":
            keys[own].add(lowered(column))
    for table in tables:
        types_there = types.get(table.name.key)
        if types_there is None:
            yield f"table {table.name} does not exist", True
            continue
        lacking = [column.name for column in table.columns if lowered(column.name) not in types_there]
        if lacking:
            yield f"table {table.name} has no column {', '.join(lacking)}", True
        if table.inferred:
            continue
        for expected in table.columns:
            meant = type_in(expected.type, target) + ("" if expected.nullable else " not null")
            shown = types_there.get(lowered(expected.name), meant)
            if shown != meant:
                yield f"column {expected.name} of table {table.name} is {shown}, not {meant}", False
        key = {lowered(name) for index in table.indexes if index.primary for name in index.columns}
        if key != keys[table.name.key] and not lacking:
            lacks = f"lacks the primary key ({', '.join(sorted(key))})"
            yield f"table {table.name} {lacks if key else 'has a primary key that the upstream lacks'}", False
