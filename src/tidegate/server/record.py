"""Records of a server: changefeeds, create and update requests, their views, the log of operations, and API errors.

    NewFeed ──create──► FeedRecord (a document of the store) ──► FeedView: the record, and the current run

`config` is a changefeed file as a tree, with TiCDC's keys.  Addresses contain secrets: whoever shows them masks them.

Errors have TiCDC's codes; the HTTP status of each follows from its code.

    TidegateError
    +- InputError
       +- ApiParamInvalid          a parameter of a request
       +- ChangefeedMissing, ChangefeedExists
       +- UpdateRefused            not in this state, or nothing to change
       +- TargetBelowStart, StartBelowHistory
    +- EnvironmentFault
       +- ServerNotReady, NotOwner    another server answers, or soon will        LATER
       +- FeedCrashed              a bug ended a changefeed

`OperationLog` keeps the last hundred operations of users in the store, to tell who paused a changefeed:

    with log.noting("pause", feed, who): ..      success, or failed with its error

It is best effort: an operation is not undone if it cannot be recorded.

Source: TiCDC, pkg/errors/cdc_errors.go.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidegate.config.entry import feed_id
from tidegate.config.uri import mask_text
from tidegate.engine.progress import FeedError, Progress, now
from tidegate.model.errors import ChangefeedIdInvalid, EnvironmentFault, InputError, Retry, TidegateError
from tidegate.objectstore.stores import Changed
from tidegate.server.documents import Documents, StoreAway


class ApiParamInvalid(InputError):
    """A parameter or the body of a request is invalid."""

    code = "CDC:ErrAPIInvalidParam"
    remedy = "Correct the parameter that the message names; docs/api.md lists them."


class ChangefeedMissing(InputError):
    """There is no changefeed with that name."""

    code = "CDC:ErrChangeFeedNotExists"
    remedy = "`tidegate cli changefeed list` shows the names; give `--namespace` if there is one."


class ChangefeedExists(InputError):
    """A changefeed with that name exists, whatever its state."""

    code = "CDC:ErrChangeFeedAlreadyExists"
    remedy = "Choose another name, or remove the changefeed first."


class UpdateRefused(InputError):
    """The changefeed's state does not allow the operation, or nothing would change."""

    code = "CDC:ErrChangefeedUpdateRefused"
    remedy = "Pause the changefeed before an update, and resume only what is stopped, failed or finished."


class TargetBelowStart(InputError):
    """The target ts is not above the start ts."""

    code = "CDC:ErrTargetTsBeforeStartTs"
    remedy = "Give a target ts above the start ts."


class StartBelowHistory(InputError):
    """The source no longer has the changes above the start ts."""

    code = "CDC:ErrStartTsBeforeGC"


class ServerNotReady(EnvironmentFault):
    """The server has not joined yet, or is stopping."""

    code = "CDC:ErrServerIsNotReady"
    retry = Retry.LATER
    remedy = "Ask again in a few seconds; `/readyz` tells when."


class NotOwner(EnvironmentFault):
    """Another server owns the changefeeds; a run on this one must end."""

    code = "CDC:ErrNotOwner"
    meanwhile = "The owner's run goes on."
    remedy = "Nothing: the owner runs the changefeed."


class FeedCrashed(EnvironmentFault):
    """An unexpected error, a bug, ended a changefeed."""

    code = "CDC:ErrChangefeedUnretryable"
    remedy = "Resume it once. If it comes again, it is a bug: keep the log."


def wall_ms() -> int:
    """Return the wall clock in ms of Unix time."""
    return time.time_ns() // 1_000_000


NAMESPACE: Final = "default"
RUNS: Final = frozenset({"", "normal", "pending", "warning"})
"""States in which a changefeed runs, or should; `""` is one that has never run."""
MOMENTS_MAX: Final = 100


class FeedId(msgspec.Struct, frozen=True, order=True):
    """A changefeed's namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def document(self) -> str:
        return f"feeds/{self}.json"


def parse_id(name: str, namespace: str = NAMESPACE) -> FeedId:
    """Return the id of a changefeed. Raises ApiParamInvalid for an invalid name or namespace."""
    for text, what in ((name, "changefeed_id"), (namespace, "namespace")):
        try:
            feed_id(text, "", "")
        except ChangefeedIdInvalid as error:
            raise ApiParamInvalid(f"invalid {what}: {text}") from error
    return FeedId(namespace, name)


class Moment(msgspec.Struct, frozen=True):
    """Something that happened to a changefeed: a state, an error, a DDL, a user's operation."""

    time: str
    kind: str
    text: str
    who: str = ""


class FeedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the operation log: a user's operation on a changefeed."""

    time: str
    operation: str
    feed: FeedId
    who: str
    result: str = "success"
    details: str = ""
    error: str = ""


class FeedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of a changefeed. `epoch` is that of the owner who wrote it."""

    id: FeedId
    sink_uri: str
    source_uri: str
    config: dict[str, Any] = {}
    start_ts: int = 0
    target_ts: int = 0
    state: str = ""
    error: FeedError | None = None
    create_time: str = ""
    creator_version: str = ""
    checkpoint_ts: int = 0
    resolved_ts: int = 0
    last_synced_ts: int = 0
    upstream_id: int = 0
    """The id of the cluster that is captured; 0 of other sources, and before a run has reported it."""
    epoch: int = 0
    cancels_load: bool = False
    """A run cancels the load, until one has."""
    moments: tuple[Moment, ...] = ()
    """The newest events, oldest first."""

    def with_moment(self, moment: Moment) -> "FeedRecord":
        """Return the record with one more event."""
        return msgspec.structs.replace(self, moments=(*self.moments, moment)[-MOMENTS_MAX:])

    def __repr__(self) -> str:
        return f"FeedRecord({self.id}, {self.state!r})"


@dataclass(frozen=True, slots=True)
class NewFeed:
    """A request for a changefeed. `source_uri` empty: the server's own upstream. `start_ts` 0: now, if the source can
    start at a timestamp. `target_ts` 0: no end."""

    id: FeedId
    sink_uri: str
    source_uri: str = ""
    start_ts: int = 0
    target_ts: int = 0
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FeedChange:
    """Changes to a changefeed; empty and None leave a field unchanged. `config` replaces the whole."""

    sink_uri: str = ""
    source_uri: str = ""
    target_ts: int | None = None
    config: Mapping[str, Any] | None = None
    unknown: tuple[str, ...] = ()
    """Names of the request that nothing reads."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A changefeed at a time, in ms of Unix time; `rows` since its run started."""

    time_ms: int
    checkpoint_ts: int
    resolved_ts: int
    rows: int
    rows_per_s: float
    behind: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class FeedView:
    """The current state of a changefeed; `progress` is the last report of its run in this process."""

    record: FeedRecord
    progress: Progress | None = None
    running: bool = False
    samples: tuple[Sample, ...] = ()
    failures: int = 0
    """Errors since this server owns the changefeed."""

    @property
    def id(self) -> FeedId:
        return self.record.id

    @property
    def state(self) -> str:
        return self.record.state

    @property
    def error(self) -> FeedError | None:
        """The error that is being retried, or that ended the changefeed."""
        return self.record.error

    @property
    def checkpoint_ts(self) -> int:
        """Everything at or below it is in the sink."""
        return max(self.record.checkpoint_ts, (self.progress and self.progress.checkpoint_ts) or 0)

    @property
    def resolved_ts(self) -> int:
        """Everything at or below it has been read."""
        seen = (self.progress and self.progress.frontier_ts) or 0
        return max(self.record.resolved_ts, seen, self.checkpoint_ts)

    @property
    def upstream_id(self) -> int:
        """The id of the cluster that is captured, or 0."""
        capture = self.progress and self.progress.capture
        return int((capture and capture.cluster) or self.record.upstream_id)

    @property
    def table_ids(self) -> Sequence[int]:
        """Physical ids of the tables while it runs, as far as its source knows them."""
        return self.progress.table_ids if self.progress and self.running else ()


class TableRef(msgspec.Struct, frozen=True):
    """A table in the answer of `verify_table`."""

    database_name: str
    table_name: str
    table_id: int
    is_partition: bool = False


class Verified(msgspec.Struct, frozen=True):
    """The tables that a changefeed would replicate, and those that it cannot for lack of a handle key."""

    eligible: tuple[TableRef, ...] = ()
    ineligible: tuple[TableRef, ...] = ()
    sink_met: bool | None = None


class Capture(msgspec.Struct, frozen=True):
    """A server, as the API lists it."""

    id: str
    is_owner: bool
    address: str
    cluster_id: str


LOG: Final = logging.getLogger(__name__)
NAME: Final = "operations.json"
MOST: Final = 100


class OperationLog:
    """The operation log of a store; only the owner writes it."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._entries: deque[FeedOperation] = deque(maxlen=MOST)
        self._version: Any = None
        self._lock = threading.Lock()

    def take_over(self) -> None:
        """Read the entries of earlier owners. Raises StoreAway."""
        document = self._documents.read(NAME)
        self._entries.clear()
        self._version = None
        if document is not None:
            self._entries.extend(msgspec.json.decode(document.body, type=list[FeedOperation]))
            self._version = document.version

    def listed(self) -> list[FeedOperation]:
        """Return the entries, newest first."""
        return list(reversed(self._entries))

    @contextmanager
    def noting(self, operation: str, feed: FeedId, who: str, details: str = "") -> Iterator[None]:
        """Record an operation and its result when the block has ended."""
        entry = FeedOperation(time=now(), operation=operation, feed=feed, who=who, details=details)
        try:
            yield
        except TidegateError as error:
            self._note(msgspec.structs.replace(entry, result="failed", error=mask_text(str(error))))
            raise
        self._note(entry)

    def _note(self, entry: FeedOperation) -> None:
        LOG.info("%s %s by %s: %s %s", entry.operation, entry.feed, entry.who or "anonymous", entry.result, entry.error)
        with self._lock:
            self._entries.append(entry)
            try:
                self._version = self._documents.write(NAME, msgspec.json.encode(list(self._entries)), self._version)
            except (Changed, StoreAway) as error:
                LOG.warning("operation %s of %s could not be recorded: %s", entry.operation, entry.feed, error)
