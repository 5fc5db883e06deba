"""The scenarios that have to pass: every operation of `f1_operations`, each as careful as the real cluster.

instant         transactions begin and commit at once; the state sequence alone must do
commit check    they stay open while versions pass; a commit fails when its node has a newer version
metadata lock   they stay open, and the owner waits for them
leases          nodes fall behind, lose their lease, and come back
F1              no delete ranges: what an element leaves is gone before the element is
three nodes     else there are two, and two keys and two values always
"""

from dataclasses import replace
from typing import Final

from tests.upstream.model_checker.checker.layout import Column, Index, Layout, Rule, RuleKind
from tests.upstream.model_checker.checker.rules import Guard, Rules
from tests.upstream.model_checker.checker.scenario import Ranges, Scenario, under
from tests.upstream.model_checker.checker.spaces import Binding
from tidegate_upstream import f1
from tidegate_upstream.f1 import Operation, Work, combine

__all__ = [
    "ADDED",
    "BASIC",
    "CAREFUL",
    "COPIES",
    "CORRECT",
    "DROPPED",
    "INDEXED",
    "LOSSY",
    "PLAIN",
    "SWAP",
    "UNIQUE",
    "alone",
    "forbidding",
    "referring",
]

READ: Final = Rules(reader=True)
A: Final = Column("a", 0)
PLAIN: Final = Layout(("a",), (A,))
INDEXED: Final = replace(PLAIN, indexes=(Index("index", 0),))
UNIQUE: Final = replace(PLAIN, indexes=(Index("index", 0, unique=True),))
ADDED: Final = Layout(("a", "c"), (A, Column("c", 1, "column")))
DROPPED: Final = Layout(("a", "c"), (A, Column("c", 1, "column", required=True)))
LOSSY: Final = Layout(
    ("a", "c"),
    (
        A,
        Column("c (old)", 1, "old column", required=True, partner=2),
        Column("c (new)", 1, "new column", partner=1),
    ),
    (Index("old index", 1), Index("new index", 2)),
)
SWAP: Final = Ranges(
    (
        Binding("partition in place", "p", 0, 0, fits=True),
        Binding("table in place", "t", 1, 1),
        Binding("partition swapped", "p", 1, 1, fits=True),
        Binding("table swapped", "t", 0, 0),
    ),
    limit="rows fit",
)


COPIES: Final = Ranges((Binding("new rows", "t", 1, 0), Binding("old rows", "t", 0, 0)))


def forbidding(role: str) -> Layout:
    """The plain table with a rule that column a is not 1."""
    return replace(PLAIN, rules=(Rule(role, RuleKind.FORBID),))


def referring(role: str, *, child: str | None = None) -> Layout:
    """The plain table with k2, in the table `child` if given, referring to k1 by value 1."""
    return replace(PLAIN, rules=(Rule(role, RuleKind.REFERENCE),), child=child)


def alone(*roles: str) -> Ranges:
    """Roles that each lead to rows of their own."""
    return Ranges(tuple(Binding(role, "t", place, place) for place, role in enumerate(roles)))


def _multi() -> tuple[Scenario, ...]:
    """Changes of several things at once: one that is public together, one that comes while others go."""
    added, index = f1.ADD_COLUMN, f1.ADD_INDEX
    pair = combine("add column and an index on it", (added, index))
    swap = combine("drop index and add another", (f1.DROP_INDEX, index))
    three = combine("add column, drop column, add index", (added, f1.DROP_COLUMN, index))
    column = Column("c", 1, "1 column")
    dropped = Column("d", 1, "2 column", required=True)
    return (
        Scenario(pair.name, pair, Layout(("a", "c"), (A, column), (Index("2 index", 1),)), READ),
        Scenario(swap.name, swap, replace(PLAIN, indexes=(Index("1 index", 0), Index("2 index", 0))), READ),
        Scenario(
            three.name,
            three,
            Layout(("c", "d"), (Column("c", 0, "1 column"), dropped), (Index("2 index", 1), Index("3 index", 0))),
        ),
    )


def _f1(name: str, operation: Operation, clean_at: int) -> Scenario:
    """The same states with the old entries removed inside the operation, as F1 does it."""
    steps = [replace(step, work=Work.NOTHING, on=()) for step in operation.steps]
    steps[clean_at] = replace(steps[clean_at], work=Work.DELETE_RANGE, on=("index",))
    return Scenario(name, replace(operation, steps=tuple(steps)), INDEXED, Rules(ranges=False))


BASIC: Final = (
    Scenario("add column", f1.ADD_COLUMN, ADDED, READ),
    Scenario("drop column with its index", f1.DROP_COLUMN, replace(DROPPED, indexes=(Index("index", 1),))),
    Scenario("add index", f1.ADD_INDEX, INDEXED, READ),
    Scenario("add unique index", f1.ADD_INDEX, UNIQUE, READ),
    Scenario("add primary key", f1.ADD_PRIMARY_KEY, replace(UNIQUE, rules=(Rule("not null", RuleKind.FORBID),)), READ),
    Scenario("drop index", f1.DROP_INDEX, INDEXED, READ),
    Scenario("drop unique index", f1.DROP_INDEX, UNIQUE, READ),
    Scenario("modify column, same bytes", f1.MODIFY_LOSSLESS, PLAIN, READ),
    Scenario("modify column, null to not null", f1.MODIFY_NOT_NULL, forbidding("not null"), READ),
    Scenario("modify column, new bytes", f1.MODIFY_LOSSY, LOSSY, READ),
    Scenario("add foreign key", f1.ADD_FOREIGN_KEY, referring("foreign key"), READ),
    Scenario("drop foreign key", f1.DROP_FOREIGN_KEY, referring("foreign key"), READ),
    Scenario("add check constraint", f1.ADD_CHECK, forbidding("check"), READ),
    Scenario("drop check constraint", f1.DROP_CHECK, forbidding("check"), READ),
    Scenario("create table", f1.CREATE_TABLE, alone("table")),
    Scenario("create table with foreign key", f1.CREATE_CHILD_TABLE, referring("foreign key", child="table"), READ),
    Scenario("drop table", f1.DROP_TABLE, alone("table")),
    Scenario("truncate table", f1.TRUNCATE_TABLE, alone("old table", "new table")),
    Scenario(
        "rename table",
        f1.RENAME_TABLE,
        Ranges((Binding("old name", "t", 0, 0), Binding("new name", "u", 0, 0))),
    ),
    Scenario("recover table", f1.RECOVER_TABLE, alone("table")),
    Scenario("add partition", f1.ADD_PARTITION, alone("partition")),
    Scenario("drop partition", f1.DROP_PARTITION, alone("partition")),
    Scenario("truncate partition", f1.TRUNCATE_PARTITION, alone("old partition", "new partition")),
    Scenario("exchange partition", f1.EXCHANGE_PARTITION, SWAP),
    Scenario(
        "reorganize partition",
        f1.REORGANIZE,
        COPIES,
    ),
    Scenario("set default, comment, ..", f1.AT_ONCE, PLAIN, READ),
    *_multi(),
)


CAREFUL: Final = ("commit check", "metadata lock", "leases", "three nodes")
"""The notes that tell the scenarios of one operation apart."""


def _careful(rules: Rules) -> tuple[Rules, ...]:
    """The same rules for a cluster as each of CAREFUL says."""
    return (
        replace(rules, guard=Guard.COMMIT_CHECK),
        replace(rules, guard=Guard.METADATA_LOCK),
        replace(rules, leases=True),
        replace(rules, nodes=3),
    )


CORRECT: Final[tuple[Scenario, ...]] = (
    *BASIC,
    *(
        under(item, rules, note)
        for item in BASIC
        for note, rules in zip(CAREFUL, _careful(item.rules), strict=True)
        if len(item.operation.steps) > 2 or item.operation.steps[-1].work is not Work.NOTHING
    ),
    _f1("drop index as F1 does", f1.DROP_INDEX, 3),
)
"""Every scenario that has to pass; the first ones with the state sequences alone."""
