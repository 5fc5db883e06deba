"""The schema as a changefeed walks along the log: what it is now, and which DDL comes next.

    job table in the log   J1 running  J1 done  J1 synced  J2 done  J3 done (again J2)
                                         │                    │        │
    timeline               snapshot ──── stop ─── snapshot ── stop ─── stop ──►       walk(): events, next snapshot

A job counts at the put that shows it done, by its commit_ts, and once, however often its row is written again.  Jobs
that TiCDC does not follow are no stops.  An event filter marks events, and so does `bdr` those of others than the
primary's users; the schema moves on all the same.  Between two stops one snapshot holds for all rows: those of the very
ts of a stop belong before it.

The schema where a feed starts is what the log begins with and what all jobs since have made of it.

Source: TiCDC's DDL puller and schema storage.
"""

from collections import deque
from collections.abc import Container
from typing import Final

import msgspec

from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.kv.keys import table_span
from tidegate.model.errors import HistoryLost, TidegateError
from tidegate.model.kv_change import KvOp
from tidegate.schema.job import JOB_TABLE, Job, JobState, decode_job_row
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion, apply_job
from tidegate.source.tidb.ddl import DdlEvent, ddl_events, is_followed, is_primarys, restored, schema_name
from tidegate.source.tidb.log import KvLog, Span
from tidegate.source.tidb.tables import Tables

JOBS: Final[Span] = table_span(JOB_TABLE.id)


class Timeline:
    """The schema at `at`, and the jobs above it that were read so far."""

    def __init__(
        self,
        log: KvLog,
        rules: TableFilter,
        *,
        force: bool = False,
        keeps: bool = False,
        events: EventFilter | None = None,
        ticdc_texts: bool = False,
        bdr: bool = False,
    ) -> None:
        self.tables = Tables(rules.matches, force=force, keeps=keeps)
        self.snapshot = StoredSnapshot()
        self.at = 0
        """How far the snapshot goes."""
        self._log, self._rules, self._events = log, rules, events or EventFilter()
        self._ticdc_texts, self._bdr = ticdc_texts, bdr
        self._read = 0
        self._seen: set[int] = set()
        self._ahead: deque[tuple[int, Job]] = deque()

    def start(self, ts: int, known: Container[tuple[str, str]] | None = None, known_at: int = 0) -> None:
        """Take up the schema at `ts`, for a feed whose sink has the tables `known` at `known_at`, which may be before.

        HistoryLost when the log begins above `ts`."""
        begin, self.snapshot, _ = self._log.begin()
        if ts < begin:
            raise HistoryLost(
                f"the change log begins at {begin}, and {ts} is asked for: what lies between is gone. Begin a new "
                "changefeed without start-ts, with an empty target; a longer --log-keep of the upstream, or a feed "
                "that does not rest longer than gc-ttl, keeps it"
            )
        self._read = begin
        self._seen.clear()
        self._ahead.clear()
        self.read(ts)
        self.tables.meet(self.snapshot.tables.values(), begun=False)
        if known is not None and known_at >= begin:
            self._pass(min(known_at, ts))
            self.tables.carry(known, self.snapshot)
        self._pass(ts)
        self.tables.meet(self.snapshot.tables.values())
        self.at = ts

    def _pass(self, ts: int) -> None:
        """Take up the schema at `ts` without its DDLs."""
        while self._ahead and self._ahead[0][0] <= ts:
            at, job = self._ahead.popleft()
            self.snapshot = apply_job(self.snapshot, job, at)
            self.tables.meet(_changed(job, self.snapshot), instead_of=job.table_id, begun=False)

    def read(self, upto: int) -> None:
        """Look for finished jobs up to there."""
        if upto <= self._read:
            return
        for row in self._log.rows(self._read, upto, (JOBS,)):
            if row.op is not KvOp.PUT or not row.value:
                continue
            job = decode_job_row(row.key, row.value)
            if job.state == JobState.DONE and job.id not in self._seen:
                self._seen.add(job.id)
                if is_followed(job):
                    self._ahead.append((row.commit_ts, msgspec.structs.replace(job, start_ts=row.start_ts)))
        self._read = upto

    def stop(self) -> int | None:
        """Return the ts of the next DDL, of those that were read."""
        return self._ahead[0][0] if self._ahead else None

    def walk(self, ts: int) -> list[DdlEvent]:
        """Go on to `ts`, which lies before or at the next stop. Return the events of the DDLs at `ts`, those that
        are left out marked.

        SchemaError for a job that contradicts the schema: the timeline then stays where it was."""
        try:
            return self._walked(ts)
        except TidegateError as error:
            error.at(commit_ts=ts)
            raise

    def _walked(self, ts: int) -> list[DdlEvent]:
        events: list[DdlEvent] = []
        while self._ahead and self._ahead[0][0] == ts:
            job = self._ahead[0][1]
            before, after = self.snapshot, apply_job(self.snapshot, job, ts)
            wanted = self._rules.matches_schema(schema_name(job, before))
            found = ddl_events(job, ts, before, after, self.tables, wants_schema=wanted)
            stays = self._bdr and not is_primarys(job)
            for each in found:
                left_out = stays or self._events.drops_ddl(each.ddl, each.previous, job.start_ts)
                sent = restored(each, job) if self._ticdc_texts else each
                events.append(sent._replace(left_out=left_out))
            self.tables.meet(_changed(job, after), instead_of=job.table_id)
            self.snapshot = after
            self._ahead.popleft()
        assert not self._ahead or self._ahead[0][0] > ts, (self._ahead[0][0], ts)
        self.at = ts
        return events


def _changed(job: Job, after: StoredSnapshot) -> list[TableVersion]:
    """The tables that a job leaves behind."""
    binlog = job.binlog
    stored = [] if binlog is None else [*([binlog.table] if binlog.table else []), *(binlog.tables or ())]
    return [after.tables[one.id] for one in stored if one.id in after.tables]
