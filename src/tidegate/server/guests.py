"""A listening socket that leaves files to its own process: bounded in all and per peer, at the moment of accept.

    accept ──► closed ones forgotten ──► room in all? room for this peer? ──► the connection
                                              └ no ──► closed at once, logged once a second

A connection that sends nothing costs a file descriptor until its time is over.  So at most half of the files that the
process may open are connections, and one peer has at most half of those: state files, the broker's and the database's
connections go on whatever clients do.  Where the process has no file left all the same, a spare one is given up to
accept a connection and close it; a connection left in the queue would wake the event loop again and again.

asyncio asks for a connection by `accept` of the socket that it listens on, and takes a ConnectionAbortedError as "none
now", so every server on asyncio is bounded by its socket alone.
"""

import errno
import logging
import os
import resource
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final, NamedTuple

LOG: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 1000
"""The most connections of a port, where the process may open enough files."""
SAID_EVERY_S: Final = 1.0
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class GuestLimits(NamedTuple):
    """How many connections a port holds at a time, and how many of them from one address."""

    connections: int
    per_peer: int


def guest_limits() -> GuestLimits:
    """Return the limits that leave this process half of the files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = CONNECTIONS if files == resource.RLIM_INFINITY else max(2, min(CONNECTIONS, files // 2))
    return GuestLimits(connections, connections // 2)


class GuestListener(socket.socket):
    """A listening socket at `place` whose `accept` holds to `limits` (default: those of `guest_limits`)."""

    def __init__(self, family: int, place: tuple[Any, ...], limits: GuestLimits | None = None) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._limits = limits or guest_limits()
        self._guests: list[tuple[socket.socket, str]] = []
        self._refused: Counter[str] = Counter()
        self._said_s = float("-inf")
        self._spare = os.open(os.devnull, os.O_RDONLY)
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.bind(place)
            self.listen()
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and its address. ConnectionAbortedError for one that there is no room for."""
        try:
            guest, address = super().accept()
        except OSError as error:
            if error.errno in NO_FILES:
                self._turn_away()
                self._refuse(f"no file is left: {error.strerror}", error)
            raise
        peer = str(address[0])
        self._guests = [one for one in self._guests if one[0].fileno() != -1]
        if len(self._guests) >= self._limits.connections:
            guest.close()
            self._refuse(f"{self._limits.connections} connections are open")
        if sum(of == peer for _, of in self._guests) >= self._limits.per_peer:
            guest.close()
            self._refuse(f"{self._limits.per_peer} connections are open from {peer}")
        self._guests.append((guest, peer))
        return guest, address

    def close(self) -> None:
        """Stop listening."""
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _turn_away(self) -> None:
        """Accept the next connection with the spare file, and close it."""
        spare, self._spare = self._spare, -1  # another thread may take its file, and its number
        if spare >= 0:
            os.close(spare)
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _refuse(self, why: str, cause: OSError | None = None) -> None:
        self._refused[why] += 1
        now_s = time.monotonic()
        if now_s - self._said_s >= SAID_EVERY_S:
            self._said_s = now_s
            counts = "; ".join(f"{why} ({count} refused)" for why, count in self._refused.items())
            LOG.warning("port %s: %s", self.getsockname()[1], counts)
            self._refused.clear()
        raise ConnectionAbortedError(why) from cause
