"""What every rule reads and prints with: a cursor in TiDB's tokens, and the printed form of names and lists.

A rule is a function from a `SqlReader` to the text of what it read.  Options that may stand in any number and order
are a table from their leading words to a rule; a rule that gives "" prints nothing.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple

from tidegate.expr.syntax.tokens import TokenKind, quote, quote_name
from tidegate.schema.cursor import Cursor

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
    """What a name in a statement is of."""

    TABLE = "table"
    BESIDE = "beside"
    """Of a table of which the statement takes no rows: the new name of a RENAME, the parent of a foreign key."""
    DATABASE = "database"
    FUNCTION = "function"
    QUERY = "query"
    """No name: a query that makes the rows of a table, of which no event tells."""


class PrintedName(NamedTuple):
    """A name that was printed; `schema` is None where the text leaves it to the session, and the name of a database is
    "" where it does."""

    kind: NameKind
    name: str
    schema: str | None = None


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
        """Return the name of a table, view or sequence as printed, which is taken down."""
        return self._table(NameKind.TABLE)

    def beside(self) -> str:
        """Return the name of a table that the statement takes nothing from, as printed, which is taken down."""
        return self._table(NameKind.BESIDE)

    def _table(self, kind: "NameKind") -> str:
        found = self.qualified()
        if self.is_sign("."):
            raise self.error("expected a table")
        self.named.append(PrintedName(kind, found.table, found.schema))
        return path_of(found.schema, found.table)

    def database(self) -> str:
        """Return the name of a database as printed, which is taken down."""
        name = self.name("a database name")
        self.named.append(PrintedName(NameKind.DATABASE, name))
        return quote_name(name)

    def of_session(self) -> None:
        """Take down that the statement is about the session's database, without its name."""
        self.named.append(PrintedName(NameKind.DATABASE, ""))

    def called(self, function: str) -> None:
        """Take down that a function is called, or a variable read."""
        self.named.append(PrintedName(NameKind.FUNCTION, function))

    def filled(self) -> None:
        """Take down that a query makes the rows of a table."""
        self.named.append(PrintedName(NameKind.QUERY, "CREATE TABLE .. AS SELECT"))

    def is_string(self) -> bool:
        """Return True if a string stands here."""
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
        """Return what `rule` reads, once and after each comma."""
        return joint.join(self.several(lambda _: rule(self)))

    def first_of(self, rules: "Mapping[str, Rule]") -> str | None:
        """Return what the rule reads whose leading words stand here; None if no words of the table do."""
        found = self.accept(*rules)
        return rules[found](self) if found else None

    def every(self, rules: "Mapping[str, Rule]", *, commas: bool = False) -> list[str]:
        """Return what the rules of the table read, in any order, as long as one applies; `commas` may stand between."""
        parts: list[str] = []
        while (part := self.first_of(rules)) is not None:
            parts.append(part)
            if commas:
                self.sign(",")
        return [part for part in parts if part]


Rule = Callable[[SqlReader], str]
"""Reads one construct and returns its text."""


class Grammar(NamedTuple):
    """The rules that need each other: a query holds expressions, an expression queries."""

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
