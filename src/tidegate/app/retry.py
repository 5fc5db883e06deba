"""Waiting out what may pass: a broker that is away, a full disk, a store that does not answer.

    error ──► NEVER?  raise       LATER? ──► told as `error` in every report until it is over
                                        └──► pause (feed/retry_policy.py), ended early by a stop ──► the next try
                                             patience is over: raise

The feed says what is over: it got on (`over`), not merely that one step succeeded.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.app.meter import Meter
from tidegate.feed.retry_policy import FailureRun, RetryPolicy
from tidegate.model.errors import Retry, TidegateError

__all__ = ["Retrier"]

T = TypeVar("T")


class Retrier:
    """The trouble that a feed is in, if any."""

    def __init__(self, patience: RetryPolicy, meter: Meter, stop: threading.Event) -> None:
        self.patience = patience
        self._meter, self._stop = meter, stop
        self._begun_s = time.monotonic()
        self._trouble: FailureRun | None = None
        self._failed_s = 0.0
        self._beside = False
        self.stopped = False
        """True once a stop has ended the waiting."""

    @property
    def tries(self) -> int:
        """How many errors there were in a row."""
        return 0 if self._trouble is None else self._trouble.errors

    def retrying(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which is tried again as long as its errors may pass and patience lasts."""
        told = False
        while True:
            try:
                return work()
            except TidegateError as error:
                self.survive(error, told=told)
                told = True

    def survive(self, error: TidegateError, *, beside: bool = False, told: bool = False) -> None:
        """Return when it is time for the next try; raises `error` when it will not pass, or a stop is asked for.

        `beside` says that it came from an activity beside the rounds, of which they hear only now and then, `told` that
        the same work has failed before: people hear of it once."""
        if error.retry is Retry.NEVER:
            raise error
        now_s = time.monotonic()
        self._trouble, self._failed_s = self.patience.met(self._trouble, now_s), now_s
        self._beside = self._beside or beside
        pause_s = self.patience.pause_s(self._trouble, now_s, begun_s=self._begun_s)
        if pause_s is None:
            raise error
        told = told or (beside and self._trouble.errors > 1)
        self._meter.failing(error, tries=self._trouble.errors, next_s=pause_s, told=told)
        self.stopped = self._stop.wait(pause_s)
        if self.stopped:
            raise error

    def over(self, *, after_s: float = 0.0) -> None:
        """The feed has got on, or nothing has failed for as long as is given."""
        if self._trouble is not None and time.monotonic() - self._failed_s >= after_s:
            self._trouble, self._beside = None, False
            self._meter.recovered()

    def calm(self, after_s: float) -> None:
        """A round has found nothing to do and nothing in its way; what runs beside it is believed after a while."""
        self.over(after_s=after_s if self._beside else 0.0)
