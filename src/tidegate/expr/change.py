"""Column type changes: how ALTER TABLE .. MODIFY or CHANGE COLUMN converts stored values.

The change log has no rows for a column change, so a replica of the table converts its values as TiDB's reorganisation
does.  Values are those of events, except that ENUM and SET are names.

    value of `old` --parse--> stored --recast, convert--> stored --print--> value of `new`

    from / to    INT BIT YEAR FLOAT DECIMAL   TEXT BINARY   MOMENT   SPAN   JSON   ENUM SET
    INT, YEAR     n   n/- n    n     n         t    t        m        s      j      n/-  n/-
    BIT           n   n   n    n     n         t    t        -        -      j      -    -
    FLOAT,DECIMAL n   n   n    n     n         t    t        -        s      j      -    -
    TEXT, BINARY  n   -   n    n     n         t    t        m        s      j      t    t
    MOMENT, SPAN  n   -   n    n     n         t    t        m        s      j      -    -
    JSON          n   -   n    n     n         t    t        m        s      =      -    -
    ENUM, SET     n   n   n    n     n         t    t        -        -      j      t    t

    n through a number, t through text, m through a wall clock, s through a time span, j into a document;
    MOMENT = DATE, DATETIME, TIMESTAMP; SPAN = TIME; "n/-" where INT may and YEAR may not.
    "-": TiDB refuses the statement (checkTypeChangeSupported), so it cannot arrive; VECTOR changes into nothing.

`converter` returns None if `keeps_values` is true and no other time zone is involved.  NULL stays NULL.

    family    values stay when
    INT, BIT  the new range holds the old one (YEAR -> INT likewise)
    FLOAT     the new type is as wide and does not round, or rounds at the same digit with room to spare
    DECIMAL   same scale, precision not smaller
    TEXT      as long, and not from VARCHAR or TEXT to CHAR, which trims
    BINARY    as long, and not to BINARY(n), which pads
    MOMENT    same type or TIMESTAMP -> DATETIME, same fractional digits
    SPAN      same fractional digits
    ENUM      all names remain;  SET  all names remain in order
    JSON, VECTOR  always

UNSIGNED may be dropped but not added.  More digits (DATETIME -> DATETIME(3), a larger scale) change the printed text
though not the meaning, so they count as a change.

Source: TiDB's Datum.ConvertTo, with which the reorganisation of a column change casts each row; the
`rewrites_values_of` moments of the workload recording.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from itertools import product
from typing import Final, TypeAlias

from tidegate.expr.cast import Target, convert, recast
from tidegate.model.errors import EncodeError, SchemaError, UnsupportedError, redacted_value
from tidegate.model.event import Value
from tidegate.model.mysql import BLOB_LIMITS, INTEGERS, NAMED, STRINGS, TYPES, Family, MysqlType
from tidegate.model.table import ColumnType
from tidegate.model.tso import to_datetime
from tidegate.mysql.column_value import KvValue, column_text, parse_value
from tidegate.mysql.conversion import (
    capacity,
    enum_index,
    enum_name,
    fsp_of,
    integer_bounds,
    session_zone,
    set_mask,
    set_names,
    zone_of,
)
from tidegate.mysql.datum import Unsigned
from tidegate.mysql.values import Context, SqlValue


def type_name(kind: ColumnType) -> str:
    """Return a type for error messages: DECIMAL(10,2) UNSIGNED."""
    sizes = [str(size) for size in (kind.flen, kind.decimal) if size >= 0]
    name = MysqlType(kind.code).name
    if kind.code in STRINGS and kind.charset == "binary":
        name += " BINARY"
    return f"{name}{'(' + ','.join(sizes) + ')' if sizes else ''}{' UNSIGNED' if kind.unsigned else ''}"


def family_of(kind: ColumnType) -> Family:
    """Return the family of a type; raises UnsupportedError for GEOMETRY and NULL."""
    family = TYPES[kind.code].family
    if family is Family.TEXT and kind.charset == "binary":
        return Family.BINARY
    if family in (Family.GEOMETRY, Family.NULL):
        raise UnsupportedError(
            f"values of type {type_name(kind)} cannot be converted; exclude the table by a filter rule"
        )
    return family


def elems_of(kind: ColumnType) -> tuple[str, ...]:
    """Return the names of an ENUM or SET; raises UnsupportedError when the definition is not known."""
    if kind.elems is None:
        raise UnsupportedError(
            f"the names of a {type_name(kind)} column are unknown; start from a CREATE TABLE or a schema file"
        )
    return kind.elems


BYTES_A_CHARACTER: Final = 4


def keeps_values(old: ColumnType, new: ColumnType) -> bool:
    """Return True if a column change from `old` to `new` leaves every value unchanged."""
    if old == new:
        return True
    families = family_of(old), family_of(new)
    if families[0] is not families[1]:
        return families[0] in _RANGED and families[1] in {Family.INT, Family.BIT} and _ranges(old, new)
    return _SAME_FAMILY[families[0]](old, new)


def _bounds(kind: ColumnType) -> tuple[int, int]:
    if kind.code in INTEGERS:
        return integer_bounds(kind)
    return (0, 2155) if kind.code is MysqlType.YEAR else (0, (1 << max(kind.flen, 1)) - 1)


def _ranges(old: ColumnType, new: ColumnType) -> bool:
    (old_least, old_greatest), (least, greatest) = _bounds(old), _bounds(new)
    return least <= old_least and old_greatest <= greatest


def _keeps_sign(old: ColumnType, new: ColumnType) -> bool:
    return old.unsigned or not new.unsigned


def _floats(old: ColumnType, new: ColumnType) -> bool:
    if not _keeps_sign(old, new) or (old.code is MysqlType.DOUBLE and new.code is MysqlType.FLOAT):
        return False
    if new.flen < 0 or new.decimal < 0:
        return True
    return old.code is new.code and old.decimal == new.decimal and 0 <= old.flen <= new.flen


def _decimals(old: ColumnType, new: ColumnType) -> bool:
    (old_precision, old_scale), (precision, scale) = (
        (kind.flen if kind.flen >= 0 else 10, max(kind.decimal, 0)) for kind in (old, new)
    )
    return _keeps_sign(old, new) and old_scale == scale and old_precision <= precision


def _texts(old: ColumnType, new: ColumnType) -> bool:
    if new.code is MysqlType.STRING and old.code is not MysqlType.STRING:
        return False
    grows = old.code not in BLOB_LIMITS and new.code in BLOB_LIMITS
    return capacity(old) * (BYTES_A_CHARACTER if grows else 1) <= capacity(new)


def _bytes(old: ColumnType, new: ColumnType) -> bool:
    if new.code is MysqlType.STRING:
        return old.code is MysqlType.STRING and capacity(old) == capacity(new)
    return capacity(old) <= capacity(new)


def _enums(old: ColumnType, new: ColumnType) -> bool:
    return old.elems is not None and new.elems is not None and set(old.elems) <= set(new.elems)


_RANGED: Final = frozenset({Family.INT, Family.BIT, Family.YEAR})
_SAME_FAMILY: Final[Mapping[Family, Callable[[ColumnType, ColumnType], bool]]] = {
    Family.INT: _ranges,
    Family.BIT: _ranges,
    Family.YEAR: lambda _old, _new: True,
    Family.FLOAT: _floats,
    Family.DECIMAL: _decimals,
    Family.TEXT: _texts,
    Family.BINARY: _bytes,
    Family.MOMENT: lambda old, new: (
        (old.code is new.code or (old.code is MysqlType.TIMESTAMP and new.code is MysqlType.DATETIME))
        and (old.code is MysqlType.DATE or fsp_of(old) == fsp_of(new))
    ),
    Family.SPAN: lambda old, new: fsp_of(old) == fsp_of(new),
    Family.JSON: lambda _old, _new: True,
    Family.ENUM: _enums,
    Family.SET: lambda old, new: (
        _enums(old, new) and tuple(name for name in new.elems or () if name in (old.elems or ())) == old.elems
    ),
    Family.VECTOR: lambda _old, _new: True,
}


Rule: TypeAlias = Callable[[Value], Value]
"""Converts a stored value to the value after the change; None (NULL) stays None."""
_FOLDING: Final = "utf8mb4_general_ci"
"""The collation for names of ENUM and SET, whose own may be missing in DDL text."""


def converter(
    old: ColumnType, new: ColumnType, *, time_zone: str = "UTC", commit_ts: int = 0, session: str = ""
) -> Rule | None:
    """Return the function that converts a stored value for a column change; None when values stay as they are.

    `time_zone` is the zone of TIMESTAMP values, `session` that of the statement's session ("": the same), `commit_ts`
    the statement's (its day is the date part when TIME becomes DATETIME).  Raises UnsupportedError for the changes
    that TiDB refuses.
    """
    if keeps_values(old, new) and (session in ("", time_zone) or not depends_on_zone(old, new)):
        return None
    if (family_of(old), family_of(new)) in _REFUSED:
        raise UnsupportedError(
            f"TiDB changes no column from {type_name(old)} to {type_name(new)}, so stored values cannot be converted; "
            f"check the schema before the statement, or exclude the table by a filter rule"
        )
    clocks = zone_of(time_zone)
    zone = session_zone(session, clocks)
    context = Context(to_datetime(commit_ts), zone)
    number = (enum_index if old.code is MysqlType.ENUM else set_mask)(elems_of(old)) if old.code in NAMED else None
    if family_of(new) in _NAMES:
        elems_of(new)

    def rule(value: Value) -> Value:
        if value is None:
            return None
        try:
            stored = parse_value(old, value, clocks) if number is None else Unsigned(number(str(value)))
        except EncodeError as error:
            raise SchemaError(
                f"a column of type {type_name(old)} holds {redacted_value(value, 80)}; the schema does not belong to "
                "this row"
            ) from error
        return assigned(recast(stored, old, new, zone), new, context, clocks)

    return rule


def depends_on_zone(old: ColumnType, new: ColumnType) -> bool:
    """Return whether the result of a column change depends on the session's time zone."""
    is_timestamp = [kind.code is MysqlType.TIMESTAMP for kind in (old, new)]
    return is_timestamp[0] is not is_timestamp[1]


def assigned(value: SqlValue, kind: ColumnType, context: Context, clocks: tzinfo | None = None) -> Value:
    """Return the value that a column of that type stores, in the form of events, a TIMESTAMP in the zone `clocks` (the
    context's by default); SchemaError for text that is no JSON."""
    converted = convert(value, Target("", kind, _FOLDING), context)
    if converted.value is None and value is not None:
        raise SchemaError(f"a column change to {kind.code.name} gave an invalid value: {redacted_value(value, 80)}")
    return event_value(kind, converted.value, clocks or context.zone)


def event_value(kind: ColumnType, value: KvValue, zone: tzinfo = UTC) -> Value:
    """Return a stored value in the form of events: times, decimals and JSON as text, ENUM and SET by name."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, bytes):
        return value if kind.charset == "binary" or kind.code not in STRINGS else value.decode("utf-8", "replace")
    if isinstance(value, int) and kind.code is not MysqlType.TIME:
        if kind.code is MysqlType.ENUM:
            return enum_name(elems_of(kind), value)
        return set_names(elems_of(kind), value) if kind.code is MysqlType.SET else int(value)
    return column_text(kind, value, zone)


_WORDS: Final = (Family.TEXT, Family.BINARY, Family.JSON)
_CLOCKS: Final = (Family.YEAR, Family.MOMENT, Family.SPAN)
_NAMES: Final = (Family.ENUM, Family.SET)
_FRACTIONS: Final = (Family.DECIMAL, Family.FLOAT)
_REFUSED: Final = frozenset(
    {
        *product((*_CLOCKS, *_WORDS), (Family.BIT,)),
        *product((*_CLOCKS, *_FRACTIONS, Family.JSON, Family.BIT), _NAMES),
        *product((*_NAMES, *_FRACTIONS, Family.BIT), (Family.MOMENT,)),
        *product((*_NAMES, Family.BIT), (Family.SPAN,)),
        *product((Family.VECTOR,), Family),
        *product(Family, (Family.VECTOR,)),
    }
)
"""TiDB's checkTypeChangeSupported."""
