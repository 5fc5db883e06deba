"""Landing a Kafka topic in the changelog: batches planned on the driver, ranges of offsets read by Spark tasks.

    claim    positions of every partition, new ones at their start; offsets that the topic no longer has are an error
    plan     offsets up to now, at most one batch: one range per partition        driver, `Planner`
    read     consume -> decode -> Parquet files; one TaskReport                   executors, `land_range`
    commit   files, positions and frontier; if a task met a poison message, halt after the commit

A new partition gets a range even while it is empty, so that the changelog knows it and it holds the frontier.  The
watermarks of known partitions are queried before the list of partitions, so a partition that existed when a resolved ts
was sent is known no later than that ts.

    a small backlog    all of it at once
    a large backlog    as many messages as take BATCH_S seconds, by the rate of the last full batch

A batch costs a fifth of a second whatever its size, so a backlog is read in large ones; but a kill discards a batch and
a stop waits for it, so it must not take long.  Memory does not limit it: a task writes its rows whenever it holds
enough of them (changelog/files.py).

A deleted and recreated topic begins its offsets anew, so the broker's topic id is stored and compared:

    stored id    the broker's    a topic that was read before
    A            A               continues
    A            B               MadeAnew, unless the address says made-anew=TOPIC:B
    none         B               continues, and B is stored                   state of an earlier release; logged once
    none         none            continues: there is nothing to compare       logged once
    A            none            continues with A

The id is queried before offsets are read and again after it, so messages of another topic never land.
"""

import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from tidegate.changelog.changelog import changelog_uri, claim, commit_batch
from tidegate.changelog.files import DEAD, HALT, ControlFiles, Encoder, Halt, RowFiles, State, TaskReport
from tidegate.changelog.source import TRIGGER_MS, BatchLoop, Message
from tidegate.engine.change import EventPosition
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.frontier import Positions, Reached
from tidegate.model.errors import ConfigError, MadeAnew, PoisonMessage, TidegateError
from tidegate.model.path_counts import LEFT_OUT
from tidegate.model.tso import LOGICAL_BITS
from tidegate.source.kafka_client import Described, begin_of, described, offsets, share
from tidegate.source.kafka_fetch import fetch_range, history_lost, messages_at
from tidegate.source.kafka_messages import Accept, LandedMessages, LandPlan, Resolution, bind, land_chunk, recorded
from tidegate.source.kafka_options import KafkaTopics

SAME_OFFSETS = "same-offsets"


def recognised(
    state: State, topics: Mapping[str, Described], made_anew: Sequence[tuple[str, str, bool]] = ()
) -> tuple[State, tuple[str, ...]]:
    """Return `state` with the current topic ids, without the positions of topics to read from the start, and warnings.
    `made_anew` has (topic, id, True if its offsets continue those of the old topic). Raises MadeAnew for an unknown
    id."""
    accepted = {(topic, topic_id): same for topic, topic_id, same in made_anew}
    identities, positions, warnings = dict(state.identities), dict(state.positions), []
    for topic, (_, topic_id) in topics.items():
        id_before = state.identities.get(topic)
        if id_before and topic_id not in {"", id_before}:
            same = accepted.get((topic, topic_id))
            if same is None:
                raise made_again(topic, id_before, topic_id, state)
            if not same:
                positions.pop(topic, None)
        elif id_before is None and not topic_id:
            warnings.append(
                f"topic {topic}: the broker reports no topic id, so a deleted and recreated topic cannot be detected"
            )
        elif id_before is None and topic in positions:
            warnings.append(
                f"topic {topic} was read without its id until now; its id {topic_id} is recorded from here on, and "
                f"was not compared with an earlier one"
            )
        identities[topic] = topic_id or id_before or ""
    halted = tuple(halt for halt in state.halted if halt.topic in positions)
    return msgspec.structs.replace(state, identities=identities, positions=positions, halted=halted), tuple(warnings)


def check_same(state: State, topics: Mapping[str, Described]) -> None:
    """Raise MadeAnew for a topic whose id differs from that in `state`."""
    recognised(state, topics)


def made_again(topic: str, id_before: str, topic_id: str, state: State) -> MadeAnew:
    """Return the error for a topic whose id has changed."""
    reached = state.positions.get(topic, {})
    parts = [f"partition {number} up to offset {position.offset}" for number, position in sorted(reached.items())]
    more = f" and {len(parts) - 8} more partitions" if parts[8:] else ""
    read = f", {', '.join(parts[:8])}{more}" if parts else ""
    since = f"ts {state.frontier}" if state.frontier else "the begin"
    resend = f" (`cdc cli changefeed resume --overwrite-checkpoint-ts={state.frontier}`)" if state.frontier else ""
    first = min(reached, default=0)
    return MadeAnew(
        f"topic {topic} was deleted and recreated: its id is {topic_id} now, and {id_before} was read{read}. Later "
        f"messages of the old topic are lost. To continue: let its changefeed send everything since {since} "
        f"again{resend}, then read the new topic from its first message, with "
        f"made-anew={topic}:{topic_id} in the source's address; if it has the same messages at the same offsets "
        f"(another cluster that took over), continue with made-anew={topic}:{topic_id}:{SAME_OFFSETS}; or start a new "
        "changefeed with a new target"
    ).at(topic=topic, partition=first, offset=reached[first].offset if reached else 0)


def _offsets_of(positions: Positions) -> dict[tuple[str, int], int]:
    return {
        (topic, number): reached.offset for topic, numbers in positions.items() for number, reached in numbers.items()
    }


BATCH_S: Final = 4.0
CLOCKS_S: Final = 24 * 3600.0
FIRST_BATCH: Final = 1_000_000
"""The batch limit while no rate is known."""


class BatchPace:
    """The limit of one landing's batches, never above `most`."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max, self._clock = most, clock
        self._begun: tuple[int, float] | None = None
        self.limit = min(FIRST_BATCH, most)

    def begin(self, messages: int) -> None:
        """Note the start of a batch of `messages`."""
        self._begun = (messages, self._clock()) if messages >= self.limit else None

    def end(self) -> None:
        """Note the end of the batch; only a full one changes the rate."""
        if self._begun is not None:
            messages, began_s = self._begun
            took_s = max(self._clock() - began_s, 0.001)
            self.limit = max(1, min(self._max, int(messages * BATCH_S / took_s)))
            self._begun = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The configuration of a landing's tasks; it holds secrets, so it travels pickled, never as text."""

    source: KafkaTopics
    changelog: str
    accept: Accept | None = None
    events: EventFilter = field(default_factory=EventFilter)
    resolutions: Mapping[EventPosition, Resolution] = field(default_factory=dict)
    halted: frozenset[EventPosition] = frozenset()
    """Positions whose messages are already stored in the changelog for inspection."""

    def land_plan(self, topic: str, partition: int) -> LandPlan:
        """Return the part of the plan that one Kafka partition needs."""
        mine = {
            position.offset: resolution
            for position, resolution in self.resolutions.items()
            if (position.topic, position.partition) == (topic, partition)
        }
        source = self.source
        return LandPlan(
            topic,
            partition,
            source.decode_options(),
            self.accept,
            mine,
            source.dead_letter == "skip",
            source.order == "offset",
            source.message_bytes,
            self.events.messages(),
            latest_ts(),
        )


def latest_ts() -> int:
    """Return the largest plausible resolved ts, if clocks are a day apart at most."""
    return int((time.time() + CLOCKS_S) * 1000) << LOGICAL_BITS


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages of one Kafka partition from position `start` up to offset `end`; `high` is the partition's end."""

    start: EventPosition
    end: int
    high: int


class Planner:
    """Chooses the messages of each batch."""

    def __init__(self, source: KafkaTopics) -> None:
        self.source = source
        self.pace = BatchPace(source.max_messages_per_batch)

    def batch(self, state: State) -> list[OffsetRange]:
        """Return the new messages of every partition, shared fairly up to the batch's limit; [] when there are none.

        Raises MadeAnew for a topic of another id, HistoryLost for one that ends below its position."""
        self.pace.end()
        starts = _offsets_of(state.positions)
        try:
            highs = offsets(self.source, starts, latest=True)
        except ConfigError:  # a topic that was made anew may have fewer partitions
            check_same(state, described(self.source))
            raise
        topics = described(self.source)
        check_same(state, topics)
        every = [(topic, number) for topic, (numbers, _) in topics.items() for number in numbers]
        added = [partition for partition in every if partition not in starts]
        if added:
            starts |= start_of(self.source, added)
            highs |= offsets(self.source, added, latest=True)
        for partition, start in starts.items():
            if highs[partition] < start:
                raise history_lost(self.source, EventPosition(*partition, start))
        ends = share(starts, highs, self.pace.limit)
        self.pace.begin(sum(ends[partition] - start for partition, start in starts.items()))
        return [
            OffsetRange(EventPosition(*partition, start), ends[partition], highs[partition])
            for partition, start in sorted(starts.items())
            if start < ends[partition] or partition in added
        ]


def start_of(source: KafkaTopics, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the start offsets of new partitions: the user's, else the first offset that the broker has."""
    lows = offsets(source, partitions, latest=False)
    chosen = {(topic, partition): offset for topic, partition, offset in source.start}
    for partition, offset in chosen.items():
        if partition in lows and offset < lows[partition]:
            raise history_lost(source, EventPosition(*partition, offset))
    return {partition: chosen.get(partition, low) for partition, low in lows.items()}


def land_range(plan: TopicPlan, clock: int, offsets: OffsetRange) -> TaskReport:
    """Read the messages of a range and write files into the changelog's directory; nothing is committed.

    `clock` is the last made-up timestamp (order "offset")."""
    start, end = offsets.start, offsets.end
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
    if total.halted_at is not None and total.halted_at.position not in plan.halted:
        controls.add((), [(HALT, total.halted_at)])
    files = (*rows.close(), *controls.close())
    total.path_counts.add(LEFT_OUT, total.filtered)
    return TaskReport(
        topic=start.topic,
        partition=start.partition,
        start=start.offset,
        position=total.position if total.halt is not None else max(total.position, end),
        high=offsets.high,
        resolved=total.clock if land_plan.order_by_offset else total.resolved,
        since=total.since,
        messages=total.messages,
        filtered=total.filtered,
        path_counts=total.path_counts,
        ddls=controls.ddls,
        dead=controls.dead,
        tables=rows.counts(),
        files=files,
        halt=total.halt,
    )


LOGGER: Final = logging.getLogger(__name__)
BEGIN_EVERY_S: Final = 60.0
ANEW: Final = "the changefeed continues above ts {}, its changelog {} is new: the topic lands from its first message"


class Landing(BatchLoop):
    """Lands topics into the changelog of a lake; start it once."""

    def __init__(
        self,
        source: KafkaTopics,
        lake: str,
        feed: str,
        *,
        accept: Accept | None = None,
        events: EventFilter | None = None,
        trigger_ms: int = TRIGGER_MS,
    ) -> None:
        super().__init__(feed, trigger_ms)
        self.source = source
        self.changelog = changelog_uri(lake)
        self._lake, self._accept, self._events = lake, accept, events or EventFilter()
        self._planner = Planner(source)
        self._warnings: tuple[str, ...] = ()
        self._looks_s = 0.0
        """When the begin of the topics is looked up again."""
        self.skips_dead = source.dead_letter == "skip"

    def _claim(self) -> State:
        """Raises errors of brokers, topics and positions."""
        recorded(self._lake)  # what is wrong with one is raised before anything is written
        state = claim(self.changelog, self._feed, self.source.decode_options(), self._completed)
        for words in self._warnings:
            LOGGER.warning("%s", words)
        self._plan = TopicPlan(
            source=self.source,
            changelog=self.changelog,
            accept=self._accept,
            events=self._events,
            resolutions=recorded(self._lake, state.identities),
            halted=frozenset(halt.position for halt in state.halted),
        )
        return state

    def idle(self) -> bool:
        offsets_before = _offsets_of(self._state.positions)
        highs = offsets(self.source, offsets_before, latest=True)
        return all(highs[partition] <= offset for partition, offset in offsets_before.items())

    def bodies(self, positions: Collection[EventPosition]) -> Mapping[EventPosition, Message]:
        return messages_at(self.source, positions)

    def _completed(self, before: State) -> State:
        """`before` with the current topics, and start offsets for partitions that it does not have."""
        strangers = sorted(set(before.positions) - set(self.source.topics))
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r} too, which is no longer subscribed: "
                f"subscribe to it again, or start a new changefeed"
            )
        topics = described(self.source)
        state, self._warnings = recognised(before, topics, self.source.made_anew)
        if self.needed_ts and not before.positions:
            self._warnings += (ANEW.format(self.needed_ts, self.changelog),)
        for topic in before.positions.keys() - state.positions.keys():
            bind(self._lake, topic, before.identities[topic])
        positions = {topic: dict(numbers) for topic, numbers in state.positions.items()}
        added = [
            (topic, number)
            for topic, (numbers, _) in topics.items()
            for number in numbers
            if number not in positions.get(topic, {})
        ]
        anew = [
            partition for partition in added if partition[0] in before.positions and partition[0] not in state.positions
        ]
        begins = start_of(self.source, [partition for partition in added if partition not in anew])
        begins |= offsets(self.source, anew, latest=False)  # `start` is about the topic before
        for (topic, number), offset in begins.items():
            positions.setdefault(topic, {})[number] = Reached(offset)
        offsets_before = _offsets_of(state.positions)
        lows, highs = (offsets(self.source, offsets_before, latest=latest) for latest in (False, True))
        for partition, offset in offsets_before.items():
            if not lows[partition] <= offset <= highs[partition]:
                raise history_lost(self.source, EventPosition(*partition, offset))
        return msgspec.structs.replace(state, positions=positions)

    def _batch(self) -> None:
        ranges = self._planner.batch(self._state)
        if time.monotonic() >= self._looks_s:
            self._looks_s = time.monotonic() + BEGIN_EVERY_S
            with suppress(TidegateError):  # a broker may not know the times of its messages
                self.begin_ts = begin_of(self.source)
        if not ranges:
            return
        try:
            reports = self._tasks.run(partial(land_range, self._plan, self._state.frontier or 0), ranges)
        finally:  # what was read belongs to the topics of the positions, and so does what was not found
            check_same(self._state, described(self.source))
        if not self._late:
            self._land(reports)

    def _check_since(self, reports: Sequence[TaskReport]) -> None:
        """Raise MadeAnew if a topic that lands into a new changelog begins above the sink's checkpoint, whose changelog
        is gone. The topic has all changes above the first resolved ts of each partition."""
        if not self.needed_ts or self._state.frontier is not None:
            return
        started = {partition[:2] for partition in self.source.start}
        started |= {
            (topic, number)
            for topic, numbers in self._state.positions.items()
            for number, reached in numbers.items()
            if reached.resolved is not None
        }
        late = [
            report
            for report in reports
            if (report.since or 0) > self.needed_ts and (report.topic, report.partition) not in started
        ]
        if late:
            raise begins_late(late, self.changelog, self.needed_ts)

    def _land(self, reports: Sequence[TaskReport]) -> None:
        by_offset = self.source.order == "offset"
        self._check_since(reports)
        state = commit_batch(self.changelog, self._state, reports, order_by_offset=by_offset)
        highs = {(report.topic, report.partition): report.high for report in reports}
        self._landed(state, highs, (report.path_counts for report in reports))
        LOGGER.debug("%s batch %d: %d rows, frontier %s", self._feed, state.batch, state.rows, state.frontier)
        halts = [report.halt for report in reports if report.halt is not None]
        if halts:
            raise halted(halts, self._lake)


def begins_late(late: Sequence[TaskReport], changelog: str, needed_ts: int) -> MadeAnew:
    """Return the error for partitions that begin above `needed_ts`, the sink's checkpoint."""
    first = late[0]
    start = ",".join(f"{report.topic}/{report.partition}:{report.start}" for report in late)
    return MadeAnew(
        f"the target is at ts {needed_ts}, but its changelog {changelog} is missing: topic "
        f"{first.topic} partition {first.partition} was read again from offset {first.start}, and has only the "
        f"changes above ts {first.since}, so those between may be lost. To continue: restore the changelog; or let "
        f"the upstream changefeed send everything since ts {needed_ts} again (`cdc cli changefeed resume "
        f"--overwrite-checkpoint-ts={needed_ts}`), or accept the gap, and continue with start={start} in the source's "
        "address; or start a new changefeed with a new target"
    ).at(topic=first.topic, partition=first.partition, offset=first.start)


def halted(halts: list[Halt], lake: str) -> TidegateError:
    """Return the error for a feed that is halted at `halts`."""
    first = halts[0]
    where = {"topic": first.topic, "partition": first.partition, "offset": first.offset}
    if first.order:
        return ConfigError(f"{first.position}: {first.reason}").at(**where)
    position = f"{first.topic}/{first.partition}/{first.offset}"
    more = f" ({len(halts) - 1} more partitions are halted, see `tidegate dlq list {lake}`)" if halts[1:] else ""
    return PoisonMessage(
        f"{first.position}: {first.code}: {first.reason}. Everything before it has landed{more}. To continue: inspect "
        f"it with `tidegate dlq show {lake} --at {position}`; replace its bytes or options with `tidegate dlq replay "
        f"{lake} --at {position}`; skip it with `tidegate dlq skip {lake} --at {position}`; or set dead-letter=skip. "
        f"Then start the changefeed again"
    ).at(**where)
