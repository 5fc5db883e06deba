"""Bounds of partitions that are texts of moments mean the zone of the session that wrote them."""

import pytest

from tidegate.model.event import Ddl, DdlSession
from tidegate.schema.partition import partition_of
from tidegate.schema.state import SchemaState, apply_ddl

CREATE = (
    "CREATE TABLE t (ts TIMESTAMP PRIMARY KEY) PARTITION BY RANGE (UNIX_TIMESTAMP(ts)) "
    "(PARTITION p0 VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01 08:00:00')), PARTITION p1 VALUES LESS THAN (%s))"
)


def bounds(zone: str, *queries: str) -> list[str]:
    """The bounds of the table after these DDLs, each in a session of that zone."""
    state, _ = apply_ddl(SchemaState(), Ddl(schema="d", table="", query="CREATE DATABASE d", commit_ts=1), 1)
    for at, query in enumerate(queries, 2):
        ddl = Ddl(schema="d", table="t", query=query, commit_ts=at, session=DdlSession(zone))
        state, _ = apply_ddl(state, ddl, 1)
    (table,) = state.tables.values()
    assert table.partition is not None
    locate = partition_of(table.partition, table.columns)
    assert locate({"ts": "2023-12-31 00:00:00"}) == "p0"
    return [text for one in table.partition.definitions for text in one.less_than]


@pytest.mark.parametrize("zone", ["+08:00", "Asia/Shanghai"])
def test_bounds_of_a_session(zone: str) -> None:
    """CREATE, ADD and REORGANIZE PARTITION keep the number that TiDB keeps; numbers and MAXVALUE stay as they are."""
    add = "ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (unix_timestamp('2024-03-01 08:00:00')))"
    cut = (
        "ALTER TABLE t REORGANIZE PARTITION p2 INTO (PARTITION p3 VALUES LESS THAN "
        "(UNIX_TIMESTAMP('2024-02-15 08:00:00')), PARTITION p4 VALUES LESS THAN MAXVALUE)"
    )

    assert bounds(zone, CREATE % "1706745600", add) == ["1704067200", "1706745600", "1709251200"]
    assert bounds(zone, CREATE % "1706745600", add, cut)[2:] == ["1707955200", "MAXVALUE"]


@pytest.mark.parametrize("zone", ["", "UTC", "+00:00"])
def test_a_zone_that_is_not_known(zone: str) -> None:
    """The texts stay, and mean the zone of the feed."""
    assert bounds(zone, CREATE % "MAXVALUE")[0] == "UNIX_TIMESTAMP('2024-01-01 08:00:00')"
