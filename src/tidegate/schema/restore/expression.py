"""Expressions: operators by precedence, calls with their peculiar forms, literals.

    or  xor  and  not  |  is, = < .. in between like  |  | & << + * ^  |  - ~ ! collate  |  literals, names, calls

Operators print without blanks unless they are words, and brackets stay as written, so most rules join the texts of
their operands; the ones that turn an operator into a call (`a || b`, `a + INTERVAL 1 DAY`, `a->'$.x'`) are why the
operands must be told apart.

Source: TiDB parser/parser.y (precedences), parser/ast/expressions.go and functions.go; recorded answers.
"""

import re
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, quote, quote_name
from tidegate.expr.syntax.words import NOW
from tidegate.schema.restore.call import FORMS, call, interval, is_call, is_query, over, subquery, try_interval
from tidegate.schema.restore.literal import escaped, is_literal, literal, now, value
from tidegate.schema.restore.reader import SqlReader
from tidegate.schema.restore.template import bracketed, by_words, template

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
    """Comparisons and IS, from left to right."""
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


def _among(r: SqlReader) -> str:
    return subquery(r) if is_query(r, 1) else _several(r)


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
    while (operator := _operator(r)) is not None and operator[1] >= least:
        r.next()
        sign, rank = operator
        if rank == _ADDITIVE and r.looking_at("INTERVAL") and (interval_here := try_interval(r)):
            text = f"DATE_{'ADD' if sign == '+' else 'SUB'}({text}, {interval_here})"
        else:
            text = f"{text}{sign}{operand(r, rank + 1)}"
    return text


_RANKS: Final = {"|": 0, "&": 1, "<<": 2, ">>": 2, "+": 3, "-": 3, "*": 4, "/": 4, "%": 4, "^": 5}
_WORD_RANKS: Final = {"DIV": (" DIV ", 4), "MOD": ("%", 4)}
_ADDITIVE: Final = 3


def _operator(r: SqlReader) -> tuple[str, int] | None:
    token = r.peek()
    if token.kind is TokenKind.SIGN and token.text in _RANKS:
        return token.text, _RANKS[token.text]
    return _WORD_RANKS.get(token.word)


def _leading_interval(r: SqlReader) -> str:
    at = r.at
    interval = try_interval(r) if not _is_list(r) else None
    if interval is None or not r.sign("+"):
        r.at = at
        return ""
    return f"DATE_ADD({operand(r, 4)}, {interval})"


def _is_list(r: SqlReader) -> bool:
    """Return True if the brackets after the word here hold a comma of their own."""
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
    among=_among,
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
        return call(r) + over(r)
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
        kind = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}[r.next().word]
        text = f"{kind} {quote(escaped(r.string()))}"
        r.expect_sign("}")
        return text
    if r.sign("@@"):
        scope = r.accept("GLOBAL", "SESSION", "LOCAL", "INSTANCE") if r.is_sign(".", 1) else ""
        if scope:
            r.expect_sign(".")
        shown = {"": "", "LOCAL": "SESSION."}.get(scope, f"{scope}.")
        variable = r.name().lower()
        r.called(f"@@{variable}")
        while r.sign("."):
            variable += "." + r.name().lower()
        return f"@@{shown}{quote_name(variable)}"
    raise r.error("expected an expression")


def _user_variable(r: SqlReader) -> str:
    r.expect_sign("@")
    r.called("@" + (name := r.word_or_string()))
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
    at, depth = r.at, 0
    while r.sign("("):
        depth += 1
    opened = depth > 0
    text = _plain_default(r, in_brackets=altered)
    if text is not None and (depth < 2 or "CURRENT_TIMESTAMP" in text) and all(r.sign(")") for _ in range(depth)):
        return text
    r.at = at
    if not opened:
        return f"({_unary(r)})"
    text = bracketed(r)
    while not altered and (inner := _CALL_IN_BRACKETS.fullmatch(text[1:-1])):
        text = f"({inner[1]})"
    return text


def _plain_default(r: SqlReader, *, in_brackets: bool) -> str | None:
    """Return what stands without brackets; None where it is an expression."""
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
