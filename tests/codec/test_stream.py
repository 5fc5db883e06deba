"""Events of many messages, each with its place."""

import doctest
import gzip
from io import BytesIO

import pytest

from tests.codec.encode_rows import TABLE, TS, encoder, insert
from tests.golden.codec_cases import DATA
from tidegate.codec import DecodeOptions, stream
from tidegate.codec.stream import StreamEvent, StreamPosition, decode_messages, pack_frame, read_events, read_frames
from tidegate.model.errors import DecodeError
from tidegate.model.event import Resolved

OPEN = DecodeOptions(protocol="open-protocol")


def framed(*events: object) -> bytes:
    """A file of these events, rows in one message."""
    made = encoder("open")
    done = [m for e in events for m in made.append(e, TABLE)]  # type: ignore[arg-type]
    return b"".join(pack_frame(m.key, m.value) for m in (*done, *made.flush()))


def test_places() -> None:
    """Events carry message, event and byte; a stream gives what bytes give."""
    first, second = framed(insert(1), insert(2)), framed(Resolved(TS))
    found = list(read_events(first + second, OPEN))
    assert [each.position for each in found] == [
        StreamPosition(0, 0, 0),
        StreamPosition(0, 1, 0),
        StreamPosition(1, 0, len(first)),
    ]
    assert found[2] == StreamEvent(StreamPosition(1, 0, len(first)), Resolved(TS))
    assert list(read_events(BytesIO(first + second), OPEN)) == found
    assert list(decode_messages(read_frames(first + second), OPEN)) == found


def test_places_of_a_recording_find_their_frames() -> None:
    """The byte of an event is where reading may begin again."""
    raw = gzip.decompress((DATA / "speed" / "open_sysbench.bin.gz").read_bytes())
    events = read_events(raw, OPEN)
    for place, event in events:
        if place.message == 7:
            assert next(read_events(raw[place.byte :], OPEN)).event == event
            return


def test_bad_messages_are_told_and_passed_over() -> None:
    """With `refused` the others go on; a torn frame is the last thing told."""
    good = framed(insert())
    raw = good + pack_frame(b"\0", b"") + good + b"\0\0"
    told: list[tuple[StreamPosition, str]] = []
    found = list(read_events(raw, OPEN, lambda place, error: told.append((place, error.codec))))
    assert [each.position.message for each in found] == [0, 2]
    assert told == [
        (StreamPosition(1, 0, len(good)), "open-protocol"),
        (StreamPosition(3, 0, 2 * len(good) + 9), "frame"),
    ]


def test_without_it_the_first_is_raised() -> None:
    """The error says which message, and where it begins."""
    good = framed(insert())
    events = read_events(good + pack_frame(b"\0", b"") + good, OPEN)
    assert next(events).position.message == 0
    with pytest.raises(DecodeError, match=rf"message 1 \(byte {len(good)}\)"):
        next(events)


def test_example() -> None:
    """The example in the module is true."""
    assert doctest.testmod(stream).failed == 0
