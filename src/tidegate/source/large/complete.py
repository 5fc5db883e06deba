"""Rows of which only the handle key came, made whole from what the upstream held at their time.

    image     read at           INSERT   UPDATE   DELETE
    before    commit_ts - 1        -        x        x
    after     commit_ts            x        x        -
    the table's definition: at commit_ts - 1, as TiCDC reads both images with it

    SHOW CREATE TABLE t                                       → definition → columns that rows carry
    SELECT … FROM t WHERE k = %s                              one key
    SELECT … FROM t WHERE (k1, k2) IN ((%s, %s), (%s, %s))    several

This module has no connection: it makes statements with their parameters and reads what comes back.  Names are quoted;
values are parameters, never text of the statement.  A value comes back as the bytes of MySQL's text protocol:

    ENUM, SET, BIT     CAST(c AS UNSIGNED): index, mask, number
    FLOAT              CAST(c AS DOUBLE): a server may print a FLOAT with six digits
    all others         as they print

A whole row is what the decoder would have made of the whole message, but for the order of its columns, which is the
table's.  An UPDATE whose sender leaves old values out arrives as an INSERT and stays one.

Source: TiCDC documentation, "Send only handle keys"; TiDB documentation, "Read Historical Data Using tidb_snapshot".
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tidegate.codec.canal import ColumnKind, kind_of
from tidegate.codec.canal_encode import mysql_type
from tidegate.codec.wire_table import WireColumn, WireTable, wire_table
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import DecodeError, SchemaError, SqlError
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Value, Values, images
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableName
from tidegate.mysql import server_sql as sent
from tidegate.schema.build import DdlContext, build_table
from tidegate.schema.parse_ddl import parse
from tidegate.schema.statement import CreateTable

Key: TypeAlias = tuple[Value, ...]
Raw: TypeAlias = Sequence[bytes | None]

_AS_NUMBER: Final = frozenset({MysqlType.ENUM, MysqlType.SET, MysqlType.BIT})
_BINARY_TEXT: Final = frozenset(
    {
        MysqlType.VARCHAR,
        MysqlType.VAR_STRING,
        MysqlType.STRING,
        MysqlType.TINY_BLOB,
        MysqlType.BLOB,
        MysqlType.MEDIUM_BLOB,
        MysqlType.LONG_BLOB,
    }
)


class Needed(NamedTuple):
    """What must be read for a row: the names of its handle columns and the key of each image, None for no image."""

    names: tuple[str, ...]
    before: Key | None
    after: Key | None


class Definition(NamedTuple):
    """A table at a time: its columns as rows carry them, and how each is read."""

    name: TableName
    ts: int
    table: WireTable
    kinds: tuple[ColumnKind, ...]

    def key_of(self, values: Values, names: Sequence[str]) -> Key:
        """Return the values of some columns."""
        places = {column.name: at for at, column in enumerate(self.table.columns)}
        return tuple(values[places[name]] for name in names)

    def read(self, raw: Raw) -> Values:
        """Return the values of one row of a `rows_query`."""
        columns = zip(self.table.columns, self.kinds, raw, strict=True)
        return tuple(None if text is None else self._value(column, kind, text) for column, kind, text in columns)

    def _value(self, column: WireColumn, kind: ColumnKind, text: bytes) -> Value:
        if kind.binary and column.type.code in _BINARY_TEXT:
            return text
        try:
            return kind.read(text.decode("utf-8", "surrogateescape"))
        except DecodeError as error:
            raise SchemaError(
                f"{self.name}: column {column.name!r} ({column.type.code.name}) of the upstream at ts {self.ts}: "
                f"{error.what}"
            ) from error


def needed(row: RowChange) -> Needed:
    """Return what to read for `row`; SchemaError for one without handle columns or commit timestamp."""
    places = [at for at, field in enumerate(row.fields) if field.handle]
    before, after = images(row)
    keys = [None if image is None else tuple(image[at] for at in places) for image in (before, after)]
    if row.commit_ts is None or not places or any(None in key for key in keys if key is not None):
        raise SchemaError(
            f"{row.schema}.{row.table} at ts {row.commit_ts}: a row cannot be looked up without the values of its "
            "handle key and its commit timestamp, and the message carries no such"
        )
    return Needed(tuple(row.fields[at].name for at in places), *keys)


def definition_query(name: TableName) -> str:
    """Return the statement whose second column is the table's definition."""
    return sent.DEFINITION.format(table=quote_names(name.schema, name.table))


def defined(name: TableName, text: str, ts: int) -> Definition:
    """Return the table that CREATE TABLE `text` describes; SchemaError where it is none."""
    try:
        (statement,) = parse(text, name.schema)
    except (SqlError, ValueError) as error:
        raise SchemaError(f"{name}: the upstream's definition at ts {ts} cannot be read: {error}") from error
    if not isinstance(statement, CreateTable):
        raise SchemaError(f"{name} is no table in the upstream at ts {ts}")
    table = wire_table(build_table(statement, "utf8mb4", DdlContext(ts, 0, text), 0))
    return Definition(
        name, ts, table, tuple(kind_of(mysql_type(column, full=False), False) for column in table.columns)
    )


def rows_query(definition: Definition, names: Sequence[str], keys: Sequence[Key]) -> tuple[str, tuple[object, ...]]:
    """Return the statement that reads the rows with these keys, and its parameters."""
    columns = {column.name: column for column in definition.table.columns}
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise SchemaError(
            f"{definition.name} has no column {unknown[0]!r} in the upstream at ts {definition.ts}, though it belongs "
            "to the handle key of its messages: is this the database that the changefeed reads?"
        )
    chosen = ", ".join(map(_selected, columns.values()))
    quoted = [_doubled(name) for name in names]
    table = f"{_doubled(definition.name.schema)}.{_doubled(definition.name.table)}"
    values = tuple(_parameter(columns[name], value) for key in keys for name, value in zip(names, key, strict=True))
    if len(keys) == 1:
        where = " AND ".join(f"{name} = %s" for name in quoted)
    else:
        one = f"({', '.join(['%s'] * len(names))})" if len(names) > 1 else "%s"
        left = f"({', '.join(quoted)})" if len(names) > 1 else quoted[0]
        where = f"{left} IN ({', '.join([one] * len(keys))})"
    return sent.WHOLE_ROWS.format(columns=chosen, table=table, where=where), values


def completed(row: RowChange, definition: Definition, found: Mapping[str, Values]) -> RowChange:
    """`row` with all columns; `found` has its images by name, `before` and `after`, as far as it has them."""
    fields = _fields(row, definition)
    whole = {"fields": fields, "handle_only": False, "claim_check": None}
    match row:
        case Insert():
            return msgspec.structs.replace(row, after=found["after"], **whole)
        case Update():
            return msgspec.structs.replace(row, before=found["before"], after=found["after"], **whole)
        case Delete():
            return msgspec.structs.replace(row, before=found["before"], **whole)


def _fields(row: RowChange, definition: Definition) -> tuple[Field, ...]:
    """The columns as the row's own protocol describes them."""
    if not any(field.mysql_type for field in row.fields):
        return definition.table.fields
    full = any("(" in field.mysql_type for field in row.fields)
    found = []
    for column, kind in zip(definition.table.columns, definition.kinds, strict=True):
        text = mysql_type(column, full=full)
        handle = column.name in (row.pk_names or ())
        found.append(
            Field(column.name, kind.code, mysql_type=text, unsigned=kind.unsigned, binary=kind.binary, handle=handle)
        )
    return tuple(found)


def _selected(column: WireColumn) -> str:
    name = _doubled(column.name)
    if column.type.code in _AS_NUMBER:
        return f"CAST({name} AS UNSIGNED)"
    return f"CAST({name} AS DOUBLE)" if column.type.code is MysqlType.FLOAT else name


def _parameter(column: WireColumn, value: Value) -> object:
    """A DECIMAL's text as a number: between a DECIMAL and a text MySQL compares doubles."""
    if column.type.code is not MysqlType.DECIMAL or not isinstance(value, str):
        return value
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise SchemaError(
            f"column {column.name!r} is a DECIMAL, and the key in the message is {value!a:.60}"
        ) from error


def _doubled(name: str) -> str:
    """A name in a statement with parameters, where %% stands for a percent sign."""
    return quote_name(name).replace("%", "%%")
