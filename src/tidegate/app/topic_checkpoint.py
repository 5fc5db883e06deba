"""How far a changefeed into topics has come, in a file of its own.

    <state>/<changefeed>.json      {"changefeed": "shop", "checkpoint_ts": 470606747354005504, "topics": ["shop"], ...}
    <state>/<changefeed>.lock      held by the feed that runs; a second one is refused
    <state>/<changefeed>.state.json    what it reports (topic_state.py)

The file is written aside, flushed and renamed, so it is the old one or the new one.  Everything at or below the
checkpoint is acknowledged by the broker; what lies above may have been sent as well and is sent again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.model.feed_errors import StateUnwritable
from tidegate.spark.cache import locked

__all__ = ["Checkpoint", "CheckpointFile", "only_feed", "saved"]

T = TypeVar("T")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    changefeed: str
    checkpoint_ts: int
    source: str
    topic: str
    protocol: str
    topics: tuple[str, ...] = ()
    """All that were written to since the start: sink/kafka/known_topics.py."""


@contextmanager
def only_feed(lock: Path) -> Iterator[None]:
    """Keep other feeds of that name out until the block ends. EnvironmentFault when one runs already."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise EnvironmentFault(f"the state directory {lock.parent} cannot be made: {fault.strerror}") from fault
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, timeout_s=2.0))
        except OSError as fault:
            raise EnvironmentFault(f"{lock} cannot be opened: {fault.strerror}") from fault
        yield


def saved(path: Path, kind: type[T], what: str) -> T | None:
    """What a changefeed left in a file; None where there is none. ConfigError for a file that is no `what`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no {what} of a changefeed: {error}; give another --state-dir") from error


class CheckpointFile:
    """The file of one changefeed in a directory."""

    def __init__(self, directory: Path, changefeed: str) -> None:
        self.path = directory / f"{changefeed}.json"
        self._lock = directory / f"{changefeed}.lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other feeds of that name out until the block ends. EnvironmentFault when one runs already."""
        with only_feed(self._lock):
            yield

    def is_held(self) -> bool:
        """Whether a feed of that name runs now."""
        try:
            with self._lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def load(self, *, topic: str) -> Checkpoint | None:
        """What was saved last; None for a new changefeed. ConfigError for a file that is none of ours or another
        topic's."""
        found = saved(self.path, Checkpoint, "checkpoint")
        if found is None:
            return None
        if found.topic != topic:
            raise ConfigError(
                f"{self.path} is the checkpoint of a changefeed into topic {found.topic}, not {topic}: a topic of its "
                "own needs a changefeed-id of its own"
            )
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Puts `checkpoint` in place of what was there. StateUnwritable when the disk refuses, which may pass."""
        aside = self.path.with_suffix(".part")
        try:
            with aside.open("wb") as file:
                file.write(msgspec.json.encode(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self.path)
        except OSError as fault:
            raise StateUnwritable(f"the checkpoint {self.path} cannot be written: {fault.strerror}") from fault
