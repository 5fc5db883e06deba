"""What people did to changefeeds, for the question who paused it: the last hundred, in the store.

    with log.noting("pause", feed, who): ..      success, or failed with its error

Best effort: what was done has happened, whether or not it can be noted.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tidegate.config.uri import mask_text
from tidegate.engine.progress import now
from tidegate.model.errors import TidegateError
from tidegate.server.documents import Changed, Documents, StoreAway
from tidegate.server.record import FeedId, FeedOperation

LOG: Final = logging.getLogger(__name__)
NAME: Final = "operations.json"
MOST: Final = 100


class OperationLog:
    """The operations of a store; the owner alone writes them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._done: deque[FeedOperation] = deque(maxlen=MOST)
        self._version: Any = None
        self._lock = threading.Lock()

    def take_over(self) -> None:
        """Read what other owners noted. StoreAway."""
        found = self._documents.read(NAME)
        self._done.clear()
        self._version = None
        if found is not None:
            self._done.extend(msgspec.json.decode(found.body, type=list[FeedOperation]))
            self._version = found.version

    def listed(self) -> list[FeedOperation]:
        """Return them, the newest first."""
        return list(reversed(self._done))

    @contextmanager
    def noting(self, operation: str, feed: FeedId, who: str, details: str = "") -> Iterator[None]:
        """Note an operation when the block has ended, and how."""
        done = FeedOperation(time=now(), operation=operation, feed=feed, who=who, details=details)
        try:
            yield
        except TidegateError as error:
            self._note(msgspec.structs.replace(done, result="failed", error=mask_text(str(error))))
            raise
        self._note(done)

    def _note(self, done: FeedOperation) -> None:
        LOG.info("%s %s by %s: %s %s", done.operation, done.feed, done.who or "anonymous", done.result, done.error)
        with self._lock:
            self._done.append(done)
            try:
                self._version = self._documents.write(NAME, msgspec.json.encode(list(self._done)), self._version)
            except (Changed, StoreAway) as error:
                LOG.warning("operation %s of %s is not kept: %s", done.operation, done.feed, error)
