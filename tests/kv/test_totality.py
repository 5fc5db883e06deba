"""Whatever bytes arrive, a decoder gives a value or a DecodeError that says where."""

import contextlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import some
from tests.kv.kv_recordings import STREAMS, Pair, pairs
from tidegate.kv import decode_index_entry, decode_meta_key, decode_row, decode_table_key
from tidegate.kv.index_entry import decode_index_value
from tidegate.kv.keys import split_mvcc_key
from tidegate.kv.rows import decode_old_row, decode_raw_row, verify_checksum
from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError
from tidegate.mysql.column_value import column_text
from tidegate.mysql.datum import JsonDatum, decode_datum
from tidegate.mysql.json_value import JsonDuration, JsonTime, Opaque, Unsigned, decode_json, encode_json, render_json
from tidegate.mysql.packed_time import Time

DECODERS = {
    "datum": decode_datum,
    "json": decode_json,
    "row v1": decode_old_row,
    "row v2": decode_raw_row,
    "index value": decode_index_value,
    "table key": decode_table_key,
    "meta key": decode_meta_key,
    "mvcc key": split_mvcc_key,
}
LEADS = st.sampled_from([b"", b"\x80\x00", b"\x80\x01\x01\x00", b"\x80\x02", b"\x01", b"\x03", b"\x06", b"\x0a\x01"])


@pytest.mark.parametrize("name", DECODERS)
@given(lead=LEADS, data=st.binary(max_size=60))
def test_junk(name, lead, data):
    """No bytes make a decoder raise anything but DecodeError."""
    with contextlib.suppress(DecodeError):
        DECODERS[name](lead + data)


@cache
def recorded() -> list[Pair]:
    return [pair for stream in STREAMS for pair in pairs(stream) if pair.kind in {"record", "index"}]


def mutate(data: bytes, draw: st.DataObject) -> bytes:
    """`data` cut, longer, or with some bytes changed."""
    out = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        if out:
            out[draw.draw(st.integers(0, len(out) - 1))] = draw.draw(st.integers(0, 255))
    size = draw.draw(st.integers(0, len(out)))
    return bytes(draw.draw(st.sampled_from([out, out[:size], out + b"\0", out[size:]])))


def read_all(pair: Pair, key: bytes, value: bytes) -> None:
    """Everything that a reader does with a pair."""
    if pair.kind == "index":
        decode_index_entry(pair.table, key, value)
        return
    row = decode_row(pair.table, key, value)
    verify_checksum(pair.table, row, value)
    for column_id, found in row.columns.items():
        with contextlib.suppress(EncodeError):  # numbers and strings have no text
            column_text(pair.table.by_id[column_id].type, found)


def check_damage(data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(recorded()))
    key = mutate(pair.key, data) if data.draw(st.booleans()) else pair.key
    value = mutate(pair.value, data) if key == pair.key or data.draw(st.booleans()) else pair.value
    error = error_of(pair, key, value)

    assert error is None or error.key == key
    assert error is None or key.hex() in str(error)


def error_of(pair: Pair, key: bytes, value: bytes) -> KvDecodeError | None:
    try:
        read_all(pair, key, value)
    except KvDecodeError as error:
        return error
    return None


@settings(deadline=None)
@given(data=st.data())
def test_damaged_pairs(data):
    """A damaged key or value of a recording gives values or a KvDecodeError that shows the key."""
    check_damage(data)


@pytest.mark.slow
@settings(deadline=None, max_examples=some(1_000, 5_000))
@given(data=st.data())
def test_much_damage(data):
    """The same, many times."""
    check_damage(data)


PARTS = (9999, 12, 31, 23, 59, 59, 999_999)
TIMES = st.tuples(*(st.integers(0, limit) for limit in PARTS)).map(Time._make)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.integers(0, (1 << 64) - 1).map(Unsigned)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.builds(Opaque, st.integers(0, 255), st.binary(max_size=200))
    | st.builds(JsonTime, st.sampled_from([14, 15, 16]), TIMES, st.integers(0, 15))
    | st.builds(JsonDuration, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 6))
)
DOCUMENTS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@given(document=DOCUMENTS, tail=st.binary(max_size=5))
def test_documents(document, tail):
    """Every document comes back and has a text."""
    data = encode_json(document)

    found, end = decode_json(data + tail)
    assert end == len(data)
    assert found == document
    assert encode_json(found) == data
    assert render_json(found)
    assert JsonDatum(found) == JsonDatum(document)


def test_deep_documents_are_refused():
    """Nesting beyond TiDB's 100 is an error on both sides, never an exhausted stack."""
    deep = "x"
    for _ in range(101):
        deep = [deep]

    with pytest.raises(EncodeError):
        encode_json(deep)
    data = encode_json("x")
    for _ in range(101):
        data = (
            b"\x03"
            + (1).to_bytes(4, "little")
            + (len(data) + 12).to_bytes(4, "little")
            + data[:1]
            + b"\x0d\0\0\0"
            + data[1:]
        )
    with pytest.raises(DecodeError):
        decode_json(data)


def test_shared_values_are_refused():
    """Entries that point into one another would make a small document huge: an error."""
    inner = bytes([1, 0, 0, 0, 13, 0, 0, 0, 4, 1, 0, 0, 0])
    outer = b"\x03" + bytes([2, 0, 0, 0, 31, 0, 0, 0, 3, 18, 0, 0, 0, 3, 18, 0, 0, 0]) + inner

    with pytest.raises(DecodeError):
        decode_json(outer)


@pytest.mark.parametrize(
    "damage",
    [
        "800001000000010100",
        "80000100000001020001",
        "8004000000000000",
        "80000200000002010100020001",
        "8002000000000009",
    ],
)
def test_rows_that_break_their_form(damage):
    """Rows that are cut, too long, with unknown flags, unsorted ids or half a checksum are refused."""
    with pytest.raises(DecodeError):
        decode_raw_row(bytes.fromhex(damage))
