"""Rows that were mounted one by one as a batch."""

import pyarrow as pa

from tests.engine.test_mount import VARCHAR, column, finished, record, table
from tidegate.codec.columnar.rows import RowTexts
from tidegate.engine.mount import Mounted, Mounter
from tidegate.engine.mount_columns import batch_of_rows
from tidegate.model.event import Insert, Update
from tidegate.model.mysql import ActionType
from tidegate.schema.stored.snapshot import SchemaHistory

DEFINITION = table(column(2, "v"), column(3, "t", VARCHAR))


def mounted(*rows: dict) -> list[Mounted]:
    """Inserts of some rows."""
    schema = SchemaHistory()
    schema.apply(finished(ActionType.CREATE_TABLE, DEFINITION), 1)
    mounter = Mounter(schema, force_replicate=True)
    found = [mounter.mount(*record(DEFINITION, row), None, 10 + at) for at, row in enumerate(rows)]
    return [row for row in found if row is not None]


def test_values_are_typed() -> None:
    """Numbers as numbers, texts as texts, a text column with a byte that is no UTF-8 as bytes; handles are numbers."""
    rows = mounted({1: 1, 2: 5, 3: b"a"}, {1: -2, 2: None, 3: b"b"})
    batch = batch_of_rows(rows, [7, 8])

    assert batch.after.schema.types == [pa.int64(), pa.int64(), pa.string()]
    assert batch.after.to_pylist() == [{"id": 1, "v": 5, "t": "a"}, {"id": -2, "v": None, "t": "b"}]
    assert (batch.before.num_rows, batch.before.schema) == (0, batch.after.schema)
    assert (batch.commit_ts.to_pylist(), batch.start_ts.to_pylist(), batch.row_ids.to_pylist()) == (
        [10, 11],
        [7, 8],
        [1, -2],
    )
    assert batch.definition is rows[0].table.info
    odd = batch_of_rows(mounted({1: 1, 2: 5, 3: b"a"}, {1: 2, 2: 5, 3: b"\xff"}), [7, 8])
    assert odd.after.column("t").to_pylist() == [b"a", b"\xff"]


def test_values_that_are_none_of_their_column() -> None:
    """Both images are texts then, as the changelog writes them."""
    row = mounted({1: 1, 2: 5, 3: b"a"})[0]
    change = row.row
    assert isinstance(change, Insert)
    shared = {name: getattr(change, name) for name in change.__struct_fields__ if name != "after"}
    update = Update(before=(1, 5, "a"), after=(1, "five", None), **shared)
    batch = batch_of_rows([row._replace(row=update), row], [7, 7])

    assert isinstance(batch.before, RowTexts)
    assert (batch.before.values.to_pylist(), batch.before.width) == ([b"1", b"5", b"a"], 3)
    assert batch.after.values.to_pylist() == [b"1", b"five", None, b"1", b"5", b"a"]
    assert batch.op.to_pylist() == ["U", "I"]
