"""The action code of a DDL that came as canal-json."""

import pytest

from tests.golden.codec_cases import events
from tidegate.codec.canal_encode import ddl_type
from tidegate.engine.event_filter import acting
from tidegate.model.event import Ddl

STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
DDLS = [e for stream in STREAMS for e in events(stream).values() if e["kind"] == "ddl"]


def action_of(word: str, query: str) -> int | None:
    return acting(Ddl(schema="s", table="t", query=query, canal_type=word)).type


@pytest.mark.parametrize("text", ["query", "event_query"])
def test_recorded_statements(text: str) -> None:
    """Every recorded DDL gets its own action, as TiCDC sends it and as its user wrote it."""
    found = [(action_of(ddl_type(ddl["type"]), ddl[text]), ddl["type"], ddl[text]) for ddl in DDLS]
    assert [each for each in found if each[0] != each[1]] == []


@pytest.mark.parametrize(
    ("word", "query", "action"),
    [
        ("ALTER", "ALTER TABLE `t` ADD COLUMN `a` DECIMAL(10,2) COMMENT 'x, DROP (' DEFAULT 0", 5),
        ("ALTER", "ALTER TABLE `a,b`.`t``,` DROP COLUMN `a`, DROP COLUMN `b`", 61),
        ("ALTER", "ALTER TABLE `t` DROP PARTITION `p0`,`p1`", 20),
        ("ALTER", "ALTER TABLE `t` SOMETHING NEW", None),
        ("ALTER", "ALTER TABLE `t` ADD COLUMN `a` INT DEFAULT (" + "(" * 60, None),
        ("RENAME", "RENAME TABLE `a` TO `b`, `c` TO `d`", 47),
        ("QUERY", "alter schema s charset utf8mb4", 26),
        ("ALTER", "alter table t add constraint f foreign key (a) references p (id)", 61),
        ("CINDEX", "alter table t add foreign key (a) references p (id)", 9),
        ("QUERY", "ALTER TABLE `d`.`t`", 65),
        ("QUERY", "", None),
        ("QUERY", "CREATE SEQUENCE `s`", None),
        ("NEWWORD", "CREATE DATABASE `s`", None),
    ],
)
def test_statements(word: str, query: str, action: int | None) -> None:
    """Quoted commas and brackets do not count; what is not certain is None."""
    assert action_of(word, query) == action
