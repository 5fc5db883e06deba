r"""Go's quoted strings, in which Open Protocol carries BINARY and VARBINARY.

    \a \b \f \n \r \t \v \\ \"       one byte
    \xHH                             one byte, two hexadecimal digits
    \OOO                             one byte, three octal digits up to 377
    \uHHHH \UHHHHHHHH                the UTF-8 of one code point, no surrogate
    anything else                    its own UTF-8; a bare quote, backslash or line feed is an error

The surrounding quotes are not sent.  A sender takes the bytes for UTF-8, writes printable characters as they are and
escapes others: control characters below 0x80 and bytes that are not UTF-8 as \xHH, the rest as \u and \U.  Every form
is read, so the bytes come back whichever characters the sender thought printable.

Source: Go's strconv.Quote and strconv.Unquote.
"""

import re
from typing import Final

from tidegate.codec.go.printable import is_printable
from tidegate.model.errors import DecodeError

_SIMPLE: Final = re.compile(rb'(?:[^\\"\n]++|\\[abfnrtv\\"]|\\x[0-9A-Fa-f]{2})*+')
"""Texts whose escapes mean the same to Python: all that a byte string without unprintable characters needs."""
_TOKEN: Final = re.compile(
    rb'\\(?:([abfnrtv\\"])|x([0-9A-Fa-f]{2})|([0-3][0-7]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))|(["\n\\])'
)
_SHORT: Final = dict(zip(b'abfnrtv\\"', b'\a\b\f\n\r\t\v\\"', strict=True))


_KNOWN_MAX: Final = 1 << 13
"""Code points that are remembered."""


class _Escapes(dict[int, str]):
    """What stands for each code point; those that are not listed are looked up in Go's table of printable ones."""

    def __missing__(self, code: int) -> str:
        """A code point of 0x80 or above."""
        escape = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        found = chr(code) if is_printable(code) else escape
        if len(self) < _KNOWN_MAX:
            self[code] = found
        return found


_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*+")
_ESCAPES: Final = _Escapes(
    {code: chr(code) for code in range(0x20, 0x7F)}
    | {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)}
    | {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
    | {byte: f"\\{chr(letter)}" for letter, byte in _SHORT.items()}
)


def quote(raw: bytes) -> str:
    """`raw` as strconv.Quote writes it, without the quotes around it; `unquote` gives the bytes back."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if _PLAIN.fullmatch(text) else text.translate(_ESCAPES)


def unquote(text: str, codec: str) -> bytes:
    """Return the bytes that `text` quotes."""
    raw = text.encode("utf-8", "surrogateescape")
    if b"\\" not in raw and b'"' not in raw and b"\n" not in raw:
        return raw
    if _SIMPLE.fullmatch(raw):
        return raw.decode("unicode_escape").encode("latin-1")
    plain, at = bytearray(), 0
    for token in _TOKEN.finditer(raw):
        plain += raw[at : token.start()]
        plain += _byte_of(token, codec)
        at = token.end()
    return bytes(plain + raw[at:])


def _byte_of(token: "re.Match[bytes]", codec: str) -> bytes:
    short, two, octal, four, eight, bad = token.groups()
    if short is not None:
        return bytes([_SHORT[short[0]]])
    if two is not None:
        return bytes([int(two, 16)])
    if octal is not None:
        return bytes([int(octal, 8)])
    point = -1 if bad is not None else int(four or eight, 16)
    if not 0 <= point <= 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"bad escape {token[0]!r} in a quoted binary string", codec, token.start())
    return chr(point).encode()
