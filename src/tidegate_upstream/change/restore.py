"""Expressions as TiDB writes them into definitions: the user's text, token by token, in one form.

    a+1                        `a` + 1
    CONCAT('v',t.a)            concat(_utf8mb4'v', `a`)
    v->'$.a'                   json_extract(`v`, _utf8mb4'$.a')
    cast(v as SIGNED)          cast(`v` as signed)

Names are in backquotes without their table, strings have their charset before them, keywords are in one case, and
blanks surround operators and follow commas.  Nothing is reordered or evaluated.

Source: TiDB parser/format; pkg/ddl/generated_column.go; recorded definitions.
"""

from dataclasses import dataclass, field
from typing import Final

from tidegate.expr.tokens import Token, TokenKind, lex, quote, quote_name
from tidegate.model.errors import SqlError, SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.cursor import Cursor

_KEYWORDS: Final = frozenset(
    """AND OR XOR NOT IS NULL TRUE FALSE LIKE IN BETWEEN DIV MOD REGEXP RLIKE ESCAPE CASE WHEN THEN ELSE END AS INTERVAL
    COLLATE USING SIGNED UNSIGNED INTEGER BINARY CHAR CHARACTER SET DECIMAL DATE DATETIME TIME YEAR DOUBLE FLOAT REAL
    JSON ARRAY DISTINCT EXISTS MAXVALUE DEFAULT MEMBER OF FROM FOR BOTH LEADING TRAILING ROW SEPARATOR
    MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME""".split()  # noqa: SIM905
)
_OPERATORS: Final = frozenset(
    ["+", "-", "*", "/", "%", "=", "<>", "!=", "<", ">", "<=", ">=", "<=>", "&&", "||", "&", "|", "^", "<<", ">>", ":="]
)
_LITERAL_WORDS: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})


@dataclass(slots=True)
class Restored:
    """A text in TiDB's form and the columns it refers to, in lower case and in order."""

    text: str
    columns: list[str] = field(default_factory=list)


def restore(text: str, *, upper: bool = False, introducers: bool = True) -> Restored:
    """Return `text` in TiDB's form; `upper` for keywords in capitals, as in partitioning, where strings have no
    introducers.

    Raises SqlRefused 1064 for a text that cannot be cut into words."""
    return _Writer(text, upper=upper, introducers=introducers).whole()


def restore_bound(text: str) -> str:
    """Return a bound of a partition as stored: the value's own text, MAXVALUE and NULL in capitals."""
    tokens = lex(text)[:-1]
    if len(tokens) == 1 and tokens[0].kind is TokenKind.STRING:
        return quote(tokens[0].text)
    return restore(text, upper=True, introducers=False).text


class _Writer(Cursor):
    __slots__ = ("columns", "introducers", "parts", "upper")

    def __init__(self, text: str, *, upper: bool, introducers: bool) -> None:
        try:
            super().__init__(text)
        except SqlError as error:
            raise SqlRefused(1064, f"You have an error in your SQL syntax: {error}", "42000") from error
        self.upper, self.introducers = upper, introducers
        self.parts: list[str] = []
        self.columns: list[str] = []

    def whole(self) -> Restored:
        while self.peek().kind is not TokenKind.END:
            self.put_next()
        return Restored("".join(self.parts).strip(), list(dict.fromkeys(self.columns)))

    def put(self, text: str, *, spaced: bool = True) -> None:
        """Write `text`, with a space before it unless it follows an opening bracket or a space, or is not `spaced`."""
        last = self.parts[-1] if self.parts else ""
        if spaced and last and not last.endswith((" ", "(")):
            self.parts.append(" ")
        self.parts.append(text)

    def put_next(self) -> None:
        token = self.next()
        if token.kind is TokenKind.SIGN:
            self.put_sign(token.text)
        elif token.kind is TokenKind.STRING:
            self.put(("_utf8mb4" if self.introducers else "") + quote(token.text))
        elif token.kind in (TokenKind.HEX, TokenKind.BITS):
            self.put(("x" if token.kind is TokenKind.HEX else "b") + quote(token.text))
        elif token.kind is TokenKind.NUMBER:
            self.put(token.text)
        else:
            self.put_word(token)

    def put_sign(self, text: str) -> None:
        if text in ("->", "->>"):
            self.arrow(text)
        elif text == ",":
            self.parts.append(", ")
        elif text == ")":
            self.put(")", spaced=False)
        elif text == "(":
            self.put("(")
        elif text in _OPERATORS and not self.is_prefix():
            self.put(text)
            self.parts.append(" ")
        else:
            self.put(text)
            if self.is_prefix():
                self.glue()

    def is_prefix(self) -> bool:
        """Return True if the last sign read is a prefix operator."""
        return self.position < 2 or (self.peek(-2).kind is TokenKind.SIGN and not self.is_sign(")", -2))

    def glue(self) -> None:
        """Write the value after a prefix operator without a space."""
        if self.peek().kind is not TokenKind.END:
            mark = len(self.parts)
            self.put_next()
            if len(self.parts) > mark and self.parts[mark] == " ":
                del self.parts[mark]

    def arrow(self, sign: str) -> None:
        """Write column -> path as a call of json_extract on the column written last."""
        column = self.parts.pop()
        path = quote(self.next().text)
        call = f"json_extract({column}, {'_utf8mb4' if self.introducers else ''}{path})"
        self.parts.append(f"json_unquote({call})" if sign == "->>" else call)

    def cased(self, word: str) -> str:
        return word.upper() if self.upper else word.lower()

    def put_word(self, token: Token) -> None:
        word, following = token.word, self.peek()
        if word.startswith("_") and following.kind in (TokenKind.STRING, TokenKind.HEX, TokenKind.BITS):
            self.put((token.text.lower() if self.introducers else "") + quote(self.next().text))
        elif word in _LITERAL_WORDS and following.kind is TokenKind.STRING:
            self.put(f"{self.cased(word)} {quote(self.next().text)}")
        elif self.is_sign("(") and token.kind is TokenKind.WORD and word not in ("AND", "OR", "NOT", "IN", "XOR", "AS"):
            self.put(self.cased(word))
            self.parts.append("(")
            self.next()
        elif word in _KEYWORDS:
            self.put(self.cased(word))
        else:
            self.put_name(token.text)

    def put_name(self, name: str) -> None:
        """Write a column without its schema and table."""
        while self.sign(".") and self.peek().kind is not TokenKind.END:
            name = self.next().text
        self.columns.append(lowered(name))
        self.put(quote_name(name))
