"""Events of one message (`decode`), and of many, each with its position.

    framed bytes ─ read_frames ─┐
    messages of any source     ─┴→ decode ─→ StreamEvent(position, event)   position = message, event, byte of its frame
                                     └─ DecodeError ─→ refused(position, error), then the next message
                                                       without `refused` it is raised, the position in its text

    frame    | key length (4) | key | value length (4) | value |     lengths big-endian; 0 for a missing key or value

The byte of a frame is the offset of its first length in a framed file; messages of other sources are counted as if
they were in one.  A file that ends within a frame gives all events before it, then the error.

>>> from tidegate.codec.stream import pack_frame
>>> mark = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
>>> options = DecodeOptions(protocol="canal-json")
>>> [(found.position.byte, found.event) for found in read_events(pack_frame(None, mark) * 2, options)]
[(0, Resolved(ts=7)), (59, Resolved(ts=7))]
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidegate.codec.canal import decode_canal
from tidegate.codec.open import decode_open
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.codec.sniff import remedy
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event

CODEC: Final = "frame"
MAX_FRAME_BYTES: Final = 256 << 20
"""No key or value is longer: Kafka brokers take 1 MiB by default, TiCDC sends at most 10 MiB."""

_PIECE: Final = 1 << 20
"""Bytes of one read, since a length may claim more than there are."""

_LENGTH: Final = Struct(">I")


class Readable(Protocol):
    """A binary stream, such as a file, a pipe or a gzip stream."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""


def read_frames(source: bytes | Readable) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of each message; DecodeError where the input ends inside one or claims too much."""
    stream = BytesIO(source) if isinstance(source, bytes) else source
    offset = 0
    while True:
        first = _read(stream, _LENGTH.size)
        if not first:
            return
        key, offset = _sized(stream, first, offset, "key")
        value, offset = _sized(stream, _read(stream, _LENGTH.size), offset, "value")
        yield key, value


def pack_frame(key: bytes | None, value: bytes | None) -> bytes:
    """Return one message with its lengths."""
    keys, values = key or b"", value or b""
    assert len(keys) <= MAX_FRAME_BYTES, len(keys)
    assert len(values) <= MAX_FRAME_BYTES, len(values)
    return b"".join((_LENGTH.pack(len(keys)), keys, _LENGTH.pack(len(values)), values))


def _sized(stream: Readable, length: bytes, offset: int, name: str) -> tuple[bytes, int]:
    """The bytes that follow `length`, and the offset after them."""
    if len(length) < _LENGTH.size:
        raise DecodeError(f"the input ends within the length of a {name}", CODEC, offset)
    size = _LENGTH.unpack(length)[0]
    if size > MAX_FRAME_BYTES:
        raise DecodeError(
            f"a {name} of {size} bytes is longer than {MAX_FRAME_BYTES}; is this a framed file?", CODEC, offset
        )
    body = _read(stream, size)
    if len(body) < size:
        raise DecodeError(f"the input ends after {len(body)} of the {size} bytes of a {name}", CODEC, offset)
    return body, offset + _LENGTH.size + size


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


class Decode(Protocol):
    """Decodes one message; pure, and raises only DecodeError, whatever the bytes."""

    def __call__(self, key: bytes | None, value: bytes | None, options: DecodeOptions = ...) -> tuple[Event, ...]:
        """The events of one message."""


DECODERS: Final[Mapping[str, Decode]] = {"open-protocol": decode_open, "canal-json": decode_canal}


def decode(key: bytes | None, value: bytes | None, options: DecodeOptions) -> tuple[Event, ...]:
    """Return the events of one message.

    Parameters:
        key: of the message; None for canal-json
        value: of the message
        options: the protocol, and what the sender's configuration omits

    Raises DecodeError: bytes that break the protocol; names the options that read them, if some do

    >>> value = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> decode(None, value, DecodeOptions(protocol="canal-json"))
    (Resolved(ts=7),)"""
    try:
        return DECODERS[protocol_name(options.protocol)](key, value, options)
    except DecodeError as error:
        if (explanation := explained(error, key, value, options)) is error:
            raise
        raise explanation from error


def explained(error: DecodeError, key: bytes | None, value: bytes | None, options: DecodeOptions) -> DecodeError:
    """Return a message's error, with a hint for options that would decode it, if there are any.

    Its traceback is removed, since that holds many times the memory of a small message."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    hint = remedy(key, value, options)
    return DecodeError(f"{error.what} ({hint})", error.codec, error.offset) if hint else error


_LENGTHS: Final = 8


class StreamPosition(NamedTuple):
    """Message number from 0, event number within it, and the byte at which its frame begins.

    >>> value = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> [found.position for found in decode_messages([(None, value)] * 2, DecodeOptions(protocol="canal-json"))]
    [StreamPosition(message=0, event=0, byte=0), StreamPosition(message=1, event=0, byte=59)]"""

    message: int
    event: int
    byte: int


class StreamEvent(NamedTuple):
    """An event and its position.

    >>> value = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> next(decode_messages([(None, value)], DecodeOptions(protocol="canal-json")))
    StreamEvent(position=StreamPosition(message=0, event=0, byte=0), event=Resolved(ts=7))"""

    position: StreamPosition
    event: Event


Refused: TypeAlias = Callable[[StreamPosition, DecodeError], None]
"""Called with the position and error of each message that cannot be decoded."""


def read_events(
    source: bytes | Readable, options: DecodeOptions, refused: Refused | None = None
) -> Iterator[StreamEvent]:
    """Return the events of framed bytes or of a stream of them, in order.

    Parameters:
        source: frames, as `tidegate decode` reads them: each key and value behind its length
        options: as in `decode`
        refused: as in `decode_messages`

    Raises DecodeError: as in `decode_messages`

    >>> value = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> frame = bytes(4) + len(value).to_bytes(4, "big") + value
    >>> [found.event for found in read_events(frame, DecodeOptions(protocol="canal-json"))]
    [Resolved(ts=7)]"""
    return decode_messages(read_frames(source), options, refused)


def decode_messages(
    messages: Iterable[tuple[bytes | None, bytes | None]], options: DecodeOptions, refused: Refused | None = None
) -> Iterator[StreamEvent]:
    """Return the events of messages, in order.

    Parameters:
        messages: keys and values
        options: as in `decode`
        refused: takes the position and the error of each message that cannot be read

    Raises DecodeError: the first message that cannot be read, unless `refused` is given

    >>> value = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> messages, options = [(None, b"?"), (None, value)], DecodeOptions(protocol="canal-json")
    >>> [found.event for found in decode_messages(messages, options, lambda at, error: print(error))]
    canal-json: message: JSON is malformed: invalid character (byte 0) at byte 0
    [Resolved(ts=7)]"""
    number, byte = 0, 0
    stream = iter(messages)
    while True:
        events: tuple[Event, ...] = ()
        try:
            key, value = next(stream)
            size = _LENGTHS + len(key or b"") + len(value or b"")
            events = decode(key, value, options)
        except StopIteration:
            return
        except DecodeError as error:
            if refused is None:
                where = f"message {number} (byte {byte}): {error.what}"
                raise DecodeError(where, error.codec, error.offset) from error
            refused(StreamPosition(number, 0, byte), error)
            if error.codec == CODEC:
                return
        for index, event in enumerate(events):
            yield StreamEvent(StreamPosition(number, index, byte), event)
        number, byte = number + 1, byte + size
