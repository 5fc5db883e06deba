"""What the seeds of the workloads choose, counted without running one.

What is dealt comes in each ten seeds as often as its cards say; what is drawn beside it comes often enough.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from tests.upstream.simulate.ddl import Draw
from tests.workloads.setting import (
    BY_INDEX,
    FORCED,
    HANDLE_ONLY,
    LATE,
    MODES,
    PACKING,
    TOPICS,
    WAYS,
    WIRES,
    Setting,
    Wire,
    dealt,
    draw_setting,
    wire_of,
)
from tests.workloads.story import WIDE_TABLE, drawing
from tidegate.engine.dispatch import PARTITION_WORDS, SplitPolicy
from tidegate.schema.stored.definition import Name, StoredColumn, StoredTable, StoredType

SEEDS = 200
SETTINGS = [draw_setting(seed) for seed in range(SEEDS)]
PROTOCOLS = ("open-protocol", "canal-json")


def way_of(setting: Setting) -> str:
    """The card of the first rule."""
    if not setting.rules:
        return ""
    return BY_INDEX if "index" in setting.rules[0] else str(setting.rules[0]["partition"])


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_each_ten_seeds_have_every_option(first: int) -> None:
    """Protocols with each way of large rows, every dispatcher, every kind of lake; so the ten of `make test` have."""
    ten = SETTINGS[first : first + 10]

    assert Counter(map(wire_of, ten)) == Counter(WIRES)
    assert Counter(map(way_of, ten)) == Counter(WAYS)
    assert Counter(setting.mode for setting in ten) == Counter(MODES)
    assert sum(setting.late_start for setting in ten) == sum(LATE)
    assert sum(dealt("force", FORCED, seed) for seed in range(first, first + 10)) == sum(FORCED)


def test_how_often_each_wire_is_chosen() -> None:
    """Each of the two hundred, by its name."""
    assert Counter(str(wire_of(setting)) for setting in SETTINGS) == {
        "open-protocol none": 60,
        "open-protocol handle-key-only": 20,
        "open-protocol claim-check": 20,
        "canal-json none": 20,
        "canal-json handle-key-only": 20,
        "canal-json claim-check": 20,
        "canal-json claim-check raw": 20,
        "canal-json none bare": 20,
    }


def drawn(setting: Setting) -> Iterator[tuple[object, ...]]:
    """What a setting counts for, by protocol."""
    for rule in setting.rules:
        yield "rule", setting.protocol, rule["partition"], "index" in rule
        yield "topic", setting.protocol, rule["topic"]
    for word, value in setting.words.items():
        yield word, setting.protocol, value
    yield "packing", setting.large, setting.words.get(PACKING, "none")
    yield "old keys whole", setting.protocol, setting.split.unique_keys
    yield "partitions", setting.partitions
    yield "tasks", setting.tasks
    yield "force", setting.force, setting.mode
    yield "bare", setting.dated, bool(setting.rules)


def test_how_often_the_rest_is_drawn() -> None:
    """Every dispatcher, topic expression and option, over both protocols, five times at least."""
    counts = Counter(one for setting in SETTINGS for one in drawn(setting))
    wanted: list[tuple[object, ...]] = [
        *(
            ("rule", protocol, way, False)
            for protocol in PROTOCOLS
            for way in ("default", "table", "index-value", "rowid", "ts", "columns")
        ),
        *(("rule", protocol, "index-value", True) for protocol in PROTOCOLS),
        *(("topic", protocol, topic) for protocol in PROTOCOLS for topic in TOPICS),
        *(("only-output-updated-columns", protocol, "true") for protocol in PROTOCOLS),
        *(("delete-only-output-handle-key-columns", protocol, "true") for protocol in PROTOCOLS),
        *(("dialect", protocol, dialect) for protocol in PROTOCOLS for dialect in ("classic", "newarch")),
        *(("max-batch-size", protocol, size) for protocol in PROTOCOLS for size in ("1", "2", "16")),
        *(("packing", large, word) for large in ("claim-check", HANDLE_ONLY) for word in ("none", "snappy", "lz4")),
        *(("old keys whole", protocol, whole) for protocol in PROTOCOLS for whole in (True, False)),
        ("output-old-value", "open-protocol", "false"),
        *(("partitions", count) for count in (1, 2, 3, 5)),
        *(("tasks", count) for count in (1, 2, 3)),
        *(("force", True, mode) for mode in ("replica", "changelog", "history")),
        ("bare", False, True),
    ]

    assert {one: counts[one] for one in wanted if counts[one] < 5} == {}
    assert {str(one[2]) for one in counts if one[0] == "rule"} == PARTITION_WORDS.keys() - {""}


def test_what_contradicts_itself_is_not_drawn() -> None:
    """TiCDC refuses handle keys alone together with tables that have none, and old values are canal-json's always."""
    for setting in SETTINGS:
        assert not (setting.force and setting.large == HANDLE_ONLY)
        assert not (setting.force and setting.says("delete-only-output-handle-key-columns", "false"))
        assert (setting.limit is None) == (setting.large == "none")
        assert setting.dated or wire_of(setting) == Wire("canal-json", extension=False)


INDEX_I1 = {"matcher": ["gd.t1"], "partition": "index-value", "index": "i1", "topic": ""}
FORBIDDEN = (
    (INDEX_I1, "alter table t1 drop index i1"),
    (INDEX_I1, "alter table t1 add index i3 (c0), drop column c1"),
    (INDEX_I1, "rename table t1 to t4"),
    ({"matcher": ["gd.t3"], "partition": "columns", "columns": ["C0"], "topic": ""}, "rename table t2 to t3"),
    ({"matcher": ["gd.w*"], "partition": "columns", "columns": ["n1"], "topic": ""}, "alter table w1 drop column n1"),
)


@pytest.mark.parametrize(("rule", "text"), FORBIDDEN, ids=[text for _, text in FORBIDDEN])
def test_what_a_rule_names_is_left_alone(rule: dict[str, object], text: str) -> None:
    """A statement that would end the changefeed is not drawn; others of the same tables are."""
    setting = Setting("open-protocol", {}, (rule,), 1, SplitPolicy(), 1, force=True, late_start=False)
    others = ["alter table t1 modify column c1 varchar(40)", "truncate table t3", "rename table t2 to t4", WIDE_TABLE]
    drawn = [("", one) for one in (text, *others)]
    with patch.object(Draw, "statement", side_effect=drawn):
        kept = drawing(setting)(Random(0), {}, [])

        assert [kept.statement()[1] for _ in others] == others


def test_the_last_key_is_left_alone() -> None:
    """Unless the changefeed needs none."""
    setting = Setting("open-protocol", {}, (), 1, SplitPolicy(), 1, force=False, late_start=False)
    table = StoredTable(5, Name.of("t2"), cols=[StoredColumn(1, Name.of("id"), 0, type=StoredType(3, 3))])
    texts = [("", "alter table t2 drop index i0"), ("", "alter table t2 drop index i1")]
    for needs_none in (False, True):
        with patch.object(Draw, "statement", side_effect=texts):
            kept = drawing(replace(setting, force=needs_none))(Random(0), {"t2": table}, [])

            assert kept.statement() == texts[not needs_none]
