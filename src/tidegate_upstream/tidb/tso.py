"""The timestamp oracle: every timestamp is larger than all before it, restarts and clocks that go back included.

    clock      100      100      100       99      500
    physical   100      100      100      100      500        max(clock, last physical)
    logical      0        1        2        3        0        counts within one physical ms
    bound     3100     3100     3100     3100     3500        on disk, at least as high as what was given out

- Before a timestamp is given out whose physical part passes the bound, a bound WINDOW_MS ahead becomes durable.
- A new life starts one millisecond above the bound of the last one: whatever the old one gave out is below that.
- 2**18 timestamps fit in a millisecond; a clock that stands still is outrun, never repeated.

Source: PD's tso allocator (saved upper bound, update interval 3 s); TiDB's oracle package.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, cast

from tidegate.model.tso import LOGICAL_BITS, Tso, physical_ms
from tidegate_upstream.tidb.store.engine import MetaBound

WINDOW_MS: Final = 3_000
"""How far ahead of use the bound lies: one durable write every three seconds, and at most as long a leap at a start."""


class Oracle:
    """Gives out timestamps; safe to share between threads. `now_ms` is the clock, in ms since the Unix epoch."""

    def __init__(self, now_ms: Callable[[], int], bound: MetaBound) -> None:
        self._now_ms, self._bound, self._lock = now_ms, bound, Lock()
        self._bound_ms = bound.load()
        self._last = (self._bound_ms + 1 << LOGICAL_BITS) - 1

    def next(self) -> Tso:
        """Return a timestamp above all that this and earlier lives gave out."""
        return self.batch(1)[0]

    def batch(self, count: int) -> Sequence[Tso]:
        """`count` timestamps in a row, at least one; no other caller gets one between them."""
        assert count > 0, count
        with self._lock:
            first = max(self._last + 1, self._now_ms() << LOGICAL_BITS)
            last = first + count - 1
            if physical_ms(last) > self._bound_ms:
                bound_ms = physical_ms(last) + WINDOW_MS
                self._bound.save(bound_ms)
                self._bound_ms = bound_ms
            self._last = last
        return cast("Sequence[Tso]", range(first, last + 1))

    @property
    def newest(self) -> Tso:
        """The newest timestamp given out, without making a new one; in a new life, what lies below the first."""
        with self._lock:
            return Tso(self._last)
