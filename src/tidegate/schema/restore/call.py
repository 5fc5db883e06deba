"""Calls, and everything else that has brackets of its own: casts, CASE, subqueries, windows.

Source: TiDB parser/ast/functions.go; recorded answers.
"""

from typing import Final

from tidegate.expr.syntax.tokens import quote, quote_name
from tidegate.expr.syntax.words import UNITS
from tidegate.schema.restore.datatype import cast_type
from tidegate.schema.restore.reader import SqlReader
from tidegate.schema.restore.template import by_words, template

_AGGREGATES: Final = frozenset(
    """COUNT SUM AVG MAX MIN BIT_AND BIT_OR BIT_XOR STD STDDEV STDDEV_POP STDDEV_SAMP VARIANCE VAR_POP VAR_SAMP
    JSON_ARRAYAGG JSON_OBJECTAGG APPROX_COUNT_DISTINCT""".split()  # noqa: SIM905
)
_RENAMED: Final = {"STD": "STDDEV_POP", "VARIANCE": "VAR_POP", "STDDEV": "STDDEV_POP"}


def _unit(r: SqlReader) -> str:
    return r.expect(*UNITS).removeprefix("SQL_TSI_")


interval: Final = template("INTERVAL expression unit", unit=_unit)
subquery: Final = template("(query)")
_arguments: Final = template("([expression, ..])")


def try_interval(r: SqlReader) -> str | None:
    """Return the interval here; INTERVAL(1, 2) is a call: None, at the same place, for that."""
    at = r.at
    r.expect("INTERVAL")
    text = r.read_expression()
    if r.peek().word in UNITS:
        return f"INTERVAL {text} {_unit(r)}"
    r.at = at
    return None


def is_query(r: SqlReader, depth: int = 1) -> bool:
    """Return True if a query stands behind at least `depth` opening brackets here."""
    ahead = 0
    while r.is_sign("(", ahead):
        ahead += 1
    if ahead < depth or r.peek(ahead).word not in ("SELECT", "WITH", "VALUES", "TABLE"):
        return False
    return r.peek(ahead).word in ("SELECT", "WITH") or r.peek(ahead + 1).word == "ROW"


def is_call(r: SqlReader) -> bool:
    """Return True if `f(` or `d.f(` stands here."""
    return r.is_name() and (r.is_sign("(", 1) or (r.is_sign(".", 1) and r.is_sign("(", 3)))


def call(r: SqlReader) -> str:
    """Return the call of a function without a form of its own."""
    first = r.name()
    if r.sign("."):
        r.called(f"{first}.{r.peek().text}")
        return f"{quote_name(first)}.{quote_name(r.name())}{_arguments(r)}"
    function = first.upper()
    r.called(function)
    if function in _AGGREGATES:
        return _RENAMED.get(function, function) + _aggregated(r)
    return function + _arguments(r)


def order_item(r: SqlReader) -> str:
    """Return one item of ORDER BY; ASC is not printed."""
    text = r.read_expression()
    text = {"TRUE": "1", "FALSE": "0"}.get(text, text)
    return f"{text} DESC" if r.accept("ASC", "DESC") == "DESC" else text


def window_spec(r: SqlReader) -> str:
    """Return the specification of a window, in brackets."""
    r.expect_sign("(")
    named = r.is_name() and r.peek().word not in ("PARTITION", "ORDER", "ROWS", "RANGE")
    parts = [r.one_name()] if named else []
    parts += r.every(_WINDOW)
    r.expect_sign(")")
    return f"({' '.join(parts)})"


def _frame(r: SqlReader) -> str:
    return _between(r) if r.looking_at("BETWEEN") else f"BETWEEN {_bound(r)} AND CURRENT ROW"


def _bound(r: SqlReader) -> str:
    fixed = r.accept("CURRENT ROW", "UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING")
    if fixed:
        return fixed
    value = interval(r) if r.looking_at("INTERVAL") else r.read_expression()
    return f"{value} {r.expect('PRECEDING', 'FOLLOWING')}"


_between: Final = template("BETWEEN bound AND bound", bound=_bound)
_WINDOW: Final = by_words(
    "PARTITION BY expression, ..",
    "ORDER BY order_item,..",
    "ROWS frame",
    "RANGE frame",
    order_item=order_item,
    frame=_frame,
)
over: Final = template(
    "<FROM FIRST>[ FROM LAST]<RESPECT NULLS>[ IGNORE NULLS][ OVER window]",
    window=lambda r: window_spec(r) if r.is_sign("(") else r.one_name(),
)
"""What may follow a call: its window."""
_aggregated: Final = template(
    "(distinct~<ALL>arguments)",
    distinct=lambda r: "DISTINCT " if r.accept("DISTINCT", "DISTINCTROW") else "",
    arguments=lambda r: "1" if r.sign("*") else r.list_of(SqlReader.read_expression),
)


def _converted(r: SqlReader) -> str:
    return f" USING {quote(r.word_or_string().lower())}" if r.accept("USING") else _comma_type(r)


def _trimmed(r: SqlReader) -> str:
    side = r.accept("BOTH", "LEADING", "TRAILING")
    lead = f"{side} " if side else ""
    removed = f"_{r.charset.upper()}' '" if r.looking_at("FROM") else r.read_expression()
    return f"{lead}{removed} FROM {r.read_expression()}" if r.accept("FROM") else f"{lead}{removed}"


def _pieces(r: SqlReader) -> str:
    parts = [r.read_expression()]
    while r.sign(",") or r.accept("FROM", "FOR"):
        parts.append(r.read_expression())
    return ", ".join(parts)


def _format_kind(r: SqlReader) -> str:
    return r.expect("DATETIME", "DATE", "TIMESTAMP", "TIME").replace("TIMESTAMP", "DATETIME")


def _shift(r: SqlReader) -> str:
    """ADDDATE(a, 1) adds days; DATE_ADD takes intervals only."""
    return (try_interval(r) if r.looking_at("INTERVAL") else None) or f"INTERVAL {r.read_expression()} DAY"


def _mode(r: SqlReader) -> str:
    mode = r.accept("IN BOOLEAN MODE", "IN NATURAL LANGUAGE MODE WITH QUERY EXPANSION", "IN NATURAL LANGUAGE MODE")
    if not mode or mode.startswith("IN NATURAL"):
        mode = "WITH QUERY EXPANSION" if mode.endswith("EXPANSION") or r.accept("WITH QUERY EXPANSION") else ""
    return f" {mode}" if mode else ""


_comma_type: Final = template(", type", type=cast_type)
_WHEN: Final = by_words("WHEN expression THEN expression")
FORMS: Final = by_words(
    "CASE~subject~branches[ ELSE expression] END",
    "CAST(expression AS type[ ARRAY])",
    "CONVERT(expression~converted)",
    "CHAR: 'CHAR_FUNC'(expression, ..~charset)",
    "TRIM(trimmed)",
    "SUBSTRING(pieces)",
    "SUBSTR(pieces)",
    "MID(pieces)",
    "EXTRACT(unit FROM expression)",
    "POSITION(operand IN expression)",
    "GET_FORMAT(format_kind, expression)",
    "TIMESTAMPADD(unit, expression, ..)",
    "TIMESTAMPDIFF(unit, expression, ..)",
    "ADDDATE(expression, shift)",
    "SUBDATE(expression, shift)",
    "DATE_ADD(expression, shift)",
    "DATE_SUB(expression, shift)",
    "WEIGHT_STRING(expression[ AS bytes(integer)])",
    "GROUP_CONCAT([DISTINCT ]expression, ..[ ORDER BY order_item,..]~separator)over",
    "MATCH (path,..) AGAINST (operand~mode)",
    "JSON_SUM_CRC32(expression AS type[ ARRAY])",
    "MOD: <(>expression<,>'%'expression<)>",
    "INSERT: 'INSERT_FUNC'(expression, ..)",
    "EXISTS (query)",
    "ROW(expression,..)",
    "NEXT: 'NEXTVAL('<VALUE FOR>beside')'",
    "NEXTVAL(beside)",
    subject=lambda r: "" if r.looking_at("WHEN") else f" {r.read_expression()}",
    branches=lambda r: "".join(f" {branch}" for branch in r.every(_WHEN)),
    type=cast_type,
    converted=_converted,
    charset=lambda r: f", {quote(r.word_or_string().lower()) if r.accept('USING') else 'NULL'}",
    trimmed=_trimmed,
    pieces=_pieces,
    unit=_unit,
    format_kind=_format_kind,
    shift=_shift,
    bytes=lambda r: r.expect("CHARACTER", "CHAR", "BINARY").replace("CHARACTER", "CHAR"),
    order_item=order_item,
    separator=lambda r: f" SEPARATOR {quote(r.string() if r.accept('SEPARATOR') else ',')}",
    over=over,
    mode=_mode,
)
"""Functions with a form of their own, by their names."""
