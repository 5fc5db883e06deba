"""What stands between the brackets of a call, for the calls that are no plain lists.

CAST(x AS DECIMAL(10,2))        x, Var DECIMAL, 10, 2
CONVERT(x, CHAR(3))             the same; CONVERT(x USING gbk): x, Var USING, Var GBK
TRIM(BOTH 'a' FROM x)           x, 'a', Var BOTH
SUBSTRING(x FROM 2 FOR 3)       x, 2, 3
POSITION(a IN b)                a, b
EXTRACT(YEAR FROM x)            Var YEAR, x           TIMESTAMPDIFF(DAY, a, b): Var DAY, a, b
CHAR(65, 66 USING gbk)          65, 66, Var gbk
COUNT(DISTINCT a, b)            Distinct(a, b)        COUNT(*): Star
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from sqlglot import exp

_Parser: TypeAlias = Any
_Nodes: TypeAlias = list[exp.Expression]
_SIDES: Final = ("BOTH", "LEADING", "TRAILING")


def plain_arguments(self: _Parser) -> _Nodes:
    """a, b, c up to the bracket; the first may be DISTINCT."""
    if self._curr.text == ")":
        return []
    if self.accept("DISTINCT", "DISTINCTROW"):
        return [exp.Distinct(expressions=self._parse_csv(self._parse_assignment))]
    self.accept("ALL")
    found: _Nodes = self._parse_csv(lambda: self._parse_select() or self._parse_assignment())
    return found


def _type(self: _Parser) -> _Nodes:
    """A type after AS: its name, then length, decimals or character set."""
    name = self.word()
    self._advance()
    if name in {"SIGNED", "UNSIGNED"}:
        self.accept("INTEGER", "INT")
    elif name == "DOUBLE":
        self.accept("PRECISION")
    parts: _Nodes = [exp.var(name)]
    if self._curr.text == "(":
        self._advance()
        parts += self._parse_csv(self.primary)
        self._match_r_paren()
    if self.accept("CHARACTER"):
        self.accept("SET")
        parts.append(_charset(self))
    elif self.accept("CHARSET"):
        parts.append(_charset(self))
    elif name == "CHAR" and self.accept("BINARY"):
        parts.append(exp.var("BINARY"))
    return parts


def _charset(self: _Parser) -> exp.Expression:
    name = self._curr.text
    self._advance()
    return exp.var(name.lower())


def _cast(self: _Parser) -> _Nodes:
    value = self._parse_assignment()
    if not self.accept("AS"):
        self.raise_error("AS is missing")
    return [value, *_type(self)]


def _convert(self: _Parser) -> _Nodes:
    value = self._parse_assignment()
    if self.accept("USING"):
        name = self._curr.text
        self._advance()
        return [value, exp.var("USING"), exp.var(name.lower())]
    if self._curr.text != ",":
        self.raise_error("a comma or USING is missing")
    self._advance()
    return [value, *_type(self)]


def _char(self: _Parser) -> _Nodes:
    found: _Nodes = self._parse_csv(self._parse_assignment)
    if self.accept("USING"):
        found.append(exp.var(self._curr.text.lower()))
        self._advance()
    return found


def _trim(self: _Parser) -> _Nodes:
    side = self.word() if self.word() in _SIDES else ""
    if side:
        self._advance()
    what = None if self.word() == "FROM" else self._parse_assignment()
    if self.accept("FROM"):
        text = self._parse_assignment()
        return [text, what or exp.Literal(this=" ", is_string=True), exp.var(side or "BOTH")]
    return [what]


def _substring(self: _Parser) -> _Nodes:
    found = [self._parse_assignment()]
    while self._curr.text == "," or self.word() in {"FROM", "FOR"}:
        self._advance()
        found.append(self._parse_assignment())
    return found


def _position(self: _Parser) -> _Nodes:
    what = self._parse_bitwise()
    if not self.accept("IN"):
        self.raise_error("IN is missing")
    return [what, self._parse_assignment()]


def _extract(self: _Parser) -> _Nodes:
    if not self.word():
        self.raise_error("a unit is missing")
    unit = exp.var(self.word())
    self._advance()
    if not self.accept("FROM"):
        self.raise_error("FROM is missing")
    return [unit, self._parse_assignment()]


def _unit_first(self: _Parser) -> _Nodes:
    unit = exp.var(self.word().removeprefix("SQL_TSI_"))
    self._advance(2)
    return [unit, *self._parse_csv(self._parse_assignment)]


def _name(self: _Parser) -> _Nodes:
    return [self.name()]


CALLS: Final[Mapping[str, Callable[[_Parser], _Nodes]]] = {
    "CAST": _cast,
    "CONVERT": _convert,
    "CHAR": _char,
    "TRIM": _trim,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "MID": _substring,
    "POSITION": _position,
    "EXTRACT": _extract,
    "TIMESTAMPDIFF": _unit_first,
    "VALUES": _name,
    "DEFAULT": _name,
    **dict.fromkeys(
        ("LEFT", "RIGHT", "IF", "REPLACE", "MOD", "INSERT", "INTERVAL", "DATABASE", "SCHEMA"), plain_arguments
    ),
}
"""Calls by name; also which reserved words are functions before a bracket."""
