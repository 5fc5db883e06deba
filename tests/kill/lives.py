"""One lake, many lives: a real feed that dies at planned places, is started again at once, and is looked at between.

    topic fed up to moment 1, 2, 3 … as the lake gets there
    life 1 ──► pause ──► somebody dies ──► pause ──► the driver dies ──► all new snapshots right? ──► life 2 ──► …

Each life has a scratch directory of its own, so each but the first has lost all that Spark kept: the lake alone says
where to go on.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.counts import some
from tests.e2e.rig import LAST, TIDEGATE, Topic, differences, feed, moment_ts, recorded, running
from tests.failpoint import FEED_FAILPOINTS
from tests.kill.published import Undisturbed, Witness, readable
from tests.kill.victims import Victim, armed_processes, driver, group, jvm, live, worker
from tidegate_upstream.demo.recorded import create_topic

BATCH = 400
UPKEEP = "upkeep-interval=1s&snapshot-retention={}s&changelog-retention=0&recover-retention=0"
HANG_S = 600

AT_START = ("start/recovered", "landing/before-claim", "landing/after-claim")
"""Where no worker of Spark is there yet."""
OFTEN = {
    *("landing/before-file", "landing/after-file", "landing/before-commit", "landing/after-commit"),
    *("round/planned", "round/applied", "apply/rows-read", "apply/rows-written", "apply/rows-committed"),
    *("publish/before-schema", "publish/before-snapshot", "publish/after-snapshot"),
}
"""Places that each life passes several times; the others are taken at their first chance."""
ONLY_BY_HAND = {"compact/before-commit", "compact/after-commit", "upkeep/table-half", "upkeep/before-cut"}
"""Feeds give readers an hour before they delete, and the recording has no table with so many small files."""
IN_A_FEED = tuple(place for place in FEED_FAILPOINTS if place not in ONLY_BY_HAND)
OF_A_ROUND = tuple(place for place in IN_A_FEED if place.startswith(("round/", "apply/", "publish/")))
AROUND_IT = tuple(place for place in IN_A_FEED if place not in OF_A_ROUND)
"""Landing, logs, upkeep."""
MANY_WORKERS: Sequence[Victim] = (worker, driver, worker, worker, jvm, worker, worker, group, worker)
"""A dead worker costs no new start of Spark, so it dies twice as often as all others together."""
LAKES, SOME = 3, 2


class Death(NamedTuple):
    """Who dies, when a process reaches the place for the nth time."""

    victim: Victim
    nth: int


def planned(by_chance: Random, places: Sequence[str], victims: Sequence[Victim] = MANY_WORKERS) -> dict[str, Death]:
    """A death for each place; every victim has its turn."""
    order, found = by_chance.sample(places, len(places)), {}
    spread = cycle(by_chance.sample(victims, len(victims)))
    for place in order:
        victim = next(spread)
        if place in AT_START and victim is worker:
            victim = by_chance.choice((driver, jvm, group))
        found[place] = Death(victim, by_chance.randint(1, 2) if place in OFTEN else 1)
    return found


@dataclass
class Paced:
    """A topic that gets the messages of the next moment when the lake has published the one before."""

    bootstrap: str
    name: str
    kind: str
    lake: Path
    last: int = LAST
    sent: int = 0
    looked_s: float = 0.0

    def __post_init__(self) -> None:
        create_topic(self.bootstrap, self.name, len(recorded(self.kind)))
        self.topic = Topic(self.bootstrap, self.name, self.kind)
        self._send()

    def __call__(self) -> None:
        """Look, at most five times a second."""
        if self.sent == self.last or time.monotonic() - self.looked_s < 0.2:
            return
        self.looked_s = time.monotonic()
        if checkpoint(self.lake) >= moment_ts(self.sent):
            self._send()

    def _send(self) -> None:
        before = recorded(self.kind, self.sent) if self.sent else [()] * len(recorded(self.kind))
        self.sent += 1
        parts = zip(before, recorded(self.kind, self.sent), strict=True)
        self.topic.send([whole[len(old) :] for old, whole in parts])


def checkpoint(lake: Path) -> int:
    """The newest published ts; 0 for a lake without any."""
    published = sorted((lake / "_tidegate" / "snapshots").glob("*.json"))
    try:
        return int(json.loads(published[-1].read_bytes())["checkpoint_ts"]) if published else 0
    except FileNotFoundError:  # forgotten this very moment: there is a newer one
        return 0


@dataclass
class Lives:
    """The lives of one lake and the deaths that end them."""

    home: Path
    paced: Paced
    plan: Mapping[str, Death]
    program: Sequence[str] = (str(TIDEGATE),)
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Of the source, beyond those that all lives have."""
    kept_s: int = 30
    """How long snapshots are kept."""
    deaths: list[str] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        self.lake = self.paced.lake
        self.witness = Witness(self.lake, Undisturbed(self.home / "undisturbed", self.paced.kind))

    def until_the_end(self) -> None:
        """Live and die until the recording is in the lake; everything that was published on the way was right."""
        source = self.paced.topic.uri(max_messages_per_batch=BATCH, **self.parameters)
        words = feed(source, Path(f"{self.lake}?{UPKEEP.format(self.kept_s)}"), moment=self.paced.last)
        deeds = [f"{place}=pause@{death.nth}" for place, death in self.plan.items()]
        marks = self.home / "marks"
        with ExitStack() as left_over:
            while True:
                self.lives += 1
                with armed_processes(deeds, marks):
                    run = left_over.enter_context(
                        running(words, self.home / f"life-{self.lives}", self.program, hang_s=HANG_S)
                    )
                status, died = live(run, marks, lambda place: self.plan[place].victim, self.paced)
                self.deaths += died
                if status == 0:
                    break
                assert died, f"life {self.lives} ended with status {status}: {run.stderr.read_text()[-2000:]}"
                assert self.lives <= 2 * len(self.plan) + 3, self.deaths
                self._look(died[-1])
        self._look("the end")
        assert readable(self.lake) == []

    def _look(self, after: str) -> None:
        problems = self.witness.problems()
        if problems:
            pytest.fail(f"after {after} in life {self.lives} (deaths: {self.deaths}): {problems[:5]}")

    def left(self) -> list[str]:
        """The places where nobody died: `@n` was not reached."""
        done = {mark.stem.replace(".", "/", 1) for mark in (self.home / "marks").glob("*.done")}
        return sorted(self.plan.keys() - done)


def each_once(bootstrap: str, home: Path, by_chance: Random, places: Sequence[str], last: int) -> None:
    """A SIGKILL at each of the places, until `last`: all published snapshots and the final tables equal TiDB's.

    `make test` takes SOME of the places, others with each seed; test_places.py stops at all of them in one process.
    Places that one lake's lives did not come to as often as the seed wanted have their turn in another lake, which has
    more of the recording and forgets snapshots sooner."""
    kind = by_chance.choice(("open", "canal"))
    plan = planned(by_chance, by_chance.sample(places, some(SOME, len(places))))
    for number in range(LAKES):
        lake = home / f"{number}" / "lake"
        lake.parent.mkdir()
        lives = Lives(
            lake.parent,
            Paced(bootstrap, f"{places[-1].replace('/', '-')}-{number}", kind, lake, min(last + number, LAST)),
            plan,
        )
        lives.kept_s = 5 if number else lives.kept_s

        lives.until_the_end()

        assert differences(lake) == {}
        assert lives.witness.by_truth
        assert lives.witness.by_replay
        plan = {place: plan[place]._replace(nth=1) for place in lives.left()}
        if not plan:
            break

    assert sorted(plan) == []
