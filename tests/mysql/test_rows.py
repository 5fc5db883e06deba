"""Packets of rows: what a server sends comes out, and a result that breaks off never passes for a whole."""

from collections.abc import Sequence
from random import Random

import pytest

from tidegate.model.errors import ProtocolError
from tidegate.mysql.rows import ResultBroken, ResultRows

LONGEST = 0xFFFFFF
END = b"\xfe\0\0\x02\0"
ERROR = b"\xff\x2e\x23#HY000GC life time is shorter"
Cells = Sequence[bytes | None]


def cell(value: bytes | None) -> bytes:
    """A value as MySQL's documents say."""
    if value is None:
        return b"\xfb"
    size = len(value)
    for mark, width in ((b"", 1), (b"\xfc", 2), (b"\xfd", 3)):
        if size < (0xFB if width == 1 else 1 << 8 * width):
            return mark + size.to_bytes(width, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def packets(payloads: Sequence[bytes], number: int = 0) -> bytes:
    """Payloads as packets, of which long ones are several."""
    parts = []
    for payload in payloads:
        for at in range(0, len(payload) + 1, LONGEST):
            part = payload[at : at + LONGEST]
            parts.append(len(part).to_bytes(3, "little") + bytes([number]) + part)
            number = (number + 1) % 256
    return b"".join(parts)


def result(rows: Sequence[Cells], end: bytes = END) -> bytes:
    """The packets of some rows and their end."""
    return packets([*(b"".join(map(cell, row)) for row in rows), *([end] if end else [])], 3)


class Socket:
    """Bytes that come in pieces."""

    def __init__(self, text: bytes, random: Random) -> None:
        self.text, self.random, self.at = text, random, 0

    def read_into(self, buffer: memoryview) -> int:
        """Some more of them; 0 behind the last."""
        piece = self.text[self.at : self.at + min(len(buffer), self.random.randint(1, 1 << self.random.randint(1, 25)))]
        buffer[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)


def read(text: bytes, width: int, random: Random, buffer_bytes: int = 1000, rows_max: int = 65_536) -> list[Cells]:
    """The rows that come out of packets."""
    socket = Socket(text, random)
    found: list[Cells] = []
    for columns in ResultRows(width, socket.read_into, 3, rows_max=rows_max, buffer_bytes=buffer_bytes).batches():
        for column in columns:
            column.validate(full=True)
        found += zip(*(column.to_pylist() for column in columns), strict=True)
    return found


def some_rows(random: Random, width: int) -> list[Cells]:
    """Rows with NULLs, empty texts, and lengths around where their form changes."""
    sizes = (0, 1, 7, 8, 9, 250, 251, 252, 65_535, 65_536)
    return [
        tuple(
            None
            if random.random() < 0.2
            else random.randbytes(random.choice(sizes) if random.random() < 0.1 else random.randint(0, 12))
            for _ in range(width)
        )
        for _ in range(random.randint(0, random.choice([120, 1200])))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_rows_come_out_as_they_were_sent(seed: int) -> None:
    """However the bytes are cut, and however small the buffer is."""
    random = Random(seed)
    width = random.randint(1, 6)
    rows = some_rows(random, width)

    found = read(result(rows), width, random, random.choice([16, 300, 5000]), random.choice([1, 7, 65_536]))

    assert found == rows


@pytest.mark.slow
@pytest.mark.parametrize("size", [LONGEST - 5, LONGEST - 4, LONGEST - 3, 2 * LONGEST - 10])
def test_a_row_of_several_packets(size: int) -> None:
    """A row of 16 MiB and more is put together; one that fills its packet has an empty one behind it."""
    rows: list[Cells] = [(b"a", b"b"), (b"x" * size, None), (None, b"y" * LONGEST), (b"c", b"d")]

    assert read(result(rows), 2, Random(size)) == rows


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda text: text[:-1], 2013),
        (lambda text: text[: -len(END) - 4], 2013),
        (lambda text: text[:11], 2013),
        (lambda text: text.replace(b"\x04\0\0\x04", b"\x04\0\0\x07"), 2027),
        (lambda text: text.replace(b"\x02ab", b"\x03ab"), 2027),
        (lambda text: text.replace(b"\xfb", b"\xff"), 2027),
    ],
    ids=["half an end", "no end", "half a row", "a packet is missing", "a text too long", "no length"],
)
@pytest.mark.parametrize("buffer_bytes", [16, 1 << 16])
def test_a_broken_result_is_an_error(change: object, number: int, buffer_bytes: int) -> None:
    """A result whose end does not come, or whose packets are not what they say, never passes for a whole one."""
    text = packets([b"\x01a\x01b", b"\x02ab\xfb", b"\x01c\x01d", END], 3)
    rows: list[Cells] = []

    with pytest.raises(ResultBroken) as broken:
        rows += read(change(text), 2, Random(1), buffer_bytes)  # type: ignore[operator]

    assert broken.value.args[0] == number
    assert isinstance(broken.value, ProtocolError)


def test_an_error_in_the_middle_is_raised_with_its_number() -> None:
    """The server's own error ends the rows, behind those that came before it."""
    socket = Socket(result([(b"a",), (b"b",)], ERROR), Random(1))

    batches = ResultRows(1, socket.read_into, 3).batches()

    found = next(batches)[0].to_pylist()
    with pytest.raises(ResultBroken) as broken:
        next(batches)

    assert found == [b"a", b"b"]
    assert (broken.value.number, broken.value.message) == (9006, "GC life time is shorter")
