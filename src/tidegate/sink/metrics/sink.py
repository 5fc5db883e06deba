"""Numbers about changes as a sink: rules turn changes into counters, gauges and histograms.

    run       each table that a rule takes, in tasks: rows into parts of tallies (count.py)
    ddl       what goes with tables and partitions (ddl.py); one that is refused leaves all before it counted
    advance   tallies + parts, alerts judged ─► the checkpoint, all in one write ─► shown: /metrics, OTLP, the server's
              page

Guarantee: each change counts exactly once.  The numbers lie in the very write that makes the checkpoint, so a crash
leaves both as they were or both as they are to be; what was counted for a round that is not published is forgotten with
it.  Sums are exact.  Alerts come at least once: those that the receiver has not taken lie in the checkpoint, too.

A DDL cuts all tables (barrier ALL).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.engine.change import PlacedDdl
from tidegate.engine.plan import Barrier, Checkpoint, Round, Rows, Unit, identity, row_steps
from tidegate.engine.ports import Changes, Checkpoints, Most, Rhythm, Saved, Sink, Standing, Tasks, standing_of
from tidegate.model.errors import ConfigError, EnvironmentFault, InputError, SchemaError, SinkError, SinkRefused
from tidegate.model.name import qualified
from tidegate.objectstore.failpoint import reach
from tidegate.schema.effects import Effect
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.metrics.alert import WAITING_MAX, alert_event, judged
from tidegate.sink.metrics.count import CountedRows, CountJob, count_tables
from tidegate.sink.metrics.ddl import check_rules, follow
from tidegate.sink.metrics.options import MetricsOptions
from tidegate.sink.metrics.otlp import OtlpPush
from tidegate.sink.metrics.shown import SHOWN, ShownNumbers, snapshot_of, values_of
from tidegate.sink.metrics.tally import Limit, Tally, TallyPart, tally_of
from tidegate.sink.webhook.cloud_event import CloudEvent
from tidegate.sink.webhook.sender import WebhookSender

if TYPE_CHECKING:
    from tidegate.sink.metrics.page import MetricsPage

LOGGER: Final = logging.getLogger(__name__)
NUMBERS: Final = "numbers"
ALERTS: Final = "alerts"
EXEMPT: Final = "refused-ddl"
"""The notes beside the checkpoint: tallies by the names of their metrics, events that wait for their receiver, and the
tables of a DDL that comes next and that the rules of then could not follow."""
AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 60.0
"""How long a receiver of alerts that is away is left alone, longer each time."""


class _FollowedDdl(NamedTuple):
    """A DDL of the round: what it does, and the schema behind it."""

    placed: PlacedDdl
    effects: Sequence[Effect]
    state: SchemaState


class MetricsSink(Sink[CountedRows]):
    """Counts by the rules of `options`; numbers and progress live in the given checkpoints."""

    barrier = Barrier.ALL

    def __init__(
        self,
        options: MetricsOptions,
        checkpoints: Checkpoints,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.rhythm = Rhythm(most=Most(rows=500_000, size_bytes=256 << 20), flush_s=0.5, idle_s=2.0)
        self.options = options
        self._checkpoints, self._now_ms = checkpoints, now_ms
        self._tallies: list[Tally] = []
        self._state = SchemaState()
        """With the DDLs of the round that have been done."""
        self._ddls: list[_FollowedDdl] = []
        self._results: Sequence[CountedRows] = []
        """What the tasks of the round counted."""
        self._exempt: frozenset[str] = frozenset()
        """Tables behind whose next DDL rules are looked at again."""
        self._waiting: list[CloudEvent] = []
        self._sender = None if options.alerts is None else WebhookSender(options.alerts)
        self._due_s = self._pause_s = 0.0
        self.snapshot: ShownNumbers | None = None
        """What is shown."""
        self.page: MetricsPage | None = None
        self._push: OtlpPush | None = None
        self._said: set[str] = set()

    def held(self) -> AbstractContextManager[None]:
        """Keep another run of the same feed out until the block ends. EnvironmentFault when one runs."""
        return self._checkpoints.held()

    def recover(self) -> Standing:
        """Return what was saved last, with its numbers."""
        saved = self._checkpoints.load()
        self._take({} if saved is None else saved.notes)
        return standing_of(saved)

    def open(self, standing: Standing) -> None:
        """Show what there is. ConfigError for a rule that does not fit a table, EnvironmentFault for a port in use."""
        self._state = standing.state
        tables = [table for table in standing.state.tables.values() if str(table.name) not in self._exempt]
        try:
            check_rules(self.options.rules, tables, standing.checkpoint.ts)
        except SinkRefused as wrong:
            raise ConfigError(str(wrong)).at(table=wrong.where.table) from wrong
        self._show(standing)
        if self.options.place is not None and self.page is None:
            self.page = _page(self.options.place, lambda: self.snapshot)
        if self.options.otlp is not None and self._push is None:
            self._push = OtlpPush(self.options.otlp, lambda: self.snapshot)

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[CountedRows]:
        """Count the rows of the units, in tasks."""
        self._ddls, self._results = [], []
        limits = [Limit(frozenset(tally.labels), tally.room) for tally in self._tallies]
        steps = row_steps(units)
        self._state = self._state.with_unknown(step.table for step in steps)
        jobs = [CountJob(changes, step, rules, self.options) for step in steps if (rules := self._about(step, limits))]
        workers = min(tasks.slots, len(jobs))
        done = tasks.run(count_tables, [jobs[worker::workers] for worker in range(workers)]) if jobs else []
        self._results = [each for some in done for each in some]
        return self._results

    def ddl(self, placed: PlacedDdl) -> None:
        """Take notice of a DDL. SinkRefused for one that a rule cannot follow."""
        try:
            self._ddls.append(self._followed(placed))
        except SinkRefused as refused:
            self._keep_rows(placed, refused)
            raise

    def advance(self, planned: Round, results: Sequence[CountedRows]) -> Standing:
        """Save the round's end with all numbers in one write, then show them."""
        return self._save(Standing(planned.checkpoint, planned.state), results)

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:  # noqa: ARG002
        """Post alerts that wait. SinkError where the receiver is away: it is left alone for a while."""
        while self._sender is not None and self._waiting and time.monotonic() >= self._due_s:
            try:
                self._sender.send(self._waiting[:1])
            except SinkError:
                self._pause_s = min(max(self._pause_s * 2, AGAIN_S), AGAIN_MAX_S)
                self._due_s = time.monotonic() + self._pause_s
                raise
            reach("metrics/alert-sent")
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
        SHOWN.hide(self.options.home)

    def _save(self, standing: Standing, results: Sequence[CountedRows], exempt: Sequence[str] = ()) -> Standing:
        """Save a checkpoint with all that is counted up to it; `exempt` are the tables of a DDL that is refused."""
        tallies = [self._counted(number, tally, results) for number, tally in enumerate(self._tallies)]
        events = list(self._waiting)
        for tally in tallies:
            turns = judged(tally, values_of(tally, standing.state), standing.checkpoint.ts)
            events += [alert_event(self.options.feed, tally, turn, standing.checkpoint.ts) for turn in turns]
        events = [] if self._sender is None else events[-WAITING_MAX:]
        reach("metrics/before-save")
        self._checkpoints.save(Saved(standing, {**_notes(tallies, events), EXEMPT: list(exempt)}))
        reach("metrics/saved")
        self._tallies, self._waiting = tallies, events
        self._state, self._ddls, self._results = standing.state, [], []
        self._show(standing)
        return standing

    def _followed(self, placed: PlacedDdl) -> _FollowedDdl:
        """A DDL that all rules can follow."""
        ddl, before = placed.ddl, self._ddls[-1].state if self._ddls else self._state
        ts = ddl.commit_ts or 0
        try:
            state, effects = apply_ddl(before, ddl, len(self._ddls) + 1)
        except (InputError, SchemaError) as error:
            if not any(rule.kind == "gauge" for rule in self.options.rules):
                return _FollowedDdl(placed, (), before)
            where = qualified(ddl.schema, ddl.table) if ddl.table else ddl.schema
            refused = SinkRefused(f"what the DDL {ddl.query[:500]!r} does to gauges is not known: {error}")
            raise refused.at(table=where, commit_ts=ts) from error
        for tally in self._tallies:
            follow(tally.copy(), effects, state, ts)
        return _FollowedDdl(placed, effects, state)

    def _keep_rows(self, placed: PlacedDdl, refused: SinkRefused) -> None:
        """Save all that lies before a DDL that is refused, so that rules that are mended begin with it."""
        ts = placed.ddl.commit_ts or 0
        state = self._ddls[-1].state if self._ddls else self._state
        done = tuple(identity(each.placed.ddl) for each in self._ddls)
        self._save(Standing(Checkpoint(ts, done), state), self._results, [refused.where.table or ""])

    def _take(self, notes: Mapping[str, Any]) -> None:
        """Take the numbers up that were saved."""
        kept = notes.get(NUMBERS, {})
        self._tallies = [tally_of(rule, kept.get(rule.metric), self._now_ms()) for rule in self.options.rules]
        for tally in self._tallies:
            metric = tally.rule.metric
            if metric in kept and kept[metric]["form"] != tally.rule.form:
                self._say(f"the rule of {metric} has another type, other labels or other buckets now: it begins anew")
        self._exempt = frozenset(notes.get(EXEMPT, ()))
        self._waiting = [
            CloudEvent(each["id"], each["body"].encode(), each["ts"], each["alert"]) for each in notes.get(ALERTS, ())
        ]

    def _about(self, step: Rows, limits: Sequence[Limit]) -> dict[int, Limit]:
        """The rules that take the table of a step."""
        rules = enumerate(self.options.rules)
        return {number: limits[number] for number, rule in rules if rule.takes(step.table.name)}

    def _counted(self, number: int, tally: Tally, results: Sequence[CountedRows]) -> Tally:
        """A tally with what the tasks of the round counted, behind its DDLs."""
        parts: list[TallyPart] = [done.parts[number] for done in results if number in done.parts]
        found = tally.with_parts(parts)
        for done in self._ddls:
            follow(found, done.effects, done.state, done.placed.ddl.commit_ts or 0)
        if found.is_full:
            self._say(
                f"the rule of {tally.rule.metric} has more than {tally.rule.max_series} series: what is beyond is in "
                "_other. Give it labels with fewer values, or a larger max-series"
            )
        if found.skipped > tally.skipped:
            self._say(
                f"the rule of {tally.rule.metric} leaves out rows whose value is no number, or below zero where it "
                "counts: see tidegate_metrics_skipped_rows_total"
            )
        return found

    def _show(self, standing: Standing) -> None:
        self.snapshot = snapshot_of(self.options.feed, self._tallies, standing.state, standing.checkpoint.ts)
        SHOWN.show(self.options.home, self.snapshot)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning("%s", text)


def _page(place: tuple[str, int], snapshot: Callable[[], ShownNumbers | None]) -> "MetricsPage":
    try:
        from tidegate.sink.metrics.page import MetricsPage
    except ImportError as missing:
        raise EnvironmentFault(
            "a page needs prometheus-client: pip install 'tidegate[metrics]', or leave HOST:PORT out of metrics://"
        ) from missing
    return MetricsPage(place, snapshot)


def _notes(tallies: Sequence[Tally], events: Sequence[CloudEvent]) -> dict[str, Any]:
    """What lies beside the checkpoint."""
    waiting = [{"id": one.id, "ts": one.ts, "alert": one.table, "body": one.body.decode()} for one in events]
    return {NUMBERS: {tally.rule.metric: tally.kept() for tally in tallies}, ALERTS: waiting}
