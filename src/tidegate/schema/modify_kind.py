"""The kinds of MODIFY COLUMN: stored bytes stay, are checked, or are rewritten.

    old -> new                                same bytes            checked values            new bytes
    INT family, same sign                     as wide or wider      narrower                  sign changes
    VARCHAR, VARBINARY                        as long or longer     shorter                   to CHAR, BINARY
    TEXT and BLOB family, VARCHAR to them     as long or longer     shorter                   other charset
    ENUM, SET                                 members appended                                anything else
    BIT                                       as long or longer                               shorter
    DECIMAL, times, FLOAT, DOUBLE, ..         the same                                        anything else

NULL to NOT NULL checks the values, unless they are rewritten anyway.

Source: TiDB pkg/ddl/modify_column.go (needReorgToChange, needChangeColumnData), recorded jobs.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from tidegate.model.mysql import BLOB_LIMITS, INTEGER_BITS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.schema.columns import character_bytes
from tidegate.schema.stored.definition import KEYS, NOT_NULL, StoredColumn, StoredTable, column_type


class ModifyKind(IntEnum):
    """The operations of MODIFY COLUMN, by what they do to stored values."""

    LOSSLESS = 0
    CHECKED = 1
    """Stored values stay, but all must fit the new definition: NULL to NOT NULL, INT to SMALLINT."""
    LOSSY = 2


KEPT_CHARSETS: Final = frozenset({("utf8", "utf8mb4"), ("latin1", "utf8mb4")})
"""(old, new) charsets between which stored texts stay unchanged: TiDB keeps all three as UTF-8."""
_LOSSLESS, _CHECKED, _LOSSY = ModifyKind.LOSSLESS, ModifyKind.CHECKED, ModifyKind.LOSSY


def modify_kind(table: StoredTable, old: StoredColumn, new: StoredColumn) -> ModifyKind:
    """Return the operation that takes `old` to `new`."""
    indexed = bool(old.type.flag & KEYS) or any(
        part.name.lower == old.name.lower for index in table.index_info or () for part in index.idx_cols
    )
    kind = kind_of_types(column_type(old.type), column_type(new.type))
    if indexed and old.type.collate != new.type.collate:
        kind = _LOSSY
    needs_look = bool(new.type.flag & NOT_NULL) and not old.type.flag & NOT_NULL
    return max(kind, _CHECKED) if needs_look else kind


def kind_of_types(old: ColumnType, new: ColumnType) -> ModifyKind:
    """Return the operation that converts values of one type to another, regardless of indexes and NULL."""
    if old.code in INTEGER_BITS and new.code in INTEGER_BITS:
        if old.unsigned != new.unsigned:
            return _LOSSY
        return _LOSSLESS if INTEGER_BITS[new.code] >= INTEGER_BITS[old.code] else _CHECKED
    if old.charset != new.charset and (old.charset, new.charset) not in KEPT_CHARSETS:
        return _LOSSY
    if _is_long(old) and _is_long(new):
        return _LOSSLESS if _bytes(new) >= _bytes(old) else _CHECKED
    rule = _SAME_TYPE.get(old.code) if old.code == new.code else None
    if rule is None:
        same = (old.code, old.flen, old.decimal, old.unsigned) == (new.code, new.flen, new.decimal, new.unsigned)
        return _LOSSLESS if same else _LOSSY
    return rule(old, new)


def _is_long(kind: ColumnType) -> bool:
    return kind.code == T.VARCHAR or kind.code in BLOB_LIMITS


def _bytes(kind: ColumnType) -> int:
    """The maximum size of a value in bytes."""
    return BLOB_LIMITS.get(kind.code) or kind.flen * character_bytes(kind.charset)


def _longer(old: ColumnType, new: ColumnType) -> ModifyKind:
    if old.charset == "binary":
        return _LOSSLESS if new.flen == old.flen else _LOSSY
    return _LOSSLESS if new.flen >= old.flen else _CHECKED


def _members(old: ColumnType, new: ColumnType) -> ModifyKind:
    before, after = old.elems or (), new.elems or ()
    return _LOSSLESS if after[: len(before)] == before else _LOSSY


def _bits(old: ColumnType, new: ColumnType) -> ModifyKind:
    return _LOSSLESS if new.flen >= old.flen else _LOSSY


_SAME_TYPE: Final[Mapping[T, Callable[[ColumnType, ColumnType], ModifyKind]]] = {
    T.STRING: _longer,
    T.ENUM: _members,
    T.SET: _members,
    T.BIT: _bits,
}
