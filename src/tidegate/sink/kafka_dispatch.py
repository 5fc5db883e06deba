"""The dispatcher of the Kafka sink, which orders and routes the rows of a transaction, and its encoders.

A dispatcher serves one task and leaves out rows of partitions that belong to other tasks.  Per transaction it splits
updates table by table (engine/dispatch.py), orders the rows, applies the column selectors (engine/filter.py) and finds
the topic and partition of each row:

    [delete u1, update t1, insert t2] ─ by table ─► split ─► in order ─► delete t1 to shop/0, delete u1 to shop/1 ..

    classic     deletes, updates, inserts over all tables of the transaction, each kind as it came: TiCDC's sorter
    newarch     each table in its own order, the inserts of split updates behind its other rows

Where a source has no start_ts (a topic, for example), the rows of one commit_ts count as one transaction.  They are put
into the same order, so it does not matter how they lay in the partitions of the source.
"""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.codec.columnar import Batch, ColumnarEncoder
from tidegate.codec.wire_table import WireTable, table_of_fields, wire_table
from tidegate.engine.dispatch import PartitionDispatcher, Router, SplitPolicy, Splitter, TablePlan
from tidegate.engine.filter import ColumnSelectors, Selection
from tidegate.model.errors import ConfigError
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.infer import infer_table
from tidegate.sink.kafka_topics import ClaimFiles, Partition, random_names

WHOLE: Final = ColumnSelectors()
_ORDER: Final[Mapping[type[RowChange], int]] = {Delete: 0, Update: 1, Insert: 2}


class Sent(NamedTuple):
    """A row, the columns with which it is sent, and its topic and partition."""

    partition: Partition
    row: RowChange
    wire: WireTable


class TableDispatch(NamedTuple):
    """The dispatch of a table's rows: their partitions, the split of updates, and the columns that are sent.

    `whole` describes the columns of incoming rows, `wire` those that are sent."""

    routing: TablePlan
    splitter: Splitter
    selection: Selection | None
    whole: WireTable
    wire: WireTable


class Dispatcher:
    """Places the rows of one task; `partitions` counts those of each topic, `own` are the task's.

    `tables` by TableName.key: rows go by the names there, and batches without a definition by the definitions."""

    def __init__(
        self,
        router: Router,
        policy: SplitPolicy,
        partitions: Mapping[str, int],
        own: frozenset[Partition],
        selectors: ColumnSelectors = WHOLE,
        *,
        tables: Mapping[tuple[str, str], TableInfo] = MappingProxyType({}),
    ) -> None:
        self.policy, self.partitions, self.own = policy, partitions, own
        self._router, self._selectors, self._tables = router, selectors, tables
        self._plans: dict[object, tuple[TableInfo | None, TableDispatch]] = {}

    def check(self, info: TableInfo) -> None:
        """Raise DispatcherFailed and ColumnSelectorFailed for rules that do not fit a table."""
        wire = wire_table(info)
        self._table_dispatch(info.name, info, wire)

    def transaction(self, tables: Sequence[tuple[TableDispatch, Sequence[RowChange]]]) -> list[Sent]:
        """Return the rows of one transaction that this task writes, in their order; `tables` have rows of one table
        and one layout each.

        EncodeError for a value that cannot be placed."""
        sent = [each for plan, rows in tables for each in self._placed(plan, plan.splitter.transaction(rows))]
        return sent if self.policy.newarch else sorted(sent, key=lambda each: _ORDER[type(each.row)])

    def _placed(self, plan: TableDispatch, rows: Sequence[RowChange]) -> list[Sent]:
        partitions, sent = self.partitions[plan.routing.topic], []
        for whole in rows:
            row = whole if plan.selection is None else plan.selection.narrowed(whole)
            partition = plan.routing.topic, plan.routing.route(row, partitions).partition
            if partition in self.own:
                sent.append(Sent(partition, row, plan.wire))
        return sent

    def plan(self, batch: Batch) -> TableDispatch:
        """Return the dispatch of a batch. Raises DispatcherFailed and ColumnSelectorFailed as `check`."""
        definition = batch.definition
        key = (batch.schema, batch.table, batch.fields, batch.pk_names) if definition is None else id(definition)
        if key not in self._plans:
            name = TableName(batch.schema, batch.table)
            table = self._tables.get(name.key)
            name = name if table is None else table.name
            info = definition or table or infer_table(name, batch.fields, batch.pk_names, 0)
            wire_definition = table_of_fields(batch.fields, batch.pk_names, table)
            wire = wire_definition if definition is None else wire_table(definition)
            # with the definition, so that its id stays taken
            self._plans[key] = definition, self._table_dispatch(name, info, wire)
        return self._plans[key][1]

    def _table_dispatch(self, name: TableName, info: TableInfo, wire: WireTable) -> TableDispatch:
        rule = self._router.rule(*name)
        spread = rule.columns if rule.by is PartitionDispatcher.COLUMNS else ()
        try:
            whole = self._router.plan(name, wire.fields, info)
            splitter = Splitter.of(self.policy, whole)
            selection = self._selectors.selection(info, wire, spread)
            if selection is None:
                return TableDispatch(whole, splitter, None, wire, wire)
            return TableDispatch(
                self._router.plan(name, selection.fields, info), splitter, selection, wire, selection.wire
            )
        except ConfigError as error:
            error.at(table=str(name))
            raise


def now_ms() -> int:
    """Return the current time in ms, which canal-json messages carry."""
    return time.time_ns() // 1_000_000


def encoder(options: EncodeOptions) -> BatchEncoder:
    """Return a new encoder of single events, with the current time and files for claim checks."""
    return BatchEncoder(options, now_ms=now_ms, claims=_claims(options))


def columnar_encoder(options: EncodeOptions) -> ColumnarEncoder:
    """Return a new encoder of batches, with the current time and files for claim checks."""
    return ColumnarEncoder(options, now_ms=now_ms, claims=_claims(options))


def _claims(options: EncodeOptions) -> ClaimFiles:
    return ClaimFiles(options.claim_check_storage_uri, random_names())
