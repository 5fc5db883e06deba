"""Kafka topics keep the contract of sinks, in both protocols, with a broker in memory."""

from pathlib import Path
from typing import Any

import pytest

from tests.source.tidb.kit import Broker, target
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import Sink
from tidegate.sink.kafka import KafkaSink
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import Script, ScriptedSource, run_here

pytestmark = pytest.mark.slow

BROKERS: dict[str, "SharedBroker"] = {}


class SharedBroker(Broker):
    """A broker of its own name: it travels to tasks by that."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __reduce__(self) -> Any:
        return broker, (self.name,)


def broker(name: str) -> SharedBroker:
    """The broker of that name, which is made when it is first asked for."""
    return BROKERS.setdefault(name, SharedBroker(name))


class TestOpenProtocol(SinkContract):
    """Topics of Open Protocol."""

    run = staticmethod(run_here)
    poison = ("note", "x" * 5000)
    protocol = "open-protocol"

    def fill(self, home: Path, story: Script) -> bool:
        """Messages of another changefeed."""
        run_here(ScriptedSource(story), self.sink(home, "other"), until=story.ts)
        return True

    def sink(self, home: Path, feed: str = "feed") -> Sink:
        """A sink of one topic with three partitions."""
        made = target(broker(str(home)), self.protocol, max_message_bytes="4000")
        checkpoints = DirectoryCheckpoints(home, feed)
        return KafkaSink(made, checkpoints, rules=TableFilter.parse(["*.*"]), force=True)

    def read(self, home: Path) -> ReadBack:
        """The partitions, decoded."""
        return ReadBack(log={f"{t}/{n}": some for (t, n), some in broker(str(home)).events(self.protocol).items()})


class TestCanalJson(TestOpenProtocol):
    """Topics of Canal-JSON with the TiDB extension."""

    protocol = "canal-json"
