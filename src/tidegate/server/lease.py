"""Who owns the changefeeds: one server at a time, by a lease in the store that each owner numbers anew.

    owner      writes `owner` every ttl / 4          owns until 0.8 ttl after it began the last write that succeeded
    others     read it as often                      unchanged for ttl and a little: write themselves in, epoch + 1

Both count on their own steady clock, which goes on while a machine sleeps, so clocks need not agree.  An owner that was
paused finds its time over before it does anything, and its next write refused; sinks fence what was in flight.

`release` gives the lease away at a stop, so that the next owner need not wait.

Source: TiCDC's capture session and owner election (capture-session-ttl).
"""

import threading
import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidegate.engine.progress import now
from tidegate.server.documents import Changed, Documents, StoreAway

NAME: Final = "owner"
PARTS: Final = 4
SAFE: Final = 0.8
"""The part of its time in which an owner believes in its lease."""
GRACE: Final = 0.1


def steady_s() -> float:
    """Return seconds of a clock that goes on while processes are stopped and machines sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The document. `server` is empty where nobody owns; `renewed` is for people."""

    epoch: int
    server: str
    address: str
    ttl_s: float
    renewed: str = ""


class Lease:
    """The lease of one server; `step` is called by one thread, `owns` by any."""

    def __init__(self, documents: Documents, server: str, address: str, ttl_s: float) -> None:
        self._documents, self._server, self._address, self.ttl_s = documents, server, address, ttl_s
        self._mine: Any = None
        """The version of the lease that this server wrote last; None while another one owns."""
        self._until_s = 0.0
        self._seen: tuple[Any, float] | None = None
        """The version that others wrote last, and when it was first seen."""
        self.found: LeaseHolder | None = None
        self._lock = threading.Lock()

    @property
    def step_s(self) -> float:
        """How often `step` wants to be called."""
        return self.ttl_s / PARTS

    @property
    def epoch(self) -> int:
        """The number of the owner that was seen last; 0 before any."""
        return 0 if self.found is None else self.found.epoch

    def owns(self) -> bool:
        """Return True while this server may act as the owner."""
        return self._mine is not None and steady_s() < self._until_s

    def step(self) -> bool:
        """Renew the lease, or take one that is over; return whether this server owns. A store that is away leaves the
        lease to run out."""
        with self._lock:
            try:
                if self._mine is not None:
                    self._put(self.epoch, self._mine)
                else:
                    self._look()
            except Changed:
                self._mine = None
            except StoreAway:
                pass
        return self.owns()

    def _look(self) -> None:
        """Take the lease if it is nobody's, or over."""
        document = self._documents.read(NAME)
        if document is None:
            self._put(1, None)
            return
        self.found = found = msgspec.json.decode(document.body, type=LeaseHolder)
        if self._seen is None or self._seen[0] != document.version:
            self._seen = document.version, steady_s()
        silent_s = steady_s() - self._seen[1]
        if not found.server or silent_s > found.ttl_s * (1 + GRACE):
            self._put(found.epoch + 1, document.version)

    def _put(self, epoch: int, version: Any) -> None:
        began_s = steady_s()
        owner = LeaseHolder(epoch=epoch, server=self._server, address=self._address, ttl_s=self.ttl_s, renewed=now())
        self._mine = self._documents.write(NAME, msgspec.json.encode(owner), version)
        self.found, self._until_s = owner, began_s + SAFE * self.ttl_s

    def release(self) -> None:
        """Give the lease away, if this server has it."""
        with self._lock:
            if self._mine is None:
                return
            free = LeaseHolder(epoch=self.epoch, server="", address="", ttl_s=self.ttl_s, renewed=now())
            with suppress(Changed, StoreAway):  # it is over, or runs out
                self._documents.write(NAME, msgspec.json.encode(free), self._mine)
            self._mine, self._until_s = None, 0.0
