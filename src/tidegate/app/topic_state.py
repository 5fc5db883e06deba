"""What a changefeed into topics last said, kept beside its checkpoint for who asks later.

    <state>/shop.json          checkpoint: the truth, flushed to disk
    <state>/shop.state.json    state, counts and error: written aside and renamed, a second apart at most

    state       it is        it says
    normal      running      nothing is in the way
    warning     running      an error is waited out: code, table, ts, since when, next try
    failed      ended        an error ended it; the checkpoint stays, and the next run takes up there
    stopped     ended        it was told to stop, or ended without a word (then `running` is false, the rest is old)
    finished    ended        the target ts is reached

A disk that takes no state is no trouble of its own: the checkpoint is what counts, and it is waited for.

Source: states of a changefeed in TiCDC.
"""

import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidegate.app.feed_error import FeedError
from tidegate.app.topic_checkpoint import Checkpoint, CheckpointFile
from tidegate.app.topic_progress import TopicProgress
from tidegate.model.errors import EnvironmentFault
from tidegate.model.tso import to_datetime
from tidegate.spark.cache import write_whole

__all__ = ["FeedStatus", "StateFile", "statuses", "words"]

LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
_SUFFIX: Final = ".state.json"
_RUNNING: Final = frozenset({"normal", "warning"})


class _Kept(msgspec.Struct, kw_only=True):
    """What the file holds."""

    changefeed: str
    source: str
    topic: str
    updated: str
    pid: int
    progress: TopicProgress


class FeedStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A changefeed as `tidegate status` shows it; times are UTC."""

    changefeed: str
    state: str
    running: bool
    checkpoint_ts: int
    checkpoint_time: str
    source: str
    topic: str
    since: str = ""
    updated: str = ""
    frontier_ts: int = 0
    error: FeedError | None = None


class StateFile:
    """The file of one changefeed."""

    def __init__(self, directory: Path, changefeed: str, source: str, topic: str) -> None:
        self.path = directory / f"{changefeed}{_SUFFIX}"
        self._kept = _Kept(
            changefeed=changefeed, source=source, topic=topic, updated="", pid=os.getpid(), progress=TopicProgress()
        )
        self._refused = False

    def save(self, progress: TopicProgress) -> None:
        """Keep a report, if the disk takes it."""
        self._kept.updated, self._kept.progress = _now(), progress
        try:
            write_whole(self.path, msgspec.json.encode(self._kept).decode() + "\n")
            self._refused = False
        except OSError as fault:
            if not self._refused:
                LOG.warning("the state of the changefeed is not kept: %s: %s", self.path, fault.strerror)
            self._refused = True


def statuses(directory: Path) -> Iterator[FeedStatus]:
    """The changefeeds whose progress is kept in a directory, by name. EnvironmentFault when it cannot be read."""
    try:
        names = {path.name.partition(".")[0] for path in directory.iterdir() if path.suffix == ".json"}
    except OSError as fault:
        raise EnvironmentFault(f"the state directory {directory} cannot be read: {fault.strerror}") from fault
    for name in sorted(names):
        found = _status(directory, name)
        if found is not None:
            yield found


def words(status: FeedStatus) -> str:
    """A status as a line of text."""
    text = f"{status.changefeed}: {status.state}" + (f" since {status.since}" if status.since else "")
    text += f", checkpoint {status.checkpoint_ts} ({status.checkpoint_time}), {status.source} -> {status.topic}"
    if status.error is not None:
        text += f"; {status.error}"
    return text if status.running else f"{text}; it is not running, and goes on behind its checkpoint when it is run"


def _status(directory: Path, name: str) -> FeedStatus | None:
    file = CheckpointFile(directory, name)
    checkpoint = _read(file.path, Checkpoint)
    kept = _read(directory / f"{name}{_SUFFIX}", _Kept)
    if checkpoint is None and kept is None:
        return None
    running = file.is_held()
    progress = TopicProgress(state="stopped") if kept is None else kept.progress
    ended = not running and progress.state in _RUNNING
    ts = progress.checkpoint_ts if checkpoint is None else checkpoint.checkpoint_ts
    return FeedStatus(
        changefeed=name,
        state="stopped" if ended else progress.state,
        running=running,
        checkpoint_ts=ts,
        checkpoint_time=to_datetime(ts).isoformat(timespec="milliseconds"),
        source=kept.source if kept else checkpoint.source if checkpoint else "",
        topic=kept.topic if kept else checkpoint.topic if checkpoint else "",
        since="" if ended else progress.since,
        updated=kept.updated if kept else "",
        frontier_ts=progress.frontier_ts,
        error=progress.error,
    )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
