"""Every source into every sink, and whether what arrives is what the database held.

recorded shop   topic open ─┐                        ┌─ topic open, topic canal   ─► landed in this process ─┐
topic canal ┼─► tidegate run         ├─ lake: replica, changelog, history ───────────────────┼─► = truth
seeded world    change log ─┘   tidegate.Changefeed  └─ callback ─► landed in this process ──────────────────┘
"""

import base64
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from tests.e2e import collected
from tests.e2e.rig import EXTENSION, PROTOCOLS, RECORDING, Topic, moment_ts, truths
from tests.replay.stage import Stage
from tests.source.tidb.kit import write_log
from tests.workloads.lake import moment_differences
from tests.workloads.real import real_setting
from tests.workloads.story import Story
from tidegate.app.changefeed import Changefeed
from tidegate.app.verify import Truth, compare_tables
from tidegate.codec.options import DecodeOptions
from tidegate.lakes.lake import Lake
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.source.kafka.client import KafkaTopics
from tidegate.source.kafka.fetch import messages
from tidegate.source.kafka.message import TopicMessage
from tidegate.tidb.span_feed import in_order

__all__ = ["SINKS", "SOURCES", "Pair", "World", "recorded_world", "seeded_world"]

SOURCES = ("open", "canal", "tidb")
SINKS = ("kafka-open", "kafka-canal", "replica", "changelog", "history", "callback")
NOT_MOUNTED = frozenset({"row_dropped", "lossy_ddl_reorg", "unknown_table"})
"""Rows that TiKV's change feed does not send, or that make no event."""


class World(NamedTuple):
    """A history: the address of each source that tells it, its end, and where a lake differs from it there."""

    name: str
    sources: Mapping[str, str]
    end_ts: int
    compare: Callable[[Lake], Iterable[str]]


@cache
def recorded_changes() -> tuple[KvChange, ...]:
    """The change log beneath the recorded topics."""
    text = lzma.decompress((RECORDING / "kv.jsonl.xz").read_bytes()).decode()
    lines = [line for line in map(json.loads, text.splitlines()) if line.get("row_op") not in NOT_MOUNTED]
    return tuple(sorted(map(_change, lines), key=in_order))


def _change(line: Mapping[str, object]) -> KvChange:
    key, value, old = (
        None if line.get(name) is None else base64.b64decode(str(line[name]))
        for name in ("key_b64", "value_b64", "old_value_b64")
    )
    op = KvOp.DELETE if line["op"] == "delete" else KvOp.PUT
    return KvChange(LogType.COMMITTED, key or b"", line["start_ts"], line["commit_ts"], op, value, old)  # type: ignore[arg-type]


def recorded_world(topics: Mapping[str, Topic], home: Path, moment: int) -> World:
    """The recorded shop up to a moment: its topics, and its change log as segments that end there."""
    rows = recorded_changes()
    last = moment_ts(moment)
    inside = [row for row in rows if row.commit_ts <= last]
    cuts = [inside[at * len(inside) // 6].commit_ts for at in range(1, 6)]
    log = write_log(home / "log", inside, [*cuts, *([last] if last > inside[-1].commit_ts + 1 else [])])
    if last > inside[-1].commit_ts + 1:
        _end_log(log, inside[-1].commit_ts + 1, last)
    sources = {kind: topic.uri() for kind, topic in topics.items()}
    return World("recorded", {**sources, "tidb": f"tidb://{log}"}, last, partial(_differences, truths()[moment - 1]))


def _differences(truth: Truth, lake: Lake) -> Iterator[str]:
    for report in compare_tables(truth, lake.tables(), lake.arrow):
        if not report.equal:
            yield f"{report.name}: {report.differences[:2]}"


def seeded_world(seed: int, bootstrap: str, home: Path) -> World:
    """A life of the embedded TiDB: its change log, and the topics that a feed makes of it."""
    story = Story(seed, home / "log", real_setting(seed), lambda: None)
    story.run()
    moment = story.truth.moments[-1]
    sources = {"tidb": f"tidb://{home / 'log'}"}
    for kind in EXTENSION:
        sources[kind] = f"kafka://{bootstrap}/seed-{seed}-{kind}?protocol={PROTOCOLS[kind]}{EXTENSION[kind]}"
        feed = Changefeed(sources["tidb"], f"{sources[kind]}&partition-num=3", state_dir=home / "state")
        feed.run(until=moment.ts)
    return World(f"seed{seed}", sources, moment.ts, lambda lake: moment_differences(lake, moment))


def _end_log(log: Path, low: int, high: int) -> None:
    """A last segment without rows."""
    from tidegate.tidb.segment import encode_segment

    (log / f"{low:020d}-{high:020d}.seg").write_bytes(encode_segment(low, high, []))


@dataclass(frozen=True)
class Pair:
    """A source of a world into a sink, all of it below `home`."""

    world: World
    source: str
    sink: str
    bootstrap: str
    home: Path

    @property
    def source_uri(self) -> str:
        """The address of the source."""
        return self.world.sources[self.source]

    @property
    def topic(self) -> str:
        """The topic that a kafka sink writes."""
        return f"out-{self.world.name}-{self.source}-{self.sink}-{self.home.name}"

    @property
    def sink_uri(self) -> str:
        """The address of the sink."""
        kind, _, form = self.sink.partition("-")
        if kind == "kafka":
            options = f"protocol={PROTOCOLS[form]}{EXTENSION[form]}&partition-num=3"
            return f"kafka://{self.bootstrap}/{self.topic}?{options}"
        if kind == "callback":
            return f"callback://tests.e2e.collected/into?home={self.home / 'collected'}"
        return f"delta://{self.home / 'lake'}" + ("" if kind == "replica" else f"?mode={kind}")

    @property
    def state_dir(self) -> Path | None:
        """Where the checkpoint is kept, if the sink does not keep it."""
        return None if self.sink in {"replica", "changelog", "history"} else self.home / "state"

    def words(self) -> list[str]:
        """The words of `tidegate run`."""
        state = [] if self.state_dir is None else ["--state-dir", str(self.state_dir)]
        addresses = ["--source-uri", self.source_uri, "--sink-uri", self.sink_uri]
        return ["run", *addresses, "--until", str(self.world.end_ts), *state]

    def differences(self) -> list[str]:
        """Where what has arrived differs from the truth."""
        return list(self.world.compare(Lake(str(self._lake()))))

    def _lake(self) -> Path:
        if self.sink == "callback":
            return self._landed("open-protocol", {0: collected.messages(str(self.home / "collected"))})
        if self.sink.startswith("kafka"):
            return self._landed(PROTOCOLS[self.sink.partition("-")[2]], self._written())
        return self.home / "lake"

    def _written(self) -> dict[int, list[TopicMessage]]:
        protocol = PROTOCOLS[self.sink.partition("-")[2]]
        found: dict[int, list[TopicMessage]] = {0: [], 1: [], 2: []}
        for key, value, place in messages(KafkaTopics(self.bootstrap, (self.topic,), DecodeOptions(protocol=protocol))):
            _, partition, offset = place.split("/")
            found[int(partition)].append(TopicMessage(int(offset), key, value))
        return found

    def _landed(self, protocol: str, partitions: dict[int, list[TopicMessage]]) -> Path:
        """A lake made of messages, in this process."""
        root = self.home / "landed"
        stage = Stage(root, protocol, partitions)
        while stage.land(max(map(len, partitions.values()))):
            pass
        assert stage.round(self.world.end_ts) >= self.world.end_ts, "the end is not resolved"
        return root
