"""Columns as TiDB stores them, from what a statement says.

    "v VARCHAR(20) NOT NULL DEFAULT 'x'"      type 15, flags NotNull, 20 characters, the table's charset, default "x"
    "d INT NOT NULL"                          type 3, flags NotNull NoDefault, display width 11

Moments in defaults of TIMESTAMP are UTC; the bytes of BIT stand in `default_bit`, since JSON cannot hold them.

Origin defaults: what rows hold that were written before a column was there.

    column has a default    that default (CURRENT_TIMESTAMP: the moment of the DDL)
    NOT NULL, no default    the zero value: 0, "", 0000-00-00 00:00:00, the first member of an ENUM
    else                    NULL

Default values of DATE, DATETIME and TIMESTAMP as definitions keep them: one form, TIMESTAMP in UTC.

    '2020-1-2'          DATETIME(3)             "2020-01-02 00:00:00.000"
    '2020-01-01 8:00'   TIMESTAMP, zone +08     "2020-01-01 00:00:00"

Source: TiDB pkg/ddl/add_column.go (buildColumnAndConstraint, columnDefToCol), pkg/types/field_type_builder.go.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import msgspec
from msgspec import Raw

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.schema.charset import default_collation
from tidegate.schema.columns import complete_type
from tidegate.schema.defaults import is_moment, keep_default
from tidegate.schema.definition import ColumnDef, Default, DefaultText, Expression, Now, Null, TypeDef
from tidegate.schema.stored.definition import Name, StoredColumn, StoredType
from tidegate.schema.stored.flags import AUTO_INCREMENT, BINARY, NO_DEFAULT, NOT_NULL, ON_UPDATE_NOW, UNSIGNED, ZEROFILL
from tidegate_upstream.change.restore import restore
from tidegate_upstream.change.session import DdlSession

MOMENTS: Final = frozenset({T.DATE, T.DATETIME, T.TIMESTAMP})
_MOMENT: Final = re.compile(r"^(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d+)?)?)?$")
_STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


def kept_moment(kind: StoredType, value: str, session: DdlSession, refused: SqlRefused) -> str:
    """`value` in the definition's form; raises `refused` for no moment, and for a zero date where sql_mode forbids it.

    Forms without signs between the numbers ("20200102") are kept as they were written."""
    text = value.strip()
    if text.startswith("0000-00-00"):
        if "NO_ZERO_DATE" in session.sql_mode and session.sql_mode & _STRICT:
            raise refused
        return value
    found = _MOMENT.match(text)
    if found is None:
        if not all_digits(text[:1]):
            raise refused
        return value
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=session.zone)
    except ValueError:
        raise refused from None
    if kind.tp == T.DATE:
        return moment.date().isoformat()
    digits = max(kind.decimal, 0)
    fraction = Decimal("0" + (found[7] or ".0")).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    if fraction == 1:
        moment, fraction = moment + timedelta(seconds=1), Decimal(0)
    if kind.tp == T.TIMESTAMP:
        moment = moment.astimezone(UTC)
    shown = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
    return f"{shown}.{int(fraction.scaleb(digits)):0{digits}d}" if digits else shown


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
    if is_moment(default):
        default = now
    elif column.default_is_expr:
        default = None
    if default is None and column.type.flag & NOT_NULL:
        default = zero_default(column)
        bits = b"\0" * ((max(column.type.flen, 1) + 7) // 8) if column.type.tp == T.BIT else None
    return msgspec.structs.replace(column, origin_default=default, origin_default_bit=bits)


_FLENS: Final[Mapping[int, int]] = {
    T.FLOAT: 12,
    T.DOUBLE: 22,
    T.DATE: 10,
    T.TIME: 10,
    T.DATETIME: 19,
    T.TIMESTAMP: 19,
    T.TINY_BLOB: 255,
    T.BLOB: 65535,
    T.MEDIUM_BLOB: 16777215,
    T.LONG_BLOB: 4294967295,
    T.JSON: 4294967295,
}
_FRACTIONAL: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})
_BITS_ONLY: Final[Mapping[int, int]] = {T.YEAR: UNSIGNED | ZEROFILL, T.BIT: UNSIGNED}
_NUMBERS: Final = frozenset({T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.DECIMAL, T.FLOAT, T.DOUBLE})
_LARGE: Final = frozenset({T.TINY_BLOB, T.BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.JSON, T.GEOMETRY})
_INVALID: Final = "�"
_LONGEST: Final = {T.STRING: 255, T.VARCHAR: 65535}


def make_type(name: str, definition: TypeDef, charset: str, collate: str, own_collate: str | None) -> StoredType:
    """Return the complete type of column `name` in a table of that charset and collation."""
    kind = complete_type(definition, charset)
    if definition.charset is None and own_collate is None and kind.charset == charset and not definition.binary:
        chosen = collate
    else:
        chosen = own_collate or default_collation(kind.charset)
    if kind.charset == "binary":
        chosen = "binary"
    elif definition.binary:
        chosen = f"{kind.charset}_bin"
    if kind.charset != chosen.split("_", 1)[0]:
        raise SqlRefused(1253, f"COLLATION '{chosen}' is not valid for CHARACTER SET '{kind.charset}'", "42000")
    flen = _length(name, kind)
    elems = None if kind.elems is None else list(kind.elems)
    decimal = kind.decimal if kind.code in (T.FLOAT, T.DOUBLE) else max(kind.decimal, 0)
    return StoredType(kind.code, _type_flag(kind), flen, decimal, kind.charset, chosen, elems)


def _length(name: str, kind: ColumnType) -> int:
    if kind.code in _LONGEST and kind.flen > _LONGEST[kind.code]:
        raise SqlRefused(
            1074,
            f"Column length too big for column '{name}' (max = {_LONGEST[kind.code]}); use BLOB or TEXT instead",
            "42000",
        )
    if kind.code in _FRACTIONAL:
        if kind.decimal > 6:
            raise SqlRefused(1426, f"Too big precision {kind.decimal} specified for '{name}'. Maximum is 6.", "42000")
        return _FLENS[kind.code] + (1 + kind.decimal if kind.decimal > 0 else 0)
    if kind.elems is not None:
        sizes = [len(elem.encode()) for elem in kind.elems]
        return max(sizes) if kind.code is T.ENUM else sum(sizes) + len(sizes) - 1
    return _FLENS.get(kind.code, -1) if kind.flen < 0 else kind.flen


def _type_flag(kind: ColumnType) -> int:
    if kind.code in _BITS_ONLY:
        return _BITS_ONLY[kind.code]
    if kind.code in _NUMBERS:
        return (UNSIGNED if kind.unsigned else 0) | (ZEROFILL if kind.zerofill else 0)
    return BINARY if kind.charset == "binary" else 0


def make_column(
    definition: ColumnDef, offset: int, charset: str, collate: str, session: DdlSession, *, in_key: bool = False
) -> StoredColumn:
    """Return the column of a definition, public and without id; `in_key` when the primary key has it."""
    kind = make_type(definition.name, definition.type, charset, collate, definition.detail.collate)
    never_null = definition.nullable is False or definition.primary or definition.auto_increment or in_key
    flag = kind.flag
    if never_null:
        flag |= NOT_NULL
    if definition.auto_increment:
        flag |= AUTO_INCREMENT
    if definition.detail.on_update is not None:
        flag |= ON_UPDATE_NOW
    column = StoredColumn(
        0,
        Name.of(definition.name),
        offset=offset,
        type=msgspec.structs.replace(kind, flag=flag),
        comment=definition.comment,
    )
    if definition.generated is not None:
        found = restore(definition.generated)
        return msgspec.structs.replace(
            column,
            generated_expr_string=found.text,
            generated_stored=definition.stored,
            dependences={name: Raw(b"{}") for name in sorted(found.columns)},
        )
    return with_default(column, definition.default, session)


def with_default(column: StoredColumn, default: Default | None, session: DdlSession) -> StoredColumn:
    """`column` with that default, and the flag that says whether it has none where it needs one."""
    kind, name = column.type, column.name.original
    if isinstance(default, Null) and kind.flag & NOT_NULL:
        raise SqlRefused(1067, f"Invalid default value for '{name}'", "42000")
    if kind.tp in _LARGE and isinstance(default, DefaultText | Now):
        raise SqlRefused(1101, f"BLOB/TEXT/JSON column '{name}' can't have a default value", "42000")
    value, bits, is_expression = _kept(column, default, session)
    needs = kind.flag & NOT_NULL and default is None and not kind.flag & AUTO_INCREMENT
    flag = (kind.flag & ~NO_DEFAULT) | (NO_DEFAULT if needs else 0)
    return msgspec.structs.replace(
        column,
        default=value,
        default_bit=bits,
        default_is_expr=is_expression,
        type=msgspec.structs.replace(kind, flag=flag),
    )


def _kept(column: StoredColumn, default: Default | None, session: DdlSession) -> tuple[str | None, bytes | None, bool]:
    """(default, default_bit, default_is_expr)."""
    if isinstance(default, Now):
        if column.type.tp not in (T.DATETIME, T.TIMESTAMP, T.DATE):
            raise SqlRefused(1067, f"Invalid default value for '{column.name.original}'", "42000")
        return "CURRENT_DATE" if column.type.tp == T.DATE else "CURRENT_TIMESTAMP", None, False
    if isinstance(default, Expression):
        return restore(default.sql).text, None, True
    kind = ColumnType(
        T(column.type.tp),
        column.type.flen,
        column.type.decimal,
        charset=column.type.charset,
        elems=None if column.type.elems is None else tuple(column.type.elems),
    )
    value, _ = keep_default(default, kind)
    if value is None:
        return None, None, False
    if isinstance(value, bytes):
        return _go_text(value), value if kind.code is T.BIT else None, False
    return _checked(column, value, session), None, False


def _go_text(value: bytes) -> str:
    """Bytes as Go writes them into JSON: every byte that is no UTF-8 becomes one replacement character."""
    return value.decode("utf-8", "surrogateescape").translate(dict.fromkeys(range(56448, 56576), _INVALID))


def _checked(column: StoredColumn, value: str, session: DdlSession) -> str:
    """`value` if the column can hold it; SqlRefused 1067 if not.  Moments of TIMESTAMP become UTC."""
    kind, name = column.type, column.name.original
    refused = SqlRefused(1067, f"Invalid default value for '{name}'", "42000")
    if kind.tp in _NUMBERS:
        try:
            float(value)
        except ValueError:
            raise refused from None
    if kind.tp == T.ENUM and kind.elems is not None and value.lower() not in {one.lower() for one in kind.elems}:
        raise refused
    if kind.tp in (T.STRING, T.VARCHAR) and len(value) > kind.flen >= 0:
        raise refused
    return kept_moment(kind, value, session, refused) if kind.tp in MOMENTS else value
