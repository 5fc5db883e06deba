"""Columns to JSON texts, one call per column, equal to the plain encoders' texts of single values.

    integers   Arrow's digits
    floats     Arrow's digits where they are Go's: 0, and 1e-5 <= |x| < 1e10 (csv: 1e-4 to 1e6); the others one by one
    base64     one call for a column: each value padded to a multiple of three bytes, `=` set where the padding went
    times      one UTC offset per hour in the column, from the zone's rules

Texts have no quotes: the caller knows whether they are the same in all rows.

Source: the writers of codec/go.py and codec/zone.py.
"""

from binascii import b2a_base64
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.arrays import (
    BINARY,
    BYTES_MAX,
    bytes_of,
    content,
    joined,
    replaced,
    shaped,
    text_of,
)
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.go import FloatText
from tidegate.codec.zone import zone_shift

_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?$"
_TIME_LENGTH: Final = 19
_ZERO_DATE: Final = "0000-00-00"
_HOUR_S: Final = 3600


def integers(array: Any) -> Any:
    """Decimal digits."""
    if not pa.types.is_integer(array.type):
        raise Mismatch(f"integers that come as {array.type}")
    return array.cast(pa.string()).view(BINARY)


def floats(array: Any, write: FloatText, *, single: bool, within: tuple[float, float] = (1e-5, 1e10)) -> Any:
    """Numbers in the digits of `write`; `single` for FLOAT. Arrow's digits are those of `write` in the range
    `within`."""
    if not pa.types.is_floating(array.type):
        raise Mismatch(f"floats that come as {array.type}")
    if array.type != pa.float64():
        array = array.cast(pa.float64())
    numbers = (array.fill_null(0.0) if array.null_count else array).to_numpy()
    size = np.abs(numbers)
    fits = (size == 0) | ((size >= within[0]) & (size < within[1]))
    if single:
        with np.errstate(over="ignore"):
            nearest = numbers.astype(np.float32)
        fits &= nearest == numbers
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        array = pa.array(nearest, mask=mask)
    texts = array.cast(pa.string()).view(BINARY)
    odd = np.flatnonzero(~fits)
    if not len(odd):
        return texts
    return replaced(texts, odd, pa.array([write(number).encode() for number in numbers[odd].tolist()], BINARY))


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
        raise Mismatch(f"{total} bytes of base64")
    encoded = np.frombuffer(b2a_base64(content(joined([raw, pads], count))[1], newline=False), np.uint8).copy()
    ends = np.zeros(count + 1, np.int32)
    np.cumsum((sizes + missing) // 3 * 4, out=ends[1:])
    encoded[ends[1:][missing >= 1] - 1] = ord("=")
    encoded[ends[1:][missing == 2] - 2] = ord("=")
    return shaped(array, ends, encoded)


def shifted(array: Any, time_zone: str) -> Any:
    """UTC timestamps in the time zone."""
    texts = text_of(array).cast(pa.string())
    regular = pc.and_(pc.match_substring_regex(texts, _TIME), pc.invert(pc.starts_with(texts, _ZERO_DATE)))
    rows = np.flatnonzero(regular.fill_null(False).to_numpy(zero_copy_only=False))
    chosen = texts.take(pa.array(rows))
    try:
        seconds = pc.utf8_slice_codeunits(chosen, 0, _TIME_LENGTH).cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise Mismatch(str(error)) from error
    offsets, is_certain = _offsets(seconds, ZoneInfo(time_zone))
    moved = pa.array(seconds + offsets).cast(pa.timestamp("s")).cast(pa.string()).cast(BINARY)
    rests = pc.utf8_slice_codeunits(chosen, _TIME_LENGTH).cast(BINARY)
    result = replaced(
        texts.cast(BINARY), rows[is_certain], joined([moved, rests], len(chosen)).filter(pa.array(is_certain))
    )
    left = np.ones(len(texts), np.bool_)
    left[rows[is_certain]] = False
    odd = np.flatnonzero(left & texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(odd):
        return result
    shift = zone_shift(time_zone)
    return replaced(result, odd, pa.array([shift(text) for text in texts.take(pa.array(odd)).to_pylist()]).cast(BINARY))


def _offsets(seconds: Any, zone: ZoneInfo) -> tuple[Any, Any]:
    """The zone's offset from UTC in seconds at some moments, and a mask of those where it is known. It is looked up at
    both ends of an hour: an hour in which it changes is unknown, as is a time outside of the range of dates."""
    hours, hour_of = np.unique(seconds // _HOUR_S, return_inverse=True)
    pairs = [(_ahead_s(hour, zone), _ahead_s(hour + _HOUR_S - 1, zone)) for hour in (hours * _HOUR_S).tolist()]
    offsets = np.array([first or 0 for first, _ in pairs], np.int64)
    is_certain = np.array([first is not None and first == last for first, last in pairs], np.bool_)
    return offsets[hour_of], is_certain[hour_of]


def _ahead_s(second: int, zone: ZoneInfo) -> int | None:
    """Seconds from UTC to the zone's clock; None near the bounds of dates."""
    if not _EARLIEST_S <= second <= _LATEST_S:
        return None
    offset = datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
    return None if offset is None or offset.microseconds else offset.days * 86_400 + offset.seconds


_EARLIEST_S, _LATEST_S = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1900, 9999))
