"""Which task writes which partitions: each partition has one writer at a time, so its order holds.

    table        by         partition     rows         two tasks
    shop.orders  its name   shop/1        900          {shop/1}                   reads orders
    shop.items   its name   shop/0        300          {shop/0, log/0, log/1}     reads items, clicks
    web.clicks   columns    log/0, log/1  600

A task reads the tables that have rows for its partitions, all of them in one commit order, and writes nothing else.  A
table that goes by its name is read by one task.  A table whose rows are spread would be read and mounted by every task
that has one of its partitions, each keeping its own share; mounting is the larger part of the work.  So a topic stays
with one task when its spread tables, read by all tasks, would cost more than the topic itself.  What is dealt out,
partitions or such topics, goes the largest first to the task that has least.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidegate.model.table import TableName

Place: TypeAlias = tuple[str, int]
"""A topic and one of its partitions."""
_Unit: TypeAlias = tuple[str, int | None]
"""What is not divided among tasks: a partition, or (None) a topic with all of them."""


class GroupTable(NamedTuple):
    """A table by its place among those of a stretch, its topic, its one partition or None, and its rows at most."""

    name: TableName
    topic: str
    partition: int | None
    rows: int


class PartitionGroup(NamedTuple):
    """The partitions that one task writes, and the tables that it reads by their places in the list."""

    places: frozenset[Place]
    tables: tuple[int, ...]


def groups_of(tables: Sequence[GroupTable], partitions: Mapping[str, int], tasks: int) -> list[PartitionGroup]:
    """At most `tasks` groups that write all rows of `tables`; `partitions` counts those of each topic."""
    whole = _whole_topics(tables, tasks)
    load: dict[_Unit, float] = defaultdict(float)
    places: dict[_Unit, set[Place]] = defaultdict(set)
    readers: dict[_Unit, set[int]] = defaultdict(set)
    for number, table in enumerate(tables):
        found = _places(table, partitions[table.topic])
        for place in found:
            unit = (table.topic, None) if table.topic in whole else place
            load[unit] += table.rows / len(found)
            places[unit].add(place)
            readers[unit].add(number)
    return [
        PartitionGroup(
            frozenset(place for unit in units for place in places[unit]),
            tuple(sorted({number for unit in units for number in readers[unit]})),
        )
        for units in _dealt(load, tasks)
    ]


def _whole_topics(tables: Sequence[GroupTable], tasks: int) -> set[str]:
    """Topics that stay with one task."""
    rows, spread = Counter[str](), Counter[str]()
    for table in tables:
        rows[table.topic] += table.rows
        spread[table.topic] += table.rows if table.partition is None else 0
    return {topic for topic in rows if spread[topic] * tasks > rows[topic]}


def _dealt(load: Mapping[_Unit, float], tasks: int) -> list[list[_Unit]]:
    """The units of each task."""
    hands: list[tuple[float, list[_Unit]]] = [(0.0, []) for _ in range(min(tasks, len(load)))]
    for unit in sorted(load, key=lambda unit: (-load[unit], unit[0], unit[1] or 0)):
        lightest = min(range(len(hands)), key=lambda at: (hands[at][0], len(hands[at][1])))
        weight, units = hands[lightest]
        hands[lightest] = weight + load[unit], [*units, unit]
    return [units for _, units in hands]


def _places(table: GroupTable, partitions: int) -> list[Place]:
    spread = range(partitions) if table.partition is None else (table.partition,)
    return [(table.topic, partition) for partition in spread]
