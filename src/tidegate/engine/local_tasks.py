"""Tasks in this process, one after the other: for tests, and for tools that need no Spark.

HereTasks(slots=2).run(work, jobs)     work, jobs and answers go through pickle, as they do on their way to a worker
Hurried()                              a stop for which nobody waits: pauses of an outage are over at once
"""

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class HereTasks:
    """Runs jobs in this process; `slots` is what it says of itself, `jobs` counts what it ran.

    With `pickles`, work, jobs and answers travel by pickle, so that what cannot go to a worker fails here too."""

    def __init__(self, slots: int = 2, *, pickles: bool = True) -> None:
        self.slots = slots
        self.jobs = 0
        self._pickles = pickles

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers in the order of `jobs`; the first error ends it."""
        self.jobs += len(jobs)
        if not self._pickles:
            return [work(job) for job in jobs]
        there: tuple[Callable[[Job], Answer], Sequence[Job]] = pickle.loads(pickle.dumps((work, jobs)))  # noqa: S301  ours
        answers: list[Answer] = pickle.loads(pickle.dumps([there[0](job) for job in there[1]]))  # noqa: S301
        return answers

    def aside(self, name: str) -> "HereTasks":  # noqa: ARG002
        """Return these same tasks: nothing runs beside anything."""
        return self

    def cancel(self) -> None:
        """Nothing runs that could be ended."""


class Hurried(threading.Event):
    """A stop event whose `wait` returns at once, so that a feed never pauses."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        """Return whether the stop is set."""
        return self.is_set()
