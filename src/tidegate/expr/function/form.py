"""How functions are written down: what they take, what they give, and a plain Python function in between.

    "LPAD": define("tit", TEXT, pad)          LPAD(text, integer, text) -> text; NULL in, NULL out
    "CONCAT": define("t", TEXT, join, rest="t")          one text or more

    t  str, or bytes when one of the texts is binary     s  str     o  bytes in the text's character set
    i  int     n  int, Decimal or float     x  the same, a quotient with all its digits     f  float     d  Decimal
    m  Time    p  Duration                  j  JSON document        b  truth      v  the value as it is

`least` arguments have to be there.  With `session`, the function takes the Context first; with `nulls`, it sees NULL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegate.expr.compiled import Compiled, Evaluate
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.json_value import document_of
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BINARY, TEXT, ValueFamily, agreed, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import STRINGS
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.number import decimal_of, float_of, integer_of, number_of, truth_of
from tidegate.mysql.value.text import octets, string_of, text_of
from tidegate.mysql.value.time import moment_of, span_of

Reader: TypeAlias = Callable[[SqlValue, ColumnType, Context], Any]
Gives: TypeAlias = ColumnType | Callable[[Sequence[Compiled]], ColumnType]
Function: TypeAlias = Build
_WRONG_COUNT: Final = 1582
_ANY: Final = 1 << 16


_READERS: Final[Mapping[str, Reader]] = {
    "t": lambda value, kind, _context: text_of(value, kind),
    "s": lambda value, kind, _context: string_of(value, kind),
    "o": lambda value, kind, _context: octets(value, kind),
    "i": integer_of,
    "n": number_of,
    "x": number_of,
    "f": float_of,
    "d": decimal_of,
    "m": moment_of,
    "p": span_of,
    "j": document_of,
    "b": truth_of,
    "v": lambda value, _kind, _context: value,
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What `define` was told."""

    takes: str
    gives: Gives
    apply: Callable[..., Any]
    least: int
    rest: str
    session: bool
    nulls: bool


def wrong_count(name: str) -> SqlRefused:
    """Error 1582."""
    return SqlRefused(_WRONG_COUNT, f"Incorrect parameter count in the call to native function '{name}'", "42000")


def arguments(node: Node, scope: Scope, least: int, most: int = _ANY) -> list[Compiled]:
    """Return the compiled arguments of a call; SqlRefused 1582 when there are too few or too many."""
    if not least <= len(node.expressions) <= most:
        raise wrong_count(node.name)
    return [compile_scalar(argument, scope) for argument in node.expressions]


def define(
    takes: str,
    gives: Gives,
    apply: Callable[..., Any],
    *,
    least: int | None = None,
    rest: str = "",
    session: bool = False,
    nulls: bool = False,
) -> Function:
    """Return a function of the table; see the head of this file."""
    shape = _Shape(takes, gives, apply, len(takes) if least is None else least, rest, session, nulls)

    def build(node: Node, scope: Scope) -> Compiled:
        args = arguments(node, scope, shape.least, _ANY if shape.rest else len(shape.takes))
        kind = shape.gives(args) if callable(shape.gives) else shape.gives
        run = _runner(shape, args)
        if family_of(kind) is not ValueFamily.TEXT:
            return Compiled(run, kind)
        collation, rank = agreed(args, scope)
        return Compiled(run, kind, "binary" if kind.charset == "binary" else _not_binary(collation, scope), rank)

    return build


def _not_binary(collation: str, scope: Scope) -> str:
    return scope.collation if collation == "binary" else collation


def _runner(shape: _Shape, args: Sequence[Compiled]) -> Evaluate:
    letters = (shape.takes + shape.rest * len(args))[: len(args)]
    parts = [(_run(arg, letter), arg.type, _READERS[letter]) for arg, letter in zip(args, letters, strict=True)]
    texts = [at for at, letter in enumerate(letters) if letter == "t"] if "t" in letters else []
    apply, nulls, session = shape.apply, shape.nulls, shape.session

    def run(row: Row, context: Context) -> SqlValue:
        values = []
        for evaluate, kind, read in parts:
            value = read(evaluate(row, context), kind, context)
            if value is None and not nulls:
                return None
            values.append(value)
        if len(texts) > 1:
            _alike(values, texts)
        found: SqlValue = apply(context, *values) if session else apply(*values)
        return found

    return run


def _run(arg: Compiled, letter: str) -> Evaluate:
    """Functions of numbers see a quotient before it is rounded."""
    return arg.exact or arg.run if letter in "xd" else arg.run


def _alike(values: list[Any], texts: list[int]) -> None:
    """All texts as bytes if one is."""
    if any(isinstance(values[at], bytes) for at in texts):
        for at in texts:
            if isinstance(values[at], str):
                values[at] = values[at].encode("utf-8", "surrogateescape")


def text_result(args: Sequence[Compiled]) -> ColumnType:
    """Text, or binary when one of the arguments is."""
    binary = any(arg.type.code in STRINGS and arg.type.charset == "binary" for arg in args)
    return BINARY if binary else TEXT
