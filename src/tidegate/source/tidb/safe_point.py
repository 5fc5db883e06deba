"""A feed's word to its log: what lies above this ts is needed.

at(42)  at(43) at(44) ...  at(61)         every position is told to SafePoint, the log hears of one every few seconds
log: 42                    log: 61        less than what is done, so it keeps rather too much
"""

import time
from typing import Final

from tidegate.source.tidb.log import KvLog

__all__ = ["SafePoint"]

EVERY_S: Final = 5.0


class SafePoint:
    """Keeps the log above the position of a feed; `feed` names the feed and its sink."""

    def __init__(self, log: KvLog, feed: str) -> None:
        self._log, self._feed = log, feed
        self._told_s: float | None = None

    def at(self, ts: int) -> None:
        """The feed is done up to `ts`."""
        now_s = time.monotonic()
        if self._told_s is None or now_s - self._told_s >= EVERY_S:
            self._log.hold(self._feed, ts)
            self._told_s = now_s
