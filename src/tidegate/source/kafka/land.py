"""Landing a topic: what the loop of changelog/landing.py does to a Kafka topic.

claim    positions of every partition, new ones at their start; what the topic no longer keeps is an error
plan     offsets up to now, at most one batch                            driver
read     consume, decode, write Parquet                                  executors, a task a partition
halt     if a task stopped at a poison message, stop behind the commit
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from tidegate.changelog import ledger
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.landing import TRIGGER_MS, BatchLoop, Message
from tidegate.changelog.report import Halt, State, TaskReport
from tidegate.engine.change import Place
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.frontier import Reached
from tidegate.model.errors import ConfigError, PoisonMessage, TidegateError
from tidegate.model.feed_errors import MadeAnew
from tidegate.source.kafka.client import KafkaTopics, described, offsets
from tidegate.source.kafka.fetch import history_lost, messages_at
from tidegate.source.kafka.identity import check_same, recognised
from tidegate.source.kafka.messages import Accept
from tidegate.source.kafka.reader import Planner, TopicPlan, land_range, start_of
from tidegate.source.kafka.resolution import bind, recorded

LOGGER: Final = logging.getLogger(__name__)
ANEW: Final = (
    "the target stands at ts {}, and its changelog {} is new: the topic is landed again from its first message"
)


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
        self._told: tuple[str, ...] = ()
        self.skips_dead = source.dead_letter == "skip"

    def _claim(self) -> State:
        """Raises what is wrong with brokers, topics and positions."""
        recorded(self._lake)  # what is wrong with one is raised before anything is written
        state = ledger.claim(self.changelog, self._feed, self.source.decode, self._completed)
        for words in self._told:
            LOGGER.warning("%s", words)
        self._plan = TopicPlan(
            source=self.source,
            changelog=self.changelog,
            accept=self._accept,
            events=self._events,
            resolutions=recorded(self._lake, state.identities),
            halted=frozenset(halt.place for halt in state.halted),
        )
        return state

    def idle(self) -> bool:
        """Return True if everything that the broker has at this moment has landed."""
        known = {
            (topic, number): one.offset
            for topic, numbers in self._state.positions.items()
            for number, one in numbers.items()
        }
        highs = offsets(self.source, known, latest=True)
        return all(highs[place] <= offset for place, offset in known.items())

    def bodies(self, places: Collection[Place]) -> Mapping[Place, Message]:
        """Return the messages that stand at `places`, as far as the broker still has them."""
        return messages_at(self.source, places)

    def _completed(self, before: State) -> State:
        """`before` with the topics that are there, and a beginning for every partition that it does not know."""
        strangers = sorted(set(before.positions) - set(self.source.topics))
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r} too, which is no longer subscribed: "
                "subscribe to it again, or start a fresh feed"
            )
        found = described(self.source)
        state, self._told = recognised(before, found, self.source.made_anew)
        if self.needed_ts and not before.positions:
            self._told += (ANEW.format(self.needed_ts, self.changelog),)
        for topic in before.positions.keys() - state.positions.keys():
            bind(self._lake, topic, before.identities[topic])
        positions = {topic: dict(numbers) for topic, numbers in state.positions.items()}
        added = [
            (topic, number)
            for topic, told in found.items()
            for number in told.partitions
            if number not in positions.get(topic, {})
        ]
        anew = [place for place in added if place[0] in before.positions and place[0] not in state.positions]
        begins = start_of(self.source, [place for place in added if place not in anew])
        begins |= offsets(self.source, anew, latest=False)  # `start` is about the topic before
        for (topic, number), offset in begins.items():
            positions.setdefault(topic, {})[number] = Reached(offset)
        self._check_kept(state.positions)
        return msgspec.structs.replace(state, positions=positions)

    def _check_kept(self, positions: Mapping[str, Mapping[int, Reached]]) -> None:
        known = {(topic, number): one.offset for topic, numbers in positions.items() for number, one in numbers.items()}
        lows, highs = (offsets(self.source, known, latest=latest) for latest in (False, True))
        for place, offset in known.items():
            if not lows[place] <= offset <= highs[place]:
                raise history_lost(self.source, Place(*place, offset))

    def _batch(self) -> None:
        ranges = self._planner.batch(self._state)
        if not ranges:
            return
        try:
            reports = self._tasks.run(partial(land_range, self._plan, self._state.frontier or 0), ranges)
        finally:  # what was read belongs to the topics of the positions, and so does what was not found
            check_same(self._state, described(self.source))
        if not self._late:
            self._land(reports)

    def _check_since(self, reports: Sequence[TaskReport]) -> None:
        """Raise MadeAnew where a topic that is landed into a new changelog begins above the sink's checkpoint.

        The changelog that led there is gone; the topic has all above the first resolved ts of a partition."""
        if not self.needed_ts or self._state.frontier is not None:
            return
        chosen = {place[:2] for place in self.source.start}
        late = [
            report
            for report in reports
            if (report.since or 0) > self.needed_ts
            and (report.topic, report.partition) not in chosen
            and self._resolved(report) is None
        ]
        if late:
            raise begins_late(late, self.changelog, self.needed_ts)

    def _resolved(self, report: TaskReport) -> int | None:
        known = self._state.positions.get(report.topic, {}).get(report.partition)
        return None if known is None else known.resolved

    def _land(self, reports: Sequence[TaskReport]) -> None:
        by_offset = self.source.order == "offset"
        self._check_since(reports)
        state = ledger.commit_batch(self.changelog, self._state, reports, order_by_offset=by_offset)
        highs = {(report.topic, report.partition): report.high for report in reports}
        self._landed(state, highs, (report.roads for report in reports))
        LOGGER.debug("%s batch %d: %d rows, frontier %s", self._feed, state.batch, state.rows, state.frontier)
        halts = [report.halt for report in reports if report.halt is not None]
        if halts:
            raise halted(halts, self._lake)


def begins_late(late: Sequence[TaskReport], changelog: str, needed_ts: int) -> MadeAnew:
    """Return the error for partitions that begin above `needed_ts`, where the sink stands."""
    first = late[0]
    start = ",".join(f"{one.topic}/{one.partition}:{one.start}" for one in late)
    return MadeAnew(
        f"the target stands at ts {needed_ts}, and the changelog {changelog} that led there is gone: topic "
        f"{first.topic} partition {first.partition} was read anew from offset {first.start}, and has all changes above "
        f"ts {first.since} alone, so those between may be lost. Ways out: put the changelog back; or let the upstream "
        f"changefeed send everything since ts {needed_ts} again (`cdc cli changefeed resume "
        f"--overwrite-checkpoint-ts={needed_ts}`), or do without, and go on with start={start} in the source's "
        "address; or start a fresh changefeed into a fresh target"
    ).at(topic=first.topic, partition=first.partition, offset=first.start)


def halted(halts: list[Halt], lake: str) -> TidegateError:
    """Return the error that stops a feed at `halts`."""
    first = halts[0]
    place = {"topic": first.topic, "partition": first.partition, "offset": first.offset}
    if first.order:
        return ConfigError(f"{first.place}: {first.reason}").at(**place)
    at = f"{first.topic}/{first.partition}/{first.offset}"
    more = f" ({len(halts) - 1} more partitions stand still, see `tidegate dlq list {lake}`)" if halts[1:] else ""
    return PoisonMessage(
        f"{first.place}: {first.code}: {first.reason}. Everything before it has landed{more}. Ways out: look at it "
        f"with `tidegate dlq show {lake} --at {at}`; give the right bytes or options with `tidegate dlq replay {lake} "
        f"--at {at}`; leave it out with `tidegate dlq skip {lake} --at {at}`; or set dead-letter=skip. Then start the "
        "feed again"
    ).at(**place)
