r"""Character replacement in a whole column: JSON escapes of texts, bytes as Go quotes them or as code points.

    a<b "c"            a\u003cb \"c\"     JSON's escapes: unchanged ranges and replacements, alternating
    61 00 C3 A9 FF     a\\x00é\\xff       Go's quoted string, then JSON's: each backslash twice
                       a\u0000Ã©ÿ         Latin-1: each byte the code point of its number

The plain writer supplies the replacement of each character or byte once; the loop of write.py inserts it, except for
Go's quotes, which are one `take` of the replacements.

Go keeps printable characters and escapes others as a whole, so the loop finds the byte sequence of each character.
Texts have no quotes: the caller adds them, since they may be equal in all rows.

Source: the formats of codec/go.py; Unicode 15, table 3-7 (well-formed byte sequences).
"""

from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.encode.arrays import BINARY, bytes_of, content, shaped, text_of
from tidegate.codec.columnar.encode.write import COPIED, ESCAPED
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.go import EASY, PRINTED, RAW, REPAIRED, STANDARD, Quote, bounds
from tidegate.codec.go import quote as go_quoted

_BYTES: Final = [bytes([byte]) for byte in range(256)]
_SEPARATORS: Final = ("\u2028".encode(), "\u2029".encode())
_LEAD: Final = _SEPARATORS[0][0]
_AS_IS: Final = 256
"""Added to the bytes of printable characters."""
_NOTHING: Final = 512
_CONTINUES, _LEADS, _LAST_LEAD = 0x80, 0xC2, 0xF4
_THREE, _FOUR = 0xE0, 0xF0
_SECOND: Final = {0xE0: (0xA0, 0xC0), 0xED: (0x80, 0xA0), 0xF0: (0x90, 0xC0), 0xF4: (0x80, 0x90)}
"""The range of the second byte after some first bytes; it is 80 to BF after all others."""
_LEAD_BITS: Final = {2: 0x1F, 3: 0x0F, 4: 0x07}


def strings(array: Any, quote: Quote) -> tuple[int, Any]:
    """Texts in the loop's form: UTF-8 to be escaped, or ready; bytes that are not UTF-8 count as surrogate escapes.
    Raises Mismatch for these with PRINTED."""
    if pa.types.is_binary(array.type):
        try:
            array = array.cast(pa.string())
        except pa.ArrowInvalid as error:
            if quote is PRINTED:
                raise Mismatch(str(error)) from error
            texts = (None if raw is None else raw.decode("utf-8", "surrogateescape") for raw in array.to_pylist())
            quoted = [None if text is None else quote(text)[1:-1].encode("utf-8", "surrogateescape") for text in texts]
            return COPIED, pa.array(quoted, BINARY)
    return ESCAPED, text_of(array)


def go_quotes(array: Any, quote: Quote) -> Any:
    """Return bytes in Go's quotes and then as `quote` has them, without any quotes around them."""
    ends, raw = content(bytes_of(array))
    table = _go_table(quote)
    if not _changed(raw, table).any():
        return array
    every = np.frombuffer(raw, np.uint8)
    codes, texts = every.astype(np.int32), table.texts
    starts, widths, points = _characters(every, ends)
    firsts, lasts = map(np.array, bounds())
    range_of = np.searchsorted(firsts, points, "right") - 1
    printable = (range_of >= 0) & (points <= lasts[range_of])
    for width in _LEAD_BITS:
        shown, hidden = starts[printable & (widths == width)], starts[~printable & (widths == width)]
        for digit in range(width):
            codes[shown + digit] += _AS_IS
            codes[hidden + digit] = _NOTHING
    if not printable.all():
        others, which = np.unique(points[~printable], return_inverse=True)
        codes[starts[~printable]] = len(texts) + which
        escapes = [_go_escape(point, quote) for point in others.tolist()]
        texts = pa.concat_arrays([texts, pa.array(escapes, BINARY)])
    return _rewritten(array, ends, codes, texts)


class _Table(NamedTuple):
    """The replacement of each byte, and which bytes change."""

    texts: Any
    changed: Any


def _changed(raw: bytes, table: _Table) -> Any:
    """A mask of the bytes that change. `translate` is five times as fast as numpy's lookup."""
    return np.frombuffer(raw.translate(table.changed.tobytes()), np.bool_)


def _json_table(quote: Quote) -> list[bytes]:
    """Replacements of characters below 80, and of the two separators behind all bytes; the first byte of these is empty
    where they change."""
    replacements = [quote(chr(byte))[1:-1].encode() if byte < _CONTINUES else _BYTES[byte] for byte in range(256)]
    separators = [quote(separator.decode())[1:-1].encode() for separator in _SEPARATORS]
    replacements[_LEAD] = replacements[_LEAD] if tuple(separators) == _SEPARATORS else b""
    return [*replacements, *separators]


@cache
def _go_table(quote: Quote) -> _Table:
    texts = [_go_text(byte, quote) for byte in _BYTES]
    changed = np.array([text != byte for text, byte in zip(texts, _BYTES, strict=True)])
    return _Table(pa.array([*texts, *_BYTES, b""], BINARY), changed)


def _go_text(raw: bytes, quote: Quote) -> bytes:
    return quote(go_quoted(raw))[1:-1].encode()


@lru_cache(maxsize=1 << 13)
def _go_escape(point: int, quote: Quote) -> bytes:
    return _go_text(chr(point).encode(), quote)


QUOTES: Final = (STANDARD, EASY, RAW, REPAIRED, PRINTED)
LATIN1: Final = len(QUOTES)
TABLES: Final = [*map(_json_table, QUOTES), [EASY(chr(byte))[1:-1].encode() for byte in range(256)] + [b"", b""]]
"""The replacement of each byte, and of the two separators: in texts by each of QUOTES, and in bytes as code points
(LATIN1)."""


def _rewritten(array: Any, ends: Any, codes: Any, texts: Any) -> Any:
    """`array` with its bytes replaced by `texts[codes]`."""
    _, bounds, data = texts.take(pa.array(codes)).buffers()
    return shaped(array, np.frombuffer(bounds, np.int32)[ends], data)


def _characters(every: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Start, width and code point of each character of several bytes."""
    padded = np.concatenate([every, np.zeros(3, np.uint8)])
    starts = np.flatnonzero((every >= _LEADS) & (every <= _LAST_LEAD))
    starts = starts[padded[starts + 1] & 0xC0 == _CONTINUES]
    lead = every[starts]
    widths = 2 + (lead >= _THREE).astype(np.int64) + (lead >= _FOUR)
    points = lead & np.array([0, 0, *_LEAD_BITS.values()])[widths]
    good = np.ones(len(starts), np.bool_)
    for digit in (1, 2, 3):
        within, byte = widths > digit, padded[starts + digit]
        good &= ~within | (byte & 0xC0 == _CONTINUES)
        points = np.where(within, points << 6 | byte & 0x3F, points)
    second = padded[starts + 1]
    for first, (low, high) in _SECOND.items():
        good &= (lead != first) | ((second >= low) & (second < high))
    starts, widths, points = starts[good], widths[good], points[good]
    whole = starts + widths <= ends[np.searchsorted(ends, starts, "right")]
    return starts[whole], widths[whole], points[whole]
