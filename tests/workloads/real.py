"""A workload with real processes: `tidegate run` in lives of its own, killed, before a broker that is killed as well.

Story, whole ──► segments ──► life 1   a worker of Spark and then the driver get SIGKILL
                              life 2   the driver again, at another place
                              life 3   the broker gets SIGKILL and comes back; the feed ends by itself
                     topics ──► validators
                            └─► `tidegate run kafka://.. delta://..` up to each of some moments ──► SELECT
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.e2e.rig import cli, running, started_again
from tests.sources import topics_to_read
from tests.workloads.faces import Facts
from tests.workloads.feed import Disturbance
from tests.workloads.lake import moment_differences
from tests.workloads.setting import DEFAULT, Setting, draw_setting
from tests.workloads.story import Story
from tests.workloads.truth import Moment
from tests.workloads.validators import complaints
from tidegate.codec import decode, from_config
from tidegate.lakes.lake import Lake
from tidegate.model.event import Event
from tidegate.source.kafka_fetch import messages
from tidegate.testing.validators import Partition
from tidegate_upstream.broker import Broker

AWAY_S = 3.0
MOMENTS = 5
PARTED = {"matcher": ["gd.p*"], "partition": "index-value", "topic": "parted"}
"""A second topic."""
FAILPOINTS = ("topic/rows-written", "topic/ddl-sent", "topic/resolved-sent", "topic/advanced")


def real_setting(seed: int) -> Setting:
    """The seed's setting, as a sink address and a file can say it; all tables have keys."""
    drawn = draw_setting(seed)
    rules = (PARTED, *({**rule, "topic": ""} for rule in drawn.rules))
    words = {"max-batch-size": drawn.words["max-batch-size"]} | (
        {"enable-tidb-extension": "true"} if drawn.canal else {}
    )
    split = replace(drawn.split, newarch=False)
    return replace(drawn, rules=rules, words=words, force=False, late_start=False, split=split, mode="replica")


class Real:
    """One seed."""

    troubles = 12
    """How often something may have gone wrong everywhere."""

    def __init__(self, seed: int, broker: Broker, home: Path) -> None:
        self.seed, self.broker, self.home = seed, broker, home
        self.random, self.setting = Random(f"real {seed}"), real_setting(seed)
        self.name = f"real-{seed}"
        self.back: threading.Thread | None = None
        self.story = Story(seed, home / "log", self.setting, lambda: None)
        self.story.run()

    def feed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """All lives; their exit statuses."""
        (self.home / "deeds").mkdir()
        monkeypatch.setenv("TIDEGATE_FAILPOINTS_DIR", str(self.home / "deeds"))
        first, second = self.random.sample(FAILPOINTS, 2)
        deeds = [
            f"topic/rows-queued=kill@{self.random.randint(1, 3)},{first}=kill@{self.random.randint(4, 8)}",
            f"{second}=kill@{self.random.randint(1, 3)}",
        ]
        statuses = []
        for number, deed in enumerate(deeds):
            monkeypatch.setenv("TIDEGATE_FAILPOINTS", deed)
            with running(self._words(), self.home / f"life-{number}") as run:
                run.unread()
                statuses.append(run.process.wait())
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
        with running(self._words(), self.home / "life-last") as run:
            run.reach(lambda report: report["watermarks"] > 0)
            self._break_off()
            run.unread()
            statuses.append(run.process.wait())
        assert self.back is not None
        self.back.join()
        return statuses

    def complaints(self) -> list[str]:
        """What the validators say."""
        truth = self.story.truth
        arrived = self._arrived()
        everywhere = [Disturbance(0, truth.ts, "a life")] * self.troubles
        counts = {topic: self.setting.partitions for topic, _ in arrived}
        return complaints(
            Facts(
                setting=self.setting,
                rows=truth.rows,
                ddls=truth.ddls,
                checkpoint=self.story.writer.low,
                disturbed=everywhere,
                living=truth.tables,
                partitions=counts,
            ),
            arrived,
        )

    def differences(self) -> Iterator[str]:
        """What the lake has otherwise at some moments, the last one among them."""
        moments = self.story.truth.moments
        some = self.random.sample(moments[:-1], min(len(moments) - 1, MOMENTS - 1))
        for moment in sorted([*some, moments[-1]], key=lambda one: one.ts):
            yield from (f"at {moment.ts}: {what}" for what in self._landed(moment))

    def _landed(self, moment: Moment) -> Iterator[str]:
        options = f"protocol={self.setting.protocol}"
        if self.setting.canal:
            options += "&enable-tidb-extension=true"
        source = f"kafka://{self.broker.bootstrap}/{','.join(self._topics())}?{options}"
        lake = self.home / "lake"
        done = cli("run", "--source-uri", source, "--sink-uri", f"delta://{lake}", "--until", str(moment.ts))
        assert done.exit_code == 0, done.output
        yield from moment_differences(Lake(str(lake)).at(moment.ts), moment)

    def _break_off(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)

        def come_back() -> None:
            time.sleep(AWAY_S)
            self.broker = started_again(self.broker)

        self.back = threading.Thread(target=come_back)
        self.back.start()

    def _topics(self) -> Sequence[str]:
        return f"{self.name}-{DEFAULT}", f"{self.name}-parted"

    def _arrived(self) -> dict[Partition, list[Event]]:
        options = from_config({"protocol": self.setting.protocol})
        found: dict[Partition, list[Event]] = {
            (topic.removeprefix(f"{self.name}-"), number): []
            for topic in self._topics()
            for number in range(self.setting.partitions)
        }
        for key, value, where in messages(topics_to_read(self.broker.bootstrap, tuple(self._topics()), options)):
            topic, number, _ = where.split("/")
            found[topic.removeprefix(f"{self.name}-"), int(number)] += decode(key, value or b"", options)
        return found

    def _words(self) -> list[str]:
        file = self.home / "feed.toml"
        file.write_text(self._file())
        query = {"protocol": self.setting.protocol, "partition-num": self.setting.partitions, **self.setting.words}
        sink = f"kafka://{self.broker.bootstrap}/{self.name}-{DEFAULT}?"
        sink += "&".join(f"{name}={value}" for name, value in query.items())
        ends = ["--state-dir", str(self.home / "state"), "--stop-when-idle", "1"]
        return ["run", str(file), "--source-uri", f"tidb://{self.home}/log", "--sink-uri", sink, "-c", "w", *ends]

    def _file(self) -> str:
        rules = []
        for rule in self.setting.rules:
            named = {**rule, "topic": f"{self.name}-{rule['topic']}" if rule["topic"] else ""}
            words = ", ".join(f"{name} = {json.dumps(value)}" for name, value in named.items() if value)
            rules.append(f"  {{{words}}},")
        raw = str(not self.setting.split.unique_keys).lower()
        lines = ["[filter]", 'rules = ["gd.*"]', "[sink]", "dispatchers = [", *rules, "]"]
        return "\n".join([*lines, "[sink.kafka-config]", f"output-raw-change-event = {raw}", ""])
