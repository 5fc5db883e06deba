"""DDL texts as TiCDC sends them: equal to what TiDB's own parser printed, byte for byte."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.counts import some
from tidegate.model.errors import SqlError
from tidegate.schema.restore_ddl import RestoredDdl, restore_ddl

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
NO_JOB = frozenset(
    """analyze table/drop procedure/lock tables/admin/alter instance/alter range/begin/brie/call/create user/deallocate
    delete/drop stats/drop user/explain/grant/import into action/kill/lock stats/procedure info/rename user/repair table
    set/update/use""".replace("\n    ", "/").split("/")
)
"""Kinds of statements that TiDB does not finish as a DDL job that a changefeed follows."""
RAW = {
    "drop hypo index i on t",
    "alter table t truncate partition p0, truncate partition p1",
}
"""What goes as it came; docs/formats/ddl-texts.md says why."""
OTHER = {'alter table t ttl_enable="on" placement policy p1'}
"""What is one blank away from TiCDC's text."""


def restored(pair: dict[str, Any]) -> RestoredDdl:
    return restore_ddl(pair["sql"], pair.get("sql_mode", "").split(","), pair.get("charset", ""))


@cache
def pairs() -> list[dict[str, Any]]:
    with gzip.open(DATA / "ddl_restore.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def jobs() -> list[dict[str, Any]]:
    return [pair for pair in pairs() if "restored" in pair and pair["kind"] not in NO_JOB]


def chosen() -> list[dict[str, Any]]:
    """Each fourth of them and those that are told apart; in the soak all."""
    return [pair for at, pair in enumerate(jobs()) if at % some(4, 1) == 0 or pair["sql"] in {*OTHER, *RAW}]


def test_every_recorded_text():
    """Of 18,857 statements that become jobs, all but three are equal; two of these are refused, so they go raw."""
    differ = set()
    for pair in chosen():
        try:
            if restored(pair).text != pair["restored"]:
                differ.add(pair["sql"])
        except SqlError:
            assert pair["sql"] in RAW
    assert len(jobs()) == 18_857
    assert differ == OTHER


def test_a_second_time():
    """What was printed is read and printed again as TiDB does, the texts that lose a backslash included."""
    wrong = []
    for pair in chosen():
        if not pair["restored"] or "again_error" in pair or pair["sql"] in OTHER or pair.get("charset") == "nonsense":
            continue
        again = restore_ddl(pair["restored"]).text
        emptied = again == "" and pair["restored"].startswith("ALTER TABLE ") and pair["restored"].endswith("`")
        if again != pair.get("again", pair["restored"]) and not emptied:
            wrong.append((pair["restored"], again))
    assert wrong == []


def test_nothing_but_sql_errors():
    """A text that TiDB's parser refuses is refused with SqlError, or printed: nothing else happens."""
    refused = 0
    for pair in pairs():
        if "error" in pair:
            try:
                restored(pair)
            except SqlError:
                refused += 1
    assert refused > 400


def test_recorded_events():
    """All recorded DDL events have the text that the real sink sent."""
    found = 0
    for stream in STREAMS:
        with gzip.open(DATA / "codec" / stream / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
            for event in map(json.loads, lines):
                if event["kind"] == "ddl":
                    assert restore_ddl(event["event_query"]).text == event["query"]
                    found += 1
    assert found == 201


@pytest.mark.parametrize(
    ("sql", "loses"),
    [
        (r"create table t (a enum('x\\y'))", True),
        (r"create table t (a int) comment 'x\\y'", True),
        (r"create table t (a int comment 'x\\y')", False),
        (r"create table t (a varchar(9) default 'x\\y')", False),
    ],
)
def test_lost_backslashes(sql: str, loses: bool):  # noqa: FBT001
    """A text whose strings read otherwise the next time says so."""
    found = restore_ddl(sql)
    assert found.loses is loses
    assert (restore_ddl(found.text).text != found.text) is loses


@pytest.mark.parametrize("sql", ["", ";", "select 1", "create table t (a int", "drop table t; drop table u", "x 'y"])
def test_refused(sql: str):
    """Nothing is made of what is not one whole statement."""
    with pytest.raises(SqlError):
        restore_ddl(sql)
