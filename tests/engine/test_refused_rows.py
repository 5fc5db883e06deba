"""Errors about rows name the messages that brought them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.codec.columnar.rows import RowTexts
from tidegate.engine.change import Chunk, ChunkPart, Layout
from tidegate.engine.plan import Rows, Unit
from tidegate.engine.ports import blamed, converted, refused_layout
from tidegate.model.errors import (
    ConfigError,
    EncodeError,
    Fenced,
    SchemaError,
    SinkError,
    SinkRefused,
    TidegateError,
)
from tidegate.model.event import Field
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableName
from tidegate.schema.infer import infer_table

NAME = TableName("s", "t")
ID, V = Field("id", MysqlType.LONG, 11, binary=True, handle=True), Field("v", MysqlType.LONG, 65, binary=True)


def batch(fields: tuple[Field, ...], first: int, texts: list[bytes], *, places: bool = True) -> Batch:
    """Inserted rows whose columns all hold the same text; offsets and timestamps count from `first`."""
    count = len(texts)
    place = {"topic": ["x"] * count, "partition": [3] * count, "offset": list(range(first, first + count))}
    return Batch(
        *NAME,
        fields=fields,
        pk_names=None,
        message=pa.array(range(count), pa.int32()),
        seq=pa.array([0] * count, pa.int32()),
        commit_ts=pa.array(range(first + 100, first + 100 + count), pa.int64()),
        op=pa.array(["I"] * count),
        partition_id=pa.nulls(count, pa.int64()),
        before=RowTexts(pa.array([], pa.binary()), len(fields)),
        after=RowTexts(pa.array([text for text in texts for _ in fields], pa.binary()), len(fields)),
        positions=pa.table(place) if places else None,
    )


@dataclass
class Some:
    """Changes that are these batches."""

    parts: list[Batch]
    after: int = 0
    upto: int = 1_000

    def batches(self, name: TableName, _after: int, _upto: int) -> Iterator[Chunk]:
        """The batches, each as a chunk."""
        assert name == NAME
        for one in self.parts:
            yield Chunk((ChunkPart(one, np.arange(one.rows)),), np.arange(one.rows))


CHANGES = Some([batch((ID,), 0, [b"1", b"2", b"3"]), batch((ID, V), 3, [b"4"]), batch((ID,), 4, [b"5"])])
TOLD = infer_table(NAME, (ID,), None, 1)


def unit(*, inferred: bool = True) -> Unit:
    """The rows of the table."""
    import msgspec

    return Unit((Rows(msgspec.structs.replace(TOLD, inferred=inferred), 0, 1_000),), 5)


def test_the_rows_that_a_conversion_cannot_take() -> None:
    """Just those are named, all of them, with what is wrong, and by the kind of error that it is."""
    given = batch((ID, V), 10, [b"1", b"two", b"3", b"four"])
    with pytest.raises(EncodeError, match=r"topic x partition 3 offset 11") as caught:
        converted(given, typed_batch)
    assert caught.value.messages == (("x", 3, 11, 111), ("x", 3, 13, 113))
    assert (caught.value.where.commit_ts, caught.value.where.offset) == (111, 11)


def test_rows_without_columns_and_defects() -> None:
    """A row without columns is refused before anything is tried; a defect is an error of ours that names the rows."""
    with pytest.raises(SchemaError, match="without columns"):
        converted(batch((), 0, [b"", b""]), typed_batch)
    with pytest.raises(SinkRefused, match="ZeroDivisionError") as caught:
        converted(batch((ID,), 0, [b"1"]), lambda one: 1 // (one.rows - 1))
    assert caught.value.messages == (("x", 3, 0, 100),)


def test_where_there_are_no_messages() -> None:
    """Rows of a change log have none, so the error names table and ts alone."""
    with pytest.raises(EncodeError) as caught:
        converted(batch((V,), 7, [b"no"], places=False), typed_batch)
    assert caught.value.messages == ()
    assert caught.value.where.commit_ts == 107


def test_a_layout() -> None:
    """All rows in it are named, wherever they stand."""
    error = refused_layout(CHANGES, NAME, Layout((ID,)), "no table")  # type: ignore[arg-type]
    assert [message[2] for message in error.messages] == [0, 1, 2, 4]


def test_a_table_that_only_its_rows_tell_of() -> None:
    """The row that the error names is to blame, else those in the layout that fewest rows have."""
    named = blamed(
        SinkRefused("no").at(table="s.t", commit_ts=9, topic="x", partition=3, offset=2), unit().row_steps, CHANGES
    )  # type: ignore[arg-type]
    assert named.messages == (("x", 3, 2, 9),)
    other = blamed(SinkRefused("no").at(table="s.t"), unit().row_steps, CHANGES)  # type: ignore[arg-type]
    assert other.messages == (("x", 3, 3, 103),)
    assert (other.where.commit_ts, other.where.offset) == (103, 3)


@pytest.mark.parametrize(
    ("error", "inferred"),
    [
        (SinkRefused("no").at(table="s.t"), False),
        (SinkRefused("no").at(table="s.other"), True),
        (SinkRefused("no"), True),
        (SinkError("away").at(table="s.t"), True),
        (ConfigError("no").at(table="s.t"), True),
        (Fenced("no").at(table="s.t"), True),
    ],
)
def test_what_no_message_is_to_blame_for(error: TidegateError, *, inferred: bool) -> None:
    """A table that a DDL made, another table, what may pass, the configuration and another writer."""
    assert blamed(error, unit(inferred=inferred).row_steps, CHANGES).messages == ()  # type: ignore[arg-type]
