"""Rules written as what they print.

    template("RENAME COLUMN path TO path")      RENAME COLUMN `a` TO `b`

    WORDS          read in any case, printed as here
    {A|B C}        one of these words
    name           lower case: what that rule reads, one of _RULES or one given by name
    name, ..       a list, with commas in the text; what stands before the dots is printed between two (`name,..`)
    [ WITH name]   optional: read if what it begins with stands here; if that is a rule, unless a bracket closes here
    <A|B>          optional, and not printed; a sign can stand for a word
    ~              nothing, between two that have no blank between them
    'text'         printed, not read; so are `/*T![feature]` and `*/`
    =              printed, optional in the text
    ( + ,          other signs are read and printed, blanks are printed

What a template cannot say is a function of a reader, which templates name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.reader import Rule, SqlReader, charset_name, fixed

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
"""What templates name."""


class _Part(NamedTuple):
    """A piece of a template; `stands` tells whether it stands here, None for one that reads nothing."""

    read: Rule
    stands: Callable[[SqlReader], bool] | None = None


def template(text: str, /, **rules: Rule) -> Rule:
    """Return the rule that a template stands for; `rules` are further rules that it names."""
    return _joined(_parts(_ELEMENT.finditer(text), {**_RULES, **rules}))


def by_words(*templates: str, **rules: Rule) -> dict[str, Rule]:
    """Return the rules of templates by the words that these begin with, which are read before a rule is asked.

    `A|B: template` stands for one whose text begins with any of these words, and that prints none by itself."""
    found: dict[str, Rule] = {}
    for text in templates:
        if leading := _LEADING.match(text):
            keys, rest = leading[1], f"'{leading[0]}'{text[leading.end() :]}"
        if not leading or text[leading.end() : leading.end() + 1] in ("|", ":"):
            keys, _, rest = text.partition(": ")
        found.update(dict.fromkeys(keys.split("|"), template(rest, **rules)))
    return found


def one_of(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule that reads what one of the rules of a table does, by its leading words."""

    def rule(r: SqlReader) -> str:
        found = r.first_of(rules)
        if found is None:
            raise r.error("expected " + " or ".join(rules))
        return found

    return rule


def _parts(elements: Iterator[re.Match[str]], rules: Mapping[str, Rule]) -> list[_Part]:
    """The pieces up to the end of the template or of the optional part that has begun."""
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
