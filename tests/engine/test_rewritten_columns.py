"""Where a DDL gives a column new bytes, a real TiCDC sends NULL for it in some rows, and a feed says so."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.test_plan import landed, plan
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import EventPosition, SourceDdl, ordered_ddls
from tidegate.engine.plan import Checkpoint, Round, plan_round
from tidegate.engine.segment import plan_segment
from tidegate.model.event import Ddl, Event, Insert, Update
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState, apply_ddl

TOPICS = Path(__file__).parents[1] / "data" / "ticdc_topics"
CREATE = (10, "create table t (id int primary key, v {})")
CHANGES = {
    "int -> bigint": False,
    "bigint -> int": False,
    "int -> int unsigned": True,
    "int -> varchar(20)": True,
    "varchar(10) -> int": True,
    "varchar(10) -> varchar(20)": False,
    "varchar(20) -> varchar(10)": False,
    "varchar(20) -> text": False,
    "varchar(20) -> char(20)": True,
    "char(5) -> char(9)": False,
    "binary(5) -> binary(9)": True,
    "varchar(9) -> varbinary(9)": True,
    "varchar(9) charset latin1 -> varchar(9) charset utf8mb4": False,
    "varchar(9) charset gbk -> varchar(9) charset utf8mb4": True,
    "decimal(12,2) -> decimal(20,4)": True,
    "decimal(12,2) -> decimal(12,2)": False,
    "datetime -> datetime(3)": True,
    "timestamp -> datetime": True,
    "float -> double": True,
    "enum('a') -> enum('a','b')": False,
    "enum('a','b') -> enum('b','a')": True,
    "bit(4) -> bit(8)": False,
    "bit(8) -> bit(4)": True,
}


def segment(*ddls: tuple[int, str]) -> Round:
    """The last DDL as the round of a sink in which every DDL cuts every table."""
    state = SchemaState()
    for ts, query in ddls[:-1]:
        state, _ = apply_ddl(state, Ddl(schema="s", table="t", query=query, commit_ts=ts), 1)
    ts, query = ddls[-1]
    last = SourceDdl(EventPosition("x", 0, 1), Ddl(schema="s", table="t", query=query, commit_ts=ts))
    return plan_segment(state, Checkpoint(ddls[-2][0]), [last], ts, landed())


@pytest.mark.parametrize("how", [plan, segment])
@pytest.mark.parametrize(("change", "told"), CHANGES.items())
def test_which_changes_are_told(change: str, *, told: bool, how: Callable[..., Round]) -> None:
    """Those for which TiDB writes new bytes, once, with table, column and window, for either kind of sink."""
    old, new = change.split(" -> ")
    planned = how((10, CREATE[1].format(old)), (20, f"alter table t modify v {new}"))
    warnings = [one for one in planned.warnings if "NULL" in one]
    assert len(warnings) == told
    for warning in warnings:
        assert "table s.t column v: the DDL of ts 20 rewrites" in warning
        assert "(10, 20]" in warning
        assert "docs/online-schema-change.md" in warning


def test_a_change_log_is_as_it_was() -> None:
    """Rows of a change log are mounted here, so nothing is said; nor is it of a table that the filter leaves out."""
    ddls = [(10, CREATE[1].format("int")), (20, "alter table t modify v varchar(9)")]
    log = [
        SourceDdl(EventPosition(seq=ts), Ddl(schema="s", table="t", query=query, commit_ts=ts)) for ts, query in ddls
    ]
    assert plan_round(SchemaState(), Checkpoint(), log, 100, landed()).warnings == ()
    assert plan(*ddls, accept=lambda *_: False).warnings == ()


def recorded(name: str, protocol: str) -> list[Event]:
    """The events of a topic of a real TiCDC."""
    lines = map(json.loads, gzip.decompress((TOPICS / name).read_bytes()).splitlines())
    parts = ((base64.b64decode(line["key"] or ""), base64.b64decode(line["value"] or "")) for line in lines)
    options = DecodeOptions(protocol=protocol)
    return [event for key, value in parts for event in decode(key or None, value, options)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "protocol"), [("op.jsonl.gz", "open-protocol"), ("cj.jsonl.gz", "canal-json")])
def test_a_real_ticdc(name: str, protocol: str) -> None:
    """Each NULL that the recording has where TiDB had none lies in a window that is told."""
    events = recorded(name, protocol)
    mine = [event for event in events if not isinstance(event, Ddl) or event.schema == "rc_shop"]
    ddls = ordered_ddls(
        SourceDdl(EventPosition("x", 0, at), one) for at, one in enumerate(mine) if isinstance(one, Ddl)
    )
    planned = plan_round(SchemaState(), Checkpoint(), ddls, max(one.ddl.commit_ts or 0 for one in ddls), landed())
    told = [re.search(r"table (\S+) column (\S+): .*\((\d+), (\d+)\]", warning) for warning in planned.warnings]
    windows = [(one[1], one[2], int(one[3]), int(one[4])) for one in told if one]

    nulls = [
        (str(TableName(event.schema, event.table)), field.name, event.commit_ts or 0)
        for event in events
        if isinstance(event, Insert | Update) and (event.schema, event.table) == ("rc_shop", "orders")
        for field, value in zip(event.fields, event.after, strict=True)
        if value is None
    ]
    assert {column for _, column, _ in nulls} == {"customer", "total"}
    for table, column, ts in nulls:
        assert any(one[:2] == (table, column) and one[2] < ts <= one[3] for one in windows), (table, column, ts)
