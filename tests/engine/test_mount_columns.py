"""Mounted as columns, records give the changes that the mounter gives one by one."""

from collections import defaultdict
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.engine.test_mount import NOT_NULL, TIMESTAMP, VARCHAR, column, history, record, table
from tests.kv.kv_recordings import STREAMS, lines, raw
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.columnar.values import Mismatch
from tidegate.engine import mount_columns
from tidegate.engine.mount import Mounter
from tidegate.engine.mount_columns import ColumnMounter, Records
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle, RecordKey, decode_table_key
from tidegate.kv.rows import encode_raw_row
from tidegate.model.errors import KvDecodeError, TableNotFound
from tidegate.model.path_counts import Reason
from tidegate.mysql.packed_time import Time
from tidegate.schema.job import decode_job_row
from tidegate.schema.stored.definition import table_layout
from tidegate.schema.stored.snapshot import SchemaHistory


def records(physical_id, rows):
    """Records of (key, value, old value, commit_ts)."""
    keys, values, olds, times = zip(*rows, strict=True)
    columns = (pa.array(column, pa.binary()) for column in (keys, values, olds))
    return Records(physical_id, *columns, np.array(times, np.int64))


def events(found):
    """The changes as events."""
    return list(rows_of(found.batch, range(found.batch.rows), found.table.wire, found.row_ids))


def check(mounter, physical_id, rows):
    """Both ways give the same; how many changes there are."""
    plain = [mounter.mount(*row) for row in rows]
    found = ColumnMounter(mounter).mount(records(physical_id, rows))
    expected = [each.row for each in plain if each is not None]
    if found is None:
        assert not expected
        return 0
    assert events(found) == expected
    assert found.rows.tolist() == [at for at, each in enumerate(plain) if each is not None]
    return len(expected)


def recorded(stream):
    """All recorded rows between two DDLs, table by table, with a mounter of that time."""
    schema = SchemaHistory()
    mounter, held = Mounter(schema, force_replicate=True), defaultdict(list)
    for line in [*lines(stream), {"kind": "end", "ddl_done": True}]:
        key = raw(line, "key_b64") if "key_b64" in line else b""
        if line.get("ddl_done") and not line.get("mount_error"):
            for table_id, rows in held.items():
                yield mounter, table_id, rows
            held.clear()
            if key:
                schema.apply(decode_job_row(key, raw(line, "value_b64")), line["commit_ts"])
        if line["kind"] == "record" and line.get("row"):
            found = decode_table_key(key)
            assert isinstance(found, RecordKey)
            row = key, raw(line, "value_b64") or None, raw(line, "old_value_b64") or None, line["commit_ts"]
            held[found.table_id].append(row)


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_rows(stream, monkeypatch):
    """All recorded rows; those of the old form are put in their places."""
    monkeypatch.setattr(mount_columns, "_UNREAD_SHARE", 1)

    assert sum(check(*each) for each in recorded(stream)) >= 4


DEFINITION = table(
    column(2, "v", flag=NOT_NULL, origin_default="7"),
    column(3, "w", VARCHAR, origin_default="zwölf"),
    column(4, "x", VARCHAR),
    column(5, "at", TIMESTAMP),
)


def made(chance: Random, handle: int, *, version: int = 2) -> bytes:
    """The value of a row that lacks some columns and has NULLs."""
    values = {2: chance.randrange(-9, 9), 3: b"\xff" if chance.random() < 0.05 else b"w", 4: None}
    values[5] = Time(2024, 1, chance.randrange(1, 29), 1, 2, 3)
    kept = tuple(i for i in values if chance.random() < 0.8)
    return encode_row(table_layout(DEFINITION), Row(5, IntHandle(handle), values, kept, version))[1]


def mixed(seed: int, odd: float) -> list[tuple]:
    """Rows of all kinds, a part of them in the old form."""
    chance, rows = Random(seed), []
    for handle in range(1, 60):
        key, _ = record(DEFINITION, {1: handle, 2: 0, 3: b"", 4: None, 5: None})
        images = [
            made(chance, handle, version=1 if chance.random() < odd else 2) if chance.random() < 0.7 else None
            for _ in "ab"
        ]
        rows.append((key, *images, 11 + handle))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_mixed_rows(seed):
    """Missing columns, NULLs, bytes that are no UTF-8, rows of the old form here and there, rows that are nothing."""
    assert check(Mounter(history(DEFINITION)), 5, mixed(seed, 0.05)) > 40


def test_rows_of_the_old_form():
    """Are read one by one, all of them."""
    with pytest.raises(Mismatch, match="in another form"):
        ColumnMounter(Mounter(history(DEFINITION))).mount(records(5, mixed(1, 1.0)))


def test_what_is_refused():
    """Damaged rows and unknown tables raise what the mounter raises; two versions of a table are a Mismatch."""
    mounter = ColumnMounter(Mounter(history(DEFINITION, table(column(2, "v")))))
    rows = mixed(1, 0)
    key, value = record(DEFINITION, {1: 99, 2: 1, 3: b"", 4: None, 5: None})

    with pytest.raises(KvDecodeError, match="a number of 3 bytes") as raised:
        mounter.mount(
            records(5, [*[row for row in rows if row[3] < 20], (key, encode_raw_row({2: b"abc", 3: b""}), None, 15)])
        )
    assert raised.value.key == key
    with pytest.raises(TableNotFound):
        mounter.mount(records(6, rows[:3]))
    with pytest.raises(Mismatch, match="two versions") as two:
        mounter.mount(records(5, rows))
    assert two.value.reason is Reason.TWO_VERSIONS
    with pytest.raises(Mismatch, match="handles that are no numbers"):
        mounter.mount(records(5, [(key + b"\0", value, None, 15)]))
