"""Messages one after the other in a file.

    | key length (4) | key | value length (4) | value |     lengths big-endian, repeated to the end

A missing key or value has length 0.

Source: the recordings' framed form.
"""

from collections.abc import Iterator
from io import BytesIO
from struct import Struct
from typing import Final, Protocol

from tidegate.model.errors import DecodeError

CODEC: Final = "frame"
MAX_FRAME_BYTES: Final = 256 << 20
"""No key or value is longer: Kafka brokers take 1 MiB by default, TiCDC sends at most 10 MiB."""

_PIECE: Final = 1 << 20
"""Bytes that are asked for at once: a length may claim more than there is."""

_LENGTH: Final = Struct(">I")


class Readable(Protocol):
    """A binary stream: what files, pipes and gzip streams have."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""


def read_frames(source: bytes | Readable) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of each message; DecodeError where the input ends inside one or claims too much."""
    stream = BytesIO(source) if isinstance(source, bytes) else source
    at = 0
    while True:
        first = _read(stream, _LENGTH.size)
        if not first:
            return
        key, at = _sized(stream, first, at, "key")
        value, at = _sized(stream, _read(stream, _LENGTH.size), at, "value")
        yield key, value


def pack_frame(key: bytes | None, value: bytes | None) -> bytes:
    """Return one message with its lengths."""
    keys, values = key or b"", value or b""
    assert len(keys) <= MAX_FRAME_BYTES, len(keys)
    assert len(values) <= MAX_FRAME_BYTES, len(values)
    return b"".join((_LENGTH.pack(len(keys)), keys, _LENGTH.pack(len(values)), values))


def _sized(stream: Readable, length: bytes, at: int, name: str) -> tuple[bytes, int]:
    """The bytes that follow `length`, and the offset after them."""
    if len(length) < _LENGTH.size:
        raise DecodeError(f"the input ends within the length of a {name}", CODEC, at)
    size = _LENGTH.unpack(length)[0]
    if size > MAX_FRAME_BYTES:
        raise DecodeError(
            f"a {name} of {size} bytes is longer than {MAX_FRAME_BYTES}; is this a framed file?", CODEC, at
        )
    body = _read(stream, size)
    if len(body) < size:
        raise DecodeError(f"the input ends after {len(body)} of the {size} bytes of a {name}", CODEC, at)
    return body, at + _LENGTH.size + size


def _read(stream: Readable, size: int) -> bytes:
    """`size` bytes, fewer only at the end of the stream: a pipe may give them in pieces."""
    body = stream.read(min(size, _PIECE))
    if len(body) == size or not body:
        return body
    pieces, missing = [body], size - len(body)
    while missing and (body := stream.read(min(missing, _PIECE))):
        pieces.append(body)
        missing -= len(body)
    return b"".join(pieces)
