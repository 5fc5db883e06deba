"""How many messages a batch takes, by what there is and how fast it goes.

    little waits       all of it, at once: the batch is small and so is its delay
    a backlog          as many as BATCH_S seconds take, by the rate of the last full batch

A batch costs a fifth of a second whatever is in it, so a backlog goes in large ones; but a batch is also what a kill
throws away and what a stop waits for, so it must not be large in time.  Memory is no concern here: a task writes its
rows out whenever it holds enough of them (files.py).
"""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["BatchPace"]

BATCH_S: Final = 4.0
FIRST_BATCH: Final = 1_000_000
"""While no rate is known."""


class BatchPace:
    """The limit of one landing's batches, never above `most`."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._begun: tuple[int, float] | None = None
        self.limit = min(FIRST_BATCH, most)

    def begin(self, messages: int) -> None:
        """A batch of so many messages begins."""
        self._begun = (messages, self._clock()) if messages >= self.limit else None

    def end(self) -> None:
        """The batch is over; one that was not full tells nothing."""
        if self._begun is not None:
            messages, began_s = self._begun
            took_s = max(self._clock() - began_s, 0.001)
            self.limit = max(1, min(self._most, int(messages * BATCH_S / took_s)))
            self._begun = None
