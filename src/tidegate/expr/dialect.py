"""Dialect of sqlglot for TiDB's SQL: how operands, calls and statements become sqlglot nodes.

sqlglot parses statements, clauses and the order of operators.  This module parses operands (literals, names, calls,
variables, CASE, subqueries, prefix - ~ ! BINARY, postfix COLLATE) and the arguments of calls that are no plain lists.
tokens.py says which words are no names.

sqlglot knows MySQL's functions by what they mean in other databases, and rewrites them while it reads.  Here every
call stays what it was: `exp.Anonymous(this="DATE_ADD", expressions=[..])`, the name in capitals.  So do types, units
and character sets, as `exp.Var` in capitals.  Each select item carries its own text in `meta["source"]`, since that is
the name of its column.

    call                            expressions
    CAST(x AS DECIMAL(10,2))        x, Var DECIMAL, 10, 2
    CONVERT(x, CHAR(3))             the same; CONVERT(x USING gbk): x, Var USING, Var GBK
    TRIM(BOTH 'a' FROM x)           x, 'a', Var BOTH
    SUBSTRING(x FROM 2 FOR 3)       x, 2, 3
    POSITION(a IN b)                a, b
    EXTRACT(YEAR FROM x)            Var YEAR, x           TIMESTAMPDIFF(DAY, a, b): Var DAY, a, b
    CHAR(65, 66 USING gbk)          65, 66, Var gbk
    COUNT(DISTINCT a, b)            Distinct(a, b)        COUNT(*): Star

    other node                      SQL
    Interval(this, unit=Var)        INTERVAL 1 DAY, anywhere
    SessionParameter(this, kind)    @@x, @@global.x          Parameter(this): @x        PropertyEQ: @x := 1
    Introducer(this, expression)    _utf8mb4'..' N'..'
    HexString, BitString            x'..' 0x..               b'..' 0b..
    Insert, meta["replace"]         REPLACE

Source: MySQL manual, "Operator Precedence", "Literal Values", "Keywords and Reserved Words".
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Final, TypeAlias

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.tokens import Token as GlotToken
from sqlglot.tokens import TokenType as Tk

from tidegate.expr.tokens import NO_OPERANDS, NOW, UNITS, Token, TokenKind

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
    nodes: _Nodes = self._parse_csv(lambda: self._parse_select() or self._parse_assignment())
    return nodes


def _type(self: _Parser) -> _Nodes:
    """The type after AS: its name, then length, decimals or character set."""
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
        return [value, exp.var("USING"), _charset(self)]
    if self._curr.text != ",":
        self.raise_error("a comma or USING is missing")
    self._advance()
    return [value, *_type(self)]


def _char(self: _Parser) -> _Nodes:
    nodes: _Nodes = self._parse_csv(self._parse_assignment)
    if self.accept("USING"):
        nodes.append(_charset(self))
    return nodes


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
    nodes = [self._parse_assignment()]
    while self._curr.text == "," or self.word() in {"FROM", "FOR"}:
        self._advance()
        nodes.append(self._parse_assignment())
    return nodes


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


Node: TypeAlias = Any
"""An `exp.Expression`; sqlglot is not typed here."""


_TYPED: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})
_LITERALS: Final[Mapping[Tk, Callable[[Any], Node]]] = {
    Tk.STRING: lambda token: exp.Literal(this=token.text, is_string=True),
    Tk.NUMBER: lambda token: exp.Literal(this=token.text, is_string=False),
    Tk.HEX_STRING: lambda token: exp.HexString(this=token.text),
    Tk.BIT_STRING: lambda token: exp.BitString(this=token.text),
}
_QUANTIFIERS: Final[Mapping[str, type[Any]]] = {"ANY": exp.Any, "SOME": exp.Any, "ALL": exp.All}


def _unless_reserved(name: str) -> Callable[..., Node | None]:
    """Wrap a method of sqlglot's parser so that it returns None at a reserved word."""
    method = getattr(MySQL.Parser, name)

    def parse(self: _Parser, *arguments: Any, **options: Any) -> Node | None:
        return None if self.is_reserved() else method(self, *arguments, **options)

    return parse


class _MySqlParser(MySQL.Parser):  # type: ignore[misc]
    """sqlglot's MySQL parser with our operands; words of `reserved` are no names."""

    reserved: AbstractSet[str] = frozenset()
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    TERM: ClassVar[dict[Tk, Any]] = {Tk.DASH: exp.Sub, Tk.PLUS: exp.Add}
    STATEMENT_PARSERS: ClassVar[dict[Tk, Any]] = {
        **MySQL.Parser.STATEMENT_PARSERS,
        Tk.REPLACE: lambda self: self._replace(),
        Tk.UPDATE: lambda self: self._ignoring(self._parse_update),
        Tk.DELETE: lambda self: self._ignoring(self._parse_delete),
    }

    def _replace(self) -> Node:
        node = self._parse_insert()
        node.meta["replace"] = True
        return node

    def _ignoring(self, parse: Callable[[], Node]) -> Node:
        """Parse UPDATE and DELETE with their modifiers; meta["ignore"] is IGNORE."""
        words = []
        while self.word() in {"LOW_PRIORITY", "QUICK", "IGNORE"}:
            words.append(self.word())
            self._advance()
        node = parse()
        node.meta["ignore"] = "IGNORE" in words
        return node

    def word(self) -> str:
        """Return the current token in capitals if it is an unquoted word, else ""."""
        token = self._curr
        if not token or token.token_type in (Tk.IDENTIFIER, Tk.STRING):
            return ""
        text: str = token.text
        return text.upper() if text[:1].isalpha() or text[:1] in "_$" or text[:1] > "\x7f" else ""

    def is_reserved(self) -> bool:
        """Return whether the current token is a reserved word, and not part of a qualified name."""
        before, after = self._prev, self._next
        is_dual = self.word() == "DUAL" and before and before.text.upper() == "FROM"
        if is_dual or self.word() not in self.reserved:
            return False
        joined = after and after.token_type is Tk.DOT and after.start == self._curr.end + 1
        return not joined and not (before and before.token_type is Tk.DOT)

    _parse_id_var = _unless_reserved("_parse_id_var")
    _parse_column = _unless_reserved("_parse_column")
    _parse_table_parts_fast = _unless_reserved("_parse_table_parts_fast")

    def _parse_table_hints(self) -> Node | None:
        reserved, self.reserved = self.reserved, self.reserved - {"PRIMARY"}  # an index is called so
        try:
            return super()._parse_table_hints()
        finally:
            self.reserved = reserved

    def raise_error(self, message: str, token: Any = None) -> None:
        """Report an error at the end of the text as such, not at the token before it."""
        last = self._prev
        if not token and not self._curr and last:
            token = GlotToken(last.token_type, last.text, 1, len(self.sql), last.start, last.end)
        super().raise_error(message, token or self._curr)

    def accept(self, *words: str) -> bool:
        """Move past one of these words; return whether there was one."""
        accepted = self.word() in words
        if accepted:
            self._advance()
        return accepted

    def _parse_expression(self) -> Node | None:
        start = self._curr
        node = self._parse_assignment()
        if node is not None and self._prev:
            node.meta["source"] = self._find_sql(start, self._prev)
        return self._parse_alias(node)

    def _parse_select(self, *arguments: Any, **options: Any) -> Node | None:
        """Return None for VALUES(column), which is a call where an operand is expected."""
        is_call = self.word() == "VALUES" and self._prev and self._prev.text in {"(", ","}
        return None if is_call else super()._parse_select(*arguments, **options)

    def _parse_unary(self) -> Node | None:
        text = self._curr.text if self._curr else ""
        if self._curr.token_type is not Tk.STRING and self._curr.token_type is not Tk.IDENTIFIER:
            if text == "-" and self._match(Tk.DASH):
                return exp.Neg(this=self.operand())
            if text == "+" and self._match(Tk.PLUS):
                return self.operand()
            if text == "~" and self._match(Tk.TILDE):
                return exp.BitwiseNot(this=self.operand())
            if text == "!" and self._match(Tk.NOT):
                return exp.Paren(this=exp.Not(this=self.operand()))
            if self.word() == "NOT" and self._match(Tk.NOT):
                return exp.Not(this=self._parse_equality())
            if self.accept("BINARY"):
                return exp.Anonymous(this="CAST", expressions=[self.operand(), exp.var("BINARY")])
        return self.postfix(self.primary())

    def operand(self) -> Node:
        """Return an operand; raises if there is none."""
        node = self._parse_unary()
        if node is None:
            self.raise_error("an expression is missing")
        return node

    def postfix(self, node: Node | None) -> Node | None:
        """COLLATE, -> and ->> after an operand."""
        while node is not None:
            if self._match(Tk.COLLATE):
                name = self._curr.text
                self._advance()
                node = exp.Collate(this=node, expression=exp.var(name))
            elif self._match(Tk.ARROW):
                node = exp.Anonymous(this="JSON_EXTRACT", expressions=[node, self.primary()])
            elif self._match(Tk.DARROW):
                extracted = exp.Anonymous(this="JSON_EXTRACT", expressions=[node, self.primary()])
                node = exp.Anonymous(this="JSON_UNQUOTE", expressions=[extracted])
            else:
                break
        return node

    def primary(self) -> Node | None:
        """Return a literal, name, call, variable, CASE or expression in brackets; None if there is none."""
        token = self._curr
        if not token:
            return None
        kind = token.token_type
        if kind in _LITERALS:
            return self.literal()
        if kind is Tk.L_PAREN:
            return self._parse_paren()
        if kind is Tk.STAR:
            self._advance()
            return exp.Star()
        if kind is Tk.SESSION_PARAMETER:
            return self.system_variable()
        if kind is Tk.PARAMETER:
            self._advance()
            name = self._curr.text
            self._advance()
            return exp.Parameter(this=exp.var(name))
        if kind is Tk.PLACEHOLDER:
            self._advance()
            return exp.Placeholder()
        if kind is Tk.INTRODUCER:
            return self.introduced()
        return self.name() if kind is Tk.IDENTIFIER else self.worded()

    def literal(self) -> Node:
        """Return one literal; strings side by side are one string."""
        token = self._curr
        self._advance()
        node = _LITERALS[token.token_type](token)
        if token.token_type is Tk.STRING:
            while self._match(Tk.STRING):
                node.set("this", node.this + self._prev.text)
        return node

    def system_variable(self) -> Node:
        """@@name, @@global.name, @@`name`."""
        self._advance()
        name, kind = self._curr.text, None
        self._advance()
        if self._match(Tk.DOT):
            name, kind = self._curr.text, name.lower()
            self._advance()
        return exp.SessionParameter(this=exp.var(name.lower()), kind=kind)

    def introduced(self) -> Node | None:
        """_charset'..'; a plain name where no literal follows."""
        token = self._curr
        if self._next and self._next.token_type in (Tk.STRING, Tk.HEX_STRING, Tk.BIT_STRING):
            self._advance()
            return exp.Introducer(this=token.text.lower(), expression=self.literal())
        return self.name()

    def worded(self) -> Node | None:
        """Return the operand that begins with an unquoted word."""
        word, follows = self.word(), self._next.text if self._next else ""
        if word in _WORDS and (word != "VALUES" or follows == "("):
            return _WORDS[word](self)
        if word in _QUANTIFIERS and follows == "(":
            self._advance()
            return _QUANTIFIERS[word](this=self._parse_paren())
        if not word or (word in NO_OPERANDS and not (follows == "(" and word in CALLS)):
            return None
        if follows == "(":
            return self.call()
        if word in NOW:
            self._advance()
            return exp.Anonymous(this=word, expressions=[])
        if word in _TYPED and self._next and self._next.token_type is Tk.STRING:
            self._advance()
            return exp.Anonymous(this=f"{word} LITERAL", expressions=[self.literal()])
        return self.name()

    def call(self) -> Node:
        """NAME( .. )."""
        name = self.word()
        self._advance(2)
        arguments = CALLS.get(name, plain_arguments)(self)
        self._match_r_paren()
        if self.word() == "OVER":
            self.raise_error("window functions are not supported")
        return exp.Anonymous(this=name, expressions=arguments)

    def name(self) -> Node:
        """Return a column with or without its table and schema, or `table.*`."""
        parts = [self.identifier()]
        while self._match(Tk.DOT) and len(parts) < 4:
            if self._match(Tk.STAR):
                parts.append(exp.Star())
                break
            parts.append(self.identifier())
        return exp.Column(**dict(zip(("this", "table", "db"), reversed(parts), strict=False)))

    def identifier(self) -> Node:
        """Return one part of a name."""
        token = self._curr
        if not token or token.token_type is Tk.STRING or not token.text or self.is_reserved():
            self.raise_error("a name is missing")
        self._advance()
        return exp.Identifier(this=token.text, quoted=token.token_type is Tk.IDENTIFIER)

    def interval(self) -> Node:
        """INTERVAL n UNIT, or the function INTERVAL(n, ..)."""
        index = self._index
        self._advance()
        amount = self._parse_bitwise()
        if self.word() in UNITS:
            unit = self.word()
            self._advance()
            return exp.Interval(this=amount, unit=exp.var(unit.removeprefix("SQL_TSI_")))
        self._retreat(index)
        return self.call()

    def case(self) -> Node:
        """CASE [x] WHEN .. THEN .. [ELSE ..] END."""
        self._advance()
        subject = None if self.word() == "WHEN" else self._parse_assignment()
        branches = []
        while self.accept("WHEN"):
            condition = self._parse_assignment()
            if not self.accept("THEN"):
                self.raise_error("THEN is missing")
            branches.append(exp.If(this=condition, true=self._parse_assignment()))
        default = self._parse_assignment() if self.accept("ELSE") else None
        if not branches or not self.accept("END"):
            self.raise_error("END is missing")
        return exp.Case(this=subject, ifs=branches, default=default)

    def exists(self) -> Node:
        """EXISTS (SELECT ..)."""
        self._advance()
        return exp.Exists(this=self._parse_paren())

    def constant(self, node: Node) -> Node:
        """NULL, TRUE, FALSE and DEFAULT."""
        self._advance()
        return node

    def default(self) -> Node:
        """DEFAULT, or DEFAULT(column)."""
        if self._next and self._next.text == "(":
            return self.call()
        return self.constant(exp.var("DEFAULT"))

    def row(self) -> Node | None:
        """ROW(a, b)."""
        if not (self._next and self._next.text == "("):
            return self.name()
        self._advance()
        return self._parse_paren()


_WORDS: Final[Mapping[str, Callable[[_MySqlParser], Node | None]]] = {
    "NULL": lambda self: self.constant(exp.Null()),
    "TRUE": lambda self: self.constant(exp.Boolean(this=True)),
    "FALSE": lambda self: self.constant(exp.Boolean(this=False)),
    "DEFAULT": _MySqlParser.default,
    "CASE": _MySqlParser.case,
    "INTERVAL": _MySqlParser.interval,
    "EXISTS": _MySqlParser.exists,
    "ROW": _MySqlParser.row,
    "VALUES": _MySqlParser.call,
}


_KEYWORDS: Final[Mapping[str, Tk]] = {**MySQL.Tokenizer.KEYWORDS, **MySQL.Tokenizer.SINGLE_TOKENS}
_PAIRS: Final = frozenset({"GROUP BY", "ORDER BY", "PARTITION BY", "MEMBER OF"})
"""Two words that are one token of sqlglot; its other pairs do not occur in queries."""
_KINDS: Final[Mapping[TokenKind, Tk]] = {
    TokenKind.NAME: Tk.IDENTIFIER,
    TokenKind.STRING: Tk.STRING,
    TokenKind.NUMBER: Tk.NUMBER,
    TokenKind.HEX: Tk.HEX_STRING,
    TokenKind.BITS: Tk.BIT_STRING,
}


def parse_tokens(sql: str, tokens: Sequence[Token], reserved: AbstractSet[str] = frozenset()) -> Node:
    """Return the node of the one statement in `tokens` of `sql`; words of `reserved` are no names. Raises sqlglot's
    ParseError, whose `col` is the offset of a token in `sql`, or its length."""
    converted: list[GlotToken] = []
    word = ""
    for token in tokens:
        text, pair = token.text, f"{word} {token.word}"
        word = token.word
        if token.kind in _KINDS:
            _put(converted, _KINDS[token.kind], text, token.start, token.end)
        elif token.kind is TokenKind.SIGN and text not in _KEYWORDS:
            for index, sign in enumerate(text, token.start):
                _put(converted, _KEYWORDS.get(sign, Tk.UNKNOWN), sign, index, index + 1)
        elif pair in _PAIRS:
            _put(converted, _KEYWORDS[pair], pair, converted.pop().start, token.end)
        elif token.kind is not TokenKind.HINT:
            _put(converted, _KEYWORDS.get(text.upper(), Tk.VAR), text, token.start, token.end)
    parser = _MySqlParser(dialect=MySQL())
    parser.reserved = reserved
    [node] = parser.parse(converted, sql)
    return node


def _put(tokens: list[GlotToken], kind: Tk, text: str, start: int, end: int) -> None:
    tokens.append(GlotToken(kind, text, 1, start, start, end - 1))
