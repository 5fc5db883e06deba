"""What a task writes of chunks, whatever source they are of: by columns as row by row, in the dispatcher's order."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.sink.kafka.topics import TS, Made
from tests.source.tidb.kit import Broker, MemoryTarget, target
from tidegate.codec import decode, from_config
from tidegate.codec.columnar import RowTexts
from tidegate.engine.change import Chunk, ChunkPart
from tidegate.engine.dispatch import SplitPolicy
from tidegate.engine.filter import ColumnSelectors, SelectorRule
from tidegate.model.errors import DispatcherFailed, EncodeError, MessageTooLarge
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Values
from tidegate.model.mysql import MysqlType
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import IndexInfo, TableInfo, TableName
from tidegate.schema.infer import infer_table
from tidegate.sink import kafka as task
from tidegate.sink import kafka_dispatch as target_module
from tidegate.sink.kafka import GroupJob, Written, write_group
from tidegate.sink.kafka_target import TopicTarget
from tidegate.testing.validators import rows

PROTOCOLS = ("open-protocol", "canal-json")
FIELDS = (
    Field("id", MysqlType.LONGLONG, 11, binary=True, handle=True),
    Field("u", MysqlType.VARCHAR, 16 + 64),
    Field("n", MysqlType.DOUBLE, 65, binary=True),
    Field("raw", MysqlType.BLOB, 65, binary=True),
    Field("big", MysqlType.LONGLONG, 65 + 128, unsigned=True, binary=True),
)
SPREAD = ({"matcher": ["*.*"], "partition": "index-value"},)
VARIANTS: dict[str, Sequence[object]] = {
    "by table": (),
    "by key": SPREAD,
    "by column": ({"matcher": ["s.t"], "partition": "columns", "columns": ["u"]},),
    "by ts": ({"matcher": ["s.*"], "partition": "ts"}, {"matcher": ["*.*"], "topic": "other"}),
}


@pytest.fixture(autouse=True)
def stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands, and columns however few the rows."""
    monkeypatch.setattr(target_module, "now_ms", lambda: 7)
    monkeypatch.setattr(task, "FEW_ROWS", 1)


def values(chance: Random, key: int) -> Values:
    """A row with NULLs, texts that have to be escaped, bytes and numbers of all sizes."""
    text = chance.choice([None, "null", "a", 'q"<\\', "中", "\udcff"])
    return key, text, chance.choice([None, 0.5, -1e300]), chance.choice([None, b"", b"\xff\0"]), chance.getrandbits(64)


def made(seed: int, count: int = 300) -> list[RowChange]:
    """Changes of two tables; several rows have one commit_ts, in any order and now and then twice."""
    chance, found = Random(seed), list[RowChange]()
    for _ in range(count):
        key, ts = chance.randrange(9), TS + chance.randrange(count // 4)
        given: dict[str, Any] = {"schema": "s", "table": chance.choice("tu"), "fields": FIELDS, "commit_ts": ts}
        match chance.randrange(3):
            case 0:
                found.append(Insert(after=values(chance, key), **given))
            case 1:
                found.append(Delete(before=values(chance, key), **given))
            case _:
                after = values(chance, chance.choice([key, key, 10]))
                found.append(Update(before=values(chance, key), after=after, **given))
        found += found[-1:] if chance.random() < 0.1 else []
    return found


def definitions(every: Sequence[RowChange], *indexes: IndexInfo) -> dict[tuple[str, str], TableInfo]:
    """The tables of rows, as rows show them, with these indexes besides."""
    found = {}
    for row in every:
        name = TableName(row.schema, row.table)
        info = infer_table(name, row.fields, row.pk_names, 1)
        found[name.key] = replace_indexes(info, (*info.indexes, *indexes))
    return found


def replace_indexes(info: TableInfo, indexes: tuple[IndexInfo, ...]) -> TableInfo:
    """Another definition."""
    return msgspec.structs.replace(info, indexes=indexes)


def written(
    changes: Made, into: MemoryTarget, *, columns: bool = True, tables: Any = None
) -> tuple[Written, dict[tuple[str, int], Any]]:
    """What a task reports and the broker has; partition 2 is another task's."""
    broker = Broker()
    places = frozenset((topic, at) for topic in ("feed", "other") for at in (0, 1))
    names = tuple(changes.tables())
    known = definitions(changes.rows) if tables is None else tables
    counts, made_target = {"feed": 3, "other": 3}, msgspec.structs.replace(into, broker=broker)
    found = write_group(GroupJob(changes, 0, 1 << 62, names, places, counts, made_target, known, columns))
    assert sum(found.by_table.values()) == found.rows
    return replace(found, path_counts=PathCounts()), broker.messages


@pytest.mark.slow
@pytest.mark.parametrize("newarch", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_write_what_rows_write(variant: str, protocol: str, *, newarch: bool) -> None:
    """Rows of a commit_ts in any order, split updates, texts that are no UTF-8: the same messages in the same
    places."""
    into = target(Broker(), protocol, VARIANTS[variant])
    if newarch:
        options = msgspec.structs.replace(into.options, dialect="newarch")
        into = msgspec.structs.replace(into, options=options)
    for seed in range(4):
        changes = Made(made(seed), chunk_rows=(64, 16_384)[seed % 2])

        assert written(changes, into) == written(changes, into, columns=False)
        assert written(changes, into)[0].rows > 100


@pytest.mark.parametrize("newarch", [False, True])
def test_the_order_of_a_commit_ts(*, newarch: bool) -> None:
    """Rows of one commit_ts are sent as TiCDC's sorter has them, whatever the order in which a topic gave them: all
    deletes, then updates, then inserts, of all tables. The new architecture keeps what came, table by table."""
    given: dict[str, Any] = {"schema": "s", "fields": FIELDS, "commit_ts": TS}
    row = {key: (key, None, None, None, 1) for key in range(9)}
    every = [
        Insert(table="t", after=row[1], **given),
        Delete(table="t", before=row[2], **given),
        Update(table="t", before=row[3], after=row[4], **given),
        Update(table="t", before=row[5], after=(5, None, None, None, 2), **given),
        Insert(table="u", after=row[6], **given),
        Delete(table="u", before=row[7], **given),
    ]
    into = msgspec.structs.replace(
        target(Broker(1), "open-protocol", max_batch_size="1"), policy=SplitPolicy(newarch=newarch)
    )
    for columns in (True, False):
        broker = Broker(1)
        job = GroupJob(
            Made(every),
            0,
            TS,
            (TableName("s", "t"), TableName("s", "u")),
            frozenset({("feed", 0)}),
            {"feed": 1},
            msgspec.structs.replace(into, broker=broker),
            columns=columns,
        )
        write_group(job)
        found = [shown(one) for one in rows(broker.events("open-protocol")["feed", 0])]
        if newarch:
            assert found == ["I t1", "D t2", "D t3", "U t5", "I t4", "I u6", "D u7"]
        else:
            assert found == ["D t2", "D t3", "D u7", "U t5", "I t1", "I t4", "I u6"]


def shown(row: RowChange) -> str:
    """Kind, table and key."""
    image = row.before if isinstance(row, Delete) else row.after
    key = next(value for field, value in zip(row.fields, image, strict=True) if field.name == "id")
    return f"{type(row).__name__[0]} {row.table}{key}"


def as_texts(chunk: Chunk) -> Chunk:
    """The same rows with images as texts, as decoders give them to who asks."""

    def turned(image: Any) -> RowTexts:
        found = [
            None if value is None else value if isinstance(value, bytes) else text_of(value)
            for row in zip(*(column.to_pylist() for column in image.columns), strict=True)
            for value in row
        ]
        return RowTexts(pa.array(found, pa.binary()), image.num_columns)

    parts = tuple(
        ChunkPart(replace(batch, before=turned(batch.before), after=turned(batch.after)), numbers)
        for batch, numbers in chunk.parts
    )
    return replace(chunk, parts=parts)


def text_of(value: Any) -> bytes:
    """A number or a text."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else repr(value).encode()


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_images_as_texts(protocol: str, *, columns: bool) -> None:
    """Are written as typed ones; a text that is no value of its column is an error that names the table."""
    into, typed = target(Broker(), protocol, SPREAD), Made(made(5))

    assert written(replace(typed, turned=as_texts), into, columns=columns) == written(typed, into)

    def broken(chunk: Chunk) -> Chunk:
        (batch, numbers), *others = as_texts(chunk).parts
        after = RowTexts(pa.array([b"x"] * len(batch.after.values), pa.binary()), batch.after.width)
        return replace(chunk, parts=(ChunkPart(replace(batch, after=after), numbers), *others))

    with pytest.raises(EncodeError, match=r"rows of s\.[tu] with a value that is none of its column"):
        written(replace(typed, turned=broken), into, columns=columns)


def test_definitions_of_the_round() -> None:
    """Batches that bring no definition go by that of the round: an index is found, columns are left out, and a rule
    that does not fit is an error."""
    every = [row for row in made(3) if row.table == "t"]
    rule = ({"matcher": ["*.*"], "partition": "index-value", "index": "by_u"},)
    by_u = IndexInfo(2, "by_u", ("u",), unique=True)
    known = definitions(every, by_u)
    into = target(Broker(), "canal-json", rule)

    places = {}
    for place, held in written(Made(every), into, tables=known)[1].items():
        for row in decoded(held):
            image = row.before if isinstance(row, Delete) else row.after
            places.setdefault(image[1], set()).add(place)
    assert all(len(found) == 1 for found in places.values())
    assert len(set.union(*places.values())) == 2
    with pytest.raises(DispatcherFailed, match=r"s\.t has no index 'by_u'"):
        written(Made(every), into)

    chosen = msgspec.structs.replace(into, selectors=ColumnSelectors.of([SelectorRule(("s.t",), ("*", "!raw"))]))
    for columns in (True, False):
        _, messages = written(Made(every), chosen, tables=known, columns=columns)
        fields = {tuple(field.name for field in row.fields) for held in messages.values() for row in decoded(held)}
        assert fields == {("id", "u", "n", "big")}


def decoded(held: Sequence[Any]) -> list[RowChange]:
    """The rows of a partition of canal-json."""
    options = from_config({"protocol": "canal-json", "enable-tidb-extension": True})
    return rows([event for key, value in held for event in decode(key, value, options)])


@pytest.mark.parametrize("columns", [True, False])
def test_a_name_in_another_spelling(*, columns: bool) -> None:
    """A table goes by the name that the round has, so its rows are in the partition that the task was given."""
    every = [row for row in made(4) if row.table == "t"]
    info = infer_table(TableName("S", "T"), FIELDS, None, 1)
    found, messages = written(
        Made(every), target(Broker(), "open-protocol"), tables={("s", "t"): info}, columns=columns
    )
    _, plain = written(Made([replace_name(row) for row in every]), target(Broker(), "open-protocol"))

    assert list(messages) == list(plain)
    assert found.rows > 0


def replace_name(row: RowChange) -> RowChange:
    """The row of the table with capital letters."""
    return msgspec.structs.replace(row, schema="S", table="T")


@pytest.mark.parametrize("columns", [True, False])
def test_a_row_that_is_too_large(*, columns: bool) -> None:
    """The error names table, timestamp and key; nothing that waited is sent."""
    row = Insert(schema="s", table="t", fields=FIELDS, after=(77, "x" * 900, None, None, 0), commit_ts=TS + 1)
    broker = Broker(1)
    into = target(broker, "open-protocol", max_message_bytes="600")
    job = GroupJob(
        Made([*[one for one in made(1) if one.commit_ts <= TS], row]),
        0,
        TS + 1,
        (TableName("s", "t"), TableName("s", "u")),
        frozenset({("feed", 0)}),
        {"feed": 1},
        into,
        columns=columns,
    )
    with pytest.raises(MessageTooLarge, match=rf"id=77.* of s\.t, s\.t at commit_ts {TS + 1},"):
        write_group(job)
    assert not broker.messages


def test_reports_and_jobs() -> None:
    """Rows are counted by the way on which they were made and written; jobs and reports travel by pickle."""
    into = target(Broker(), "open-protocol")
    changes = Made(made(2))
    job = GroupJob(
        changes,
        0,
        1 << 62,
        tuple(changes.tables()),
        frozenset(("feed", at) for at in range(3)),
        {"feed": 3},
        into,
    )
    found, slow = write_group(job), write_group(replace(job, columns=False))
    plain = TopicTarget(bootstrap=("h",), topic="feed", options=into.options)
    travels = replace(job, target=plain, changes=Made(changes.rows, turned=as_texts))

    assert found.path_counts.by_path() == {"changelog/columns": len(changes.rows), "encode/columns": found.rows}
    assert slow.path_counts.by_path() == {"changelog/columns": len(changes.rows), "encode/rows": found.rows}
    assert {one.reason for one in slow.path_counts.slow()} == {"switched-off"}
    assert pickle.loads(pickle.dumps(found)) == found
    assert pickle.loads(pickle.dumps(travels)).tables == travels.tables
