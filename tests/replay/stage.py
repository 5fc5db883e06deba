"""A recording played without broker and Spark: the same landing, planning and applying code, cut wherever a seed says.

    partitions --random batches--> land_messages -> files -> commit      (as an executor and the driver do)
    frontier   --random rounds---> plan_round -> run_unit -> publish     (as the engine and its workers do)

A crash is an exception between two steps; going on is a new Stage on the same directory.
"""

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.changelog import ledger
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.files import ControlFiles, RowFiles
from tidegate.changelog.report import TaskReport
from tidegate.codec.frame import read_frames
from tidegate.codec.options import DecodeOptions
from tidegate.feed.frontier import Reached
from tidegate.feed.round import end_of_round, is_whole, plan_landed, raised
from tidegate.feed.step import Unit
from tidegate.objectstore.failpoint import reach
from tidegate.sink.delta.apply import TableResult, run_unit
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka.message import Message
from tidegate.source.kafka.messages import LandPlan, land_messages

TOPIC = "shop"


def partitions_of(where: Path) -> dict[int, list[Message]]:
    """The messages of a recorded topic."""
    found = {}
    for path in sorted(where.glob("p*.bin.gz")):
        frames = list(read_frames(gzip.decompress(path.read_bytes())))
        number = int(path.name.removeprefix("p").partition(".")[0])
        found[number] = [Message(at, key or None, value) for at, (key, value) in enumerate(frames)]
    return found


class Crash(Exception):
    """The process dies here."""


class Stage:
    """One life of a feed on a lake."""

    def __init__(self, root: Path, protocol: str, messages: dict[int, list[Message]], seed: int = 0) -> None:
        self.options = DeltaOptions(root=str(root), feed="f")
        self.decode = DecodeOptions(protocol=protocol)
        self.messages = messages
        self.random = random.Random(seed)
        self.sink = DeltaSink(self.options)
        self.sink.recover()
        uri = self.options.changelog_uri
        self.log = Changelog(uri)
        fresh = {TOPIC: dict.fromkeys(messages, Reached(0))}
        self.state = ledger.claim(uri, "f", self.decode, lambda state: dict(state.positions) or fresh)
        self.floor = 0
        self.crash: Callable[[str], None] = lambda _: None

    def land(self, at_most: int) -> bool:
        """Land a batch of up to `at_most` messages a partition; False at the end of the topic."""
        reports = []
        for number, all_messages in self.messages.items():
            start = self.state.positions[TOPIC][number].offset
            end = min(start + self.random.randint(0, at_most), len(all_messages))
            plan = LandPlan(TOPIC, number, self.decode)
            landed = land_messages(all_messages[start:end], plan, start=start)
            assert landed.halt is None, landed.halt
            files = RowFiles(self.options.changelog_uri, flush_bytes=1 << 26)
            files.add(landed.tables.items())
            controls = ControlFiles(self.options.changelog_uri, 1 << 26)
            controls.add(landed.ddls, ())
            written = (*files.close(), *controls.close())
            reports.append(
                TaskReport(
                    topic=TOPIC,
                    partition=number,
                    start=start,
                    position=end,
                    resolved=landed.resolved,
                    messages=landed.messages,
                    ddls=len(landed.ddls),
                    tables=files.counts(),
                    files=written,
                ),
            )
        self.crash("before landing commits")
        self.state = ledger.commit_batch(self.options.changelog_uri, self.state, reports)
        self.crash("after landing commits")
        return any(self.state.positions[TOPIC][number].offset < len(some) for number, some in self.messages.items())

    def round(self, limit: int | None = None) -> int:
        """Apply everything up to the frontier, at most to `limit`; give the checkpoint."""
        self.log.refresh()
        frontier, at = self.log.frontier(), self.sink.snapshot.checkpoint
        if frontier is None:
            return at.ts
        end = end_of_round(at.ts, frontier, (), until=limit, floor=self.floor)
        landed = self.log.slice(at.ts, end)
        state, ddls = self.sink.snapshot.state, self.log.ddls(at.ts, end)
        planned = plan_landed(state, at, ddls, end, landed, accept=lambda *_: True)
        reach("round/planned")
        results: list[TableResult] = []
        for unit in self.random.sample(planned.units, len(planned.units)):
            for step in unit.steps:
                results += run_unit(Unit((step,)), landed, self.options)
                self.crash("between two steps")
        self.crash("before publishing")
        reach("round/applied")
        self.floor = raised(self.floor, (result.ahead for result in results))
        if not is_whole(planned.checkpoint.ts, self.floor):
            return self.round(limit)
        self.sink.advance(planned, results)
        return planned.checkpoint.ts


def no_keys_twice(rows: list[dict], key: list[str]) -> bool:
    """True if every key stands once."""
    seen = [tuple(row[name] for name in key) for row in rows]
    return len(seen) == len(set(seen))


def moments(stage: Stage, truths: list) -> Iterator[object]:
    """Play to the end in random batches, pausing at every truth."""
    waiting = list(truths)
    more = True
    while waiting:
        if more:
            more = stage.land(1500)
        while waiting:
            checkpoint = stage.round(waiting[0].ts)
            if checkpoint < waiting[0].ts:
                break
            yield waiting.pop(0)


__all__ = ["TOPIC", "Crash", "Stage", "moments", "no_keys_twice", "partitions_of"]
