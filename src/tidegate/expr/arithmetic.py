"""Compile operands and arithmetic: literals, columns, variables, COLLATE, + - * / DIV %, and & | ^ << >> ~.

`LITERALS`, `ARITHMETIC` and `BITS` map classes of sqlglot nodes to the functions that compile them; compiler.py
registers all three.

    literal                             value
    12, 18446744073709551615            int, Unsigned
    1.50                                Decimal with two decimals
    1e3                                 float
    'a', _binary'a'                     str, bytes
    x'0a' b'1'                          Bits
    DATE '2024-01-31'                   Time
    TRUE                                1

A column is an index into the flat row (`Slot` in scope.py).  In ORDER BY and HAVING an alias of the select list stands
for its item.  @@x is a variable of the session, @x one of the user; @x := 1 assigns it while the row is evaluated.

    operands                 + - *                    /                          DIV         %
    integers                 integer of 64 bits       decimals of the first +4   integer     sign of the first
    a DECIMAL                most decimals; * adds    decimals of the first +4   integer     most decimals
    a double or text         double                   double                     integer     double

A result outside the range of its type is error 1690.  One unsigned operand makes an integer result unsigned, so 1 - 2
of unsigned columns is error 1690.  Division by zero gives NULL with warning 1365.  The bit operators work on unsigned
numbers of 64 bits; their operands are rounded, and negative ones wrap around.

    -1 >> 1  9223372036854775807      1 << 64  0      2.5 & 7  3

A date + INTERVAL n UNIT is compiled in time_functions.py.

Source: MySQL manual, "Arithmetic Operators", "Out-of-Range and Overflow Handling", "Bit Functions and Operators";
TiDB's builtin_arithmetic.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import Final, TypeAlias

from sqlglot import exp

from tidegate.expr.dialect import Node
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.result_type import (
    BOOL,
    DOUBLE,
    INT,
    MAX_SCALE,
    NULL,
    TEXT,
    UINT,
    decimal_type,
    digits_of,
    family_of,
    literal_type,
    number_family,
    text_type,
)
from tidegate.expr.scope import Compiled, Evaluate, Row, Scope
from tidegate.model.errors import EncodeError, SqlRefused
from tidegate.model.mysql import Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.conversion import CODECS, Number
from tidegate.mysql.encoding import MAX_INT, MAX_UINT, MIN_INT
from tidegate.mysql.values import (
    EXACT,
    NO_CONTEXT,
    Bits,
    Context,
    SqlValue,
    Unsigned,
    clamped,
    integer_of,
    number_of,
    rounded,
    text_of,
    wrapped,
)

_UNKNOWN_VARIABLE: Final = 1193
_ONE_COLUMN: Final = 1241
_UNKNOWN_COLLATION: Final = 1273
_LITERAL_RANK, _NUMBER_RANK, _NULL_RANK = 4, 5, 6


def constant(value: SqlValue, kind: ColumnType, collation: str = "binary", rank: int = _NUMBER_RANK) -> Compiled:
    """Return the expression with `value` for every row."""
    return Compiled(lambda _row, _context: value, kind, collation, rank, constant=True)


def number_literal(text: str) -> SqlValue:
    """Return the value of a number as written."""
    if "e" in text.lower():
        return clamped(float(text))
    if "." in text:
        return Decimal(text)
    value = int(text)
    if value <= MAX_INT:
        return value
    return Unsigned(value) if value <= MAX_UINT else Decimal(text)


def _literal(node: Node, scope: Scope) -> Compiled:
    if node.is_string:
        return constant(node.this, text_type(len(node.this)), scope.collation, _LITERAL_RANK)
    value = number_literal(node.this)
    return constant(value, literal_type(value))


def _hex(node: Node, _scope: Scope) -> Compiled:
    digits = node.this
    return _bits(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))


def _bit(node: Node, _scope: Scope) -> Compiled:
    digits = node.this or "0"
    return _bits(int(digits, 2).to_bytes((len(digits) + 7) // 8, "big") if node.this else b"")


def _bits(data: bytes) -> Compiled:
    return constant(Bits(data), ColumnType(T.VAR_STRING, len(data), charset="binary"), "binary", _LITERAL_RANK)


def _introducer(node: Node, scope: Scope) -> Compiled:
    """Compile a literal with an introducer of its character set."""
    charset = node.this.removeprefix("_")
    value = compile_scalar(node.expression, scope).run((), NO_CONTEXT)
    if charset == "binary":
        data = value if isinstance(value, bytes) else str(value).encode()
        return constant(bytes(data), ColumnType(T.VAR_STRING, len(data), charset="binary"), "binary", _LITERAL_RANK)
    text = value.decode(CODECS.get(charset, "utf-8"), "replace") if isinstance(value, bytes) else str(value)
    return constant(text, text_type(len(text)), scope.collation, _LITERAL_RANK)


def _column(node: Node, scope: Scope) -> Compiled:
    if type(node.this).__name__ == "Star":
        raise SqlRefused(_ONE_COLUMN, "Operand should contain 1 column(s)", "21000")
    name, table, schema = node.name, node.table, node.db
    alias = scope.aliases.get(lowered(name)) if not table else None
    if alias is not None:
        return compile_scalar(alias, replace(scope, aliases={}))
    slot = scope.find(name, table, schema)
    index = slot.index
    return Compiled(lambda row, _context: row[index], slot.type, slot.collation, 2)


def _user_variable(node: Node, scope: Scope) -> Compiled:
    name = lowered(node.name)
    value = scope.context.user_variables.get(name) if scope.context else None
    kind = TEXT if value is None else literal_type(value)
    return Compiled(lambda _row, context: context.user_variables.get(name), kind, scope.collation, 3)


def _system_variable(node: Node, scope: Scope) -> Compiled:
    name, is_global = node.name, node.args.get("kind") == "global"

    def read(_row: Row, context: Context) -> SqlValue:
        return variable(context, name, is_global=is_global)

    kind = literal_type(variable(scope.context, name, is_global=is_global)) if scope.context else TEXT
    return Compiled(read, kind, "utf8mb4_bin", 3)


def variable(context: Context, name: str, *, is_global: bool = False) -> SqlValue:
    """Return the value of a system variable; SqlRefused 1193 for an unknown one."""
    own = {} if is_global else context.variables
    for variables in (own, context.global_variables, context.variables):
        if name in variables:
            value = variables[name]
            return int(value) if isinstance(value, bool) else value
    if name in _STATEMENT_VARIABLES:
        return _STATEMENT_VARIABLES[name](context)
    raise SqlRefused(_UNKNOWN_VARIABLE, f"Unknown system variable '{name}'", "HY000")


_STATEMENT_VARIABLES: Final[Mapping[str, Callable[[Context], SqlValue]]] = {
    "last_insert_id": lambda context: context.last_insert_id,
    "identity": lambda context: context.last_insert_id,
    "warning_count": lambda context: len(context.warnings),
    "error_count": lambda context: sum(warning.level == "Error" for warning in context.warnings),
    "tidb_current_ts": lambda context: context.start_ts,
}


def _collate(node: Node, scope: Scope) -> Compiled:
    value, name = compile_scalar(node.this, scope), lowered(node.expression.name)
    try:
        sort_key(name, b"a")
    except EncodeError as error:
        raise SqlRefused(_UNKNOWN_COLLATION, f"Unknown collation: '{name}'", "HY000") from error
    if family_of(value.type) is Family.TEXT:
        return replace(value, collation=name, rank=0)
    run, kind = value.run, value.type
    return Compiled(lambda row, context: text_of(run(row, context), kind), TEXT, name, 0)


def _several(_node: Node, _scope: Scope) -> Compiled:
    raise SqlRefused(_ONE_COLUMN, "Operand should contain 1 column(s)", "21000")


LITERALS: Final[Mapping[str, Build]] = {
    "Literal": _literal,
    "HexString": _hex,
    "BitString": _bit,
    "Introducer": _introducer,
    "Null": lambda _node, _scope: constant(None, NULL, "binary", _NULL_RANK),
    "Boolean": lambda node, _scope: constant(int(node.this), BOOL),
    "Column": _column,
    "Parameter": _user_variable,
    "SessionParameter": _system_variable,
    "Collate": _collate,
    "Paren": lambda node, scope: compile_scalar(node.this, scope),
    "Tuple": _several,
    "Star": _several,
}


_OUT_OF_RANGE: Final = 1690
_DIVIDED_BY_ZERO: Final = 1365
DIV_INCREMENT: Final = 4
"""div_precision_increment."""
MAX_DIGITS: Final = 65
WORD: Final = 9
Apply: TypeAlias = Callable[[Number, Number, str, Context], SqlValue]


def out_of_range(what: str, shown: Node) -> SqlRefused:
    """Return error 1690; `shown` is the node that the message prints."""
    return SqlRefused(_OUT_OF_RANGE, f"{what} value is out of range in '({shown.sql(dialect='mysql')})'", "22003")


def in_range(value: int, shown: Node, *, unsigned: bool) -> int:
    """Return `value` if it fits into 64 bits; SqlRefused 1690 otherwise."""
    if unsigned:
        if not 0 <= value <= MAX_UINT:
            raise out_of_range("BIGINT UNSIGNED", shown)
        return Unsigned(value)
    if not MIN_INT <= value <= MAX_INT:
        raise out_of_range("BIGINT", shown)
    return value


def fitting(value: Decimal, shown: Node) -> Decimal:
    """Return `value` rounded half away from zero to 30 decimals and 65 digits; SqlRefused 1690 for too many integer
    digits."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    if value.is_zero():
        value = value.copy_abs()
    if exponent < -MAX_SCALE:
        value = rounded(value, MAX_SCALE)
    if len(digits) > MAX_DIGITS and value.adjusted() >= 0:
        if value.adjusted() >= MAX_DIGITS:
            raise out_of_range("DECIMAL", shown)
        value = rounded(value, min(-exponent, MAX_DIGITS - 1 - value.adjusted()))
    return value


def finite(value: float, shown: Node) -> float:
    """Return `value` if it is finite; SqlRefused 1690 otherwise."""
    if not math.isfinite(value):
        raise out_of_range("DOUBLE", shown)
    return value


def _three(
    on_integers: Callable[[int, int], int],
    on_decimals: Callable[[Decimal, Decimal], Decimal],
    on_floats: Callable[[float, float], float],
    signed_mode: str = "",
) -> Apply:
    """Return an operator on doubles if one operand is a double, else on decimals, else on integers, whose result is
    signed in the SQL mode `signed_mode`."""

    def apply(left: Number, right: Number, shown: Node, context: Context) -> SqlValue:
        if isinstance(left, float) or isinstance(right, float):
            return finite(on_floats(float(left), float(right)), shown)
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return fitting(on_decimals(Decimal(left), Decimal(right)), shown)
        unsigned = isinstance(left, Unsigned) or isinstance(right, Unsigned)
        return in_range(
            on_integers(int(left), int(right)), shown, unsigned=unsigned and signed_mode not in context.sql_mode
        )

    return apply


def _product(left: float, right: float) -> float:
    return left * right


multiplied: Final = _three(operator.mul, EXACT.multiply, _product)
_ADDED: Final = _three(operator.add, EXACT.add, operator.add)
_SUBTRACTED: Final = _three(operator.sub, EXACT.subtract, operator.sub, "NO_UNSIGNED_SUBTRACTION")


def by_zero(context: Context) -> None:
    """Warn about a division by zero, or raise in a strict write; silent in a write without
    ERROR_FOR_DIVISION_BY_ZERO."""
    if context.writing and "ERROR_FOR_DIVISION_BY_ZERO" not in context.sql_mode:
        return
    if context.writing and context.strict:
        raise SqlRefused(_DIVIDED_BY_ZERO, "Division by 0", "22012")
    context.warn(_DIVIDED_BY_ZERO, "Division by 0")


def divided(left: Number, right: Number, shown: Node, context: Context) -> SqlValue:
    """Return the value of left / right."""
    if right == 0:
        by_zero(context)
        return None
    if isinstance(left, float) or isinstance(right, float):
        return finite(float(left) / float(right), shown)
    step = Decimal(1).scaleb(-_kept_digits(Decimal(left), Decimal(right)))
    return EXACT.divide(Decimal(left), Decimal(right)).quantize(step, ROUND_DOWN, EXACT)


def _kept_digits(left: Decimal, right: Decimal) -> int:
    """Return the fraction digits of a quotient before rounding: MySQL stores decimals in words of nine digits."""
    scales = [max(-int(number.as_tuple().exponent), 0) for number in (left, right)]
    words = [-(-scale // WORD) * WORD for scale in scales]
    more = max(DIV_INCREMENT - sum(words) + sum(scales), 0)
    return -(-(sum(words) + more) // WORD) * WORD


def whole_quotient(left: Number, right: Number, shown: Node, context: Context) -> SqlValue:
    """Return the value of left DIV right, cut towards zero."""
    if right == 0:
        by_zero(context)
        return None
    unsigned = isinstance(left, Unsigned) or isinstance(right, Unsigned)
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return in_range(quotient if (left < 0) is (right < 0) else -quotient, shown, unsigned=unsigned)
    exact = EXACT.divide(_exact(left), _exact(right))
    if exact.adjusted() > MAX_DIGITS:
        raise out_of_range("BIGINT", shown)
    return in_range(int(exact), shown, unsigned=unsigned)


def _exact(number: Number) -> Decimal:
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def remainder(left: Number, right: Number, _shown: Node, context: Context) -> SqlValue:
    """Return the value of left % right, with the sign of the first."""
    if right == 0:
        by_zero(context)
        return None
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(float(left), float(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        result = EXACT.remainder(Decimal(left), Decimal(right))
        return result.copy_abs() if result.is_zero() else result
    rest = abs(left) % abs(right)
    return Unsigned(rest) if isinstance(left, Unsigned) else rest if left >= 0 else -rest


def _sum_digits(first: int, first_scale: int, second: int, second_scale: int) -> tuple[int, int]:
    return max(first, second) + 1, max(first_scale, second_scale)


def _binary(apply: Apply, digits: Callable[[int, int, int, int], tuple[int, int]], *, always: str = "") -> Build:
    """An operator. `digits` returns the (integer, fraction) digits of a decimal result from those of the operands;
    `always` names the type of the result where it does not depend on the operands."""

    def build(node: Node, scope: Scope) -> Compiled:
        if "Interval" in {type(node.this).__name__, type(node.expression).__name__}:
            return compile_scalar(_as_date_call(node), scope)
        left, right = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
        families = {number_family(left.type), number_family(right.type)}
        unsigned = left.type.unsigned or right.type.unsigned
        if always == "int" or (families == {Family.INT} and always != "decimal"):
            kind = UINT if unsigned else INT
        else:
            whole, scale = digits(*digits_of(left.type), *digits_of(right.type))
            kind = DOUBLE if Family.FLOAT in families else decimal_type(whole + scale, scale)
        run = _applied(apply, left, right, node)
        if kind.code is T.DECIMAL and (always == "decimal" or left.exact or right.exact):

            def shortened(row: Row, context: Context) -> SqlValue:
                result = run(row, context)
                return rounded(result, kind.decimal) if isinstance(result, Decimal) else result

            return Compiled(shortened, kind, exact=run)
        return Compiled(run, kind)

    return build


def _applied(apply: Apply, left: Compiled, right: Compiled, node: Node) -> Evaluate:
    run_left, run_right, left_kind, right_kind = left.exact or left.run, right.exact or right.run, left.type, right.type

    def run(row: Row, context: Context) -> SqlValue:
        first = number_of(run_left(row, context), left_kind, context)
        second = number_of(run_right(row, context), right_kind, context)
        if first is None or second is None:
            return None
        return apply(first, second, node, context)

    return run


def _as_date_call(node: Node) -> Node:
    """Rewrite date + INTERVAL as a call of DATE_ADD or DATE_SUB."""
    name = "DATE_ADD" if type(node).__name__ == "Add" else "DATE_SUB"
    swapped = type(node.this).__name__ == "Interval"
    parts = [node.expression, node.this] if swapped else [node.this, node.expression]
    return exp.Anonymous(this=name, expressions=parts)


def turned_sign(number: Number) -> Number:
    """Return the negated number with all its digits; an exact zero stays without sign."""
    if isinstance(number, Decimal):
        return number.copy_abs() if number.is_zero() else number.copy_negate()
    return -int(number) if isinstance(number, int) else -number


def _negated(node: Node, scope: Scope) -> Compiled:
    value = compile_scalar(node.this, scope)
    if value.constant and number_family(value.type) is not Family.FLOAT:
        number = number_of(value.run((), NO_CONTEXT), value.type, NO_CONTEXT)
        if number is None:
            return constant(None, NULL, "binary", 6)
        turned = turned_sign(number)
        turned = Decimal(turned) if isinstance(turned, int) and turned < MIN_INT else turned
        return constant(turned, literal_type(turned))

    def run(row: Row, context: Context) -> SqlValue:
        operand = number_of(value.run(row, context), value.type, context)
        if operand is None:
            return None
        if isinstance(operand, int):
            return in_range(-int(operand), node, unsigned=False)
        return turned_sign(operand)

    family = number_family(value.type)
    kinds = {
        Family.INT: INT,
        Family.DECIMAL: decimal_type(sum(digits_of(value.type)), digits_of(value.type)[1]),
    }
    return Compiled(run, kinds.get(family, DOUBLE))


ARITHMETIC: Final[Mapping[str, Build]] = {
    "Add": _binary(_ADDED, _sum_digits),
    "Sub": _binary(_SUBTRACTED, _sum_digits),
    "Mul": _binary(multiplied, lambda a, a_scale, b, b_scale: (a + b, a_scale + b_scale)),
    "Div": _binary(divided, lambda a, a_scale, _b, b_scale: (a + b_scale, a_scale + DIV_INCREMENT), always="decimal"),
    "IntDiv": _binary(whole_quotient, _sum_digits, always="int"),
    "Mod": _binary(remainder, lambda a, a_scale, b, b_scale: (max(a, b), max(a_scale, b_scale))),
    "Neg": _negated,
}


def _bitwise(apply: Callable[..., int]) -> Build:
    def build(node: Node, scope: Scope) -> Compiled:
        args = [compile_scalar(part, scope) for part in (node.this, node.args.get("expression")) if part is not None]

        def run(row: Row, context: Context) -> SqlValue:
            numbers = [integer_of(arg.run(row, context), arg.type, context) for arg in args]
            operands = [wrapped(number) for number in numbers if number is not None]
            return Unsigned(apply(*operands) & MAX_UINT) if len(operands) == len(args) else None

        return Compiled(run, UINT)

    return build


BITS: Final[Mapping[str, Build]] = {
    "BitwiseAnd": _bitwise(operator.and_),
    "BitwiseOr": _bitwise(operator.or_),
    "BitwiseXor": _bitwise(operator.xor),
    "BitwiseLeftShift": _bitwise(lambda left, right: left << right if right < 64 else 0),
    "BitwiseRightShift": _bitwise(lambda left, right: left >> right if right < 64 else 0),
    "BitwiseNot": _bitwise(operator.invert),
}
"""By class of the node."""
