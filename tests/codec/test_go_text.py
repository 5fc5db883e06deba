"""Strings, floats and quoted bytes as Go writes them."""

import json
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codec.go import (
    EASY,
    RAW,
    REPAIRED,
    STANDARD,
    Quote,
    is_printable,
    json32,
    json64,
    newarch_json32,
    newarch_json64,
    positional32,
    positional64,
    quote,
    unquote,
)

WRITERS = {"standard": STANDARD, "easy": EASY, "raw": RAW, "repaired": REPAIRED}
HTML = "\\u003ca\\u003e\\u0026"
BREAKS = "\\u2028\\u2029"


@pytest.mark.parametrize(
    ("text", "standard", "easy", "repaired"),
    [
        ("", "", "", ""),
        ('"\\\n\r\t', '\\"\\\\\\n\\r\\t', '\\"\\\\\\n\\r\\t', '\\"\\\\\\n\\r\\t'),
        ("\b\f", "\\b\\f", "\\u0008\\u000c", "\\u0008\\u000c"),
        ("\x00\x1f\x7f/", "\\u0000\\u001f\x7f/", "\\u0000\\u001f\x7f/", "\\u0000\\u001f\x7f/"),
        ("<a>&", HTML, HTML, "<a>&"),
        ("\u2028\u2029", BREAKS, BREAKS, "\u2028\u2029"),
        ("é测😀\x85", "é测😀\x85", "é测😀\x85", "é测😀\x85"),
        ("a\udcff\udce4b", "a\\ufffd\\ufffdb", "a\\ufffd\\ufffdb", "a\\ufffd\\ufffdb"),
        ("\b<é", "\\b\\u003cé", "\\u0008\\u003cé", "\\u0008<é"),
    ],
)
def test_escapes(text: str, standard: str, easy: str, repaired: str) -> None:
    """Each writer has its own escapes, whichever way a text takes through it."""
    assert [STANDARD(text), EASY(text), REPAIRED(text)] == [f'"{out}"' for out in (standard, easy, repaired)]


def test_raw_leaves_bytes_that_are_not_utf8() -> None:
    """What jsoniter writes of such a byte is the byte."""
    assert RAW("a\udcff").encode("utf-8", "surrogateescape") == b'"a\xff"'


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_strings_are_json(writer: Quote, text: str) -> None:
    """Every JSON reader gets the text back."""
    assert json.loads(writer(text)) == text


@pytest.mark.parametrize(
    ("value", "classic", "newarch", "positional"),
    [
        (0.0, "0", "0", "0"),
        (-0.0, "-0", "-0", "-0"),
        (1.0, "1", "1", "1"),
        (-153.123, "-153.123", "-153.123", "-153.123"),
        (1e-6, "0.000001", "0.000001", "0.000001"),
        (1e-7, "1e-7", "1e-07", "0.0000001"),
        (1.5e-10, "1.5e-10", "1.5e-10", "0.00000000015"),
        (1e20, "100000000000000000000", "100000000000000000000", "100000000000000000000"),
        (1e21, "1e+21", "1e+21", "1000000000000000000000"),
        (1.25e22, "1.25e+22", "1.25e+22", "12500000000000000000000"),
        (5e-324, "5e-324", "5e-324", "0." + "0" * 323 + "5"),
        (1.7976931348623157e308, "1.7976931348623157e+308", "1.7976931348623157e+308", "17976931348623157" + "0" * 292),
        (float("nan"), "0", "0", "0"),
        (float("-inf"), "0", "0", "0"),
    ],
)
def test_doubles(value: float, classic: str, newarch: str, positional: str) -> None:
    """The three layouts of a DOUBLE."""
    assert (json64(value), newarch_json64(value), positional64(value)) == (classic, newarch, positional)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0x3F800000, "1"),
        (0x43191F7D, "153.123"),
        (0x00000001, "0." + "0" * 44 + "1"),
        (0x00800000, "0." + "0" * 37 + "11754944"),
        (0x7F7FFFFF, "34028235" + "0" * 31),
        (0x6B000000, "15474251" + "0" * 19),
        (0x0F800000, "0." + "0" * 28 + "12621775"),
        (0x4CEB79A3, "123456790"),
        (0x80000000, "-0"),
    ],
)
def test_floats(bits: int, text: str) -> None:
    """FLOAT has the fewest digits that name it, subnormal numbers and powers of two included."""
    assert positional32(struct.unpack(">f", bits.to_bytes(4, "big"))[0]) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_name_themselves(value: float) -> None:
    """The digits of a FLOAT are read back as that float, and no fewer digits are."""
    text = positional32(value)
    assert struct.unpack("<f", struct.pack("<f", float(text)))[0] == value
    assert len(text.replace("-", "").replace(".", "").strip("0")) <= 9
    assert float(json32(value)) == float(newarch_json32(value)) == float(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_name_themselves(value: float) -> None:
    """The digits of a DOUBLE are read back as that double in every layout."""
    layouts: tuple[Callable[[float], str], ...] = (json64, newarch_json64, positional64)
    assert {float(layout(value)) for layout in layouts} == {value}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain 'text'", "plain 'text'"),
        (b'\a\b\f\n\r\t\v\\"', '\\a\\b\\f\\n\\r\\t\\v\\\\\\"'),
        (b"\x00\x01\x1f\x7f", "\\x00\\x01\\x1f\\x7f"),
        (b"\xff\x80\xe4\xbd", "\\xff\\x80\\xe4\\xbd"),
        ("é测😀\ufffd".encode(), "é测😀\ufffd"),
        ("\x85\xa0\xad\u2028\u200b\ue000".encode(), "\\u0085\\u00a0\\u00ad\\u2028\\u200b\\ue000"),
        ("\U000e0001\U0010ffff".encode(), "\\U000e0001\\U0010ffff"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ],
)
def test_quoted_bytes(raw: bytes, text: str) -> None:
    """Bytes are quoted as strconv.Quote does."""
    assert quote(raw) == text
    assert unquote(text, "test") == raw


@given(st.binary())
def test_quoted_bytes_come_back(raw: bytes) -> None:
    """Unquoting undoes quoting."""
    assert unquote(quote(raw), "test") == raw


def test_printable_characters_are_those_of_unicode_15() -> None:
    """The table is that of Go, whichever Unicode this Python has."""
    assert sum(map(is_printable, range(0x80, 0x110000))) == 148_903
    assert is_printable(0x10EFD)
    assert not is_printable(0x2FFC)
    assert not any(map(is_printable, (0x80, 0xA0, 0xAD, 0x2028, 0xD800, 0xE000, 0xE0001, 0x10FFFF)))
    assert all(map(is_printable, (0xA1, 0xE9, 0x4E2D, 0xFFFD, 0x1F600, 0xE0100, 0xE01EF)))
