"""The changefeeds of a server: their records, which of them run, and the operations on them.

    "" ──► normal ◄──► warning ──► failed     reported by the run (running.py)
              │ pause    │            │
              ▼          ▼            ▼
            stopped ◄── pause     resume ──► normal          finished: the target ts is reached

Only the owner runs changefeeds.  Each change is written to the store first, under the owner's epoch, and only if nobody
else has written since; otherwise another owner took over, and the server steps down.  A new owner rewrites every
record, which fences the previous one, and starts what should run.

Clients are restricted in what they may name on the server's machine, and where its tokens may be sent (`ClientReach`):

    a file or a directory    below --allow-path, links resolved; and none of the server's own
    a token of a file, or    to the hosts of token-hosts only, since a client chooses the address
    of the environment

What the server's own --source-uri names, clients may name, too.  An existing changefeed keeps what it names, also when
it is changed.

The checkpoint of a changefeed that does not run can be moved or removed, depending on where it is kept:

    the sink itself (a lake)    derived from its data: neither moved nor removed
    a database                  derived from its rows and DDL ledger: not moved; removed, if the server answers
    state directory or store    moved, if the source can be read from any ts; removed, with its changelog

`verified` lists the tables that a changefeed would replicate.  A change log gives its schema at the start ts: tables
with a handle key, and those without; a topic's tables are only known as it is read.

Source: TiCDC's OpenAPI v2: operations and the states in which they are allowed; changefeed states.
"""

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.config import full_load
from tidegate.config.changefeed import meets_sink
from tidegate.config.entry import MEMORY_QUOTA, Document, FeedConfig, checkpoints_of, is_landed
from tidegate.config.load import document_of, load
from tidegate.config.registry import SOURCES, entries_of, feed_of, forget_at_source, home_of, upstream_now
from tidegate.config.tidb import TidbSource
from tidegate.config.tikv import TikvSource, cluster_now, cluster_schema, parse_tikv
from tidegate.config.uri import LocalName, mask_text, mask_uri, reporting_names, scheme_of, state_directory
from tidegate.engine.load_plan import KeptPlan, is_unfinished
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, SinkPosition
from tidegate.engine.progress import FeedError, Progress, now
from tidegate.engine.reload import KeptReload, RepairKeys, check_resend
from tidegate.model.errors import EnvironmentFault, HistoryLost, InputError, LoadCancelled, TidegateError, UriInvalid
from tidegate.model.tso import compose
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import STORE_ERRORS, Changed, delete, first_line, listed
from tidegate.schema.state import SchemaState
from tidegate.server.config import ServerConfig
from tidegate.server.documents import Documents, StoreAway, check_version
from tidegate.server.metrics import Metrics
from tidegate.server.record import (
    RUNS,
    ApiParamInvalid,
    Capture,
    ChangefeedExists,
    ChangefeedMissing,
    FeedChange,
    FeedId,
    FeedOperation,
    FeedRecord,
    FeedView,
    Moment,
    NewFeed,
    NotOwner,
    OperationLog,
    Sample,
    StartBelowHistory,
    TableRef,
    TargetBelowStart,
    UpdateRefused,
    Verified,
    wall_ms,
)
from tidegate.server.running import RunEnd, RunningFeed, SparkHost
from tidegate.sink.metrics_tally import SHOWN
from tidegate.sink.sql.connection import SqlOptions, TargetSession
from tidegate.source.tikv_options import SCHEME as TIKV

LOG: Final = logging.getLogger(__name__)
OWN: Final = ("server.db", "server.db-wal", "server.db-shm", "token")
"""Files in the data directory that only the server reads and writes."""

Loads = Callable[[], FeedConfig]


class ClientReach:
    """Paths of the server's machine that clients may name, and hosts that may get its tokens."""

    def __init__(self, config: ServerConfig) -> None:
        security = config.security
        own = (security.users_file, security.token_file, security.key_path)
        private = () if "://" in config.data_dir else (f"{config.data_dir}/{name}" for name in OWN)
        self._roots = tuple(filter(None, map(_real, config.allow_path)))
        self._own = tuple(filter(None, map(_real, (*filter(None, own), *private))))
        self._hosts = frozenset(host.lower() for host in config.security.token_hosts)
        self._upstream, self._upstream_hosts = _upstream(config.source_uri)

    def admitted(self, requested: Loads, before: Loads | None = None) -> FeedConfig:
        """Return the configuration that a client requests, which may name whatever `before` names. Raises UriInvalid
        for a path or a host that is not allowed, and whatever `requested` raises."""
        named, hosts = (set[LocalName](), frozenset[str]()) if before is None else _named(before)
        with self.checked({name.path for name in named}):
            config = requested()
        for host in self._strange(_hosts(config) - hosts):
            raise UriInvalid(
                f"{host} may not get a token from the server's files or environment, or requests signed with it; "
                "token-hosts under [security] of the server's file allows it"
            )
        return config

    def checked(self, allowed: Collection[str] = ()) -> AbstractContextManager[None]:
        """Raise UriInvalid where the block names a path that is neither among some nor allowed."""

        def check(name: LocalName) -> None:
            if name.path not in allowed and not self._may_name(name):
                raise UriInvalid(
                    f"{name.where}: {name.path} is on the server's machine, where clients may name what lies below "
                    f"{', '.join(map(str, self._roots)) or 'no directory'}, but for the server's own files; to allow "
                    "others, start the server with --allow-path DIRECTORY (allow-path in its file)"
                )

        return reporting_names(check)

    def _may_name(self, name: LocalName) -> bool:
        if name in self._upstream:  # as it is named there: a key of the server's is no other parameter's file
            return True
        real = _real(name.path)
        if real is None or any(real.is_relative_to(own) for own in self._own):
            return False
        return any(real.is_relative_to(root) for root in self._roots)

    def _strange(self, hosts: Iterable[str]) -> list[str]:
        allowed = self._hosts | self._upstream_hosts
        return sorted(host for host in hosts if not {host, host.rpartition(":")[0]} & allowed)

    def warn_of(self, feeds: Iterable[tuple[str, Loads]]) -> None:
        """Log a warning about existing changefeeds that name what clients may no longer name."""
        violations = {}
        for feed, loads in feeds:
            names, hosts = _named(loads)
            files = {f"{name.where} {name.path}" for name in names if not self._may_name(name)}
            violations[feed] = sorted(files | {f"tokens to {host}" for host in self._strange(hosts)})
        if named := [f"{feed} ({', '.join(strange)})" for feed, strange in violations.items() if strange]:
            LOG.warning(
                "these changefeeds continue, but name what clients may no longer name (--allow-path, token-hosts): %s",
                "; ".join(named),
            )


def _real(path: str) -> Path | None:
    """Return the resolved path; None if no file can have it."""
    try:
        real = Path(path).resolve()
        is_circle = any(part.is_symlink() for part in (real, *real.parents))  # an error until Python 3.13
    except (OSError, ValueError, RuntimeError):  # a NUL byte; links in a circle
        return None
    return None if is_circle else real


def _named(loads: Loads) -> tuple[set[LocalName], frozenset[str]]:
    """Return the local paths that a configuration names, as far as it can be read, and the hosts that get tokens."""
    names: set[LocalName] = set()
    with reporting_names(names.add), suppress(TidegateError):
        return names, _hosts(loads())
    return names, frozenset()


def _hosts(config: FeedConfig) -> frozenset[str]:
    source, sink = entries_of(config)
    hosts = source.tokens_go_to(config.source) | sink.tokens_go_to(config.sink) | full_load.tokens_go_to(config)
    return frozenset(map(str.lower, hosts))


def _upstream(uri: str) -> tuple[set[LocalName], frozenset[str]]:
    """Return the paths of the server's own source, and the hosts that get its tokens."""
    entry, names = SOURCES.get(scheme_of(uri).partition("+")[0]), set[LocalName]()
    if entry is not None:
        with reporting_names(names.add), suppress(TidegateError):
            return names, entry.tokens_go_to(entry.parse(uri, Document()))
    return names, frozenset()


ANSWER_S: Final = 5.0
"""Timeout for the database of a changefeed that is being removed."""


def move_checkpoint(config: FeedConfig, ts: int) -> None:
    """Set the checkpoint of a changefeed. Raises UpdateRefused if its sink or its source does not allow it."""
    source, sink = entries_of(config)
    if sink.keeps_progress or sink.keeps_position:
        raise UpdateRefused(
            f"{config.sink_uri} stores the checkpoint with its rows, so it cannot be overwritten; create a changefeed "
            "with another sink"
        )
    if is_landed(source, sink):
        raise UpdateRefused(
            f"changes of {config.source_uri} below the checkpoint are no longer stored, so it cannot be overwritten; "
            "create a changefeed that reads the source anew"
        )
    checkpoints = checkpoints_of(config)
    with checkpoints.run_lock():
        saved = checkpoints.load()
        # Without a schema: the source tells the tables of that ts.
        checkpoints.save(Saved(SinkPosition(Checkpoint(ts), SchemaState()), {} if saved is None else saved.notes))


def forget_in_database(config: FeedConfig) -> None:
    """Remove the progress of a changefeed from its database. Raises SinkError if that does not answer, or refuses."""
    from tidegate.sink.sql.progress import forget

    if not isinstance(config.sink, SqlOptions):
        return
    session = TargetSession(replace(config.sink, feed=config.name, dial_s=ANSWER_S), read_s=ANSWER_S)
    try:
        forget(session, config.name)
    finally:
        session.close()


def forget_checkpoint(state_dir: str, name: str) -> None:
    """Remove the state of a changefeed from a directory or store. Raises EnvironmentFault if that fails."""
    try:
        if "://" in state_dir:
            paths = [entry["path"] for entry in listed(state_dir)]
            delete(state_dir, [path for path in paths if path.startswith((f"{name}.", f"{name}/"))])
            return
        for path in Path(state_dir).glob(f"{name}.*"):
            path.unlink()
        shutil.rmtree(Path(state_dir, name), ignore_errors=True)
    except STORE_ERRORS as error:
        raise EnvironmentFault(
            f"the checkpoint of {name} in {state_dir} could not be removed: {first_line(error)}"
        ) from error


class TableIneligible(InputError):
    """Tables without a handle key match the filter, and the request does not say how to treat them."""

    code = "CDC:ErrTableIneligible"
    remedy = (
        "Give the tables a primary key, leave them out by the filter, or create with `--force-replicate` or "
        "`ignore_ineligible_table`."
    )


def verified(config: FeedConfig) -> Verified:
    """Return the tables of a changefeed at its start ts. Raises StartBelowHistory if its log, or what its cluster
    keeps, begins later."""
    if not isinstance(config.source, TidbSource):
        return Verified()
    from tidegate.config.registry import entries_of
    from tidegate.config.tidb import log_schema
    from tidegate.source.tidb_log import Tables, name_of

    is_cluster = isinstance(config.source, TikvSource)
    try:
        snapshot = cluster_schema(config) if is_cluster else log_schema(config, entries_of(config)[1])
    except HistoryLost as error:
        raise StartBelowHistory(str(error)) from error
    matches = config.table_filter().matches
    tables = Tables(matches, force=True).replicated(snapshot)
    keyed = Tables(matches, keeps=entries_of(config)[1].keeps_keyless)
    eligible: list[TableRef] = []
    ineligible: list[TableRef] = []
    for each in tables:
        table = TableRef(*name_of(each), each.stored.id, len(each.stored.physical_ids) > 1)
        (eligible if keyed.eligible(each) else ineligible).append(table)
    return Verified(tuple(sorted(eligible, key=_name)), tuple(sorted(ineligible, key=_name)))


def check_eligible(config: FeedConfig, tables: Verified, *, ignore: bool) -> None:
    """Raise TableIneligible for tables without a handle key that are neither forced nor ignored."""
    forced = isinstance(config.source, TidbSource) and config.source.force_replicate
    if tables.ineligible and not forced and not ignore:
        names = ", ".join(f"{table.database_name}.{table.table_name}" for table in tables.ineligible)
        raise TableIneligible(
            f"tables without a primary key or a unique key of NOT NULL columns: {names}; "
            "ignore-ineligible-table skips them, force-replicate replicates them anyway"
        )


def _name(table: TableRef) -> tuple[str, str]:
    return table.database_name, table.table_name


FEEDS: Final = "feeds/"
STOP_S: Final = 10.0
"""Longest time that a request waits for a run to end; the run may end later."""
KEEP_S: Final = 30.0
"""Interval at which an advancing checkpoint is written into the record; the sink's own is authoritative."""
SAMPLE_S: Final = 5.0
SAMPLES: Final = 720
STATES: Final = {"pending": "normal", "stopped": "normal"}
"""States of a run that a changefeed's record does not take over: not begun yet, or ended with its server."""
VERSION: Final = version("tidegate")


class Unfinished(TidegateError):
    """The run of a removed changefeed has not ended yet."""

    code = "CDC:ErrChangeFeedDeletionUnfinished"
    remedy = "Wait until the run has ended (seconds), then create the changefeed again."


@dataclass(slots=True)
class ServedFeed:
    """A changefeed of the owner: its record, the record's version in the store, and its run."""

    record: FeedRecord
    version: Any
    run: RunningFeed | None = None
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    rows: int = 0
    """Row changes and DDLs of the run, as of its last write."""
    failures: int = 0
    noted_s: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while the record is replaced; one per changefeed, so that a slow store does not block the others."""


class Changefeeds:
    """The changefeeds of a store. Thread-safe; `owns` returns whether this server may act."""

    def __init__(
        self,
        documents: Documents,
        config: ServerConfig,
        spark: SparkHost,
        owns: Callable[[], bool],
        *,
        captures: Callable[[], list[Capture]],
        facts: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._documents, self._config, self._spark = documents, config, spark
        self._owns, self.captures, self._client_reach = owns, captures, ClientReach(config)
        self._feeds: dict[FeedId, ServedFeed] | None = None
        """None on a server that does not own."""
        self._epoch = 0
        self._lock = threading.Lock()
        self.operation_log = OperationLog(documents)
        self.watch = Metrics(
            self._shown,
            facts,
            lambda feed: SHOWN.get(f"{state_directory(config.state_dir(feed.namespace))}/{feed.name}"),
        )
        self.lost = threading.Event()
        """Set when another owner was seen to have written."""

    # Ownership

    @property
    def is_owner(self) -> bool:
        """True while this server acts as the owner."""
        return self._feeds is not None and self._owns()

    def take_over(self, epoch: int) -> None:
        """Become the owner: rewrite every record, and start what should run.

        Raises StoreAway, Changed, NotOwner, EnvironmentFault; runs that have started by then are ended by
        `step_down`."""
        check_version(self._documents, self._config.data_dir)
        self._epoch = epoch
        self.lost.clear()
        feeds: dict[FeedId, ServedFeed] = {}
        for name in self._documents.names(FEEDS):
            document = self._documents.read(name)
            if document is None:
                continue
            try:
                record = msgspec.json.decode(document.body, type=FeedRecord)
            except msgspec.DecodeError as error:
                LOG.error("%s is not a changefeed record and is ignored: %s", name, error)  # noqa: TRY400
                continue
            if record.state == "removed":  # whoever removed it died before it was forgotten
                self._forget(record)
                continue
            config = dict(record.config)
            if scheme_of(record.source_uri or self._config.source_uri) != TIKV:
                quota = config.pop("memory-quota", MEMORY_QUOTA)  # earlier releases took it without effect
                if quota not in {0, MEMORY_QUOTA}:
                    LOG.warning("%s: memory-quota = %s has no effect and is removed", record.id, quota)
            record = msgspec.structs.replace(record, epoch=epoch, config=config)
            feeds[record.id] = ServedFeed(record, self._documents.write(name, _body(record), document.version))
            failpoint("server/took-record")
        self.operation_log.take_over()
        self._feeds = feeds
        self._client_reach.warn_of(
            (str(feed_id), partial(self.config_of, feed.record)) for feed_id, feed in feeds.items()
        )
        for feed in list(feeds.values()):
            if feed.record.state in RUNS:
                self._start(feed)

    def step_down(self, wait_s: float = STOP_S) -> None:
        """End all runs and stop acting as the owner; records stay as they are, for the next owner."""
        feeds, self._feeds = self._feeds or {}, None
        runs = [feed.run for feed in feeds.values() if feed.run is not None]
        for run in runs:
            run.stop()
        until_s = time.monotonic() + wait_s
        for run in runs:
            run.join(max(0.0, until_s - time.monotonic()))
        for feed in feeds.values():
            self._note(feed)

    def tick(self) -> None:
        """Sample the running changefeeds and record their checkpoints; called every few seconds."""
        for feed in list((self._feeds or {}).values()):
            view = self._view(feed)
            progress = view.progress
            rows, behind = (progress.rows, progress.behind) if progress else (0, 0)
            rate = progress.rows_per_s if progress and view.running else 0.0
            feed.samples.append(Sample(wall_ms(), view.checkpoint_ts, view.resolved_ts, rows, rate, behind, view.state))
            self.watch.sampled(view)
            if time.monotonic() - feed.noted_s >= KEEP_S:
                self._note(feed)

    def _owned(self) -> dict[FeedId, ServedFeed]:
        if self._feeds is None or not self._owns():
            raise NotOwner("this server does not own the changefeeds")
        return self._feeds

    # Operations

    def listed(self) -> list[FeedView]:
        """Return all changefeeds, by namespace and name."""
        return [self._view(feed) for _, feed in sorted(self._owned().items())]

    def _shown(self) -> list[FeedView]:
        return self.listed() if self.is_owner else []

    def get(self, feed: FeedId) -> FeedView:
        """Return one changefeed. Raises ChangefeedMissing."""
        return self._view(self._feed(feed))

    def operations(self) -> list[FeedOperation]:
        """Return the operation log, newest first."""
        return self.operation_log.listed()

    def verify(self, new: NewFeed, *, with_sink: bool = False) -> Verified:
        """Return the tables that a new changefeed would replicate; `with_sink`, connect to its sink, too. Raises the
        error of an invalid request, or of the sink."""
        config = self._requested(new)[1]
        tables = verified(config)
        return msgspec.structs.replace(tables, sink_met=meets_sink(config)) if with_sink else tables

    def create(self, new: NewFeed, who: str) -> FeedView:
        """Create a changefeed and start it. Raises the error of an invalid request, or of its sink."""
        with self.operation_log.noting("create", new.id, who, mask_uri(new.sink_uri)):
            if new.id in self._owned():
                raise ChangefeedExists(f"changefeed already exists, {new.id.name}")
            record, config = self._requested(new)
            ignore = bool((new.config or {}).get("ignore-ineligible-table", False))
            check_eligible(config, verified(config), ignore=ignore)
            probe(config)
            record = msgspec.structs.replace(record, state="normal").with_moment(Moment(now(), "created", "", who))
            with self._lock:
                if new.id in self._owned():
                    raise ChangefeedExists(f"changefeed already exists, {new.id.name}")
                failpoint("server/create")
                feed = ServedFeed(record, self._written(record, None))
                self._owned()[new.id] = feed
            failpoint("server/created")
            view = self._view(feed)  # as created: it may be ahead as soon as it runs
            self._start(feed)
            return view

    def update(self, feed_id: FeedId, change: FeedChange, who: str) -> FeedView:
        """Change a changefeed that is stopped or failed. Raises UpdateRefused in other states, and if nothing
        changes."""
        with self.operation_log.noting("update", feed_id, who):
            feed = self._feed(feed_id)
            with feed.lock:
                before = feed.record
                if before.state not in {"stopped", "failed"}:
                    raise UpdateRefused(
                        f"can only update changefeed config when it is stopped or failed, and {feed_id.name} is "
                        f"{before.state or 'normal'}: pause it first"
                    )
                updated = msgspec.structs.replace(
                    before,
                    sink_uri=change.sink_uri or before.sink_uri,
                    source_uri=change.source_uri or before.source_uri,
                    target_ts=before.target_ts if change.target_ts is None else change.target_ts,
                    config=before.config if change.config is None else dict(change.config),
                )
                if updated == before:
                    unknown = f", unknown and not read: {', '.join(change.unknown)}" if change.unknown else ""
                    raise UpdateRefused(f"changefeed config is the same with the old one, do nothing{unknown}")
                if updated.target_ts and updated.target_ts <= updated.start_ts:
                    raise TargetBelowStart(f"target-ts {updated.target_ts} is not above start-ts {updated.start_ts}")
                self._client_reach.admitted(partial(self.config_of, updated), partial(self.config_of, before))
                self._replace(feed, updated.with_moment(Moment(now(), "updated", "", who)))
            return self._view(feed)

    def upstream_now(self, feed_id: FeedId | None = None, source_uri: str = "") -> int:
        """Return a timestamp of now by the clock of a changefeed's upstream, of that at an address, else of the
        server's. Raises ClusterUnavailable, UriInvalid."""
        if feed_id is not None:
            return upstream_now(self.config_of(self.get(feed_id).record))
        source = source_uri or self._config.source_uri
        if scheme_of(source) != TIKV:
            return compose(wall_ms())
        with self._client_reach.checked():
            return cluster_now(parse_tikv(source, Document()))

    def pause(self, feed_id: FeedId, who: str, wait_s: float = STOP_S) -> FeedView:
        """Stop a changefeed, and wait a while until its run has ended; its checkpoint is kept. Does nothing if it does
        not run."""
        with self.operation_log.noting("pause", feed_id, who):
            feed = self._feed(feed_id)
            with feed.lock:
                if feed.record.state in RUNS:
                    failpoint("server/pause")
                    self._enter(feed, "stopped", None, who)
            if feed.run is not None and feed.record.state not in RUNS:
                feed.run.stop()
                feed.run.join(wait_s)
            return self._view(feed)

    def resume(self, feed_id: FeedId, who: str, overwrite_checkpoint_ts: int = 0) -> FeedView:
        """Start a stopped changefeed again, from another checkpoint if one is passed; behind the end of its last run,
        which may still have work in flight. Does nothing if it runs."""
        with self.operation_log.noting("resume", feed_id, who, str(overwrite_checkpoint_ts or "")):
            feed = self._feed(feed_id)
            if feed.record.state in RUNS:
                return self._view(feed)
            if overwrite_checkpoint_ts and feed.run is not None and not feed.run.join(STOP_S):
                raise UpdateRefused(f"the last run of {feed_id.name} has not ended yet; try again in some seconds")
            with feed.lock:
                if overwrite_checkpoint_ts:
                    config = self.config_of(feed.record)
                    if overwrite_checkpoint_ts > upstream_now(config):
                        raise ApiParamInvalid("invalid checkpoint-ts: it lies in the future")
                    move_checkpoint(config, overwrite_checkpoint_ts)
                    moved = msgspec.structs.replace(
                        feed.record, checkpoint_ts=overwrite_checkpoint_ts, resolved_ts=overwrite_checkpoint_ts
                    )
                    self._replace(feed, moved)
                    feed.run = None  # its reports are of the checkpoint before
                failpoint("server/resume")
                self._enter(feed, "normal", None, who)
                if feed.run is None or feed.run.is_over:
                    self._start(feed)
            return self._view(feed)

    def start_load(self, feed_id: FeedId, load_from: str, tables: Sequence[str], who: str) -> FeedView:
        """Load the tables of a changefeed again, all or those of some rules, from its configured database if
        `load_from` is empty; then continue. Raises ApiParamInvalid if none is configured."""
        with self.operation_log.noting("load", feed_id, who, ", ".join(tables)):
            feed = self._feed(feed_id)
            record, before = feed.record, feed.record.config.get("source", {})
            section = {name: value for name, value in before.items() if name != "load-ts"}
            section |= {
                "load": _mode(record),
                "load-from": load_from or _database(record),
                "load-number": int(before.get("load-number", 0)) + 1,
                "load-tables": list(tables),
            }
            if not section["load-from"]:
                raise ApiParamInvalid(f"load_from is empty, and {feed_id.name} has begun without a database to load")
            config = {**record.config, "source": section}
            changed = msgspec.structs.replace(record, config=config)
            self._client_reach.admitted(partial(self.config_of, changed), partial(self.config_of, record))
            self.pause(feed_id, who)
            with feed.lock:
                self._replace(feed, msgspec.structs.replace(feed.record, config=config, cancels_load=False))
            return self.resume(feed_id, who)

    def reload_tables(
        self, feed_id: FeedId, load_from: str, tables: Sequence[str], who: str, *, adds: bool, resend: bool = False
    ) -> FeedView:
        """Load the tables of some rules, all if there are none, beside the running changefeed; one that `adds` takes
        them from now on. It is started again where that, or its database, changes its configuration.

        Raises ApiParamInvalid if no database is configured, ConfigError unless `resend` fits the target."""
        with self.operation_log.noting("add tables" if adds else "reload tables", feed_id, who, ", ".join(tables)):
            feed = self._feed(feed_id)
            record, before, config = feed.record, feed.record.config.get("source", {}), self.config_of(feed.record)
            if not (uri := load_from or _database(record)):
                raise ApiParamInvalid(f"load_from is empty, and {feed_id.name} has begun without a database to load")
            mode = {"load": "never"} if not before.get("load-from") else {}  # these tables alone
            changed = {**record.config, "source": {**mode, **before, "load-from": uri}}
            rules = record.config.get("filter", {}).get("rules", ())
            if adds and rules:
                changed["filter"] = {**record.config["filter"], "rules": [*rules, *tables]}
            follows = msgspec.structs.replace(record, config=changed)
            self._client_reach.admitted(partial(self.config_of, follows), partial(self.config_of, record))
            if not adds:
                check_resend(sends=entries_of(config)[1].sends, resend=resend)
            ask = partial(KeptReload(home_of(config)).ask, tables or ("*.*",), resend=adds or resend)
            if changed == record.config:
                ask()
                return self._view(feed)
            self.pause(feed_id, who)  # the run of before would read the request without the database or the rules
            with feed.lock:
                self._replace(feed, msgspec.structs.replace(feed.record, config=changed))
            try:
                ask()
            finally:
                self.resume(feed_id, who)
            return self._view(feed)

    def requests_of(self, feed_id: FeedId) -> KeptReload:
        """Return the file of the last reload or repair of a changefeed."""
        return KeptReload(home_of(self.config_of(self._feed(feed_id).record)))

    def repair_rows(self, feed_id: FeedId, rows: Sequence[RepairKeys], who: str) -> None:
        """Request that rows are read again. Raises ApiParamInvalid if no database is configured, ConfigError."""
        count = sum(len(some.keys) for some in rows)
        with self.operation_log.noting("repair rows", feed_id, who, f"{count} rows"):
            if not _database(self._feed(feed_id).record):
                raise ApiParamInvalid(f"{feed_id.name} has begun without a database to load, and reads no row again")
            self.requests_of(feed_id).ask_repair(rows)

    def cancel_load(self, feed_id: FeedId, who: str) -> FeedView:
        """End a load that is not done: its tables are dropped where they can be seen, and the changefeed is stopped.
        Raises UpdateRefused where no load runs."""
        with self.operation_log.noting("cancel load", feed_id, who):
            view = self.get(feed_id)
            section = view.record.config.get("source", {})
            try:
                plan = KeptPlan(home_of(self.config_of(view.record))).read()
            except STORE_ERRORS as error:
                raise EnvironmentFault(
                    f"the load of {feed_id.name} cannot be looked up: {first_line(error)}"
                ) from error
            checkpoint_ts = view.progress.checkpoint_ts if view.progress else view.checkpoint_ts
            begins = plan is not None or section.get("load") != "never"
            is_open = begins and is_unfinished(plan, int(section.get("load-number", 0)), checkpoint_ts)
            if not _database(view.record) or section.get("load") == "done" or not is_open:
                raise UpdateRefused(f"{feed_id.name} has no load that is unfinished")
            self.pause(feed_id, who)
            feed = self._feed(feed_id)
            with feed.lock:
                self._replace(feed, msgspec.structs.replace(feed.record, cancels_load=True))
            return self.resume(feed_id, who)

    def remove(self, feed_id: FeedId, who: str) -> FeedView | None:
        """End a changefeed and remove its record and checkpoint; the sink's data stays. None if there is none."""
        with self.operation_log.noting("remove", feed_id, who):
            feed = self._owned().get(feed_id)
            if feed is None:
                return None
            with feed.lock:
                failpoint("server/remove")
                self._enter(feed, "removed", None, who)
            if feed.run is not None:
                feed.run.stop()
                if not feed.run.join(3 * STOP_S):
                    raise Unfinished(f"the run of {feed_id.name} has not ended yet; remove it again in some seconds")
            view = self._view(feed)
            self._forget(feed.record)
            with self._lock:
                self._owned().pop(feed_id, None)
            return view

    def config_of(self, record: FeedRecord) -> FeedConfig:
        """Return the configuration of a record's next run. Raises the error of an invalid one."""
        begins_at_s = bool(loads_from(record.config))
        return load(
            document_of(record.config),
            source_uri=record.source_uri,
            sink_uri=record.sink_uri,
            name=record.id.name,
            start_ts=None if begins_at_s else record.start_ts or None,
            target_ts=record.target_ts or None,
            state_dir=self._config.state_dir(record.id.namespace),
            load_mode="cancel" if record.cancels_load else None,
            load_from=_database(record) if record.cancels_load else None,
        )

    # Records

    def _requested(self, new: NewFeed) -> tuple[FeedRecord, FeedConfig]:
        """Return the record of a new changefeed and its configuration; where it says no start-ts, it begins now, by the
        clock of its upstream. Raises the error of invalid timestamps and addresses."""
        record = self._record(new)
        config = self._client_reach.admitted(partial(self.config_of, record))
        now_ts = upstream_now(config)
        if new.start_ts > now_ts:
            raise ApiParamInvalid(f"invalid start_ts {new.start_ts}, larger than current tso {now_ts}")
        start = new.start_ts or (0 if entries_of(config)[0].start_ts_refused else now_ts)
        if new.target_ts and new.target_ts <= start:
            raise TargetBelowStart(f"target_ts {new.target_ts} is not above start_ts {start}")
        record = msgspec.structs.replace(record, start_ts=start, checkpoint_ts=start, resolved_ts=start)
        return record, self.config_of(record)

    def _record(self, new: NewFeed) -> FeedRecord:
        """Return the record of a new changefeed, without what its upstream is asked for. Raises the error of invalid
        addresses."""
        if not new.sink_uri:
            raise UriInvalid("sink_uri is empty, can't not create a changefeed without sink_uri")
        section, rows = (new.config or {}).get("source", {}), loads_from(new.config or {})
        if rows and new.start_ts:
            raise ApiParamInvalid("start_ts does not go with load-from: changes follow behind the load, see load-ts")
        own = rows if section.get("load") == "only" else self._config.source_uri
        source = new.source_uri or str(section.get("uri", "") or own)
        if not source:
            raise UriInvalid("source-uri is missing: name one, or start the server with --source-uri")
        return FeedRecord(
            id=new.id,
            sink_uri=new.sink_uri,
            source_uri=source,
            config=dict(new.config or {}),
            start_ts=new.start_ts,
            target_ts=new.target_ts,
            create_time=datetime.now().astimezone().isoformat(),
            creator_version=VERSION,
            epoch=self._epoch,
        )

    def _feed(self, feed: FeedId) -> ServedFeed:
        served = self._owned().get(feed)
        if served is None:
            raise ChangefeedMissing(f"changefeed not exists, {feed.name}")
        return served

    def _view(self, feed: ServedFeed) -> FeedView:
        run, samples = feed.run, tuple(feed.samples)
        if run is None:
            return FeedView(feed.record, samples=samples, failures=feed.failures)
        return FeedView(feed.record, run.progress, running=run.alive(), samples=samples, failures=feed.failures)

    def _written(self, record: FeedRecord, before: Any) -> Any:
        """Write a record and return its version. Raises NotOwner if another owner has written it."""
        if not self._owns():
            raise NotOwner("this server no longer owns the changefeeds")
        try:
            return self._documents.write(record.id.document, _body(record), before)
        except Changed as error:
            self.lost.set()
            raise NotOwner(str(error)) from error

    def _replace(self, feed: ServedFeed, record: FeedRecord) -> None:
        feed.version = self._written(record, feed.version)
        feed.record = record

    def _enter(self, feed: ServedFeed, state: str, error: FeedError | None, who: str = "", **changes: int) -> None:
        """Put a changefeed into a state. Passwords in addresses that the error quotes are masked."""
        error = error and msgspec.structs.replace(error, message=mask_text(error.message))
        record = msgspec.structs.replace(feed.record, state=state, error=error, **changes, **_reached(self._view(feed)))
        text = "" if error is None else f"{error.code}: {error.message}"
        self._replace(feed, record.with_moment(Moment(now(), state, text, who)))

    def _note(self, feed: ServedFeed) -> None:
        """Record the progress of a changefeed, if it advanced."""
        feed.noted_s = time.monotonic()
        with feed.lock:
            record = msgspec.structs.replace(feed.record, **_reached(self._view(feed)))
            if record == feed.record or not self._owns():
                return
            try:
                self._replace(feed, record)
            except (NotOwner, StoreAway) as error:
                LOG.warning("the checkpoint of %s could not be recorded: %s", feed.record.id, error)

    def _forget(self, record: FeedRecord) -> None:
        """Remove what is stored about a changefeed; what an unreachable database stores about it stays there."""
        try:
            forget_in_database(self.config_of(record))
        except TidegateError as error:
            LOG.warning("the progress of %s in its target stays there: %s", record.id, error)
        with suppress(TidegateError):  # a configuration that this release refuses
            forget_at_source(self.config_of(record))
        forget_checkpoint(self._config.state_dir(record.id.namespace), record.id.name)
        failpoint("server/forgot-checkpoint")
        self._documents.remove(record.id.document)

    # Runs

    def _start(self, feed: ServedFeed) -> None:
        """Start a run; if it cannot start, the changefeed has failed."""
        with feed.lock:
            try:
                config = self.config_of(feed.record)
            except TidegateError as error:
                self._enter(feed, "failed", FeedError.of(error, since=now()))
                return
            on_report, on_exit = partial(self._on_report, feed), partial(self._on_exit, feed)
            feed.run = RunningFeed(
                feed.record.id, config, self._spark, self._owns, on_report=on_report, on_exit=on_exit
            )
            feed.run.start()

    def _on_report(self, feed: ServedFeed, run: RunningFeed, progress: Progress) -> None:
        """Handle a report of a run: a new state or error is written into the record."""
        if feed.run is not run or feed.record.state not in RUNS:
            return
        state = STATES.get(progress.state, progress.state)
        error = progress.error
        total = progress.rows + progress.ddls
        if total < feed.rows:  # a run that began anew
            feed.rows = 0
        if total > feed.rows:
            self.watch.wrote(feed.record.id, total - feed.rows)
            feed.rows = total
            with feed.lock:
                synced = progress.checkpoint_ts or feed.record.last_synced_ts
                feed.record = msgspec.structs.replace(feed.record, last_synced_ts=synced)
        if feed.record.cancels_load and progress.load and progress.load.is_done:  # before it could be cancelled
            with feed.lock:
                feed.record = msgspec.structs.replace(feed.record, cancels_load=False)
        recorded = feed.record.error
        same = error is recorded or (error is not None and recorded is not None and error.code == recorded.code)
        if state in RUNS and not (same and state == feed.record.state):
            self._settle(feed, state, error)

    def _on_exit(self, feed: ServedFeed, run: RunningFeed, outcome: RunEnd) -> None:
        """Handle the end of a run; a changefeed that was resumed meanwhile is started. A stop that no user requested
        leaves the record for the next owner."""
        with feed.lock:
            run.is_over = True
            is_served = (self._feeds or {}).get(feed.record.id) is feed  # since this server became the owner
            if run.stops and feed.run is run and feed.record.state in RUNS and is_served and self._owns():
                self._start(feed)
                return
        if feed.run is run and feed.record.state in RUNS and outcome.state in {"failed", "finished"}:
            cancelled = outcome.error is not None and outcome.error.code == LoadCancelled.code
            if cancelled:
                with feed.lock:
                    feed.record = msgspec.structs.replace(feed.record, cancels_load=False)
            self._settle(feed, "stopped" if cancelled else outcome.state, outcome.error)

    def _settle(self, feed: ServedFeed, state: str, error: FeedError | None) -> None:
        """Write the state that a run reports, unless a user has changed it meanwhile."""
        with feed.lock:
            if feed.record.state not in RUNS:
                return
            feed.failures += error is not None
            try:
                self._enter(feed, state, error)
            except (NotOwner, StoreAway) as away:
                LOG.warning("the state %s of %s could not be recorded: %s", state, feed.record.id, away)
                if isinstance(away, StoreAway):  # shown all the same; the next change writes it
                    feed.record = msgspec.structs.replace(feed.record, state=state, error=error)


def probe(config: FeedConfig) -> None:
    """Open the sink of a new changefeed once. Raises the error of its address, its account or its rules."""
    sink = feed_of(config).sink
    with sink.run_lock():
        try:
            sink.open(sink.recover())
        finally:
            sink.close()


def _body(record: FeedRecord) -> bytes:
    return msgspec.json.encode(record)


def loads_from(config: Mapping[str, Any]) -> str:
    """Return the database whose rows a changefeed begins with; "" for none."""
    section = config.get("source", {})
    return "" if section.get("load") == "never" else str(section.get("load-from") or "")


def _database(record: FeedRecord) -> str:
    """Return the database that a changefeed has loaded, or is to load; "" for none."""
    source = record.source_uri if _mode(record) == "only" else ""
    return str(record.config.get("source", {}).get("load-from") or source)


def _mode(record: FeedRecord) -> str:
    """Return the mode of a changefeed that loads: a database, or the files of Dumpling, is all that `only` reads."""
    rows = record.config.get("source", {}).get("load-from")
    return "only" if scheme_of(record.source_uri) == full_load.SCHEME or record.source_uri == rows else "initial"


def _reached(view: FeedView) -> Mapping[str, Any]:
    return {name: getattr(view, name) for name in ("checkpoint_ts", "resolved_ts", "upstream_id")}
