"""A sink and tasks that call a function at each place where a feed may die or its target may be away.

    before run, in a task, after run        before ddl, after ddl        before advance, after advance

A tap that raises Died ends the run as SIGKILL would; one that raises SinkError is an outage.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tidegate.engine.change import PlacedDdl
from tidegate.engine.local_tasks import HereTasks
from tidegate.engine.plan import Barrier, Round
from tidegate.engine.ports import Changes, Rhythm, Sink, Standing, Tasks
from tidegate.engine.step import Unit

PLACES: Final = (
    *("before run", "in a task", "after run"),
    *("before ddl", "after ddl", "before advance", "after advance"),
)
Tap = Callable[[str], None]
Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Died(KeyboardInterrupt):
    """Ends a run as SIGKILL would: no code between is there to catch it."""


def dies_at(place: str, nth: int) -> Tap:
    """Return a tap that raises Died when `place` is reached for the nth time, counted from 1."""
    left = nth

    def tap(reached: str) -> None:
        nonlocal left
        left -= reached == place
        if left == 0:
            raise Died

    return tap


class TappedTasks(HereTasks):
    """Tasks in this process that tap behind each job."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers in the order of `jobs`."""
        answers: list[Answer] = []
        for job in jobs:
            answers += super().run(work, [job])
            self._tap("in a task")
        return answers


class TappedSink:
    """The given sink, with a tap around the calls that change something."""

    def __init__(self, sink: Sink[Any], tap: Tap) -> None:
        self._sink, self._tap = sink, tap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    @property
    def barrier(self) -> Barrier:
        """Return what the sink says."""
        return self._sink.barrier

    @property
    def rhythm(self) -> Rhythm:
        """Return what the sink says."""
        return self._sink.rhythm

    @rhythm.setter
    def rhythm(self, rhythm: Rhythm) -> None:
        self._sink.rhythm = rhythm

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Any]:
        """Do the units, between two taps."""
        return self._around("run", lambda: self._sink.run(tasks, units, changes))

    def ddl(self, placed: PlacedDdl) -> None:
        """Do a DDL, between two taps."""
        self._around("ddl", lambda: self._sink.ddl(placed))

    def advance(self, planned: Round, results: Sequence[Any]) -> Standing:
        """Advance, between two taps."""
        return self._around("advance", lambda: self._sink.advance(planned, results))

    def _around(self, call: str, work: Callable[[], Answer]) -> Answer:
        self._tap(f"before {call}")
        answer = work()
        self._tap(f"after {call}")
        return answer
