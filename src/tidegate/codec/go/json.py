r"""JSON strings as Go's writers escape them; no two of them agree.

    writer                 < > &                  \b \f          U+2028 U+2029    a byte that is not UTF-8
    STANDARD encoding/json \u003c \u003e \u0026   \b \f          \u2028 \u2029    \ufffd
    EASY     easyjson      \u003c \u003e \u0026   \u0008 \u000c  \u2028 \u2029    \ufffd
    RAW      jsoniter      as they are            \u0008 \u000c  as they are      as it is: the text is not JSON then

    all: \" \\ \n \r \t in two characters, other control characters below 0x20 as \u00XX; 0x7f, / and all else as it is

STANDARD writes Open Protocol of classic TiCDC (Go 1.22 and later), EASY canal-json (goccy/go-json, which writes its
DDLs and watermarks, agrees with it), RAW Open Protocol of the new architecture.  REPAIRED is RAW without its fault.

PRINTED is for what TiDB prints itself, numbers and times: ASCII without HTML characters, which all writers leave alike.

A byte that is not UTF-8 stands in our texts as the surrogate escape U+DC80 to U+DCFF.

Source: recordings of both emitters; Go's encoding/json, easyjson and jsoniter.
"""

import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Final, TypeAlias

Quote: TypeAlias = Callable[[str], str]
"""A text as a JSON string, with its quotes."""

_TWO: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CONTROL: Final = {chr(code): f"\\u{code:04x}" for code in range(0x20)}
_HTML: Final = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_NO_B, _NO_F = "\ufdd0", "\ufdd1"
"""Code points that are no characters: they stand for \b and \f while the others are escaped."""
_NOT_UTF8: Final = {chr(code): "\\ufffd" for code in range(0xD800, 0xE000)}


def _quoter(table: Mapping[str, str]) -> Quote:
    r"""The writer that replaces the characters of `table` and leaves all others.

    The C function of the standard library escapes quotes, backslashes and control characters as all writers do, save
    for \b and \f; what else stands in `table` is replaced after it.  Texts that this cannot do are searched."""
    replace = re.compile("[" + "".join(map(re.escape, table)) + "]").sub
    html = "<" in table
    repairs = "\ud800" in table
    long_controls = table["\b"] != "\\b"

    def swap(found: "re.Match[str]") -> str:
        return table[found[0]]

    def quote(text: str) -> str:
        quoted = encode_basestring(text)
        if long_controls and len(quoted) != len(text) + 2 and ("\b" in text or "\f" in text):
            if _NO_B in text or _NO_F in text:
                return f'"{replace(swap, text)}"'
            quoted = quote(text.replace("\b", _NO_B).replace("\f", _NO_F))
            return quoted.replace(_NO_B, "\\u0008").replace(_NO_F, "\\u000c")
        if html:
            if "<" in text:
                quoted = quoted.replace("<", "\\u003c")
            if ">" in text:
                quoted = quoted.replace(">", "\\u003e")
            if "&" in text:
                quoted = quoted.replace("&", "\\u0026")
        if text.isascii():
            return quoted
        if html:
            quoted = quoted.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        return f'"{replace(swap, text)}"' if repairs and not _is_utf8(text) else quoted

    return quote


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


STANDARD: Final = _quoter(_CONTROL | _TWO | {"\b": "\\b", "\f": "\\f"} | _HTML | _NOT_UTF8)
EASY: Final = _quoter(_CONTROL | _TWO | _HTML | _NOT_UTF8)
RAW: Final = _quoter(_CONTROL | _TWO)
REPAIRED: Final = _quoter(_CONTROL | _TWO | _NOT_UTF8)
PRINTED: Final[Quote] = encode_basestring
