"""The changes of a topic or of a change log as rows, without a lake: what the format `tidegate` does on the driver.

    source ──landing, beside the query──► changelog of `state`
             standing at `after` ──engine/segment.py──► rounds up to `upto` ──► tasks (rows.py), standing at `upto`

The schema at a ts is that of the statements and rows before it, so it is kept: `state` holds the checkpoint that Spark
has committed last, and the changelog above it.  A query that starts again goes on from there.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from tidegate.config.feed import FeedConfig
from tidegate.config.kafka_source import KafkaSource
from tidegate.config.registry import checkpoints_of, landed_source
from tidegate.engine.plan import Checkpoint, Round
from tidegate.engine.ports import ROUND, Changes, LocalTasks, RoundLimit, Saved, SinkPosition, round_end
from tidegate.engine.retry_policy import Outage, RetryPolicy
from tidegate.engine.segment import Planning, plan_from
from tidegate.lakes.frames.rows import ChangeForm, ChangeTask, tasks_of
from tidegate.model.errors import ConfigError, HistoryLost, TidegateError
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.options import DeltaOptions

LOGGER: Final = logging.getLogger(__name__)
POLL_S: Final = 0.1
LANDED_AT_ONCE: Final = 200_000
"""Messages of a batch, at most: the tasks of a query read while the next batch lands, and a stop waits for one."""


class SourceChanges:
    """The changes of a source, on the driver; `close` ends what it began."""

    def __init__(self, config: FeedConfig, name: str | None, form: str) -> None:
        self._config, self._name, self._form = config, name, form
        self._source = landed_source(_in_small_batches(config))
        self._checkpoints = checkpoints_of(config)
        self._reading = False
        self._standings: dict[int, SinkPosition] = {}
        """Where ranges that were planned end, those that Spark may ask for again."""
        self._outage = Outage(RetryPolicy(config.source.max_retry, config.stuck_ms / 1000))
        self._again_s = 0.0
        rules = config.table_filter()
        self._rules = Planning(rules.matches, config.events.ddls(), rules.takes_ddl)

    def close(self) -> None:
        """End the landing."""
        if self._reading:
            self._source.stop()

    def oldest(self) -> int:
        """Return the ts above which every change can be given: that of the checkpoint."""
        return self._saved().checkpoint.ts

    def form(self) -> ChangeForm:
        """Return the form of rows of the table as the source has told it so far, or of all tables.

        Lands until the table is told. ConfigError for one that is not there."""
        options = DeltaOptions(root="", feed=self._config.name, time_zone=self._config.time_zone, exact_keys=False)
        if self._name is None:
            return ChangeForm(options)
        table = self._definition(self._name)
        return ChangeForm.of(table, first_schema(table, options).columns, options, self._form)

    def frontier(self) -> int:
        """Return the ts up to which everything has landed; 0 before there is one. Raises what ends the landing."""
        if not self._reading:
            self._start()
            self._reading = True
        self._surviving(self._source.refresh)
        failure = self._source.failure()
        if failure is None:
            self._outage.recovered()
        elif time.monotonic() >= self._again_s:
            self._failed(failure)
            self._surviving(self._start)
        return self._source.frontier() or 0

    def landed(self, upto: int | None, within_s: float = math.inf) -> int:
        """Land up to `upto`, or all that the source has now, if it takes no longer; return the frontier."""
        end_s = time.monotonic() + within_s
        while (frontier := self.frontier()) < (upto or 1 << 63) and time.monotonic() < end_s:
            if upto is None and self._source.idle():
                return self.frontier()
            time.sleep(POLL_S)
        return frontier

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, that has about so many rows."""
        if upto <= after:
            return after
        return round_end(self._source.changes(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return what lies in (after, upto], cut at DDLs and into tasks. HistoryLost for what is no longer there."""
        self.frontier()
        standing = self._standings.get(after) or self._saved()
        if standing.checkpoint.ts > after:
            raise HistoryLost(
                f"{self._config.state_dir} keeps the changes above ts {standing.checkpoint.ts}, and those above "
                f"{after} are asked for: a query has read them. Give each query a `state` of its own"
            )
        tasks: list[ChangeTask] = []
        for planned, changes in self._rounds(standing, upto):
            steps = planned.row_steps
            mine = [step for step in steps if form.takes(step.table)]
            tasks += [task for step in mine for task in tasks_of(step, changes, after, form)]  # type: ignore[arg-type]
            standing = SinkPosition(planned.checkpoint, planned.state)
        self._standings[upto] = standing
        return tasks

    def done(self, ts: int) -> None:
        """Take notice that nothing at or below `ts` is asked for again."""
        standing = self._standings.get(ts)
        self._standings = {at: one for at, one in self._standings.items() if at >= ts}
        if standing is not None:
            self._checkpoints.save(Saved(standing, {}))
            self._source.release(ts)

    def _start(self) -> None:
        self._checkpoints.prepare()
        self._source.start(LocalTasks(pickles=False), self._saved().checkpoint.ts)

    def _saved(self) -> SinkPosition:
        saved = self._checkpoints.load()
        return SinkPosition(Checkpoint(), SchemaState(), is_new=True) if saved is None else saved.standing

    def _rounds(self, standing: SinkPosition, upto: int) -> Iterator[tuple[Round, Changes]]:
        """Plan from `standing` to `upto`, without what nobody can apply if it may be left out."""
        while (at := standing.checkpoint.ts) < upto:
            whole = self._source.changes(at, upto)
            try:
                planned, changes = plan_from(self._source, standing, whole, upto, self._rules)
            except TidegateError as error:
                if not self._source.refused(error):
                    raise
                self._source.refresh()
                continue
            yield planned, changes
            standing = SinkPosition(planned.checkpoint, planned.state)

    def _definition(self, name: str) -> TableInfo:
        self._source.refresh()
        idle = False
        while True:
            standing = self._saved()
            for planned, _ in self._rounds(standing, self._source.frontier() or 0):
                standing = SinkPosition(planned.checkpoint, planned.state)
            tables = {lowered(str(table.name)): table for table in standing.state.tables.values()}
            if (table := tables.get(lowered(name))) is not None:
                return table
            if idle:
                known = ", ".join(sorted(str(one.name) for one in tables.values())) or "none"
                raise ConfigError(f"{self._config.source_uri} has told no table {name}; it has: {known}")
            self.frontier()
            idle = self._source.idle()
            self.frontier()
            time.sleep(POLL_S)

    def _surviving(self, work: Callable[[], object]) -> None:
        """Do some work whose errors may pass; raises those that do not, or that last too long."""
        try:
            work()
        except TidegateError as error:
            self._failed(error)

    def _failed(self, error: TidegateError) -> None:
        pause_s = self._outage.pause_s(error)
        LOGGER.warning("%s: %s; trying again in %.0f s", self._config.name, error, pause_s)
        self._again_s = time.monotonic() + pause_s


def _in_small_batches(config: FeedConfig) -> FeedConfig:
    source = config.source
    if not isinstance(source, KafkaSource):
        return config
    most = min(source.max_messages_per_batch, LANDED_AT_ONCE)
    return replace(config, source=msgspec.structs.replace(source, max_messages_per_batch=most))
