"""The Spark side of reading topics: a streaming Data Source whose rows are reports, not data.

    planner (a Python process beside the driver)          executors
      initialOffset   where the changelog stands            read(range)
      latestOffset    + at most one batch of messages         consume -> land -> Parquet files in the changelog
      partitions      one range a Kafka partition             one row: the TaskReport as JSON

Offsets are {topic: {partition: offset}}.  The planner remembers the end that it planned last, which `partitions`
restores, and how fast batches go (pace.py).  A partition that appears gets a range of its own even while it is empty,
so that the driver learns of it and holds the frontier: the marks of known partitions are asked for first and the list
of partitions after, hence a partition that existed when a resolved ts was sent is seen no later than that ts.

A feed's plan travels inside a class made for it (`bound`), not in options, where its secrets would be printed.
"""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidegate.feed.change import Place
from tidegate.feed.frontier import Positions
from tidegate.model.errors import ConfigError
from tidegate.source.kafka.client import KafkaTopics, described, offsets
from tidegate.source.kafka.columns import Encoder
from tidegate.source.kafka.fetch import fetch_range, history_lost
from tidegate.source.kafka.files import DEAD, HALT, ControlFiles, RowFiles
from tidegate.source.kafka.ledger import newest
from tidegate.source.kafka.messages import Accept, Landed, LandPlan, land_messages
from tidegate.source.kafka.pace import Pace
from tidegate.source.kafka.report import TaskReport
from tidegate.source.kafka.resolution import Resolution

__all__ = ["FORMAT", "Offsets", "Planner", "TopicPlan", "as_offsets", "bound", "land_range", "start_of"]

FORMAT: Final = "tidegate_kafka"
Offsets: TypeAlias = dict[str, dict[str, int]]
"""Topic -> partition as text (JSON has no other keys) -> offset."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """All that planner and tasks need to know; it travels pickled."""

    source: KafkaTopics
    changelog: str
    offsets: Offsets
    accept: Accept | None = None
    resolutions: Mapping[Place, Resolution] = field(default_factory=dict)
    halted: frozenset[Place] = frozenset()
    """Places whose messages are already kept in the changelog for inspection."""

    def land_plan(self, topic: str, partition: int) -> LandPlan:
        """The part of the plan that one Kafka partition needs."""
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
        )


class OffsetRange(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    """Messages of one Kafka partition from the place `start` up to offset `end`; `high` is the partition's end,
    `clock` as in land_range."""

    def __init__(self, start: Place, end: int) -> None:
        self.start, self.end = start, end
        self.high = end
        self.clock = 0


class Planner:
    """Chooses the offsets of each batch."""

    def __init__(self, source: KafkaTopics, planned: Offsets) -> None:
        self.source = source
        self.planned = planned
        self.highs: dict[tuple[str, int], int] = {}
        self.pace = Pace(source.max_messages_per_batch)

    def next_offsets(self) -> Offsets:
        """The end of the next batch: new messages of every partition, shared fairly up to the batch's limit."""
        self.pace.end()
        known = [(topic, int(number)) for topic, numbers in self.planned.items() for number in numbers]
        highs = offsets(self.source, known, latest=True)
        starts = {place: self.planned[place[0]][str(place[1])] for place in known}
        every = [(topic, number) for topic, numbers in described(self.source).items() for number in numbers]
        added = [place for place in every if place not in starts]
        if added:
            starts |= start_of(self.source, added)
            highs |= offsets(self.source, added, latest=True)
        for place, start in starts.items():
            if highs[place] < start:
                raise history_lost(self.source, Place(*place, start))
        self.highs = highs
        self.planned = _nested(share(starts, highs, self.pace.limit))
        return self.planned

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges between two offsets, partitions that are new in `end` included though they be empty."""
        self.planned = end
        added = [(t, int(p)) for t, numbers in end.items() for p in numbers if p not in start.get(t, {})]
        lows = start_of(self.source, added)
        ranges = []
        for topic, numbers in end.items():
            for number, stop in numbers.items():
                place = topic, int(number)
                begin = start.get(topic, {}).get(number, lows.get(place, 0))
                if begin < stop or place in lows:
                    one = OffsetRange(Place(*place, min(begin, stop)), stop)
                    one.high = self.highs.get(place, stop)
                    ranges.append(one)
        self.pace.begin(sum(one.end - one.start.offset for one in ranges))
        return ranges


def start_of(source: KafkaTopics, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Where to begin in partitions never read before: where the user says, else at the first offset still kept."""
    lows = offsets(source, places, latest=False)
    chosen = {(topic, partition): offset for topic, partition, offset in source.start}
    for place, offset in chosen.items():
        if place in lows and offset < lows[place]:
            raise history_lost(source, Place(*place, offset))
    return {place: chosen.get(place, low) for place, low in lows.items()}


def share(
    starts: Mapping[tuple[str, int], int], highs: Mapping[tuple[str, int], int], limit: int
) -> dict[tuple[str, int], int]:
    """Ends that take at most `limit` messages in all: what short partitions leave, long ones may use."""
    ends = dict(starts)
    left = limit
    backlog = sorted(starts, key=lambda place: highs[place] - starts[place])
    for index, place in enumerate(backlog):
        take = min(highs[place] - starts[place], left // (len(backlog) - index))
        ends[place] += take
        left -= take
    return ends


def _nested(flat: Mapping[tuple[str, int], int]) -> Offsets:
    nested: Offsets = {}
    for topic, partition in sorted(flat):
        nested.setdefault(topic, {})[str(partition)] = flat[topic, partition]
    return nested


def as_offsets(positions: Positions) -> Offsets:
    """Where the changelog stands, as Spark writes offsets."""
    return _nested(
        {(topic, number): one.offset for topic, numbers in positions.items() for number, one in numbers.items()}
    )


def land_range(plan: TopicPlan, start: Place, end: int, clock: int = 0) -> TaskReport:
    """Read the messages from `start` up to offset `end` and write files into the changelog's directory.

    Nothing is committed. `clock` is the last made-up timestamp (order "offset")."""
    land_plan, encoder = plan.land_plan(start.topic, start.partition), Encoder()
    flush_bytes = plan.source.max_bytes_per_flush
    rows, controls = RowFiles(plan.changelog, flush_bytes=flush_bytes), ControlFiles(plan.changelog, flush_bytes)
    total = Landed(start.offset, clock)
    collecting = gc.isenabled()
    gc.disable()  # a chunk makes millions of small objects and no cycles
    try:
        for chunk in fetch_range(plan.source, start, end):
            landed = land_messages(chunk, land_plan, encoder, start=total.position, clock=total.clock)
            rows.add(landed.tables.items())
            controls.add(landed.ddls, [(DEAD, letter) for letter in landed.letters])
            total = total.then(landed)
            if landed.halt is not None:
                break
    finally:
        if collecting:
            gc.enable()
    if total.halted_at is not None and total.halted_at.place not in plan.halted:
        controls.add((), [(HALT, total.halted_at)])
    files = (*rows.close(), *controls.close())
    return TaskReport(
        topic=start.topic,
        partition=start.partition,
        start=start.offset,
        position=total.position if total.halt is not None else max(total.position, end),
        resolved=total.clock if land_plan.order_by_offset else total.resolved,
        messages=total.messages,
        filtered=total.filtered,
        ddls=controls.ddls,
        dead=controls.dead,
        tables=rows.counts(),
        files=files,
        halt=total.halt,
    )


class _Reader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark has no types here
    def __init__(self, plan: TopicPlan) -> None:
        self.plan = plan
        self.planner = Planner(plan.source, plan.offsets)

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name
        return self.plan.offsets

    def latestOffset(self) -> Offsets:  # noqa: N802  Spark's name
        return self.planner.next_offsets()

    def partitions(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        ranges = self.planner.ranges(start, end)
        if self.plan.source.order == "offset":
            _, state = newest(self.plan.changelog)
            for one in ranges:
                one.clock = state.frontier or 0
        return ranges

    def read(self, partition: OffsetRange) -> Iterator[tuple[str]]:
        report = land_range(self.plan, partition.start, partition.end, partition.clock)
        report = msgspec.structs.replace(report, high=partition.high)
        yield (msgspec.json.encode(report).decode(),)


class TopicSource(DataSource):  # type: ignore[misc]  # PySpark has no types here
    """The Data Source; `bound` gives it a plan."""

    plan: TopicPlan | None = None

    @classmethod
    def name(cls) -> str:
        """What `spark.readStream.format` is given."""
        return FORMAT

    def schema(self) -> str:
        """One text: a TaskReport."""
        return "report string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's name
        """The reader of one streaming query."""
        if self.plan is None:
            raise ConfigError(f"{FORMAT} is started by a changefeed; it takes no options of its own")
        return _Reader(self.plan)


def bound(plan: TopicPlan) -> type[DataSource]:
    """A Data Source class that carries `plan`, to be registered with a session."""
    return type("BoundTopicSource", (TopicSource,), {"plan": plan})
