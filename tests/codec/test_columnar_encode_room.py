"""The compiled loops of the columnar encoder keep to their buffers, wherever arrays begin in theirs."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.columnar_rows import ByColumnsOnly, batch_of, by_rows, part_of
from tests.codec.encode_rows import TABLE, insert, options, update
from tests.codec.test_columnar_encode import changes
from tests.codec.test_encode_properties import OPTIONS
from tests.counts import some
from tidegate.codec import DecodeOptions, EncodeOptions
from tidegate.codec.columnar import ColumnarEncoder, decode_chunk
from tidegate.codec.columnar.encode import compose, encoder
from tidegate.codec.columnar.encode.cells import DIGITS, ROW_KEYS, canal_cell, open_cell
from tidegate.codec.columnar.encode.characters import TABLES
from tidegate.codec.columnar.encode.compose import CellStep, Composer
from tidegate.codec.columnar.encode.write import GROWTH
from tidegate.codec.stream import read_frames
from tidegate.model.errors import EncodeError
from tidegate.model.path_counts import Reason

PROTOCOLS = ("open-protocol", "canal-json")
TEXT = canal_cell(TABLE.columns[1], options("canal-json"))
STRETCHES = st.tuples(st.integers(0, 24), st.integers(1, 25)).map(sorted)


def written(*fields: CellStep) -> list[bytes]:
    """The rows of some fields."""
    found: list[bytes] = Composer([]).texts(list(fields), len(fields[0].array)).to_pylist()
    return found


def check_parts(drawn: Any, chosen: dict[str, Any], stretch: list[int]) -> None:
    """A stretch of rows, five times those that were drawn, is written as its rows are one by one."""
    (rows, table, keys), (start, stop) = drawn, stretch
    rows, keys = (rows * 25)[:25], (keys * 25)[:25]
    batch, row_ids = batch_of(rows, table)
    for protocol in PROTOCOLS:
        row_key = chosen["dialect"] == "newarch" and protocol == "canal-json"
        given_options = EncodeOptions(protocol=protocol, output_row_key=row_key, **chosen)
        made = ByColumnsOnly(given_options, now_ms=lambda: 7, few_rows=0)
        found = made.append(
            part_of(batch, start, stop),
            table,
            row_ids=row_ids.slice(start, stop - start),
            row_keys=pa.array(keys, pa.binary()).slice(start, stop - start),
        ).messages()
        expected = by_rows([(rows[start:stop], table, keys[start:stop])], given_options)
        assert [*found, *made.flush().messages()] == expected


@settings(deadline=None, max_examples=25)
@given(drawn=changes(), chosen=OPTIONS, stretch=STRETCHES)
def test_arrays_that_begin_amid_others(drawn: Any, chosen: dict[str, Any], stretch: list[int]) -> None:
    """Values, NULLs and offsets of a slice are its own, not those at the same place of the whole."""
    check_parts(drawn, chosen, stretch)


@pytest.mark.slow
@settings(deadline=None, max_examples=some(100, 2_000))
@given(drawn=changes(), chosen=OPTIONS, stretch=STRETCHES)
def test_arrays_that_begin_amid_others_at_length(drawn: Any, chosen: dict[str, Any], stretch: list[int]) -> None:
    """The same for many more tables and slices."""
    check_parts(drawn, chosen, stretch)


def test_growth() -> None:
    """No byte becomes more bytes than the loop has room for."""
    assert max(len(text) for table in TABLES for text in table) == GROWTH


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 1_000, 100_000])
@pytest.mark.parametrize("text", ["<", "\u2028", "x", "é", "\x00"])
def test_values_that_grow_at_the_end(text: str, count: int) -> None:
    """The last value is written whole, however long its escapes are and however little room was left."""
    expected = {"<": b"\\u003c", "\u2028": b"\\u2028", "\x00": b"\\u0000"}.get(text, text.encode())
    for before in (0, 1, 200):
        values = ["x" * before, None, text * count]
        lines = [b'"' + b"x" * before + b'"', b"null", b'"' + expected * count + b'"']
        assert written(CellStep(TEXT, pa.array(values))) == lines


@pytest.mark.parametrize("size", [*range(8), 1_000, 100_000])
def test_base64_at_the_end(size: int) -> None:
    """Base64 of any size ends with its padding, behind digits of the longest number."""
    import base64

    raw, least = bytes(range(256)) * (size // 256 + 1), -(1 << 63)
    fields = CellStep(DIGITS, pa.array([least])), CellStep(ROW_KEYS, pa.array([raw[:size]]))
    assert written(*fields) == [b"%d" % least + base64.b64encode(raw[:size])]


def test_arrays_without_bytes() -> None:
    """Arrow leaves out what is empty: bytes of empty texts, bits of what has no NULL, all of no rows."""
    ends = pa.py_buffer(np.zeros(4, np.int32))
    nothing = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"")])
    assert written(CellStep(TEXT, nothing)) == [b'""'] * 3
    assert written(CellStep(TEXT, nothing.slice(1))) == [b'""'] * 2
    assert written(CellStep(TEXT, pa.nulls(2, pa.string()))) == [b"null"] * 2
    assert written(CellStep(TEXT, pa.array([], pa.string()))) == []
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.uint64()):
        assert written(CellStep(DIGITS, pa.array([0, 7, None, 100], kind).slice(1))) == [b"7", b"null", b"100"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_above_the_bounds_of_an_array(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than an Arrow array can hold are refused, a few less are written."""
    batch, row_ids = batch_of([insert(at, "x" * 100) for at in range(100)], TABLE)
    size = sum(map(len, ColumnarEncoder(options(protocol)).texts(batch, row_ids=row_ids).values.to_pylist()))
    monkeypatch.setattr(compose, "BYTES_MAX", size + 2_000)
    assert len(ColumnarEncoder(options(protocol)).texts(batch, row_ids=row_ids)) == 100
    monkeypatch.setattr(compose, "BYTES_MAX", size - 1)
    with pytest.raises(EncodeError, match="2 GiB; give fewer"):
        ColumnarEncoder(options(protocol)).texts(batch, row_ids=row_ids)


@pytest.mark.parametrize("name", ["open_sysbench", "open_wide", "canal_sysbench", "canal_wide"])
def test_without_compiled_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no numba, the plain encoder writes the same messages, and says why."""
    speed = Path(__file__).parents[1] / "data" / "speed" / f"{name}.bin.gz"
    reading = DecodeOptions(protocol="open-protocol" if name.startswith("open") else "canal-json")
    messages = list(read_frames(gzip.decompress(speed.read_bytes())))[:300]
    decode_chunk(messages, reading)
    (batch,) = decode_chunk(messages, reading).batches
    settings_of = EncodeOptions(protocol=reading.protocol or "", enable_tidb_extension=True)
    by_columns = ByColumnsOnly(settings_of)
    expected = [*by_columns.append(batch).messages(), *by_columns.flush().messages()]
    monkeypatch.setattr(encoder, "AVAILABLE", False)
    singly = ColumnarEncoder(settings_of, few_rows=0)
    assert [*singly.append(batch).messages(), *singly.flush().messages()] == expected
    (slow,) = singly.take_path_counts().slow()
    assert (slow.reason, slow.rows) == (Reason.SWITCHED_OFF, batch.rows)


def rows_of_python() -> None:
    """Write rows with loops that check each index."""
    texts = ["<" * count for count in range(12)] + ["\u2028x" * 5, "é" * 9, None, ""]
    rows = [insert(at, text) for at, text in enumerate(texts)] + [update(texts[3], texts[9])]
    for protocol in PROTOCOLS:
        for start, stop in ((0, 17), (3, 17), (16, 17), (9, 12)):
            made = ByColumnsOnly(options(protocol), few_rows=0)
            batch, row_ids = batch_of(rows, TABLE)
            part = part_of(batch, start, stop)
            found = made.append(part, TABLE, row_ids=row_ids.slice(start, stop - start)).messages()
            expected = by_rows([(rows[start:stop], TABLE, [None] * (stop - start))], options(protocol), lambda: 0)
            assert [*found, *made.flush().messages()] == expected
    for cell, kind in ((DIGITS, pa.int64()), (open_cell(TABLE.columns[0], options()), pa.int8())):
        numbers = [0, -1, -128, 127, None, 99, 100]
        lines = [b"null" if number is None else b"%d" % number for number in numbers]
        assert written(CellStep(cell, pa.array(numbers, kind))) == lines
    assert written(CellStep(ROW_KEYS, pa.array([b"a", b"ab", b"abc"]))) == [b"YQ==", b"YWI=", b"YWJj"]


@pytest.mark.slow
def test_no_index_outside_of_a_buffer() -> None:
    """The loops, run as Python, where numpy checks each index, read and write inside of their buffers only."""
    call = "from tests.codec.test_columnar_encode_room import rows_of_python; rows_of_python()"
    settings_of = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    words = [sys.executable, "-c", call]
    done = subprocess.run(words, env=settings_of, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
