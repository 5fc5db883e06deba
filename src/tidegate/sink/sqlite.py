# ruff: noqa: S608  names are quoted, values are parameters
"""The SQLite sink: the tables of a database in one file, exactly once, each transaction whole.

    FILE   "shop.orders"      a table for each that has a key; `.` and `%` within a name are written %2E and %25
           "tidegate_feed"    one row: changefeed, epoch, position, checkpoint and schema

    run       one task writes the rows of all tables, and the position behind them, in one transaction
    ddl       one task changes the tables, and moves the position, in one transaction
    advance   writes checkpoint and schema, in one transaction

A position is (ts, number of the DDL at that ts), as in engine/plan.py.  Changes at or below it are skipped when they
are repeated, so a crash at any point needs no repair.  A round ends between two transactions of the upstream, so
readers never see half of one.  Each run takes the next epoch when it begins; a run that finds a higher one in the file
is fenced.

    column                          SQLite
    integers, YEAR                  INTEGER
    BIGINT UNSIGNED, BIT            TEXT: digits, since SQLite's integers end at 2^63
    FLOAT, DOUBLE                   REAL
    BINARY, VARBINARY, BLOB         BLOB
    others                          TEXT, as documents have them (documents.py); DECIMAL is exact

Tables without a key are left out, with one warning.  The file is on a local disk: tasks of a cluster would each write
their own file.

Source: SQLite's documentation, "Transaction", "Datatypes", "UPSERT", "Write-Ahead Logging".
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from itertools import chain, filterfalse
from typing import Any, Final

import msgspec

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Checkpoint, PlannedDdl, Position, Round, Segment
from tidegate.engine.ports import Changes, SinkPosition, Tasks, WithKeys, Written, converted
from tidegate.engine.reload import key_text
from tidegate.model.errors import Fenced, InputError, SchemaError, SinkError, SinkRefused, TidegateError
from tidegate.model.event import DdlSession, Value
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.mysql import FLOATS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.schema import effects
from tidegate.schema.state import SchemaState
from tidegate.sink.calls import KeyedSink, rows_gone
from tidegate.sink.documents import Row, altered, as_columns, inside, last_changes
from tidegate.sink.row_id import RawText

FEED: Final = '"tidegate_feed"'
LOCK_S: Final = 30.0
"""The longest wait for another program that writes the file."""


class SqliteProgress(msgspec.Struct, frozen=True):
    """The progress of a feed, as the file keeps it; `schema` is the JSON of a SchemaState."""

    checkpoint: Checkpoint
    schema: str

    @property
    def position(self) -> SinkPosition:
        return SinkPosition(self.checkpoint, SchemaState.from_json(self.schema.encode()))


class SqliteFile(msgspec.Struct, frozen=True):
    """The file as one run of a feed writes it: a value that travels to tasks. `epoch` 0: no run has begun."""

    path: str
    feed: str
    epoch: int = 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction, committed at its end.

        Raises Fenced if another run began, SinkRefused for another feed's file or one that is no database, SinkError
        for transient errors."""
        try:
            with closing(sqlite3.connect(self.path, timeout=LOCK_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                self._check(connection)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            passes = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR
            raise (SinkError if passes else SinkRefused)(f"{self.path}: {error}") from error

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {FEED} (feed TEXT PRIMARY KEY, epoch INTEGER, ts INTEGER, number INTEGER,"
            " published TEXT)"
        )
        owner = connection.execute(f"SELECT feed, epoch FROM {FEED}").fetchone()
        if owner is None:
            if self.epoch:
                raise SinkRefused(f"{self.path} was emptied; start the changefeed again: it starts over")
            connection.execute(f"INSERT INTO {FEED} VALUES (?, 0, 0, 0, '')", (self.feed,))
        elif owner[0] != self.feed:
            raise SinkRefused(f"{self.path} is written by changefeed {owner[0]}; use another file for {self.feed}")
        elif self.epoch and owner[1] != self.epoch:
            raise Fenced(f"{self.path}: another run of changefeed {self.feed} has taken over")


class TableChanges(msgspec.Struct, frozen=True):
    """The effects of a DDL, its position, the session that ran it, and the zone in which TIMESTAMPs come as texts. It
    `loads` if it creates a table that is then loaded, over existing rows."""

    effects: tuple[effects.Effect, ...]
    position: Position
    session: DdlSession
    zone: str
    loads: bool = False


class SqliteSink(KeyedSink, WithKeys):
    """Writes to a file."""

    brings_again = "rows"

    def __init__(self, path: str, feed: str, *, time_zone: str = "UTC") -> None:
        super().__init__(nullcontext)
        self._file, self._zone = SqliteFile(path, feed), time_zone
        self._tasks: Tasks | None = None

    def recover(self) -> SinkPosition:
        unowned = msgspec.structs.replace(self._file, epoch=0)
        with unowned.transaction() as connection:
            connection.execute(f"UPDATE {FEED} SET epoch = epoch + 1")
            epoch, published = connection.execute(f"SELECT epoch, published FROM {FEED}").fetchone()
        self._file = msgspec.structs.replace(unowned, epoch=epoch)
        if not published:
            return SinkPosition(Checkpoint(), SchemaState(), is_new=True)
        return decode_state(StateKind.CHECKPOINT, published.encode(), SqliteProgress, self._file.path).position

    def filled(self, tables: Sequence[TableInfo]) -> Mapping[TableName, str]:
        with self._file.transaction() as connection:
            filled = [table.name for table in tables if _has_rows(connection, table)]
        return {name: f"table {name} of {self._file.path} has rows" for name in filled}

    def keys(self, table: TableInfo) -> Iterator[tuple[str, ...]]:
        try:
            with closing(sqlite3.connect(self._file.path, timeout=LOCK_S)) as connection:
                names = ", ".join(map(_quoted, table.handle_key))
                for row in connection.execute(f"SELECT {names} FROM {_table(table.name)}"):
                    yield tuple(map(key_text, row))
        except sqlite3.Error as error:
            raise SinkError(f"{self._file.path}: {error}") from error

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[Written]:
        self._tasks = tasks
        self._state = self._state.with_unknown(segment.tables)
        tables = tuple(step.table for step in self._keyed(segment.steps))
        keyed = msgspec.structs.replace(segment, tables=tables)
        return tasks.run(partial(write_segment, self._file, changes), [keyed])

    def ddl(self, planned: PlannedDdl) -> None:
        if planned.error is not None:
            raise planned.refused(planned.error) from planned.error
        assert self._tasks is not None, "a DDL comes behind the rows of its round"
        position = planned.commit_ts, planned.number
        loads = planned.commit_ts <= self.whole_from
        work = TableChanges(planned.effects, position, planned.ddl.known_session, self._zone, loads)
        try:
            self._tasks.run(partial(change_tables, self._file), [work])
        except (InputError, SchemaError, SinkRefused) as error:
            raise planned.refused(error) from error
        self._warn_of(planned)
        self._state = planned.after

    def advance(self, planned: Round, results: Sequence[Written]) -> SinkPosition:  # noqa: ARG002  the file has them
        published = SqliteProgress(planned.checkpoint, self._schema_text(planned.state))
        with self._file.transaction() as connection:
            body = encode_state(StateKind.CHECKPOINT, published).decode()
            connection.execute(f"UPDATE {FEED} SET published = ?", (body,))
        self._state = planned.state
        return SinkPosition(planned.checkpoint, planned.state)


def write_segment(file: SqliteFile, changes: Changes, segment: Segment) -> Written:
    """Write the rows of a segment, and the position after them."""
    done = Written()
    with file.transaction() as connection:
        position = _position(connection)
        done.ahead = position[0]
        for step in segment.steps if position < (segment.upto, 0) else ():
            _ensure(connection, step.table)
            for chunk in done.coming(changes.batches(step.table.name, max(step.after, done.ahead), step.upto)):
                for batch in chunk.runs():
                    _write_batch(connection, step.table, batch)
                    done.rows, done.messages = done.rows + batch.rows, done.messages + batch.rows
                    done.tables[step.table.name] += batch.rows
        _move(connection, (segment.upto, 0))
    return done


def _write_batch(connection: sqlite3.Connection, table: TableInfo, batch: Batch) -> None:
    try:
        typed = converted(batch, typed_batch)
        last = last_changes(table, typed, tuple)
        columns, key = _named(table, [field.name for field in typed.fields]), _named(table, table.handle_key)
        gone = (name for name, row in zip(last.keys, last.rows, strict=True) if row is None)
        connection.executemany(_delete(table), _stored(key, gone))
        comes = ([values[row] for values in last.columns] for row in last.rows if row is not None)
        connection.executemany(_upsert(table, columns), _stored(columns, comes))
    except (TidegateError, sqlite3.DataError, sqlite3.IntegrityError, OverflowError) as error:
        refused = error if isinstance(error, TidegateError) else SinkRefused(f"table {table.name}: {error}")
        raise refused.at(table=str(table.name), commit_ts=batch.commit_ts[0].as_py()) from error


def change_tables(file: SqliteFile, planned: TableChanges) -> None:
    """Apply a DDL to the tables, and move the position past it."""
    with file.transaction() as connection:
        if _position(connection) < planned.position:
            for effect in planned.effects:
                _follow(connection, effect, planned)
            _move(connection, planned.position)


def _follow(connection: sqlite3.Connection, effect: effects.Effect, ddl: TableChanges) -> None:
    match effect:
        case effects.TableCreated(table):
            (_ensure if ddl.loads and _has_rows(connection, table) else _make)(connection, table)
        case effects.TableDropped(old):
            _drop(connection, old.name)
        case effects.TableTruncated(old, new):
            _drop(connection, old.name)
            _make(connection, new)
        case effects.TableRenamed(old, new):
            _ensure(connection, old)
            _rename(connection, old, new)
        case effects.TableAltered(old, new):
            change = altered(old, new, ddl.zone, ddl.position[0], ddl.session, keeps_null=True)
            if not old.handle_key:
                _make(connection, new)
            elif change is not None or [*map(_affinity, _columns(old))] != [*map(_affinity, _columns(new))]:
                _fill(connection, new, map(change or dict, _rows(connection, old)))
                _publish(connection, new)
        case effects.PartitionsTruncated(old, names, new) | effects.PartitionsDropped(old, names, new):
            _fill(connection, new, filterfalse(inside(old, names, ddl.zone), _rows(connection, old)))
            _publish(connection, new)
        case effects.PartitionExchanged(old, partition, other, new, new_other):
            moves = inside(old, (partition,), ddl.zone)
            _fill(connection, new_other, map(as_columns(old, new_other), filter(moves, _rows(connection, old))))
            stays = filterfalse(moves, _rows(connection, old))
            _fill(connection, new, chain(stays, map(as_columns(other, new), _rows(connection, other))))
            _publish(connection, new_other)
            _publish(connection, new)
        case effects.TableRecovered(table):
            raise rows_gone(table, "the file")


def _position(connection: sqlite3.Connection) -> Position:
    ts, number = connection.execute(f"SELECT ts, number FROM {FEED}").fetchone()
    return ts, number


def _move(connection: sqlite3.Connection, position: Position) -> None:
    connection.execute(f"UPDATE {FEED} SET ts = ?, number = ? WHERE (ts, number) < (?, ?)", position * 2)


def _table(name: TableName) -> str:
    return _quoted(".".join(part.replace("%", "%25").replace(".", "%2E") for part in name))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _drop(connection: sqlite3.Connection, name: TableName) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {_table(name)}")


def _make(connection: sqlite3.Connection, table: TableInfo) -> None:
    """Make an empty table, in place of one of that name; none for a table without a key."""
    _drop(connection, table.name)
    if table.handle_key:
        columns = [f"{_quoted(column.name)} {_affinity(column)}" for column in _columns(table)]
        key = ", ".join(map(_quoted, table.handle_key))
        connection.execute(f"CREATE TABLE {_table(table.name)} ({', '.join(columns)}, PRIMARY KEY ({key}))")


def _ensure(connection: sqlite3.Connection, table: TableInfo) -> None:
    """Make a table, or columns of it, that no DDL has brought."""
    columns = {name.lower() for _, name, *_ in connection.execute(f"PRAGMA table_info({_table(table.name)})")}
    if not columns:
        _make(connection, table)
        return
    for column in _columns(table):
        if column.name.lower() not in columns:
            added = f"{_quoted(column.name)} {_affinity(column)}"
            connection.execute(f"ALTER TABLE {_table(table.name)} ADD COLUMN {added}")


def _has_rows(connection: sqlite3.Connection, table: TableInfo) -> bool:
    columns = connection.execute(f"PRAGMA table_info({_table(table.name)})").fetchall()
    return bool(columns) and any(connection.execute(f"SELECT 1 FROM {_table(table.name)} LIMIT 1"))


def _rename(connection: sqlite3.Connection, old: TableInfo, new: TableInfo) -> None:
    _drop(connection, new.name)
    if old.handle_key:
        connection.execute(f"ALTER TABLE {_table(old.name)} RENAME TO {_table(new.name)}")


def _beside(table: TableInfo) -> TableInfo:
    """The table under a name that no table of an upstream has."""
    return msgspec.structs.replace(table, name=TableName("", str(table.name)))


def _fill(connection: sqlite3.Connection, table: TableInfo, rows: Iterable[Row]) -> None:
    """Make the next form of a table beside it, with these rows."""
    beside, columns = _beside(table), _columns(table)
    _make(connection, beside)
    if table.handle_key:
        values = ([row[column.name] for column in columns] for row in rows)
        connection.executemany(_upsert(beside, columns), _stored(columns, values))


def _publish(connection: sqlite3.Connection, table: TableInfo) -> None:
    """Put the next form of a table in its place."""
    _rename(connection, _beside(table), table)


def _rows(connection: sqlite3.Connection, table: TableInfo) -> Iterator[Row]:
    _ensure(connection, table)
    columns = _columns(table)
    names = ", ".join(_quoted(column.name) for column in columns)
    for values in connection.execute(f"SELECT {names} FROM {_table(table.name)}"):
        yield {column.name: _loaded(column, value) for column, value in zip(columns, values, strict=True)}


def _delete(table: TableInfo) -> str:
    return f"DELETE FROM {_table(table.name)} WHERE {' AND '.join(f'{_quoted(name)} = ?' for name in table.handle_key)}"


def _upsert(table: TableInfo, columns: Sequence[ColumnInfo]) -> str:
    """The INSERT of rows that may lack columns of the table: an UPDATE leaves these as they are."""
    names = [_quoted(column.name) for column in columns]
    sets = ", ".join(f"{name} = excluded.{name}" for name in names)
    key = ", ".join(map(_quoted, table.handle_key))
    return (
        f"INSERT INTO {_table(table.name)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {sets}"
    )


def _columns(table: TableInfo) -> list[ColumnInfo]:
    return [column for column in table.columns if not column.virtual]


def _named(table: TableInfo, names: Iterable[str]) -> list[ColumnInfo]:
    columns = [(name, table.column(name)) for name in names]
    if unknown := [name for name, column in columns if column is None]:
        raise SinkRefused(f"table {table.name}: its rows have a column {unknown[0]} that its definition lacks")
    return [column for _, column in columns if column is not None]


def _affinity(column: ColumnInfo) -> str:
    code = column.type.code
    if code in FLOATS:
        return "REAL"
    if code in STRINGS and column.type.charset == "binary":
        return "BLOB"
    return "INTEGER" if (code in INTEGERS or code is T.YEAR) and not _is_digits(column) else "TEXT"


def _is_digits(column: ColumnInfo) -> bool:
    return column.type.code is T.BIT or (column.type.code is T.LONGLONG and column.type.unsigned)


def _stored(columns: Sequence[ColumnInfo], rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    digits = [index for index, column in enumerate(columns) if _is_digits(column)]
    for row in rows:
        if not digits:
            yield row
            continue
        values = list(row)
        for index in digits:
            values[index] = None if row[index] is None else str(row[index])
        yield values


def _loaded(column: ColumnInfo, value: Any) -> Value:
    if value is not None and _is_digits(column):
        return int(value)
    is_text = column.type.code in STRINGS and column.type.charset != "binary"
    result: Value = RawText(value) if is_text and isinstance(value, bytes) else value
    return result
