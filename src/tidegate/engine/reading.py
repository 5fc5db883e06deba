"""The reports of a source: `Reading`, with the progress of its partitions, loads and capture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import PathCounts


class PartitionReached(NamedTuple):
    """The progress of one partition: the next offset to read, its end offset (None: not known), its largest
    resolved_ts."""

    topic: str
    partition: int
    offset: int
    high: int | None = None
    resolved_ts: int | None = None


class LoadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a full load at the TSO `ts`: `table` is the one that is read now; `guarded_until_ms` is the time
    until which `ts` is protected from garbage collection (Unix milliseconds), 0 if that is not known; `rests_until`
    is the time of the day until which it does not read, "" while it may. `silent` counts the loaded tables of which the
    stream has brought nothing above `silent_since`, and some are named. Bytes are those that the upstream estimates;
    rate, time left and duration are of this run, 0 where they are not known."""

    ts: int
    tables: int
    tables_done: int
    chunks: int
    chunks_done: int
    table: str = ""
    guarded_until_ms: int = 0
    rests_until: str = ""
    silent: int = 0
    silent_tables: tuple[str, ...] = ()
    silent_since: int = 0
    size_bytes: int = 0
    bytes_done: int = 0
    bytes_per_s: float = 0.0
    left_s: float = 0.0
    duration_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.chunks_done == self.chunks


class ReloadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last reload beside a feed: `about` is its tables, `state` waiting, planning, loading, sweeping, done or an
    error, and `load` is of one that is loading."""

    about: str
    state: str
    load: LoadProgress | None = None


class CaptureProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The capture of a cluster: `ts` is the end of its change log, 0 before there is one. Bytes of rows wait for the
    resolved ts in memory (`waiting`) and in files (`spilled`), and for the COMMIT of their transaction (`uncommitted`);
    those of the log are not trimmed. `waits_for` is what holds its begin back, `held_by` the region or transaction that
    holds the resolved ts back, `cluster` the cluster's id; "" without one."""

    ts: int = 0
    waiting_bytes: int = 0
    spilled_bytes: int = 0
    uncommitted_bytes: int = 0
    log_bytes: int = 0
    waits_for: str = ""
    held_by: str = ""
    cluster: str = ""


class DdlJob(msgspec.Struct, frozen=True):
    """A DDL that runs upstream, where the source tells of it: its text, its schema state as of what was read, and when
    it began."""

    query: str
    state: str
    start_ts: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A source's report; counts are since its start."""

    messages: int = 0
    rows: int = 0
    lands: bool = False
    """True if rows are kept in a changelog, and counted, before the sink gets them."""
    dead_letters: int = 0
    corrupt: int = 0
    partitions: tuple[PartitionReached, ...] = ()
    path_counts: PathCounts = field(default_factory=PathCounts)
    """Rows by path, such as `land/template`, `land/rows`, and those that filters removed."""
    left_out: tuple[LeftOut, ...] = ()
    """Tables of the filter that the source does not carry."""
    table_ids: Sequence[int] = ()
    """Physical ids of those that it carries; none if it has names only."""
    load: LoadProgress | None = None
    """The full load of a feed that began with one."""
    reload: ReloadProgress | None = None
    """The last reload or repair whose rows come through the feed."""
    capture: CaptureProgress | None = None
    """The capture that runs beside the feed."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user, each given once."""
    jobs: tuple[DdlJob, ...] = ()
    """DDLs that run upstream."""
    begin_ts: int = 0
    """The ts up to which the retention of a topic has removed messages; 0: nothing, or it is unknown."""
