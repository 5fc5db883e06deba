"""Every source keeps the contract of tidegate.testing."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.lakes.stages import PROTOCOLS, WORKLOAD
from tests.recorded import RecordedLanding, partitions_of
from tidegate.changelog.source import LandedSource
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.engine.ports import Source
from tidegate.model.errors import Where
from tidegate.model.event import Resolved
from tidegate.source.kafka_messages import TopicMessage
from tidegate.testing.contract.sources import SourceContract
from tidegate.testing.contract.stories import shop
from tidegate.testing.script import ScriptedSource

pytestmark = pytest.mark.slow

Topic = Mapping[int, Sequence[TopicMessage]]
MESSAGES = 180
"""So much of each partition of the recorded shop: its first DDLs, and rows around them."""


class TestScript(SourceContract):
    """The script that sinks are tested with."""

    def source(self, _home: Path) -> Source:
        """Its shop."""
        return ScriptedSource(shop())

    def away(self, _home: Path) -> Source:
        """One that is told to be away."""
        return ScriptedSource(shop(), outages={"refresh": 1})


@cache
def recorded(recording: str) -> Topic:
    """The begin of the recorded shop."""
    return {number: some[:MESSAGES] for number, some in partitions_of(WORKLOAD / recording).items()}


class TestOpenProtocol(SourceContract):
    """A topic that lands first."""

    recording = "open"

    def source(self, home: Path) -> Source:
        """The recorded shop."""
        return self.landed(home, recorded(self.recording))

    def landed(self, home: Path, messages: Topic) -> Source:
        """Some messages, on their way into a changelog."""
        uri, options = str(home / "changelog"), DecodeOptions(protocol=PROTOCOLS[self.recording])
        return LandedSource(lambda: RecordedLanding(uri, "feed", options, messages, seed=1), uri)

    def more(self, source: Source) -> bool:
        """Another batch of each partition."""
        assert isinstance(source, LandedSource)
        assert isinstance(source.landing, RecordedLanding)
        return source.landing.land(150)

    def going_back(self, home: Path) -> Source:
        """Each partition says its first resolved ts once more at its end."""
        options = DecodeOptions(protocol=PROTOCOLS[self.recording])
        return self.landed(home, {n: _back(messages, options) for n, messages in recorded(self.recording).items()})

    def damaged(self, home: Path) -> tuple[Source, Where]:
        """A message of one partition is cut in half."""
        messages = dict(recorded(self.recording))
        at = len(messages[1]) // 2
        half = messages[1][at].value
        assert half is not None
        broken = TopicMessage(at, messages[1][at].key, half[: len(half) // 2])
        messages[1] = [*messages[1][:at], broken, *messages[1][at + 1 :]]
        return self.landed(home, messages), Where(topic="shop", partition=1, offset=at)


def _back(messages: Sequence[TopicMessage], options: DecodeOptions) -> list[TopicMessage]:
    """The messages, and the first of them that tells a resolved ts again."""
    resolves = (one for one in messages for event in decode(one.key, one.value, options) if isinstance(event, Resolved))
    first = next(resolves)
    return [*messages, TopicMessage(len(messages), first.key, first.value)]


@pytest.mark.slow
class TestCanalJson(TestOpenProtocol):
    """The same in the other protocol."""

    recording = "canal"
