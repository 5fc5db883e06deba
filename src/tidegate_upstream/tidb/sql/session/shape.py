"""Changes that differ in their literals alone are parsed once.

    UPDATE t SET a = 5 WHERE id = 7     shape  UPDATE t SET a = ? WHERE id = ?     a node, its two literals at hand
    UPDATE t SET a = 6 WHERE id = 9     the same shape: the literals get their new texts, nothing is parsed

To know which literal is which, a shape is parsed once more with a number of its own in each place; a literal that the
grammar uses up otherwise (the length in a CAST, strings side by side) is not found again, and such statements are
parsed each time.  The node is used again, so a statement is over before the next one of its shape is parsed: a session
has one of these.

Source: TiDB's plan cache for statements that are not prepared.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import exp

from tidegate.expr.syntax.parse import Dml, Parsed, statements_of, tokens_of
from tidegate.expr.syntax.tokens import Token, TokenKind
from tidegate.expr.syntax.words import RESERVED

_LITERALS: Final = frozenset({TokenKind.NUMBER, TokenKind.STRING})
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE"})
_QUERIES: Final = frozenset({"SELECT", "WITH", ";"})
_TOKENS_MAX: Final = 64
_SHAPES_MAX: Final = 256
_FIRST: Final = 7_300_000_000_000_000_000
"""Numbers that a statement is not likely to hold itself."""

_Key: TypeAlias = tuple[object, ...]


class _Shape(NamedTuple):
    """A node, and its literals in the order of the text."""

    node: Any
    literals: Sequence[Any]


class StatementShapes:
    """What one session parses; the shapes used last are kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, _Shape | None] = OrderedDict()

    def parse(self, sql: str, sql_mode: frozenset[str]) -> list[Parsed]:
        """Return the statements of `sql`, as `parse` gives them. Raises SqlRefused 1064."""
        tokens = tokens_of(sql, sql_mode)
        if not 0 < len(tokens) <= _TOKENS_MAX or tokens[0].word not in _CHANGES:
            return statements_of(sql, tokens, RESERVED)
        key = tuple((one.kind, None if one.kind in _LITERALS else one.text) for one in tokens)
        if key not in self._known:
            parsed = statements_of(sql, tokens, RESERVED)
            self._known[key] = _shape(sql, tokens)
            if len(self._known) > _SHAPES_MAX:
                self._known.popitem(last=False)
            return parsed
        shape = self._known[key]
        self._known.move_to_end(key)
        if shape is None:
            return statements_of(sql, tokens, RESERVED)
        texts = [one.text for one in tokens if one.kind in _LITERALS]
        for literal, text in zip(shape.literals, texts, strict=True):
            literal.set("this", text)
        return [Dml(shape.node, sql[tokens[0].start : tokens[-1].end])]


def _shape(sql: str, tokens: Sequence[Token]) -> _Shape | None:
    """The shape of a statement that parses; None where a literal cannot be found again."""
    if any((one.word or one.text) in _QUERIES for one in tokens):
        return None
    numbered = [
        one._replace(text=str(_FIRST + number)) if one.kind in _LITERALS else one for number, one in enumerate(tokens)
    ]
    [parsed] = statements_of(sql, numbered, RESERVED)
    if not isinstance(parsed, Dml):
        return None
    by_text = {literal.this: literal for literal in parsed.node.find_all(exp.Literal)}
    wanted = [one.text for one in numbered if one.kind in _LITERALS]
    if len(by_text) != len(wanted) or not by_text.keys() >= set(wanted):
        return None
    return _Shape(parsed.node, [by_text[text] for text in wanted])
