"""The rows of a transaction as they are sent: updates split, topic and partition of each, in the order of a partition.

    [delete u1, update t1, insert t2] ─ by table ─► split ─► together ─► delete t1 to shop/0, delete u1 to shop/1 ..

Updates are split table by table (feed/split.py).  What comes of it stands in the order of TiCDC's sorter: deletes,
updates, inserts, each kind as it came, whatever table it is of; the new architecture keeps each table's own order.

A dispatcher serves one task: rows of partitions that are another task's are left out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegate.codec.wire_table import WireTable
from tidegate.feed.mount import Mounted, MountTable
from tidegate.feed.route import Router, TablePlan
from tidegate.feed.split import SplitPolicy, Splitter
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.sink.kafka.groups import Place

__all__ = ["Dispatcher", "Sent"]

_ORDER: dict[type[RowChange], int] = {Delete: 0, Update: 1, Insert: 2}


class Sent(NamedTuple):
    """A row, the columns that it is written with, and its place."""

    place: Place
    row: RowChange
    wire: WireTable


class Dispatcher:
    """Places the rows of one task; `partitions` counts those of each topic, `own` are the task's."""

    def __init__(
        self, router: Router, policy: SplitPolicy, partitions: Mapping[str, int], own: frozenset[Place]
    ) -> None:
        self._router, self._policy, self._partitions, self._own = router, policy, partitions, own
        self._plans: dict[int, tuple[MountTable, TablePlan, Splitter]] = {}

    def transaction(self, rows: Sequence[Mounted]) -> list[Sent]:
        """The rows of one transaction that this task writes, in their order.

        DispatcherFailed for a rule that does not fit a table, EncodeError for a value that cannot be placed."""
        if len(rows) == 1 and not isinstance(rows[0].row, Update):
            return self._placed(rows[0].table, (rows[0].row,))
        tables: dict[int, list[Mounted]] = {}
        for found in rows:
            tables.setdefault(found.table.physical_id, []).append(found)
        sent: list[Sent] = []
        for of_table in tables.values():
            table = of_table[0].table
            sent += self._placed(table, self._plan(table)[2].transaction([found.row for found in of_table]))
        if self._policy.newarch or len(tables) == 1:
            return sent
        return sorted(sent, key=lambda each: _ORDER[type(each.row)])

    def _placed(self, table: MountTable, rows: Sequence[RowChange]) -> list[Sent]:
        _, plan, _ = self._plan(table)
        partitions, sent = self._partitions[plan.topic], []
        for row in rows:
            place = plan.topic, plan.route(row, partitions).partition
            if place in self._own:
                sent.append(Sent(place, row, table.wire))
        return sent

    def _plan(self, table: MountTable) -> tuple[MountTable, TablePlan, Splitter]:
        found = self._plans.get(id(table))
        if found is None:
            plan = self._router.plan(table.info.name, table.fields, table.info)
            found = self._plans[id(table)] = table, plan, Splitter.of(self._policy, plan)
        return found
