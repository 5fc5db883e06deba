"""What SQL returned at recorded timestamps, as `tidegate verify` reads a recording."""

import base64
import json
import lzma
from collections.abc import Container, Iterator
from functools import cache, lru_cache

import numpy as np

from tests.source.tidb import modify_recording
from tests.source.tidb.modify_recording import Shown
from tests.tikv.recorded import DATA
from tidegate.model.event import Ddl
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.verify.compare import ComparedTable, shape_of_table
from tidegate.verify.local import Cell, Truth, TruthTable

_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


@cache
def shape_of(schema: str, create: str) -> ComparedTable:
    """The columns and the key of a table."""
    state = SchemaState()
    for query in (f"CREATE DATABASE `{schema}`", create):
        state, _ = apply_ddl(state, Ddl(schema=schema, table="", query=query, commit_ts=1), 0)
    (table,) = state.tables.values()
    return shape_of_table(table, table.columns)


def cell(kind: str, value: object) -> Cell:
    """A value of SQL's text by its type."""
    if value is None:
        return None
    if isinstance(value, bytes):
        if kind.startswith("bit"):
            return {"u": int.from_bytes(value, "big")}
        return {"b": base64.b64encode(value).decode()}
    text = str(value)
    if kind.startswith(_WHOLE):
        return {"i": int(text)}
    if kind.startswith("float"):
        return {"f32": float(np.float32(text))}
    if kind.startswith("double"):
        return {"f64": float(text)}
    if kind.startswith("bit"):
        return {"u": int.from_bytes(text.encode(), "big")}
    if kind.startswith(_BYTES):
        return {"b": base64.b64encode(text.encode()).decode()}
    return {"s": text}


@lru_cache(1 << 16)
def cells(kinds: tuple[str, ...], row: tuple[object, ...]) -> tuple[Cell, ...]:
    """The values of a row; most rows are those of the moment before."""
    return tuple(map(cell, kinds, row))


def truth_of(number: int, ts: int, name: str, tables: dict[str, Shown]) -> Truth:
    """What a recording has of that moment."""
    found = {}
    for table, shown in tables.items():
        shape = shape_of(table.partition(".")[0], shown.create)
        by_name = {column.name: column for column in shape.columns}
        columns = tuple(by_name[column] for column in shown.columns)
        kinds = tuple(column.type.lower() for column in columns)
        rows = [cells(kinds, row) for row in shown.rows.elements()]
        found[table] = TruthTable(shape.key, columns, rows)
    return Truth(number, ts, found, name)


def modify_truths(wanted: Container[int] = range(1 << 62)) -> Iterator[Truth]:
    """The tables under a DDL at 942 timestamps, or at those wanted."""
    for number, truth in enumerate(modify_recording.truths()):
        if truth.ts not in wanted:
            continue
        tables = {f"md.{name}": shown for name, shown in truth.tables.items()}
        yield truth_of(number, truth.ts, truth.name, tables)


def workload_truths(wanted: Container[int] = range(1 << 62)) -> Iterator[Truth]:
    """All tables at sixteen timestamps, or at those wanted."""
    return (truth for truth in _workload_truths() if truth.ts in wanted)


def _workload_truths() -> Iterator[Truth]:
    tables: dict[str, Shown] = {}
    number, ts, label = 0, 0, ""
    with lzma.open(DATA / "truth.jsonl.xz", "rt") as lines:
        for line in lines:
            said = json.loads(line)
            if said["kind"] == "snapshot":
                if ts:
                    yield truth_of(number, ts, label, tables)
                number, ts, label, tables = number + 1, int(said["ts"]), said["label"], {}
            elif said["kind"] == "table" and said["type"] == "BASE TABLE":
                tables[f"{said['db']}.{said['table']}"] = Shown(said["create"])
            elif (shown := tables.get(f"{said.get('db')}.{said.get('table')}")) is not None:
                if said["kind"] == "columns":
                    shown.columns = tuple(said["columns"])
                elif said["kind"] == "row":
                    shown.rows[tuple(map(_value, said["v"]))] += 1
    yield truth_of(number, ts, label, tables)


def _value(value: object) -> object:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value
