"""Every recorded key and value, read and written back."""

from collections import Counter

import pytest

from tests.kv.kv_recordings import STREAMS, lines, pairs, raw
from tidegate.kv import (
    decode_index_entry,
    decode_meta_key,
    decode_row,
    decode_table_key,
    encode_index_entry,
    encode_meta_key,
    encode_row,
)
from tidegate.kv.keys import CommonHandle
from tidegate.kv.rows import handle_of, select_stored

COUNTS = {
    "types": {"record": 132, "index": 8, "ddl_job": 38, "ddl_history": 19},
    "partition": {"record": 84, "index": 11, "ddl_job": 102, "ddl_history": 26},
    "ddl": {"record": 5, "index": 8, "ddl_job": 379, "ddl_history": 104},
    "interleave": {"record": 106, "index": 6, "ddl_job": 293, "ddl_history": 64},
    "rename_swap": {"record": 4, "ddl_job": 9, "ddl_history": 4},
}


@pytest.mark.parametrize("stream", STREAMS)
def test_pairs_come_back(stream):
    """Each record and index entry decodes by its table's definition and encodes to the same key and value."""
    seen = Counter()
    for kind, key, value, table in pairs(stream):
        seen[kind] += 1
        if kind == "index":
            assert (key, value) == encode_index_entry(table, decode_index_entry(table, key, value)), key.hex()
        else:
            assert (key, value) == encode_row(table, decode_row(table, key, value)), key.hex()

    assert COUNTS[stream] == dict(seen)


@pytest.mark.parametrize("stream", STREAMS)
def test_meta_keys_come_back(stream):
    """Each key of the schema decodes and encodes to itself."""
    keys = [raw(line, "key_b64") for line in lines(stream) if line["kind"] == "meta"]

    assert keys
    assert keys == [encode_meta_key(decode_meta_key(key)) for key in keys]


def test_rows_hold_what_the_rules_say():
    """Fresh rows hold the columns that `select_stored` selects, and their handles are those of their primary keys."""
    checked = handles = 0
    for stream in ("types", "partition"):
        for kind, key, value, table in pairs(stream):
            if kind != "record":
                continue
            row = decode_row(table, key, value)
            checked += 1
            assert set(select_stored(table, row.columns)) == set(row.stored), key.hex()
            if table.int_handle is not None or table.common_handle is not None:
                handles += 1
                assert row.handle == handle_of(table, row.columns)

    assert checked > 200
    assert handles > 100


def test_both_kinds_of_handle_are_recorded():
    """The recordings hold int handles and common ones, so that neither is tested by accident alone."""
    kinds = {type(decode_table_key(key).handle) for kind, key, _, _ in pairs("partition") if kind == "record"}

    assert CommonHandle in kinds
    assert len(kinds) == 2
