"""Origin defaults: what rows hold that were written before a column was there.

    column has a default    that default (CURRENT_TIMESTAMP: the moment of the DDL)
    NOT NULL, no default    the zero value: 0, "", 0000-00-00 00:00:00, the first member of an ENUM
    else                    NULL

Source: TiDB pkg/ddl/add_column.go (generateOriginDefaultValue), pkg/table/column.go (GetZeroValue).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.mysql import MysqlType as T
from tidegate.schema.change.flags import NOT_NULL
from tidegate.schema.stored.definition import StoredColumn

__all__ = ["with_origin", "zero_default"]

_ZEROS: Final[Mapping[int, str]] = {
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.FLOAT, T.DOUBLE, T.DECIMAL), "0"),
    T.YEAR: "0000",
    T.DATE: "0000-00-00",
    T.TIME: "00:00:00",
    T.BIT: "\0",
    T.JSON: "null",
}


def zero_default(column: StoredColumn) -> str | None:
    """Return the zero value as a definition writes it."""
    kind = column.type
    if kind.tp in (T.DATETIME, T.TIMESTAMP):
        return "0000-00-00 00:00:00" + ("." + "0" * kind.decimal if kind.decimal > 0 else "")
    if kind.tp == T.ENUM:
        return kind.elems[0] if kind.elems else ""
    if kind.tp == T.STRING and kind.charset == "binary":
        return "\0" * kind.flen
    return _ZEROS.get(kind.tp, "")


def with_origin(column: StoredColumn, now: str) -> StoredColumn:
    """`column` with the origin default that adding it at the moment `now` (UTC, as text) gives it."""
    if column.generated_expr_string:
        return column
    default, bits = column.default, column.default_bit
    if isinstance(default, str) and default.upper().startswith("CURRENT_TIMESTAMP"):
        default = now
    elif column.default_is_expr:
        default = None
    if default is None and column.type.flag & NOT_NULL:
        default = zero_default(column)
        bits = b"\0" * ((max(column.type.flen, 1) + 7) // 8) if column.type.tp == T.BIT else None
    return msgspec.structs.replace(column, origin_default=default, origin_default_bit=bits)
