"""Rows of information_schema about databases, tables, columns and partitions.

    TableVersion ──► visible(snapshot): public tables by name ──► one row a table, column, partition

Sizes and row counts are 0: nothing here keeps statistics.

Source: TiDB pkg/executor/infoschema_reader.go.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from typing import Final

import msgspec
from msgspec import UNSET

from tidegate.expr.value.kinds import SqlValue
from tidegate.model.mysql import CHARS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.schema.columns import charset_of_collation, render_type
from tidegate.schema.f1 import ElementState
from tidegate.schema.stored.definition import StoredColumn, StoredTable
from tidegate.schema.stored.layout import column_type
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.tidb.information.job import moment_of
from tidegate.tidb.sql.show.create import NO_DEFAULT, NOT_NULL, ON_UPDATE_NOW, render_full_type, shown_default
from tidegate.tidb.sql.show.partition import METHODS, partition_values
from tidegate.tidb.sql.variable.charset import CHARSETS

__all__ = [
    "CATALOG",
    "charset_of",
    "column_default",
    "column_extra",
    "column_key",
    "columns",
    "partitions",
    "public_columns",
    "schemata",
    "sequences",
    "tables",
    "views",
    "visible",
]

Row = tuple[SqlValue, ...]
CATALOG: Final = "def"
_PRIVILEGES: Final = "select,insert,update,references"
_KEY_FLAGS: Final = ((2, "PRI"), (4, "UNI"), (8, "MUL"))
_AUTO_INCREMENT: Final = 512
_INTEGER_PRECISION: Final = {T.TINY: 3, T.SHORT: 5, T.INT24: 7, T.LONG: 10, T.LONGLONG: 19}
_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})


def charset_of(collation: str) -> str:
    """Return the character set of a collation."""
    return charset_of_collation(collation)


def visible(snapshot: StoredSnapshot) -> list[TableVersion]:
    """Public tables, by database and name."""
    found = [table for table in snapshot.tables.values() if table.stored.state == ElementState.PUBLIC]
    return sorted(found, key=lambda table: (table.schema.lower(), table.stored.name.lower))


def public_columns(table: StoredTable) -> list[StoredColumn]:
    """Return the columns that `*` means."""
    return [column for column in table.cols or [] if column.state == ElementState.PUBLIC and not column.hidden]


def schemata(snapshot: StoredSnapshot) -> Iterator[Row]:
    """SCHEMATA."""
    listed = [("INFORMATION_SCHEMA", "utf8mb4", "utf8mb4_bin")]
    listed += [
        (schema.name.original, schema.charset, schema.collate)
        for schema in snapshot.schemas.values()
        if schema.state == ElementState.PUBLIC
    ]
    for name, charset, collation in sorted(listed, key=lambda one: one[0].lower()):
        yield CATALOG, name, charset, collation, None, None


def tables(snapshot: StoredSnapshot, next_id: Callable[[int, int], int | None], zone: tzinfo) -> Iterator[Row]:
    """TABLES."""
    for found in visible(snapshot):
        table = found.stored
        kind = "VIEW" if table.is_view else "SEQUENCE" if table.is_sequence else "BASE TABLE"
        numbered = any(column.type.flag & _AUTO_INCREMENT for column in table.cols or [])
        clustered = "CLUSTERED" if table.pk_is_handle or table.is_common_handle else "NONCLUSTERED"
        head = (CATALOG, found.schema, table.name.original, kind)
        if table.is_view:
            yield (*head, *(None,) * 16, "VIEW", table.id, None, "", None)
            continue
        sizes = ("InnoDB", 10, "Compact", *(0,) * 6, next_id(found.schema_id, table.id) if numbered else None)
        options = "partitioned" if table.partition is not None and table.partition.enable else ""
        times = (moment_of(table.update_timestamp, zone), None, None)
        tail = (table.collate or "utf8mb4_bin", None, options, table.comment, table.id, _sharding(table), clustered)
        yield (*head, *sizes, *times, *tail, _policy(table))


def _sharding(table: StoredTable) -> str:
    if table.pk_is_handle:
        return (
            f"PK_AUTO_RANDOM_BITS={table.auto_random_bits}" if table.auto_random_bits else "NOT_SHARDED(PK_IS_HANDLE)"
        )
    return f"SHARD_BITS={table.shard_row_id_bits}" if table.shard_row_id_bits else "NOT_SHARDED"


def _policy(table: StoredTable) -> str | None:
    found = msgspec.json.decode(table.policy_ref_info)
    return found["name"]["O"] if found else None


def views(snapshot: StoredSnapshot) -> Iterator[Row]:
    """VIEWS."""
    for found in visible(snapshot):
        if found.stored.is_view:
            text = msgspec.json.decode(found.stored.view)["view_select"]
            head = (CATALOG, found.schema, found.stored.name.original, text)
            yield (*head, "CASCADED", "NO", "root@%", "DEFINER", "utf8mb4", "utf8mb4_bin")


def sequences(snapshot: StoredSnapshot) -> Iterator[Row]:
    """SEQUENCES."""
    for found in visible(snapshot):
        if found.stored.is_sequence:
            told = msgspec.json.decode(found.stored.sequence)
            numbers = [
                int(told[f"sequence_{name}"])
                for name in ("cache", "cache_value", "cycle", "increment", "max_value", "min_value", "start")
            ]
            yield (CATALOG, found.schema, found.stored.name.original, *numbers, told["sequence_comment"])


# --- columns ---


def columns(snapshot: StoredSnapshot, zone: tzinfo) -> Iterator[Row]:
    """COLUMNS."""
    for found in visible(snapshot):
        if found.stored.is_sequence:
            continue
        for position, column in enumerate(public_columns(found.stored), start=1):
            yield _column(found, column, position, zone)


def _column(found: TableVersion, column: StoredColumn, position: int, zone: tzinfo) -> Row:
    kind = column_type(column.type)
    text = kind.code in STRINGS | {T.ENUM, T.SET} and kind.charset != "binary"
    written = render_type(kind).partition("(")[0].partition(" ")[0]
    length = kind.flen if kind.code in STRINGS | {T.ENUM, T.SET} else None
    wide = CHARSETS[kind.charset].bytes_max if text and kind.charset in CHARSETS and kind.code in CHARS else 1
    characters = (length, None if length is None else length * wide)
    return (
        *(CATALOG, found.schema, found.stored.name.original, column.name.original, position),
        *(column_default(column, zone), "NO" if column.type.flag & NOT_NULL else "YES", written),
        *characters,
        *_precision(column),
        *((kind.charset, column.type.collate) if text else (None, None)),
        *(render_full_type(column), column_key(column), column_extra(column, found.stored), _PRIVILEGES),
        *(column.comment, column.generated_expr_string, None),
    )


def _precision(column: StoredColumn) -> tuple[int | None, int | None, int | None]:
    """NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION."""
    kind = column_type(column.type)
    if kind.code in _INTEGER_PRECISION:
        return _INTEGER_PRECISION[kind.code] + (kind.unsigned and kind.code is T.LONGLONG), 0, None
    if kind.code in (T.DECIMAL, T.BIT):
        return kind.flen, max(kind.decimal, 0) if kind.code is T.DECIMAL else None, None
    if kind.code in (T.FLOAT, T.DOUBLE):
        return kind.flen, kind.decimal if kind.decimal >= 0 else None, None
    return None, None, max(kind.decimal, 0) if kind.code in _TIMES else None


def column_default(column: StoredColumn, zone: tzinfo) -> str | None:
    """Return the default as it is shown; None for none and for NULL."""
    if column.type.flag & NO_DEFAULT or (column.default is None and column.default_bit is None):
        return None
    return shown_default(column, zone)


def column_key(column: StoredColumn) -> str:
    """PRI, UNI or MUL."""
    return next((name for flag, name in _KEY_FLAGS if column.type.flag & flag), "")


def column_extra(column: StoredColumn, table: StoredTable) -> str:
    """auto_increment, STORED GENERATED, DEFAULT_GENERATED on update .."""
    del table
    if column.generated_expr_string:
        return "STORED GENERATED" if column.generated_stored else "VIRTUAL GENERATED"
    words = ["auto_increment"] if column.type.flag & _AUTO_INCREMENT else []
    if column.default_is_expr or str(column.default or "").startswith("CURRENT_TIMESTAMP"):
        words.append("DEFAULT_GENERATED")
    if column.type.flag & ON_UPDATE_NOW:
        decimals = f"({column.type.decimal})" if column.type.decimal > 0 else ""
        words.append(f"on update CURRENT_TIMESTAMP{decimals}")
    return " ".join(words)


def partitions(snapshot: StoredSnapshot, zone: tzinfo) -> Iterator[Row]:
    """PARTITIONS: one row a partition, and one for a table that has none."""
    for found in visible(snapshot):
        table, partition = found.stored, found.stored.partition
        if table.is_view or table.is_sequence:
            continue
        sizes: Iterable[SqlValue] = (*(0,) * 6, moment_of(table.update_timestamp, zone), None, None, None)
        head = (CATALOG, found.schema, table.name.original)
        if partition is None or not partition.enable:
            yield (*head, *(None,) * 9, *sizes, None, None, None, None)
            continue
        names = [name.original for name in partition.columns or ()]
        method = METHODS.get(partition.type, "") + (" COLUMNS" if names and partition.type in (1, 3) else "")
        expression = partition.expr or ",".join(f"`{name}`" for name in names)
        for position, one in enumerate(partition.definitions or (), start=1):
            shape = (one.name.original, None, position, None, method, None, expression, None)
            comment = "" if one.comment is UNSET else one.comment
            yield (*head, *shape, partition_values(one) or None, *sizes, comment, None, None, one.id)
