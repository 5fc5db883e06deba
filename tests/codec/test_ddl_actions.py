"""The action code of a DDL that came as canal-json."""

import pytest

from tests.golden.codec_cases import events
from tidegate.codec.canal.ddl_actions import action_of, ddl_type

STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
DDLS = [e for stream in STREAMS for e in events(stream).values() if e["kind"] == "ddl"]


def test_recorded_statements() -> None:
    """No recorded DDL gets another action than its own, and nearly all get theirs."""
    found = [(action_of(ddl_type(ddl["type"]), ddl["query"]), ddl["type"], ddl["query"]) for ddl in DDLS]
    assert [each for each in found if each[0] not in {None, each[1]}] == []
    assert sum(each[0] is None for each in found) * 20 < len(found), [each for each in found if each[0] is None]


@pytest.mark.parametrize(
    ("word", "query", "action"),
    [
        ("ALTER", "ALTER TABLE `t` ADD COLUMN `a` DECIMAL(10,2) COMMENT 'x, DROP (' DEFAULT 0", 5),
        ("ALTER", "ALTER TABLE `a,b`.`t``,` DROP COLUMN `a`, DROP COLUMN `b`", 61),
        ("ALTER", "ALTER TABLE `t` DROP PARTITION `p0`,`p1`", 20),
        ("ALTER", "ALTER TABLE `t` SOMETHING NEW", None),
        ("ALTER", "ALTER TABLE `t` ADD COLUMN `a` INT DEFAULT (" + "(" * 60, None),
        ("RENAME", "RENAME TABLE `a` TO `b`, `c` TO `d`", None),
        ("QUERY", "", None),
        ("QUERY", "CREATE SEQUENCE `s`", None),
        ("NEWWORD", "CREATE DATABASE `s`", None),
    ],
)
def test_statements(word: str, query: str, action: int | None) -> None:
    """Quoted commas and brackets do not count; what is not certain is None."""
    assert action_of(word, query) == action
