"""Checkpoints in a directory: where a feed keeps how far it is when its sink has no place for that.

    <state>/<changefeed>.json             {"changefeed": "shop", "checkpoint_ts": 470606747354005504, "notes": {..}, ..}
    <state>/<changefeed>.schema-<digest>.json     the schema at that checkpoint; written before it, when it changes
    <state>/<changefeed>.lock             held by the run; a second one is refused
    <state>/<changefeed>.state.json       what it reports (status.py)
    <state>/<changefeed>/_tidegate/       its changelog, where the source has one

A file is written aside, flushed and renamed, so it is the old one or the new one.  Everything at or below the
checkpoint is acknowledged by the sink; what lies above may have been written as well and is written again.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.feed.plan import Checkpoint
from tidegate.feed.ports import Saved, Standing
from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.model.feed_errors import StateUnwritable
from tidegate.schema.state import SchemaState
from tidegate.spark.cache import PRIVATE_DIRECTORY, locked, private

LOCK_WAIT_S: Final = 2.0
"""How long a run waits for one of the same name to end: a supervisor may start the next while the last one stops."""


class KeptCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the file says. `topic` and `topics` are the sink and its notes in files of earlier releases."""

    changefeed: str
    checkpoint_ts: int
    source: str = ""
    sink: str = ""
    done: tuple[str, ...] = ()
    schema: str = ""
    notes: dict[str, Any] = {}
    topic: str = ""
    topics: tuple[str, ...] = ()


class DirectoryCheckpoints:
    """The checkpoint of one changefeed in a directory; `source` and `sink` are masked addresses, for people.

    `target` is what the feed may not change: a checkpoint of another target is refused."""

    def __init__(self, directory: Path, changefeed: str, *, source: str = "", target: str = "") -> None:
        self.directory, self.changefeed = directory, changefeed
        self.path = directory / f"{changefeed}.json"
        self._source, self._target = source, target
        self._lock = directory / f"{changefeed}.lock"
        self._written: tuple[SchemaState, str] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs of that name out until the block ends. EnvironmentFault when one runs already."""
        try:
            self.directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as fault:
            raise EnvironmentFault(f"the state directory {self.directory} cannot be made: {fault.strerror}") from fault
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock, timeout_s=LOCK_WAIT_S))
            except OSError as fault:
                raise EnvironmentFault(f"{self._lock} cannot be opened: {fault.strerror}") from fault
            yield

    def is_held(self) -> bool:
        """Return True if a feed of that name runs now."""
        try:
            with self._lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def kept(self) -> KeptCheckpoint | None:
        """Return what the file says; None where there is none. ConfigError for a file that is no checkpoint."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=KeptCheckpoint)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{self.path} is no checkpoint of a changefeed: {error}; give another --state-dir"
            ) from error

    def load(self) -> Saved | None:
        """Return what was saved last; None for a new changefeed. ConfigError for another target's checkpoint."""
        found = self.kept()
        if found is None:
            return None
        target = found.sink or found.topic
        if target != self._target:
            raise ConfigError(
                f"{self.path} is the checkpoint of a changefeed into {target}, not {self._target}: a target of its own "
                "needs a changefeed-id of its own"
            )
        notes: Mapping[str, Any] = found.notes or {"topics": list(found.topics)}
        return Saved(Standing(Checkpoint(found.checkpoint_ts, found.done), self._schema(found.schema)), notes)

    def save(self, saved: Saved) -> None:
        """Put `saved` in place of what was there. StateUnwritable when the disk refuses, which may pass."""
        checkpoint, state, _ = saved.standing
        before = self._written and self._written[1]
        try:
            schema = self._write_schema(state)
            kept = KeptCheckpoint(
                changefeed=self.changefeed,
                checkpoint_ts=checkpoint.ts,
                source=self._source,
                sink=self._target,
                done=checkpoint.done,
                schema=schema,
                notes=dict(saved.notes),
            )
            _write(self.path, msgspec.json.encode(kept))
        except OSError as fault:
            raise StateUnwritable(f"the checkpoint {self.path} cannot be written: {fault.strerror}") from fault
        if schema != before:
            self._forget(schema)

    def _schema(self, digest: str) -> SchemaState:
        if not digest:
            return SchemaState()
        try:
            state = SchemaState.from_json(self._schema_path(digest).read_bytes())
        except FileNotFoundError as gone:
            raise ConfigError(f"{self.path} needs {self._schema_path(digest)}, which is gone") from gone
        self._written = state, digest
        return state

    def _write_schema(self, state: SchemaState) -> str:
        """Write the schema unless it is the one that was written last; return its digest."""
        if self._written is not None and self._written[0] is state:
            return self._written[1]
        body = state.to_json()
        digest = hashlib.sha256(body).hexdigest()[:16]
        if self._written is None or self._written[1] != digest:
            _write(self._schema_path(digest), body)
        self._written = state, digest
        return digest

    def _schema_path(self, digest: str) -> Path:
        return self.directory / f"{self.changefeed}.schema-{digest}.json"

    def _forget(self, digest: str) -> None:
        """Remove schemas that no checkpoint names any more."""
        keep = self._schema_path(digest)
        with suppress(OSError):
            for path in self.directory.glob(f"{self.changefeed}.schema-*.json"):
                if path != keep:
                    path.unlink()


def _write(path: Path, body: bytes) -> None:
    aside = path.with_suffix(".part")
    aside.unlink(missing_ok=True)
    with open(aside, "xb", opener=private) as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
