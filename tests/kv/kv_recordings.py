"""The recorded keys and values, and the definitions that they were written with."""

import base64
import json
import lzma
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.kv import TableLayout, decode_meta_key, decode_table_key
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.definition import StoredTable, parse_stored, table_layout

DATA = Path(__file__).parent.parent / "data" / "kv"
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")


def text_of(name: str) -> str:
    """A recorded file."""
    return lzma.decompress((DATA / f"{name}.xz").read_bytes()).decode()


@cache
def lines(stream: str) -> list[dict[str, Any]]:
    """The lines of a stream."""
    return [json.loads(line) for line in text_of(f"{stream}.jsonl").splitlines()]


def raw(line: dict[str, Any], member: str) -> bytes:
    """The bytes of a member; none for null."""
    return base64.b64decode(line[member] or "")


@cache
def system_tables() -> dict[int, TableLayout]:
    """The tables of DDL jobs, by their recorded definitions."""
    schema = json.loads(text_of("initial_schema.json"))
    stored = [parse_stored(json.dumps(schema[name]), StoredTable) for name in ("tidb_ddl_job", "tidb_ddl_history")]
    assert JOB_TABLE.id == stored[0].id
    return {table.id: table_layout(table) for table in stored}


class Pair(NamedTuple):
    """A key and a value with the layout of their table when they were written."""

    kind: str
    key: bytes
    value: bytes
    table: TableLayout


def pairs(stream: str) -> Iterator[Pair]:
    """All values of records and index entries, old ones too. The layout is the definition that the schema's own keys
    held just before: it has the elements that are not public yet, too."""
    versions: dict[int, list[tuple[int, StoredTable]]] = defaultdict(list)
    for line in lines(stream):
        if line["kind"] == "meta":
            _remember(versions, line)
        elif line["kind"] in {"record", "index", "ddl_job", "ddl_history"}:
            key = raw(line, "key_b64")
            table = _layout(versions, decode_table_key(key).table_id, line["commit_ts"])
            for value in (raw(line, "value_b64"), raw(line, "old_value_b64")):
                if value:
                    yield Pair(line["kind"], key, value, table)


def _remember(versions: dict[int, list[tuple[int, StoredTable]]], line: dict[str, Any]) -> None:
    key = decode_meta_key(raw(line, "key_b64"))
    if not (key.field or b"").startswith(b"Table:") or not line["value_b64"]:
        return
    table = parse_stored(raw(line, "value_b64"), StoredTable)
    partition = table.partition
    lists = (partition.definitions, partition.adding_definitions, partition.dropping_definitions) if partition else ()
    for physical_id in {table.id, *(found.id for each in lists for found in each or ())}:
        versions[physical_id].append((line["commit_ts"], table))


def _layout(versions: dict[int, list[tuple[int, StoredTable]]], physical_id: int, commit_ts: int) -> TableLayout:
    if physical_id in system_tables():
        return system_tables()[physical_id]
    stored = next(table for ts, table in reversed(versions[physical_id]) if ts < commit_ts)
    return table_layout(stored, physical_id)
