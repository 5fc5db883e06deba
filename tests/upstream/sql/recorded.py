"""Every table definition that the recordings hold, in each state it went through."""

import lzma
import re
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from tidegate.schema.stored.definition import StoredSchema, StoredTable, parse_stored

DATA = Path(__file__).parents[2] / "data" / "kv"


def metas() -> Iterator[bytes]:
    for path in sorted(DATA.glob("*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            for line in lines:
                entry = msgspec.json.decode(line)
                if entry["kind"] == "meta" and entry.get("value_b64"):
                    yield b64decode(entry["value_b64"])


@cache
def tables() -> tuple[StoredTable, ...]:
    """Definitions in the order of the recordings, those of the DDL job tables first."""
    with lzma.open(DATA / "initial_schema.json.xz") as file:
        start = msgspec.json.decode(file.read())
    first = [
        parse_stored(msgspec.json.encode(start[name]), StoredTable) for name in ("tidb_ddl_job", "tidb_ddl_history")
    ]
    marked = [value for value in metas() if re.match(rb'\{"id":\d+,"name":\{', value)]
    return (*first, *(parse_stored(value, StoredTable) for value in marked))


@cache
def schemas() -> tuple[StoredSchema, ...]:
    marked = [value for value in metas() if re.match(rb'\{"id":\d+,"db_name":\{', value)]
    return tuple(parse_stored(value, StoredSchema) for value in marked)
