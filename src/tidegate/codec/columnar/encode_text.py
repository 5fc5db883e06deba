r"""Columns to JSON texts, a whole column a call: what the plain encoders' writers make of its values, one by one.

    integers   Arrow's digits
    floats     Arrow's digits where they are Go's: 0, and 1e-5 <= |x| < 1e10; the others by the plain writer, one by one
    texts      as they are, unless one of them has a quote, a backslash, `<>&`, a control character or U+2028/9: then
               those that do, or all if they are many, have each such character replaced, a pass over all bytes for each
    bytes      the same after Go's quoting, or after each byte became a code point, of all of them together
    base64     one call for a column: each value padded to a multiple of three bytes, `=` set where the padding went
    times      one offset an hour of the column, from the zone's own rules

What a character is replaced by is asked of the plain writer, once.
No text carries its quotes: whoever joins them knows whether they are the same in all rows.

Source: gojson.py, gofloat.py, goquote.py and zone.py, whose writers these are.
"""

from binascii import b2a_base64
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode_arrays import BINARY, BYTES_MAX, content, joined, replaced, together
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.gofloat import FloatText
from tidegate.codec.gojson import Quote
from tidegate.codec.goquote import quote as go_quoted
from tidegate.codec.zone import zone_shift

__all__ = ["base64", "floats", "go_quotes", "integers", "latin1", "shifted", "strings"]

Write = Callable[[bytes], bytes]

_ESCAPED: Final = (b'"', b"\\", b"<", b">", b"&")
_SEPARATORS: Final = "\u2028\u2029"
_LEAD: Final = _SEPARATORS[0].encode()[0]
_NO_CONTROLS: Final = bytes(range(ord(" "), 0x100))
_CODES: Final = np.arange(256)
_ODD_TEXT: Final = (ord(" ") > _CODES) | np.isin(_CODES, [*b'"\\<>&', _LEAD])
_ODD_BYTES: Final = _ODD_TEXT | (_CODES >= 0x7F)
_ODD_LATIN1: Final = _ODD_TEXT | (_CODES >= 0x80)
"""Bytes of texts that a writer may change; the first leaves some of those through `_LEAD` unchanged."""

_SAMPLE: Final = 64
"""Texts that tell whether it is worth to look for those that need a writer: with many of them all are written."""

_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?$"
_TIME_LENGTH: Final = 19
_ZERO_DATE: Final = "0000-00-00"
_HOUR_S: Final = 3600


def integers(array: Any) -> Any:
    """Decimal digits."""
    if not pa.types.is_integer(array.type):
        raise Misfit(f"integers that come as {array.type}")
    return array.cast(pa.string()).view(BINARY)


def floats(array: Any, write: FloatText, *, single: bool) -> Any:
    """Numbers as `write` has them; `single` for FLOAT."""
    if not pa.types.is_floating(array.type):
        raise Misfit(f"floats that come as {array.type}")
    array = array.cast(pa.float64())
    numbers = array.fill_null(0.0).to_numpy()
    size = np.abs(numbers)
    fits = (size == 0) | ((size >= 1e-5) & (size < 1e10))
    if single:
        with np.errstate(over="ignore"):
            nearest = numbers.astype(np.float32)
        fits &= nearest == numbers
        array = pa.array(nearest, mask=array.is_null().to_numpy(zero_copy_only=False))
    texts = array.cast(pa.string()).view(BINARY)
    odd = np.flatnonzero(~fits)
    if not len(odd):
        return texts
    return replaced(texts, odd, pa.array([write(number).encode() for number in numbers[odd].tolist()], BINARY))


def strings(array: Any, quote: Quote, *, utf8: bool = False) -> Any:
    """Texts as `quote` has them; bytes that are no UTF-8 count as surrogate escapes, and are a Misfit if `utf8`."""
    escape = _escape_of(quote)
    if pa.types.is_binary(array.type):
        try:
            array = array.cast(pa.string())
        except pa.ArrowInvalid as error:
            if utf8:
                raise Misfit(str(error)) from error
            return together(array, partial(_repaired, quote=quote))
    return _mended(text_of(array), escape, _ODD_TEXT)


def go_quotes(array: Any, quote: Quote) -> Any:
    """Bytes in Go's quotes and then as `quote` has them."""
    escape = _escape_of(quote)
    return _mended(bytes_of(array), lambda raw: escape(go_quoted(raw).encode()), _ODD_BYTES)


def latin1(array: Any, quote: Quote) -> Any:
    """Each byte as the code point of its number, and then as `quote` has them."""
    escape = _escape_of(quote)
    return _mended(bytes_of(array), lambda raw: escape(raw.decode("latin-1").encode()), _ODD_LATIN1)


def base64(array: Any, *, binary: bool) -> Any:
    """Standard base64 with padding, of bytes if `binary`, else of the UTF-8 of texts."""
    count = len(array)
    raw = bytes_of(array) if binary or pa.types.is_binary(array.type) else text_of(array)
    sizes = np.diff(content(raw)[0])
    if raw.null_count:
        sizes = sizes * raw.is_valid().to_numpy(zero_copy_only=False)
        raw = raw.fill_null(b"")
    missing = -sizes % 3
    pads = pa.array([b"", b"\0", b"\0\0"], BINARY).take(pa.array(missing))
    if (total := int((sizes + missing).sum()) // 3 * 4) > BYTES_MAX:
        raise Misfit(f"{total} bytes of base64")
    encoded = np.frombuffer(b2a_base64(content(joined([raw, pads], count))[1], newline=False), np.uint8).copy()
    ends = np.zeros(count + 1, np.int32)
    np.cumsum((sizes + missing) // 3 * 4, out=ends[1:])
    encoded[ends[1:][missing >= 1] - 1] = ord("=")
    encoded[ends[1:][missing == 2] - 2] = ord("=")
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    buffers = [pa.py_buffer(ends), pa.py_buffer(encoded)]
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(BINARY, count, [mask, *buffers])


def shifted(array: Any, time_zone: str) -> Any:
    """UTC timestamps as the zone has them."""
    texts = text_of(array).cast(pa.string())
    regular = pc.and_(pc.match_substring_regex(texts, _TIME), pc.invert(pc.starts_with(texts, _ZERO_DATE)))
    rows = np.flatnonzero(regular.fill_null(False).to_numpy(zero_copy_only=False))
    chosen = texts.take(pa.array(rows))
    try:
        seconds = pc.utf8_slice_codeunits(chosen, 0, _TIME_LENGTH).cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise Misfit(str(error)) from error
    offsets, known = _offsets(seconds, ZoneInfo(time_zone))
    moved = pa.array(seconds + offsets).cast(pa.timestamp("s")).cast(pa.string()).cast(BINARY)
    rests = pc.utf8_slice_codeunits(chosen, _TIME_LENGTH).cast(BINARY)
    found = replaced(texts.cast(BINARY), rows[known], joined([moved, rests], len(chosen)).filter(pa.array(known)))
    left = np.ones(len(texts), np.bool_)
    left[rows[known]] = False
    odd = np.flatnonzero(left & texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(odd):
        return found
    shift = zone_shift(time_zone)
    return replaced(found, odd, pa.array([shift(text) for text in texts.take(pa.array(odd)).to_pylist()]).cast(BINARY))


def text_of(array: Any) -> Any:
    """Texts as their bytes, which are UTF-8."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_string(array.type):
        raise Misfit(f"texts that come as {array.type}")
    return array.view(BINARY)


def bytes_of(array: Any) -> Any:
    """Bytes themselves."""
    if not pa.types.is_binary(array.type):
        raise Misfit(f"bytes that come as {array.type}")
    return array


def _mended(array: Any, write: Write, odd: Any) -> Any:
    """`array` with what `write` makes of the texts that have `odd` bytes."""
    ends, raw = content(array)
    if _plain(raw) and (odd is _ODD_TEXT or (raw.isascii() and b"\x7f" not in raw)):
        return array
    every = np.frombuffer(raw, np.uint8)
    few = min(_SAMPLE, len(array))
    if 2 * np.count_nonzero(odd[every[: ends[few]]]) > few:
        return together(array, write)
    affected = np.zeros(len(array), np.bool_)
    affected[np.searchsorted(ends, np.flatnonzero(odd[every]), "right") - 1] = True
    rows = np.flatnonzero(affected)
    return replaced(array, rows, together(array.take(pa.array(rows)), write)) if len(rows) else array


@cache
def _escape_of(quote: Quote) -> Write:
    """The same as `quote` for UTF-8 and without the quotes: bytes for characters, the backslash first."""
    found = {character: quote(character)[1:-1].encode() for character in ("\\", *map(chr, range(0x80)), *_SEPARATORS)}
    others = {character.encode(): text for character, text in found.items() if text != character.encode()}
    controls = {character: others.pop(character) for character in list(others) if character < b" "}

    def escape(raw: bytes) -> bytes:
        for character, text in others.items():
            if character in raw:
                raw = raw.replace(character, text)
        for control in set(raw.translate(None, _NO_CONTROLS)):
            raw = raw.replace(control.to_bytes(), controls[control.to_bytes()])
        return raw

    return escape


def _repaired(raw: bytes, quote: Quote) -> bytes:
    """What `quote` makes of bytes that may be no UTF-8."""
    return quote(raw.decode("utf-8", "surrogateescape"))[1:-1].encode("utf-8", "surrogateescape")


def _plain(raw: bytes) -> bool:
    """Whether no writer of JSON strings changes anything in UTF-8 texts."""
    if any(character in raw for character in _ESCAPED):
        return False
    if raw and np.frombuffer(raw, np.uint8).min() < ord(" "):
        return False
    return raw.isascii() or not any(separator.encode() in raw for separator in _SEPARATORS)


def _offsets(seconds: Any, zone: ZoneInfo) -> tuple[Any, Any]:
    """Seconds that the zone is ahead of UTC at some moments, and for which of them that is known.

    It is looked up once an hour, at both ends: an hour in which it changes is left out, and what no date can hold."""
    hours, places = np.unique(seconds // _HOUR_S, return_inverse=True)
    pairs = [(_ahead_s(hour, zone), _ahead_s(hour + _HOUR_S - 1, zone)) for hour in (hours * _HOUR_S).tolist()]
    found = np.array([first or 0 for first, _ in pairs], np.int64)
    known = np.array([first is not None and first == last for first, last in pairs], np.bool_)
    return found[places], known[places]


def _ahead_s(second: int, zone: ZoneInfo) -> int | None:
    """Seconds from UTC to the zone's clock, None near the bounds of what a date can hold."""
    if not _EARLIEST_S <= second <= _LATEST_S:
        return None
    offset = datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
    return None if offset is None or offset.microseconds else offset.days * 86_400 + offset.seconds


_EARLIEST_S, _LATEST_S = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1900, 9999))
