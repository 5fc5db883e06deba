"""Calls, and everything else that has brackets of its own: casts, CASE, subqueries, windows.

Source: TiDB parser/ast/functions.go; recorded answers.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.datatype import cast_type
from tidegate.schema.restore.reader import Rule, SqlReader, name

_BASES: Final = "MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split()  # noqa: SIM905
_UNITS: Final = frozenset(
    [
        *_BASES,
        *(f"SQL_TSI_{unit}" for unit in _BASES[1:]),
        *(f"{unit}_MICROSECOND" for unit in ("SECOND", "MINUTE", "HOUR", "DAY")),
        *("MINUTE_SECOND", "HOUR_SECOND", "HOUR_MINUTE", "DAY_SECOND", "DAY_MINUTE", "DAY_HOUR", "YEAR_MONTH"),
    ]
)
_AGGREGATES: Final = frozenset(
    """COUNT SUM AVG MAX MIN BIT_AND BIT_OR BIT_XOR STD STDDEV STDDEV_POP STDDEV_SAMP VARIANCE VAR_POP VAR_SAMP
    JSON_ARRAYAGG JSON_OBJECTAGG APPROX_COUNT_DISTINCT""".split()  # noqa: SIM905
)
_RENAMED: Final = {"STD": "STDDEV_POP", "VARIANCE": "VAR_POP", "STDDEV": "STDDEV_POP"}


def interval(r: SqlReader) -> str:
    """Return `INTERVAL value UNIT`."""
    r.expect("INTERVAL")
    return f"INTERVAL {r.read_expression()} {_unit(r)}"


def try_interval(r: SqlReader) -> str | None:
    """Return the interval here; INTERVAL(1, 2) is a call: None, at the same place, for that."""
    at = r.at
    r.expect("INTERVAL")
    text = r.read_expression()
    if r.peek().word in _UNITS:
        return f"INTERVAL {text} {_unit(r)}"
    r.at = at
    return None


def _unit(r: SqlReader) -> str:
    return r.expect(*sorted(_UNITS)).removeprefix("SQL_TSI_")


def is_query(r: SqlReader, depth: int = 1) -> bool:
    """Return True if a query stands behind at least `depth` opening brackets here."""
    ahead = 0
    while r.is_sign("(", ahead):
        ahead += 1
    if ahead < depth or r.peek(ahead).word not in ("SELECT", "WITH", "VALUES", "TABLE"):
        return False
    return r.peek(ahead).word in ("SELECT", "WITH") or r.peek(ahead + 1).word == "ROW"


def subquery(r: SqlReader) -> str:
    """Return a query in brackets."""
    r.expect_sign("(")
    text = r.read_query()
    r.expect_sign(")")
    return f"({text})"


def is_call(r: SqlReader) -> bool:
    """Return True if `f(` or `d.f(` stands here."""
    return r.is_name() and (r.is_sign("(", 1) or (r.is_sign(".", 1) and r.is_sign("(", 3)))


def _arguments(r: SqlReader) -> list[str]:
    r.expect_sign("(")
    if r.sign(")"):
        return []
    parts = [r.read_expression()]
    while r.sign(","):
        parts.append(r.read_expression())
    r.expect_sign(")")
    return parts


def _joined(function: str, arguments: Sequence[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def call(r: SqlReader) -> str:
    """Return the call of a function without a form of its own."""
    first = r.name()
    if r.sign("."):
        return _joined(f"{name(first)}.{name(r.name())}", _arguments(r))
    function = first.upper()
    if function in _AGGREGATES:
        return _aggregate(r, function)
    if function == "MOD":
        left, right = _arguments(r)
        return f"{left}%{right}"
    return _joined(function, _arguments(r))


def _aggregate(r: SqlReader, function: str) -> str:
    r.expect_sign("(")
    distinct = "DISTINCT " if r.accept("DISTINCT", "DISTINCTROW") else ""
    if not distinct:
        r.accept("ALL")
    arguments = "1" if r.sign("*") else r.list_of(SqlReader.read_expression)
    r.expect_sign(")")
    return f"{_RENAMED.get(function, function)}({distinct}{arguments})"


def windowed(r: SqlReader, call: str) -> str:
    """Return `call` with the window that follows it, if one does."""
    if r.looking_at("FROM FIRST") or r.looking_at("FROM LAST"):
        r.next()
        call += " FROM LAST" if r.next().word == "LAST" else ""
    if r.looking_at("IGNORE NULLS") or r.looking_at("RESPECT NULLS"):
        call += " IGNORE NULLS" if r.next().word == "IGNORE" else ""
        r.next()
    if not r.accept("OVER"):
        return call
    return f"{call} OVER {window_spec(r) if r.is_sign('(') else r.one_name()}"


def window_spec(r: SqlReader) -> str:
    """Return the specification of a window, in brackets."""
    r.expect_sign("(")
    parts: list[str] = []
    if r.is_name() and r.peek().word not in ("PARTITION", "ORDER", "ROWS", "RANGE"):
        parts.append(r.one_name())
    if r.accept("PARTITION BY"):
        parts.append("PARTITION BY " + r.list_of(SqlReader.read_expression))
    if r.accept("ORDER BY"):
        parts.append("ORDER BY " + r.list_of(order_item, ","))
    unit = r.accept("ROWS", "RANGE")
    if unit:
        if r.accept("BETWEEN"):
            low = _bound(r)
            r.expect("AND")
            parts.append(f"{unit} BETWEEN {low} AND {_bound(r)}")
        else:
            parts.append(f"{unit} BETWEEN {_bound(r)} AND CURRENT ROW")
    r.expect_sign(")")
    return f"({' '.join(parts)})"


def _bound(r: SqlReader) -> str:
    fixed = r.accept("CURRENT ROW", "UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING")
    if fixed:
        return fixed
    value = interval(r) if r.looking_at("INTERVAL") else r.read_expression()
    return f"{value} {r.expect('PRECEDING', 'FOLLOWING')}"


def order_item(r: SqlReader) -> str:
    """Return one item of ORDER BY; ASC is not printed."""
    text = r.read_expression()
    text = {"TRUE": "1", "FALSE": "0"}.get(text, text)
    return f"{text} DESC" if r.accept("ASC", "DESC") == "DESC" else text


def _case(r: SqlReader) -> str:
    parts = ["CASE"]
    if not r.looking_at("WHEN"):
        parts.append(r.read_expression())
    while r.accept("WHEN"):
        parts.append("WHEN " + r.read_expression())
        r.expect("THEN")
        parts.append("THEN " + r.read_expression())
    if r.accept("ELSE"):
        parts.append("ELSE " + r.read_expression())
    r.expect("END")
    return " ".join([*parts, "END"])


def _cast(r: SqlReader) -> str:
    r.expect_sign("(")
    text = r.read_expression()
    r.expect("AS")
    kind = cast_type(r)
    array = " ARRAY" if r.accept("ARRAY") else ""
    r.expect_sign(")")
    return f"CAST({text} AS {kind}{array})"


def _convert(r: SqlReader) -> str:
    r.expect_sign("(")
    text = r.read_expression()
    if r.accept("USING"):
        rest = f" USING {quote(r.word_or_string().lower())}"
    else:
        r.expect_sign(",")
        rest = f", {cast_type(r)}"
    r.expect_sign(")")
    return f"CONVERT({text}{rest})"


def _char(r: SqlReader) -> str:
    r.expect_sign("(")
    text = r.list_of(SqlReader.read_expression)
    charset = quote(r.word_or_string().lower()) if r.accept("USING") else "NULL"
    r.expect_sign(")")
    return f"CHAR_FUNC({text}, {charset})"


def _trim(r: SqlReader) -> str:
    r.expect_sign("(")
    side = r.accept("BOTH", "LEADING", "TRAILING")
    lead = f"{side} " if side else ""
    removed = f"_{r.charset.upper()}' '" if r.looking_at("FROM") else r.read_expression()
    text = f"{lead}{removed} FROM {r.read_expression()}" if r.accept("FROM") else f"{lead}{removed}"
    r.expect_sign(")")
    return f"TRIM({text})"


def _substring(function: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.expect_sign("(")
        parts = [r.read_expression()]
        while r.sign(",") or r.accept("FROM", "FOR"):
            parts.append(r.read_expression())
        r.expect_sign(")")
        return _joined(function, parts)

    return rule


def _extract(r: SqlReader) -> str:
    r.expect_sign("(")
    unit = _unit(r)
    r.expect("FROM")
    text = f"EXTRACT({unit} FROM {r.read_expression()})"
    r.expect_sign(")")
    return text


def _position(r: SqlReader) -> str:
    r.expect_sign("(")
    what = r.read_operand()
    r.expect("IN")
    text = f"POSITION({what} IN {r.read_expression()})"
    r.expect_sign(")")
    return text


def _get_format(r: SqlReader) -> str:
    r.expect_sign("(")
    kind = r.expect("DATETIME", "DATE", "TIMESTAMP", "TIME")
    r.expect_sign(",")
    text = f"GET_FORMAT({'DATETIME' if kind == 'TIMESTAMP' else kind}, {r.read_expression()})"
    r.expect_sign(")")
    return text


def _in_units(function: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.expect_sign("(")
        unit = _unit(r)
        r.expect_sign(",")
        text = f"{function}({unit}, {r.list_of(SqlReader.read_expression)})"
        r.expect_sign(")")
        return text

    return rule


def _shifted(function: str) -> Rule:
    """ADDDATE(a, 1) adds days; DATE_ADD takes intervals only."""

    def rule(r: SqlReader) -> str:
        r.expect_sign("(")
        base = r.read_expression()
        r.expect_sign(",")
        interval = (try_interval(r) if r.looking_at("INTERVAL") else None) or f"INTERVAL {r.read_expression()} DAY"
        r.expect_sign(")")
        return f"{function}({base}, {interval})"

    return rule


def _weight_string(r: SqlReader) -> str:
    r.expect_sign("(")
    text = r.read_expression()
    if r.accept("AS"):
        text = f"{text} AS {r.expect('CHAR', 'CHARACTER', 'BINARY')}".replace("CHARACTER", "CHAR")
        r.expect_sign("(")
        text = f"{text}({r.integer()})"
        r.expect_sign(")")
    r.expect_sign(")")
    return f"WEIGHT_STRING({text})"


def _group_concat(r: SqlReader) -> str:
    r.expect_sign("(")
    distinct = "DISTINCT " if r.accept("DISTINCT") else ""
    text = r.list_of(SqlReader.read_expression)
    if r.accept("ORDER BY"):
        text += " ORDER BY " + r.list_of(order_item, ",")
    separator = r.string() if r.accept("SEPARATOR") else ","
    r.expect_sign(")")
    return windowed(r, f"GROUP_CONCAT({distinct}{text} SEPARATOR {quote(separator)})")


def _match(r: SqlReader) -> str:
    columns = r.in_brackets(SqlReader.path, ",")
    r.expect("AGAINST")
    r.expect_sign("(")
    against = r.read_operand()
    mode = r.accept("IN BOOLEAN MODE", "IN NATURAL LANGUAGE MODE WITH QUERY EXPANSION", "IN NATURAL LANGUAGE MODE")
    if not mode or mode.startswith("IN NATURAL"):
        mode = "WITH QUERY EXPANSION" if mode.endswith("EXPANSION") or r.accept("WITH QUERY EXPANSION") else ""
    r.expect_sign(")")
    return f"MATCH {columns} AGAINST ({against}{' ' + mode if mode else ''})"


def _summed(r: SqlReader) -> str:
    r.expect_sign("(")
    text = r.read_expression()
    r.expect("AS")
    text += f" AS {cast_type(r)}"
    text += " ARRAY" if r.accept("ARRAY") else ""
    r.expect_sign(")")
    return f"JSON_SUM_CRC32({text})"


def _insert(r: SqlReader) -> str:
    return f"INSERT_FUNC{r.in_brackets(SqlReader.read_expression)}"


def _exists(r: SqlReader) -> str:
    return f"EXISTS {subquery(r)}"


def _row(r: SqlReader) -> str:
    return f"ROW{r.in_brackets(SqlReader.read_expression, ',')}"


def _next_value(r: SqlReader) -> str:
    r.expect("VALUE FOR")
    return f"NEXTVAL({r.path()})"


FORMS: Final[Mapping[str, Rule]] = {
    "CASE": _case,
    "CAST": _cast,
    "CONVERT": _convert,
    "CHAR": _char,
    "TRIM": _trim,
    **{function: _substring(function) for function in ("SUBSTRING", "SUBSTR", "MID")},
    "EXTRACT": _extract,
    "POSITION": _position,
    "GET_FORMAT": _get_format,
    **{function: _in_units(function) for function in ("TIMESTAMPADD", "TIMESTAMPDIFF")},
    **{function: _shifted(function) for function in ("ADDDATE", "SUBDATE", "DATE_ADD", "DATE_SUB")},
    "WEIGHT_STRING": _weight_string,
    "GROUP_CONCAT": _group_concat,
    "MATCH": _match,
    "JSON_SUM_CRC32": _summed,
    "INSERT": _insert,
    "EXISTS": _exists,
    "ROW": _row,
    "NEXT": _next_value,
}
