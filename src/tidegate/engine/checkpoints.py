"""Checkpoints of feeds whose sink cannot store progress: files in a directory or an object store.

    <state>/<changefeed>.json             {"changefeed": "shop", "checkpoint_ts": 470606747354005504, "notes": {..}, ..}
    <state>/<changefeed>.schema-<digest>.json     the schema at that checkpoint; written before it, when it changes
    <state>/<changefeed>.lock             held by the run; a second one is refused (directories alone)
    <state>/<changefeed>.state.json       what it reports (status.py)
    <state>/<changefeed>/_tidegate/       its changelog, where the source has one

Everything at or below the checkpoint is acknowledged by the sink; what lies above may have been written as well and is
written again.  In a directory a file is written aside, flushed and renamed, so it is the old one or the new one.

An object store (s3://bucket/state) has no locks. A run takes ownership of the checkpoint when it begins, and replaces
it only if nobody else has written since its own last write:

    run 1   get ──► etag 1                  put, If-Match 1 ──► 412: Fenced, the run ends
    run 2                 put "I own it", If-Match 1 ──► etag 2     put, If-Match 2 ..

So the run that began last continues, whatever state the run before it is in: its machine may be gone.
"""

import fcntl
import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import obstore

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, SinkPosition
from tidegate.model.errors import ConfigError, Fenced, StateUnwritable
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, locked, write_whole
from tidegate.objectstore.stores import (
    STORE_ERRORS,
    Changed,
    Versioned,
    VersionedFile,
    check_store,
    delete,
    disk_fault,
    first_line,
    writable,
)
from tidegate.schema.state import SchemaState

LOST_MAX: Final = 3
"""Lost answers of a store, in a row, after which an error is raised."""
LOCK_WAIT_S: Final = 2.0
"""Time limit for the wait on an earlier run of the same name: a supervisor may start the next one while it stops."""


class KeptCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a checkpoint. `topic` and `topics` are the sink and its notes in files of earlier releases."""

    changefeed: str
    checkpoint_ts: int
    source: str = ""
    sink: str = ""
    done: tuple[str, ...] = ()
    schema: str = ""
    notes: dict[str, Any] = {}
    topic: str = ""
    topics: tuple[str, ...] = ()
    owner: str = ""


class StateFiles(ABC):
    """The checkpoint of one changefeed as files. `source` and `sink` are masked addresses, to be read by people.
    `target` identifies the sink: a checkpoint of another target is refused."""

    def __init__(self, root: str, changefeed: str, source: str, target: str) -> None:
        self.root, self.changefeed = root, changefeed
        self._name = f"{changefeed}.json"
        self._source, self._target, self._owner = source, target, ""
        self._written: tuple[SchemaState, str] | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Check once that checkpoints can be written. EnvironmentFault or SinkRefused for one that cannot."""

    @abstractmethod
    def run_lock(self) -> AbstractContextManager[None]:
        """Keep other runs of that name out until the block ends. EnvironmentFault when one runs already."""

    @abstractmethod
    def is_held(self) -> bool | None:
        """Return True if a feed of that name runs now; None if only its reports show that."""

    def kept(self) -> KeptCheckpoint | None:
        """Return the content of the checkpoint's file; None if there is none.

        Raises ConfigError for a file that is no checkpoint, StateTooNew for a newer release's."""
        return self._decoded(self._read(self._name))

    def _decoded(self, stored: Versioned | None) -> KeptCheckpoint | None:
        if stored is None:
            return None
        try:
            return decode_state(StateKind.CHECKPOINT, stored.body, KeptCheckpoint, f"{self.root}/{self._name}")
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{self.root}/{self._name} is not a changefeed checkpoint: {error}; set another --state-dir"
            ) from error

    def load(self) -> Saved | None:
        """Return the last saved progress; None for a new changefeed. ConfigError for another target's checkpoint."""
        return self._saved(self.kept())

    def _saved(self, kept: KeptCheckpoint | None) -> Saved | None:
        if kept is None:
            return None
        target = kept.sink or kept.topic
        if target != self._target:
            raise ConfigError(
                f"{self.root}/{self._name} is the checkpoint of a changefeed into {target}, not {self._target}: set "
                f"another changefeed-id for another target"
            )
        notes: Mapping[str, Any] = kept.notes or {"topics": list(kept.topics)}
        return Saved(SinkPosition(Checkpoint(kept.checkpoint_ts, kept.done), self._schema(kept.schema)), notes)

    def save(self, saved: Saved) -> None:
        """Replace the checkpoint by `saved`. Raises StateUnwritable, which may be retried, when the store refuses."""
        checkpoint, state, _ = saved.position
        before = self._written and self._written[1]
        try:
            schema = self._write_schema(state)
            self._replace(
                KeptCheckpoint(
                    changefeed=self.changefeed,
                    checkpoint_ts=checkpoint.ts,
                    source=self._source,
                    sink=self._target,
                    done=checkpoint.done,
                    schema=schema,
                    notes=dict(saved.notes),
                    owner=self._owner,
                )
            )
        except STORE_ERRORS as fault:
            reason = getattr(fault, "strerror", None) or first_line(fault)
            raise StateUnwritable(f"the checkpoint {self.root}/{self._name} cannot be written: {reason}") from fault
        if schema != before:
            with suppress(*STORE_ERRORS):
                self._forget(before, schema)

    def _schema(self, digest: str) -> SchemaState:
        if not digest:
            return SchemaState()
        name = self._schema_name(digest)
        file = self._read(name)
        if file is None:
            raise ConfigError(f"{self.root}/{self._name} needs {name}, which is missing")
        state = SchemaState.from_json(file.body)
        self._written = state, digest
        return state

    def _write_schema(self, state: SchemaState) -> str:
        """Write the schema unless it is the one that was written last; return its digest."""
        if self._written is not None and self._written[0] is state:
            return self._written[1]
        body = state.to_json()
        digest = hashlib.sha256(body).hexdigest()[:16]
        if self._written is None or self._written[1] != digest:
            self._write(self._schema_name(digest), body)
        self._written = state, digest
        return digest

    def _schema_name(self, digest: str) -> str:
        return f"{self.changefeed}.schema-{digest}.json"

    @abstractmethod
    def _read(self, name: str) -> Versioned | None: ...

    @abstractmethod
    def _write(self, name: str, body: bytes) -> None: ...

    @abstractmethod
    def _replace(self, kept: KeptCheckpoint) -> None:
        """Write the checkpoint. Raises Fenced if another run has replaced it."""

    @abstractmethod
    def _forget(self, before: str | None, digest: str) -> None:
        """Remove schemas that the checkpoint no longer names: it names `digest` now and named `before`."""


class DirectoryCheckpoints(StateFiles):
    """The checkpoint of one changefeed in a directory."""

    def __init__(self, directory: Path, changefeed: str, *, source: str = "", target: str = "") -> None:
        super().__init__(str(directory), changefeed, source, target)
        self.directory = directory
        self._lock = directory / f"{changefeed}.lock"

    def prepare(self) -> None:
        try:
            self.directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as fault:
            raise disk_fault(f"the state directory {self.directory} cannot be made: {fault.strerror}", fault) from fault

    @contextmanager
    def run_lock(self) -> Iterator[None]:
        self.prepare()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock, timeout_s=LOCK_WAIT_S))
            except OSError as fault:
                raise disk_fault(f"{self._lock} cannot be opened: {fault.strerror}", fault) from fault
            yield

    def is_held(self) -> bool:
        try:
            with self._lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _read(self, name: str) -> Versioned | None:
        with suppress(FileNotFoundError):
            return Versioned((self.directory / name).read_bytes(), None)
        return None

    def _write(self, name: str, body: bytes) -> None:
        write_whole(self.directory / name, body, sync=True)

    def _replace(self, kept: KeptCheckpoint) -> None:
        self._write(self._name, encode_state(StateKind.CHECKPOINT, kept))

    def _forget(self, before: str | None, digest: str) -> None:  # noqa: ARG002  a run that died may have left others
        keep = self.directory / self._schema_name(digest)
        for path in self.directory.glob(self._schema_name("*")):
            if path != keep:
                path.unlink()


class StoreCheckpoints(StateFiles):
    """The checkpoint of one changefeed in an object store."""

    def __init__(self, uri: str, changefeed: str, *, source: str = "", target: str = "") -> None:
        super().__init__(uri, changefeed, source, target)
        self._owner = uuid.uuid4().hex
        self._version: Any = None
        """The version of the stored checkpoint, which the next one replaces; None without one."""
        self._fit = self._holds = self._owned = False

    def prepare(self) -> None:
        if not self._fit:
            check_store(self.root, overwrites=True)
            self._fit = True

    @contextmanager
    def run_lock(self) -> Iterator[None]:
        self._holds = True
        try:
            yield
        finally:
            self._holds = False

    def is_held(self) -> None:
        """Return None: a store does not know the running feeds."""

    def load(self) -> Saved | None:
        """Return the checkpoint that was saved last. The first call of a `held` block takes it over; raises Fenced when
        another run has done so since."""
        if self._holds:
            self.prepare()
        file = self._read(self._name)
        kept = self._decoded(file)
        saved = self._saved(kept)
        if file is not None and kept is not None:
            foreign = self._holds and kept.owner != self._owner
            if foreign and self._owned:
                raise self._fenced()
            self._version = file.version
            if foreign:
                self._replace(msgspec.structs.replace(kept, owner=self._owner))
        self._owned = self._holds
        return saved

    def _read(self, name: str) -> Versioned | None:
        return VersionedFile(self.root, name).read()

    def _write(self, name: str, body: bytes) -> None:
        obstore.put(writable(self.root), name, body)

    def _replace(self, kept: KeptCheckpoint) -> None:
        body = encode_state(StateKind.CHECKPOINT, kept)
        for _ in range(LOST_MAX):
            try:
                self._version = VersionedFile(self.root, self._name).write(body, version=self._version)
            except Changed as changed:
                kept_now = self._decoded(changed.current)
                if changed.current is None or kept_now is None or kept_now.owner != self._owner:
                    raise self._fenced() from None
                self._version = changed.current.version  # ours: the answer to an earlier checkpoint was lost
            else:
                return
        raise OSError(f"{LOST_MAX} answers were lost")

    def _forget(self, before: str | None, digest: str) -> None:  # noqa: ARG002
        if before is not None:
            delete(self.root, [self._schema_name(before)])

    def _fenced(self) -> Fenced:
        return Fenced(
            f"{self.root}/{self._name}: another run of changefeed {self.changefeed} took over the checkpoint, or it "
            f"was removed; run a changefeed only once"
        )


def checkpoints_in(root: str, changefeed: str, *, source: str = "", target: str = "") -> StateFiles:
    """Return the checkpoint of a changefeed in a directory or an object store."""
    if "://" in root:
        return StoreCheckpoints(root, changefeed, source=source, target=target)
    return DirectoryCheckpoints(Path(root), changefeed, source=source, target=target)
