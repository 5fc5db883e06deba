"""The way through columns writes what the way row by row writes: byte by byte, place by place, error by error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import pytest

from tests.engine.test_mount import NOT_NULL, VARCHAR, column, record, table
from tests.source.tidb.kit import Broker, MemoryTarget, changes, feed, recorded_log, target, write_log
from tests.source.tidb.test_transactions import Log
from tidegate.codec.columnar import ColumnarEncoder
from tidegate.engine.filter import ColumnSelectors, SelectorRule
from tidegate.engine.ports import Written
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle
from tidegate.kv.rows import encode_raw_row
from tidegate.model.errors import KvDecodeError, MessageTooLarge, TidegateError
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.model.path_counts import PathCounts
from tidegate.schema.stored.definition import Name, StoredIndex, StoredPart, table_layout
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.sink import kafka as sink
from tidegate.sink import kafka_dispatch as target_module
from tidegate.sink.kafka import ColumnPartitions, GroupJob, write_group
from tidegate.source import tidb_changes as log_changes
from tidegate.source.tidb_changes import CHUNK_ROWS, LogChanges, MountOptions, chunks
from tidegate.source.tidb_log import name_of

PROTOCOLS = ("open-protocol", "canal-json")
STREAMS = ("types", "partition", "ddl", "interleave")
PLAIN: list[int] = []
"""An entry for each chunk that went row by row where columns were asked for."""
SPREAD = ({"matcher": ["*.*"], "partition": "index-value"},)
VARIANTS: dict[str, tuple[Sequence[object], dict[str, str]]] = {
    "by table": ((), {}),
    "by key": (SPREAD, {}),
    "by column": (({"matcher": ["db.a"], "partition": "columns", "columns": ["u", "v"]}, {"matcher": ["db.*"]}), {}),
    "by ts": (({"matcher": ["db.*"], "partition": "ts"}, {"matcher": ["*.*"], "topic": "other"}), {}),
    "new architecture": (SPREAD, {}),
    "some columns": (SPREAD, {"only_output_updated_columns": "true", "delete_only_output_handle_key_columns": "true"}),
    "small messages": ((), {"max_message_bytes": "600", "max_batch_size": "3"}),
    "no old values": ((), {"output_old_value": "false"}),
}


@pytest.fixture(autouse=True)
def by_columns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Columns however few the rows, a clock that stands, and how often a chunk was mounted or encoded row by row."""
    PLAIN.clear()
    monkeypatch.setattr(log_changes, "FEW_ROWS", 1)
    monkeypatch.setattr(sink, "FEW_ROWS", 1)
    monkeypatch.setattr(target_module, "now_ms", lambda: 7)
    monkeypatch.setattr(target_module, "ColumnarEncoder", partial(ColumnarEncoder, few_rows=0))

    def counted(rows: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            PLAIN.append(1)
            return rows(*given, **named)

        return call

    monkeypatch.setattr(ColumnPartitions, "texts_of_rows", counted(ColumnPartitions.texts_of_rows))
    monkeypatch.setattr(log_changes, "batch_of_rows", counted(log_changes.batch_of_rows))
    return PLAIN


UNIQUE = StoredIndex(2, Name.of("u"), idx_cols=[StoredPart(Name.of("u"), offset=2)], is_unique=True)
COLUMNS = column(2, "v", flag=NOT_NULL, origin_default="3"), column(3, "u", VARCHAR), column(4, "w", VARCHAR)
TABLES = [
    msgspec.structs.replace(table(*COLUMNS, table_id=number, index_info=[UNIQUE]), name=Name.of(name))
    for number, name in ((5, "a"), (6, "b"), (7, "c"))
]
VERSIONS = tuple(TableVersion(2, "db", definition, 1) for definition in TABLES)


def value_of(chance: Random, number: int, handle: int) -> bytes:
    """A row with some columns missing or NULL, now and then in the old form or with bytes that are no UTF-8."""
    texts = [None, b"null", b"a", b'q"<\\', "中".encode(), b"\xff"]
    values = {2: chance.randrange(3), 3: chance.choice(texts), 4: chance.choice(texts[:5] * 4 + texts)}
    kept = tuple(i for i in values if chance.random() < 0.9)
    version = 1 if chance.random() < 0.01 else 2
    return encode_row(table_layout(TABLES[number]), Row(number + 5, IntHandle(handle), values, kept, version))[1]


def made(seed: int, rows: int = 150) -> Log:
    """Transactions over three tables; UPDATEs often change a unique key."""
    chance, found = Random(seed), Log()
    live: dict[bytes, bytes] = {}
    ts = 10
    while len(found) < rows:
        ts += 1
        touched: dict[bytes, KvChange] = {}
        for _ in range(chance.choice([1, 1, 2, 5, 20])):
            number, handle = chance.randrange(3), chance.randrange(40)
            key, _ = record(TABLES[number], {1: handle, 2: 0, 3: None, 4: None})
            old = live.get(key)
            new = None if old and chance.random() < 0.3 else value_of(chance, number, handle)
            if key not in touched:
                op = KvOp.PUT if new else KvOp.DELETE
                touched[key] = KvChange(LogType.COMMITTED, key, ts - 1, ts, op, new, old)
                live.update({key: new} if new else {})
                if new is None:
                    live.pop(key)
        found += touched.values()
        found += list(touched.values())[:1] if chance.random() < 0.1 else []
    return found


def job(log: Any, made_target: MemoryTarget, *, columns: bool) -> GroupJob:
    """All rows of a log for partitions 0 and 1 of the topics; another task has partition 2."""
    places = frozenset((topic, number) for topic in ("feed", "other") for number in (0, 1))
    counts = {"feed": 3, "other": 3}
    rows = LogChanges(log, 1, 1 << 60, VERSIONS, MountOptions(), columns=columns)
    names = tuple(map(name_of, VERSIONS))
    return GroupJob(rows, 1, 1 << 60, names, places, counts, made_target, columns=columns)


def plainly(job: GroupJob) -> Written:
    """The same row by row."""
    return write_group(replace(job, columns=False, changes=replace(job.changes, columns=False)))


def written(log: Any, made_target: MemoryTarget, *, columns: bool) -> tuple[Written, Any]:
    """The report without its path counts, and what the broker has."""
    broker, before = Broker(), len(PLAIN)
    report = write_group(job(log, msgspec.structs.replace(made_target, broker=broker), columns=columns))
    if not columns:
        del PLAIN[before:]
    return replace(report, path_counts=PathCounts()), broker.messages


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_tables(variant: str, protocol: str, by_columns: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tables in a transaction, split updates, NULLs, rows twice: the same messages in the same places."""
    dispatchers, words = VARIANTS[variant]
    if variant == "small messages" and protocol == "canal-json":
        words = {"max_message_bytes": "1000"}
    made_target = target(Broker(), protocol, dispatchers, **words)
    if variant == "new architecture":
        options = msgspec.structs.replace(made_target.options, dialect="newarch")
        made_target = msgspec.structs.replace(made_target, options=options)
    for seed in range(12):
        monkeypatch.setitem(chunks.__kwdefaults__, "rows", (40, CHUNK_ROWS)[seed % 2])
        log = made(seed)

        assert written(log, made_target, columns=True) == written(log, made_target, columns=False)

    assert len(by_columns) <= 3, "nearly all chunks went as columns"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_selected_columns(protocol: str, by_columns: list[int]) -> None:
    """With column selectors, too: split by all columns, sent without some of them."""
    rules = [SelectorRule(("db.a",), ("*", "!v")), SelectorRule(("db.b",), ("*", "!w"))]
    made_target = msgspec.structs.replace(target(Broker(), protocol, SPREAD), selectors=ColumnSelectors.of(rules))

    for seed in range(6):
        log = made(seed)
        assert written(log, made_target, columns=True) == written(log, made_target, columns=False)
    assert len(by_columns) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_streams(stream: str, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole feeds over recorded keys and values, spread by key: the same topics."""
    found = []
    for work in (write_group, plainly):
        monkeypatch.setattr(sink, "write_group", work)
        broker, name = Broker(), work.__name__
        log = recorded_log(tmp_path / f"log-{name}", stream)
        feed(log, target(broker, protocol, SPREAD), tmp_path / f"state-{name}").run(idle_s=0)
        found.append(broker.messages)

    assert found[0] == found[1]
    assert sum(map(len, found[0].values())) >= 5


def test_errors_are_those_of_the_plain_way() -> None:
    """A damaged row and one that is too large: the same words, with table, timestamp and key."""
    rows = made(1, 60)
    number = next(number for number, name in enumerate("abc") if crc32(f"db{name}".encode()) % 3 < 2)
    key, _ = record(TABLES[number], {1: 99, 2: 0, 3: None, 4: None})
    damaged = KvChange(LogType.COMMITTED, key, 500, 501, KvOp.PUT, encode_raw_row({2: b"abc"}))
    large = KvChange(LogType.COMMITTED, key, 500, 501, KvOp.PUT, encode_raw_row({2: b"\1", 4: b"x" * 2_000}))
    made_target = target(Broker(), "open-protocol", max_message_bytes="1000")

    for row, kind in ((damaged, KvDecodeError), (large, MessageTooLarge)):
        told = []
        for columns in (True, False):
            with pytest.raises(TidegateError) as raised:
                written(Log([*rows, row]), made_target, columns=columns)
            told.append((type(raised.value), str(raised.value), raised.value.where))
        assert told[0] == told[1]
        assert told[0][0] is kind
        assert "501" in told[0][1]
        assert (told[0][2].table, told[0][2].commit_ts) == (f"db.{'abc'[number]}", 501)


def test_chunks_end_with_transactions(tmp_path: Path) -> None:
    """Whatever the limits: whole transactions in commit order; a row that comes twice is there once."""
    log = made(3)
    wanted = list(dict.fromkeys((row.commit_ts, row.start_ts, row.key) for row in log.rows(0, 1 << 60, ())))

    for rows, size in ((1, 1 << 30), (10, 1 << 30), (1 << 20, 300), (1 << 20, 1 << 30)):
        found = list(chunks(log, (0, 1 << 60), (), rows=rows, size=size))
        assert [(row.commit_ts, row.start_ts, row.key) for chunk in found for row in chunk.rows] == wanted
        last = [chunk.rows[-1].commit_ts for chunk in found]
        assert all(chunk.rows[0].commit_ts > before for chunk, before in zip(found[1:], last, strict=False))
        assert (len(found) > 5) == (rows <= 10 or size == 300)
        assert sum(len(each.numbers) for chunk in found for each in chunk.tables()) == len(wanted)
    recorded = list(chunks(_Segments(tmp_path), (0, 1 << 62), ()))
    assert sum(len(chunk.rows) for chunk in recorded) > 100


class _Segments(Log):
    """The rows of a recorded stream."""

    def __init__(self, directory: Path) -> None:
        write_log(directory / "log", changes("types"))
        super().__init__(row for row in changes("types") if row.key[9:11] == b"_r")
