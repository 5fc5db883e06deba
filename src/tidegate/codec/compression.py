"""Compressed values (`large-message-handle-compression`), not to be mixed up with Kafka's own compression.

    none     the value itself
    snappy   one raw block: length as a varint, then literals and copies; no frame, no checksum
    lz4      LZ4 frames

No mark in a message says which; sender and reader must be configured alike.  A claimed or possible size beyond
MAX_BYTES is refused before memory is taken: 3 bytes of snappy become at most 64, a byte of LZ4 at most 255.  All
values of a message share that bound.

The library is loaded with the first value that is compressed, since most topics have none.

Source: TiCDC's compression package; the snappy and LZ4 frame format descriptions.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidegate.model.errors import ConfigError, DecodeError

MAX_BYTES: Final = 256 << 20
"""Twenty-five times TiCDC's default max-message-bytes."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_RATIO: Final = 255
_LZ4_BLOCK: Final[Mapping[int, int]] = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
"""Bytes of a block, by its number in the frame's head."""
_SNAPPY_RATIO: Final = 32


def compress(raw: bytes, compression: str) -> bytes:
    """Return `raw` compressed; `decompress` is the inverse.

    Go's libraries find other matches, so the bytes differ from TiCDC's, and a size near a limit may too."""
    return COMPRESSORS[compression](raw)


def decompress(raw: bytes, compression: str, codec: str, offset: int, size: int = 0) -> bytes:
    """Return the plain bytes of `raw`, where other values of its message have `taken` some of MAX_BYTES."""
    read = COMPRESSIONS.get(compression)
    if read is None:
        raise ConfigError(
            f"large-message-handle-compression is {compression!r}; it is one of {', '.join(COMPRESSIONS)}"
        )
    import cramjam

    try:
        return read(raw, MAX_BYTES - size)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"not a {compression} value: {error}", codec, offset) from error
    except ValueError as error:
        raise DecodeError(f"not a {compression} value: {error}", codec, offset) from error


def _snappy(raw: bytes, most: int) -> bytes:
    size = shift = 0
    for byte in raw[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most:
        raise ValueError(f"{size} bytes are more than the {most} that its message may still become")
    if size > len(raw) * _SNAPPY_RATIO:
        raise ValueError(f"{len(raw)} bytes cannot hold the {size} that they claim")
    import cramjam

    return bytes(cramjam.snappy.decompress_raw(raw))


def _lz4(raw: bytes, most: int) -> bytes:
    if raw[:4] != _LZ4_MAGIC:
        raise ValueError("no LZ4 frame magic")
    import cramjam

    if len(raw) * _LZ4_RATIO <= most:
        return bytes(cramjam.lz4.decompress(raw))
    room = bytearray(_lz4_room(raw, most))
    try:
        return bytes(memoryview(room)[: cramjam.lz4.decompress_into(raw, room)])
    except cramjam.DecompressionError as error:
        if len(room) < most:
            raise
        raise ValueError(f"more than the {most} bytes that its message may still become") from error


def _lz4_room(raw: bytes, most: int) -> int:
    """An upper bound of the decompressed blocks of all frames, at most `most`."""
    offset = room = 0
    while room < most and raw[offset : offset + 4] == _LZ4_MAGIC:
        flags, kind = raw[offset + 4 : offset + 6].ljust(2, b"\0")
        largest = _LZ4_BLOCK.get(kind >> 4, 0)
        offset += 7 + 8 * bool(flags & 8) + 4 * (flags & 1)
        while (word := int.from_bytes(raw[offset : offset + 4], "little")) > 0:
            size = word & 0x7FFF_FFFF
            room += min(largest, size * _LZ4_RATIO)
            offset += 4 + size + 4 * bool(flags & 16)
        offset += 4 + 4 * bool(flags & 4)
    return min(room, most)


def _plain(raw: bytes, _most: int) -> bytes:
    return raw


COMPRESSIONS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {"none": _plain, "snappy": _snappy, "lz4": _lz4}


def _packed(raw: bytes, *, compression: str) -> bytes:
    import cramjam

    return bytes((cramjam.snappy.compress_raw if compression == "snappy" else cramjam.lz4.compress)(raw))


COMPRESSORS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    **{name: partial(_packed, compression=name) for name in ("snappy", "lz4")},
}
