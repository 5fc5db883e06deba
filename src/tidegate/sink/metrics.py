"""The metrics sink: rules turn changes into counters, gauges and histograms, each change counted exactly once.

    run       each table that a rule matches, in tasks: rows into parts of tallies (metrics_counter.py)
    ddl       its effect on rules and numbers; a refused DDL leaves everything before it counted
    advance   tallies + parts, alerts evaluated ─► the checkpoint, in one write ─► shown: /metrics, OTLP, the server's
              page

The numbers are part of the write that makes the checkpoint, so a crash leaves both old or both new; what was counted
for a round that is not published is discarded.  Sums are exact.  A DDL is a barrier for all tables.

Alerts compare a value with a threshold in commit time, so a feed that catches up reports the alerts that there would
have been.  Counters are summed over a window of 30 slots, per labels; gauges have their value at the checkpoint.

    slots of alert-window / 30       3   0   9   4   ..        alert-above = 10
                                     └── window ──┘ 16 > 10   firing

A change of an alert's state is an event that stays in the checkpoint until the receiver has accepted it: at least once,
always under one id.

    DDLs and counters, histograms    none changes them: they count past changes
    DDLs and gauges
      DROP, TRUNCATE, also of databases   the rows' incarnation is no longer live
      RECOVER, FLASHBACK                  the incarnation is live again
      RENAME                              stays; removed if it leaves the matcher; refused if it enters it
      DROP, TRUNCATE PARTITION            the numbers of the partition are removed
      EXCHANGE PARTITION                  the numbers of partition and table change places
      other changes of partitions         the table's numbers stay as a whole; a later DROP PARTITION is refused, since
                                          it is unknown which row lay where
      a column of another type            refused, where it would give other texts or numbers
    DDLs and any rule: a column that it references goes     refused, with rule, column, table and ts

Gauges are therefore kept per incarnation and partition, and what is shown is the sum over live tables.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.codec.neutral import render
from tidegate.engine.plan import Checkpoint, PlannedDdl, Round, Segment, identity
from tidegate.engine.ports import (
    Changes,
    Checkpoints,
    FlushPolicy,
    RoundLimit,
    Saved,
    SinkPosition,
    Tasks,
    WithUpkeep,
    sink_position,
)
from tidegate.model.errors import ConfigError, SinkError, SinkRefused
from tidegate.model.mysql import INTEGERS, STRINGS, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo
from tidegate.model.tso import compose, physical_ms
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema import effects
from tidegate.schema.effects import PartitionExchanged
from tidegate.sink.calls import CheckpointSink
from tidegate.sink.metrics_counter import CountedRows, count_tables, missing
from tidegate.sink.metrics_options import MetricsOptions
from tidegate.sink.metrics_rule import MetricRule
from tidegate.sink.metrics_tally import (
    EXACT,
    SHOWN,
    ZERO,
    Amounts,
    Labels,
    Limit,
    OtlpPush,
    SeriesKey,
    ShownNumbers,
    Tally,
    added,
    snapshot_of,
    tally_of,
    values_of,
)
from tidegate.sink.webhook import CloudEvent, WebhookSender, envelope

if TYPE_CHECKING:
    from tidegate.sink.metrics_page import MetricsPage

WAITING_MAX: Final = 10_000
"""Events that wait for a receiver; of more the oldest go."""


class Turn(NamedTuple):
    """A series whose alert began or ended, at a time in ms, with the number that decided it."""

    labels: Labels
    at_ms: int
    firing: bool
    value: Decimal


def judged(tally: Tally, shown: Mapping[Labels, Amounts], checkpoint_ts: int) -> list[Turn]:
    """Evaluate the alerts of a tally at a checkpoint with the numbers `shown`; return the changes, in order."""
    rule, now_ms = tally.rule, int(physical_ms(checkpoint_ts))
    if not rule.is_watched:
        return []
    if rule.kind == "gauge":
        values = {**dict.fromkeys(tally.firing, ZERO), **{labels: amounts[0] for labels, amounts in shown.items()}}
        return [turn for labels, value in sorted(values.items()) for turn in _turned(tally, labels, value, now_ms)]
    now, width = now_ms // rule.slot_ms, rule.window_ms // rule.slot_ms
    by_labels: dict[Labels, dict[int, Decimal]] = {labels: {} for labels in tally.firing}
    for (labels, slot), amount in tally.slots.items():
        by_labels.setdefault(labels, {})[slot] = amount
    turns: list[Turn] = []
    for labels, slots in by_labels.items():
        for slot, value in _rising(slots, width, tally.judged, now):
            turns += _turned(tally, labels, value, min((slot + 1) * rule.slot_ms, now_ms))
    for each in [each for each in tally.slots if each[1] <= now - width]:
        del tally.slots[each]
    tally.judged = now
    return sorted(turns, key=lambda turn: (turn.at_ms, turn.labels))


def _rising(slots: Mapping[int, Decimal], width: int, since: int, now: int) -> Iterator[tuple[int, Decimal]]:
    """The sum of the `width` slots up to each slot where it changes, from `since` on, and up to now."""
    changes = {slot: amount for slot, amount in slots.items() if slot <= now}
    for slot, amount in slots.items():
        changes[slot + width] = EXACT.subtract(changes.get(slot + width, ZERO), amount)
    total = ZERO
    for slot in sorted({*changes, now}):
        if slot > now:
            return
        total = EXACT.add(total, changes.get(slot, ZERO))
        if slot >= since:
            yield slot, total


def _turned(tally: Tally, labels: Labels, value: Decimal, at_ms: int) -> Iterator[Turn]:
    rule = tally.rule
    wrong = (rule.above is not None and value > rule.above) or (rule.below is not None and value < rule.below)
    if wrong and labels not in tally.firing:
        tally.firing[labels] = at_ms
        yield Turn(labels, at_ms, firing=True, value=value)
    elif not wrong and labels in tally.firing:
        del tally.firing[labels]
        yield Turn(labels, at_ms, firing=False, value=value)


def alert_event(feed: str, tally: Tally, turn: Turn, checkpoint_ts: int) -> CloudEvent:
    """Return the event for a change of an alert's state."""
    rule = tally.rule
    state = "firing" if turn.firing else "resolved"
    limit = {"above": float(rule.above)} if rule.above is not None else {"below": float(rule.below or 0)}
    data: dict[str, Any] = {
        "alert": rule.metric,
        "state": state,
        "labels": dict(zip(rule.label_names, turn.labels, strict=True)),
        "value": float(turn.value),
        **limit,
        **({"window_ms": rule.window_ms} if rule.slot_ms else {}),
    }
    digest = blake2b(f"{feed}\n{checkpoint_ts}\n{turn.at_ms}\n".encode() + render(data), digest_size=16).hexdigest()
    ts = int(compose(turn.at_ms))
    body = render(envelope(digest, f"/tidegate/{feed}", f"alert.{state}", ts, data, subject=rule.metric))
    return CloudEvent(digest, body, ts, rule.metric)


MIXED: Final = "?"
"""The partition of rows that lay in partitions which are others now."""
_SAME_TEXT: Final = (INTEGERS, frozenset({MysqlType.VARCHAR, MysqlType.VAR_STRING, MysqlType.STRING}))


def _check(rule: MetricRule, table: TableInfo, ts: int) -> None:
    """Raise SinkRefused for a column that a rule names and a table lacks; a table that is known from its rows alone
    may have others."""
    if table.inferred or not rule.takes(table.name):
        return
    for name in sorted(rule.columns):
        column = table.column(name)
        if column is None or column.virtual:
            raise missing(rule, table, name, ts)


def follow(tally: Tally, planned: PlannedDdl) -> None:
    """Apply a DDL to a tally. Raises SinkRefused for a DDL that the tally cannot follow."""
    rule, ts = tally.rule, planned.commit_ts
    for effect in planned.effects:
        match effect:
            case effects.TableCreated(table) | effects.TableRecovered(table):
                _check(rule, table, ts)
            case effects.TableTruncated(_, new):
                _check(rule, new, ts)
            case effects.TableRenamed(old, new):
                _check(rule, new, ts)
                _renamed(tally, old, new, ts)
            case effects.TableAltered(old, new):
                _check(rule, new, ts)
                _altered(tally, old, new, ts)
            case effects.PartitionsTruncated(old, names, new) | effects.PartitionsDropped(old, names, new):
                _check(rule, new, ts)
                _without(tally, old, names, ts)
            case PartitionExchanged():
                _exchanged(tally, effect, ts)
    incarnations = {table.incarnation for table in (*planned.after.tables.values(), *planned.after.dropped)} | {""}
    for key in [key for key in tally.series if key.table not in incarnations]:
        del tally.series[key]


def _mine(tally: Tally, incarnation: str) -> list[SeriesKey]:
    return [key for key in tally.series if key.table == incarnation]


def _renamed(tally: Tally, old: TableInfo, new: TableInfo, ts: int) -> None:
    rule = tally.rule
    if rule.kind != "gauge":
        return
    before, after = rule.takes(old.name), rule.takes(new.name)
    if after and not before:
        raise _refused(
            rule, new, ts, f"matches {new.name} but not {old.name}, so its existing rows were never counted; let the "
                           f"matcher match both names or neither"
        )  # fmt: skip
    if before and not after:
        for key in _mine(tally, old.incarnation):
            del tally.series[key]


def _altered(tally: Tally, old: TableInfo, new: TableInfo, ts: int) -> None:
    rule = tally.rule
    if rule.kind != "gauge" or not rule.takes(new.name):
        return
    for name in sorted(rule.columns):
        old_column, new_column = old.column(name), new.column(name)
        if (
            old_column is not None
            and new_column is not None
            and not _reads_same(old_column.type, new_column.type)
            and not old.inferred
        ):
            raise _refused(
                rule, new, ts, f"counts rows by {name}, whose type changes: existing rows are converted without "
                               f"messages. Give the rule another name, or exclude the table from its matcher"
            )  # fmt: skip
    if old.partition == new.partition:
        return
    before, after = old.partition, new.partition
    grows = before is not None and after is not None and before.method == after.method and before.expr == after.expr
    bounded = grows and before is not None and before.method.upper().partition(" ")[0] in {"RANGE", "LIST"}
    if bounded and before is not None and after is not None and set(before.definitions) <= set(after.definitions):
        return
    for key in _mine(tally, old.incarnation):
        amounts, goal = tally.series.pop(key), key._replace(partition=MIXED if after is not None else "")
        tally.series[goal] = added(tally.series[goal], amounts) if goal in tally.series else amounts


def _reads_same(before: ColumnType, after: ColumnType) -> bool:
    """Return True if each stored value reads as before: a strict server converts without loss within a family."""
    if before.code is MysqlType.ENUM and after.code is MysqlType.ENUM:
        return (after.elems or ())[: len(before.elems or ())] == (before.elems or ())
    if (before.charset == "binary") != (after.charset == "binary") and before.code in STRINGS:
        return False
    if before.code == after.code:
        return before.decimal == after.decimal and before.elems == after.elems
    return any(before.code in family and after.code in family for family in _SAME_TEXT)


def _without(tally: Tally, old: TableInfo, names: Sequence[str], ts: int) -> None:
    folded = {lowered(name) for name in names}
    for key in _mine(tally, old.incarnation):
        if key.partition == MIXED and any(tally.series[key]):
            raise _mixed(tally.rule, old, names, ts)
        if key.partition in folded:
            del tally.series[key]


def _exchanged(tally: Tally, effect: PartitionExchanged, ts: int) -> None:
    rule, partitioned, other = tally.rule, effect.partitioned, effect.other
    takes = rule.takes(partitioned.name), rule.takes(other.name)
    if rule.kind != "gauge" or not any(takes):
        return
    if not all(takes):
        raise _refused(
            rule, partitioned, ts, f"matches only one of {partitioned.name} and {other.name}, which exchange rows; "
                                   f"let the matcher match both or neither"
        )  # fmt: skip
    of_table, of_other = _mine(tally, partitioned.incarnation), _mine(tally, other.incarnation)
    if any(key.partition == MIXED and any(tally.series[key]) for key in (*of_table, *of_other)):
        raise _mixed(rule, partitioned, (effect.partition,), ts)
    folded = lowered(effect.partition)
    leaving = [(key, tally.series.pop(key)) for key in of_table if key.partition == folded]
    coming = [(key, tally.series.pop(key)) for key in of_other]
    for key, amounts in leaving:
        tally.series[key._replace(table=other.incarnation, partition="")] = amounts
    for key, amounts in coming:
        tally.series[key._replace(table=partitioned.incarnation, partition=folded)] = amounts


def _mixed(rule: MetricRule, table: TableInfo, names: Sequence[str], ts: int) -> SinkRefused:
    return _refused(
        rule,
        table,
        ts,
        f"does not know its count of partition {', '.join(names)}: partitions were recreated before. Give the rule "
        f"another name, which restarts it, or exclude the table from its matcher",
    )


def _refused(rule: MetricRule, table: TableInfo, ts: int, what: str) -> SinkRefused:
    refused = SinkRefused(f"the rule of {rule.metric}, a gauge, {what} (table {table.name}, ts {ts})")
    return refused.at(table=str(table.name), commit_ts=ts)


LOGGER: Final = logging.getLogger(__name__)
NUMBERS: Final = "numbers"
ALERTS: Final = "alerts"
EXEMPT: Final = "refused-ddl"
"""The notes beside the checkpoint: tallies by the names of their metrics, events that wait for their receiver, and the
tables of a DDL that comes next and that the rules of then could not follow."""
AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 60.0
"""The pause after a receiver of alerts failed, doubled each time up to the maximum."""


class MetricsSink(CheckpointSink[CountedRows], WithUpkeep):
    """Counts by the rules of `options`; numbers and progress are stored in the given checkpoints."""

    flush_policy = FlushPolicy(limit=RoundLimit(rows=500_000, size_bytes=256 << 20), flush_s=0.5, idle_s=2.0)

    def __init__(
        self,
        options: MetricsOptions,
        checkpoints: Checkpoints,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        super().__init__(checkpoints)
        self.options = options
        self._now_ms = now_ms
        self._tallies: list[Tally] = []
        self._ddls: list[PlannedDdl] = []
        """The DDLs of the round."""
        self._results: Sequence[CountedRows] = []
        """The counts of the tasks of the round."""
        self._exempt: frozenset[str] = frozenset()
        """Tables after whose next DDL rules are checked again."""
        self._waiting: list[CloudEvent] = []
        self._sender = WebhookSender(options.alerts) if options.alert_url else None
        self._due_s = self._pause_s = 0.0
        self.snapshot: ShownNumbers | None = None
        """The numbers that are shown."""
        self.page: MetricsPage | None = None
        self._push: OtlpPush | None = None
        self._said: set[str] = set()

    def recover(self) -> SinkPosition:
        saved = self._checkpoints.load()
        self._load({} if saved is None else saved.notes)
        return sink_position(saved)

    def open(self, position: SinkPosition) -> None:
        """Show what there is. ConfigError for a rule that does not fit a table, EnvironmentFault for a port in use."""
        tables = [table for table in position.state.tables.values() if str(table.name) not in self._exempt]
        try:
            for rule, table in product(self.options.rules, tables):
                _check(rule, table, position.checkpoint.ts)
        except SinkRefused as wrong:
            raise ConfigError(str(wrong)).at(table=wrong.where.table) from wrong
        self._show(position)
        if self.options.page is not None and self.page is None:
            from tidegate.sink.metrics_page import MetricsPage

            self.page = MetricsPage(self.options.page, lambda: self.snapshot)
        if self.options.otlp_url and self._push is None:
            self._push = OtlpPush(self.options, lambda: self.snapshot)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[CountedRows]:
        self._ddls, self._results = [], []
        limits = [Limit(frozenset(tally.labels), tally.room) for tally in self._tallies]
        jobs = []
        for step in segment.steps:
            rules = enumerate(self.options.rules)
            if own := {number: limits[number] for number, rule in rules if rule.takes(step.table.name)}:
                jobs.append((step, own))
        workers, count = min(tasks.slots, len(jobs)), partial(count_tables, self.options, changes)
        done = tasks.run(count, [jobs[worker::workers] for worker in range(workers)]) if jobs else []
        self._results = [each for some in done for each in some]
        return self._results

    def ddl(self, planned: PlannedDdl) -> None:
        """Note a DDL. SinkRefused for one that a rule cannot follow: all that lies before it is saved, so that rules
        that are mended begin with it."""
        try:
            self._try(planned)
        except SinkRefused as refused:
            done = tuple(identity(each.ddl) for each in self._ddls if each.commit_ts == planned.commit_ts)
            position = SinkPosition(Checkpoint(planned.commit_ts, done), planned.before)
            self._save(position, self._results, [refused.where.table or ""])
            raise
        self._ddls.append(planned)

    def advance(self, planned: Round, results: Sequence[CountedRows]) -> SinkPosition:
        return self._save(SinkPosition(planned.checkpoint, planned.state), results)

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:  # noqa: ARG002
        """Post alerts that wait. SinkError where the receiver is away: it is left alone for a while."""
        while self._sender is not None and self._waiting and time.monotonic() >= self._due_s:
            try:
                self._sender.send(self._waiting[:1])
            except SinkError:
                self._pause_s = min(max(self._pause_s * 2, AGAIN_S), AGAIN_MAX_S)
                self._due_s = time.monotonic() + self._pause_s
                raise
            failpoint("metrics/alert-sent")
            self._waiting, self._pause_s = self._waiting[1:], 0.0
            if enough():
                return

    def close(self) -> None:
        """Let go of the port and of connections; a collector gets the last numbers."""
        if self._push is not None:
            self._push.close()
        if self.page is not None:
            self.page.close()
        if self._sender is not None:
            self._sender.close()
        self.page = self._push = None
        SHOWN.pop(self.options.home, None)

    def _save(self, position: SinkPosition, results: Sequence[CountedRows], exempt: Sequence[str] = ()) -> SinkPosition:
        """Save a checkpoint with all that is counted up to it; `exempt` are the tables of a DDL that is refused."""
        tallies = [self._counted(number, tally, results) for number, tally in enumerate(self._tallies)]
        events = list(self._waiting)
        for tally in tallies:
            turns = judged(tally, values_of(tally, position.state), position.checkpoint.ts)
            events += [alert_event(self.options.feed, tally, turn, position.checkpoint.ts) for turn in turns]
        events = [] if self._sender is None else events[-WAITING_MAX:]
        failpoint("metrics/before-save")
        self._checkpoints.save(Saved(position, {**_notes(tallies, events), EXEMPT: list(exempt)}))
        failpoint("metrics/saved")
        self._tallies, self._waiting = tallies, events
        self._ddls, self._results = [], []
        self._show(position)
        return position

    def _try(self, planned: PlannedDdl) -> None:
        """Raise SinkRefused unless all rules can follow a DDL."""
        if planned.error is not None and any(rule.kind == "gauge" for rule in self.options.rules):
            query = planned.ddl.query[:500]
            refused = SinkRefused(f"the effect of the DDL {query!r} on gauges is unknown: {planned.error}")
            raise refused.at(table=planned.table, commit_ts=planned.commit_ts) from planned.error
        for tally in self._tallies:
            follow(tally.copy(), planned)

    def _load(self, notes: Mapping[str, Any]) -> None:
        kept = notes.get(NUMBERS, {})
        self._tallies = [tally_of(rule, kept.get(rule.metric), self._now_ms()) for rule in self.options.rules]
        for tally in self._tallies:
            metric = tally.rule.metric
            if metric in kept and kept[metric]["form"] != tally.rule.form:
                self._warn_once(
                    f"the rule of {metric} has another type, other labels or other buckets now: it restarts"
                )
        self._exempt = frozenset(notes.get(EXEMPT, ()))
        self._waiting = [
            CloudEvent(each["id"], each["body"].encode(), each["ts"], each["alert"]) for each in notes.get(ALERTS, ())
        ]

    def _counted(self, number: int, tally: Tally, results: Sequence[CountedRows]) -> Tally:
        """A tally with what the tasks of the round counted, behind its DDLs."""
        counted = tally.with_parts([done.parts[number] for done in results if number in done.parts])
        for done in self._ddls:
            follow(counted, done)
        if counted.is_full:
            self._warn_once(
                f"the rule of {tally.rule.metric} has more than {tally.rule.max_series} series: further ones are "
                f"counted as _other. Use labels with fewer values, or a larger max-series"
            )
        if counted.skipped > tally.skipped:
            self._warn_once(
                f"the rule of {tally.rule.metric} skips rows whose value is not a number, or negative in a counter: "
                f"see tidegate_metrics_skipped_rows_total"
            )
        return counted

    def _show(self, position: SinkPosition) -> None:
        self.snapshot = snapshot_of(self.options.feed, self._tallies, position.state, position.checkpoint.ts)
        SHOWN[self.options.home] = self.snapshot

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning("%s", text)


def _notes(tallies: Sequence[Tally], events: Sequence[CloudEvent]) -> dict[str, Any]:
    waiting = [{"id": event.id, "ts": event.ts, "alert": event.table, "body": event.body.decode()} for event in events]
    return {NUMBERS: {tally.rule.metric: tally.kept() for tally in tallies}, ALERTS: waiting}
