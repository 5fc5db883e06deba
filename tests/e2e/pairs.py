"""Every source into every sink, and whether what arrives is what the database held.

recorded shop   topic open ─┐                        ┌─ topic open, topic canal   ─► landed in this process ─┐
                topic canal ┼─► tidegate run         ├─ lake: replica, changelog, history ───────────────────┼─► = truth
                change log ─┤   tidegate.Changefeed  ├─ database: MariaDB, another embedded TiDB ────────────┤
seeded world    files ──────┘                        ├─ callback ─► landed in this process ──────────────────┤
                                                     └─ files    ─► landed in this process ──────────────────┘
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.e2e import collected
from tests.e2e.rig import EXTENSION, PROTOCOLS, Topic, moment_ts, truths
from tests.mariadb import Server
from tests.recorded import recorded_changes
from tests.replay import test_database as database
from tests.replay.stage import Stage
from tests.sink.sql import seeded
from tests.source.storage.kit import Polled
from tests.source.tidb.kit import write_log
from tests.sources import files_to_read, topics_to_read
from tests.workloads.lake import moment_differences
from tests.workloads.real import real_setting
from tests.workloads.story import Story
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.codec.options import DecodeOptions
from tidegate.config.changefeed import Changefeed
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka_fetch import messages
from tidegate.source.kafka_messages import TopicMessage
from tidegate.source.storage_options import CanalDialect
from tidegate.testing.script import run_here
from tidegate.verify.local import Truth, compare_tables

__all__ = ["DATABASES", "SINKS", "SOURCES", "Pair", "World", "recorded_world", "seeded_world"]

SOURCES = ("open", "canal", "tidb", "files")
SINKS = ("kafka-open", "kafka-canal", "replica", "changelog", "history", "callback", "files", "mysql", "tidb")
DATABASES = frozenset({"mysql", "tidb"})
CANAL = DecodeOptions(protocol="canal-json")


class World(NamedTuple):
    """A history: the address of each source that tells it, its end, and where a lake or a database differs from it
    there."""

    name: str
    sources: Mapping[str, str]
    end_ts: int
    compare: Callable[[Lake], Iterable[str]]
    compare_database: Callable[[Server], Iterable[str]]


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
    sources["tidb"] = f"tidb://{log}"
    in_lake = partial(_differences, truths()[moment - 1])
    return World("recorded", sources, last, in_lake, partial(database.unlike, truth=database.truths()[moment - 1]))


def _differences(truth: Truth, lake: Lake) -> Iterator[str]:
    for report in compare_tables(truth, lake.tables(), lake.arrow):
        if not report.equal:
            yield f"{report.name}: {report.differences[:2]}"


def seeded_world(seed: int, bootstrap: str, home: Path) -> World:
    """A life of the embedded TiDB: its change log, and the topics that a feed makes of it."""
    setting = seeded.AnyMysql(**vars(real_setting(seed)))
    story = Story(seed, home / "log", setting, lambda: None)
    story.run()
    moment = story.truth.moments[-1]
    sources = {"tidb": f"tidb://{home / 'log'}"}
    for kind in EXTENSION:
        sources[kind] = f"kafka://{bootstrap}/seed-{seed}-{kind}?protocol={PROTOCOLS[kind]}{EXTENSION[kind]}"
        feed = Changefeed(sources["tidb"], f"{sources[kind]}&partition-num=3", state_dir=home / "state")
        feed.run(until=moment.ts)
    in_lake, in_database = partial(moment_differences, moment=moment), partial(seeded.differences, moment=moment)
    return World(f"seed{seed}", sources, moment.ts, in_lake, in_database)


def filed(world: World) -> str:
    """The address of files that tell the history of a world, which are made when they are first asked for."""
    log = world.sources["tidb"]
    place = f"{log.replace('tidb://', 'file://')}-files?protocol=canal-json"
    if not Path(place.removeprefix("file://").partition("?")[0], "metadata").exists():
        state = f"{log.removeprefix('tidb://')}-state"
        feed = Changefeed(log, f"{place}&enable-tidb-extension=true&flush-interval=100ms", state_dir=state)
        feed.run(tasks=LocalTasks(), until=world.end_ts)
    return place


def _end_log(log: Path, low: int, high: int) -> None:
    """A last segment without rows."""
    from tidegate.source.tidb_segment import encode_segment

    (log / f"{low:020d}-{high:020d}.seg").write_bytes(encode_segment(low, high, []))


@dataclass(frozen=True)
class Pair:
    """A source of a world into a sink, all of it below `home`, or in `server`, an empty database."""

    world: World
    source: str
    sink: str
    bootstrap: str
    home: Path
    server: Server | None = None

    @property
    def source_uri(self) -> str:
        """The address of the source."""
        return filed(self.world) if self.source == "files" else self.world.sources[self.source]

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
        if self.server is not None:
            return f"{kind}://root@127.0.0.1:{self.server.port}/"
        if kind == "files":
            return f"file://{self.home / 'files'}?protocol=canal-json&enable-tidb-extension=true&flush-interval=100ms"
        if kind == "callback":
            return f"callback://tests.e2e.collected/into?home={self.home / 'collected'}"
        return f"delta://{self.home / 'lake'}" + ("" if kind == "replica" else f"?mode={kind}")

    @property
    def state_dir(self) -> Path | None:
        """Where the checkpoint is kept, if the sink does not keep it, and what a feed into a database has landed."""
        return None if self.sink in {"replica", "changelog", "history"} else self.home / "state"

    def words(self) -> list[str]:
        """The words of `tidegate run`."""
        state = [] if self.state_dir is None else ["--state-dir", str(self.state_dir)]
        addresses = ["--source-uri", self.source_uri, "--sink-uri", self.sink_uri]
        return ["run", *addresses, "--until", str(self.world.end_ts), *state]

    def differences(self) -> list[str]:
        """Where what has arrived differs from the truth."""
        if self.server is not None:
            return list(self.world.compare_database(self.server))
        return list(self.world.compare(Lake(str(self._lake()))))

    def _lake(self) -> Path:
        if self.sink == "callback":
            return self._landed("open-protocol", {0: collected.messages(str(self.home / "collected"))})
        if self.sink == "files":
            return self._read_files()
        if self.sink.startswith("kafka"):
            return self._landed(PROTOCOLS[self.sink.partition("-")[2]], self._written())
        return self.home / "lake"

    def _read_files(self) -> Path:
        """A lake made of the files, in this process."""
        lake = str(self.home / "landed")
        read = files_to_read(str(self.home / "files"), "files", CanalDialect(CANAL))
        source = LandedSource(lambda: Polled(read, lake, "f"), changelog_uri(lake))
        run_here(source, DeltaSink(DeltaOptions(root=lake, feed="f", worker_count=1)), until=self.world.end_ts)
        return Path(lake)

    def _written(self) -> dict[int, list[TopicMessage]]:
        protocol = PROTOCOLS[self.sink.partition("-")[2]]
        found: dict[int, list[TopicMessage]] = {0: [], 1: [], 2: []}
        for key, value, place in messages(
            topics_to_read(self.bootstrap, (self.topic,), DecodeOptions(protocol=protocol))
        ):
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
