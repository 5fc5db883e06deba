"""Queries, as views and CREATE TABLE .. AS hold them."""

import re
from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, quote_name
from tidegate.model.name import all_digits
from tidegate.schema.restore.call import order_item, window_spec
from tidegate.schema.restore.expression import expression
from tidegate.schema.restore.literal import literal
from tidegate.schema.restore.reader import SqlReader
from tidegate.schema.restore.template import by_words, one_of, template

_OPTIONS: Final = {
    "SQL_SMALL_RESULT": "SQL_SMALL_RESULT",
    "SQL_BIG_RESULT": "SQL_BIG_RESULT",
    "SQL_BUFFER_RESULT": "SQL_BUFFER_RESULT",
    "SQL_CACHE": "",
    "SQL_NO_CACHE": "SQL_NO_CACHE",
    "SQL_CALC_FOUND_ROWS": "SQL_CALC_FOUND_ROWS",
    "HIGH_PRIORITY": "HIGH_PRIORITY",
    "DISTINCTROW": "DISTINCT",
    "DISTINCT": "DISTINCT",
    "ALL": "ALL",
    "STRAIGHT_JOIN": "STRAIGHT_JOIN",
}
"""Words after SELECT, in TiDB's order, and what is printed for each."""
_SET_OPERATORS: Final = ("UNION", "EXCEPT", "INTERSECT")
_NO_ALIAS: Final = frozenset(
    """FROM WHERE GROUP HAVING ORDER LIMIT FOR LOCK UNION EXCEPT INTERSECT WITH ON JOIN INNER CROSS LEFT RIGHT NATURAL
    STRAIGHT_JOIN USING WINDOW USE FORCE IGNORE PARTITION TABLESAMPLE INTO SET AS FETCH""".split()  # noqa: SIM905
)
_KNOWN_HINTS: Final = {"HASH_JOIN": ", ", "USE_INDEX": " ", "MAX_EXECUTION_TIME": ", "}


def query(r: SqlReader) -> str:
    """Return a query: WITH, SELECTs joined by set operators, ORDER BY and LIMIT of the whole."""
    parts: list[str] = []
    if r.looking_at("WITH"):
        parts.append(_with(r))
    parts.append(_operand(r))
    joined = False
    while operator := r.accept(*_SET_OPERATORS):
        joined = True
        every = r.accept("ALL", "DISTINCT", "DISTINCTROW") == "ALL"
        parts.append(operator + (" ALL" if every else ""))
        parts.append(_operand(r))
    ending = _ending(r) if joined or parts[-1].startswith("(") else ""
    return " ".join(parts) + ending


def _operand(r: SqlReader) -> str:
    if r.sign("("):
        text = query(r)
        r.expect_sign(")")
        return text if _is_bracketed(text) else f"({text})"
    return _OPERANDS(r)


def _is_bracketed(text: str) -> bool:
    """Return True if one pair of brackets holds all of `text`."""
    depth = 0
    for at, sign in enumerate(re.sub(r"`[^`]*`|'[^']*'", lambda found: "x" * len(found[0]), text)):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return sign == ")" and at == len(text) - 1
    return False


def _options(r: SqlReader) -> str:
    hints = _hints(r.next().text) if r.peek().kind is TokenKind.HINT else ""
    found = {_OPTIONS[word] for word in iter(lambda: r.accept(*_OPTIONS), "")} - {""}
    parts = [f"/*+ {hints}*/"] if hints else []
    parts += [option for option in dict.fromkeys(_OPTIONS.values()) if option in found]
    return "".join(f"{part} " for part in parts)


def _from(r: SqlReader) -> str:
    if r.accept("FROM DUAL"):
        return " FROM DUAL" if r.looking_at("WHERE") else ""
    return f" FROM {_tables(r)}" if r.accept("FROM") else ""


def _hints(text: str) -> str:
    """Return the hints that TiDB knows among those of the comment."""
    found: list[str] = []
    for word, inside in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
        joint = _KNOWN_HINTS.get(word.upper())
        if joint is not None:
            names = [part if all_digits(part) else quote_name(part) for part in re.findall(r"[\w$]+", inside)]
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
        return quote_name(r.word_or_string())
    if strings and r.is_string():
        return quote_name(r.string())
    if r.is_name() and not r.is_string() and r.peek().word not in _NO_ALIAS:
        return r.one_name()
    return ""


def _limit(r: SqlReader) -> str:
    if r.accept("FETCH FIRST", "FETCH NEXT"):
        count = literal(r) if r.peek().kind is TokenKind.NUMBER else "1"
        r.expect("ROWS ONLY", "ROW ONLY")
        return f" LIMIT {count}"
    if not r.accept("LIMIT"):
        return ""
    count = _literal_or_mark(r)
    if r.accept("OFFSET"):
        return f" LIMIT {_literal_or_mark(r)},{count}"
    return f" LIMIT {count},{_literal_or_mark(r)}" if r.sign(",") else f" LIMIT {count}"


def _literal_or_mark(r: SqlReader) -> str:
    """Return a number or `?`."""
    return "?" if r.sign("?") else literal(r)


# ---------------------------------------------------------------------------------------------------- tables


def _tables(r: SqlReader) -> str:
    """Return table references; a comma is a join of what stands before it, in brackets."""
    return _crossed(r, _joined(r))


def _crossed(r: SqlReader, text: str) -> str:
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


def _joined(r: SqlReader) -> str:
    text, joins = _source(r), 0
    while join := r.accept(*_JOINS):
        right = _source(r)
        text = f"({text}) {_JOINS[join]} {right}" if joins else f"{text} {_JOINS[join]} {right}"
        joins += 1
        if r.accept("ON"):
            text += " ON " + expression(r)
        else:
            text += _using(r)
    return text


def _source(r: SqlReader) -> str:
    return _bracketed(r) if r.is_sign("(") else _table(r)


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
    several = r.is_sign(",")
    text = _crossed(r, text)
    r.expect_sign(")")
    return text if several else f"({text})"


_with: Final = template("WITH [RECURSIVE ]common, ..", common=template("name[ (name, ..)] AS (query)"))
_using: Final = template("[ USING (name,..)]")
_INDEX_HINTS: Final = by_words(
    "USE hint",
    "FORCE hint",
    "IGNORE hint",
    hint=template("'INDEX'<INDEX|KEY>[ FOR {JOIN|ORDER BY|GROUP BY}] ([name, ..])"),
)
_table: Final = template(
    "table[ PARTITION(name, ..)][ AS OF TIMESTAMP expression]~alias~hints",
    alias=lambda r: f" AS {alias}" if (alias := _alias(r)) else "",
    hints=lambda r: "".join(f" {hint}" for hint in r.every(_INDEX_HINTS)),
)
_ending: Final = template(
    "[ ORDER BY order_item,..]~limit[ {FOR UPDATE|FOR SHARE}]~shared[ OF path, ..][ NOWAIT][ SKIP LOCKED]"
    "[ WAIT integer]",
    order_item=order_item,
    limit=_limit,
    shared=lambda r: " FOR SHARE" if r.accept("LOCK IN SHARE MODE") else "",
)
_OPERANDS: Final = one_of(
    by_words(
        "TABLE table~ending",
        "VALUES row, ..~ending",
        "SELECT options~field,..~tables[ WHERE expression][ GROUP BY order_item,..[ WITH ROLLUP]][ HAVING expression]"
        "[ WINDOW window,..]~ending",
        ending=_ending,
        row=template("ROW(expression,..)"),
        options=_options,
        field=_field,
        order_item=order_item,
        window=template("name AS spec", spec=window_spec),
        tables=_from,
    )
)
