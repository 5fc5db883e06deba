r"""Names of databases, tables, columns and the like: TiDB's comparison of them, and their display.

    lowered("İD")          "id"         each character by itself, one for one
    lowered("ΛΣ")          "λσ"         and not "λς" as from Python's `lower`: to TiDB these are two names
    qualified("a.b", "c")  "`a.b`.c"    two tables never share a text
    printable("a\x1b[2J")  "a\\x1b[2J"  names in topics are untrusted text, and terminals interpret it

Source: TiDB pkg/parser/ast, NewCIStr; Go's strings.ToLower and unicode.ToLower (simple case mapping); Unicode Standard
Annex 9, "Explicit Directional Formatting Characters".
"""

import re
from typing import Final

_TWO_FOR_ONE: Final = {"İ": "i"}
"""The one character whose lower case in Python is two characters, with the one that Go takes."""
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, breaks of lines and marks that turn the direction of text, and bytes that are not UTF-8."""


_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.]+)")


def lowered(name: str) -> str:
    """Return a name in the form by which TiDB compares names."""
    return name.lower() if name.isascii() else "".join(_TWO_FOR_ONE.get(char) or char.lower() for char in name)


def all_digits(text: str) -> bool:
    """Return True for a non-empty text of digits 0 to 9 only. `str.isdigit` accepts "²" too, which is no number."""
    return text.isascii() and text.isdigit()


def qualified(*names: str) -> str:
    """Return names joined by dots; names with a dot or a leading backtick are quoted in backticks, as in SQL."""
    quoted = (f"`{name.replace('`', '``')}`" if "." in name or name[:1] == "`" else name for name in names)
    return ".".join(quoted)


def parts_of(text: str) -> tuple[str, ...]:
    """Return the names that `qualified` joined."""
    return tuple(plain or quoted.replace("``", "`") for quoted, plain in _PART.findall(text))


def table_key(text: str) -> str:
    """Return the form by which the names of tables compare, of one as people type it: `DB`.`t`, DB.t and db.t are one
    table."""
    return lowered(qualified(*parts_of(text)))


def printable(text: str) -> str:
    r"""Return a text in which characters that control a terminal are escaped, such as `\x1b`."""
    return _UNSEEN.sub(lambda hit: hit[0].encode("unicode_escape").decode(), text)
