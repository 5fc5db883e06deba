"""The one place that checks a length: bytes taken off a buffer, or an error that says where they are missing.

    buf  ....|.........|....        take(buf, at, size) -> buf[at : at + size]
             at        at + size

A decoder of this floor has the form `decode_x(buf, at) -> (value, the offset after it)`.  `codec` names in errors which
layout was being read; offsets count from the start of `buf`.
"""

from tidegate.model.errors import DecodeError


def take(buf: bytes, at: int, size: int, codec: str) -> bytes:
    """Return the `size` bytes at `at`; DecodeError when they are not all there."""
    end = at + size
    if size < 0 or end > len(buf):
        raise DecodeError(f"{size} bytes wanted and {max(len(buf) - at, 0)} left", codec, at)
    return buf[at:end]


def take_byte(buf: bytes, at: int, codec: str) -> int:
    """Return the byte at `at` as a number; DecodeError at the end."""
    if at >= len(buf):
        raise DecodeError("1 byte wanted and 0 left", codec, at)
    return buf[at]


def at_end(buf: bytes, at: int, codec: str) -> None:
    """Raise DecodeError when bytes follow `at`."""
    if at != len(buf):
        raise DecodeError(f"{len(buf) - at} bytes follow the last value", codec, at)
