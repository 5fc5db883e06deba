"""Stored definitions over time: one snapshot for each finished DDL that changed something.

    start ── job at 10 ──► snapshot ── job at 20 ──► snapshot        at(15): the one of 10        at(20): the one of 20

Jobs come in the order of their commit_ts; each counts once, however often its row is written after it is done.

Source: TiCDC's schema storage.
"""

from bisect import bisect_right

from tidegate.model.errors import SchemaError
from tidegate.schema.job import Job, JobState
from tidegate.schema.stored.snapshot import StoredSnapshot, apply_job


class SchemaHistory:
    """Snapshots by the commit_ts of the DDL that made them, oldest first."""

    def __init__(self, start: StoredSnapshot | None = None) -> None:
        self._snapshots = [start or StoredSnapshot()]
        self._jobs: set[int] = set()

    def apply(self, job: Job, commit_ts: int) -> None:
        """Add what a finished job makes of the newest snapshot; other jobs, and one that comes again, change nothing.
        SchemaError for a job that contradicts it: the history then stays as it was."""
        if job.state not in (JobState.DONE, JobState.SYNCED) or job.id in self._jobs:
            return
        newest = self._snapshots[-1]
        if commit_ts < newest.ts:
            raise SchemaError(f"DDL job {job.id} at {commit_ts} comes after one at {newest.ts}; sort jobs by commit_ts")
        changed = apply_job(newest, job, commit_ts)
        self._jobs.add(job.id)
        if changed is not newest:
            self._snapshots.append(changed)

    def at(self, ts: int) -> StoredSnapshot:
        """Return the snapshot at `ts`: all DDLs up to it. SchemaError below the oldest one."""
        place = bisect_right(self._snapshots, ts, key=lambda snapshot: snapshot.ts)
        if place == 0:
            raise SchemaError(f"the schema at {ts} is forgotten; the oldest known one is at {self._snapshots[0].ts}")
        return self._snapshots[place - 1]

    def forget(self, ts: int) -> None:
        """Drops what no row above `ts` needs."""
        place = bisect_right(self._snapshots, ts, key=lambda snapshot: snapshot.ts)
        del self._snapshots[: max(place - 1, 0)]
