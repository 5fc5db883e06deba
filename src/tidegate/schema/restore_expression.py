"""Expressions and queries of DDL texts, printed as TiDB prints them.

    or  xor  and  not  |  is, = < .. in between like  |  | & << + * ^  |  - ~ ! collate  |  literals, names, calls

Operators, from weak to strong.  They print without blanks unless they are words, and brackets stay as written, so most
rules join the texts of their operands.  Operators that become a call (`a || b`, `a + INTERVAL 1 DAY`, `a->'$.x'`) are
why the operands must be distinguished by precedence.

Rules of their own print calls, casts, CASE, subqueries and windows, whose brackets hold more than a plain list, and the
queries of views and CREATE TABLE .. AS.

Source: TiDB parser/parser.y (precedences), parser/ast/expressions.go and functions.go; recorded answers.
"""

import re
from collections.abc import Mapping
from typing import Final

from tidegate.expr.tokens import NOW, UNITS, TokenKind, quote, quote_name
from tidegate.model.name import all_digits
from tidegate.schema.restore_reader import (
    SqlReader,
    bracketed,
    by_words,
    cast_type,
    escaped,
    is_literal,
    literal,
    now,
    one_of,
    template,
    value,
)

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
    """Return the interval here; None, without moving, for the call INTERVAL(1, 2)."""
    position = r.position
    r.expect("INTERVAL")
    text = r.read_expression()
    if r.peek().word in UNITS:
        return f"INTERVAL {text} {_unit(r)}"
    r.position = position
    return None


def is_query(r: SqlReader, depth: int = 1) -> bool:
    """Return True if a query follows, after at least `depth` opening brackets."""
    ahead = 0
    while r.is_sign("(", ahead):
        ahead += 1
    if ahead < depth or r.peek(ahead).word not in ("SELECT", "WITH", "VALUES", "TABLE"):
        return False
    return r.peek(ahead).word in ("SELECT", "WITH") or r.peek(ahead + 1).word == "ROW"


def is_call(r: SqlReader) -> bool:
    """Return True if `f(` or `d.f(` follows."""
    return r.is_name() and (r.is_sign("(", 1) or (r.is_sign(".", 1) and r.is_sign("(", 3)))


def call(r: SqlReader) -> str:
    """Return the call of a function without a form of its own."""
    first = r.name()
    if r.sign("."):
        r.note_function(f"{first}.{r.peek().text}")
        return f"{quote_name(first)}.{quote_name(r.name())}{_arguments(r)}"
    function = first.upper()
    r.note_function(function)
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
window: Final = template(
    "<FROM FIRST>[ FROM LAST]<RESPECT NULLS>[ IGNORE NULLS][ OVER window]",
    window=lambda r: window_spec(r) if r.is_sign("(") else r.one_name(),
)
"""The window that may follow a call."""
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


def _shift(r: SqlReader) -> str:
    """Read ADDDATE and DATE_ADD: ADDDATE(a, 1) adds days; DATE_ADD takes intervals only."""
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
    format_kind=lambda r: r.expect("DATETIME", "DATE", "TIMESTAMP", "TIME").replace("TIMESTAMP", "DATETIME"),
    shift=_shift,
    bytes=lambda r: r.expect("CHARACTER", "CHAR", "BINARY").replace("CHARACTER", "CHAR"),
    order_item=order_item,
    separator=lambda r: f" SEPARATOR {quote(r.string() if r.accept('SEPARATOR') else ',')}",
    over=window,
    mode=_mode,
)
"""Functions with a form of their own, by their names."""


_COMPARISONS: Final = {"<=>": "<=>", "!=": "!=", "<>": "!=", ">=": ">=", "<=": "<=", "=": "=", "<": "<", ">": ">"}
_several: Final = template("(expression,..)")
_TRUTHS: Final = {"NULL": "NULL", "TRUE": "TRUE", "FALSE": "FALSE", "UNKNOWN": "NULL"}


def expression(r: SqlReader) -> str:
    """Return the expression here."""
    if r.is_sign("@") and (r.is_sign(":=", 2)):
        return f"{_user_variable(r)}{r.next().text}{expression(r)}"
    text = _xor(r)
    while r.accept("OR") or ("PIPES_AS_CONCAT" not in r.modes and r.sign("||")):
        text = f"{text} OR {_xor(r)}"
    return text


def _xor(r: SqlReader) -> str:
    text = _and(r)
    while r.accept("XOR"):
        text = f"{text} XOR {_and(r)}"
    return text


def _and(r: SqlReader) -> str:
    text = _not(r)
    while r.accept("AND") or r.sign("&&"):
        text = f"{text} AND {_not(r)}"
    return text


def _not(r: SqlReader) -> str:
    if "HIGH_NOT_PRECEDENCE" not in r.modes and r.accept("NOT"):
        return f"NOT {_not(r)}"
    return _truth(r)


def _truth(r: SqlReader) -> str:
    """Read comparisons and IS, from left to right."""
    text = _predicate(r)
    while True:
        if r.accept("IS"):
            negated = "NOT " if r.accept("NOT") else ""
            text = f"{text} IS {negated}{_TRUTHS[r.expect(*_TRUTHS)]}"
        elif r.peek().kind is TokenKind.SIGN and r.peek().text in _COMPARISONS:
            sign = _COMPARISONS[r.next().text]
            several = r.accept("ANY", "SOME", "ALL") if r.is_sign("(", 1) else ""
            if several:
                text = f"{text}{sign}{'ALL' if several == 'ALL' else 'ANY'} {subquery(r)}"
            else:
                text = f"{text}{sign}{_predicate(r)}"
        else:
            return text


def _predicate(r: SqlReader) -> str:
    text = operand(r)
    negated = "NOT " if r.looking_at("NOT") and r.peek(1).word in _NEGATABLE and r.accept("NOT") else ""
    rest = r.first_of(_PREDICATES)
    return text if rest is None else f"{text} {negated}{rest}"


def _escape(r: SqlReader) -> str:
    escape = r.string() if r.accept("ESCAPE") else ""
    return "" if escape in ("", "\\") else f" ESCAPE {quote(escape)}"


_NEGATABLE: Final = frozenset(["IN", "BETWEEN", "LIKE", "ILIKE", "REGEXP", "RLIKE"])


def operand(r: SqlReader, least: int = 0) -> str:
    """Return arithmetic and bits from precedence `least` on; adding an interval is a call."""
    if r.looking_at("INTERVAL") and not is_call(r):
        added = interval(r)
        r.expect_sign("+")
        text = f"DATE_ADD({operand(r, 4)}, {added})"
    elif r.looking_at("INTERVAL") and (interval_text := _leading_interval(r)):
        text = interval_text
    else:
        text = _simple(r)
    while True:
        token = r.peek()
        table, key = (_RANKS, token.text) if token.kind is TokenKind.SIGN else (_WORD_RANKS, token.word)
        sign, rank = table.get(key, ("", -1))
        if rank < least:
            return text
        r.next()
        if rank == _ADDITIVE and r.looking_at("INTERVAL") and (interval_here := try_interval(r)):
            text = f"DATE_{'ADD' if sign == '+' else 'SUB'}({text}, {interval_here})"
        else:
            text = f"{text}{sign}{operand(r, rank + 1)}"


_RANKS: Final = {
    sign: (sign, rank) for rank, signs in enumerate(("|", "&", "<< >>", "+ -", "* / %", "^")) for sign in signs.split()
}
_WORD_RANKS: Final = {"DIV": (" DIV ", 4), "MOD": ("%", 4)}
_ADDITIVE: Final = 3


def _leading_interval(r: SqlReader) -> str:
    position = r.position
    interval = try_interval(r) if not _is_list(r) else None
    if interval is None or not r.sign("+"):
        r.position = position
        return ""
    return f"DATE_ADD({operand(r, 4)}, {interval})"


def _is_list(r: SqlReader) -> bool:
    """Return True if the parentheses after the word here contain a comma at their top level."""
    depth, ahead = 0, 1
    while r.peek(ahead).kind is not TokenKind.END:
        depth += r.is_sign("(", ahead) - r.is_sign(")", ahead)
        if depth == 0 or (depth == 1 and r.is_sign(",", ahead)):
            return depth == 1
        ahead += 1
    return False


def _simple(r: SqlReader) -> str:
    """A value with its unary operators, COLLATE and, under PIPES_AS_CONCAT, concatenation."""
    text = _unary(r)
    while True:
        if r.accept("COLLATE"):
            text = f"{text} COLLATE {r.word_or_string().lower()}"
        elif "PIPES_AS_CONCAT" in r.modes and r.sign("||"):
            text = f"CONCAT({text}, {_unary(r)})"
        else:
            return text


_PREDICATES: Final = by_words(
    "IN among",
    "BETWEEN operand AND predicate",
    "LIKE simple~escape",
    "ILIKE simple~escape",
    "REGEXP|RLIKE: 'REGEXP 'simple",
    "MEMBER: 'MEMBER OF '<OF>(expression)",
    among=lambda r: subquery(r) if is_query(r, 1) else _several(r),
    predicate=_predicate,
    simple=_simple,
    escape=_escape,
)


def _unary(r: SqlReader) -> str:
    for sign in ("-", "+", "~", "!"):
        if r.sign(sign):
            return sign + _unary(r)
    if r.accept("NOT"):
        return "!" + _unary(r)
    if r.accept("BINARY"):
        return f"BINARY {_unary(r)}"
    return _primary(r)


def _primary(r: SqlReader) -> str:
    token = r.peek()
    if is_literal(r):
        return literal(r)
    if token.kind is TokenKind.SIGN:
        return _bracketed(r) if token.text == "(" else _marked(r)
    word = token.word
    following = r.peek(1)
    if word in ("DATE", "TIME", "TIMESTAMP") and following.kind is TokenKind.STRING:
        r.next()
        return f"{word} {quote(escaped(r.string()))}"
    if word in ("TRUE", "FALSE", "NULL"):
        r.next()
        return word
    if word in FORMS and (r.is_sign("(", 1) or word in ("CASE", "EXISTS", "MATCH", "NEXT")):
        form = FORMS[word]
        if word != "NEXT" or r.looking_at("NEXT VALUE FOR"):
            r.next()
            return form(r)
    if is_call(r):
        return call(r) + window(r)
    if word in NOW:
        r.next()
        return f"{word}()"
    return _column(r)


def _bracketed(r: SqlReader) -> str:
    if is_query(r):
        return subquery(r)
    r.expect_sign("(")
    text = expression(r)
    text = f"ROW({text},{r.list_of(expression, ',')})" if r.sign(",") else f"({text})"
    r.expect_sign(")")
    return text


def _marked(r: SqlReader) -> str:
    if r.sign("?"):
        return "?"
    if r.is_sign("@"):
        return _user_variable(r)
    if r.sign("{"):
        kind = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}[r.expect("D", "T", "TS")]
        text = f"{kind} {quote(escaped(r.string()))}"
        r.expect_sign("}")
        return text
    if r.sign("@@"):
        scope = r.accept("GLOBAL", "SESSION", "LOCAL", "INSTANCE") if r.is_sign(".", 1) else ""
        if scope:
            r.expect_sign(".")
        shown = {"": "", "LOCAL": "SESSION."}.get(scope, f"{scope}.")
        variable = r.name().lower()
        r.note_function(f"@@{variable}")
        while r.sign("."):
            variable += "." + r.name().lower()
        return f"@@{shown}{quote_name(variable)}"
    raise r.error("expected an expression")


def _user_variable(r: SqlReader) -> str:
    r.expect_sign("@")
    r.note_function("@" + (name := r.word_or_string()))
    return f"@{quote_name(name)}"


def _column(r: SqlReader) -> str:
    text = r.path()
    for sign, wrapped in (("->>", "JSON_UNQUOTE(JSON_EXTRACT({}, {}))"), ("->", "JSON_EXTRACT({}, {})")):
        if r.sign(sign):
            return wrapped.format(text, value(r, r.string()))
    return text


_CALL_IN_BRACKETS: Final = re.compile(r"\(((?:\(+)?[A-Z_0-9]+\((?:[^()]|\([^()]*\))*\)\)*)\)", re.DOTALL)


def default_value(r: SqlReader, *, altered: bool = False) -> str:
    """Return the value after DEFAULT: a literal without brackets, any other expression in them.

    SET DEFAULT of an `altered` column has brackets around signs and CURRENT_TIMESTAMP, too."""
    position, depth = r.position, 0
    while r.sign("("):
        depth += 1
    opened = depth > 0
    text = _plain_default(r, in_brackets=altered)
    if text is not None and (depth < 2 or "CURRENT_TIMESTAMP" in text) and all(r.sign(")") for _ in range(depth)):
        return text
    r.position = position
    if not opened:
        return f"({_unary(r)})"
    text = bracketed(r)
    while not altered and (inner := _CALL_IN_BRACKETS.fullmatch(text[1:-1])):
        text = f"({inner[1]})"
    return text


def _plain_default(r: SqlReader, *, in_brackets: bool) -> str | None:
    """Return a default without brackets; None for an expression."""
    moment = None if in_brackets else now(r)
    if moment is not None:
        return moment
    if not in_brackets and r.accept("CURRENT_DATE", "CURDATE"):
        if r.sign("("):
            r.expect_sign(")")
        return "(CURRENT_DATE())"
    sign = "-" if r.sign("-") else "+" if r.sign("+") else ""
    token = r.peek()
    if token.word in ("TRUE", "FALSE", "NULL") and not sign:
        return r.next().word
    if is_literal(r):
        text = sign + literal(r)
        return f"({text})" if sign and in_brackets else text
    return "?" if r.sign("?") else None


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
"""Words after SELECT, in TiDB's order, and their printed forms."""
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
    for index, sign in enumerate(re.sub(r"`[^`]*`|'[^']*'", lambda match: "x" * len(match[0]), text)):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return sign == ")" and index == len(text) - 1
    return False


def _options(r: SqlReader) -> str:
    hints = _hints(r.next().text) if r.peek().kind is TokenKind.HINT else ""
    options = {_OPTIONS[word] for word in iter(lambda: r.accept(*_OPTIONS), "")} - {""}
    parts = [f"/*+ {hints}*/"] if hints else []
    parts += [option for option in dict.fromkeys(_OPTIONS.values()) if option in options]
    return "".join(f"{part} " for part in parts)


def _from(r: SqlReader) -> str:
    if r.accept("FROM DUAL"):
        return " FROM DUAL" if r.looking_at("WHERE") else ""
    return f" FROM {_tables(r)}" if r.accept("FROM") else ""


def _hints(text: str) -> str:
    """Return the hints in a comment that TiDB knows."""
    hints: list[str] = []
    for word, inside in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
        joint = _KNOWN_HINTS.get(word.upper())
        if joint is not None:
            names = [part if all_digits(part) else quote_name(part) for part in re.findall(r"[\w$]+", inside)]
            hints.append(f"{word.upper()}({joint.join(names)})")
    return " ".join(hints)


def _field(r: SqlReader) -> str:
    if r.sign("*"):
        return "*"
    position = r.position
    if r.is_name() and r.is_sign(".", 1):
        text = r.path(star=True)
        if text.endswith("*"):
            return text
        r.position = position
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
    return "?" if r.sign("?") else literal(r)


# ---------------------------------------------------------------------------------------------------- tables


def _tables(r: SqlReader) -> str:
    """Return table references; a comma joins everything to its left, in parentheses."""
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
    return _select_bracketed(r) if r.is_sign("(") else _table(r)


def _select_bracketed(r: SqlReader) -> str:
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
