"""Ordered events into topics, as TiCDC would have written them there.

    rows of one commit_ts ─→ by table ─→ split where their place changes ─→ topic, partition ─→ its encoder ─┐
    DDL                   ─→ all encoders flushed, all acknowledged ─→ its topic: partition 0, or all         ├→ writer
    resolved              ─→ all encoders flushed ─→ every partition of every topic that was ever in use ─────┘

A relay is given events in commit order (engine/frontier.py).  Each partition of a topic has an encoder of its
own, whose batches are cut as TiCDC cuts them.  An event that cannot be written is told to `refused`; the others go on.
Which tables there are is seen by their rows and DDLs; topics without any are left to sink/kafka/topics.py.

The events of a topic that go on into another one: those of its tables that no event filter leaves out.

    merge ── rows and DDLs in commit order, watermarks ──► TopicFilter ── what is left ──► relay
                                                            └── DDLs that are left out ──► relay.follow

A DDL of a database passes when some table of it could, a RENAME when the filter takes the old name.  A table that a
RENAME brings in is an error: its rows from before were never written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from tidegate.codec import BatchEncoder, EncodeOptions, Message
from tidegate.codec.batch import ClaimStore
from tidegate.engine.dispatch import DispatchRule, Router, SplitPolicy, Splitter, TablePlan
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter, previous_name
from tidegate.model.errors import EncodeError, SchemaError, SqlError, UnsupportedError
from tidegate.model.event import Ddl, Field, Resolved, RowChange
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.meant import read
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.statement import AlterTable, DropDatabase, DropTables, DropViews, RenameTables, RenameTo, Statement
from tidegate.sink.kafka.topics import KnownTopics
from tidegate.sink.kafka.writer import TopicWriter


class RelayTarget(NamedTuple):
    """What is written: the default topic, the encoder's options, the dispatchers and which updates are split."""

    topic: str
    options: EncodeOptions
    rules: Sequence[DispatchRule] = ()
    case_sensitive: bool = False
    split: SplitPolicy = SplitPolicy()


class Relay:
    """Writes events. Counts of what was written: `rows`, `ddls`, `watermarks`."""

    def __init__(
        self,
        target: RelayTarget,
        writer: TopicWriter,
        known: KnownTopics,
        *,
        now_ms: Callable[[], int],
        claims: ClaimStore | None = None,
        refused: Callable[[str, EncodeError], None],
    ) -> None:
        self._target, self._writer, self._known, self._refused = target, writer, known, refused
        self._router = Router.of(target.rules, target.topic, target.options, case_sensitive=target.case_sensitive)
        self._encoder = partial(BatchEncoder, target.options, now_ms=now_ms, claims=claims)
        self._encoders: dict[tuple[str, int], BatchEncoder] = {}
        self._control = self._encoder()
        self._plans: dict[tuple[TableName, tuple[Field, ...]], tuple[TablePlan, Splitter]] = {}
        self._tables: dict[TableName, None] = {}
        self._schema = SchemaState()
        self._needs_schema = any(rule.index for rule in target.rules)
        self.rows = self.ddls = self.watermarks = 0

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Write events, which are in commit order. Raises SinkError, and ConfigError for rules that do not fit."""
        for (ts, control), run in groupby(events, _moment):
            if not control:
                self._rows(list(run))  # type: ignore[arg-type]  # _moment tells rows from the others
                continue
            for event in run:
                try:
                    if isinstance(event, Ddl):
                        self._ddl(event)
                    elif isinstance(event, Resolved):
                        self._resolved(event)
                except EncodeError as error:
                    self._refused(f"commit_ts {ts}", error)

    def flush(self) -> None:
        """Return when everything is with the broker."""
        for place, encoder in self._encoders.items():
            self._put(place, encoder.flush())
        self._writer.flush()

    def _rows(self, rows: Sequence[RowChange]) -> None:
        """The rows of one commit_ts; those of a table stay in their order, cut ones among them."""
        tables: dict[TableName, list[RowChange]] = {}
        for row in rows:
            tables.setdefault(TableName(row.schema, row.table), []).append(row)
        for name, mine in tables.items():
            for fields, run in groupby(mine, lambda row: row.fields):
                self._run(name, fields, list(run))

    def _run(self, name: TableName, fields: tuple[Field, ...], rows: Sequence[RowChange]) -> None:
        plan, splitter = self._plan(name, fields)
        partitions = self._writer.partitions(plan.topic)
        for row in splitter.transaction(rows):
            try:
                place = (plan.topic, plan.route(row, partitions).partition)
                self._put(place, self._of(place).append(row))
                self.rows += 1
            except EncodeError as error:
                self._refused(f"{name} at ts {row.commit_ts}", error)

    def _plan(self, name: TableName, fields: tuple[Field, ...]) -> tuple[TablePlan, Splitter]:
        found = self._plans.get((name, fields))
        if found is None:
            plan = self._router.plan(name, fields, self._schema.table(name))
            found = self._plans[name, fields] = plan, Splitter.of(self._target.split, plan)
            self._tables[name] = None
            self._known.note([plan.topic])
        return found

    def _ddl(self, ddl: Ddl) -> None:
        """Everything before it is with the broker before it is sent, and it is before what follows is."""
        messages = self._control.append(ddl)
        self.flush()
        statements = read(ddl)
        previous = previous_name(ddl)
        partitions = self._writer.partitions(self._router.ddl_topic(ddl.schema, ddl.table, previous))
        route = self._router.ddl(ddl.schema, ddl.table, partitions, previous)
        self._known.note([route.topic])
        for partition in route.partitions:
            self._put((route.topic, partition), messages)
        self._writer.flush()
        self._count_tables(ddl, statements)
        self.follow(ddl)
        self.ddls += 1

    def follow(self, ddl: Ddl) -> None:
        """Go on with the tables as a DDL leaves them, which is sent or not."""
        self._plans.clear()
        if self._needs_schema:
            with suppress(SqlError, SchemaError, UnsupportedError):  # a table that is not known is told when it matters
                self._schema, _ = apply_ddl(self._schema, ddl, 0)

    def _count_tables(self, ddl: Ddl, statements: Sequence[Statement]) -> None:
        """Which tables there are behind a DDL."""
        gone = {(lowered(name.schema), lowered(name.table)) for each in statements for name in _gone(each, ddl)}
        schemas = {lowered(each.name) for each in statements if isinstance(each, DropDatabase)}
        if ddl.table and statements:
            self._tables[TableName(ddl.schema, ddl.table)] = None
        for name in list(self._tables):
            if lowered(name.schema) in schemas or (lowered(name.schema), lowered(name.table)) in gone:
                del self._tables[name]

    def _resolved(self, resolved: Resolved) -> None:
        messages = self._control.append(resolved)
        for place, encoder in self._encoders.items():
            self._put(place, encoder.flush())
        topics = self._router.watermark_topics(self._tables)
        for topic in topics:
            for partition in range(self._writer.partitions(topic)):
                self._put((topic, partition), messages)
        self._known.note(topics)
        self._writer.forget(self._known.retired(topics))
        self._known.resolved(resolved.ts, topics)
        self.watermarks += bool(messages)

    def _of(self, place: tuple[str, int]) -> BatchEncoder:
        found = self._encoders.get(place)
        if found is None:
            found = self._encoders[place] = self._encoder()
        return found

    def _put(self, place: tuple[str, int], messages: Sequence[Message]) -> None:
        for message in messages:
            self._writer.send(*place, message.key, message.value)


def _moment(event: RowChange | Ddl | Resolved) -> tuple[int | None, bool]:
    if isinstance(event, Resolved):
        return event.ts, True
    return event.commit_ts, isinstance(event, Ddl)


def _old_names(statement: Statement) -> Iterator[TableName]:
    if isinstance(statement, RenameTables):
        yield from (pair.old for pair in statement.pairs)
    elif isinstance(statement, AlterTable) and any(isinstance(spec, RenameTo) for spec in statement.specs):
        yield statement.table


def _gone(statement: Statement, ddl: Ddl) -> Iterator[TableName]:
    """The names of tables that a statement takes away."""
    yield from _old_names(statement)
    if isinstance(statement, DropTables | DropViews):
        yield TableName(ddl.schema, ddl.table)
        yield from statement.tables if isinstance(statement, DropTables) else statement.views


_UNKNOWN: Final = -1
"""Messages do not tell the start_ts of a transaction."""


class Receiver(Protocol):
    """What events go on to: a relay."""

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Write events."""

    def follow(self, ddl: Ddl) -> None:
        """Take note of a DDL that is not written."""


class TopicFilter:
    """`left_out` counts what did not go on."""

    def __init__(self, tables: TableFilter, events: EventFilter) -> None:
        self._tables, self._events, self._judge = tables, events, events.messages()
        self.left_out = 0

    def pass_on(self, events: Iterable[RowChange | Ddl | Resolved], to: Receiver) -> None:
        """Send what goes on, and tells of DDLs that do not, in their order.

        Raises RenameRefused, and what is wrong with a rule for an event that it cannot judge."""
        kept: list[RowChange | Ddl | Resolved] = []
        for event in events:
            if self._goes_on(event):
                kept.append(event)
                continue
            self.left_out += 1
            if isinstance(event, Ddl):
                to.send(kept)
                kept = []
                to.follow(event)
        to.send(kept)

    def _goes_on(self, event: RowChange | Ddl | Resolved) -> bool:
        if isinstance(event, Resolved):
            return True
        return self._takes_ddl(event) if isinstance(event, Ddl) else self._takes(event)

    def _takes(self, row: RowChange) -> bool:
        return self._tables.matches(row.schema, row.table) and (self._judge is None or not self._judge.drops(row))

    def _takes_ddl(self, ddl: Ddl) -> bool:
        previous = previous_name(ddl)
        return self._tables.takes_ddl(ddl, previous) and not self._events.drops_ddl(ddl, previous, _UNKNOWN)
