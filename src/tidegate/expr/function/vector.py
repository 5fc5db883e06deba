"""Functions of vectors: VEC_FROM_TEXT('[1,2.5]'), VEC_AS_TEXT, VEC_DIMS, and the distances of two vectors.

    VEC_L2_DISTANCE  VEC_L1_DISTANCE  VEC_COSINE_DISTANCE  VEC_NEGATIVE_INNER_PRODUCT  VEC_L2_NORM

Elements are 32-bit floats.  Vectors of different length have no distance: SqlRefused 1105.
Source: TiDB's types/vector.go, builtin_vec.go.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.context import Context
from tidegate.expr.function.form import Function, define
from tidegate.expr.result_type import DOUBLE, INT, TEXT
from tidegate.expr.value.kinds import SqlValue, Vector
from tidegate.expr.value.text import string_of, text_of
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType

__all__ = ["VECTOR", "VECTOR_FUNCTIONS", "vector_of"]

VECTOR: Final = ColumnType(T.VECTOR, charset="binary")
_REFUSED: Final = 1105


def vector_of(value: SqlValue, kind: ColumnType, _context: Context | None = None) -> Vector | None:
    """Return the vector that a text spells; SqlRefused 1105 when it spells none."""
    if value is None or isinstance(value, Vector):
        return value
    text = string_of(value, kind) or ""
    try:
        numbers = json.loads(text)
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
    except (ValueError, TypeError, struct.error, OverflowError) as error:
        raise SqlRefused(_REFUSED, f"Invalid vector text: {text:.80}", "HY000") from error
    return Vector(struct.unpack(f"<{len(numbers)}f", packed))


def _pair(apply: Callable[[Vector, Vector], float]) -> Function:
    def distance(first: SqlValue, second: SqlValue) -> float | None:
        left, right = vector_of(first, TEXT), vector_of(second, TEXT)
        assert left is not None and right is not None  # noqa: PT018 - NULL does not come here
        if len(left) != len(right):
            raise SqlRefused(_REFUSED, f"vectors have different dimensions: {len(left)} and {len(right)}", "HY000")
        found = apply(left, right)
        return None if math.isnan(found) else found

    return define("vv", DOUBLE, distance)


def _inner(left: Vector, right: Vector) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _cosine(left: Vector, right: Vector) -> float:
    norm = math.sqrt(_inner(left, left) * _inner(right, right))
    return 1 - _inner(left, right) / norm if norm else math.nan


def _norm(value: SqlValue) -> float:
    vector = vector_of(value, TEXT) or Vector()
    return math.sqrt(_inner(vector, vector))


VECTOR_FUNCTIONS: Final[Mapping[str, Function]] = {
    "VEC_AS_TEXT": define("v", TEXT, lambda value: text_of(vector_of(value, TEXT), VECTOR)),
    "VEC_COSINE_DISTANCE": _pair(_cosine),
    "VEC_DIMS": define("v", INT, lambda value: len(vector_of(value, TEXT) or ())),
    "VEC_FROM_TEXT": define("s", VECTOR, lambda text: vector_of(text, TEXT)),
    "VEC_L1_DISTANCE": _pair(lambda a, b: math.fsum(abs(x - y) for x, y in zip(a, b, strict=True))),
    "VEC_L2_DISTANCE": _pair(math.dist),
    "VEC_L2_NORM": define("v", DOUBLE, _norm),
    "VEC_NEGATIVE_INNER_PRODUCT": _pair(lambda a, b: -_inner(a, b)),
}
"""By name."""
