"""LIKE and REGEXP.

    a LIKE 'x%'          by the collation: in a _ci one x is X, and à is a; ESCAPE names the sign that makes % plain
    a REGEXP '^[a-c]'    a search; without case in a _ci collation; Go's syntax, as in TiDB

Source: MySQL manual, "String Comparison Functions and Operators", "Regular Expressions"; TiDB pkg/expression.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, agreed
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import InputError, SqlRefused
from tidegate.model.pattern import RegularExpression, expression, like
from tidegate.mysql.context import Context
from tidegate.mysql.value.compare import text_key
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.text import same_kind, string_of, text_of

_BAD_REGEXP: Final = 1139


def folded(collation: str) -> Callable[[str], str]:
    """Make one character of all that a collation holds equal, so that patterns can look at characters."""
    if not collation.endswith(("_ci", "_as_cs")):
        return lambda text: text

    @lru_cache(maxsize=4096)
    def canonical(char: str) -> str:
        if char == " ":
            return char
        weight = text_key(collation)(char)
        return seen.setdefault(weight, char) if weight else char

    seen: dict[bytes, str] = {}
    return lambda text: "".join(map(canonical, text))


def _like(node: Node, scope: Scope, escape: str = "\\") -> Compiled:
    value, pattern = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    collation, _ = agreed((value, pattern), scope)
    fold = folded(collation)
    negate = bool(node.args.get("negate"))

    def run(row: Row, context: Context) -> SqlValue:
        text, wanted = text_of(value.run(row, context), value.type), text_of(pattern.run(row, context), pattern.type)
        if text is None or wanted is None:
            return None
        text, wanted = same_kind(text, wanted)
        if isinstance(text, bytes) or isinstance(wanted, bytes):
            text, wanted = bytes(text).decode("latin-1"), bytes(wanted).decode("latin-1")  # type: ignore[arg-type]
        else:
            text, wanted = fold(text), fold(wanted)
        return int(like(wanted, escape).matches(text) is not negate)

    return Compiled(run, BOOL)


def _escape(node: Node, scope: Scope) -> Compiled:
    return _like(node.this, scope, node.expression.name)


def regexp(pattern: str, flags: str = "") -> RegularExpression:
    """Return a regular expression of TiDB's; flags c, i, m, n, s, the last of c and i counts. SqlRefused 1139 for a
    broken one."""
    if not pattern:
        raise SqlRefused(_BAD_REGEXP, "Got error 'empty pattern is invalid' from regexp", "42000")
    case = flags.rfind("i") > flags.rfind("c")
    try:
        return expression(pattern, "i" * case + "".join(sorted({_FLAGS[one] for one in flags if one in _FLAGS})))
    except InputError as error:
        raise SqlRefused(_BAD_REGEXP, f"Got error 'error parsing regexp: {error}' from regexp", "42000") from error


_FLAGS: Final[Mapping[str, str]] = {"m": "m", "n": "s", "s": "s"}


def _regexp(node: Node, scope: Scope) -> Compiled:
    value, pattern = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    flags = "i" if agreed((value, pattern), scope)[0].endswith("_ci") else ""

    def run(row: Row, context: Context) -> SqlValue:
        text, wanted = (
            string_of(value.run(row, context), value.type),
            string_of(pattern.run(row, context), pattern.type),
        )
        return None if text is None or wanted is None else int(regexp(wanted, flags).is_in(text))

    return Compiled(run, BOOL)


PATTERNS: Final[Mapping[str, Build]] = {
    "Like": _like,
    "Escape": _escape,
    "RegexpLike": _regexp,
}
"""By class of the node."""
