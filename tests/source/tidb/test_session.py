"""The session of a DDL, as a TiDB's log tells of it."""

import json
from typing import Any

import pytest

from tidegate.model.event import DdlSession
from tidegate.schema.job import Job, parse_job
from tidegate.schema.stored.definition import Name, StoredColumn, StoredPartitionDef, StoredType
from tidegate.source.tidb_ddl import session_of

BEGUN = 1_700_000_000_000 << 18
"""2023-11-14 22:13:20 UTC."""
TIMESTAMP, DATETIME = 7, 12


def job(location: dict[str, Any] | None, query: str = "alter table t modify c datetime") -> Job:
    """A job as TiDB 8.5 writes it: jobs that touch no rows have no reorg_meta."""
    meta = None if location is None else {"sql_mode": 1436549152, "location": location, "reorg_tp": 0, "version": 1}
    told = {"id": 1, "type": 12, "query": query, "reorg_meta": meta, "sql_mode": 4, "start_ts": BEGUN}
    return parse_job(json.dumps(told))


def column(kind: int, **given: Any) -> StoredColumn:
    """A column `c`."""
    return StoredColumn(7, Name.of("c"), type=StoredType(kind, 0, 19, 0, "binary", "binary"), **given)


@pytest.mark.parametrize(
    ("location", "zone"),
    [
        ({"name": "", "offset": 19800}, "+05:30"),
        ({"name": "America/New_York", "offset": 0}, "America/New_York"),
        ({"name": "", "offset": 0}, "+00:00"),
        ({"name": "UTC", "offset": 0}, "UTC"),
        ({"name": "", "offset": -12600}, "-03:30"),
        ({"name": "Local", "offset": 0}, ""),
        (None, ""),
    ],
)
def test_the_zone_of_a_job(location: dict[str, Any] | None, zone: str) -> None:
    """A job that rewrites rows tells the zone, by name or by seconds; a name that means nothing here is not known."""
    assert session_of(job(location), "", "d", ()) == DdlSession(zone, "ANSI_QUOTES")


@pytest.mark.parametrize(
    ("query", "come", "session"),
    [
        (
            "alter table t add column c timestamp default '2024-01-01 08:00:00'",
            column(TIMESTAMP, default="2024-01-01 00:00:00", origin_default="2024-01-01 00:00:00"),
            DdlSession("+08:00", "ANSI_QUOTES"),
        ),
        (
            "alter table t add column c timestamp default '2024-01-01 08:00:00'",
            column(TIMESTAMP, default="2024-01-01 13:30:00", origin_default="2024-01-01 13:30:00"),
            DdlSession("-05:30", "ANSI_QUOTES"),
        ),
        (
            "alter table t add column c datetime default now()",
            column(DATETIME, default="CURRENT_TIMESTAMP", origin_default="2023-11-15 03:58:19"),
            DdlSession("+05:45", "ANSI_QUOTES", "2023-11-14 22:13:19"),
        ),
        (
            "alter table t add column c timestamp default now()",
            column(TIMESTAMP, default="CURRENT_TIMESTAMP", origin_default="2023-11-14 22:13:19"),
            DdlSession("", "ANSI_QUOTES", "2023-11-14 22:13:19"),
        ),
        (
            "alter table t add column c datetime default '2024-01-01'",
            column(DATETIME, default="2024-01-01 00:00:00", origin_default="2024-01-01 00:00:00"),
            DdlSession("", "ANSI_QUOTES"),
        ),
        ("create table t (c timestamp", column(TIMESTAMP, default="2024-01-01"), DdlSession("", "ANSI_QUOTES")),
    ],
)
def test_the_zone_of_defaults(query: str, come: StoredColumn, session: DdlSession) -> None:
    """A job that rewrites nothing tells no zone, but the defaults that it stored do: moments in UTC, clocks of the
    session."""
    assert session_of(job(None, query), query, "d", [come]) == session


def test_the_zone_of_bounds() -> None:
    """A bound that is the text of a moment is kept as a number, which tells what the session's clocks mean."""
    query = "create table t (ts timestamp) partition by range (unix_timestamp(ts)) (partition %s values less than (%s))"
    text = query % ("P", "unix_timestamp('2024-01-01 08:00:00')")
    kept = StoredPartitionDef(1, Name.of("p"), ["1704067200"])

    assert session_of(job(None, text), text, "d", (), [kept]).zone == "+08:00"
    assert session_of(job(None, text), text, "d", ()).zone == ""
    plain = query % ("P", "1704067200")
    assert session_of(job(None, plain), plain, "d", (), [kept]).zone == ""
