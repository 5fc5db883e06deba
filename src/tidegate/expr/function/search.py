"""Functions that look for text in text.

    LOCATE INSTR POSITION      from 1; 0 when it is not there; without case where the collation has none
    FIELD ELT FIND_IN_SET      places in a list
    REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR REGEXP_INSTR      regular expressions, STRCMP the collation's order

Source: MySQL manual, "String Functions and Operators", "Regular Expressions".
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.function.form import Function, arguments, define, text_result
from tidegate.expr.operator.pattern import regexp
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, INT, TEXT, agreed
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import compare, text_key
from tidegate.expr.value.kinds import SqlValue
from tidegate.expr.value.text import Text

__all__ = ["SEARCH_FUNCTIONS"]


def _found(apply: Callable[[str, str, int], int]) -> Function:
    """Searches that go by the collation of their texts: (needle, text, from)."""

    def build(node: Node, scope: Scope) -> Compiled:
        values = arguments(node, scope, 2, 3)
        collation, _ = agreed(values[:2], scope)
        lowers = collation.endswith("_ci")

        def search(needle: str, text: str, start: int = 1) -> int:
            return apply(*((needle.lower(), text.lower()) if lowers else (needle, text)), start)

        return define("ssi", INT, search, least=2)(node, scope)

    return build


def _locate(needle: str, text: str, start: int) -> int:
    return text.find(needle, start - 1) + 1 if 0 < start <= len(text) + 1 else 0


def _field_call(node: Node, scope: Scope) -> Compiled:
    wanted, *others = arguments(node, scope, 2)
    collation, _ = agreed((wanted, *others), scope)

    def run(row: Row, context: Context) -> SqlValue:
        value = wanted.run(row, context)
        for place, other in enumerate(others, 1):
            if compare(value, other.run(row, context), (wanted.type, other.type), collation, context) == 0:
                return place
        return 0

    return Compiled(run, INT)


def _elt(place: int | None, *texts: Text | None) -> Text | None:
    return texts[place - 1] if place is not None and 1 <= place <= len(texts) else None


def _strcmp_call(node: Node, scope: Scope) -> Compiled:
    key = text_key(agreed(arguments(node, scope, 2, 2), scope)[0])
    return define("ss", INT, lambda first, second: (key(first) > key(second)) - (key(first) < key(second)))(node, scope)


def _matches(text: str, pattern: str, flags: str = "") -> int:
    return int(regexp(pattern, flags).search(text) is not None)


def _regexp_replace(text: str, pattern: str, new: str, start: int = 1, count: int = 0) -> str:
    head, tail = text[: start - 1], text[start - 1 :]
    seen = 0

    def replaced(found: object) -> str:
        nonlocal seen
        seen += 1
        whole: str = found[0]  # type: ignore[index]
        return new if count in {0, seen} else whole

    return head + regexp(pattern).sub(replaced, tail)


def _regexp_substr(text: str, pattern: str, start: int = 1, count: int = 1, flags: str = "") -> str | None:
    found = [match[0] for match in regexp(pattern, flags).finditer(text[start - 1 :])]
    return found[count - 1] if 1 <= count <= len(found) else None


def _regexp_instr(text: str, pattern: str, start: int = 1, count: int = 1) -> int:
    found = [match.start() for match in regexp(pattern).finditer(text[start - 1 :])]
    return found[count - 1] + start if 1 <= count <= len(found) else 0


def _find_in_set(wanted: str, names: str) -> int:
    parts = names.split(",") if names else []
    return parts.index(wanted) + 1 if wanted in parts else 0


def _swapped(node: Node) -> Node:
    node = node.copy()
    node.set("expressions", node.expressions[::-1])
    return node


_LOCATE: Final = _found(_locate)


SEARCH_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ELT": define("i", text_result, _elt, rest="t", nulls=True),
    "FIELD": _field_call,
    "FIND_IN_SET": define("ss", INT, _find_in_set),
    "INSTR": lambda node, scope: _LOCATE(_swapped(node), scope),
    "LOCATE": _LOCATE,
    "POSITION": _LOCATE,
    "REGEXP_INSTR": define("ssii", INT, _regexp_instr, least=2),
    "REGEXP_LIKE": define("sss", BOOL, _matches, least=2),
    "REGEXP_REPLACE": define("sssii", TEXT, _regexp_replace, least=3),
    "REGEXP_SUBSTR": define("ssiis", TEXT, _regexp_substr, least=2),
    "STRCMP": _strcmp_call,
}
"""By name."""
