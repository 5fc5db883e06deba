"""The action of a DDL, read off its text alone."""

import pytest

from tests.golden.codec_cases import events
from tidegate.engine.event_filter import action_of_text
from tidegate.model.mysql import ActionType

STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
DDLS = [e for stream in STREAMS for e in events(stream).values() if e["kind"] == "ddl"]
SILENT = "ALTER TABLE `ttl`"
"""TiDB writes a statement anew without the option that it sets."""


@pytest.mark.parametrize("member", ["query", "event_query"])
def test_recorded_statements(member: str) -> None:
    """Each recorded DDL has its own action, as the user wrote it and as TiDB writes it anew, but for a foreign key that
    brings an index along."""
    found = [(action_of_text(ddl[member], ddl["schema"]), ddl["type"], ddl[member]) for ddl in DDLS]
    wrong = [each for each in found if each[0] != each[1]]

    assert len(found) > 150
    assert [each for each in wrong if "foreign key" not in each[2].lower()] in ([], [(None, 65, SILENT)])
    assert {each[:2] for each in wrong if "foreign key" in each[2].lower()} == {
        (ActionType.ADD_FOREIGN_KEY, ActionType.MULTI_SCHEMA_CHANGE)
    }


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("alter table t add column (a int, b int)", ActionType.MULTI_SCHEMA_CHANGE),
        ("alter table t change a b int", ActionType.MODIFY_COLUMN),
        ("alter table t rename to u", ActionType.RENAME_TABLE),
        ("alter table t comment 'x'", ActionType.MODIFY_TABLE_COMMENT),
        ("alter table t comment 'x' charset utf8mb4", None),
        ("alter table t ttl = `at` + interval 1 day", ActionType.ALTER_TTL_INFO),
        ("flashback table t to u", ActionType.RECOVER_TABLE),
        ("create table t like u", ActionType.CREATE_TABLE),
        ("create sequence s", None),
        ("create table t (", None),
        ("create table t (a int); create table u (a int)", None),
        ("", None),
    ],
)
def test_statements(query: str, action: int | None) -> None:
    """The user's own words do as well; what does not say one action says none."""
    assert action_of_text(query, "db") == action
