"""A small evaluator for the expressions that MySQL allows in PARTITION BY.

    text --tokens--> tree of closures --row--> int | Decimal | float | str | bytes | None

    expression   operators by rising strength: + -   * / % DIV MOD   unary -   ( ) literal column function
    NULL         makes everything NULL; so does division by zero
    dates        text as stored, 20240131 or '2024-01-31' alike; what is no date is NULL

The grammar is this small and the functions are so few that reading them here is simpler than undoing the rewriting
which a general SQL parser does to MySQL's date functions (TO_DAYS, YEAR, UNIX_TIMESTAMP).
Source: MySQL manual, "Partitioning Limitations Relating to Functions"; TiDB's expression package.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from decimal import Decimal
from typing import Final, TypeAlias

from tidegate.model.errors import SchemaError, SqlError, UnsupportedError
from tidegate.model.event import Value
from tidegate.schema.convert.converter import zone_of
from tidegate.schema.convert.number import numeric_prefix, round_exact, to_integer
from tidegate.schema.expression_functions import FUNCTIONS, UNITS, Operand

__all__ = ["Evaluate", "Row", "compile_expression", "integer_of"]

Row: TypeAlias = Mapping[str, Value]
Evaluate: TypeAlias = Callable[[Row], Operand]
_Token: TypeAlias = tuple[str, str]

_TOKENS: Final = re.compile(
    r"\s*(?:(?P<intro>_\w+\s*(?=[\"']))|(?P<hex>[xX]'[0-9a-fA-F]*'|0x[0-9a-fA-F]+)|(?P<bit>[bB]'[01]*'|0b[01]+)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<string>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z_$\u0080-\uffff][\w$]*)|(?P<sign>[-+*/%(),.]))",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "0": "\0", "Z": "\x1a"}
_STRENGTHS: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "DIV": 2, "MOD": 2}
_MAX_DEPTH: Final = 60
LONGEST_NUMBER: Final = 100
"""DECIMAL has 65 digits."""
_CONSTANTS: Final[Mapping[str, Operand]] = {"NULL": None, "TRUE": 1, "FALSE": 0}


def compile_expression(text: str, columns: Sequence[str], *, time_zone: str = "UTC") -> Evaluate:
    """Return a function from a row (values by column name) to the value of the SQL expression `text`.

    Raises SqlError when the text is no expression, SchemaError for a column that is not in `columns`, and
    UnsupportedError for a function that is not allowed in partitioning.
    """
    return _Parser(text, columns, zone_of(time_zone)).whole()


def integer_of(value: Operand) -> int | None:
    """Return a partition expression's value as TiDB compares it: an integer or NULL."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    if isinstance(value, str):
        return round_exact(numeric_prefix(value))
    return to_integer(value)


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKENS.match(text, at)
        if found is None or found.lastgroup is None:
            raise SqlError(f"cannot read {text[at : at + 20]!r} in the partition expression {text!r}")
        if found.lastgroup != "intro":
            yield found.lastgroup, found[found.lastgroup]
        at = found.end()
    yield "end", ""


def _unquoted(text: str) -> str:
    quote, body = text[0], text[1:-1]
    body = body.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), body, flags=re.DOTALL)


def _literal(kind: str, text: str) -> Operand:
    match kind:
        case "hex":
            digits = text[2:].rstrip("'")
            return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")
        case "bit":
            digits = text[2:].rstrip("'")
            return int(digits or "0", 2).to_bytes(max((len(digits) + 7) // 8, 1), "big")
        case "string":
            return _unquoted(text)
        case _:
            if len(text) > LONGEST_NUMBER:
                raise SqlError(f"the number {text[:20]}.. in a partition expression is longer than any of MySQL's")
            if text.isdigit():
                return int(text)
            return float(text) if "e" in text.lower() else Decimal(text)


class _Parser:
    """One pass over the tokens by operator precedence; every method returns the closure of what it has read."""

    def __init__(self, text: str, columns: Sequence[str], zone: tzinfo) -> None:
        self.text, self.zone, self.depth = text, zone, 0
        self.columns = {name.lower(): name for name in columns}
        self.tokens = list(_tokens(text))
        self.at = 0

    def whole(self) -> Evaluate:
        evaluate = self.operation(0)
        if self.tokens[self.at][0] != "end":
            raise self.broken()
        return evaluate

    def broken(self) -> SqlError:
        return SqlError(f"unexpected {self.tokens[self.at][1]!r} in the partition expression {self.text!r}")

    def take(self) -> _Token:
        token = self.tokens[self.at]
        if token[0] == "end":
            raise self.broken()
        self.at += 1
        return token

    def accept(self, *texts: str) -> bool:
        found = self.tokens[self.at][0] in {"sign", "word"} and self.tokens[self.at][1].upper() in texts
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.broken()

    def operation(self, strength: int) -> Evaluate:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnsupportedError(f"the partition expression {self.text[:80]!r} is nested too deeply")
        left = self.operand()
        while True:
            kind, text = self.tokens[self.at]
            operator = text.upper()
            if kind not in {"sign", "word"} or _STRENGTHS.get(operator, 0) <= strength:
                self.depth -= 1
                return left
            self.at += 1
            left = _binary(operator, left, self.operation(_STRENGTHS[operator]))

    def operand(self) -> Evaluate:
        kind, text = self.take()
        if text == "(":
            inner = self.operation(0)
            self.expect(")")
            return inner
        if text in {"-", "+"} and kind == "sign":
            inner = self.operation(max(_STRENGTHS.values()))
            return _binary("-", _constant(0), inner) if text == "-" else inner
        if kind in {"hex", "bit", "number", "string"}:
            return _constant(_literal(kind, text))
        if kind == "word" and self.tokens[self.at][1] == "(":
            return self.call(text.upper())
        if kind == "word" and text.upper() in _CONSTANTS:
            return _constant(_CONSTANTS[text.upper()])
        if kind in {"word", "quoted"}:
            return self.column(_unquoted(text) if kind == "quoted" else text)
        self.at -= 1
        raise self.broken()

    def column(self, name: str) -> Evaluate:
        while self.accept("."):
            kind, text = self.take()
            name = _unquoted(text) if kind == "quoted" else text
        known = self.columns.get(name.lower())
        if known is None:
            raise SchemaError(f"the partition expression {self.text!r} names a column {name!r} that the table lacks")
        return column_reader(known)

    def call(self, name: str) -> Evaluate:
        self.expect("(")
        arguments: list[Evaluate] = []
        if name == "EXTRACT":
            unit = self.take()[1].upper()
            self.expect("FROM")
            if unit not in UNITS:
                raise UnsupportedError(f"EXTRACT({unit} ..) is not allowed in a partition expression")
            arguments.append(_constant(unit))
        if not self.accept(")"):
            arguments.append(self.operation(0))
            while self.accept(","):
                arguments.append(self.operation(0))
            self.expect(")")
        return self.function(name, arguments)

    def function(self, name: str, arguments: list[Evaluate]) -> Evaluate:
        if name not in FUNCTIONS:
            raise UnsupportedError(
                f"the function {name} is not known in partition expressions ({self.text!r}); known are "
                + ", ".join(sorted(FUNCTIONS))
            )
        counts, apply = FUNCTIONS[name]
        if len(arguments) not in counts:
            raise SqlError(f"{name} does not take {len(arguments)} arguments in {self.text!r}")
        zone = self.zone

        def evaluate(row: Row) -> Operand:
            values = [argument(row) for argument in arguments]
            return None if None in values else apply(values, zone)

        return evaluate


def column_reader(name: str) -> Evaluate:
    """Return the value of a column; raises SchemaError when the row does not carry it."""

    def evaluate(row: Row) -> Operand:
        try:
            return row[name]
        except KeyError:
            raise SchemaError(f"the row does not carry the column {name!r}, which decides its partition") from None

    return evaluate


def _constant(value: Operand) -> Evaluate:
    return lambda _row: value


def number_of(value: Operand) -> int | Decimal | float | None:
    """Return an operand of arithmetic; text counts by its numeric prefix, bytes as a big-endian integer."""
    if isinstance(value, str):
        return numeric_prefix(value)
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else value


def _binary(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    apply = FUNCTIONS[operator][1]

    def evaluate(row: Row) -> Operand:
        first, second = number_of(left(row)), number_of(right(row))
        return None if first is None or second is None else apply([first, second], None)

    return evaluate
