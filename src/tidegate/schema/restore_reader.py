"""Reader and templates of restored DDL: what every rule of the restore modules reads and prints with.

A rule is a function from a `SqlReader`, a cursor over TiDB's tokens, to the printed text of what it read.  Options that
may stand in any number and order are a table from their leading words to a rule; a rule that returns "" prints nothing.
Literals (strings with the charset of their connection, numbers in one form, hexadecimal and bit strings) and types (one
name for the many spellings, read by columns.py) are rules of this module.

Most rules are templates, written as what they print:

    template("RENAME COLUMN path TO path")      RENAME COLUMN `a` TO `b`

    WORDS          read in any case, printed as here
    {A|B C}        one of these words
    name           lower case: the result of that rule, one of _RULES or of the keyword arguments
    name, ..       a list, with commas in the text; what stands before the dots is printed between two (`name,..`)
    [ WITH name]   optional: read if what it begins with stands here; if that is a rule, unless a bracket closes here
    <A|B>          optional, and not printed; a sign can stand for a word
    ~              nothing, between two that have no blank between them
    'text'         printed, not read; so are `/*T![feature]` and `*/`
    =              printed, optional in the text
    ( + ,          other signs are read and printed, blanks are printed

What a template cannot say is a function of a reader, which templates name.

Source: TiDB types/parser_driver/value_expr.go; recorded answers.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple

from tidegate.expr.tokens import TokenKind, quote, quote_name
from tidegate.model.mysql import MysqlType, sql_name
from tidegate.schema.columns import read_type
from tidegate.schema.cursor import Cursor, Qualified
from tidegate.schema.statement import TypeDef

_FEATURES: Final = frozenset(
    """auto_rand auto_id_cache auto_rand_base clustered_index force_inc placement ttl global_index pre_split
    affinity""".split()  # noqa: SIM905
)
"""Features of TiDB whose comments are code for it; comments of others are blanks."""


def charset_name(text: str) -> str:
    """Return a charset as columns print it."""
    return {"UTF8MB3": "UTF8"}.get(text.upper(), text.upper())


def number(raw: str) -> str:
    """Return a number without sign as TiDB prints it: integers and decimals as they are, floats in Go's form."""
    if "e" in raw.lower():
        _, digits, exponent = Decimal(repr(float(raw))).normalize().as_tuple()
        first, *rest = map(str, digits)
        power = len(digits) - 1 + int(exponent)
        return f"{first}{'.' if rest else ''}{''.join(rest)}e{power:+03d}"
    whole, dot, fraction = raw.partition(".")
    whole = whole.lstrip("0") or "0"
    return f"{whole}.{fraction}" if dot and fraction else whole


class NameKind(Enum):
    """Kinds of objects that a name in a statement can refer to."""

    TABLE = "table"
    BESIDE = "beside"
    """A table whose rows the statement does not use: the new name of a RENAME, the parent of a foreign key."""
    DATABASE = "database"
    FUNCTION = "function"
    PARTITION = "partition"
    """The partition that an exchange names."""
    QUERY = "query"
    """No name: a query that fills a table, which no event reports."""


@dataclass(frozen=True, slots=True)
class PrintedName:
    """A name that was printed; `schema` is None if the text leaves it to the session, and the name of a database is ""
    in that case. `after` is the token before it and `span` its offsets in the parsed text."""

    kind: NameKind
    name: str
    schema: str | None = None
    after: str = field(default="", compare=False)
    span: tuple[int, int] = field(default=(0, 0), compare=False)


def path_of(schema: str | None, name: str) -> str:
    """Return the name of a table as printed."""
    return quote_name(name) if schema is None else f"{quote_name(schema)}.{quote_name(name)}"


class SqlReader(Cursor):
    """Tokens of one text, the SQL modes it is read under and the charset of its strings."""

    __slots__ = ("charset", "exact", "grammar", "loses", "modes", "named")

    def __init__(
        self, text: str, modes: frozenset[str], charset: str, grammar: "Grammar", *, exact: bool = False
    ) -> None:
        super().__init__(text, modes, _FEATURES)
        self.modes, self.charset, self.grammar = modes, charset or "utf8mb4", grammar
        self.exact, self.loses = exact, False
        self.named: list[PrintedName] = []

    def read_expression(self) -> str:
        """Return the expression here."""
        return self.grammar.expression(self)

    def read_operand(self) -> str:
        """Return the operand here: an expression without comparisons and AND, OR, NOT."""
        return self.grammar.operand(self)

    def read_query(self) -> str:
        """Return the query here."""
        return self.grammar.query(self)

    def one_name(self) -> str:
        """Return the name here as printed, moving past it."""
        return quote_name(self.name())

    def path(self, *, star: bool = False) -> str:
        """Return `a`, `a`.`b` or `a`.`b`.`c` as printed; with `star` the last may be *."""
        parts = [self.one_name()]
        while self.sign("."):
            parts.append("*" if star and self.sign("*") else self.one_name())
        return ".".join(parts)

    def table(self) -> str:
        """Return the name of a table, view or sequence as printed, and record it."""
        return self._table(NameKind.TABLE)

    def beside(self) -> str:
        """Return the name of a table whose rows the statement does not use, as printed, and record it."""
        return self._table(NameKind.BESIDE)

    def _table(self, kind: "NameKind") -> str:
        name = self._recorded(kind, self.qualified)
        if self.is_sign("."):
            raise self.error("expected a table")
        return name

    def _recorded(self, kind: "NameKind", read: Callable[[], Qualified]) -> str:
        before, first, name = self.peek(-1), self.peek(), read()
        span = first.start, self.peek(-1).end
        self.named.append(PrintedName(kind, name.table, name.schema, before.word or before.text, span))
        return path_of(name.schema, name.table)

    def database(self) -> str:
        """Return the name of a database as printed, and record it."""
        return self._recorded(NameKind.DATABASE, lambda: Qualified(None, self.name("a database name")))

    def exchanged(self) -> str:
        """Return the name of a partition as printed, and record it."""
        return self._recorded(NameKind.PARTITION, lambda: Qualified(None, self.name("a partition name")))

    def of_session(self) -> None:
        """Record that the statement is about the session's database, without its name."""
        self.named.append(PrintedName(NameKind.DATABASE, ""))

    def note_function(self, function: str) -> None:
        """Record that a function is called, or a variable read."""
        self.named.append(PrintedName(NameKind.FUNCTION, function))

    def filled(self) -> None:
        """Record that a query provides the rows of a table."""
        self.named.append(PrintedName(NameKind.QUERY, "CREATE TABLE .. AS SELECT"))

    def is_string(self) -> bool:
        """Return True if a string follows."""
        return self.peek().kind is TokenKind.STRING

    def string(self) -> str:
        """Return the value of the string here, moving past it."""
        if not self.is_string():
            raise self.error("expected a string")
        return self.next().text

    def plain_text(self) -> str:
        """Return the string here as printed where TiDB does not double backslashes."""
        return self.printed(self.string())

    def printed(self, text: str) -> str:
        """Return a string as TiDB prints it, noting whether it `loses` backslashes when it is read again; an `exact`
        reader doubles them, so that nothing is lost."""
        if self.exact:
            return quote(text.replace("\\", "\\\\"))
        self.loses = self.loses or "\\" in text
        return quote(text)

    def word_or_string(self) -> str:
        """Return the word, name or string here, moving past it."""
        return self.string() if self.is_string() else self.name()

    def signed(self) -> str:
        """Return an integer with its sign, as printed."""
        minus = self.sign("-")
        if not minus:
            self.sign("+")
        return ("-" if minus else "") + str(self.integer())

    def list_of(self, rule: "Rule", joint: str = ", ") -> str:
        """Return the comma-separated results of `rule`."""
        return joint.join(self.several(lambda _: rule(self)))

    def every(self, rules: "Mapping[str, Rule]", *, commas: bool = False) -> list[str]:
        """Return the results of the table's rules, in any order, as long as one applies; `commas` may separate them."""
        parts: list[str] = []
        while (part := self.first_of(rules)) is not None:
            parts.append(part)
            if commas:
                self.sign(",")
        return [part for part in parts if part]


Rule = Callable[[SqlReader], str]
"""Reads one construct and returns its text."""


class Grammar(NamedTuple):
    """Mutually recursive rules: queries contain expressions, and expressions queries."""

    expression: Rule
    operand: Rule
    query: Rule


def fixed(text: str) -> Rule:
    """Return the rule of words that have been read: it prints `text`."""
    return lambda _: text


def placement(r: SqlReader) -> str:
    """Move past a placement policy, which is not printed."""
    r.sign("=")
    r.accept("SET")
    r.word_or_string()
    return ""


_WORDS: Final = r"[A-Z][A-Z_0-9]*(?:[ ][A-Z][A-Z_0-9]*)*"
_LEADING: Final = re.compile(rf"(?:/\*T!(?:\[\w+\])? )?({_WORDS})")
_ELEMENT: Final = re.compile(
    rf"""'(?P<printed>[^']*)'|(?P<comment>/\*T!(?:\[\w+\])?|\*/|\ +|~)|<(?P<silent>[^>]*)>|{{(?P<choice>[^}}]*)}}
    |(?P<words>{_WORDS})|(?P<rule>[a-z_]+)(?:(?P<joint>,[ ]?)\.\.)?|(?P<sign>.)""",
    re.VERBOSE,
)
_RULES: Final[Mapping[str, Rule]] = {
    "name": SqlReader.one_name,
    "path": SqlReader.path,
    "table": SqlReader.table,
    "beside": SqlReader.beside,
    "database": SqlReader.database,
    "exchanged": SqlReader.exchanged,
    "expression": SqlReader.read_expression,
    "operand": SqlReader.read_operand,
    "query": SqlReader.read_query,
    "integer": lambda r: str(r.integer()),
    "signed": SqlReader.signed,
    "string": SqlReader.plain_text,
    "charset": lambda r: charset_name(r.word_or_string()),
    "word": lambda r: r.next().word,
    "text": SqlReader.word_or_string,
    "quoted": lambda r: quote(r.word_or_string()),
    "upper": lambda r: r.word_or_string().upper(),
    "lower": lambda r: r.word_or_string().lower(),
}
"""Rules for templates by name."""


class _Part(NamedTuple):
    """An element of a template; `stands` tests whether it begins here, None if it reads nothing."""

    read: Rule
    stands: Callable[[SqlReader], bool] | None = None


def template(text: str, /, **rules: Rule) -> Rule:
    """Return the rule of a template; `rules` are further rules that it names."""
    return _joined(_parts(_ELEMENT.finditer(text), {**_RULES, **rules}))


def by_words(*templates: str, **rules: Rule) -> dict[str, Rule]:
    """Return the rules of templates by their first words, which are read before the rule is called.

    `A|B: template` is a template whose text begins with any of these words, without printing them."""
    by_word: dict[str, Rule] = {}
    for text in templates:
        if leading := _LEADING.match(text):
            keys, rest = leading[1], f"'{leading[0]}'{text[leading.end() :]}"
        if not leading or text[leading.end() : leading.end() + 1] in ("|", ":"):
            keys, _, rest = text.partition(": ")
        by_word.update(dict.fromkeys(keys.split("|"), template(rest, **rules)))
    return by_word


def one_of(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule that applies the rule of a table with its leading words."""

    def rule(r: SqlReader) -> str:
        printed = r.first_of(rules)
        if printed is None:
            raise r.error("expected " + " or ".join(rules))
        return printed

    return rule


def _parts(elements: Iterator[re.Match[str]], rules: Mapping[str, Rule]) -> list[_Part]:
    """The elements up to the end of the template or of the current optional part."""
    parts: list[_Part] = []
    for element in elements:
        if element["sign"] == "]":
            break
        parts.append(_optional(_parts(elements, rules)) if element["sign"] == "[" else _part(element, rules))
    return parts


def _joined(parts: Sequence[_Part]) -> Rule:
    reads = [part.read for part in parts]
    return lambda r: "".join([read(r) for read in reads])


def _optional(parts: Sequence[_Part]) -> _Part:
    stands = next(part.stands for part in parts if part.stands is not None)
    read = _joined(parts)
    return _Part(lambda r: read(r) if stands(r) else "")


def _part(element: re.Match[str], rules: Mapping[str, Rule]) -> _Part:
    if (named := element["rule"]) is not None:
        rule, joint = rules[named], element["joint"]
        read = rule if joint is None else lambda r: r.list_of(rule, joint)
        return _Part(read, lambda r: not (r.done() or r.is_sign(")")))
    if (sign := element["sign"]) is not None:
        return _sign(sign)
    if element["silent"] is not None:
        return _Part(_passing(element["silent"].split("|")))
    words = element["words"] or element["choice"]
    if words is None:
        return _Part(fixed(element["printed"] or (element["comment"] or "").strip("~")))
    choice = words.split("|")
    return _Part(lambda r: r.expect(*choice), lambda r: any(map(r.looking_at, choice)))


def _passing(words: Sequence[str]) -> Rule:
    def read(r: SqlReader) -> str:
        if not r.accept(*words):
            r.sign(words[0])
        return ""

    return read


def _sign(sign: str) -> _Part:
    def read(r: SqlReader) -> str:
        if not r.sign(sign) and sign != "=":
            raise r.error(f"expected {sign!r}")
        return sign

    return _Part(read, lambda r: r.is_sign(sign))


bracketed: Final = template("(expression)")


_NOW: Final = frozenset(["CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"])
_LITERALS: Final = (TokenKind.STRING, TokenKind.NUMBER, TokenKind.HEX, TokenKind.BITS)
_INTRODUCED: Final = (TokenKind.STRING, TokenKind.HEX, TokenKind.BITS)


def is_literal(r: SqlReader) -> bool:
    """Return True if a literal follows, with or without an introducer."""
    token = r.peek()
    return token.kind in _LITERALS or (token.word.startswith("_") and r.peek(1).kind in _INTRODUCED)


def escaped(text: str) -> str:
    """Return `text` with its backslashes doubled."""
    return text.replace("\\", "\\\\")


def string_value(r: SqlReader) -> str:
    """Return a string as a value, with the charset of the connection; strings side by side are one."""
    text = r.string()
    while r.is_string():
        text += r.string()
    return value(r, text)


def value(r: SqlReader, text: str) -> str:
    """Return a string as a value, with the charset of the connection."""
    return f"_{r.charset.upper()}{quote(escaped(text))}"


def literal(r: SqlReader) -> str:
    """Return a string, number, hexadecimal or bit literal with its introducer."""
    token = r.peek()
    if token.kind is TokenKind.WORD:
        r.next()
        if not r.is_string():
            return literal(r)
        return f"_{charset_name(token.word[1:])}{quote(escaped(r.string()))}"
    if token.kind is TokenKind.STRING:
        return string_value(r)
    r.next()
    if token.kind is TokenKind.HEX:
        return f"x'{token.text.lower().zfill((len(token.text) + 1) // 2 * 2)}'"
    if token.kind is TokenKind.BITS:
        return f"b'{token.text.lstrip('0') or ('0' if token.text else '')}'"
    try:
        return number(token.text)
    except ValueError as error:
        raise r.error("a number out of range before this") from error


def now(r: SqlReader) -> str | None:
    """Return CURRENT_TIMESTAMP with its brackets if one of its names is here, else None without moving."""
    if r.peek().word not in _NOW or (r.looking_at("NOW") and not r.is_sign("(", 1)):
        return None
    r.next()
    digits = ""
    if r.sign("("):
        digits = "" if r.is_sign(")") else str(r.integer())
        r.expect_sign(")")
    return f"CURRENT_TIMESTAMP({digits})"


_CAST_TO: Final = frozenset(
    """BINARY NCHAR NATIONAL CHARACTER CHAR DECIMAL NUMERIC DEC FIXED DOUBLE REAL FLOAT VECTOR DATETIME DATE TIME YEAR
    JSON""".split()  # noqa: SIM905
)
_FLOAT_DIGITS_MAX: Final = 24


def column_type(r: SqlReader) -> str:
    """Return the type of a column with its charset, sign and zerofill."""
    if r.accept("SERIAL"):
        return "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY"
    is_real = r.looking_at("REAL")
    definition = read_type(r)
    code, flen = definition.code, definition.flen
    if is_real and "REAL_AS_FLOAT" in r.modes:
        code = MysqlType.FLOAT
    elif code is MysqlType.FLOAT and definition.decimal < 0:
        code, flen = MysqlType.FLOAT if flen <= _FLOAT_DIGITS_MAX else MysqlType.DOUBLE, -1
    elif code is MysqlType.BIT:
        flen = max(flen, 1)
    inside = [str(number) for number in (flen, definition.decimal) if number >= 0]
    if definition.elems is not None:
        inside = [r.printed(element) for element in definition.elems]
    name = sql_name(code, binary=definition.charset == "binary").upper()
    return name + (f"({','.join(inside)})" if inside else "") + _attributes(definition)


def _attributes(definition: TypeDef) -> str:
    sign = (" UNSIGNED" if definition.unsigned else "") + (" ZEROFILL" if definition.zerofill else "")
    if definition.charset == "binary":
        return sign
    charset = ""
    if definition.charset is not None and definition.elems is None:
        charset = f" CHARACTER SET {definition.charset.upper()}"
    return sign + (" BINARY" if definition.binary else "") + charset


def cast_type(r: SqlReader) -> str:
    """Return the type of CAST and CONVERT."""
    if sign := r.accept("SIGNED", "UNSIGNED"):
        r.accept("INTEGER", "INT")
        return sign
    if r.peek().word not in _CAST_TO:
        raise r.error("expected a type to cast to")
    text = column_type(r)
    name, bracket, length = text.partition("(")
    if name == "DECIMAL":
        return f"DECIMAL({length.replace(',', ', ')}" if bracket else "DECIMAL(10)"
    if name in ("FLOAT", "DOUBLE", "VECTOR"):
        return name
    return text.replace(" CHARACTER SET UTF8MB4", "").replace(" CHARACTER SET ", " CHARSET ")
