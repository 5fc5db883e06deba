"""Functions of numbers.

    ROUND(2.5) 3      ROUND(2.5e0) 2        halves go away from zero, doubles' to even
    ROUND(1298, -1)   1300                  TRUNCATE cuts, also before the point
    FLOOR, CEIL       integers of integers and decimals, doubles of doubles
    SQRT(-1), LN(0)   NULL; MOD(n, 0), too

Source: MySQL manual, "Mathematical Functions"; TiDB's builtin_math.
"""

import math
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.function.form import Function, arguments, define
from tidegate.expr.operator.arithmetic import remainder, turned_sign
from tidegate.expr.operator.logic import as_shared
from tidegate.expr.relation import Row
from tidegate.expr.result_type import (
    DOUBLE,
    INT,
    UINT,
    ValueFamily,
    agreed,
    decimal_type,
    digits_of,
    number_family,
)
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.table import ColumnType
from tidegate.mysql.context import NO_CONTEXT, Context
from tidegate.mysql.convert.number import round_at
from tidegate.mysql.value.compare import compare
from tidegate.mysql.value.kinds import SqlValue, Unsigned
from tidegate.mysql.value.number import EXACT, Number, number_of, rounded

_OUT_OF_RANGE: Final = 1690
MAX_SCALE: Final = 30


def _kind_of_first(args: Sequence[Compiled]) -> ColumnType:
    kind = args[0].type
    match number_family(kind):
        case ValueFamily.INT:
            return UINT if kind.unsigned else INT
        case ValueFamily.DECIMAL:
            return decimal_type(sum(digits_of(kind)), digits_of(kind)[1])
        case _:
            return DOUBLE


def _whole_kind(args: Sequence[Compiled]) -> ColumnType:
    return DOUBLE if number_family(args[0].type) is ValueFamily.REAL else UINT if args[0].type.unsigned else INT


def _whole(on_float: Callable[[float], float], mode: str) -> Function:
    def apply(number: Number) -> SqlValue:
        if isinstance(number, float):
            return float(on_float(number)) if math.isfinite(number) else number
        return int(number.to_integral_value(mode)) if isinstance(number, Decimal) else number

    return define("x", _whole_kind, apply)


def _absolute(number: Number) -> SqlValue:
    if number == -(1 << 63) and isinstance(number, int):
        raise SqlRefused(_OUT_OF_RANGE, f"BIGINT value is out of range in 'abs({number})'", "22003")
    return number if number >= 0 else turned_sign(number)


def _round(number: Number, places: int = 0) -> SqlValue:
    places = max(min(places, MAX_SCALE), -MAX_SCALE)
    if isinstance(number, float):
        return round_at(number, places)
    exact = Decimal(number)
    kept = places if isinstance(number, Decimal) else min(places, 0)
    if kept >= 0:
        return number if isinstance(number, int) else rounded(exact, min(kept, MAX_SCALE))
    return _as_before(rounded(exact.scaleb(kept), 0).scaleb(-kept, EXACT), number)


def _as_before(exact: Decimal, number: Number) -> SqlValue:
    """An integer of an integer."""
    if isinstance(number, int):
        return Unsigned(exact) if isinstance(number, Unsigned) else int(exact)
    return rounded(exact, 0)


def _truncate(number: Number, places: int) -> SqlValue:
    places = max(min(places, MAX_SCALE), -MAX_SCALE - 35)
    if isinstance(number, float):
        scaled = number * 10.0**places
        return math.trunc(scaled) / 10.0**places if math.isfinite(scaled) else number
    if places >= 0 and isinstance(number, int):
        return number
    exact = Decimal(number).scaleb(places, EXACT).to_integral_value(ROUND_DOWN).scaleb(-places, EXACT)
    return _as_before(exact, number) if places < 0 else exact.quantize(Decimal(1).scaleb(-places), context=EXACT)


def _rounded_kind(args: Sequence[Compiled]) -> ColumnType:
    """ROUND and TRUNCATE of a decimal have as many decimals as asked for, where that is a literal."""
    kind = _kind_of_first(args)
    if number_family(args[0].type) is not ValueFamily.DECIMAL:
        return kind
    if len(args) == 1:
        return decimal_type(digits_of(kind)[0] + 1, 0)
    if not args[1].constant:
        return kind
    places = args[1].run((), NO_CONTEXT)
    scale = min(max(places, 0), MAX_SCALE) if isinstance(places, int) else 0
    return decimal_type(digits_of(kind)[0] + 1 + scale, scale)


def _double(apply: Callable[..., float], takes: str = "f", least: int | None = None) -> Function:
    """A function of doubles: NULL where it is not defined, error 1690 where it is too large."""

    def guarded(*numbers: float) -> SqlValue:
        try:
            return float(apply(*numbers))
        except (ValueError, ZeroDivisionError):
            return None
        except OverflowError as error:
            raise SqlRefused(_OUT_OF_RANGE, "DOUBLE value is out of range", "22003") from error

    return define(takes, DOUBLE, guarded, least=least)


def _logarithm(first: float, second: float | None = None) -> float:
    if second is None:
        return math.log(first)
    if first == 1 or first <= 0:
        raise ValueError
    return math.log(second) / math.log(first)


def _sign(number: Number) -> int:
    return (number > 0) - (number < 0)


def _modulo_call(node: Node, scope: Scope) -> Compiled:
    first, second = arguments(node, scope, 2, 2)

    def run(row: Row, context: Context) -> SqlValue:
        left = number_of(first.run(row, context), first.type, context)
        right = number_of(second.run(row, context), second.type, context)
        return None if left is None or right is None else remainder(left, right, node, context)

    return Compiled(run, _kind_of_first((first if number_family(second.type) is ValueFamily.INT else second,)))


def _rand_call(node: Node, scope: Scope) -> Compiled:
    """RAND() is new for every row; RAND(n) the same sequence for the same n."""
    seeds = arguments(node, scope, 0, 1)
    source = random.Random()
    if seeds and seeds[0].constant:
        source.seed(str(seeds[0].run((), NO_CONTEXT)))
    return Compiled(lambda _row, _context: source.random(), DOUBLE)


def _extreme(wanted: int) -> Function:
    """GREATEST and LEAST: NULL as soon as one is."""

    def build(node: Node, scope: Scope) -> Compiled:
        values = arguments(node, scope, 2)
        form, runs = as_shared(values, scope)
        collation, _ = agreed(values, scope)
        kinds = (form.type, form.type)

        def run(row: Row, context: Context) -> SqlValue:
            best = runs[0](row, context)
            for evaluate in runs[1:]:
                value = evaluate(row, context)
                order = compare(value, best, kinds, collation, context)
                if order is None:
                    return None
                best = value if order == wanted else best
            return best

        return Compiled(run, form.type, form.collation, form.rank)

    return build


_CEILING: Final = _whole(lambda number: float(math.ceil(number)), ROUND_CEILING)
_POWER: Final = _double(math.pow, "ff")

NUMBER_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ABS": define("n", _kind_of_first, _absolute),
    "CEIL": _CEILING,
    "CEILING": _CEILING,
    "CRC32": define("o", UINT, lambda data: Unsigned(zlib.crc32(data))),
    "EXP": _double(math.exp),
    "FLOOR": _whole(lambda number: float(math.floor(number)), ROUND_FLOOR),
    "GREATEST": _extreme(1),
    "LEAST": _extreme(-1),
    "LN": _double(math.log),
    "LOG": _double(_logarithm, "ff", 1),
    "MOD": _modulo_call,
    "POW": _POWER,
    "POWER": _POWER,
    "RAND": _rand_call,
    "ROUND": define("xi", _rounded_kind, _round, least=1),
    "SIGN": define("n", INT, _sign),
    "SQRT": _double(math.sqrt),
    "TRUNCATE": define("xi", _rounded_kind, _truncate),
}
"""By name."""
