"""SIGINT and SIGTERM as an event, and waits of the main thread that miss no signal.

    signal ──► interpreter notes it ──► main thread runs the handler ──► StopEvent is set ──► `wait_until` returns
                                        between two bytecodes, or when its system call returns

Two hazards of `threading.Event` in a main thread with signal handlers:

1. A signal that comes after the interpreter's last look and before the lock is waited for, or that the system gives to
   another thread, interrupts nothing: an untimed `Event.wait` sleeps on, and the handler never runs.
   So every wait here is cut into sleeps of at most SLICE_S.
2. `Event.wait` holds the event's lock for moments. A handler that runs in such a moment and calls `Event.set` waits for
   a lock that its own thread holds. So StopEvent is one attribute, without a lock.

Invariant: a signal is seen at the latest SLICE_S after it came, unless the main thread is in a library's call.

Source: Python's documentation of `signal`, "Execution of Python signal handlers" and "Signals and threads".
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import Final

SLICE_S: Final = 0.1
FIRST_SLICE_S: Final = 0.001
"""The first sleep; sleeps double up to SLICE_S, so that short waits end early and long ones cost nothing."""


def wait_until(true: Callable[[], bool], timeout_s: float = inf) -> bool:
    """Return True as soon as `true()` holds, False after `timeout_s`; signal handlers run meanwhile."""
    until_s, slice_s = time.monotonic() + timeout_s, FIRST_SLICE_S
    while not (holds := true()) and (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, slice_s))
        slice_s = min(2 * slice_s, SLICE_S)
    return holds


class StopEvent(threading.Event):
    """An Event that a signal handler may set while its own thread waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_stopped = False

    def is_set(self) -> bool:
        """Return whether a stop was requested."""
        return self._is_stopped

    def set(self) -> None:
        """Ask for a stop; safe in a signal handler."""
        self._is_stopped = True

    def clear(self) -> None:
        """Forget the request."""
        self._is_stopped = False

    def wait(self, timeout: float | None = None) -> bool:
        """Return True once the event is set, False after `timeout` seconds."""
        return wait_until(self.is_set, inf if timeout is None else timeout)


class NoPauseEvent(threading.Event):
    """A stop event whose `wait` returns at once, so that a feed never pauses."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        """Return whether the stop is set."""
        return self.is_set()


@contextmanager
def stop_on_signals(*, interrupts: bool = True) -> Iterator[StopEvent]:
    """Yield an event that SIGINT and SIGTERM set; a SIGINT after that raises KeyboardInterrupt if it `interrupts`."""
    stop = StopEvent()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if interrupts and number == signal.SIGINT and stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
