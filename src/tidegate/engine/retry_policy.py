"""How long a changefeed waits out an outage: quick tries, then a try now and then, then it has failed.

    error ─ 1 s ─ 2 s ─ 4 s ─ 8 s ─ 16 s ─ 10 s ─ 20 s ─ 40 s ─ 60 s ─ 60 s ─ …            failed
            └── quick: max-retry times ──┘   └── until nothing has moved for stuck-duration ──┘

A trouble begins with an error and is over when the feed gets on: rows land, or the checkpoint advances.  A step that
succeeds alone proves little; a broker that answers and fails again is still the same trouble.

Source: TiCDC's changefeed states: a retryable error makes the state `warning`, with pauses from 10 s doubling (there
up to 10 minutes; here 60 s, so that a feed follows soon after its broker is back), and `failed` once the checkpoint
has not advanced for changefeed-error-stuck-duration, 30 minutes by default.
"""

from dataclasses import dataclass
from typing import Final

QUICK_S: Final = 1.0
QUICK_MAX_S: Final = 30.0
SLOW_S: Final = 10.0
SLOW_MAX_S: Final = 60.0
DOUBLINGS_MAX: Final = 30
"""Above it every pause has long been the longest, and 2.0 ** n would grow for nothing."""


@dataclass(frozen=True, slots=True)
class FailureRun:
    """Errors in a row: when the first came, on any steady clock, and how many there were."""

    since_s: float
    errors: int = 1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`quick` tries at once, then tries until `stuck_s` are over since the trouble began; None: no more tries.

    With `most_s` no try begins later than that after the run's own begin."""

    quick: int = 5
    stuck_s: float | None = 1800.0
    most_s: float | None = None

    def met(self, trouble: FailureRun | None, now_s: float) -> FailureRun:
        """Return the trouble after one more error."""
        return FailureRun(now_s) if trouble is None else FailureRun(trouble.since_s, trouble.errors + 1)

    def pause_s(self, trouble: FailureRun, now_s: float, begun_s: float = 0.0) -> float | None:
        """Return how long to wait before the next try; None when it is time to give up. `begun_s`: the run's begin."""
        pause = self._pause_s(trouble, now_s)
        too_late = self.most_s is not None and pause is not None and now_s + pause - begun_s > self.most_s
        return None if too_late else pause

    def _pause_s(self, trouble: FailureRun, now_s: float) -> float | None:
        if trouble.errors <= self.quick:
            return min(QUICK_S * 2.0 ** min(trouble.errors - 1, DOUBLINGS_MAX), QUICK_MAX_S)
        if self.stuck_s is None:
            return None
        left_s = trouble.since_s + self.stuck_s - now_s
        if left_s <= 0:
            return None
        slow = trouble.errors - self.quick - 1
        return min(SLOW_S * 2.0 ** min(slow, DOUBLINGS_MAX), SLOW_MAX_S, left_s)
