"""What a slice of changes comes to, key by key."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sink.delta.lake import TEXT, Rows, column, options, table
from tidegate.changelog import files
from tidegate.changelog.files import chunks_of, text_chunks
from tidegate.engine.change import Chunk, ChunkPart
from tidegate.model.errors import SchemaError
from tidegate.model.table import TableName
from tidegate.sink.delta import rows as images
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.rows import NetChanges, log_rows, net_changes

T = table(column(1, "id"), column(2, "v", TEXT))
LAKE = options("lake")


def _net(chunks: Iterable[Chunk]) -> NetChanges:
    return net_changes(chunks, T, first_schema(T, LAKE).columns, LAKE)


def net(rows: Rows) -> NetChanges:
    """The net changes of all rows: the same from texts and typed columns, in one chunk and in many."""
    landed = rows.landed(TableName("s", "t"))
    found = _net(text_chunks(landed))
    keys = found.keys.column("id").to_pylist()

    for other in (_net(chunks_of([landed])), _net(chunks_of([landed], 1))):
        assert (found.keys.sort_by("id"), found.rows.sort_by("id")) == (
            other.keys.sort_by("id"),
            other.rows.sort_by("id"),
        )
    assert found.count == landed.num_rows
    assert len(set(keys)) == len(keys)
    assert keys[: found.rows.num_rows] == found.rows.column("id").to_pylist()
    return found


def test_inserts_of_different_keys_stay_as_they_are():
    """Where every change is an INSERT of a key of its own, all of them count, in the order in which they came."""
    rows = Rows()
    for key in (5, 3, 9):
        rows.insert(20, id=key, v="x")

    assert net(rows).rows.column("id").to_pylist() == [5, 3, 9]


def test_an_insert_that_came_twice_counts_once():
    """A replay repeats a change under the same commit_ts; it is one row all the same."""
    rows = Rows()
    for _ in range(2):
        rows.insert(20, id=1, v="x")

    assert net(rows).rows.to_pylist() == [{"id": 1, "v": "x"}]


def test_keys_may_change_places_within_a_transaction():
    """Two rows that swap their keys in one transaction are both there afterwards."""
    rows = Rows()
    rows.update(20, {"id": 1}, id=2, v="one")
    rows.update(20, {"id": 2}, id=1, v="two")

    assert {row["id"]: row["v"] for row in net(rows).rows.to_pylist()} == {1: "two", 2: "one"}


def test_a_key_that_an_update_leaves_is_gone():
    """An UPDATE that changes the key touches both keys and leaves the new one."""
    rows = Rows()
    rows.update(20, {"id": 1}, id=2, v="x")
    found = net(rows)

    assert found.rows.column("id").to_pylist() == [2]
    assert sorted(found.keys.column("id").to_pylist()) == [1, 2]


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["put", "drop", "move"]), st.integers(0, 5), st.booleans()),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_net_changes_are_those_of_a_dict(steps):
    """Whatever is inserted, updated, moved and deleted, in messages of two layouts, the outcome is a dict's."""
    rows, model, touched = Rows(), {}, set()
    for ts, (key, deed, other, turned) in enumerate(steps, 20):
        value = f"v{ts}"
        image = {"v": value, "id": key} if turned else {"id": key, "v": value}
        if deed == "drop" and key in model:
            rows.delete(ts, **image | {"v": model.pop(key)})
        elif deed == "move" and key in model and other not in model:
            rows.update(ts, {"id": key, "v": model.pop(key)}, **image | {"id": other})
            model[other] = value
            touched.add(other)
        elif key in model:
            rows.update(ts, {"v": model[key]}, **image)
            model[key] = value
        else:
            rows.insert(ts, **image)
            model[key] = value
        touched.add(key)
    if not rows.changes:
        return
    found = net(rows)

    assert {row["id"]: row["v"] for row in found.rows.to_pylist()} == model
    assert set(found.keys.column("id").to_pylist()) == touched
    assert isinstance(found.rows, pa.Table)


def test_a_large_transaction_comes_in_parts(monkeypatch):
    """Rows beyond what is converted at once: the outcome is the same, and of a table without a key a repeat falls away
    though it stands in another part than the change."""
    rows = Rows()
    for _ in range(2):
        for key in range(5):
            rows.update(20, {"v": "a"}, id=key, v="b")
        rows.delete(20, id=9, v="c")
    logged = table(column(1, "id"), column(2, "v", TEXT), key=())
    columns = first_schema(logged, LAKE).columns
    landed, whole = rows.landed(TableName("s", "t")), net(rows)
    assert len(next(text_chunks(landed)).parts) == 1
    monkeypatch.setattr(files, "PART_BYTES", 1)
    monkeypatch.setattr(images, "PIECE_BYTES", 1)
    (chunk,) = text_chunks(landed)

    assert [part.batch.rows for part in chunk.parts] == [1] * 12
    found = _net([chunk])
    assert (found.keys, found.rows) == (whole.keys, whole.rows)
    log = log_rows([chunk], logged, columns, LAKE).to_pylist()
    assert [(row["id"], row["v"], row["_tidegate_op"]) for row in log] == [
        *((key, "b", "U") for key in range(5)),
        (9, "c", "D"),
    ]
    assert {row["_tidegate_before"] for row in log[:5]} == {f'{{"id":"{key}","v":"a"}}' for key in range(5)}


def test_a_column_that_no_ddl_brought_is_told_with_its_row():
    """Table, ts and message stand in the error and travel with it; a row of no message has no place."""
    rows = Rows()
    rows.insert(20, id=1, v="x")
    rows.insert(30, id=1, v="x", w="y")
    chunks = list(text_chunks(rows.landed(TableName("s", "t"))))

    with pytest.raises(
        SchemaError, match=r"s\.t: column w .* at ts 30 \(topic x partition 0 offset 1\).* the topic"
    ) as told:
        _net(chunks)
    where = told.value.where
    assert (where.table, where.commit_ts, where.topic, where.partition, where.offset) == ("s.t", 30, "x", 0, 1)
    bare = [
        replace(chunk, parts=[ChunkPart(replace(one.batch, positions=None), one.numbers) for one in chunk.parts])
        for chunk in chunks
    ]
    with pytest.raises(SchemaError, match=r"at ts 30 but not in the definition of ts 10; a DDL is missing") as told:
        _net(bare)
    assert (told.value.where.commit_ts, told.value.where.topic) == (30, "")
