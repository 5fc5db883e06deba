"""Every DDL that a real TiCDC recorded parses and applies, and leaves the tables that the real TiDB had."""

import base64
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.event import Ddl
from tidegate.model.table import ColumnInfo, IndexInfo, TableInfo, TableName
from tidegate.schema.columns import render_type
from tidegate.schema.effects import Effect, NoEffect
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.state import SchemaState, apply_ddl

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")


def lines(stream: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / "codec" / stream / "events.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def history(stream: str, field: str = "query") -> Iterator[tuple[dict[str, Any], SchemaState, tuple[Effect, ...]]]:
    """Each recorded DDL with the state and effects after it."""
    state, last_ts, seq = SchemaState(), 0, 0
    for line in lines(stream):
        if line["kind"] != "ddl":
            continue
        seq = seq + 1 if line["commit_ts"] == last_ts else 0
        last_ts = line["commit_ts"]
        ddl = Ddl(schema=line["schema"], table=line["table"], query=line[field], commit_ts=last_ts, type=line["type"])
        state, effects = apply_ddl(state, ddl, seq)
        yield line, state, effects


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("field", ["query", "event_query", "sql"])
def test_parses(stream: str, field: str) -> None:
    """A recorded statement parses as TiCDC restored it and as the user wrote it."""
    for line in lines(stream):
        if line["kind"] == "ddl":
            assert len(parse_ddl(line[field], line["schema"])) == 1, line[field]


def default_text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def check_default(mine: str | bytes | None, column: dict[str, Any], kind: str) -> None:
    theirs, bits = column[kind], column[f"{kind}_bit"]
    if bits is not None:
        assert mine == base64.b64decode(bits)
    elif mine is None and kind == "origin_default":
        elems = column["type"]["Elems"]
        zeros = {None, "0", "", "0000-00-00", "0000-00-00 00:00:00", "00:00:00", elems[0] if elems else None}
        assert theirs in zeros, column
    elif isinstance(mine, bytes) and theirs is not None and column["type"]["Tp"] != 254:
        assert mine.decode("utf-8", "replace") == theirs.encode().decode("utf-8", "replace"), column
    elif theirs is not None and column["type"]["Tp"] in (4, 5, 246) and mine is not None:
        assert Decimal(str(mine)) == Decimal(theirs)
    else:
        assert default_text(mine) == theirs, column


def check_column(mine: ColumnInfo, column: dict[str, Any], line: dict[str, Any], *, ids: bool) -> None:
    shown = {item["name"]: item for item in line["columns"]}[column["name"]["O"]]
    assert mine.name == column["name"]["O"]
    assert render_type(mine.type) == shown["info_schema"], mine
    assert mine.type.charset == shown["charset"]
    assert mine.nullable == (column["type"]["Flag"] & 1 == 0), mine
    assert (mine.generated is not None) == bool(column["generated_expr_string"])
    assert mine.stored == column["generated_stored"]
    assert mine.comment == column["comment"]
    assert mine.auto_increment == bool(column["type"]["Flag"] & 512)
    assert (mine.type.elems or ()) == tuple(column["type"]["Elems"] or ())
    if ids:
        assert mine.id == column["id"], mine
    check_default(mine.origin_default, column, "origin_default")
    check_default(mine.default, column, "default")


def recorded_handle(info: dict[str, Any]) -> tuple[str, ...]:
    """The handle key by TiCDC's rule, from TiDB's own definition."""
    columns = {column["name"]["L"]: column for column in info["cols"]}
    if info["pk_is_handle"]:
        return tuple(c["name"]["O"] for c in info["cols"] if c["type"]["Flag"] & 2)
    unique = []
    for index in info["index_info"] or []:
        names = tuple(part["name"]["O"] for part in index["idx_cols"])
        if index["is_primary"]:
            return names
        flags = [columns[name.lower()]["type"]["Flag"] for name in names]
        if index["is_unique"] and all(flag & 1 for flag in flags):
            unique.append((len(names), index["id"], names))
    return min(unique)[2] if unique else ()


def index_key(index: IndexInfo) -> tuple[Any, ...]:
    return index.id, index.name, index.columns, index.unique, index.primary, index.visible


def check_table(mine: TableInfo, line: dict[str, Any]) -> None:
    info = line["tidb_table_info"]
    public = [column for column in info["cols"] if not column["hidden"]]
    assert [column.name for column in mine.columns] == [column["name"]["O"] for column in public]
    converted = info["max_col_id"] != mine.max_column_id
    for column, theirs in zip(mine.columns, public, strict=True):
        check_column(column, theirs, line, ids=not converted)
    assert mine.handle_key == recorded_handle(info)
    assert mine.charset == info["charset"]
    assert mine.comment == info["comment"]
    assert mine.max_index_id == info["max_idx_id"]
    hidden = {column["name"]["O"] for column in info["cols"] if column["hidden"]}
    theirs = {
        (
            index["id"],
            index["idx_name"]["O"],
            tuple("" if part["name"]["O"] in hidden else part["name"]["O"] for part in index["idx_cols"]),
            index["is_unique"],
            index["is_primary"],
            not index["is_invisible"],
        )
        for index in info["index_info"] or []
    }
    assert {index_key(index) for index in mine.indexes if index.id} == theirs
    check_partition(mine, info["partition"])


def check_partition(mine: TableInfo, theirs: dict[str, Any] | None) -> None:
    if theirs is None:
        assert mine.partition is None
        return
    assert mine.partition is not None
    assert mine.partition.method == {1: "RANGE", 2: "HASH", 3: "LIST", 4: "KEY"}[theirs["type"]]
    assert mine.partition.expr == theirs["expr"]
    assert mine.partition.columns == tuple(name["O"] for name in theirs["columns"] or ())
    definitions = [(item.name, item.less_than, item.in_values) for item in mine.partition.definitions]
    assert definitions == [
        (item["name"]["O"], tuple(item["less_than"] or ()), tuple(map(tuple, item["in_values"] or ())))
        for item in theirs["definitions"]
    ]


@pytest.mark.parametrize("stream", STREAMS)
def test_tables(stream: str) -> None:
    """After each DDL the table is TiDB's: columns, ids, types, defaults, keys, partitions, handle key."""
    recorded = {
        (line["schema"], line["table"], line["version"]): line for line in lines(stream) if line["kind"] == "table"
    }
    seen = set()
    for ddl, state, _ in history(stream):
        for key, line in recorded.items():
            if key[2] != ddl["commit_ts"]:
                continue
            table = state.table(TableName(key[0], key[1]))
            if table is not None:
                check_table(table, line)
                seen.add(key)
    assert seen == set(recorded)


@pytest.mark.parametrize("stream", STREAMS)
def test_survives_json(stream: str) -> None:
    """The state after each DDL comes back from its JSON form unchanged."""
    for _, state, _ in history(stream):
        assert SchemaState.from_json(state.to_json()) == state


@pytest.mark.parametrize("stream", STREAMS)
def test_physical_life(stream: str) -> None:
    """Incarnations follow TiDB's table ids: they change together, and RECOVER brings both back."""
    ids: dict[str, int] = {}
    for ddl, state, _ in history(stream):
        table = state.table(TableName(ddl["schema"], ddl["table"]))
        if table is None or ddl["type"] == 11:
            continue
        if ddl["type"] in (42, 71, 72):
            # TiDB moves rows that stay what they are to new physical ids.
            ids = {}
            continue
        assert ids.setdefault(table.incarnation, ddl["table_id"]) == ddl["table_id"], ddl
    assert len(set(ids.values())) == len(ids)


def test_no_unknown_tables() -> None:
    """A history that is read from its start never meets an unknown table."""
    for stream in STREAMS:
        for ddl, _, effects in history(stream):
            for effect in effects:
                if isinstance(effect, NoEffect):
                    assert not effect.reason.startswith("unknown"), ddl


def workload() -> list[dict[str, Any]]:
    manifest: dict[str, Any] = json.loads((DATA / "workload" / "manifest.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = manifest["ddls"]
    return found


@pytest.mark.parametrize("number", range(1, 13))
def test_workload_truth(number: int) -> None:
    """At each of twelve moments the tables are those of the source: names, types, nullability, keys, generated."""
    with gzip.open(DATA / "workload" / "truth" / f"{number}.json.gz", "rt", encoding="utf-8") as file:
        truth = json.load(file)
    state, last_ts, seq = SchemaState(), 0, 0
    for line in workload():
        if line["commit_ts"] > truth["ts"]:
            break
        seq = seq + 1 if line["commit_ts"] == last_ts else 0
        last_ts = line["commit_ts"]
        state, _ = apply_ddl(state, Ddl(schema="shop", table="", query=line["query"], commit_ts=last_ts), seq)
    assert {str(table.name) for table in state.tables.values()} == set(truth["tables"])
    for table in state.tables.values():
        theirs = truth["tables"][str(table.name)]
        assert list(table.handle_key) == theirs["key"]
        assert (table.partition is not None) == theirs.get("partitioned", False)
        assert [
            (c.name, render_type(c.type), c.nullable, ("stored" if c.stored else "virtual") if c.generated else None)
            for c in table.columns
        ] == [(c["name"], c["type"], c["nullable"], c.get("generated")) for c in theirs["columns"]]
