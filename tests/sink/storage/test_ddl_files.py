"""Which schema files a DDL has."""

import pytest

from tidegate.codec.storage import schema_file_columns
from tidegate.model.event import Ddl
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.storage import ddl_files

BEFORE = (
    "CREATE DATABASE s",
    "CREATE TABLE s.t (a INT)",
    "CREATE TABLE s.u (b INT)",
    "CREATE TABLE s.p (c INT PRIMARY KEY) PARTITION BY RANGE (c) (PARTITION x VALUES LESS THAN (9))",
    "CREATE TABLE s.q (c INT PRIMARY KEY)",
)


@pytest.mark.parametrize(
    ("name", "query", "files"),
    [
        ("t", "ALTER TABLE s.t ADD COLUMN n INT", [("t", True, ["a", "n"])]),
        ("t", "ALTER TABLE s.t COMMENT = 'x'", [("t", True, ["a"])]),
        ("t", "TRUNCATE TABLE s.t", [("t", True, ["a"])]),
        ("t", "DROP TABLE s.t", [("t", True, ["a"])]),
        ("v", "RENAME TABLE s.t TO s.v", [("v", True, ["a"])]),
        (
            "u",
            "RENAME TABLE s.t TO s.w, s.u TO s.t, s.w TO s.u",
            [("u", True, ["a"]), ("t", False, ["b"])],
        ),
        (
            "p",
            "ALTER TABLE s.p EXCHANGE PARTITION x WITH TABLE s.q",
            [("p", True, ["c"]), ("q", False, ["c"])],
        ),
        (
            "q",
            "ALTER TABLE s.p EXCHANGE PARTITION x WITH TABLE s.q",
            [("p", True, ["c"]), ("q", False, ["c"])],
        ),
        ("seen", "CREATE VIEW s.seen AS SELECT a FROM s.t", [("seen", True, [])]),
        ("", "DROP DATABASE s", [("", True, None)]),
    ],
)
def test_files(name: str, query: str, files: list[tuple[str, bool, list[str] | None]]) -> None:
    """Each table that a DDL leaves changed has one; the statement and its type stand in one of them alone."""
    state = SchemaState()
    for number, before in enumerate(BEFORE, 1):
        state, _ = apply_ddl(state, Ddl(schema="s", table="", query=before, commit_ts=number), 1)
    ddl = Ddl(schema="s", table=name, query=query, commit_ts=99, type=7)
    after, effects = apply_ddl(state, ddl, 1)
    made = ddl_files(ddl, effects, after, schema_file_columns)
    names = [None if one.columns is None else [column["ColumnName"] for column in one.columns] for one in made]
    assert list(zip([one.table for one in made], [bool(one.query) for one in made], names, strict=True)) == files
    assert [one.action for one in made] == [7 if one.query else 0 for one in made]
    assert {one.version for one in made} == {99}
