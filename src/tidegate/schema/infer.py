"""Table definitions inferred from messages, for topics whose CREATE TABLE lies before the feed's start.

    Open Protocol   type code + flags     nullability, sign, keys; no length, no scale, no ENUM names
    Canal-JSON      mysqlType + pkNames   short form the same and no nullability; full form everything but defaults

Properties that the message lacks are left open (-1, None); virtual columns are never in messages, so they are missing.
`incarnation` is n-{digest of the lower-case names}-{version}, so that readers of one topic agree on it.  Earlier
releases wrote m- or a crc32; their lakes keep the ids of tables that they know.

A column's id is derived from its name, above all ids that DDLs assign: removing a message's column removes no
other one, although stored columns were created with both.

Fields without columns, or whose key names other columns, describe no table (`unusable`).

`merge_inferred` combines the definitions from several messages of one table.

    layout A  id, name          ─┐
    layout B  id, name, email   ─┴►  id, name, email      a column stays once it was seen; NULL where a row lacks it

A handle-only message adds nothing; a key, once known, stays.

Source: Open Protocol and Canal-JSON documents (column flags, mysqlType, pkNames).
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final
from zlib import crc32

import msgspec

from tidegate.model.errors import SqlError
from tidegate.model.event import Field
from tidegate.model.mysql import INTEGERS, ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.schema.columns import complete_type, parse_type
from tidegate.schema.statement import TypeDef

NAMED_FROM: Final = 1 << 30
"""The least column id derived from a name."""
DIGEST_CHARS: Final = 32
"""128 bits, so that no two names with one digest can be found."""


def infer_table(
    name: TableName, fields: tuple[Field, ...], pk_names: tuple[str, ...] | None, version: int
) -> TableInfo:
    """Return the table that a row's fields describe, as of `version`; a column of unknown type is text."""
    indexes = _keys(fields, pk_names)
    primary = {column for index in indexes if index.primary for column in index.columns}
    ids = _ids([field.name for field in fields], ())
    columns = tuple(
        _column(field, column_id, field.name in primary) for field, column_id in zip(fields, ids, strict=True)
    )
    return TableInfo(
        name=name,
        incarnation=f"n-{_digest(name)}-{version:x}",
        version=version,
        columns=columns,
        indexes=indexes,
        max_column_id=len(columns),
        max_index_id=len(indexes),
        inferred=True,
    )


def unusable(fields: tuple[Field, ...], pk_names: tuple[str, ...] | None) -> str:
    """Return the reason why a row's fields describe no table; empty if they do."""
    if not fields:
        return "a row without columns"
    nameless = next((field.name for field in fields if not field.name or "\0" in field.name), None)
    if nameless is not None:
        return f"a row with a column named {nameless!r}"
    names = {lowered(field.name) for field in fields}
    strangers = [name for index in _keys(fields, pk_names) for name in index.columns if lowered(name) not in names]
    return f"a row whose key has column {strangers[0]}, which it does not have" if strangers else ""


def _ids(names: Iterable[str], others: Iterable[int]) -> list[int]:
    """Return column ids derived from the names, distinct from each other and from `others`."""
    used, ids = set(others), []
    for name in names:
        column_id = NAMED_FROM + crc32(lowered(name).encode("utf-8", "surrogatepass")) % NAMED_FROM
        while column_id in used:
            column_id += 1
        used.add(column_id)
        ids.append(column_id)
    return ids


def _digest(name: TableName) -> str:
    """A digest that is unique to a name: each part is prefixed with its length."""
    parts = [part.encode("utf-8", "surrogatepass") for part in name.key]
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).hexdigest()[:DIGEST_CHARS]


def _column(field: Field, column_id: int, primary: bool) -> ColumnInfo:  # noqa: FBT001
    flag = ColumnFlag(0 if field.flag is None else field.flag)
    generated = ColumnFlag.GENERATED in flag
    nullable = ColumnFlag.NULLABLE in flag if field.flag is not None else not (primary or field.handle)
    return ColumnInfo(
        id=column_id,
        name=field.name,
        type=_type(field),
        nullable=nullable and not primary,
        generated="" if generated else None,
        stored=generated,
    )


def _type(field: Field) -> ColumnType:
    if field.mysql_type:
        try:
            return parse_type(field.mysql_type)
        except SqlError:
            return _TEXT
    if field.type not in _CODES:
        return _TEXT
    code = MysqlType(field.type)
    definition = TypeDef(code, unsigned=field.unsigned, charset="binary" if field.binary else "utf8mb4")
    complete = complete_type(definition, "utf8mb4")
    return ColumnType(
        code,
        complete.flen if code in _WIDTH_KNOWN else -1,
        unsigned=complete.unsigned,
        charset=complete.charset,
    )


_TEXT: Final = ColumnType(MysqlType.VARCHAR, charset="utf8mb4")
_CODES: Final = frozenset(MysqlType)
_WIDTH_KNOWN: Final = INTEGERS | {MysqlType.YEAR}


def _keys(fields: tuple[Field, ...], pk_names: tuple[str, ...] | None) -> tuple[IndexInfo, ...]:
    """Return the primary key, else the unique key of the handle columns, else nothing."""
    flagged = tuple(field.name for field in fields if (field.flag or 0) & ColumnFlag.PRIMARY_KEY)
    primary = flagged or pk_names or ()
    if primary:
        return (IndexInfo(1, "PRIMARY", primary, unique=True, primary=True),)
    handle = tuple(field.name for field in fields if field.handle)
    return (IndexInfo(1, "handle", handle, unique=True),) if handle else ()


def merge_inferred(tables: Sequence[TableInfo]) -> TableInfo:
    """Return the first table, extended by columns that only later ones have; names compare without case."""
    merged, *others = tables
    for other in others:
        names = {lowered(column.name) for column in merged.columns}
        strangers = [column for column in other.columns if lowered(column.name) not in names]
        ids = _ids([column.name for column in strangers], [column.id for column in merged.columns])
        added = tuple(
            msgspec.structs.replace(column, id=column_id, nullable=True)
            for column, column_id in zip(strangers, ids, strict=True)
        )
        merged = msgspec.structs.replace(
            merged,
            columns=merged.columns + added,
            indexes=merged.indexes or other.indexes,
        )
    return merged
