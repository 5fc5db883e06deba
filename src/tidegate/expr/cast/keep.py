"""Column changes that leave every stored value as it is.

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

UNSIGNED may be dropped but not gained.  More digits (DATETIME -> DATETIME(3), a larger scale) change the printed text
though not the meaning, so they count as a change.
Source: TiDB's needReorgToChange, widened to all changes whose casts are the identity.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.cast.family import Family, family_of
from tidegate.expr.convert.number import INTEGER_BITS, integer_bounds
from tidegate.expr.convert.text import BLOB_LIMITS, capacity
from tidegate.expr.convert.time import fsp_of
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

__all__ = ["keeps_values"]

BYTES_A_CHARACTER: Final = 4


def keeps_values(old: ColumnType, new: ColumnType) -> bool:
    """Return True when a change from `old` to `new` makes every value of itself."""
    if old == new:
        return True
    families = family_of(old), family_of(new)
    if families[0] is not families[1]:
        return families[0] in _RANGED and families[1] in {Family.INT, Family.BIT} and _ranges(old, new)
    return _SAME_FAMILY[families[0]](old, new)


def _bounds(kind: ColumnType) -> tuple[int, int]:
    if kind.code in INTEGER_BITS:
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


def _moments(old: ColumnType, new: ColumnType) -> bool:
    same = old.code is new.code or (old.code is MysqlType.TIMESTAMP and new.code is MysqlType.DATETIME)
    return same and (old.code is MysqlType.DATE or fsp_of(old) == fsp_of(new))


def _enums(old: ColumnType, new: ColumnType) -> bool:
    return old.elems is not None and new.elems is not None and set(old.elems) <= set(new.elems)


def _sets(old: ColumnType, new: ColumnType) -> bool:
    return _enums(old, new) and [name for name in new.elems or () if name in (old.elems or ())] == list(old.elems or ())


_RANGED: Final = frozenset({Family.INT, Family.BIT, Family.YEAR})
_SAME_FAMILY: Final[Mapping[Family, Callable[[ColumnType, ColumnType], bool]]] = {
    Family.INT: _ranges,
    Family.BIT: _ranges,
    Family.YEAR: lambda _old, _new: True,
    Family.FLOAT: _floats,
    Family.DECIMAL: _decimals,
    Family.TEXT: _texts,
    Family.BINARY: _bytes,
    Family.MOMENT: _moments,
    Family.SPAN: lambda old, new: fsp_of(old) == fsp_of(new),
    Family.JSON: lambda _old, _new: True,
    Family.ENUM: _enums,
    Family.SET: _sets,
    Family.VECTOR: lambda _old, _new: True,
}
