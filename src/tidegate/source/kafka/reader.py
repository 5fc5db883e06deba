"""What a landing asks of Spark: batches planned beside the driver, ranges of them landed by tasks.

    driver   Planner.batch      new messages of every partition, at most one batch       one range a partition
    task     land_range         consume -> land -> Parquet files in the changelog        one TaskReport

A partition that appears gets a range of its own even while it is empty, so that the changelog learns of it and holds
the frontier: the marks of known partitions are asked for first and the list of partitions after, hence a partition that
existed when a resolved ts was sent is seen no later than that ts.

How many messages a batch takes, by what there is and how fast it goes.

    little waits       all of it, at once: the batch is small and so is its delay
    a backlog          as many as BATCH_S seconds take, by the rate of the last full batch

A batch costs a fifth of a second whatever is in it, so a backlog goes in large ones; but a batch is also what a kill
throws away and what a stop waits for, so it must not be large in time.  Memory is no concern here: a task writes its
rows out whenever it holds enough of them (files.py).
"""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.changelog.columns import Encoder
from tidegate.changelog.files import DEAD, HALT, ControlFiles, RowFiles
from tidegate.changelog.report import State, TaskReport
from tidegate.engine.change import Place
from tidegate.engine.event_filter import EventFilter
from tidegate.model.errors import ConfigError
from tidegate.model.roads import LEFT_OUT
from tidegate.model.tso import LOGICAL_BITS
from tidegate.source.kafka.client import KafkaTopics, described, offsets
from tidegate.source.kafka.fetch import fetch_range, history_lost
from tidegate.source.kafka.identity import check_same
from tidegate.source.kafka.messages import Accept, LandedMessages, LandPlan, land_chunk
from tidegate.source.kafka.resolution import Resolution

BATCH_S: Final = 4.0
CLOCKS_S: Final = 24 * 3600.0
FIRST_BATCH: Final = 1_000_000
"""While no rate is known."""


class BatchPace:
    """The limit of one landing's batches, never above `most`."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._begun: tuple[int, float] | None = None
        self.limit = min(FIRST_BATCH, most)

    def begin(self, messages: int) -> None:
        """A batch of so many messages begins."""
        self._begun = (messages, self._clock()) if messages >= self.limit else None

    def end(self) -> None:
        """The batch is over; one that was not full tells nothing."""
        if self._begun is not None:
            messages, began_s = self._begun
            took_s = max(self._clock() - began_s, 0.001)
            self.limit = max(1, min(self._most, int(messages * BATCH_S / took_s)))
            self._begun = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the tasks of a landing need to know; it travels pickled, never as text, for its secrets."""

    source: KafkaTopics
    changelog: str
    accept: Accept | None = None
    events: EventFilter = field(default_factory=EventFilter)
    resolutions: Mapping[Place, Resolution] = field(default_factory=dict)
    halted: frozenset[Place] = frozenset()
    """Places whose messages are already kept in the changelog for inspection."""

    def land_plan(self, topic: str, partition: int) -> LandPlan:
        """Return the part of the plan that one Kafka partition needs."""
        mine = {
            place.offset: resolution
            for place, resolution in self.resolutions.items()
            if (place.topic, place.partition) == (topic, partition)
        }
        source = self.source
        return LandPlan(
            topic,
            partition,
            source.decode,
            self.accept,
            mine,
            source.dead_letter == "skip",
            source.order == "offset",
            source.max_message_bytes,
            self.events.messages(),
            latest_ts(),
        )


def latest_ts() -> int:
    """Return the largest resolved ts that a changefeed may have sent by now, if clocks are a day apart at most."""
    return int((time.time() + CLOCKS_S) * 1000) << LOGICAL_BITS


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages of one Kafka partition from the place `start` up to offset `end`; `high` is the partition's end."""

    start: Place
    end: int
    high: int


class Planner:
    """Chooses the messages of each batch."""

    def __init__(self, source: KafkaTopics) -> None:
        self.source = source
        self.pace = BatchPace(source.max_messages_per_batch)

    def batch(self, state: State) -> list[OffsetRange]:
        """New messages of every partition, shared fairly up to the batch's limit; nothing when there are none.

        Raises MadeAnew for a topic of another id, HistoryLost for one that is shorter than what was read."""
        self.pace.end()
        starts = {
            (topic, number): one.offset for topic, some in state.positions.items() for number, one in some.items()
        }
        try:
            highs = offsets(self.source, starts, latest=True)
        except ConfigError:  # a topic that was made anew may have fewer partitions
            check_same(state, described(self.source))
            raise
        found = described(self.source)
        check_same(state, found)
        every = [(topic, number) for topic, told in found.items() for number in told.partitions]
        added = [place for place in every if place not in starts]
        if added:
            starts |= start_of(self.source, added)
            highs |= offsets(self.source, added, latest=True)
        for place, start in starts.items():
            if highs[place] < start:
                raise history_lost(self.source, Place(*place, start))
        ends = share(starts, highs, self.pace.limit)
        self.pace.begin(sum(ends[place] - start for place, start in starts.items()))
        return [
            OffsetRange(Place(*place, start), ends[place], highs[place])
            for place, start in sorted(starts.items())
            if start < ends[place] or place in added
        ]


def start_of(source: KafkaTopics, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return where to begin in partitions never read before: where the user says, else at the first offset still
    kept."""
    lows = offsets(source, places, latest=False)
    chosen = {(topic, partition): offset for topic, partition, offset in source.start}
    for place, offset in chosen.items():
        if place in lows and offset < lows[place]:
            raise history_lost(source, Place(*place, offset))
    return {place: chosen.get(place, low) for place, low in lows.items()}


def share(
    starts: Mapping[tuple[str, int], int], highs: Mapping[tuple[str, int], int], limit: int
) -> dict[tuple[str, int], int]:
    """End that take at most `limit` messages in all: what short partitions leave, long ones may use."""
    ends = dict(starts)
    left = limit
    backlog = sorted(starts, key=lambda place: highs[place] - starts[place])
    for index, place in enumerate(backlog):
        take = min(highs[place] - starts[place], left // (len(backlog) - index))
        ends[place] += take
        left -= take
    return ends


def land_range(plan: TopicPlan, clock: int, wanted: OffsetRange) -> TaskReport:
    """Read the messages of a range and write files into the changelog's directory; nothing is committed.

    `clock` is the last made-up timestamp (order "offset")."""
    start, end = wanted.start, wanted.end
    land_plan, encoder = plan.land_plan(start.topic, start.partition), Encoder()
    flush_bytes = plan.source.max_bytes_per_flush
    rows = RowFiles(plan.changelog, flush_bytes=flush_bytes, messages=end - start.offset)
    controls = ControlFiles(plan.changelog, flush_bytes)
    total = LandedMessages(start.offset, clock)
    collecting = gc.isenabled()
    gc.disable()  # a chunk makes millions of small objects and no cycles
    try:
        for chunk in fetch_range(plan.source, start, end):
            for landed in land_chunk(chunk, land_plan, encoder, start=total.position, clock=total.clock):
                rows.add(landed.tables.items())
                controls.add(landed.ddls, [(DEAD, letter) for letter in landed.letters])
                total = total.then(landed)
            if total.halt is not None:
                break
    finally:
        if collecting:
            gc.enable()
    if total.halted_at is not None and total.halted_at.place not in plan.halted:
        controls.add((), [(HALT, total.halted_at)])
    files = (*rows.close(), *controls.close())
    total.roads.add(LEFT_OUT, total.filtered)
    return TaskReport(
        topic=start.topic,
        partition=start.partition,
        start=start.offset,
        position=total.position if total.halt is not None else max(total.position, end),
        high=wanted.high,
        resolved=total.clock if land_plan.order_by_offset else total.resolved,
        since=total.since,
        messages=total.messages,
        filtered=total.filtered,
        roads=total.roads,
        ddls=controls.ddls,
        dead=controls.dead,
        tables=rows.counts(),
        files=files,
        halt=total.halt,
    )
