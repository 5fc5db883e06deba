"""Events of many messages, each with its place.

    framed bytes ─ read_frames ─┐
    messages of any source     ─┴→ decode ─→ Placed(place, event)       place = message, event in it, byte of its frame
                                     └─ DecodeError ─→ refused(place, error), and on with the next message
                                                       without `refused` it is raised, the place in its text

The byte of a frame is where its first length stands in a framed file; messages that come from elsewhere are counted as
if they stood in one.  A file that ends within a frame gives all events before it, then the error.

>>> from tidegate.codec.frame import pack_frame
>>> mark = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
>>> options = DecodeOptions(protocol="canal-json")
>>> [(found.place.byte, found.event) for found in read_events(pack_frame(None, mark) * 2, options)]
[(0, Resolved(ts=7)), (59, Resolved(ts=7))]
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from tidegate.codec.frame import CODEC as FRAME
from tidegate.codec.frame import Readable, read_frames
from tidegate.codec.options import DecodeOptions
from tidegate.codec.table import decode
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event

_LENGTHS: Final = 8


class StreamPlace(NamedTuple):
    """Which message, counted from 0; which event in it; and where its frame begins."""

    message: int
    event: int
    byte: int


class Placed(NamedTuple):
    """An event and where it came from."""

    place: StreamPlace
    event: Event


Refused: TypeAlias = Callable[[StreamPlace, DecodeError], None]
"""Told of each message that cannot be read."""


def read_events(source: bytes | Readable, options: DecodeOptions, refused: Refused | None = None) -> Iterator[Placed]:
    """Return the events of framed bytes or of a stream of them, in order."""
    return decode_messages(read_frames(source), options, refused)


def decode_messages(
    messages: Iterable[tuple[bytes | None, bytes | None]], options: DecodeOptions, refused: Refused | None = None
) -> Iterator[Placed]:
    """Return the events of messages, in order; DecodeError at the first that cannot be read, unless `refused` takes
    it."""
    number, byte = 0, 0
    stream = iter(messages)
    while True:
        found: tuple[Event, ...] = ()
        try:
            key, value = next(stream)
            size = _LENGTHS + len(key or b"") + len(value or b"")
            found = decode(key, value, options)
        except StopIteration:
            return
        except DecodeError as error:
            if refused is None:
                where = f"message {number} (byte {byte}): {error.what}"
                raise DecodeError(where, error.codec, error.offset) from error
            refused(StreamPlace(number, 0, byte), error)
            if error.codec == FRAME:
                return
        for index, event in enumerate(found):
            yield Placed(StreamPlace(number, index, byte), event)
        number, byte = number + 1, byte + size
