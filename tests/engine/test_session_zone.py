"""Which DDLs take values from the time zone of their session, and what is said where nobody knows it."""

import pytest

from tests.engine.test_plan import plan
from tidegate.engine.plan import of_session, zone_warning
from tidegate.model.event import Ddl, DdlSession
from tidegate.schema.state import SchemaState, apply_ddl

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, at DATETIME, day DATE, v VARCHAR(30), n BIGINT, "
    "told TIMESTAMP(3) NULL)"
)
DEPENDS = {
    "MODIFY ts DATETIME": ["ts"],
    "MODIFY ts DATETIME(3), MODIFY at TIMESTAMP": ["ts", "at"],
    "MODIFY at TIMESTAMP NULL": ["at"],
    "MODIFY day TIMESTAMP NULL": ["day"],
    "MODIFY v TIMESTAMP NULL": ["v"],
    "MODIFY ts VARCHAR(30)": ["ts"],
    "CHANGE ts n2 BIGINT": ["n2"],
    "MODIFY ts TIME": ["ts"],
    "MODIFY ts DATE": ["ts"],
    "ADD COLUMN c TIMESTAMP DEFAULT '2024-01-01 00:00:00'": ["c"],
    "ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP": ["c"],
    "PARTITION BY RANGE (UNIX_TIMESTAMP(ts)) (PARTITION p VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01')))": [
        "partition p"
    ],
}
"""Changes, and what of the table depends on the session."""
FREE = (
    "MODIFY ts TIMESTAMP(3) NULL",
    "MODIFY at DATETIME(3)",
    "MODIFY at VARCHAR(40)",
    "MODIFY day DATETIME",
    "MODIFY n VARCHAR(20)",
    "ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
    "ADD COLUMN c TIMESTAMP NULL",
    "ADD COLUMN c TIMESTAMP DEFAULT '0000-00-00 00:00:00'",
    "ADD COLUMN c DATETIME DEFAULT '2024-01-01 00:00:00'",
    "ADD COLUMN c INT DEFAULT 3",
    "ADD INDEX i (ts)",
    "RENAME COLUMN ts TO was",
)
"""Changes that mean the same in every zone."""


def altered(text: str, session: DdlSession | None = None) -> tuple[Ddl, list[str], str]:
    """A DDL on the table, what depends on its session, and what is said of it."""
    state, _ = apply_ddl(SchemaState(), Ddl(schema="", table="", query="CREATE DATABASE d", commit_ts=1), 1)
    state, _ = apply_ddl(state, Ddl(schema="d", table="t", query=TABLE, commit_ts=2), 1)
    ddl = Ddl(schema="d", table="t", query=f"ALTER TABLE t {text}", commit_ts=3)
    if session is not None:
        ddl = Ddl(schema="d", table="t", query=ddl.query, commit_ts=3, session=session)
    _, found = apply_ddl(state, ddl, 1)
    return ddl, of_session(found), zone_warning(ddl, found)


@pytest.mark.parametrize("text", DEPENDS)
def test_values_of_the_session(text: str) -> None:
    """TIMESTAMPs from and to any other type, texts of moments, clocks of DATETIMEs: the warning names column, table, ts
    and statement; a session that is known needs none."""
    ddl, found, said = altered(text)

    assert found == DEPENDS[text]
    assert all(one in said for one in (*found, "d.t", "ts 3", ddl.query))
    assert altered(text, DdlSession(zone="+08:00"))[2] == ""
    assert altered(text, DdlSession(sql_mode="ANSI"))[2] == said


@pytest.mark.parametrize("text", FREE)
def test_values_of_no_session(text: str) -> None:
    """Nothing is said of changes that mean the same everywhere."""
    assert altered(text)[1:] == ([], "")


def test_a_lake_is_told_once() -> None:
    """The plan of a lake tells of such a DDL, of tables that the lake has; the session goes along to the rows."""
    create, change = (10, "create table t (ts timestamp primary key)"), (50, "alter table t modify ts datetime")

    assert [one for one in plan(create, change).warnings if "time zone" in one] == [altered_warning(50, change[1])]
    assert plan(create, change, accept=lambda *_: False).warnings == ()


def altered_warning(ts: int, query: str) -> str:
    """What is said of a DDL on s.t that changes the column ts."""
    return (
        f"DDL of ts {ts} on s.t: the values of ts depend on the time zone of the session that ran it, which messages "
        "do not contain: `time-zone` is assumed. If it was another one, they differ from the upstream: " + query
    )
