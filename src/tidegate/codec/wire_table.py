"""The wire form of a table: the replicated columns, their flags, and the handle.

    TableInfo (a definition)  ─┐
    a recorded `table` line   ─┼→ WireTable ─→ encoders
    a decoded row             ─┘  and the DDLs of its table, for what its message lacks

Columns are in table order; virtual generated columns and hidden ones are left out.

    flag           set on
    BINARY      1  every column whose charset is binary: BINARY, BLOB, and numbers, times, BIT, JSON, VECTOR
    HANDLE      2  the columns of the handle: the primary key, else the shortest unique key on NOT NULL columns
    GENERATED   4  stored generated columns
    PRIMARY     8  all columns of the primary key
    UNIQUE     16  all columns of a unique key
    MULTIPLE   32  all columns of a key of several columns, and the column of a key that is not unique
    NULLABLE   64  columns without NOT NULL
    UNSIGNED  128  UNSIGNED and ZEROFILL columns; YEAR and BIT always

Source: TiCDC's column flags (Open Protocol document, "Bit flags of columns"); recordings.
"""

from typing import Final

import msgspec

from tidegate.model.event import Field, RowChange
from tidegate.model.mysql import NAMED, STRINGS, ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo

_ALWAYS_UNSIGNED: Final = frozenset({MysqlType.YEAR, MysqlType.BIT})
_TEXTS: Final = STRINGS | NAMED
_CODES: Final = frozenset(MysqlType)

_HANDLE_KEY, _BINARY, _UNSIGNED = map(int, (ColumnFlag.HANDLE_KEY, ColumnFlag.BINARY, ColumnFlag.UNSIGNED))
"""Flags as plain numbers, which are ten times as fast."""
_OF_TYPE: Final = _BINARY | _UNSIGNED


class WireColumn(msgspec.Struct, frozen=True):
    """One column. `mysql_type` is canal-json's text where no definition is known; else it is made from `type`."""

    name: str
    type: ColumnType
    flag: int
    mysql_type: str = ""

    @property
    def handle(self) -> bool:
        return bool(self.flag & _HANDLE_KEY)

    @property
    def binary(self) -> bool:
        """True if texts of the column are bytes. Set on numbers too, without meaning."""
        return bool(self.flag & _BINARY)

    @property
    def unsigned(self) -> bool:
        """True without a sign. Set on YEAR and BIT too."""
        return bool(self.flag & _UNSIGNED)


class WireTable(msgspec.Struct, frozen=True):
    """The columns of rows in their order; `pk_names` in key order, () without a primary key.

    >>> table = wire_table(tidegate.lake("/srv/lake").definition("shop.orders"))
    >>> table.pk_names, [column.name for column in table.columns]
    (('id',), ['id', 'item'])"""

    columns: tuple[WireColumn, ...]
    pk_names: tuple[str, ...] = ()
    names_handle: bool = True
    """True if columns mark the handle; canal-json shows a primary key, but not a unique key."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns as fields of events."""
        return tuple(
            Field(
                column.name,
                column.type.code,
                int(column.flag),
                unsigned=column.unsigned,
                binary=column.binary,
                handle=column.handle,
            )
            for column in self.columns
        )


def wire_table(info: TableInfo) -> WireTable:
    """Return the wire form of a table definition.

    Parameters:
        info: as `lake.definition` returns it

    >>> wire_table(tidegate.lake("/srv/lake").definition("shop.orders")).fields[0].name
    'id'"""
    flags = flags_of(info)
    columns = tuple(
        WireColumn(column.name, column.type, flags[column.name]) for column in info.columns if not column.virtual
    )
    return WireTable(columns, _primary(info))


def flags_of(info: TableInfo) -> dict[str, int]:
    """Return the flags of every column by name, virtual ones included."""
    flags = {column.name: _own_flags(column) for column in info.columns}
    folded = {lowered(name): name for name in flags}
    for index in info.indexes:
        flag = ColumnFlag.PRIMARY_KEY if index.primary else ColumnFlag.UNIQUE_KEY if index.unique else ColumnFlag(0)
        if len(index.columns) > 1 or not flag:
            flag |= ColumnFlag.MULTIPLE_KEY
        for name in index.columns:
            if lowered(name) in folded:
                flags[folded[lowered(name)]] |= flag
    for name in info.handle_key:
        flags[folded[lowered(name)]] |= ColumnFlag.HANDLE_KEY
    return {name: int(flag) for name, flag in flags.items()}


def _own_flags(column: ColumnInfo) -> ColumnFlag:
    flag = ColumnFlag(0)
    if column.type.charset == "binary":
        flag |= ColumnFlag.BINARY
    if column.generated is not None:
        flag |= ColumnFlag.GENERATED
    if column.nullable:
        flag |= ColumnFlag.NULLABLE
    if column.type.unsigned or column.type.zerofill or column.type.code in _ALWAYS_UNSIGNED:
        flag |= ColumnFlag.UNSIGNED
    return flag


def table_of_row(row: RowChange, info: TableInfo | None = None) -> WireTable:
    """Return the table of a decoded row, to encode it again; see `table_of_fields`."""
    return table_of_fields(row.fields, row.pk_names, info)


def table_of_fields(
    fields: tuple[Field, ...], primary: tuple[str, ...] | None, info: TableInfo | None = None
) -> WireTable:
    """Return the table of an image's fields; `primary` None if the message did not have the primary key.

    Missing properties come from `info`, the table as of its DDLs, if the fields match it:
    flags and the handle (canal-json), ZEROFILL and the order of the primary key. Without `info`, flags follow from the
    type, the handle and the primary key."""
    pk_names = primary or ()
    of_key = ColumnFlag.PRIMARY_KEY | (ColumnFlag.MULTIPLE_KEY if len(pk_names) > 1 else ColumnFlag(0))
    columns = tuple(_of_field(field, of_key if field.name in pk_names else ColumnFlag.NULLABLE) for field in fields)
    if primary is None:
        pk_names = tuple(column.name for column in columns if column.flag & ColumnFlag.PRIMARY_KEY)
    table = WireTable(columns, pk_names, names_handle=any(field.flag is not None for field in fields))
    return table if info is None or info.inferred else _completed(table, fields, info)


def _completed(table: WireTable, fields: tuple[Field, ...], info: TableInfo) -> WireTable:
    """The table with flags and types of its definition; unchanged if names, types, signs or primary key differ."""
    columns_here = (info.column(field.name) for field in fields)
    by_name = {lowered(column.name): column for column in columns_here if column is not None and not column.virtual}
    primary = [folded for folded in map(lowered, _primary(info)) if folded in by_name]
    names = {lowered(name): name for name in table.pk_names}
    if len(by_name) != len(fields) or names.keys() != set(primary):
        return table
    flags, columns = flags_of(info), []
    for field, wire, column in zip(fields, table.columns, by_name.values(), strict=True):
        if column.type.code != field.type or (_own_flags(column) ^ wire.flag) & _OF_TYPE:
            return table
        flag = wire.flag if field.flag is not None else wire.flag & _OF_TYPE | flags[column.name] & ~_OF_TYPE
        kind = msgspec.structs.replace(wire.type, zerofill=column.type.zerofill)
        columns.append(WireColumn(wire.name, kind, flag, wire.mysql_type))
    return WireTable(tuple(columns), tuple(names[folded] for folded in primary))


def _primary(info: TableInfo) -> tuple[str, ...]:
    return next((index.columns for index in info.indexes if index.primary), ())


def _of_field(field: Field, key: ColumnFlag) -> WireColumn:
    code = MysqlType(field.type) if field.type in _CODES else MysqlType.VARCHAR
    binary = field.binary if code in _TEXTS else True
    kind = ColumnType(code, unsigned=field.unsigned, charset="binary" if binary else "utf8mb4")
    if field.flag is not None:
        return WireColumn(field.name, kind, field.flag, field.mysql_type)
    flag = ColumnFlag.BINARY if binary else ColumnFlag(0)
    if field.unsigned or code in _ALWAYS_UNSIGNED:
        flag |= ColumnFlag.UNSIGNED
    if field.handle:
        flag |= ColumnFlag.HANDLE_KEY
    return WireColumn(field.name, kind, int(flag | key), field.mysql_type)
