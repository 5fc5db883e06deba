"""The engine from a change log into topics: one loop from the checkpoint to the frontier, stretch by stretch.

    1 pull      the frontier is the end of the log's last part
    2 cut       (checkpoint, frontier] at the next DDL, the target, and where enough rows are together
    3 mount     in tasks, each reading the tables whose rows go to its partitions, in one commit order
    4 route     updates split, topic and partition of each row
    5 write     encoded in TiCDC's batches by an idempotent producer; acknowledged
    6 ddl       to its partitions; acknowledged
    7 resolve   to every partition of every topic that was ever written to; acknowledged
    8 advance   the checkpoint

A crash anywhere leaves the old checkpoint or the new one.  Whoever starts again sends what follows the checkpoint once
more, in the same order: at least once, as TiCDC does.  Errors that may pass are waited out (feed/patience.py); a row
that cannot be mounted or written ends the feed at the stretch that holds it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from tidegate.app.topic_checkpoint import Checkpoint, CheckpointFile
from tidegate.app.topic_progress import TopicMeter, TopicProgress, place_of
from tidegate.app.topic_state import StateFile
from tidegate.app.topic_tables import ActiveTables
from tidegate.app.topic_target import TopicTarget
from tidegate.app.topic_task import GroupJob, GroupReport, write_group
from tidegate.feed.event_filter import EventFilter
from tidegate.feed.filter import TableFilter
from tidegate.feed.patience import Patience, Trouble
from tidegate.model.errors import Retry, SinkError, TidegateError
from tidegate.model.table import TableName
from tidegate.objectstore.failpoint import reach
from tidegate.sink.kafka.control import Control
from tidegate.sink.kafka.groups import TableRows, groups_of
from tidegate.sink.kafka.known_topics import KnownTopics
from tidegate.sink.kafka.partitions import partition_count
from tidegate.sink.kafka.writer import TopicWriter
from tidegate.source.tidb.ddl import DdlEvent
from tidegate.source.tidb.hold import Hold
from tidegate.source.tidb.log import KvLog, without
from tidegate.source.tidb.stretch import end_of_stretch, rows_by_table
from tidegate.source.tidb.tables import name_of
from tidegate.source.tidb.timeline import Timeline
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["TaskRunner", "TopicFeed", "TopicFeedConfig"]

T = TypeVar("T")
POLL_S: Final = 0.2
"""How often a log without news is looked at."""


class TaskRunner(Protocol):
    """Runs jobs side by side, each in a task: Spark."""

    @property
    def tasks(self) -> int:
        """How many run at the same time."""

    def __call__(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers, in the order of `jobs`. Raises the first error of ours."""


@dataclass(frozen=True, slots=True)
class TopicFeedConfig:
    """One changefeed. `start_ts` counts as long as there is no checkpoint; None begins with the log."""

    name: str
    log: KvLog
    source: str
    target: TopicTarget
    rules: TableFilter
    state: Path
    events: EventFilter = field(default_factory=EventFilter)
    mount: MountOptions = field(default_factory=MountOptions)
    start_ts: int | None = None
    target_ts: int | None = None
    patience: Patience = field(default_factory=Patience)
    warnings: tuple[str, ...] = ()


class TopicFeed:
    """A changefeed that runs."""

    def __init__(self, config: TopicFeedConfig, run: TaskRunner, meter: TopicMeter, stop: threading.Event) -> None:
        self.config, self.meter = config, meter
        self._run, self._stop = run, stop
        self._file = CheckpointFile(config.state, config.name)
        meter.keep = StateFile(config.state, config.name, config.source, config.target.topic).save
        force = config.mount.force_replicate
        self._timeline = Timeline(config.log, config.rules, force=force, events=config.events)
        self._rows_of = without(config.log, config.events.start_ts)
        self._hold = Hold(config.log, config.name)
        self._router = config.target.router()
        self._tables = ActiveTables(self._timeline, self._router)
        self._target = config.target
        self._writer: TopicWriter | None = None
        self._control: Control | None = None
        self._topics = KnownTopics(
            config.target.keeper, config.target.encoder(), partition_num=config.target.partition_num
        )
        self.checkpoint = 0

    def run(self, *, idle_s: float | None = None) -> TopicProgress:
        """Until the target is reached, `stop` is set, or nothing but the time of the log has moved for `idle_s`.

        Raises what ends the feed."""
        with self._file.held():
            try:
                if self._begin(idle_s):
                    self._loop(idle_s)
            except TidegateError as error:
                if error.retry is Retry.NEVER or not self._stop.is_set():
                    self.meter.failing(error, place_of(error, self._timeline.snapshot), None)
                    raise
            return self.meter.done("finished" if self._reached() else "stopped")

    def _loop(self, idle_s: float | None) -> None:
        moved_s = time.monotonic()
        while not self._stop.is_set() and not self._reached():
            told = self.meter.told()
            went = self.stretch()
            if not went:
                self.meter.calm()
            if self.meter.told() != told or self.meter.behind():
                moved_s = time.monotonic()
            elif idle_s is not None and time.monotonic() - moved_s >= idle_s:
                return
            if not went:
                self._stop.wait(POLL_S)

    def stretch(self) -> bool:
        """One stretch, steps 1 to 8; False when there is nothing to do."""
        parts = self._patiently(partial(self.config.log.parts, self.checkpoint))  # 1 pull
        if not parts:
            return False
        self._patiently(partial(self._timeline.read, parts[-1].high))  # 2 cut
        stop = self._timeline.stop()
        end = end_of_stretch(self.checkpoint, parts, stop, self.config.target_ts)
        if end is None:
            return False
        self.meter.frontier(parts[-1].high)
        rows = rows_by_table(parts, self.checkpoint, end)
        for report in self._patiently(lambda: self._rows(rows, end)):  # 3 mount, 4 route, 5 write
            self.meter.wrote(report.rows, report.messages, report.corrupt)
        reach("topic/rows-written")
        events = [event for event in self._timeline.walk(end) if not event.left_out]  # 6 ddl
        for event in events:
            self._patiently(partial(self._ddl, event))
            reach("topic/ddl-sent")
        told = self._patiently(partial(self._resolve, end))  # 7 resolve
        reach("topic/resolved-sent")
        self._patiently(partial(self._advance, end))  # 8 advance
        self.meter.advanced(end, ddls=len(events), watermarks=int(told))
        return True

    def _ddl(self, event: DdlEvent) -> None:
        self._topics.note([self._router.ddl_topic(event.ddl.schema, event.ddl.table, event.previous)])
        self._open().ddl(event.ddl, event.previous)

    def _resolve(self, end: int) -> bool:
        topics = self._tables.topics
        self._topics.note(topics)
        told = self._open().resolved(end, topics)
        assert self._writer is not None
        self._writer.forget(self._topics.retired(topics))
        self._topics.resolved(end, topics)
        return told

    def _begin(self, idle_s: float | None) -> bool:
        """Take up the checkpoint, or start-ts, once the log has come as far; False when the wait for it is over."""
        found = self._file.load(topic=self.config.target.topic)
        known = found.checkpoint_ts if found else self.config.start_ts
        until_s = None if idle_s is None else time.monotonic() + idle_s
        while not self._stop.is_set():
            parts = self.config.log.parts(0)
            if parts and parts[-1].high >= (known or 0):
                self.checkpoint = parts[0].low if known is None else known
                self._hold.at(self.checkpoint)
                self._timeline.start(self.checkpoint)
                self.config.events.verify(self._tables.tables)
                self._target.check(self._tables.tables)
                self._topics.note((*(found.topics if found else ()), *self._tables.topics))
                self._patiently(self._meet, replace(self.config.patience, stuck_s=None))
                self.meter.frontier(parts[-1].high)
                self.meter.started(self.checkpoint, resumed=found is not None)
                return True
            if until_s is not None and time.monotonic() >= until_s:
                return False
            self._stop.wait(POLL_S)
        return False

    def _meet(self) -> None:
        """The first words with the broker: an address that does not answer now may be a wrong one."""
        self._open()
        assert self._writer is not None
        self._target = self._target.fitted(self._writer)
        self._control = None

    def _reached(self) -> bool:
        return self.config.target_ts is not None and self.checkpoint >= self.config.target_ts

    def _rows(self, rows: dict[int, int], end: int) -> list[GroupReport]:
        """Steps 3 to 5: the rows up to `end`."""
        tables = self._tables.with_rows(rows)
        if not tables:
            return []
        placed = [self._placed(name_of(version), count) for version, count in tables]
        counts = {table.topic: self._partitions(table.topic) for table in placed}
        config = self.config
        jobs = [
            GroupJob(
                self._rows_of,
                self.checkpoint,
                end,
                tuple(tables[number][0] for number in group.tables),
                group.places,
                counts,
                self._target,
                config.mount,
                config.events,
            )
            for group in groups_of(placed, counts, self._run.tasks)
        ]
        reports: list[GroupReport] = self._run(write_group, jobs)
        return reports

    def _placed(self, name: TableName, rows: int) -> TableRows:
        topic = self._router.topic(*name)
        return TableRows(name, topic, self._router.only_partition(name, self._partitions(topic)), rows)

    def _partitions(self, topic: str) -> int:
        self._open()
        assert self._writer is not None
        return partition_count(self._writer.partitions(topic), self.config.target.partition_num, topic)

    def _open(self) -> Control:
        """The driver's own producer; a new one after a failure."""
        if self._writer is None:
            self._writer = self._target.writer()
        if self._control is None:
            self._control = Control(self._router, self._target.encoder(), self._writer, self._partitions)
        return self._control

    def _advance(self, end: int) -> None:
        target = self.config.target
        self._file.save(
            Checkpoint(
                changefeed=self.config.name,
                checkpoint_ts=end,
                source=self.config.source,
                topic=target.topic,
                protocol=target.options.protocol,
                topics=self._topics.names,
            )
        )
        self.checkpoint = end
        self._hold.at(end)
        reach("topic/advanced")

    def _patiently(self, work: Callable[[], T], patience: Patience | None = None) -> T:
        """The result of `work`, tried again as long as its errors may pass and patience lasts."""
        trouble: Trouble | None = None
        patience = patience or self.config.patience
        while True:
            try:
                return work()
            except TidegateError as error:
                now_s = time.monotonic()
                trouble = patience.met(trouble, now_s)
                pause_s = patience.pause_s(trouble, now_s)
                if error.retry is Retry.NEVER or pause_s is None:
                    raise
                self.meter.failing(error, place_of(error, self._timeline.snapshot), pause_s)
                if isinstance(error, SinkError) and self._writer is not None:
                    self._writer.abandon()
                    self._writer = self._control = None
                if self._stop.wait(pause_s):
                    raise
