"""Queries, as views and CREATE TABLE .. AS hold them."""

import re
from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.schema.restore.call import order_item, window_spec
from tidegate.schema.restore.expression import expression
from tidegate.schema.restore.literal import literal
from tidegate.schema.restore.reader import SqlReader, name

_OPTIONS: Final = {
    "DISTINCTROW": "DISTINCT",
    "DISTINCT": "DISTINCT",
    "ALL": "ALL",
    "STRAIGHT_JOIN": "STRAIGHT_JOIN",
    "HIGH_PRIORITY": "HIGH_PRIORITY",
    "SQL_SMALL_RESULT": "SQL_SMALL_RESULT",
    "SQL_BIG_RESULT": "SQL_BIG_RESULT",
    "SQL_BUFFER_RESULT": "SQL_BUFFER_RESULT",
    "SQL_CACHE": "",
    "SQL_NO_CACHE": "SQL_NO_CACHE",
    "SQL_CALC_FOUND_ROWS": "SQL_CALC_FOUND_ROWS",
}
_OPTION_ORDER: Final = [
    *("SQL_SMALL_RESULT", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_NO_CACHE", "SQL_CALC_FOUND_ROWS"),
    *("HIGH_PRIORITY", "DISTINCT", "ALL", "STRAIGHT_JOIN"),
]
_SET_OPERATORS: Final = ("UNION", "EXCEPT", "INTERSECT")
_NO_ALIAS: Final = frozenset(
    """FROM WHERE GROUP HAVING ORDER LIMIT FOR LOCK UNION EXCEPT INTERSECT WITH ON JOIN INNER CROSS LEFT RIGHT NATURAL
    STRAIGHT_JOIN USING WINDOW USE FORCE IGNORE PARTITION TABLESAMPLE INTO SET AS FETCH""".split()  # noqa: SIM905
)
_KNOWN_HINTS: Final = {"HASH_JOIN": ", ", "USE_INDEX": " ", "MAX_EXECUTION_TIME": ", "}


def query(r: SqlReader) -> str:
    """Return a query: WITH, SELECTs joined by set operators, ORDER BY and LIMIT of the whole."""
    parts: list[str] = []
    if r.looking_at("WITH") and r.accept("WITH"):
        recursive = "RECURSIVE " if r.accept("RECURSIVE") else ""
        parts.append(f"WITH {recursive}{r.list_of(_common, ', ')}")
    parts.append(_operand(r))
    joined = False
    while operator := r.accept(*_SET_OPERATORS):
        joined = True
        every = r.accept("ALL", "DISTINCT", "DISTINCTROW") == "ALL"
        parts.append(operator + (" ALL" if every else ""))
        parts.append(_operand(r))
    if joined or parts[-1].startswith("("):
        parts.extend(_ending(r))
    return " ".join(parts)


def _common(r: SqlReader) -> str:
    text = r.one_name()
    if r.is_sign("("):
        text += " " + r.in_brackets(SqlReader.one_name)
    r.expect("AS")
    r.expect_sign("(")
    text += f" AS ({query(r)})"
    r.expect_sign(")")
    return text


def _operand(r: SqlReader) -> str:
    if r.sign("("):
        text = query(r)
        r.expect_sign(")")
        return text if _is_bracketed(text) else f"({text})"
    if r.accept("TABLE"):
        return " ".join(["TABLE " + r.path(), *_ending(r)])
    if r.accept("VALUES"):
        return " ".join(["VALUES " + r.list_of(_row), *_ending(r)])
    return _select(r)


def _is_bracketed(text: str) -> bool:
    """Return True if one pair of brackets holds all of `text`."""
    depth = 0
    for at, sign in enumerate(re.sub(r"`[^`]*`|'[^']*'", lambda found: "x" * len(found[0]), text)):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return sign == ")" and at == len(text) - 1
    return False


def _row(r: SqlReader) -> str:
    r.expect("ROW")
    return "ROW" + r.in_brackets(expression, ",")


def _select(r: SqlReader) -> str:
    r.expect("SELECT")
    parts = ["SELECT"]
    if r.peek().kind is TokenKind.HINT:
        hints = _hints(r.next().text)
        parts.extend([f"/*+ {hints}*/"] if hints else [])
    options = set[str]()
    while word := r.accept(*_OPTIONS):
        options.add(_OPTIONS[word])
    parts.extend(option for option in _OPTION_ORDER if option in options)
    parts.append(r.list_of(_field, ","))
    if r.accept("FROM DUAL"):
        parts.extend(["FROM DUAL"] if r.looking_at("WHERE") else [])
    elif r.accept("FROM"):
        parts.append("FROM " + _tables(r))
    if r.accept("WHERE"):
        parts.append("WHERE " + expression(r))
    if r.accept("GROUP BY"):
        parts.append("GROUP BY " + r.list_of(order_item, ",") + (" WITH ROLLUP" if r.accept("WITH ROLLUP") else ""))
    if r.accept("HAVING"):
        parts.append("HAVING " + expression(r))
    if r.accept("WINDOW"):
        parts.append("WINDOW " + r.list_of(_window, ","))
    parts.extend(_ending(r))
    return " ".join(parts)


def _hints(text: str) -> str:
    """Return the hints that TiDB knows among those of the comment."""
    found: list[str] = []
    for word, inside in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
        joint = _KNOWN_HINTS.get(word.upper())
        if joint is not None:
            names = [part if part.isdigit() else name(part) for part in re.findall(r"[\w$]+", inside)]
            found.append(f"{word.upper()}({joint.join(names)})")
    return " ".join(found)


def _field(r: SqlReader) -> str:
    if r.sign("*"):
        return "*"
    at = r.at
    if r.is_name() and r.is_sign(".", 1):
        text = r.path(star=True)
        if text.endswith("*"):
            return text
        r.at = at
    text = expression(r)
    alias = _alias(r, strings=True)
    return f"{text} AS {alias}" if alias else text


def _alias(r: SqlReader, *, strings: bool = False) -> str:
    if r.accept("AS"):
        return name(r.word_or_string())
    if strings and r.is_string():
        return name(r.string())
    if r.is_name() and not r.is_string() and r.peek().word not in _NO_ALIAS:
        return r.one_name()
    return ""


def _window(r: SqlReader) -> str:
    named = r.one_name()
    r.expect("AS")
    return f"{named} AS {window_spec(r)}"


def _ending(r: SqlReader) -> list[str]:
    parts: list[str] = []
    if r.accept("ORDER BY"):
        parts.append("ORDER BY " + r.list_of(order_item, ","))
    if r.accept("LIMIT"):
        count = _literal_or_mark(r)
        if r.accept("OFFSET"):
            count = f"{_literal_or_mark(r)},{count}"
        elif r.sign(","):
            count = f"{count},{_literal_or_mark(r)}"
        parts.append("LIMIT " + count)
    if r.accept("FETCH FIRST", "FETCH NEXT"):
        count = literal(r) if r.peek().kind is TokenKind.NUMBER else "1"
        r.expect("ROWS ONLY", "ROW ONLY")
        parts.append("LIMIT " + count)
    if lock := r.accept("FOR UPDATE", "FOR SHARE", "LOCK IN SHARE MODE"):
        of = " OF " + r.list_of(SqlReader.path) if r.accept("OF") else ""
        waiting = r.accept("NOWAIT", "SKIP LOCKED")
        if r.accept("WAIT"):
            waiting = f"WAIT {r.integer()}"
        shown = "FOR SHARE" if lock.startswith("LOCK") else lock
        parts.append(shown + of + (f" {waiting}" if waiting else ""))
    return parts


def _literal_or_mark(r: SqlReader) -> str:
    """Return a number or `?`."""
    return "?" if r.sign("?") else literal(r)


# ---------------------------------------------------------------------------------------------------- tables


def _tables(r: SqlReader) -> str:
    """Return table references; a comma is a join of what stands before it, in brackets."""
    text = _joined(r)
    while r.sign(","):
        text = f"({text}) JOIN {_joined(r)}"
    return text


_JOINS: Final[Mapping[str, str]] = {
    "INNER JOIN": "JOIN",
    "CROSS JOIN": "JOIN",
    "JOIN": "JOIN",
    "STRAIGHT_JOIN": "STRAIGHT_JOIN",
    "LEFT OUTER JOIN": "LEFT JOIN",
    "LEFT JOIN": "LEFT JOIN",
    "RIGHT OUTER JOIN": "RIGHT JOIN",
    "RIGHT JOIN": "RIGHT JOIN",
    "NATURAL INNER JOIN": "NATURAL JOIN",
    "NATURAL JOIN": "NATURAL JOIN",
    "NATURAL LEFT OUTER JOIN": "NATURAL LEFT JOIN",
    "NATURAL LEFT JOIN": "NATURAL LEFT JOIN",
    "NATURAL RIGHT OUTER JOIN": "NATURAL RIGHT JOIN",
    "NATURAL RIGHT JOIN": "NATURAL RIGHT JOIN",
}


def _joined(r: SqlReader, inner: str = "") -> str:
    text, joins = inner or _source(r), 0
    while join := r.accept(*_JOINS):
        right = _source(r)
        text = f"({text}) {_JOINS[join]} {right}" if joins else f"{text} {_JOINS[join]} {right}"
        joins += 1
        if r.accept("ON"):
            text += " ON " + expression(r)
        elif r.accept("USING"):
            text += " USING " + r.in_brackets(SqlReader.one_name, ",")
    return text


def _source(r: SqlReader) -> str:
    if r.is_sign("("):
        return _bracketed(r)
    text = r.path()
    if r.accept("PARTITION"):
        text += " PARTITION" + r.in_brackets(SqlReader.one_name)
    if r.accept("AS OF TIMESTAMP"):
        text += " AS OF TIMESTAMP " + expression(r)
    alias = _alias(r)
    text += f" AS {alias}" if alias else ""
    while action := r.accept("USE", "FORCE", "IGNORE"):
        r.expect("INDEX", "KEY")
        scope = " FOR " + r.expect("JOIN", "ORDER BY", "GROUP BY") if r.accept("FOR") else ""
        r.expect_sign("(")
        names = "" if r.is_sign(")") else r.list_of(SqlReader.one_name)
        r.expect_sign(")")
        text += f" {action} INDEX{scope} ({names})"
    return text


def _bracketed(r: SqlReader) -> str:
    """Return a derived table with its alias, or a join in brackets."""
    ahead = 0
    while r.is_sign("(", ahead):
        ahead += 1
    r.expect_sign("(")
    if r.peek(ahead - 1).word in ("SELECT", "WITH", "VALUES", "TABLE"):
        text = query(r)
        r.expect_sign(")")
        alias = _alias(r)
        return f"({text})" + (f" AS {alias}" if alias else "")
    text = _joined(r)
    if r.is_sign(","):
        while r.sign(","):
            text = f"({text}) JOIN {_joined(r)}"
        r.expect_sign(")")
        return text
    r.expect_sign(")")
    return f"({text})"
