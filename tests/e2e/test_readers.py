"""Readers beside a real feed: whatever they see, at any moment, is a state that the database had.

recording, moment by moment ──► broker ──► feed (a process of its own) ──► lake
              ▲                                                              │ snapshots and live views, all the time
              └── the next moment, once both were seen at this one ◄─────────┘
"""

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.rig import LAST, Running, Topic, feed, recorded, running, truths
from tests.lakes.stages import cut, differences
from tests.lakes.test_concurrent import broken
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.model.errors import ConfigError
from tidegate_upstream.demo.recorded import Frame

pytestmark = pytest.mark.slow

SMALL = 700
"""Messages a batch, so that most moments land in several steps."""
LONG_S = 540
"""This feed is as slow as its reader, who looks at every row of every table at each moment."""


class Reader:
    """Looks at the newest snapshot and the live view in turn, and at every state once."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(str(root))
        self.truths = {truth.ts: truth for truth in truths()}
        self.seen: set[tuple[str, int]] = set()

    def look(self) -> None:
        """See what there is now; fails at the first state that the database never had."""
        for view in self.views():
            state = type(view).__name__, view.checkpoint_ts
            if state not in self.seen:
                self.check(view)
                self.seen.add(state)
            if isinstance(view, Live):
                view.close()

    def views(self) -> Iterator[Lake | Live]:
        """The newest snapshot and the live view, as far as there are any."""
        for take in (lambda: self.lake.at("latest"), self.lake.live):
            try:
                view = take()
                assert view.checkpoint_ts
            except ConfigError:
                continue  # nothing is there yet
            yield view

    def check(self, view: Lake | Live) -> None:
        """At a recorded moment every row of every table; at any other the rules that each transaction keeps."""
        ts = view.checkpoint_ts
        assert broken(view) == [], ts
        if ts in self.truths:
            assert differences(view, self.truths[ts]) == [], ts

    def reached(self, ts: int) -> bool:
        """True when both were seen at `ts`."""
        return {("Lake", ts), ("Live", ts)} <= self.seen


def moments(kind: str, last: int) -> Iterator[tuple[int, list[list[Frame]]]]:
    """(ts, the messages that come up to it behind the moment before, by partition)."""
    before = [0] * len(recorded(kind))
    for truth in truths()[:last]:
        partitions = [some for _, some in sorted(cut(kind, truth.ts).items())]
        yield (
            truth.ts,
            [[(one.key or b"", one.value) for one in some[at:]] for some, at in zip(partitions, before, strict=True)],
        )
        before = [len(some) for some in partitions]


@pytest.mark.more
@pytest.mark.parametrize(
    ("kind", "last"),
    [("open", 3), *(pytest.param(kind, LAST, marks=pytest.mark.soak) for kind in ("open", "canal"))],
)
def test_readers_see_only_what_the_database_was(bootstrap: str, tmp_path: Path, kind: str, last: int) -> None:
    """While a feed plays the recording, every snapshot and live view is whole, and the truth wherever one is known."""
    lake = tmp_path / "lake"
    reader = Reader(lake)
    topic = Topic.fed(bootstrap, f"readers-{kind}-{last}", kind, [[] for _ in recorded(kind)])

    words = feed(topic.uri(max_messages_per_batch=SMALL), lake, moment=None)
    with running(words, tmp_path / "feed", hang_s=LONG_S) as run:
        reports = threading.Thread(target=lambda: deque(run.reports(), maxlen=0))
        reports.start()
        for ts, messages in moments(kind, last):
            topic.send(messages)
            while not reader.reached(ts):
                alive(run)
                reader.look()

    reports.join()
    states = {way: {ts for name, ts in reader.seen if name == way} for way in ("Lake", "Live")}
    told = {truth.ts for truth in truths()[:last]}
    assert states["Lake"] >= told
    assert states["Live"] >= told
    assert len(states["Live"]) > last, "some states between the recorded moments were seen too"


def alive(run: Running) -> None:
    """Fails when the feed has ended."""
    if run.process.poll() is not None:
        pytest.fail(f"the feed ended: {run.stderr.read_text()[-2000:]}")
