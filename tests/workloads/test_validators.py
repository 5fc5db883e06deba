"""Each validator finds the fault that it is there for, and none where there is none."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.workloads.faces import Facts
from tests.workloads.feed import Disturbance
from tests.workloads.setting import Setting
from tests.workloads.truth import TrueDdl, TrueRow
from tests.workloads.validators import VALIDATORS, complaints
from tidegate.engine.dispatch import SplitPolicy
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, Update
from tidegate.model.tso import LOGICAL_BITS
from tidegate.schema.stored.definition import Name, StoredColumn, StoredIndex, StoredPart, StoredTable, StoredType
from tidegate.testing.validators import Partition

ID, C0, C1 = (Field(name, 3) for name in ("id", "c0", "c1"))
OLD = StoredTable(
    5,
    Name.of("t1"),
    cols=[StoredColumn(1, Name.of("id"), 0, type=StoredType(3, 3)), StoredColumn(2, Name.of("c0"), 1)],
    pk_is_handle=True,
)
ADD = "alter table t1 add column c1 int default 7"
SETTING = Setting("open-protocol", {}, (), 2, SplitPolicy(), 1, force=False, late_start=False)
FACTS = Facts(
    setting=SETTING,
    rows=[
        TrueRow(10, "t1", OLD, None, {"id": 1, "c0": 5}),
        TrueRow(20, "t1", OLD, {"id": 1, "c0": 5}, {"id": 1, "c0": 6}),
        TrueRow(30, "t1", OLD, None, {"id": 2, "c0": 0}),
        TrueRow(40, "t1", OLD, {"id": 1, "c0": 6, "c1": 7}, None),
        TrueRow(40, "t1", OLD, {"id": 2, "c0": 0, "c1": 7}, {"id": 3, "c0": 0, "c1": 7}),
    ],
    ddls=[TrueDdl(30, "t1", "t1", 5, ADD)],
    checkpoint=50,
    living=frozenset({"t1"}),
    partitions={"all": 2},
)
HOME: Partition = ("all", 0)
OTHER: Partition = ("all", 1)


def insert(ts: int, fields: tuple[Field, ...], *values: int) -> Insert:
    """An INSERT into t1."""
    return Insert(schema="gd", table="t1", fields=fields, commit_ts=ts, after=values)


def delete(ts: int, fields: tuple[Field, ...], *values: int) -> Delete:
    """A DELETE from t1."""
    return Delete(schema="gd", table="t1", fields=fields, commit_ts=ts, before=values)


def update(ts: int, fields: tuple[Field, ...], before: tuple[int, ...], after: tuple[int, ...]) -> Update:
    """An UPDATE of t1."""
    return Update(schema="gd", table="t1", fields=fields, commit_ts=ts, before=before, after=after)


DDL = Ddl(schema="gd", table="t1", query=ADD, commit_ts=30, type=5)
BOTH, ALL = (ID, C0), (ID, C0, C1)
STORY: list[Event] = [
    insert(10, BOTH, 1, 5),
    update(20, BOTH, (1, 5), (1, 6)),
    Resolved(25),
    insert(30, BOTH, 2, 0),
    DDL,
    Resolved(30),
    delete(40, ALL, 1, 6, 7),
    delete(40, ALL, 2, 0, 7),
    insert(40, ALL, 3, 0, 7),
    Resolved(50),
]
ASIDE: list[Event] = [Resolved(25), DDL, Resolved(30), Resolved(50)]

Change = Callable[[list[Event]], list[Event]]


def moved(what: int, to: int) -> Change:
    """The event of that number at another place."""

    def change(events: list[Event]) -> list[Event]:
        rest = [*events[:what], *events[what + 1 :]]
        return [*rest[:to], events[what], *rest[to:]]

    return change


def instead(what: int, *others: Event) -> Change:
    """Other events, or none, for the one of that number."""
    return lambda events: [*events[:what], *others, *events[what + 1 :]]


def then(*more: Event) -> Change:
    """Some more events at the end."""
    return lambda events: [*events, *more]


PLANTED: dict[str, tuple[str, Change]] = {
    "a swapped pair": ("in_order", moved(0, 1)),
    "an INSERT before the DELETE of its transaction": ("in_order", moved(8, 6)),
    "a row behind the DDL of its ts": ("in_order", moved(3, 4)),
    "a resolved ts sent early": ("promised", moved(2, 1)),
    "a resolved ts above the checkpoint": ("promised", then(Resolved(60))),
    "no last resolved ts": ("promised", instead(9)),
    "a wrong old image": ("true_images", instead(1, update(20, BOTH, (1, 4), (1, 6)))),
    "a wrong new image": ("true_images", instead(1, update(20, BOTH, (1, 5), (1, 7)))),
    "a row that never happened": ("true_images", instead(0, STORY[0], insert(15, BOTH, 9, 9))),
    "columns from before the DDL": ("true_images", instead(6, delete(40, BOTH, 1, 6))),
    "an update of a key that was not split": (
        "true_images",
        lambda events: [*events[:7], update(40, ALL, (2, 0, 7), (3, 0, 7)), *events[9:]],
    ),
    "a lost row": ("whole", instead(0)),
    "half a split update": ("whole", instead(8)),
    "a DDL too early": ("ddls_in_place", moved(4, 1)),
    "a DDL too late": ("ddls_in_place", moved(4, 8)),
    "a lost DDL": ("ddls_in_place", instead(4)),
    "a DDL of another text": ("ddls_in_place", instead(4, Ddl(schema="gd", table="t1", query="x", commit_ts=30))),
    "a DDL that never happened": ("ddls_in_place", then(Ddl(schema="gd", table="t9", query="x", commit_ts=45))),
    "a row sent twice for no reason": ("few_repeats", instead(0, STORY[0], STORY[0])),
    "a DDL sent twice for no reason": ("few_repeats", instead(4, DDL, DDL)),
    "a resolved ts that goes back": ("few_repeats", instead(9, Resolved(25), Resolved(50))),
}


def found(facts: Facts, home: list[Event], other: list[Event] = ASIDE) -> set[str]:
    """The validators that complain."""
    return {what.partition(":")[0] for what in complaints(facts, {HOME: home, OTHER: other})}


def test_nothing_is_wrong() -> None:
    """Of a topic as it should be nobody complains."""
    assert found(FACTS, STORY) == set()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    """By the validator that is there for it."""
    validator, change = PLANTED[fault]

    assert validator in found(FACTS, change(STORY))


def test_each_validator_has_its_fault() -> None:
    """None is there for nothing."""
    assert {one.__name__ for one in VALIDATORS} == {name for name, _ in PLANTED.values()} | {"placed"}


def test_rows_in_the_wrong_place_are_found() -> None:
    """A row beside its table's partition, in another topic, and by a rule that spreads rows."""
    stray = [*ASIDE[:3], delete(40, ALL, 1, 6, 7), ASIDE[3]]
    without = instead(6)(STORY)
    spread = replace(SETTING, rules=({"matcher": ["gd.t1"], "partition": "ts", "topic": ""},))

    assert found(FACTS, without, stray) == {"placed"}
    assert found(replace(FACTS, setting=spread), STORY) == set()
    assert found(replace(FACTS, setting=spread), without, stray) == {"placed"}
    assert "placed" in {
        what.partition(":")[0]
        for what in complaints(FACTS, {HOME: without, OTHER: ASIDE, ("x", 0): [delete(40, ALL, 1, 6, 7)]})
    }


def test_keys_stay_together() -> None:
    """Of rows that go by their key, two of one key in two partitions are found."""
    rule = {"matcher": ["gd.t1"], "partition": "index-value", "topic": ""}
    facts = replace(FACTS, setting=replace(SETTING, rules=(rule,)))
    here, there = [*STORY[:1], *STORY[2:]], [update(20, BOTH, (1, 5), (1, 6)), *ASIDE]

    assert found(facts, STORY) == set()
    assert found(facts, here, there) == {"placed"}


def test_values_of_an_index_or_of_columns_stay_together() -> None:
    """Rows with one value in two partitions are found; rows of one key with two values may lie in two."""
    unique = StoredIndex(1, Name.of("i0"), Name.of("t1"), [StoredPart(Name.of("c0"), 1)], is_unique=True)
    table = msgspec.structs.replace(OLD, index_info=[unique])
    rows = [row._replace(stored=table) for row in FACTS.rows[:1]]
    rows += [TrueRow(20, "t1", table, None, {"id": 2, "c0": 5}), TrueRow(30, "t1", table, None, {"id": 3, "c0": 6})]
    apart = [insert(10, BOTH, 1, 5), Resolved(50)], [insert(20, BOTH, 2, 5), insert(30, BOTH, 3, 6), Resolved(50)]
    together = [insert(10, BOTH, 1, 5), insert(20, BOTH, 2, 5), Resolved(50)], [insert(30, BOTH, 3, 6), Resolved(50)]
    for given in ({"partition": "index-value", "index": "I0"}, {"partition": "columns", "columns": ["C0"]}):
        rule = {"matcher": ["gd.t1"], "topic": "", **given}
        facts = replace(FACTS, rows=rows, ddls=[], setting=replace(SETTING, rules=(rule,)))

        assert found(facts, *apart) == {"placed"}
        assert found(facts, *together) == set()


def bare(event: Event) -> list[Event]:
    """An event of a changefeed that tells milliseconds alone."""
    if isinstance(event, Resolved):
        return []
    return [msgspec.structs.replace(event, commit_ts=None, es_ms=event.commit_ts)]


def test_milliseconds_alone() -> None:
    """Without commit timestamps order, images and DDLs are held to milliseconds, and a watermark is one too many."""
    ms = 1 << LOGICAL_BITS
    facts = replace(
        FACTS,
        setting=replace(SETTING, protocol="canal-json"),
        rows=[row._replace(ts=row.ts * ms) for row in FACTS.rows],
        ddls=[ddl._replace(ts=ddl.ts * ms) for ddl in FACTS.ddls],
        checkpoint=50 * ms,
    )
    told = [one for event in STORY for one in bare(event)]

    assert found(facts, told, []) == set()
    assert found(facts, instead(3)(moved(2, 4)(told)), []) >= {"whole"}
    assert "in_order" in found(facts, moved(0, 1)(told), [])
    assert "ddls_in_place" in found(facts, moved(3, 1)(told), [])
    assert found(facts, moved(3, 2)(told), []) == set(), "a DDL and a row of its millisecond"
    assert found(facts, [*told, Resolved(50)], []) == {"promised"}
    assert found(facts, [*told[:-1], STORY[8]], []) >= {"promised"}
    assert found(facts, [told[0], *told], []) == {"few_repeats"}
    assert found(replace(facts, disturbed=[Disturbance(0, 25 * ms, "x")]), [told[0], *told], []) == set()


def test_repetitions_where_something_went_wrong() -> None:
    """What was in flight may come again, as often as something went wrong there, and nothing else."""
    again = [*STORY[:2], *STORY[:9], STORY[9]]
    once = replace(FACTS, disturbed=[Disturbance(0, 25, "driver")])

    assert found(FACTS, again) == {"few_repeats"}
    assert found(once, again) == set()
    assert found(once, [*STORY[:2], *again]) == {"few_repeats"}
    assert found(replace(FACTS, disturbed=[Disturbance(25, 50, "driver")]), again) == {"few_repeats"}


def test_what_options_hide() -> None:
    """Without old values an UPDATE is an INSERT, and a DELETE may hold its key alone."""
    blind = replace(FACTS, setting=replace(SETTING, words={"output-old-value": "false"}))
    short = replace(FACTS, setting=replace(SETTING, words={"delete-only-output-handle-key-columns": "true"}))
    keys = [delete(40, (ID,), 1), delete(40, (ID,), 2)]

    assert found(blind, instead(1, insert(20, BOTH, 1, 6))(STORY)) == set()
    assert found(short, [*STORY[:6], *keys, *STORY[8:]]) == set()
    assert "true_images" in found(short, STORY)
