r"""A full load over SQL: everything that a TiDB had at one TSO, S, read with tidb_snapshot.

    plan      S ─► databases, tables, definitions at S ─► borders of each table (connections side by side)
    chunk     SELECT columns FROM t [PARTITION (p)] WHERE lower <= key AND key < upper ─► mysql/rows.py ─► Batch

Each session sets what it needs, tidb_snapshot last, and nothing afterwards; the snapshot is read back then, and before
each chunk, since old servers lost it with a later SET.  A session of which a SET failed is thrown away: a server may
show the refused snapshot as if it had it.  A variable that a server does not know, and that only spares it work, is
left out of the next session.

Tables are listed in two ways, SHOW FULL TABLES and information_schema.tables, and must be the same: some versions list,
in one of them, the tables of now.  Definitions are those of SHOW CREATE at S; columns are named one by one and read as
`complete` reads them (source/large.py), so that a loaded row, a completed one and one of the stream are equal.
TIMESTAMPs are read at +00:00 and shown in the feed's time zone.

    key of a table             chunks are bounded by
    clustered primary key      its columns
    any other table            _tidb_rowid
    a server without one       nothing: one chunk

Borders are the first rows of regions (TABLESAMPLE REGIONS()), of which neighbours are joined or cut on to about
`chunk_rows`, or CHUNK_BYTES by the table's estimated size, since a database takes a chunk as one transaction; where a
server has no TABLESAMPLE, each border is looked up from the one before.  Only the server compares keys.  A border that
cannot be written as a literal, such as a text that is no UTF-8, is left out.  (a, b) >= (x, y) is written
`a > x OR (a = x AND b >= y)`.

    INT, DECIMAL, YEAR          digits                    TEXT, dates, times    'it\'s'
    FLOAT, DOUBLE               1.5e0                     BINARY, BLOB          x'00ff'
    BIT, ENUM, SET              the number, compared with `c` + 0

`GcGuard` keeps the upstream from collecting S: a TiDB whose sessions read at S reports that to its garbage collector,
for tidb_gc_max_wait_time at most.

    9006, 8055   S collected                    HistoryLost    no retry: the load begins again at another S
    1146, 1049   no such table at S             SchemaError    no retry
    future time  S above the server's clock     ConfigError    no retry: the TSO of another cluster
    1045, 1142   the account, or not a TiDB     ConfigError    no retry
    9001, 9002, 9005, 2013, 8175, ..            SourceError    the chunk is read again later

Source: TiDB documentation, "Read Historical Data Using tidb_snapshot", "Dumpling Overview", "TABLESAMPLE",
"_tidb_rowid", "Garbage Collection Overview"; TiDB pkg/session (SetProcessInfo), pkg/domain/infosync (ReportMinStartTS).
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self, TypeAlias
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch, typed_texts
from tidegate.codec.wire_table import WireColumn, WireTable, wire_table
from tidegate.codec.zone import zone_shift
from tidegate.engine.chunk_size import CHUNK_BYTES
from tidegate.engine.filter import is_system
from tidegate.engine.load_plan import ROW_ID, LoadChunk, LoadGuard, LoadPlan, LoadReader, LoadTable, some_of
from tidegate.engine.reload import key_column
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import ConfigError, HistoryLost, SchemaError, SourceError, TidegateError, redacted_value
from tidegate.model.mysql import FLOATS, INTEGERS, NAMED, STRINGS, UNSIGNED_TYPES, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo, TableName
from tidegate.model.tso import LOGICAL_BITS, physical_ms
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import abandon, connect, driver, faults, raw_result
from tidegate.mysql.rows import ROWS_MAX, ResultBroken, ResultRows
from tidegate.mysql.server_answer import granted, has_right
from tidegate.objectstore.threads import ContextPool, begin_thread
from tidegate.source.large import ABSENT, GONE, LOST, code_of, read_as, table_info, text_of, upstream_error
from tidegate.source.upstream_address import SqlLoadOptions, rests_until

Bound: TypeAlias = tuple[str, ...] | None
Part: TypeAlias = tuple[str, Bound, Bound]
Ask: TypeAlias = Callable[..., Sequence[Sequence[Any]]]

OPTION: Final = "load-from"
KEYS_ASKED: Final = 500
"""The most keys in one statement."""
_OLDEST: Final = (5, 3)
"""Earlier versions lose a session's tidb_snapshot with the next SET."""
_VERSION: Final = re.compile(r"-TiDB-v(\d+)\.(\d+)")
_SYNTAX, _REFUSED_SAMPLE = 1064, 8128
_SPARE: Final = 1.03
"""How much larger equal chunks are than the estimated rows need, lest the last one has a few rows."""
_NO_SAMPLE: Final = frozenset({_SYNTAX, 1235, _REFUSED_SAMPLE})
_TEMPORARY: Final = re.compile(r"CREATE (GLOBAL )?TEMPORARY ", re.IGNORECASE)
_SPARING: Final = {
    "max_execution_time": "0",
    "tidb_isolation_read_engines": "'tikv'",
    "tidb_distsql_scan_concurrency": "{scan_concurrency}",
    "tidb_enable_paging": "1",
    "tidb_idle_transaction_timeout": "0",
}
"""Variables that spare a server work, or keep it from ending a session."""
_UNKNOWN_VARIABLE, _NO_RIGHT = 1193, 1227
_UNSETTABLE: Final = frozenset({_UNKNOWN_VARIABLE, _NO_RIGHT, 1231, 1238})
"""A variable that a server does not have, or lets nobody set."""
_ODD_VALUES: Final = _UNSETTABLE | {_SYNTAX, 1235, 8249, 8250}
"""A value of an option that a server does not take, also since it is too old."""
_ODD_TS: Final = 1292
_FUTURE: Final = "future time"
_NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBERS: Final = INTEGERS | UNSIGNED_TYPES | {MysqlType.YEAR, MysqlType.DECIMAL}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LIFE_TIME: Final = "tidb_gc_life_time"
_GC_MAX_WAIT_S: Final = 86_400
"""TiDB's default of tidb_gc_max_wait_time."""
_TABLES: Final = frozenset({"BASE TABLE", "SYSTEM VERSIONED"})
_SEQUENCE: Final = re.compile(
    r"(?<=start with )(-?\d+)(?= minvalue (-?\d+) maxvalue (-?\d+) increment by (-?\d+) "
    r"(?:nocache|cache \d+) (nocycle|cycle))"
)


def load_error(error: Exception, where: str, options: SqlLoadOptions) -> TidegateError:
    """Return the error for one of the driver, or of a result; `where` names what was read, and S."""
    where, code, text = f"{where}: upstream {options.server}", code_of(error), text_of(error)
    if _FUTURE in text:
        return ConfigError(f"{where} has not come to this ts ({code} {text}): it is that of another cluster")
    if code in GONE:
        return HistoryLost(
            f"{where} has collected the snapshot ({code} {text}). No load can go on at this ts: begin a new one at a "
            "later ts, by `tidegate load start FEED --all` in a server, by a higher load-number under [source] without "
            "one; tidb_gc_life_time must be longer than it takes"
        )
    if code in ABSENT:
        return SchemaError(f"{where} has no such table at this ts ({code} {text})")
    return upstream_error(error, where, options.server, OPTION)


class _Session:
    """A connection whose SELECTs are at `ts` (None: of now); `unknown` are variables that its server does not take."""

    def __init__(self, options: SqlLoadOptions, ts: int | None, unknown: set[str]) -> None:
        self.options, self.ts = options, ts if options.snapshot else None
        self.where = "the load" if ts is None else f"the load at ts {ts}"
        raw = dict(driver().converters.encoders)
        longest_s = max(options.address.read_timeout_s, options.read_timeout_s)
        address = msgspec.structs.replace(options.address, read_timeout_s=longest_s).connection_options
        with self.errors():
            while True:
                self._connection = connect(address, use_unicode=False, conv=raw, sql_mode="")
                try:
                    refused = self._prepare(unknown)
                except BaseException:
                    self.kill()
                    raise
                if not refused:
                    break
                self.kill()
                unknown.add(refused)

    @contextmanager
    def errors(self, what: str = "") -> Iterator[None]:
        """Raise errors of the driver, and of results, as those of the load; `what` is read, of the whole load if ""."""
        try:
            yield
        except faults(OSError, ResultBroken) as error:
            where = f"{what} of {self.where}" if what else self.where
            raise load_error(error, where, self.options) from error

    def ask(self, statement: str, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        """Send a statement; return its rows, whose values are bytes."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def verify(self) -> None:
        """Raise SourceError if the session does not read at its ts, and the driver's error if it has ended."""
        if self.ts is None:
            self.ask(sent.CONNECTION)
            return
        ((shown,),) = self.ask(sent.SHOWN_TS)
        if shown != b"%d" % self.ts:
            raise SourceError(
                f"{self.where}: upstream {self.options.server} reads at {_text(shown or b'')!r}, not at this ts; is "
                "there something between here and the server that shares its sessions?"
            )

    def rows(self, query: str, rows_max: int) -> Iterator[list[Any]]:
        """Send a query; return its columns, some rows after the other. Without its end, the connection is closed."""
        ended = False
        try:
            yield from ResultRows(*raw_result(self._connection, query), rows_max=rows_max).batches()
            ended = True
        finally:
            if not ended:
                self.kill()

    def close(self) -> None:
        """End the session."""
        with suppress(*faults(OSError)):
            if self._connection.open:
                self._connection.close()

    def kill(self) -> None:
        """Close the connection, whatever it still sends."""
        abandon(self._connection)

    def _prepare(self, unknown: set[str]) -> str:
        """Set the variables; return the name of one that the server does not take, after which the session is odd."""
        options = self.options
        self.ask(sent.ZONE, ("+00:00",))
        for name, value in _SPARING.items():
            if name in unknown:
                continue
            try:
                self.ask(sent.SETTING.format(name=name, value=value.format(scan_concurrency=options.scan_concurrency)))
            except faults() as error:
                if code_of(error) not in _UNSETTABLE:
                    raise
                return name
        group = sent.RESOURCE_GROUP.format(name=quote_name(options.resource_group))
        for name, value, statement, refusals, right in (
            ("replica-read", options.replica_read, sent.REPLICA_READ, _ODD_VALUES, "a value of its tidb_replica_read"),
            ("resource-group", options.resource_group, group, _ODD_VALUES, "one of its resource groups"),
            ("load-ts", str(self.ts or ""), sent.AT_TS, {_ODD_TS}, "a TSO, such as SHOW MASTER STATUS tells"),
        ):
            try:
                if value:
                    self.ask(statement, () if statement is group else (value,))
            except faults() as error:
                if code_of(error) not in refusals:
                    raise
                raise ConfigError(
                    f"{OPTION}: upstream {options.server} refuses {name} = {value} ({error}): write {right}"
                ) from error
        self.verify()
        return ""


class _KeyColumn(NamedTuple):
    """How a column of a key is read, how it is compared, and its type."""

    read: str
    compared: str
    type: ColumnType

    def literal(self, raw: bytes) -> str | None:
        """Return a value as SQL; None for one that is no text of its type."""
        code = self.type.code
        if code in _NUMBERS or code in FLOATS:
            if not _NUMBER.fullmatch(raw):
                return None
            text = raw.decode()
            return text if code in _NUMBERS or "e" in text.lower() else f"{text}e0"
        if code in STRINGS and self.type.charset == "binary":
            return f"x'{raw.hex()}'"
        try:
            return _quoted(raw.decode())
        except UnicodeDecodeError:
            return None

    def raw(self, text: str) -> bytes:
        """Return the value with that text, as a server prints it to `read_as`. Raises ValueError."""
        code, elements = self.type.code, self.type.elems or ()
        if code in STRINGS and self.type.charset == "binary":
            return bytes.fromhex(text)
        if code is MysqlType.FLOAT:  # the double that it is compared as
            return repr(float(np.float32(text))).encode()
        if code is MysqlType.ENUM:
            return b"%d" % (elements.index(text) + 1 if text else 0)
        if code is MysqlType.SET:
            return b"%d" % sum(1 << elements.index(name) for name in text.split(",") if name)
        return text.encode()

    def of_text(self, text: str) -> str:
        """Return the literal of a key's text, to compare the column itself. Raises SchemaError."""
        try:
            literal = _quoted(text) if self.type.code in NAMED else self.literal(self.raw(text))
        except ValueError:
            literal = None
        if literal is None:
            raise SchemaError(f"the key {redacted_value(text)} is no {self.type.code.name}")
        return literal


def _quoted(text: str) -> str:
    return f"'{driver().converters.escape_string(text)}'"


class Layout(NamedTuple):
    """A table's definition, its columns as rows carry them, and those of its key."""

    info: TableInfo
    wire: WireTable
    keys: tuple[_KeyColumn, ...]

    def where(self, lower: Bound, upper: Bound, sign: str = ">=") -> str:
        """Return the condition of a chunk's rows."""
        bounds = ((sign, lower), ("<", upper))
        parts = [self._compared(column, bound) for column, bound in bounds if bound is not None]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def order(self) -> str:
        """Return what rows are sorted by: their key, so that a chunk that is read again has them in the same order."""
        return ", ".join(key.compared for key in self.keys) or "NULL"

    def _compared(self, sign: str, bound: Sequence[str]) -> str:
        text = f"{self.keys[-1].compared} {sign} {bound[-1]}"
        for key, value in [*zip(self.keys, bound, strict=True)][-2::-1]:
            text = f"({key.compared} {sign[0]} {value} OR ({key.compared} = {value} AND {text}))"
        return text

    def bound(self, row: Sequence[Any]) -> Bound:
        """Return the literals of a row's key; None if one cannot be written."""
        literals = [key.literal(value) for key, value in zip(self.keys, row, strict=True)]
        return None if None in literals else tuple(literal for literal in literals if literal is not None)

    def of_keys(self, keys: Sequence[tuple[str, ...]], columns: str = "") -> str:
        """Return the statement that reads rows of some keys: `columns`, and the texts of the key."""
        names = [quote_name(name) for name in self.info.handle_key]
        texts = ", ".join(key_column(key.type, name) for key, name in zip(self.keys, names, strict=True))
        listed = (", ".join(map(_KeyColumn.of_text, self.keys, key)) for key in keys)
        where = f"({', '.join(names)}) IN ({', '.join(f'({key})' for key in listed)})"
        return sent.WHOLE_ROWS.format(columns=columns + texts, table=quote_names(*self.info.name), where=where)

    def from_(self, partition: str) -> str:
        """Return the table, or one partition of it, as a statement names them."""
        table = quote_names(*self.info.name)
        return sent.OF_PARTITION.format(table=table, partition=quote_name(partition)) if partition else table


@lru_cache(maxsize=64)
def layout_of(name: TableName, create: str, key: tuple[str, ...], ts: int) -> Layout:
    """Return the layout of a table at `ts` of which some columns cut it into chunks. Raises SchemaError."""
    info = table_info(name, create, ts)
    keys = []
    for column in key:
        quoted, column_info = quote_name(column), info.column(column)
        kind = column_info.type if column_info else ColumnType(MysqlType.LONGLONG)
        compared = f"({quoted} + 0)" if kind.code in UNSIGNED_TYPES else quoted
        keys.append(_KeyColumn(read_as(WireColumn(column, kind, 0), quoted), compared, kind))
    return Layout(info, wire_table(info), tuple(keys))


class _Splitter:
    """Finds borders in tables; servers without TABLESAMPLE are remembered."""

    def __init__(self) -> None:
        self._samples = True

    def borders(
        self, session: _Session, layout: Layout, table: str, estimated_rows: int, most: int
    ) -> Iterator[tuple[str, ...]]:
        """Return the borders in a table, or a partition of it, in their order, so that chunks have about `most` rows,
        and less where tasks then share them evenly."""
        keys = ", ".join(key.read for key in layout.keys)

        def ask(statement: str, **words: object) -> Sequence[Sequence[Any]]:
            return session.ask(statement.format(table=table, keys=keys, order=layout.order(), **words))

        regions = self._regions(ask, layout)
        if regions is None:
            chunks = -(-estimated_rows // most) or 1
            shared = -(-chunks // session.options.connections) * session.options.connections
            even = int(_SPARE * estimated_rows / (shared if shared <= 2 * chunks else chunks))
            yield from self._hops(ask, layout, (None, None), min(even, most) or most)
            return
        rows = estimated_rows // (len(regions) + 1)
        if rows > 2 * most:
            for lower, upper in pairwise([None, *regions, None]):
                if lower is not None:
                    yield lower
                yield from self._hops(ask, layout, (lower, upper), most)
            return
        joined = max(most // rows, 1) if rows else 1
        yield from regions[joined - 1 :: joined]

    def _regions(self, ask: Ask, layout: Layout) -> list[tuple[str, ...]] | None:
        """The first keys of all regions but the first, in order; None if the server does not tell them."""
        if not self._samples:
            return None
        try:
            sample = ask(sent.SAMPLE)
        except faults() as error:
            if code_of(error) not in _NO_SAMPLE:
                raise
            self._samples = code_of(error) == _REFUSED_SAMPLE
            return None
        return [*dict.fromkeys(bound for row in sample[1:] if (bound := layout.bound(row)) is not None)]

    @staticmethod
    def _hops(ask: Ask, layout: Layout, bounds: tuple[Bound, Bound], most: int) -> Iterator[tuple[str, ...]]:
        """Borders between two bounds, each looked up from the one before."""
        (lower, upper), ahead = bounds, most
        while border := ask(sent.BORDER, where=layout.where(lower, upper, ">"), rows=ahead - (lower is not None)):
            bound = layout.bound(border[0])
            if bound is None:
                ahead += most
                continue
            if bound == lower:
                return  # a server that finds a key above itself: what is left is one chunk
            yield bound
            lower, ahead = bound, most


class SqlReader(LoadReader):
    """Reads a load from a TiDB. It keeps one connection between chunks, for one caller at a time."""

    def __init__(self, options: SqlLoadOptions) -> None:
        self.options = options
        self._unknown: set[str] = set()
        self._session: _Session | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return SqlReader, (self.options,)

    def newest_ts(self) -> int:
        """Return the newest TSO that the server tells. Raises ConfigError for one that is no TiDB, SourceError."""
        with closing(self._opened(None)) as session, session.errors():
            if not self.options.snapshot:
                return int(time.time() * 1000) << LOGICAL_BITS
            version = _text(session.ask(sent.VERSION)[0][0])
            match = _VERSION.search(version)
            if match is None or (int(match[1]), int(match[2])) < _OLDEST:
                raise ConfigError(
                    f"{OPTION}: {self.options.server} is {version}; a load reads a TiDB of {_OLDEST[0]}.{_OLDEST[1]} "
                    "or newer"
                )
            try:
                rows = session.ask(sent.POSITION)
            except faults() as error:
                if code_of(error) != _SYNTAX:
                    raise
                rows = session.ask(sent.POSITION_NEWER)
            return int(rows[0][1])

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:
        """Return the plan of the tables that are selected, at `ts`, or at the newest TSO.

        Raises ConfigError, SchemaError, HistoryLost, SourceError."""
        newest = self.newest_ts()
        ts = newest if ts is None else ts
        with closing(self._opened(ts)) as session, session.errors():
            version = _text(session.ask(sent.VERSION)[0][0])
            schemas, listed = _listed(session)
            chosen = [(kind, item) for kind, item in listed if selects(item.name)]
            databases = {item.name.schema for _, item in chosen}
            databases |= {name for name in schemas if selects(TableName(name, ""))}
            views, sequences = (
                tuple(
                    (item.name, _create(session, statement.format(table=quote_names(*item.name))))
                    for of_kind, item in chosen
                    if of_kind == kind
                )
                for kind, statement in (("VIEW", sent.DEFINITION), ("SEQUENCE", sent.SEQUENCE_DEFINITION))
            )
            described = tuple(
                (name, _create(session, sent.DATABASE_DEFINITION.format(schema=quote_name(name))))
                for name in schemas
                if name in databases
            )
            cluster, notes = "".join(_answer(session, sent.CLUSTER)), tuple(_hidden(session, sorted(databases)))
            was, ours_ms = _global(session, _LIFE_TIME), self.options.gc_life_time_ms
        tables_in_parts = self._tables(
            [item for kind, item in chosen if kind in _TABLES], ts, tidb=bool(_VERSION.search(version))
        )
        tables = [(table, parts) for table, parts in tables_in_parts if parts]
        bounds = [(index, *bounds) for index, (_, parts) in enumerate(tables) for bounds in parts]
        return LoadPlan(
            ts=ts,
            cluster=cluster,
            version=version,
            time_zone=self.options.time_zone,
            databases=described,
            tables=tuple(table for table, _ in tables),
            views=views,
            notes=notes,
            sequences=sequences,
            made_sequences=tuple(self.continued(sequences if self.options.sequences else ())),
            gc_life_time=(was, f"{ours_ms // 1000}s") if self.options.whole and 0 < duration_ms(was) < ours_ms else (),
            temporary=tuple(table.name for table, parts in tables_in_parts if not parts),
            unselected=tuple(item.name for kind, item in listed if kind in _TABLES and not selects(item.name)),
            chunks=tuple(LoadChunk(number, *part) for number, part in enumerate(bounds)),
        )

    @contextmanager
    def lock(self) -> Iterator[str]:
        name = f"tidegate-{uuid4().hex}"
        with closing(self._opened(None)) as session:
            with suppress(*faults()):
                session.ask(sent.LOCK, (name,))
            yield name

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return the rows of a chunk as INSERTs at `ts`. Raises ConfigError, SchemaError, HistoryLost, SourceError."""
        layout = layout_of(table.name, table.create, table.key, ts)
        if chunk.keys:
            yield from self._of_keys(table, chunk, ts)
            return
        columns = ", ".join(read_as(column, quote_name(column.name)) for column in layout.wire.columns)
        numbered = table.key == (ROW_ID,) and not layout.info.handle_key
        columns += f", {ROW_ID}" if numbered else ""
        where = layout.where(chunk.lower, chunk.upper)
        table_sql = layout.from_(chunk.partition)
        query = sent.LOADED.format(columns=columns, table=table_sql, where=where, order=layout.order())
        limit, begun, rows = self.options.rows_per_s, time.monotonic(), 0
        with self._reading(f"{table.name}, chunk {chunk.number},", ts) as session:
            for arrays in session.rows(query, min(limit or ROWS_MAX, ROWS_MAX)):
                batch = batch_of(layout, arrays, ts, self.options.time_zone)
                if not layout.info.handle_key and not numbered:  # equal rows of one commit_ts are not repeats
                    batch = replace(batch, row_ids=pa.array(np.arange(rows + 1, rows + batch.rows + 1)))
                yield batch
                rows += batch.rows
                if limit:
                    time.sleep(max(begun + rows / limit - time.monotonic(), 0))

    def _of_keys(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return DELETEs of the keys that no row has, by their texts, and then the rows of the others: a key that only
        another text of the same value is deleted first."""
        layout = keyed_layout(table, ts)
        columns = ", ".join(read_as(column, quote_name(column.name)) for column in layout.wire.columns)
        count, batches, present = len(layout.wire.columns), [], set[tuple[str, ...]]()
        with self._reading(f"{table.name}, keys {chunk.number},", ts) as session:
            for first in range(0, len(chunk.keys), KEYS_ASKED):
                query = layout.of_keys(chunk.keys[first : first + KEYS_ASKED], f"{columns}, ")
                for arrays in session.rows(query, ROWS_MAX):
                    batches.append(batch_of(layout, arrays[:count], ts, self.options.time_zone))
                    present.update(_key_texts(arrays[count:]))
        if absent := [key for key in chunk.keys if key not in present]:
            yield deletes_of(layout, absent, ts, self.options.time_zone)
        yield from batches

    def defined(self, names: Collection[TableName]) -> tuple[int, Mapping[TableName, str]]:
        ts, creates = (self.newest_ts() >> LOGICAL_BITS << LOGICAL_BITS) - 1, {}
        with closing(self._opened(ts)) as session, session.errors():
            for name in names:
                try:
                    creates[name] = _create(session, sent.DEFINITION.format(table=quote_names(*name)))
                except faults() as error:
                    if code_of(error) not in ABSENT:
                        raise
        return ts, creates

    def absent(self, table: LoadTable, keys: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
        layout, present = keyed_layout(table, 0), set[tuple[str, ...]]()
        with closing(self._opened(None)) as session, session.errors(str(table.name)):
            for first in range(0, len(keys), KEYS_ASKED):
                for arrays in session.rows(layout.of_keys(keys[first : first + KEYS_ASKED]), ROWS_MAX):
                    present.update(_key_texts(arrays))
        return [key for key in keys if key not in present]

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def continued(self, sequences: Sequence[tuple[TableName, str]]) -> Iterator[tuple[TableName, str]]:
        """Return the sequences with definitions that begin at their next values, those of now: the server keeps no
        others. One that is gone or used up, or whose value the server does not tell, is missing."""
        if not sequences:
            return
        with closing(self._opened(None)) as session, session.errors():
            for name, create in sequences:
                try:
                    rows = session.ask(sent.NEXT_NUMBERS.format(table=quote_names(*name)))
                except faults() as error:
                    if code_of(error) in LOST:
                        raise
                    continue
                values = [int(row[3]) for row in rows if row[4] == b"SEQUENCE"]
                if values and (continued := sequence_from(create, values[0])):
                    yield name, continued

    def _opened(self, ts: int | None) -> _Session:
        return _Session(self.options, ts, self._unknown)

    @contextmanager
    def _reading(self, what: str, ts: int) -> Iterator[_Session]:
        session = self._from_pool(ts)
        try:
            with session.errors(what):
                yield session
        except BaseException:
            session.kill()
            raise
        self._session = session

    def _from_pool(self, ts: int) -> _Session:
        session, self._session = self._session, None
        if session is not None:
            with suppress(TidegateError, *faults(OSError)):
                if session.ts in {ts, None}:
                    session.verify()
                    return session
            session.kill()
        return self._opened(ts)

    def _tables(self, listed: Sequence[LoadTable], ts: int, *, tidb: bool) -> list[tuple[LoadTable, list[Part]]]:
        """The tables with the partition and bounds of each chunk, of which temporary ones have none."""
        splitter, most = _Splitter(), self.options.max_connections or len(listed)
        count = min(self.options.connections, most, len(listed))

        def some(first: int) -> list[tuple[LoadTable, list[Part]]]:
            with closing(self._opened(ts)) as session:
                some_described = []
                for table in listed[first::count]:
                    with session.errors(str(table.name)):
                        some_described.append(_described(session, splitter, table, ts, tidb=tidb))
                return some_described

        described: list[Any] = [None] * len(listed)
        with ContextPool(max(count, 1), "tidegate-load-plan") as pool:
            for first, part in enumerate(pool.map(some, range(count))):
                described[first::count] = part
        return described


def _described(
    session: _Session, splitter: _Splitter, table: LoadTable, ts: int, *, tidb: bool
) -> tuple[LoadTable, list[Part]]:
    """A table with its definition, and its chunks."""
    create = _create(session, sent.DEFINITION.format(table=quote_names(*table.name)))
    if _TEMPORARY.match(create):
        return table, []
    info = table_info(table.name, create, ts)
    partitions = tuple(part.name for part in info.partition.definitions) if info.partition else ()
    primary = next((index for index in info.indexes if index.primary), None)
    hidden = (ROW_ID,) if tidb else ()
    key = hidden if primary is None or primary.clustered is False else primary.columns
    layout, parts = layout_of(table.name, create, key, ts), partitions or ("",)
    rows, row_bytes = table.estimated_rows // len(parts), table.estimated_bytes // max(table.estimated_rows, 1)
    most = max(min(session.options.chunk_rows, CHUNK_BYTES // max(row_bytes, 1)), 1)
    bounds: list[Part] = []
    for part in parts:
        is_cut = key and session.options.whole
        borders = splitter.borders(session, layout, layout.from_(part), rows, most) if is_cut else ()
        bounds += [(part, lower, upper) for lower, upper in pairwise([None, *borders, None])]
    return msgspec.structs.replace(table, create=create, key=key, partitions=partitions), bounds


def sequence_from(create: str, next_number: int) -> str:
    """Return SHOW CREATE SEQUENCE with the sequence's next value as its first; "" if it is used up, or the text is
    another one. `next_number` is one above the last number that was reserved, in steps of one."""
    match = _SEQUENCE.search(create)
    if match is None:
        return ""
    first, low, high, step = map(int, match.group(1, 2, 3, 4))
    start = next_number if step > 0 else next_number - 2
    start += (first - start) % step
    if not low <= start <= high:
        if match[5] == "nocycle":
            return ""
        start = low if step > 0 else high
    return f"{create[: match.start()]}{start}{create[match.end() :]}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _create(session: _Session, statement: str) -> str:
    return _text(session.ask(statement)[0][1])


def _answer(session: _Session, statement: str) -> list[str]:
    """The first column of an answer; nothing where the server refuses to tell."""
    try:
        return [_text(row[0]) for row in session.ask(statement)]
    except faults() as error:
        if code_of(error) in LOST:
            raise
        return []


def _hidden(session: _Session, schemas: Iterable[str]) -> Iterator[str]:
    """What the users of a load are told of databases of which the account may not see all tables."""
    grants = granted(_answer(session, sent.GRANTS))
    if grants and (some := [schema for schema in schemas if not has_right(grants, "SELECT", schema)]):
        yield (
            f"{some_of(some)}: the account has no SELECT on all of it, so there may be tables that it does not see, "
            "which are not loaded; grant it (docs/full-load.md, The account), and begin again, if that is not intended"
        )


def _listed(session: _Session) -> tuple[list[str], list[tuple[str, LoadTable]]]:
    """The databases but a server's own; their tables, views and sequences, by kind. SchemaError if two lists differ."""
    schemas = [name for (raw,) in session.ask(sent.DATABASES) if not is_system(name := _text(raw))]
    shown = {
        (TableName(schema, _text(name)), _text(kind))
        for schema in schemas
        for name, kind in session.ask(sent.TABLES.format(schema=quote_name(schema)))
    }
    tables = [
        (_text(kind), LoadTable(TableName(schema, _text(name)), "", (), (), int(rows or 0), int(size or 0)))
        for raw, name, kind, rows, size in session.ask(sent.ALL_TABLES)
        if not is_system(schema := _text(raw))
    ]
    if odd := sorted(str(name) for name, _ in {(table.name, kind) for kind, table in tables} ^ shown):
        raise SchemaError(
            f"{session.where}: upstream {session.options.server} lists other tables in information_schema.tables than "
            f"in SHOW TABLES ({len(odd)} differ, {odd[0]} first): one of the lists is not of this ts, as in some "
            "versions of TiDB; try again, or at another ts"
        )
    return schemas, tables


def batch_of(layout: Layout, texts: Sequence[Any], ts: int, time_zone: str, written: str = "UTC") -> Batch:
    """Return rows at `ts` as INSERTs; `texts` are their columns as a server prints them, with TIMESTAMPs of the zone
    `written`, and the numbers of the rows if these are known. Raises SchemaError."""
    info, rows = layout.info, len(texts[0])
    columns = layout.wire.columns
    zones = (time_zone, written)
    arrays = [_typed(info, column, array, *zones) for column, array in zip(columns, texts, strict=False)]
    numbers = texts[len(columns)] if len(texts) > len(columns) else None
    after = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in layout.wire.columns])
    zeros = pa.array(np.zeros(rows, np.int32))
    return Batch(
        schema=info.name.schema,
        table=info.name.table,
        fields=layout.wire.fields,
        pk_names=layout.wire.pk_names,
        message=zeros,
        seq=zeros,
        commit_ts=pa.repeat(pa.scalar(ts, pa.int64()), rows),
        op=pa.repeat(pa.scalar("I"), rows),
        partition_id=pa.nulls(rows, pa.int64()),
        before=after.slice(0, 0),
        after=after,
        row_ids=None if numbers is None else numbers.cast(pa.string()).cast(pa.int64()),
        definition=info,
    )


def keyed_layout(table: LoadTable, ts: int) -> Layout:
    """Return the layout of a table whose key is the handle key."""
    return layout_of(table.name, table.create, table_info(table.name, table.create, ts).handle_key, ts)


def _key_texts(columns: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    return zip(*([_text(value) for value in column.to_pylist()] for column in columns), strict=True)


def deletes_of(layout: Layout, keys: Sequence[tuple[str, ...]], ts: int, time_zone: str) -> Batch:
    """Return DELETEs with the handle key alone."""
    columns = {lowered(column.name): column for column in layout.wire.columns}
    names = tuple(columns[lowered(name)] for name in layout.info.handle_key)
    texts = [
        pa.array([key.raw(text) for text in values], pa.binary())
        for key, values in zip(layout.keys, zip(*keys, strict=True), strict=True)
    ]
    rows = batch_of(layout._replace(wire=msgspec.structs.replace(layout.wire, columns=names)), texts, ts, time_zone)
    ops = pa.repeat(pa.scalar("D"), rows.rows)
    return replace(rows, op=ops, before=rows.after, after=rows.after.slice(0, 0))


def _typed(info: TableInfo, column: WireColumn, texts: Any, time_zone: str, written: str) -> Any:
    code = column.type.code
    try:
        array = typed_texts(texts, code, unsigned=column.unsigned, binary=column.binary)
    except Mismatch as error:
        raise SchemaError(f"{info.name}: column {column.name!r} ({code.name}) of the upstream: {error}") from error
    if code is MysqlType.TIMESTAMP and time_zone != written:
        shift, distinct = zone_shift(time_zone, written), array.dictionary_encode()
        shown = [None if text is None else shift(text) for text in distinct.dictionary.to_pylist()]
        return pa.array(shown, pa.string()).take(distinct.indices)
    return array


class GcGuard(LoadGuard):
    """A session that reads at S, asked each `every_s`, and made again where it ends. It is of the cluster whose id is
    `cluster`, if that is known; `life_time` is what tidb_gc_life_time was, and what it is to be."""

    def __init__(
        self,
        options: SqlLoadOptions,
        ts: int,
        *,
        cluster: str = "",
        life_time: tuple[str, ...] = (),
        every_s: float = 60.0,
    ) -> None:
        self._options, self._ts, self._every_s = options, ts, every_s
        self._cluster, self._life_time = cluster, life_time
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._session: _Session | None = None
        self._error: TidegateError | None = None

    @classmethod
    def of_plan(cls, options: SqlLoadOptions, plan: LoadPlan) -> Self:
        """Return the guard of a plan."""
        return cls(options, plan.ts, cluster=plan.cluster, life_time=plan.gc_life_time)

    def __enter__(self) -> Self:
        self._session = self._opened()
        try:
            self._set_life_time(*self._life_time)
            with self._session.errors():
                wait_ms = 1000 * int(_global(self._session, "tidb_gc_max_wait_time") or _GC_MAX_WAIT_S)
                life_ms = duration_ms(_global(self._session, _LIFE_TIME))
        except TidegateError:
            self._session.close()
            raise
        self.deadline_ms = physical_ms(self._ts) + max(wait_ms, life_ms)
        self._thread = begin_thread(self._renew, "tidegate-load-guard")
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._every_s)
        if self._session is not None:
            self._session.close()

    def restore(self) -> None:
        self._set_life_time(*reversed(self._life_time))

    def rests_until(self) -> str:
        return rests_until(self._options.load_hours, time.time())

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _opened(self) -> _Session:
        session = _Session(self._options, self._ts, set())
        with session.errors():
            cluster = "".join(_answer(session, sent.CLUSTER))
        if self._cluster and cluster and cluster != self._cluster:
            session.kill()
            raise ConfigError(
                f"{OPTION}: {self._options.server} is of cluster {cluster}, and the load at ts {self._ts} began on "
                f"cluster {self._cluster}: the address leads to another cluster now"
            )
        return session

    def _set_life_time(self, before: str = "", after: str = "") -> None:
        """Set tidb_gc_life_time, unless it is not `before`: then somebody else has set it. Raises ConfigError for an
        account that may not."""
        if not after:
            return
        with closing(_Session(self._options, None, set())) as session, session.errors(_LIFE_TIME):
            if duration_ms(before) != duration_ms(_global(session, _LIFE_TIME)):
                return
            try:
                session.ask(sent.SET_GLOBAL.format(name=_LIFE_TIME), (after,))
            except faults() as error:
                if code_of(error) != _NO_RIGHT:
                    raise
                raise ConfigError(
                    f"{OPTION}: gc-life-time needs GRANT SYSTEM_VARIABLES_ADMIN ON *.* for the account: {error}"
                ) from error

    def _renew(self) -> None:
        while not self._stop.wait(self._every_s):
            session, self._session = self._session, None
            try:
                if session is not None:
                    with suppress(TidegateError), session.errors():
                        session.verify()
                        self._session = session
                        continue
                    session.kill()
                self._session = self._opened()
                self._error = None
            except TidegateError as error:
                self._error = error


def duration_ms(text: str) -> int:
    """Return the milliseconds of a Go duration such as "10m0s"; 0 for any other text."""
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in _DURATION.findall(text)))


def _global(session: _Session, name: str) -> str:
    """A global variable; "" where there is none."""
    try:
        return _text(session.ask(sent.GLOBAL.format(name=name))[0][0])
    except faults() as error:
        if code_of(error) != _UNKNOWN_VARIABLE:
            raise
        return ""
