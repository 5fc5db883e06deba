"""No input is slower than linear in its size, none takes more than twenty times its memory, whatever it is made of.

    slow       time(8n) < 32 · time(n)        8 is linear, 64 is quadratic; processor time, the least of several
    memory     peak <= 20 · input + FLOOR     of Python and Arrow together

Both are asked of every reader: message by message, chunk by chunk, of what tells protocols, and of framed streams.
An input counts as Kafka's records do, with 36 bytes a message; what is compressed counts by what it becomes.
"""

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from tests.golden.bound_cases import (
    CANAL,
    FAMILIES,
    LEARNING,
    LEGACY,
    OPEN,
    WIDE,
    Messages,
    canal_row,
    cell,
    filled,
    open_message,
)
from tidegate.codec import DecodeOptions, decode, read_events, sniff
from tidegate.codec.batch import RECORD_OVERHEAD
from tidegate.codec.canal import LARGE
from tidegate.codec.columnar import decode_chunk
from tidegate.codec.stream import pack_frame, read_frames
from tidegate.model.errors import DecodeError

FIRST, LARGEST = 1 << 12, 1 << 18
"""Bytes of the smaller input: as many as take ENOUGH_S, so that the clock can tell."""
ENOUGH_S = 0.0005
CHUNK = 4_000
STEP, GROWTH_MAX = 8, 32
RATIO = 20
FLOOR = 1 << 20
"""What libraries take once, and errors with their tracebacks."""
LEARNED = {
    **dict.fromkeys(LEARNING, lambda messages: min(messages, 4096 + 1024) * (24 << 10)),
    **dict.fromkeys(WIDE, lambda _messages: 4 << 20),
}
"""What the columnar decoder remembers of layouts: of so many tables, of so many columns, and not more."""
POOLS: list[Any] = []
"""Pools that were counted: arrays that somebody remembers may still lie in them."""
SAMPLED = ("canal-columns", "canal-rows", "open-code-points", "open-empty-lists")


def each(messages: Messages, options: DecodeOptions) -> None:
    """Message by message."""
    for key, value in messages:
        with suppress(DecodeError):
            decode(key, value, options)


def columns(messages: Messages, options: DecodeOptions) -> None:
    """All in chunks as large as landing takes them."""
    for at in range(0, len(messages), CHUNK):
        decode_chunk(messages[at : at + CHUNK], options)


def sniffed(messages: Messages, options: DecodeOptions) -> None:
    """What each message tells of its sender."""
    for key, value in messages:
        with suppress(DecodeError):
            sniff(key, value)


def streamed(messages: Messages, options: DecodeOptions) -> None:
    """All as one framed file."""
    framed = b"".join([pack_frame(key, value) for key, value in messages])
    for _ in read_events(framed, options, lambda _place, _error: None):
        pass


READERS = (each, columns, sniffed, streamed)


def forget() -> None:
    """Empty what the codec remembers of layouts, so that no run is quick because of the one before."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidegate.codec"):
            for attribute in vars(module).values():
                if hasattr(attribute, "cache_clear"):
                    attribute.cache_clear()
            getattr(module, "_templates", {}).clear()


def seconds(read: Callable[..., None], messages: Messages, options: DecodeOptions) -> float:
    """The least processor time of three runs, without the collector of cycles."""
    spent = []
    gc.disable()
    for _ in range(3):
        forget()
        began = time.thread_time()
        read(messages, options)
        spent.append(time.thread_time() - began)
    gc.enable()
    return min(spent)


def growth(read: Callable[..., None], name: str) -> float:
    """How many times longer STEP times the input takes; the least of three tries."""
    options, family = FAMILIES[name]
    size = FIRST
    while seconds(read, family(size), options) < ENOUGH_S and size < LARGEST:
        size *= 2
    small, large = family(size), family(STEP * size)
    found = []
    for _ in range(3):
        found.append(seconds(read, large, options) / seconds(read, small, options))
        if found[-1] < GROWTH_MAX:
            break
    return min(found)


def peak(read: Callable[..., None], messages: Messages, options: DecodeOptions) -> int:
    """The most bytes that Python and Arrow held while `messages` were read."""
    usual, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        read(messages, options)
        return int(tracemalloc.get_traced_memory()[1]) + int(counted.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


def check_memory(name: str, size: int) -> None:
    """Each reader takes no more than its share for an input of the family."""
    options, family = FAMILIES[name]
    messages = family(size)
    size = sum(len(key or b"") + len(value or b"") + RECORD_OVERHEAD for key, value in messages)
    allowed = RATIO * size + FLOOR
    for read in READERS:
        read(messages, options)  # so that all loops are compiled
        forget()
        learned = LEARNED.get(name, int)(len(messages)) if read is columns else 0
        file = size if read is streamed else 0
        assert peak(read, messages, options) <= allowed + learned + file, f"{name}, {read.__name__}"


@pytest.mark.parametrize("name", SAMPLED)
def test_memory_of_some(name: str) -> None:
    """The families that once broke a bound keep it."""
    check_memory(name, 1 << 15)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if number % 2 else pytest.mark.more)
        for number, name in enumerate(FAMILIES)
    ],
)
def test_memory(name: str) -> None:
    """Peak memory is at most twenty times the input."""
    check_memory(name, 1 << 16)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if number % 4 else pytest.mark.slow)
        for number, name in enumerate(FAMILIES)
    ],
)
def test_time(name: str) -> None:
    """Time grows with the size of the input and not with its square."""
    for read in READERS:
        assert growth(read, name) < GROWTH_MAX, f"{name}, {read.__name__}"


@pytest.mark.soak
@pytest.mark.parametrize("name", FAMILIES)
def test_memory_of_a_megabyte(name: str) -> None:
    """The same for inputs as large as Kafka takes them by default."""
    check_memory(name, 1 << 18 if name in LEARNING else 1 << 20)


class Pipe:
    """A stream that gives what there is in small pieces and notes how much it was asked for."""

    def __init__(self, content: bytes, piece: int) -> None:
        self.content, self.piece, self.at, self.most = content, piece, 0, 0

    def read(self, size: int, /) -> bytes:
        """Up to a piece."""
        self.most = max(self.most, size)
        found = self.content[self.at : self.at + min(size, self.piece)]
        self.at += len(found)
        return found


def test_a_length_takes_no_memory_before_its_bytes_are_there() -> None:
    """A frame that claims 200 MiB is asked for piece by piece; what comes is put together once."""
    pipe = Pipe((200 << 20).to_bytes(4, "big") + bytes(1000), 100)
    with pytest.raises(DecodeError, match="ends after 1000 of the 209715200 bytes"):
        list(read_frames(pipe))
    assert pipe.most <= 1 << 20

    frame = pack_frame(b"k", filled(b"abc", 5000))
    assert list(read_frames(Pipe(frame, 7))) == [(b"k", filled(b"abc", 5000))]


def test_rows_are_told_from_braces() -> None:
    """Ever so many objects of nothing are refused; rows in thousands and texts full of braces are not."""
    with pytest.raises(DecodeError, match="rows have 16 at least"):
        decode(None, canal_row(filled(b"{},", LARGE) + b"{}"), CANAL)
    assert len(decode(None, canal_row(filled(b'{"a":"12345678"},', LARGE) + b'{"a":"1"}'), CANAL)) > LARGE // 20
    text = filled(b"},{", 2 * LARGE)
    (row,) = decode(None, canal_row(b'{"a":"%b"}' % text, b'{"a":"text"}'), CANAL)
    assert getattr(row, "after", None) == (text.decode(),)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("enum('a','b','a')", "a", 1),
        ("enum('it''s','b')", "it's", 1),
        ("enum('a','b", "b", "b"),
        ("enum('a','b", "a", 1),
        ("set('a','b')", "b,a", 3),
        (f"set({','.join(repr(str(name)) for name in range(100, 170))})", "100,163", 1 | 1 << 63),
        (f"set({','.join(repr(str(name)) for name in range(100, 170))})", "100,164x", "100,164x"),
        (f"set({','.join(repr(str(name)) + 'x' for name in range(70))})", "64,0", "64,0"),
    ],
)
def test_names_of_official_canal(kind: str, value: str, wanted: object) -> None:
    """A name is its first place in the type, a SET has 64 of them, and what has no end has no name."""
    message = canal_row(json.dumps({"a": value}).encode(), json.dumps({"a": kind}).encode())
    (row,) = decode(None, message, LEGACY["canal-json"])
    assert getattr(row, "after", None) == (wanted,)


def test_what_is_no_value_has_a_column() -> None:
    """A list where a value is wanted is refused with the name of its column, without reading the list."""
    with pytest.raises(DecodeError, match=r"column 'a': Expected .* got `array`"):
        decode(*FAMILIES["open-empty-lists"][1](1000)[0], OPEN)


@pytest.mark.parametrize("beside", ["", "\uee80", "\uee80\ue7ff", "\\uF8ff\ue780", "\\uEE80\uf880\U0010ffff"])
def test_bytes_that_are_not_utf8_come_back(beside: str) -> None:
    """Whatever private characters stand beside them, as such or as escapes."""
    (row,) = decode(*open_message(cell(b'"' + beside.encode() + b'\xff\x80"')), OPEN)
    assert getattr(row, "after", None) == (json.loads(f'"{beside}"') + "\udcff\udc80",)


def test_private_characters_of_all_kinds_leave_none_to_stand_in() -> None:
    """A text with some of each kind and with broken bytes is refused."""
    with pytest.raises(DecodeError, match="private characters"):
        decode(*open_message(cell('"\ue780\uee80\uf880'.encode() + b'\xff"')), OPEN)


@pytest.mark.slow
def test_a_measure_that_can_fail() -> None:
    """A reader that looks at every pair, or that keeps a list a byte, is found out."""

    def quadratic(messages: Messages, _options: DecodeOptions) -> None:
        value = messages[0][1] or b""
        for at in range(0, len(value), 64):
            value.count(b"\x00", at)

    def greedy(messages: Messages, _options: DecodeOptions) -> Any:
        return [[byte] for byte in messages[0][1] or b""]

    assert growth(quadratic, "open-text") > GROWTH_MAX
    messages = FAMILIES["open-text"][1](1 << 17)
    assert peak(greedy, messages, OPEN) > RATIO * (1 << 17) + FLOOR
