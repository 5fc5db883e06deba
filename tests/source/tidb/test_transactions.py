"""Transactions out of a log, and their rows in the order in which partitions get them."""

from typing import Any

import pytest

from tests.engine.dispatch_rows import dispatched
from tests.engine.test_mount import column, record, table
from tests.source.tidb.mounted import transactions
from tidegate.codec import encode_options
from tidegate.engine.dispatch import Router, SplitPolicy
from tidegate.engine.mount import Mounted
from tidegate.kv import Row, encode_row
from tidegate.kv.change_columns import change_batch
from tidegate.kv.keys import IntHandle
from tidegate.kv.rows import ChecksumForm
from tidegate.model.errors import (
    CorruptedRow,
    DecodeError,
    EncodeError,
    KvDecodeError,
    MessageTooLarge,
    SchemaError,
    SinkError,
    TableNotFound,
)
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.schema.stored.definition import Name, StoredIndex, StoredPart, StoredTable, table_layout
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.sink.kafka_dispatch import Dispatcher
from tidegate.source.tidb_changes import MountOptions, located_error, mounter_of
from tidegate.source.tidb_log import LogPart
from tidegate.source.tidb_segment import in_order

UNIQUE = StoredIndex(2, Name.of("u"), idx_cols=[StoredPart(Name.of("v"))], is_unique=True)
DEFINITIONS = [table(column(2, "v"), table_id=number, index_info=[UNIQUE]) for number in (5, 6)]
VERSIONS = [TableVersion(2, "db", definition, 1) for definition in DEFINITIONS]
SPANS = [(b"t", b"u")]


class Log(list[KvChange]):
    """A log of some rows."""

    def parts(self, _low: int, _high: int | None = None) -> list[LogPart]:
        """None."""
        return []

    def rows(self, low: int, high: int, _spans: object) -> Any:
        """The rows of the stretch, in commit order."""
        return iter(sorted((row for row in self if low < row.commit_ts <= high), key=in_order))

    def windows(self, low: int, high: int, _spans: object) -> Any:
        """The same in one window."""
        tables: dict[bytes, list[KvChange]] = {}
        for row in self.rows(low, high, _spans):
            tables.setdefault(row.key[:9], []).append(row)
        return iter([[change_batch(rows) for _, rows in sorted(tables.items())]] if tables else [])


def change(number: int, handle: int, old: int | None, new: int | None, *, ts: int = 10, start: int = 9) -> KvChange:
    """What a transaction does to the row `handle` of table `number`: v was `old` and is `new`."""
    images = [None if v is None else record(DEFINITIONS[number], {1: handle, 2: v}) for v in (old, new)]
    key = next(image[0] for image in images if image is not None)
    before, after = (image and image[1] for image in images)
    return KvChange(LogType.COMMITTED, key, start, ts, KvOp.PUT if after else KvOp.DELETE, after, before)


def found(log: Log, **options: bool) -> list[list[Mounted]]:
    """The transactions of a log."""
    given = MountOptions(**options)
    mounter = mounter_of(VERSIONS, 1, given)
    return list(transactions(log, (1, 99), SPANS, mounter, refuse_corrupt=given.refuse_corrupt))


def shown(rows: list[Any]) -> list[tuple[str, int]]:
    """Kind and handle of rows."""
    return [(type(each.row).__name__, each.row.row_id) for each in rows]


def test_transactions_are_told_apart() -> None:
    """By commit_ts, then start_ts; deletes, updates, inserts inside, whatever table; a row that is there twice counts
    once."""
    one, two = change(0, 1, None, 10), change(1, 2, 5, None)
    log = Log([one, two, one, change(0, 3, 1, 2), change(0, 4, None, 1, start=8), change(1, 5, None, 1, ts=11)])

    assert [shown(rows) for rows in found(log)] == [
        [("Insert", 4)],
        [("Delete", 2), ("Update", 3), ("Insert", 1)],
        [("Insert", 5)],
    ]
    assert found(Log()) == []


@pytest.mark.parametrize("newarch", [False, True])
def test_split_updates_in_a_partition(*, newarch: bool) -> None:
    """Classic: all deletes before all updates before all inserts, of all tables. The new architecture: table by table,
    the inserts of split updates last."""
    options = encode_options({"dialect": "newarch"} if newarch else {}, "open-protocol")
    router, policy = Router.of((), "topic", options), SplitPolicy(newarch=newarch)
    dispatcher = Dispatcher(router, policy, {"topic": 1}, frozenset({("topic", 0)}))
    log = Log([change(0, 1, 10, 11), change(0, 2, None, 7), change(1, 3, 20, 21), change(1, 4, 5, None)])
    (rows,) = found(log)
    sent = shown(dispatched(dispatcher, rows))

    classic = [("Delete", 4), ("Delete", 3), ("Delete", 1), ("Insert", 3), ("Insert", 1), ("Insert", 2)]
    of_tables = [("Delete", 4), ("Delete", 3), ("Insert", 3), ("Delete", 1), ("Insert", 2), ("Insert", 1)]
    assert sent == (of_tables if newarch else classic)


def test_rows_of_other_tasks_are_left_out() -> None:
    """A dispatcher keeps what goes to its own partitions; together they have everything once."""
    options = encode_options({}, "open-protocol")
    router = Router.of((), "topic", options)
    log = Log([change(number, handle, None, 1) for number in (0, 1) for handle in range(3)])
    (rows,) = found(log)
    parts = [
        dispatched(Dispatcher(router, SplitPolicy(), {"topic": 2}, frozenset({("topic", at)})), rows) for at in (0, 1)
    ]

    assert sorted(map(len, parts)) == [0, 6], "both tables are named t, so they share a partition"


def test_checksums() -> None:
    """A row whose checksum contradicts it is marked, or an error that names table, timestamp and key."""
    layout = table_layout(DEFINITIONS[0])
    key, value = encode_row(layout, Row(5, IntHandle(1), {1: 1, 2: 10}, (2,)), checksum=ChecksumForm(1))
    log = Log([KvChange(LogType.COMMITTED, key, 9, 10, KvOp.PUT, value[:-1] + bytes([value[-1] ^ 1]))])

    assert [row.corrupt for rows in found(log, verify=True) for row in rows] == [True]
    assert [row.corrupt for rows in found(log, refuse_corrupt=True) for row in rows] == [False], "nobody asked"
    with pytest.raises(CorruptedRow, match=rf"db\.t at commit_ts 10, key {key.hex()}.*corruption-handle-level"):
        found(log, verify=True, refuse_corrupt=True)


def test_an_id_that_the_schema_does_not_have() -> None:
    """Is an error with the row's timestamps and key."""
    stranger: StoredTable = table(column(2, "v"), table_id=77)
    key, value = record(stranger, {1: 1, 2: 2})
    log = Log([KvChange(LogType.COMMITTED, key, 9, 10, KvOp.PUT, value)])

    with pytest.raises(TableNotFound, match=r"commit_ts 10, start_ts 9, key 74.*table 77 is not in the schema"):
        found(log)


@pytest.mark.parametrize(
    "error",
    [
        MessageTooLarge("db.t", "(id=1)", 9, 8, "o"),
        KvDecodeError("bad", "row", 3, b"k"),
        DecodeError("bad", "segment", 3),
        SchemaError("bad"),
        TableNotFound("bad"),
        EncodeError("bad"),
    ],
)
def test_errors_say_where(error: Exception) -> None:
    """The kind, the code and the numbers of an error stay; its text gains the place."""
    moved = located_error(error, "db.t at commit_ts 10")  # type: ignore[arg-type]

    assert type(moved) is type(error)
    assert "db.t at commit_ts 10" in str(moved)
    away = SinkError("away")
    assert located_error(away, "here") is away
