"""Updates are split where the order of partitions would break a reader."""

import pytest

from tests.engine.dispatch_rows import FIELDS, INFO, ROW, TS, delete, insert, plan, router, update
from tidegate.codec.columnar import Batch
from tidegate.engine.dispatch import SplitPolicy, Splitter, halves
from tidegate.model.errors import DispatcherFailed, EncodeError
from tidegate.model.event import Delete, Field, Insert, Update
from tidegate.sink.kafka_dispatch import Dispatcher

BY_DAY = {"partition": "columns", "columns": ["day"]}
OLD = (11, "x", "mon", 1.0)


def splits(after: tuple[object, ...], entry: dict[str, object] | None = None, **policy: bool) -> bool:
    return Splitter.of(SplitPolicy(**policy), plan(**(entry or {}))).splits(update(OLD, after))


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        (OLD, False),
        ((11, "x", "tue", 2.0), False),
        ((12, "x", "mon", 1.0), True),
        ((11, "y", "mon", 1.0), True),
        ((11, None, "mon", 1.0), True),
    ],
)
def test_a_changed_key_splits(after, changed):
    """The handle and every unique column split, nullable ones too; `output-raw-change-event` lets them pass."""
    assert splits(after) is changed
    assert splits(after, unique_keys=False) is False


def test_texts_are_compared():
    """NULL and the text `null` are one to TiCDC, and so no change."""
    splitter = Splitter.of(SplitPolicy(), plan())

    assert not splitter.splits(update((11, None, "mon", 1.0), (11, "null", "mon", 1.0)))


def test_a_row_that_moves_is_split():
    """What changes the dispatch key is split even where TiCDC's rule would let it pass; a switch turns that off."""
    moved = (11, "x", "tue", 1.0)

    assert splits(moved, BY_DAY) is True
    assert splits(moved, BY_DAY, unique_keys=False) is True
    assert splits(moved, BY_DAY, dispatch_key=False) is False
    assert splits((12, "x", "mon", 1.0), {"partition": "index-value"}, unique_keys=False) is True
    assert splits((12, "x", "mon", 1.0), BY_DAY, unique_keys=False) is False
    assert splits(moved, {"partition": "ts"}) is False


def test_halves_are_whole():
    """Both halves carry what the update carried, and nothing of the other image."""
    changed = update(OLD, ROW)
    carried = {"schema": "Shop", "table": "Item", "fields": FIELDS, "commit_ts": TS, "row_id": 7}

    assert halves(changed) == (Delete(before=OLD, **carried), Insert(after=ROW, **carried))


def test_order_of_a_split_transaction():
    """Classic sends DELETEs, UPDATEs, INSERTs; newarch puts the INSERTs of split updates at the end."""
    new, gone = insert(1, "a", "mon", 1.0), delete(2, "b", "mon", 1.0)
    kept = update((3, "c", "mon", 1.0), (3, "c", "mon", 2.0))
    one, two = (update((k, "x", "d", 1.0), (k + 1, "x", "d", 1.0)) for k in (4, 6))
    rows = [new, kept, one, two, gone]
    (out_one, in_one), (out_two, in_two) = halves(one), halves(two)

    classic = Splitter.of(SplitPolicy(), plan()).transaction(rows)
    newarch = Splitter.of(SplitPolicy(newarch=True), plan()).transaction(rows)

    assert classic == (out_one, out_two, gone, kept, new, in_one, in_two)
    assert newarch == (new, kept, out_one, out_two, gone, in_one, in_two)


@pytest.mark.parametrize("newarch", [False, True])
def test_without_a_split_the_order_stays(newarch):
    """A transaction of which nothing is split is sent as it is."""
    rows = (insert(), update(OLD, (11, "x", "mon", 2.0)), delete())

    assert Splitter.of(SplitPolicy(newarch=newarch), plan()).transaction(rows) == rows
    assert Splitter.of(SplitPolicy(newarch=newarch), plan()).transaction(()) == ()


def test_each_half_goes_to_its_own_partition():
    """The DELETE follows the old key and the INSERT the new one."""
    by_day = plan(**BY_DAY)
    out, into = halves(update(OLD, (11, "x", "tue", 1.0)))

    assert by_day.route(out, 1 << 20) == by_day.route(insert(*OLD), 1 << 20)
    assert by_day.route(into, 1 << 20) == by_day.route(insert(11, "x", "tue", 1.0), 1 << 20)
    assert by_day.route(out, 1 << 20) != by_day.route(into, 1 << 20)


def test_updates_that_do_not_fit():
    """Updates of other columns, and values that no column of the type holds, are refused by name."""
    splitter = Splitter.of(SplitPolicy(), plan())
    alien = Update(schema="Shop", table="Item", fields=(Field("Id", 3),), before=(1,), after=(2,))
    with pytest.raises(DispatcherFailed):
        splitter.splits(alien)
    with pytest.raises(EncodeError, match=r"'Id' of Shop\.Item"):
        splitter.splits(update(OLD, ("eleven", "x", "mon", 1.0)))


def test_rows_without_flags_are_dispatched_by_their_table() -> None:
    """Canal-json's rows have no flags: the definition of their table tells the keys, by which updates are split and
    rows are written."""
    bare = tuple(Field(field.name, field.type, None, "x", handle=field.name == "Id", binary=field.binary)
                 for field in FIELDS)  # fmt: skip
    batch = Batch("Shop", "Item", bare, ("Id",), *[None] * 7)
    alone, known = (
        Dispatcher(router(), SplitPolicy(), {}, frozenset(), tables=tables).plan(batch)
        for tables in ({}, {INFO.name.key: INFO})
    )

    assert [at for at, _ in alone.splitter.keys] == [0]
    assert [at for at, _ in known.splitter.keys] == [0, 1]
    assert known.wire.fields == known.routing.fields == FIELDS
