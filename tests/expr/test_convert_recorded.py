"""Column changes of the recordings: TiDB's own rows before and after."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.expr.change import Rule, converter
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType as C
from tidegate.mysql.column_value import parse_document
from tidegate.mysql.json_value import render_json

DATA = Path(__file__).parents[1] / "data"
BIGINT = C(T.LONGLONG, 20)
CHANGES = {
    "shop.products.price": (C(T.DECIMAL, 10, 2), C(T.DECIMAL, 12, 1)),
    "shop.orders.placed_at": (C(T.DATETIME, 26, 6), C(T.DATETIME, 19, 0)),
    "shop.tb2.amount": (C(T.DECIMAL, 8, 3), C(T.VARCHAR, 20)),
    "shop.customers.seen_at": (C(T.TIMESTAMP, 26, 6), C(T.DATETIME, 22, 2)),
    "shop.events_log.eid": (BIGINT, C(T.LONGLONG, 20, unsigned=True)),
    "shop.customers.balance": (C(T.DECIMAL, 18, 4), C(T.DECIMAL, 20, 2)),
}
MANIFEST = json.loads((DATA / "workload" / "manifest.json").read_text())


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def rule_of(old: C, new: C) -> Rule:
    rule = converter(old, new)
    assert rule is not None
    return rule


def written_keys(table: str, key: list[str], after: int, upto: int) -> set[tuple[str, ...]]:
    """The keys of a table that row messages with after < commitTs <= upto touch."""
    found = set()
    for path in sorted((DATA / "workload" / "canal_table").glob("p*.bin.gz")):
        data, at = gzip.decompress(path.read_bytes()), 0
        while at < len(data):
            at += 4 + int.from_bytes(data[at : at + 4], "big")
            size = int.from_bytes(data[at : at + 4], "big")
            message = json.loads(data[at + 4 : at + 4 + size])
            at += 4 + size
            named = f"{message['database']}.{message['table']}"
            if named == table and message.get("data") and after < message["_tidb"]["commitTs"] <= upto:
                rows = [*message["data"], *(message.get("old") or ())]
                found |= {tuple(str(row[name]) for name in key) for row in rows if set(key) <= set(row)}
    return found


def truth_around(commit_ts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last truth before a DDL and the first one after it."""
    moments = sorted(MANIFEST["truth"], key=lambda moment: moment["ts"])
    numbers = [next(m["n"] for m in reversed(moments) if m["ts"] < commit_ts)]
    numbers.append(next(m["n"] for m in moments if m["ts"] >= commit_ts))
    before, after = (
        json.loads(gzip.decompress((DATA / "workload" / "truth" / f"{number}.json.gz").read_bytes()))
        for number in numbers
    )
    return before, after


def plain(value: dict[str, Any] | None) -> Value:
    return None if value is None else value.get("i", value.get("u", value.get("s")))


def rows_of(truth: dict[str, Any], table: str) -> dict[tuple[str, ...], dict[str, Value]]:
    stored = truth["tables"][table]
    names = [column["name"] for column in stored["columns"]]
    rows = [dict(zip(names, map(plain, row), strict=True)) for row in stored["rows"]]
    return {tuple(str(row[name]) for name in stored["key"]): row for row in rows}


DDLS = next(found for found in MANIFEST.values() if isinstance(found, list) and found and "query" in found[0])


@pytest.mark.slow
@pytest.mark.parametrize("ddl", [ddl for ddl in DDLS if "rewrites_values_of" in ddl], ids=lambda d: d["query"][:60])
def test_workload(ddl: dict[str, Any]) -> None:
    """A row that nobody wrote around a column change holds afterwards what the rule makes of it."""
    name = ddl["rewrites_values_of"].split()[0]
    table, _, column = name.rpartition(".")
    before, after = truth_around(ddl["commit_ts"])
    rule = rule_of(*CHANGES[name])
    written = written_keys(table, before["tables"][table]["key"], before["ts"], after["ts"])
    old, new = rows_of(before, table), rows_of(after, table)
    untouched = (old.keys() & new.keys()) - written
    assert untouched
    for key in untouched:
        assert rule(old[key][column]) == new[key][column], key


def test_interleave() -> None:
    """BIGINT -> VARCHAR, VARCHAR -> INT and INT -> DECIMAL of the recording: the next image of each row agrees."""
    rules = {
        "alter table t modify column a varchar(30)": ("a", rule_of(BIGINT, C(T.VARCHAR, 30))),
        "alter table lossy modify column v int": ("v", rule_of(C(T.VARCHAR, 20), C(T.LONG))),
        "alter table lossy modify column n decimal(10,2)": ("n", rule_of(C(T.SHORT), C(T.DECIMAL, 10, 2))),
    }
    expected: dict[tuple[str, int, str], Value] = {}
    checked = 0
    for event in lines(DATA / "codec" / "interleave" / "events.jsonl.gz"):
        if event["kind"] != "row" or event["table"] not in {"t", "lossy"}:
            continue
        if event["sql"].lower() in rules:
            column, rule = rules[event["sql"].lower()]
            row = {one["name"]: one["value"] for one in event["columns"]}
            expected[event["table"], row["id"]["i"], column] = rule(_neutral(row[column]))
            continue
        before = {one["name"]: one["value"] for one in event["pre_columns"] or ()}
        for one in event["pre_columns"] or ():
            key = event["table"], before["id"]["i"], one["name"]
            if key in expected:
                assert _neutral(one["value"]) == expected.pop(key)
                checked += 1
    assert checked >= 4


def _neutral(value: dict[str, Any]) -> Value:
    return base64.b64decode(value["b"]).decode() if "b" in value else plain(value)


def test_json_prints_as_recorded() -> None:
    """Every JSON value that TiDB printed parses and prints as itself."""
    count = 0
    for stream in ("types", "ddl", "interleave"):
        for event in lines(DATA / "codec" / stream / "events.jsonl.gz"):
            for one in (event.get("columns") or ()) if event["kind"] == "row" else ():
                if one["type"] == T.JSON and one["value"] is not None:
                    assert render_json(parse_document(one["value"]["s"])) == one["value"]["s"]
                    count += 1
    assert count > 10
