"""Prepared statements: parameters are found where they stand, read as they were sent, and mean what they say."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.expr.tokens import unquote
from tidegate.model.errors import DecodeError, SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate_upstream.tidb.connection import Bound, ClientStatement, Prepared, bind, read_parameters

NO_MODE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("select ?", "select 7"),
        ("insert into t values (?, 'why?', ?, `a?b`)", "insert into t values (7, 'why?', 7, `a?b`)"),
        ("select 1 /* ? */ + ? -- ?", "select 1 /* ? */ + 7 -- ?"),
        ("select 'it''s ?', \"?\", ?", "select 'it''s ?', \"?\", 7"),
        ("select 'a\\'?', ?", "select 'a\\'?', 7"),
        ("select '?'", "select '?'"),
    ],
)
def test_places(sql: str, shown: str) -> None:
    """A question mark is a parameter outside strings, names and comments only."""
    statement = Prepared.of(sql, NO_MODE)

    assert bind(statement, [7] * len(statement.markers), NO_MODE) == shown


def test_backslashes_are_plain_where_the_mode_says_so() -> None:
    """With NO_BACKSLASH_ESCAPES a backslash before the quote does not keep the string open."""
    mode = frozenset({"NO_BACKSLASH_ESCAPES"})
    statement = Prepared.of("select 'a\\', ?", mode)

    assert bind(statement, [b"\\'"], mode) == "select 'a\\', '\\'''"


@given(text=st.text(st.characters(exclude_categories=("Cs",))))
def test_texts_are_quoted(text: str) -> None:
    """Whatever text is bound, the literal in its place is that text again."""
    literal = bind(Prepared.of("?", NO_MODE), [text.encode()], NO_MODE)

    assert unquote(literal) == text


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_stay_floats(number: float) -> None:
    """A bound double becomes a literal with an exponent, which MySQL reads as a double and not as a DECIMAL."""
    literal = bind(Prepared.of("?", NO_MODE), [number], NO_MODE)

    assert "e" in literal
    assert float(literal) == number


def test_bytes_that_are_no_text() -> None:
    """Bytes that the character set does not have become a hexadecimal literal."""
    assert bind(Prepared.of("?", NO_MODE), [b"\xff\x00"], NO_MODE) == "x'ff00'"


SENT: list[tuple[T, bool, bytes, Bound]] = [
    (T.TINY, False, b"\xff", -1),
    (T.TINY, True, b"\xff", 255),
    (T.SHORT, False, b"\x00\x80", -32768),
    (T.LONG, False, struct.pack("<i", -5), -5),
    (T.LONGLONG, True, b"\xff" * 8, (1 << 64) - 1),
    (T.FLOAT, False, struct.pack("<f", 1.5), 1.5),
    (T.DOUBLE, False, struct.pack("<d", 0.1), 0.1),
    (T.VAR_STRING, False, b"\x03it's"[:4], b"it'"),
    (T.LONG_BLOB, False, b"\xfc\x00\x01" + b"x" * 256, b"x" * 256),
    (T.DATE, False, b"\x04\xe8\x07\x01\x1f", "2024-01-31 00:00:00"),
    (T.DATETIME, False, b"\x07\xe8\x07\x01\x1f\x01\x02\x03", "2024-01-31 01:02:03"),
    (T.DATETIME, False, b"\x0b\xe8\x07\x01\x1f\x01\x02\x03\xd0\xdd\x06\x00", "2024-01-31 01:02:03.450000"),
    (T.DATETIME, False, b"\x00", "0000-00-00 00:00:00"),
    (T.TIME, False, b"\x08\x01\x01\x00\x00\x00\x02\x03\x04", "-26:03:04"),
    (T.TIME, False, b"\x00", "00:00:00"),
    (T.NULL, False, b"", None),
]


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent[0].name)
def test_values(sent: tuple[T, bool, bytes, Bound]) -> None:
    """A value of each type reads as what the client meant."""
    code, unsigned, raw, value = sent
    statement = ClientStatement(Prepared.of("?", NO_MODE))

    assert read_parameters(statement, b"\0\1" + bytes((code, unsigned << 7)) + raw) == [value]


def test_types_are_remembered_and_nulls_are_bits() -> None:
    """A second execution may leave out the types; a parameter whose bit is set is NULL and has no bytes."""
    statement = ClientStatement(Prepared.of("?, ?", NO_MODE))
    types = bytes((T.TINY, 0, T.VAR_STRING, 0))

    assert read_parameters(statement, b"\2\1" + types + b"\7") == [7, None]
    assert read_parameters(statement, b"\0\0\x08\1x") == [8, b"x"]


def test_long_data_takes_the_place_of_a_value() -> None:
    """What came by COM_STMT_SEND_LONG_DATA is the value."""
    statement = ClientStatement(Prepared.of("?, ?", NO_MODE))
    statement.long_data[0] = bytearray(b"long")

    assert read_parameters(statement, b"\0\1" + bytes((T.LONG_BLOB, 0, T.TINY, 0)) + b"\1") == [b"long", 1]


@given(junk=st.binary(max_size=64), count=st.integers(1, 9))
def test_junk(junk: bytes, count: int) -> None:
    """Whatever arrives reads as parameters or raises DecodeError; nothing else escapes."""
    statement = ClientStatement(Prepared.of(",".join("?" * count), NO_MODE))
    try:
        found = read_parameters(statement, junk)
    except DecodeError:
        return

    assert len(found) == count


def test_refusals() -> None:
    """Unreadable text is a syntax error, a wrong number of values is 1210."""
    with pytest.raises(SqlRefused) as unreadable:
        Prepared.of("select 'open", NO_MODE)
    with pytest.raises(SqlRefused) as few:
        bind(Prepared.of("?, ?", NO_MODE), [1], NO_MODE)

    assert (unreadable.value.mysql_code, few.value.mysql_code) == (1064, 1210)
