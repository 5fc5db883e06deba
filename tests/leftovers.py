"""Processes that a run of the tests leaves behind: found at its end, killed, named, and the run has failed.

    the run ──► environment of every child: TIDEGATE_TEST_RUN ──► at the end: who alive still carries it?
                                                                              and who is a descendant all the same?

The mark finds daemons whose parent is gone; a process that was started with an environment of its own is found while
its parents are.  Those that end with the run are its own: its JVM of Spark with that one's workers, and the watchers of
`multiprocessing`.  What was just told to end has WAIT_S to do so.

Each worker of a parallel run (pytest-xdist) looks after its own tests; the run tells what all have found.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import psutil
import pytest

__all__ = ["Leftovers"]

MARK: Final = "TIDEGATE_TEST_RUN"
WAIT_S: Final = 20.0
POLL_S: Final = 0.1
SHOWN: Final = 300
END_WITH_US: Final = ("org.apache.spark.deploy.SparkSubmit", "multiprocessing.resource_tracker", "multiprocessing.fork")


class Left(NamedTuple):
    """A process that should have ended: its command line, and the test that started it as far as is known."""

    process: psutil.Process
    words: str
    test: str

    def __str__(self) -> str:
        return f"process {self.process.pid}: {self.words[:SHOWN]}" + (f"\n    of {self.test}" if self.test else "")


class Leftovers:
    """The plugin; one a run, made before any test."""

    def __init__(self) -> None:
        self._run = uuid.uuid4().hex
        self._left: list[str] = []
        os.environ[MARK] = self._run

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look once all fixtures are torn down."""
        until_s = time.monotonic() + WAIT_S
        while (found := list(self._found())) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        for one in found:
            with suppress(psutil.NoSuchProcess):
                one.process.kill()
        self._left += map(str, found)
        if (told := getattr(session.config, "workeroutput", None)) is not None:
            told[MARK] = self._left
        if self._left and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker found."""
        self._left += getattr(node, "workeroutput", {}).get(MARK, [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if not self._left:
            return
        terminalreporter.section("processes left behind (killed now; the run has failed)", red=True)
        for one in self._left:
            terminalreporter.write_line(one)

    def _found(self) -> Iterator[Left]:
        me = psutil.Process()
        allowed = {me.pid}
        for child in me.children():
            if _words(child, END_WITH_US):
                allowed |= {child.pid, *(one.pid for one in child.children(recursive=True))}
        ours = {one.pid for one in me.children(recursive=True)}
        for process in psutil.process_iter():
            if process.pid in allowed:
                continue
            with suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                known = _environment(process)
                if process.pid in ours or known.get(MARK) == self._run:
                    yield Left(process, " ".join(process.cmdline()), known.get("PYTEST_CURRENT_TEST", ""))


def _words(process: psutil.Process, wanted: tuple[str, ...]) -> bool:
    with suppress(psutil.Error):
        words = " ".join(process.cmdline())
        return any(one in words for one in wanted)
    return False


def _environment(process: psutil.Process) -> dict[str, str]:
    with suppress(psutil.Error):
        return process.environ()
    return {}
