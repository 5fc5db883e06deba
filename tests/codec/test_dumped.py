"""Rows of Dumpling's files are read as they were written, wherever the text is cut; anything else is a fault."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.load.dumpling import Dumped, rows_file
from tidegate.codec.columnar.dumped import Dialect, from_hex, scan

HOWS = {
    "sql": Dumped(csv=False),
    "sql, doubled": Dumped(csv=False, escapes=False),
    "csv": Dumped(header=False),
    "csv, doubled": Dumped(header=False, escapes=False),
    "csv, odd": Dumped(header=False, separator="|+|", delimiter="'", null=""),
    "csv, bare": Dumped(header=False, delimiter=""),
}
KINDS = ("int", "varchar", "blob")
TEXTS = st.none() | st.binary(max_size=9) | st.text("\\\"',|+;()\n\r\0xbN", max_size=9).map(str.encode)
ROWS = st.lists(st.tuples(st.none() | st.integers().map(lambda n: b"%d" % n), TEXTS, TEXTS), max_size=7)


def dialect_of(how: Dumped) -> Dialect:
    """What a reader is told."""
    if not how.csv:
        return Dialect(sql=True, escapes=how.escapes, quote=b"'", null=b"NULL")
    return Dialect(False, how.escapes, how.separator.encode(), how.delimiter.encode(), how.null.encode())


def read(pieces: list[bytes], dialect: Dialect, columns: int, rows_max: int = 2) -> list[tuple[bytes | None, ...]]:
    """The rows of a text that comes in pieces."""
    rows, rest = [], b""
    for number, piece in enumerate(pieces):
        text, at, last = np.frombuffer(rest + piece, np.uint8), 0, number == len(pieces) - 1
        while True:
            found = scan(text, at, dialect, columns, rows_max, last=last)
            assert found.fault == -1
            assert all(column.validate(full=True) is None for column in found.columns)
            rows += zip(*(column.to_pylist() for column in found.columns), strict=True)
            at = found.end
            if found.rows < rows_max:
                break
        rest = bytes(text[at:])
    assert rest == b""
    return rows


@pytest.mark.parametrize("how", HOWS)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 200), max_size=3))
def test_round_trip(how: str, rows: list[tuple[bytes | None, ...]], cuts: list[int]) -> None:
    """Any bytes and NULL, in pieces of any size."""
    text = rows_file("t", ("a", "b", "c"), KINDS, rows, HOWS[how], named=False)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert read([text[low:high] for low, high in pairwise(bounds)], dialect_of(HOWS[how]), 3) == rows


def test_what_other_writers_do() -> None:
    """Bits, large and small letters, doubled quotes among escapes, line ends, and no line end at the end."""
    sql = b"/*!40101 SET NAMES binary*/;\r\n\nINSERT INTO `t` (`a`,`b`) VALUES\n"
    sql += b"(b'101',X'aBc0'),\r\n(b'100000001','a''\\Zb');"
    assert read([sql], dialect_of(HOWS["sql"]), 2) == [(b"\x05", b"\xab\xc0"), (b"\x01\x01", b"a'\x1ab")]
    assert read([b'1,"a ""b"""\n2,"\\""'], dialect_of(HOWS["csv"]), 2) == [(b"1", b'a "b"'), (b"2", b'"')]


@pytest.mark.parametrize(
    ("how", "text", "fault"),
    [
        ("sql", b"(1,2),\n(1,2,3);\n", 11),
        ("sql", b"(1);\n", 2),
        ("sql", b"(1,2)\n", 4),
        ("sql", b"(1,2),(3,4);\n", 4),
        ("sql", b"INSERT INTO `t` VALUES (1,2);\n", 0),
        ("sql", b"1,2\n", 0),
        ("sql", b"(1,_binary'2');\n", 10),
        ("csv", b"1,2,3\r\n", 3),
        ("csv", b"1\r\n", 1),
        ("csv", b'1,"a"b\n', 5),
        ("csv", b"1,2\r3,4\r", 3),
    ],
)  # fmt: skip
def test_faults(how: str, text: bytes, fault: int) -> None:
    """What is no row is not left out; the fault is where it differs."""
    assert scan(np.frombuffer(text, np.uint8), 0, dialect_of(HOWS[how]), 2, 9, last=True).fault == fault


def test_bytes_that_are_not_hexadecimal() -> None:
    """They are named with their row."""
    for text in (b"(1,x'0'),\n", b"(1,x'0g'),\n", b"(1,b'02'),\n"):
        with pytest.raises(ValueError, match="is not hexadecimal"):
            scan(np.frombuffer(text, np.uint8), 0, dialect_of(HOWS["sql"]), 2, 9, last=True)
    whole = scan(np.frombuffer(b'"00fF",\\N\r\n', np.uint8), 0, dialect_of(HOWS["csv"]), 2, 9, last=True)
    assert [from_hex(column).to_pylist() for column in whole.columns] == [[b"\0\xff"], [None]]
