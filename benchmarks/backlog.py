"""A change log as an upstream writes it, of tables like those of sysbench and of wide ones, in segments.

    write_backlog(directory, "sysbench", 400_000)      4 tables of 4 columns
    write_backlog(directory, "wide", 100_000)          4 tables of 16 mixed columns, NULLs among them
    write_backlog(directory, "40 columns", 100_000)    a shape of shapes.py: 4 tables, or as many as it says
    log_of(directory)                                  how the log's rows are read and mounted

The tables are made by the embedded TiDB, so their DDLs stand in the log as jobs; the rows are TiDB's bytes.  60 % of
them are UPDATEs with the old row, 25 % INSERTs, 15 % DELETEs, ten to a transaction, which writes one table.  Contents
are drawn from some thousand different ones (a shape's tables share one thousand), so that a long log is made quickly.
"""

import json
import random
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from shapes import CASES, Shape, value_of

from tidegate.engine.filter import TableFilter
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle, record_prefix
from tidegate.kv.rows import select_stored
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.mysql.datum import DecimalDatum, JsonDatum, Unsigned
from tidegate.mysql.encoding import DecimalForm
from tidegate.mysql.json_value import JsonValue
from tidegate.mysql.packed_time import Time
from tidegate.schema.stored.definition import StoredTable, table_layout
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.source.tidb_changes import LogChanges
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import SegmentLog, encode_segment, in_order, segments
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session

__all__ = ["CREATE", "SCHEMA", "TABLES", "Backlog", "log_of", "write_backlog", "write_ddls"]

SCHEMA: Final = "bench"
TABLES: Final = ("t1", "t2", "t4", "t5")
"""By their names two of them go to each of two partitions."""
CREATE: Final = {
    "sysbench": "CREATE TABLE {} (id BIGINT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)",
    "wide": "CREATE TABLE {} (id BIGINT PRIMARY KEY, user_id INT NOT NULL, name VARCHAR(64) NOT NULL, "
    "email VARCHAR(128), balance DECIMAL(20, 4) NOT NULL, score DOUBLE, ratio FLOAT, created_at DATETIME(6) NOT NULL, "
    "updated_at TIMESTAMP NOT NULL, birthday DATE, is_active TINYINT NOT NULL, "
    "status ENUM('new', 'paid', 'sent', 'gone') NOT NULL, tags SET('a', 'b', 'c', 'd'), payload JSON, note TEXT, "
    "data VARBINARY(64))",
}
ROWS_PER_TRANSACTION: Final = 10
CONTENTS: Final = 4_000
SEGMENT_ROWS: Final = 50_000
MS: Final = 1 << 18
_SINGLE: Final = struct.Struct("<f")


class Backlog(NamedTuple):
    """What was written: rows, and the timestamps before the first and of the last of them."""

    rows: int
    low: int
    high: int


def write_backlog(
    directory: Path,
    kind: str,
    rows: int,
    seed: int = 1,
    *,
    tables: Sequence[str] = (),
    contents: int = CONTENTS,
    inserts: float = 0.25,
) -> Backlog:
    """Writes a log of so many rows, or a few more; `inserts` is the share of INSERTs. `directory` does not exist
    yet."""
    directory.mkdir(parents=True)
    shape = CASES.get(kind)
    versions, low = _tables(directory, kind, tables or (shape.names if shape and shape.tables > 1 else TABLES))
    stored = [version.stored for version in versions]
    pending: list[KvChange] = []
    count, edge, ts = 0, low, low
    for ts, changes in _transactions(stored, kind, low, random.Random(seed), contents=contents, inserts=inserts):
        pending += changes
        count += len(changes)
        if len(pending) >= SEGMENT_ROWS or count >= rows:
            pending.sort(key=in_order)
            (directory / f"{edge:020d}-{ts:020d}.seg").write_bytes(encode_segment(edge, ts, pending))
            edge, pending = ts, []
        if count >= rows:
            break
    return Backlog(count, low, ts)


def log_of(directory: Path) -> LogChanges:
    """All that a log holds of its tables."""
    high = segments(directory)[-1][1]
    return LogChanges(SegmentLog(directory), 0, high, tuple(_versions(directory, high)))


def _versions(directory: Path, high: int) -> list[TableVersion]:
    timeline = Timeline(SegmentLog(directory), TableFilter.parse((f"{SCHEMA}.*",)))
    timeline.start(high)
    return list(timeline.tables.replicated(timeline.snapshot))


def _tables(directory: Path, kind: str, names: Sequence[str]) -> tuple[list[TableVersion], int]:
    """Makes the tables; their definitions, and how far the log goes."""
    create = CREATE[kind] if kind in CREATE else f"CREATE TABLE {{}} {CASES[kind].statement}"
    write_ddls(directory, [[create.format(name) for name in names]])
    high = segments(directory)[-1][1]
    return _versions(directory, high), high


def write_ddls(directory: Path, texts: Sequence[Sequence[str]]) -> list[int]:
    """Writes the log of DDLs in a new database; how far it goes behind each of these groups."""
    cluster = Cluster.open()
    session = Session(cluster.node)
    for statement in (f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}"):
        session.execute(statement)
    writer, highs = LogWriter(ChangeLog(cluster.storage.store, cluster.storage.oracle), directory, 0), []
    for group in texts:
        for text in group:
            session.execute(text)
        writer.write(empty=True)
        highs.append(segments(directory)[-1][1])
    cluster.close()
    return highs


class _Table(NamedTuple):
    """One table's keys, the values that rows have now, and those that they may get."""

    prefix: bytes
    contents: list[bytes]
    live: dict[bytes, bytes]
    keys: list[bytes]


def _transactions(
    tables: list[StoredTable], kind: str, low: int, chance: random.Random, *, contents: int, inserts: float
) -> Iterator[tuple[int, list[KvChange]]]:
    """Transactions without end, with their commit_ts."""
    shared = _contents(tables[0], _shaped(CASES[kind]), chance, contents // 4) if kind in CASES else None
    transactions = [
        _Table(record_prefix(table.id), shared or _contents(table, ROWS[kind], chance, contents), {}, [])
        for table in tables
    ]
    together = CASES[kind].together if kind in CASES else ROWS_PER_TRANSACTION
    ts, fresh = low, 0
    while True:
        ts += MS
        table, changes = transactions[chance.randrange(len(transactions))], dict[bytes, KvChange]()
        for _ in range(together):
            draw, fresh = chance.random(), fresh + 1
            new = table.contents[chance.randrange(len(table.contents))]
            if draw < inserts or not table.keys:
                key = table.prefix + IntHandle(fresh).encoded
                table.keys.append(key)
            else:
                index = chance.randrange(len(table.keys))
                key = table.keys[index]
                if key in changes:
                    continue
                if draw >= 0.85:
                    table.keys[index] = table.keys[-1]
                    table.keys.pop()
                    old = table.live.pop(key)
                    changes[key] = KvChange(LogType.COMMITTED, key, ts - 1, ts, KvOp.DELETE, None, old)
                    continue
            changes[key] = KvChange(LogType.COMMITTED, key, ts - 1, ts, KvOp.PUT, new, table.live.get(key))
            table.live[key] = new
        yield ts, list(changes.values())


def _contents(table: StoredTable, rows: "RowMaker", chance: random.Random, count: int) -> list[bytes]:
    """Values of rows; keys are not in them."""
    layout = table_layout(table)
    ids = {column.name.original: column.id for column in table.cols or []}
    contents = []
    for number in range(count):
        named = {"id": 0, **rows(chance, number)}
        columns = {ids[name]: value for name, value in named.items()}
        row = Row(table.id, IntHandle(0), columns, select_stored(layout, columns))
        contents.append(encode_row(layout, row)[1])
    return contents


def _sysbench(chance: random.Random, _: int) -> dict[str, Any]:
    groups = [f"{chance.randrange(10**11):011d}" for _ in range(15)]
    return {"k": chance.randrange(1 << 31), "c": "-".join(groups[:10]).encode(), "pad": "-".join(groups[10:]).encode()}


def _wide(chance: random.Random, number: int) -> dict[str, Any]:
    word = f"{chance.getrandbits(160):040x}"
    clock = chance.randrange(24), chance.randrange(60), chance.randrange(60)
    day = chance.randrange(1, 13), chance.randrange(1, 29)
    document: dict[str, JsonValue] = {
        "a": number % 100,
        "k": word[:6],
        "list": [1, 2, number % 7],
        "nested": {"x": number % 2 == 0},
    }
    row: dict[str, Any] = {
        "user_id": chance.randrange(1 << 31),
        "name": word[:12].encode(),
        "email": f"{word[:8]}@example.com".encode(),
        "balance": DecimalDatum(Decimal(chance.randrange(10**10)).scaleb(-4), DecimalForm(20, 4)),
        "score": chance.random() * 100,
        "ratio": _SINGLE.unpack(_SINGLE.pack(chance.random()))[0],
        "created_at": Time(2024, *day, *clock, chance.randrange(10**6)),
        "updated_at": Time(2024, *day, *clock),
        "birthday": Time(1965, *day),
        "is_active": number % 2,
        "status": Unsigned(1 + number % 4),
        "tags": Unsigned(number % 16),
        "payload": JsonDatum(document),
        "note": f'{word[:36]} 中文 <note> & "quoted"'.encode(),
        "data": chance.randbytes(32),
    }
    for name in ("email", "score", "ratio", "birthday", "tags", "payload", "note", "data"):
        if chance.random() < 0.05:
            row[name] = None
    return row


def _shaped(shape: Shape) -> "RowMaker":
    """Rows of a shape, each with values as TiDB stores them."""

    def row(chance: random.Random, _: int) -> dict[str, Any]:
        values = ((kind, value_of(kind, chance, shape.nulls)) for kind in shape.columns)
        return {f"c{number}": _datum(kind, value) for number, (kind, value) in enumerate(values)}

    return row


def _datum(kind: str, value: Any) -> Any:
    """A value of an event as TiDB stores it."""
    if value is None:
        return None
    match kind.partition("(")[0]:
        case "int unsigned" | "enum":
            return Unsigned(value)
        case "decimal":
            precision, scale = map(int, kind.partition("(")[2].rstrip(")").split(","))
            return DecimalDatum(Decimal(value), DecimalForm(precision, scale))
        case "date" | "datetime" | "timestamp":
            integer, _, fraction = value.partition(".")
            return Time(*map(int, re.split("[- :]", integer)), *([int(fraction.ljust(6, "0"))] if fraction else []))
        case "json":
            return JsonDatum(json.loads(value))
    return value.encode() if isinstance(value, str) else value


RowMaker: TypeAlias = Callable[[random.Random, int], dict[str, Any]]
ROWS: Final[dict[str, RowMaker]] = {"sysbench": _sysbench, "wide": _wide}
