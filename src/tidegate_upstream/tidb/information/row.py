"""Rows of information_schema about databases, tables, columns and keys.

    TableVersion ──► visible(snapshot): public tables by name ──► one row a table, column, part of a key

Sizes and row counts are 0: nothing here keeps statistics.  A primary key that is the handle is in no list of indexes:
it is put before the others here.

Source: TiDB pkg/executor/infoschema_reader.go.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import msgspec

from tidegate.model.mysql import CHARS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.charset import character_bytes
from tidegate.schema.columns import render_type
from tidegate.schema.stored.create import render_full_type, shown_default
from tidegate.schema.stored.definition import Name, StoredColumn, StoredIndex, StoredPart, StoredTable
from tidegate.schema.stored.flags import AUTO_INCREMENT, NO_DEFAULT, NOT_NULL, ON_UPDATE_NOW, PRIMARY
from tidegate.schema.stored.layout import column_type
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.tidb.information.job import moment_of

Row = tuple[SqlValue, ...]
_CATALOG: Final = "def"
_PRIVILEGES: Final = "select,insert,update,references"
_KEY_FLAGS: Final = ((2, "PRI"), (4, "UNI"), (8, "MUL"))
_INTEGER_PRECISION: Final = {T.TINY: 3, T.SHORT: 5, T.INT24: 7, T.LONG: 10, T.LONGLONG: 19}
_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})


def visible(snapshot: StoredSnapshot) -> list[TableVersion]:
    """Public tables, by database and name."""
    found = [table for table in snapshot.tables.values() if table.stored.state == ElementState.PUBLIC]
    return sorted(found, key=lambda table: (lowered(table.schema), table.stored.name.lower))


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
    for name, charset, collation in sorted(listed, key=lambda one: lowered(one[0])):
        yield _CATALOG, name, charset, collation, None, None


def tables(snapshot: StoredSnapshot, next_id: Callable[[int, int], int | None], zone: tzinfo) -> Iterator[Row]:
    """TABLES."""
    for found in visible(snapshot):
        table = found.stored
        kind = "VIEW" if table.is_view else "SEQUENCE" if table.is_sequence else "BASE TABLE"
        numbered = any(column.type.flag & AUTO_INCREMENT for column in table.cols or [])
        clustered = "CLUSTERED" if table.pk_is_handle or table.is_common_handle else "NONCLUSTERED"
        head = (_CATALOG, found.schema, table.name.original, kind)
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
        if found.stored.view is not None:
            head = (_CATALOG, found.schema, found.stored.name.original, found.stored.view.view_select)
            yield (*head, "CASCADED", "NO", "root@%", "DEFINER", "utf8mb4", "utf8mb4_bin")


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
    wide = character_bytes(kind.charset) if text and kind.code in CHARS else 1
    characters = (length, None if length is None else length * wide)
    return (
        *(_CATALOG, found.schema, found.stored.name.original, column.name.original, position),
        *(column_default(column, zone), "NO" if column.type.flag & NOT_NULL else "YES", written),
        *characters,
        *_precision(column),
        *((kind.charset, column.type.collate) if text else (None, None)),
        *(render_full_type(column), column_key(column), column_extra(column), _PRIVILEGES),
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


def column_extra(column: StoredColumn) -> str:
    """auto_increment, STORED GENERATED, DEFAULT_GENERATED on update .."""
    if column.generated_expr_string:
        return "STORED GENERATED" if column.generated_stored else "VIRTUAL GENERATED"
    words = ["auto_increment"] if column.type.flag & AUTO_INCREMENT else []
    if column.default_is_expr or str(column.default or "").startswith("CURRENT_TIMESTAMP"):
        words.append("DEFAULT_GENERATED")
    if column.type.flag & ON_UPDATE_NOW:
        decimals = f"({column.type.decimal})" if column.type.decimal > 0 else ""
        words.append(f"on update CURRENT_TIMESTAMP{decimals}")
    return " ".join(words)


# --- keys ---


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """One column of a key; `position` counts from 1, `clustered` says whether rows lie by the key."""

    index: StoredIndex
    part: StoredPart
    column: StoredColumn
    position: int
    clustered: bool

    @property
    def expression(self) -> str | None:
        """The text of a part that is an expression."""
        return self.column.generated_expr_string if self.column.hidden else None

    @property
    def name(self) -> str | None:
        """The column; None for an expression."""
        return None if self.column.hidden else self.part.name.original

    @property
    def length(self) -> int | None:
        """How much of the column the key takes; None for all."""
        return self.part.length if self.part.length >= 0 else None


def key_parts(table: StoredTable) -> Iterator[_KeyPart]:
    """Return the public keys of a table part by part, the primary key first."""
    columns = table.cols or []
    indexes = [(index, index.is_primary and table.is_common_handle) for index in table.index_info or []]
    if table.pk_is_handle:
        at = next((at for at, column in enumerate(columns) if column.type.flag & PRIMARY), None)
        if at is not None:
            part = StoredPart(columns[at].name, at)
            handle = StoredIndex(0, Name.of("PRIMARY"), idx_cols=[part], is_unique=True, is_primary=True)
            indexes.insert(0, (handle, True))
    for index, clustered in sorted(indexes, key=lambda one: not one[0].is_primary):
        if index.state == ElementState.PUBLIC:
            for position, part in enumerate(index.idx_cols, start=1):
                yield _KeyPart(index, part, columns[part.offset], position, clustered)


def statistics(snapshot: StoredSnapshot) -> Iterator[Row]:
    """STATISTICS."""
    for found in visible(snapshot):
        for one in key_parts(found.stored):
            yield (
                *(_CATALOG, found.schema, found.stored.name.original, int(not one.index.is_unique), found.schema),
                *(one.index.idx_name.original, one.position, one.name, "A", 0, one.length, None),
                *("" if one.column.type.flag & NOT_NULL else "YES", "BTREE", "", one.index.comment),
                *("NO" if one.index.is_invisible else "YES", one.expression),
            )


def key_column_usage(snapshot: StoredSnapshot) -> Iterator[Row]:
    """KEY_COLUMN_USAGE: the columns of primary, unique and foreign keys."""
    for found in visible(snapshot):
        table = (_CATALOG, found.schema, found.stored.name.original)
        for one in key_parts(found.stored):
            if one.index.is_unique:
                name = one.index.idx_name.original
                yield (_CATALOG, found.schema, name, *table, one.name, one.position, None, None, None, None)
        for key in found.stored.fk_info or []:
            if key.state == ElementState.PUBLIC:
                for at, (column, other) in enumerate(zip(key.cols, key.ref_cols, strict=True), start=1):
                    there = (key.ref_schema.original, key.ref_table.original, other.original)
                    yield (_CATALOG, found.schema, key.fk_name.original, *table, column.original, at, at, *there)
