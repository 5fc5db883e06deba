"""Rows whose keys differ upstream have names of their own in caches and indexes; equal keys leave one name."""

from collections.abc import Callable, Sequence

import pytest

from tests.sink.delta.lake import Rows
from tests.sink.delta.test_exact_keys import KEYS, fields, insert, keyed
from tidegate.codec.columnar import typed_batch
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Update, Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType, TableName
from tidegate.sink.documents import last_changes
from tidegate.sink.row_id import row_id
from tidegate.sink.search_mapping import document_id

NAMES: list[Callable[[Sequence[Value]], object]] = [row_id, document_id]
REFUSED = ("ENUM with ''", "ENUM beyond", "SET with ''", "SET beyond")
TEXT = ColumnType(T.VARCHAR, 20)


def named(rows: Rows, kind: ColumnType, name: Callable[[Sequence[Value]], object]) -> dict[object, bool]:
    """What a batch leaves: the names of rows, and whether the row is there."""
    (chunk,) = rows.batches(TableName("s", "t"), 0, 1000)
    ((batch, _),) = chunk.parts
    last = last_changes(keyed(kind), typed_batch(batch), name)  # type: ignore[type-var]
    return {key: row is not None for key, row in zip(last.keys, last.rows, strict=True)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", KEYS)
def test_as_many_names_as_keys(case: str, name: Callable[[Sequence[Value]], object]) -> None:
    """Every type of key: zero dates and texts that are no UTF-8 too; numbers of ENUM and SET that share a name are
    refused by table and column."""
    kind, values = KEYS[case]
    rows = Rows()
    for at, value in enumerate(values):
        insert(rows, 20 + at, kind, value)
    if case in REFUSED:
        with pytest.raises(SinkRefused, match=r"s\.t: number . of the (ENUM|SET) k in the key"):
            named(rows, kind, name)
    else:
        assert len(named(rows, kind, name)) == len(values)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_does_not_depend_on_other_rows(name: Callable[[Sequence[Value]], object]) -> None:
    """A text has the same name beside one that is no UTF-8, which has that of no text."""
    texts = ["ab", "c:d", b"\xab", b"\xff", "ff"]
    together, alone = Rows(), set()
    for text in texts:
        one = Rows()
        insert(one, 20, TEXT, text)
        insert(together, 20, TEXT, text)
        alone |= named(one, TEXT, name).keys()

    assert named(together, TEXT, name).keys() == alone
    assert len(alone) == len(texts)


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [(TEXT, "a", "A"), (TEXT, "a", "a "), (ColumnType(T.DOUBLE), -0.0, 0.0), (ColumnType(T.FLOAT), 0.0, -0.0)],
)
def test_a_key_that_stays_equal(kind: ColumnType, before: Value, after: Value) -> None:
    """An UPDATE to a key that the upstream takes for the same leaves the new name alone."""
    rows = Rows()
    both = {"before": (before, 1), "after": (after, 1)}
    rows.changes.append(Update(schema="s", table="t", commit_ts=40, fields=fields(kind), **both))

    assert named(rows, kind, row_id) == {row_id([before]): False, row_id([after]): True}
