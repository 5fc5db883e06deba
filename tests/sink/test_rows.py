"""What a slice of changes comes to, key by key."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sink.lake import TEXT, Rows, column, options, table
from tidegate.changelog.columns import LANDED_SCHEMA
from tidegate.model.table import TableName
from tidegate.sink.delta.columns import first_columns
from tidegate.sink.delta.rows import Changes, net_changes

T = table(column(1, "id"), column(2, "v", TEXT))
LAKE = options("lake")


def net(rows: Rows) -> Changes:
    """The net changes of all rows, and what holds of any."""
    slice_ = rows.read(TableName("s", "t"), 0, 1 << 62)
    found = net_changes(slice_, T, first_columns(T, LAKE), LAKE)
    landed = net_changes(slice_.cast(LANDED_SCHEMA), T, first_columns(T, LAKE), LAKE)
    keys = found.keys.column("id").to_pylist()

    assert (found.keys, found.rows) == (landed.keys, landed.rows)
    assert found.count == slice_.num_rows
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
