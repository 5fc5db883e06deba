"""LIKE and REGEXP.

    a LIKE 'x%'          by the collation: in a _ci one x is X, and à is a; ESCAPE names the sign that makes % plain
    a REGEXP '^[a-c]'    a search; without case in a _ci collation

Source: MySQL manual, "String Comparison Functions and Operators", "Regular Expressions".
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, agreed
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import text_key
from tidegate.expr.value.kinds import SqlValue
from tidegate.expr.value.text import same_kind, string_of, text_of
from tidegate.model.errors import SqlRefused

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


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """LIKE as a regular expression: % any text, _ one character."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(char, re.escape(char)))
        at += 1
    return re.compile("".join(parts), re.DOTALL)


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
        return int((like_pattern(wanted, escape).fullmatch(text) is not None) is not negate)

    return Compiled(run, BOOL)


def _escape(node: Node, scope: Scope) -> Compiled:
    return _like(node.this, scope, node.expression.name)


@lru_cache(maxsize=256)
def regexp(pattern: str, flags: str = "") -> re.Pattern[str]:
    """Return a regular expression of MySQL's; flags c, i, m, n, u. SqlRefused 1139 for a broken one."""
    options = 0
    for flag in flags:
        options = options & ~re.IGNORECASE if flag == "c" else options | _FLAGS.get(flag, 0)
    for name, chars in _CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", chars)
    if not pattern:
        raise SqlRefused(_BAD_REGEXP, "Got error 'empty pattern is invalid' from regexp", "42000")
    try:
        return re.compile(pattern, options)
    except re.error as error:
        raise SqlRefused(_BAD_REGEXP, f"Got error '{error}' from regexp", "42000") from error


_FLAGS: Final[Mapping[str, int]] = {"i": re.IGNORECASE, "m": re.MULTILINE, "n": re.DOTALL, "s": re.DOTALL}


_CLASSES: Final[Mapping[str, str]] = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
}


def _regexp(node: Node, scope: Scope) -> Compiled:
    value, pattern = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    flags = "i" if agreed((value, pattern), scope)[0].endswith("_ci") else ""

    def run(row: Row, context: Context) -> SqlValue:
        text, wanted = (
            string_of(value.run(row, context), value.type),
            string_of(pattern.run(row, context), pattern.type),
        )
        return None if text is None or wanted is None else int(regexp(wanted, flags).search(text) is not None)

    return Compiled(run, BOOL)


PATTERNS: Final[Mapping[str, Build]] = {
    "Like": _like,
    "Escape": _escape,
    "RegexpLike": _regexp,
}
"""By class of the node."""
