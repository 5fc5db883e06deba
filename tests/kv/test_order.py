"""Bytes sort as values do: what makes a key-value store an index."""

import struct
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.kv.keys import IntHandle, index_prefix, mvcc_key, record_key, table_span, unsigned_handle
from tidegate.model.errors import EncodeError
from tidegate.mysql.datum import DecimalDatum, Duration, Unsigned, decode_datum, encode_key
from tidegate.mysql.encoding import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    DecimalForm,
    decode_bytes,
    decode_compact,
    decode_decimal,
    decode_float,
    decode_int,
    decode_uint,
    decode_uvarint,
    decode_varint,
    encode_bytes,
    encode_compact,
    encode_decimal,
    encode_float,
    encode_int,
    encode_uint,
    encode_uvarint,
    encode_varint,
    invert,
)
from tidegate.mysql.packed_time import ZERO, Time, pack_core, pack_time, unpack_core, unpack_time

pytestmark = pytest.mark.slow

INTS = st.integers(MIN_INT, MAX_INT)
UINTS = st.integers(0, MAX_UINT)
FLOATS = st.floats(allow_nan=False)
BYTES = st.binary(max_size=40) | st.builds(lambda n, tail: b"\0" * n + tail, st.integers(0, 20), st.binary(max_size=3))
FORM = DecimalForm(25, 7)
DECIMALS = st.integers(-(10**25) + 1, 10**25 - 1).map(lambda n: Decimal(n).scaleb(-7))
TIMES = st.builds(
    Time,
    st.integers(0, 9999),
    st.integers(0, 12),
    st.integers(0, 31),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
)
KINDS = {
    "int": (INTS, encode_int, decode_int),
    "uint": (UINTS, encode_uint, decode_uint),
    "float": (FLOATS, encode_float, decode_float),
    "bytes": (BYTES, encode_bytes, decode_bytes),
    "decimal": (DECIMALS, lambda x: encode_decimal(x, FORM), lambda data, at: decode_decimal(data, at, FORM)),
    "time": (TIMES, lambda x: encode_uint(pack_time(x)), lambda data, at: (unpack_time(decode_uint(data, at)[0]), 8)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_order_is_kept(kind, data):
    """Of two values the smaller one has the smaller bytes, and equal values have equal ones."""
    values, encode, decode = KINDS[kind]
    left, right = data.draw(values), data.draw(values)

    assert (encode(left) < encode(right)) == (left < right)
    assert (encode(left) == encode(right)) == (left == right)
    assert decode(encode(left), 0)[0] == left
    assert (invert(encode(left)) < invert(encode(right))) == (left > right)


@given(data=BYTES, tail=st.binary(max_size=20))
def test_strings_end_by_themselves(data, tail):
    """A string is read back whatever follows it, in every form; the length is a multiple of nine."""
    ascending, compact = encode_bytes(data), encode_compact(data)

    assert decode_bytes(ascending + tail) == (data, len(ascending))
    assert decode_compact(compact + tail) == (data, len(compact))
    assert len(ascending) == (len(data) // 8 + 1) * 9


@given(left=st.tuples(BYTES, INTS), right=st.tuples(BYTES, INTS))
def test_keys_of_several_columns(left, right):
    """A key of two columns sorts by the first and then by the second, however long the strings are."""
    assert (encode_key(left) < encode_key(right)) == (left < right)


@given(value=INTS, unsigned=UINTS)
def test_varints(value, unsigned):
    """Short numbers come back, and take one byte for seven bits."""
    assert decode_varint(encode_varint(value)) == (value, len(encode_varint(value)))
    assert decode_uvarint(encode_uvarint(unsigned)) == (unsigned, len(encode_uvarint(unsigned)))
    assert len(encode_uvarint(unsigned)) == max(1, -(-unsigned.bit_length() // 7))


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**30), max_value=10**30))
@example(number=Decimal("-0.000000000"))
@example(number=Decimal("999999999999999999999999999999.999999999"))
def test_decimals_say_their_form(number):
    """A decimal without a prescribed form takes its own digits, and comes back with all of them."""
    datum, _ = decode_datum(encode_key([DecimalDatum(number)]))

    assert datum.value == number
    assert datum.value.as_tuple().exponent == -9
    assert encode_key([datum]) == encode_key([DecimalDatum(number)])


@given(left=UINTS, right=UINTS)
def test_unsigned_handles_keep_their_bits(left, right):
    """An unsigned primary key comes back; its row keys sort as signed numbers, as in TiDB."""
    assert unsigned_handle(left).unsigned == left
    signed = [struct.unpack(">q", struct.pack(">Q", number))[0] for number in (left, right)]
    keys = [record_key(1, unsigned_handle(number)) for number in (left, right)]
    assert (keys[0] < keys[1]) == (signed[0] < signed[1])


@given(table_id=st.integers(1, 1 << 48), handle=INTS, index_id=st.integers(1, 1 << 20))
def test_spans_hold_rows_alone(table_id, handle, index_id):
    """The span that a changefeed subscribes to holds the rows of a table, and no index entry or other table."""
    start, end = table_span(table_id)

    assert start <= record_key(table_id, IntHandle(handle)) < end
    assert not start <= index_prefix(table_id, index_id) < end
    assert not start <= record_key(table_id + 1, IntHandle(handle)) < end


@given(left=st.tuples(BYTES, UINTS), right=st.tuples(BYTES, UINTS))
def test_versions_sort_newest_first(left, right):
    """In TiKV keys sort as before, and the versions of one key from the newest to the oldest."""
    expected = left[0] < right[0] or (left[0] == right[0] and left[1] > right[1])

    assert (mvcc_key(*left) < mvcc_key(*right)) == expected


@given(time=TIMES, tail=st.integers(0, 15))
def test_core_times(time, tail):
    """The form inside JSON comes back with its four bits."""
    assert unpack_core(pack_core(time, tail)) == (time, tail)


def test_edges():
    """Zero times are 0, minus zero is zero, and what has no form is refused."""
    assert pack_time(ZERO) == 0
    assert encode_float(-0.0) == encode_float(0.0)
    assert encode_key([Unsigned(1), Duration(1)]) == b"\x04" + encode_uint(1) + b"\x07" + encode_int(1)
    for refused in (
        lambda: encode_int(MAX_INT + 1),
        lambda: encode_uint(-1),
        lambda: encode_varint(MIN_INT - 1),
        lambda: encode_uvarint(MAX_UINT + 1),
        lambda: pack_time(Time(2020, 13, 1)),
        lambda: encode_decimal(Decimal("1.25"), DecimalForm(4, 1)),
        lambda: encode_decimal(Decimal(1000), DecimalForm(4, 1)),
        lambda: encode_decimal(Decimal("NaN"), DecimalForm(4, 1)),
        lambda: encode_key(["text"]),
    ):
        with pytest.raises(EncodeError):
            refused()
