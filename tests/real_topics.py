"""The topics of tests/data/ticdc_topics: messages of a real TiCDC, and TiDB's own tables at some timestamps.

messages(topic)      a topic of TOPICS, by partition           files(where)    the storage sink's directory, unpacked
truths(topic)        the TiDB at the recorded TSOs, without the tables that TiCDC did not send into that topic
"""

import gzip
import json
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.engine.change import EventPosition, SourceDdl, ordered_ddls
from tidegate.lakes.lake import Lake
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.source.kafka_messages import TopicMessage
from tidegate.verify.compare import TruthColumn
from tidegate.verify.local import Cell, Truth, TruthTable, compare_tables

HOME: Final = Path(__file__).parent / "data" / "ticdc_topics"
TOPICS: Final = {
    "new/open": (HOME / "op.jsonl.gz", "open-protocol"),
    "new/canal": (HOME / "cj.jsonl.gz", "canal-json"),
    "classic/open": (HOME / "classic" / "op.jsonl.gz", "open-protocol"),
    "classic/canal": (HOME / "classic" / "cj.jsonl.gz", "canal-json"),
}
WITHOUT_KEY: Final = frozenset({"rc_ddl.nopk", "rc_part.gi", "rc_types.nokey", "rc_types.ukeynull"})
"""TiCDC sends nothing of them."""
SWAPPED: Final = frozenset({"rc_ddl.t", "rc_ddl.t2", "rc_ddl.tmp", "rc_ddl.v1"})
"""Three tables and a view of them: the classic TiCDC left them out, as it cannot follow their swap."""
LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "new/open": WITHOUT_KEY,
    "new/canal": WITHOUT_KEY,
    "classic/open": WITHOUT_KEY | SWAPPED | {"rc_tmp.t_moved"},
    "classic/canal": WITHOUT_KEY | SWAPPED | {"rc_tmp.t_moved"},
    "files": WITHOUT_KEY,
}
SENT_AS_NULL: Final = {("rc_shop.orders", "customer"), ("rc_shop.orders", "total")}
"""Rows committed in the last steps of a reorganising MODIFY COLUMN carry NULL there, in every topic of a TiCDC."""

OF_THE_MOMENT: Final = {(name, column) for name in ("rc_ddl.t", "rc_ddl.t2") for column in ("ts2", "dt2")}
"""Added with DEFAULT CURRENT_TIMESTAMP: no message tells when the statement began (docs/conversions.md)."""

INTEGERS: Final = ("int", "tinyint", "smallint", "mediumint", "bigint", "year")
BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DDL: Final = {"open-protocol": ("key", b'"t":2'), "canal-json": ("value", b'"isDdl":true')}


@cache
def ddls_of(topic: str) -> tuple[SourceDdl, ...]:
    """The DDLs of a topic, each once and in their order, as a changefeed takes them."""
    return tuple(ordered_ddls(_placed(topic)))


def _placed(topic: str) -> Iterator[SourceDdl]:
    path, protocol = TOPICS[topic]
    member, sign = _DDL[protocol]
    with gzip.open(path) as lines:
        for line in map(json.loads, lines):
            if sign not in b64decode(line[member] or ""):
                continue
            key, value = (None if line[part] is None else b64decode(line[part]) for part in ("key", "value"))
            place = EventPosition(line["topic"], line["partition"], line["offset"])
            for event in decode(key, value or b"", DecodeOptions(protocol=protocol)):
                if isinstance(event, Ddl):
                    yield SourceDdl(place, event)


@cache
def truth() -> dict[int, dict[str, Any]]:
    """TiDB's tables by timestamp and name: `columns` (name, data type, column type, extra, key) and `rows`."""
    with gzip.open(HOME / "truth.json.gz") as file:
        return {int(ts): tables for ts, tables in json.load(file).items()}


def messages(topic: str) -> dict[int, list[TopicMessage]]:
    """Return the messages of a topic by partition."""
    return {number: list(some) for number, some in _read(topic).items()}


@cache
def _read(topic: str) -> dict[int, tuple[TopicMessage, ...]]:
    found: dict[int, list[TopicMessage]] = {}
    with gzip.open(TOPICS[topic][0]) as lines:
        for line in map(json.loads, lines):
            key, value = (b64decode(line[name] or "") for name in ("key", "value"))
            found.setdefault(line["partition"], []).append(TopicMessage(line["offset"], key or None, value))
    return {number: tuple(some) for number, some in sorted(found.items())}


def files(where: Path) -> Path:
    """Unpack the storage sink's directory below `where` and return its root."""
    with tarfile.open(HOME / "storage-canal-json.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / "cjs"


def truths(topic: str) -> list[Truth]:
    """Return what the TiDB held at each recorded TSO, by time, of the tables that a topic, or "files", tells."""
    return [
        Truth(n, ts, {name: table for name, table in tables.items() if name not in LEFT_OUT[topic]}, note)
        for n, (ts, note, tables) in enumerate(_tables())
    ]


@cache
def _tables() -> list[tuple[int, str, dict[str, TruthTable]]]:
    points = json.loads((HOME / "points.json").read_text())
    return [
        (
            point["ts"],
            point["note"],
            {str(TableName(*name.split(".", 1))): _table(**table) for name, table in truth()[point["ts"]].items()},
        )
        for point in points
    ]


def _table(columns: list[list[str]], rows: list[list[str | None]]) -> TruthTable:
    kinds = [kind for _, kind, *_ in columns]
    return TruthTable(
        tuple(name for name, *_, key in columns if key == "PRI"),
        tuple(
            TruthColumn(name, text, generated="virtual" if extra.startswith("VIRTUAL") else "")
            for name, _, text, extra, _ in columns
        ),
        [tuple(map(_cell, kinds, row)) for row in rows],
    )


def _cell(kind: str, text: str | None) -> Cell:
    """Return a value of the truth, which is a text (bytes and bits: hexadecimal), tagged."""
    if text is None:
        return None
    if kind in INTEGERS:
        return {"i": int(text)}
    if kind == "bit":
        return {"u": int(text, 16)}
    if kind in BYTES:
        return {"b": b64encode(bytes.fromhex(text)).decode()}
    if kind == "float":
        return {"f32": float(np.float32(text)), "s": text}
    return {"f64": float(text)} if kind == "double" else {"s": text}


def tellable(truth: Truth, without: Collection[str] = (), columns: Collection[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the truth as plain objects, without the columns that no reader of the topic can know whole, and without
    some tables and further columns."""
    hidden = OF_THE_MOMENT | SENT_AS_NULL | set(columns)
    tables = {}
    for name, table in truth.tables.items():
        if name.replace("`", "") in without:
            continue
        kept = [at for at, column in enumerate(table.columns) if (name, column.name) not in hidden]
        told = [{"name": table.columns[at].name, "type": table.columns[at].type} for at in kept]
        tables[name] = {"columns": told, "rows": [[row[at] for at in kept] for row in table.rows]}
    return {"ts": truth.ts, "tables": tables}


def differences(root: Path, truth: Truth, unknown: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """Yield in what a lake differs from the TiDB, but for what no reader of the topic knows, and `unknown` columns."""
    lake = Lake(str(root))
    for report in compare_tables(truth, lake.tables(), lake.arrow):
        for one in report.differences:
            cell = report.name, one.column
            if cell not in {*OF_THE_MOMENT, *unknown} and (cell not in SENT_AS_NULL or one.found is not None):
                yield f"{truth.after}, {report.name}: {one}"
