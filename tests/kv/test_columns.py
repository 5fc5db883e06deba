"""Many rows at once give what each gives alone: places, values of every type, documents."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kv.test_made_pairs import KINDS, table_of
from tests.kv.test_totality import DOCUMENTS, mutate
from tidegate.engine.mount import converter
from tidegate.kv import encode_row
from tidegate.kv.json_columns import json_texts
from tidegate.kv.keys import IntHandle
from tidegate.kv.row_columns import MISSING, NULL, arrow_type, column_reader, locate
from tidegate.kv.rows import ChecksumForm, Row, decode_raw_row, encode_raw_row
from tidegate.kv.slices import slices
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import read_value, write_value
from tidegate.mysql.encoding import at_end
from tidegate.mysql.json_value import decode_json, encode_json, render_json

MANY = settings(deadline=None, max_examples=200)
pytestmark = pytest.mark.slow
TYPES = {
    **{name: kind for name, (kind, _) in KINDS.items()},
    "tinyint unsigned": ColumnType(T.TINY, unsigned=True, charset="binary"),
    "float": ColumnType(T.FLOAT, charset="binary"),
    "datetime(3)": ColumnType(T.DATETIME, decimal=3, charset="binary"),
    "timestamp": ColumnType(T.TIMESTAMP, decimal=0, charset="binary"),
    "decimal(20,0)": ColumnType(T.DECIMAL, 20, 0, charset="binary"),
    "decimal(40,20)": ColumnType(T.DECIMAL, 40, 20, charset="binary"),
    "char binary": ColumnType(T.STRING, 20, charset="binary"),
}


def plainly(kind: ColumnType, raw: bytes) -> object:
    """A value as the mounter reads it alone; texts as the bytes that they stand for."""
    value = converter(kind)(read_value(kind, raw))
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def together(kind: ColumnType, cells: list[bytes | None]) -> list[object]:
    """What a column of these values holds; `...` stands for what was left to others."""
    rows = [encode_raw_row({1: raw}) for raw in cells]
    found = locate(slices(pa.array(rows, pa.binary())), [1])
    assert found.fits.all()
    read = column_reader(kind, lambda raw: converter(kind)(read_value(kind, raw)))
    array, unread = read(found.data, found.cells[1])
    assert array.type == arrow_type(kind) or array.type == "binary"
    values = [value.encode() if isinstance(value, str) else value for value in array.to_pylist()]
    return [... if odd else value for value, odd in zip(values, unread.tolist(), strict=True)]


@MANY
@given(names=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5), data=st.data())
def test_places(names, data):
    """Whatever NULLs, absent columns and checksums rows have, the places are those of the bytes."""
    table, _ = table_of(names, data)
    ids = [column.id for column in table.columns]
    rows = []
    for _ in range(data.draw(st.integers(1, 12))):
        kept = data.draw(st.lists(st.sampled_from(ids), unique=True))
        values = {i: data.draw(st.none() | KINDS[name][1]) for i, name in zip(ids, names, strict=True)}
        form = data.draw(st.none() | st.integers(0, 2).map(ChecksumForm))
        rows.append(encode_row(table, Row(7, IntHandle(5), values, tuple(kept)), checksum=form)[1])

    found = locate(slices(pa.array(rows, pa.binary())), ids)

    assert found.fits.all()
    for number, row in enumerate(rows):
        raw = decode_raw_row(row).values
        for i in ids:
            at, size = found.cells[i].offsets[number], found.cells[i].size[number]
            if i not in raw:
                assert size == MISSING
            elif raw[i] is None:
                assert size == NULL
            else:
                assert bytes(found.data[at : at + size]) == raw[i]


@MANY
@given(data=st.data())
def test_damaged_rows_are_left_to_others(data):
    """A row that fits is one that reads alone, with the same bytes; its neighbours are not harmed."""
    row = encode_raw_row({1: b"abc", 2: b"", 3: None, 300 if data.draw(st.booleans()) else 4: b"x" * 9})
    rows = [row, mutate(row, data), row]

    found = locate(slices(pa.array(rows, pa.binary())), [1, 2, 3])

    assert found.fits[0]
    assert found.fits[2]
    if found.fits[1]:
        raw = decode_raw_row(rows[1]).values
        for i in (1, 2, 3):
            at, size = found.cells[i].offsets[1], found.cells[i].size[1]
            there = raw.get(i, b"none")
            assert size < 0 if i not in raw or there is None else bytes(found.data[at : at + size]) == there


def test_foreign_columns_and_many_heads():
    """A row with a column that nobody asked for does not fit where it is unwanted; a hundred heads are no trouble."""
    rows = [encode_raw_row({n: b"a", 200: b"b"}) for n in range(100)]

    assert locate(slices(pa.array(rows, pa.binary())), [200]).fits.all()
    assert np.flatnonzero(~locate(slices(pa.array(rows, pa.binary())), [200], {7, 50}).fits).tolist() == [7, 50]
    assert locate(slices(pa.array([], pa.binary())), [1]).fits.tolist() == []
    assert locate(slices(pa.array([b""], pa.binary())), [1]).fits.tolist() == [False]
    cut = encode_raw_row(dict.fromkeys(range(30), b""))[:40]
    assert locate(slices(pa.array([cut], pa.binary())), [1]).fits.tolist() == [False], "a head without its ends"


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_values(name, data):
    """Values of each type, NULLs among them, are those that the mounter reads one by one, and none is left out."""
    kind, values = KINDS[name]
    cells = [None if v is None else write_value(kind, v) for v in data.draw(st.lists(st.none() | values, max_size=8))]
    assume(cells)

    found = together(kind, cells)

    expected = [None if raw is None else plainly(kind, raw) for raw in cells]
    assert list(map(repr, found)) == list(map(repr, expected)), "0.0 is not -0.0"


@pytest.mark.parametrize("name", TYPES)
@settings(deadline=None)
@given(data=st.data())
def test_junk(name, data):
    """Bytes of any kind are read as alone, or left to the mounter; what it refuses is left to it."""
    kind = TYPES[name]
    cells = data.draw(st.lists(st.binary(max_size=12) | st.binary(min_size=8, max_size=8), min_size=1, max_size=8))

    for raw, value in zip(cells, together(kind, cells), strict=True):
        try:
            expected = plainly(kind, raw)
        except (DecodeError, EncodeError):
            assert value is ...
        else:
            assert value is ... or repr(value) == repr(expected)


def general(raw: bytes) -> str | None:
    """The text of a document by the general reader; None for what it refuses."""
    try:
        document, end = decode_json(raw)
        at_end(raw, end, "json")
        return render_json(document)
    except DecodeError:
        return None


def quick(raw: bytes) -> str | None:
    """The same by `json_texts`."""
    found: str | None = json_texts(pa.array([raw], pa.binary()))[0].as_py()
    return found


@MANY
@given(document=DOCUMENTS, data=st.data())
def test_documents(document, data):
    """A document has the text of the general reader, and so has a damaged one, or both refuse it."""
    raw = encode_json(document)

    assert quick(raw) == general(raw) == render_json(document)
    damaged = mutate(raw, data)
    assert quick(damaged) == general(damaged)


def test_a_document_of_everything():
    """Nested objects, long texts, escapes, empty ones."""
    document = {"a": [1, -2, 1.5, True, None, [], {}], "b": {"c": "x" * 300, "d": 'é"\\\n'}, "": "中"}

    assert json.loads(quick(encode_json(document)) or "") == document
