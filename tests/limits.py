"""A time limit for each test, which tells where every thread stood when it was over.

    limit ──► stacks of all threads on the terminal ──► the test fails, its fixtures are torn down, the next one runs
      └─ GRACE_S later, where the main thread hears no signal ──► stacks once more, and the run ends

The limit holds for setup, call and teardown of a test, each by itself: LIMIT_S, or LIMITS_S of its mark, or what
`@pytest.mark.limit(seconds)` says; in `make soak` all have that of `soak`.  A debugger switches it off.
"""

import faulthandler
import os
import signal
import sys
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
        _disarm()

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

        before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=self._terminal)
        try:
            yield
        finally:
            _disarm()
            signal.signal(signal.SIGALRM, before)


def _disarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()
