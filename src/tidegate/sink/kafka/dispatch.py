"""The rows of a transaction as they are sent: updates split, topic and partition of each, in the order of a partition.

    [delete u1, update t1, insert t2] ─ by table ─► split ─► together ─► delete t1 to shop/0, delete u1 to shop/1 ..
                                                            selected columns (feed/column_selector.py), then placed

Updates are split table by table (feed/split.py).  What comes of it stands in the order of TiCDC's sorter: deletes,
updates, inserts, each kind as it came, whatever table it is of; the new architecture keeps each table's own order.

A dispatcher serves one task: rows of partitions that are another task's are left out.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.codec.wire_table import WireTable, wire_table
from tidegate.feed.column_selector import ColumnSelectors, Selection
from tidegate.feed.dispatch_rule import PartitionBy
from tidegate.feed.mount import Mounted, MountTable
from tidegate.feed.route import Router, TablePlan
from tidegate.feed.split import SplitPolicy, Splitter
from tidegate.model.event import Delete, Field, Insert, RowChange, Update
from tidegate.model.table import TableInfo
from tidegate.sink.kafka.groups import Place

__all__ = ["Dispatcher", "Plan", "Sent"]

WHOLE: Final = ColumnSelectors()
_ORDER: dict[type[RowChange], int] = {Delete: 0, Update: 1, Insert: 2}


class Sent(NamedTuple):
    """A row, the columns that it is written with, and its place."""

    place: Place
    row: RowChange
    wire: WireTable


class Plan(NamedTuple):
    """A table's: where what is sent of its rows goes, how whole updates are split, and what is sent."""

    places: TablePlan
    splitter: Splitter
    selection: Selection | None
    wire: WireTable


class Dispatcher:
    """Places the rows of one task; `partitions` counts those of each topic, `own` are the task's."""

    def __init__(
        self,
        router: Router,
        policy: SplitPolicy,
        partitions: Mapping[str, int],
        own: frozenset[Place],
        selectors: ColumnSelectors = WHOLE,
    ) -> None:
        self.policy, self.partitions, self.own = policy, partitions, own
        self._router = router
        self._selectors = selectors
        self._plans: dict[int, tuple[MountTable, Plan]] = {}

    def check(self, info: TableInfo) -> None:
        """Raises DispatcherFailed and ColumnSelectorFailed for rules that do not fit a table."""
        wire = wire_table(info)
        self._made(info, wire, wire.fields)

    def transaction(self, rows: Sequence[Mounted]) -> list[Sent]:
        """The rows of one transaction that this task writes, in their order.

        DispatcherFailed and ColumnSelectorFailed for a rule that does not fit a table, EncodeError for a value that
        cannot be placed."""
        if len(rows) == 1 and not isinstance(rows[0].row, Update):
            return self._placed(rows[0].table, (rows[0].row,))
        tables: dict[int, list[Mounted]] = {}
        for found in rows:
            tables.setdefault(found.table.physical_id, []).append(found)
        sent: list[Sent] = []
        for of_table in tables.values():
            table = of_table[0].table
            sent += self._placed(table, self.plan(table).splitter.transaction([found.row for found in of_table]))
        if self.policy.newarch or len(tables) == 1:
            return sent
        return sorted(sent, key=lambda each: _ORDER[type(each.row)])

    def _placed(self, table: MountTable, rows: Sequence[RowChange]) -> list[Sent]:
        found = self.plan(table)
        partitions, sent = self.partitions[found.places.topic], []
        for whole in rows:
            row = whole if found.selection is None else found.selection.narrowed(whole)
            place = found.places.topic, found.places.route(row, partitions).partition
            if place in self.own:
                sent.append(Sent(place, row, found.wire))
        return sent

    def plan(self, table: MountTable) -> Plan:
        """What is done with rows of a table. DispatcherFailed and ColumnSelectorFailed as above."""
        found = self._plans.get(id(table))
        if found is None:
            found = self._plans[id(table)] = table, self._made(table.info, table.wire, table.fields)
        return found[1]

    def _made(self, info: TableInfo, wire: WireTable, fields: tuple[Field, ...]) -> Plan:
        rule = self._router.rule(*info.name)
        spread = rule.columns if rule.by is PartitionBy.COLUMNS else ()
        whole = self._router.plan(info.name, fields, info)
        splitter = Splitter.of(self.policy, whole)
        selection = self._selectors.selection(info, wire, spread)
        if selection is None:
            return Plan(whole, splitter, None, wire)
        return Plan(self._router.plan(info.name, selection.fields, info), splitter, selection, selection.wire)
