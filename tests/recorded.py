"""A recorded topic as a landing: the partitions of a broker, without one, in batches that the caller asks for.

    partitions --land(at most)--> land_messages -> files -> commit          as a task and the driver do

It has no thread: nothing lands but what is asked for, so a test decides how far landing and merging are apart.
"""

import base64
import gzip
import json
import lzma
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from tidegate.changelog.changelog import changelog_uri, claim, commit_batch
from tidegate.changelog.files import DEAD, HALT, ControlFiles, RowFiles, State, TaskReport
from tidegate.changelog.source import BatchLoop, Message
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import read_frames
from tidegate.engine.change import EventPosition
from tidegate.engine.frontier import Reached
from tidegate.engine.ports import Tasks
from tidegate.model.event import Resolved
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.source.kafka_land import halted, latest_ts
from tidegate.source.kafka_messages import LandPlan, TopicMessage, land_messages, recorded
from tidegate.source.tidb_segment import in_order

__all__ = ["WORKLOAD", "RecordedLanding", "partitions_of", "recorded_changes", "upto"]

FLUSH_BYTES = 1 << 26
WORKLOAD = Path(__file__).parent / "data" / "workload"
NOT_MOUNTED = frozenset({"row_dropped", "lossy_ddl_reorg", "unknown_table"})
"""Rows that TiKV's change feed does not send, or that make no event."""


def partitions_of(where: Path) -> dict[int, list[TopicMessage]]:
    """Return the messages of a recorded topic (files p0.bin.gz, p1.bin.gz, ..), by partition."""
    return {number: list(messages) for number, messages in _read(where).items()}


def upto(where: Path, options: DecodeOptions, ts: int) -> dict[int, list[TopicMessage]]:
    """Return the messages of a recorded topic, each partition up to the one that resolves `ts`."""
    marks = _resolving(where, options)
    ends = {number: next((at for at, mark in marks[number] if mark >= ts), None) for number in marks}
    return {
        number: list(messages if ends[number] is None else messages[: ends[number] + 1])
        for number, messages in _read(where).items()
    }


@cache
def _read(where: Path) -> dict[int, tuple[TopicMessage, ...]]:
    found = {}
    for path in sorted(where.glob("p*.bin.gz")):
        frames = list(read_frames(gzip.decompress(path.read_bytes())))
        number = int(path.name.removeprefix("p").partition(".")[0])
        found[number] = tuple(TopicMessage(at, key or None, value) for at, (key, value) in enumerate(frames))
    return found


@cache
def _resolving(where: Path, options: DecodeOptions) -> dict[int, list[tuple[int, int]]]:
    """The messages that resolve, by partition: where they stand, and which ts they resolve."""
    return {
        number: [
            (at, event.ts)
            for at, message in enumerate(messages)
            for event in decode(message.key, message.value, options)
            if isinstance(event, Resolved)
        ]
        for number, messages in _read(where).items()
    }


@cache
def recorded_changes() -> tuple[KvChange, ...]:
    """The change log beneath the recorded topics."""
    text = lzma.decompress((WORKLOAD / "kv.jsonl.xz").read_bytes()).decode()
    lines = [line for line in map(json.loads, text.splitlines()) if line.get("row_op") not in NOT_MOUNTED]
    return tuple(sorted(map(_change, lines), key=in_order))


def _change(line: Mapping[str, object]) -> KvChange:
    key, value, old = (
        None if line.get(name) is None else base64.b64decode(str(line[name]))
        for name in ("key_b64", "value_b64", "old_value_b64")
    )
    op = KvOp.DELETE if line["op"] == "delete" else KvOp.PUT
    return KvChange(LogType.COMMITTED, key or b"", line["start_ts"], line["commit_ts"], op, value, old)  # type: ignore[arg-type]


class RecordedLanding(BatchLoop):
    """Lands `messages` (of one topic, by partition) into the changelog at `uri`. `pause` is called around commits.

    A message that cannot be read ends the landing (`exception`), or goes to the dead letters with `skip_dead`."""

    def __init__(
        self,
        uri: str,
        feed: str,
        decode: DecodeOptions,
        messages: Mapping[int, Sequence[TopicMessage]],
        *,
        topic: str = "shop",
        seed: int = 0,
        skip_dead: bool = False,
        pause: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(feed)
        self.uri, self.decode, self.messages, self.topic, self.pause = uri, decode, messages, topic, pause
        self.lake = uri.removesuffix(changelog_uri(""))
        self.skips_dead, self.random = skip_dead, random.Random(seed)

    def start(self, tasks: Tasks) -> None:
        """Claim the changelog; nothing lands by itself."""
        self._tasks = tasks
        self._state = self._claim()

    def bodies(self, places: Collection[EventPosition]) -> dict[EventPosition, Message]:
        """Return the messages at `places`."""
        found = {at: self.messages[at.partition][at.offset] for at in places}
        return {at: (one.key, one.value) for at, one in found.items()}

    def idle(self) -> bool:
        """Return True if all messages have landed."""
        return all(self._state.positions[self.topic][number].offset >= len(some) for number, some in self._all())

    def land(self, at_most: int) -> bool:
        """Land a batch of up to `at_most` messages a partition; False at the end of the topic or of the landing."""
        reports = []
        for number, messages in self._all():
            start = self._state.positions[self.topic][number].offset
            reports.append(self._read(number, messages, start, start + self.random.randint(0, at_most)))
        self.pause("before landing commits")
        state = commit_batch(self.uri, self._state, reports)
        self._landed(state, {}, (one.path_counts for one in reports))
        self.pause("after landing commits")
        if halts := [report.halt for report in reports if report.halt is not None]:
            self._error = halted(halts, self.lake)
        return self._error is None and not self.idle()

    def _all(self) -> list[tuple[int, Sequence[TopicMessage]]]:
        return list(self.messages.items())

    def _claim(self) -> State:
        self._chosen = recorded(self.lake)
        fresh = {self.topic: dict.fromkeys(self.messages, Reached(0))}
        return claim(
            self.uri, self._feed, self.decode, lambda state: replace(state, positions=state.positions or fresh)
        )

    def _batch(self) -> None:
        """Nothing lands by itself."""

    def _read(self, number: int, messages: Sequence[TopicMessage], start: int, end: int) -> TaskReport:
        end = min(end, len(messages))
        chosen = {at.offset: one for at, one in self._chosen.items() if at.partition == number}
        plan = LandPlan(
            self.topic, number, self.decode, resolutions=chosen, skip_dead=self.skips_dead, latest_ts=latest_ts()
        )
        landed = land_messages(messages[start:end], plan, start=start)
        files, controls = RowFiles(self.uri, flush_bytes=FLUSH_BYTES), ControlFiles(self.uri, FLUSH_BYTES)
        files.add(landed.tables.items())
        halted_at = [] if landed.halted_at is None else [(HALT, landed.halted_at)]
        controls.add(landed.ddls, [*((DEAD, letter) for letter in landed.letters), *halted_at])
        written = (*files.close(), *controls.close())
        return TaskReport(
            topic=self.topic,
            partition=number,
            start=start,
            position=end if landed.halt is None else landed.position,
            resolved=landed.resolved,
            path_counts=landed.path_counts,
            messages=landed.messages,
            ddls=len(landed.ddls),
            dead=controls.dead,
            tables=files.counts(),
            files=written,
            halt=landed.halt,
        )
