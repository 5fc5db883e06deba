"""What a message may claim: bytes behind compression, columns, names; and what is kept of the tables it shows."""

import json
from collections.abc import Callable

import cramjam
import pytest

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.columnar import canal_template, decode_chunk, open_template, swept
from tidegate.codec.kept import LayoutMemory, kept
from tidegate.codec.values import NAME_MAX
from tidegate.model.errors import DecodeError
from tidegate.model.table import COLUMNS_MAX

PACKERS = {"lz4": cramjam.lz4.compress, "snappy": cramjam.snappy.compress_raw}
Message = tuple[bytes, bytes]


def compact(value: object) -> bytes:
    """JSON as TiCDC writes it, without a space."""
    return json.dumps(value, separators=(",", ":")).encode()


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(8, "big") + text


def open_message(bodies: list[bytes], table: str = "t") -> Message:
    """A message of one row for each body."""
    head = sized(compact({"ts": 5, "scm": "a", "tbl": table, "t": 1}))
    return (1).to_bytes(8, "big") + head * len(bodies), b"".join(map(sized, bodies))


def open_row(names: list[str], table: str = "t") -> Message:
    """A message of one row of integers."""
    return open_message([compact({"u": {name: {"t": 3, "f": 0, "v": 1} for name in names}})], table)


def canal_row(names: list[str], table: str = "t") -> Message:
    """The same in Canal-JSON."""
    told = {
        "id": 0,
        "database": "a",
        "table": table,
        "pkNames": None,
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "ts": 1,
    }
    row = {"mysqlType": dict.fromkeys(names, "int"), "data": [dict.fromkeys(names, "1")], "old": None}
    return b"", compact({**told, "sql": "", "sqlType": {}, **row, "_tidb": {"commitTs": 5}})


ROWS = {"open-protocol": open_row, "canal-json": canal_row}


@pytest.mark.parametrize("compression", PACKERS)
def test_values_of_a_message_share_one_budget(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are small one by one and too large together are refused, before the last is decompressed."""
    monkeypatch.setattr("tidegate.codec.compression.MAX_BYTES", 1 << 20)
    options = DecodeOptions(protocol="open-protocol", compression=compression)
    body = bytes(PACKERS[compression](json.dumps({"u": {"a": {"t": 15, "v": "x" * 400_000}}}).encode()))

    assert len(decode(*open_message([body] * 2), options)) == 2
    with pytest.raises(DecodeError, match=r"event 2: .*may still become"):
        decode(*open_message([body] * 3), options)


@pytest.mark.parametrize("protocol", ROWS)
def test_columns_and_names_are_bounded(protocol: str) -> None:
    """A row of as many columns as TiDB allows is one, of one more it is none; the same of a name's characters."""
    row, options = ROWS[protocol], DecodeOptions(protocol=protocol)
    wide = [f"c{number}" for number in range(COLUMNS_MAX + 1)]

    (event,) = decode(*row(wide[:-1]), options)
    assert len(event.fields) == COLUMNS_MAX  # type: ignore[union-attr]
    assert decode(*row(["é" * NAME_MAX]), options)
    for names, said in ((wide, "4097 columns"), (["é" * (NAME_MAX + 1)], "more than 1024 characters")):
        with pytest.raises(DecodeError, match=said):
            decode(*row(names), options)
        assert [said in str(one.error) for one in decode_chunk([row(names)] * 2, options).rest] == [True, True]


@pytest.mark.parametrize("protocol", ROWS)
def test_what_is_kept_of_tables_is_bounded(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ever new tables cost what is kept at most, not what they are."""
    row, options = ROWS[protocol], DecodeOptions(protocol=protocol)
    known = {"open-protocol": open_template, "canal-json": canal_template}[protocol]._templates
    known.clear()
    monkeypatch.setattr(swept, "ROWS_MIN", 1)
    monkeypatch.setattr(known, "most", 1 << 18)
    for table in range(60):
        message = row([f"c{table}_{number}" for number in range(20)], f"t{table}")
        decode_chunk([message, message], options)
    assert 0 < known.size <= known.most
    assert len(known) < 30


@pytest.mark.parametrize("protocol", ROWS)
def test_a_chunk_may_fill_the_memory(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an older layout are read though new tables of the same chunk made the memory forget it."""
    row, options = ROWS[protocol], DecodeOptions(protocol=protocol)
    known = {"open-protocol": open_template, "canal-json": canal_template}[protocol]._templates
    known.clear()
    monkeypatch.setattr(swept, "ROWS_MIN", 1)
    old, new = row(["a"]), row(["a", "b"])
    decode_chunk([old, old, new, new], options)
    monkeypatch.setattr(known, "most", known.size)

    chunk = decode_chunk([old, old, *(row(["c"], f"other{number}") for number in range(9) for _ in range(2))], options)

    assert chunk.rest == ()
    assert {batch.table for batch in chunk.batches} == {"t", *(f"other{number}" for number in range(9))}


def test_what_is_kept_is_forgotten_at_its_bound() -> None:
    """Beyond its bytes a memory begins anew, and a value that is larger than it is kept alone."""
    found = LayoutMemory[str, int](10)
    for name, size in (("a", 4), ("b", 6), ("c", 1), ("d", 20)):
        found.keep(name, size, size)
    assert dict(found) == {"d": 20}
    found.clear()
    found.keep("e", 1, 10)
    found.keep("e", 2, 1)
    assert (dict(found), found.size) == ({"e": 2}, 1)


def test_a_function_keeps_its_results() -> None:
    """A result is made once for its arguments; an error is not kept."""
    asked = []

    def double(number: int) -> int:
        asked.append(number)
        return 2 * number if number else 1 // number

    keeping: Callable[[int], int] = kept(lambda number: number)(double)
    assert [keeping(3), keeping(3)] == [6, 6]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            keeping(0)
    assert asked == [3, 0, 0]
