"""A time limit for each test, which tells where every thread stood when it was over.

    limit ──► stacks of all threads on the terminal ──► the test fails, its fixtures are torn down, the next one runs
      └─ GRACE_S later, where the main thread hears no signal ──► stacks once more, and the run ends

The limit holds for setup, call and teardown of a test, each by itself: LIMIT_S, or LIMITS_S of its mark, or what
`@pytest.mark.limit(seconds)` says; in `make soak` all have that of `soak`.  A debugger switches it off.

What ends the run is a thread that faulthandler starts each time it is told, which takes longer than most tests do.  So
it is left armed from test to test, told anew after half of GRACE_S, and let go once no test begins for a quarter.
"""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import pytest

__all__ = ["Limits"]

LIMITS_S: Final = {"soak": 14_400.0, "slow": 900.0}
LIMIT_S: Final = 300.0
GRACE_S: Final = 60.0
AGAIN_S: Final = 5.0
"""A signal may come where it interrupts no wait; then the next one does."""
DEBUGGERS: Final = ("pydevd", "debugpy")


class TooLong(BaseException):
    """Fails a test; nothing under test, nor Hypothesis, takes it for a failure of its own and tries again."""


def limit_of(item: pytest.Item) -> float:
    """The seconds that each phase of a test may take."""
    if (own := item.get_closest_marker("limit")) is not None:
        return float(own.args[0])
    if os.environ.get("TIDEGATE_SOAK"):
        return LIMITS_S["soak"]
    return next((seconds for name, seconds in LIMITS_S.items() if item.get_closest_marker(name)), LIMIT_S)


class Limits:
    """The plugin; one a run, made while nothing is captured."""

    def __init__(self) -> None:
        self._terminal = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
        self._off = any(name in sys.modules for name in DEBUGGERS)
        self._ends_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Limit what its fixtures do."""
        with self._limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Limit the test itself."""
        with self._limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Limit what its fixtures do in the end."""
        with self._limited(item):
            return (yield)

    def pytest_enter_pdb(self) -> None:
        """Somebody looks: no limit from here on."""
        self._off = True
        self._let_go()

    def pytest_unconfigure(self) -> None:
        """No test comes any more."""
        self._let_go()

    @contextmanager
    def _limited(self, item: pytest.Item) -> Iterator[None]:
        if self._off:
            yield
            return
        limit_s = limit_of(item)

        def over(_number: int, _frame: FrameType | None) -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(self._terminal, f"\n{item.nodeid} runs for more than {limit_s:g} s\n".encode())
            faulthandler.dump_traceback(self._terminal, all_threads=True)
            raise TooLong(f"it ran for more than {limit_s:g} s; the stacks of all threads are on standard error")

        signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        self._end_run_after(limit_s + GRACE_S)
        try:
            yield
        finally:
            signal.signal(signal.SIGALRM, self._let_go)
            signal.setitimer(signal.ITIMER_REAL, GRACE_S / 4)

    def _end_run_after(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        if not ends_s - GRACE_S / 2 <= self._ends_s <= ends_s:
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._terminal)
            self._ends_s = ends_s

    def _let_go(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        self._ends_s = 0.0
