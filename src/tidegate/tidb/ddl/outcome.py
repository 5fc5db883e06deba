"""What the end of a job means to whoever asked for it.

synced, done                  fine                     rollback_done, cancelled      the error that it carries
"""

from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.job import Job, JobState

__all__ = ["JobError", "error_of", "result_of"]

_UNKNOWN: Final = 1105


class JobError(msgspec.Struct, frozen=True):
    """`Job.err`."""

    code: int = _UNKNOWN
    message: str = "the job was taken back"
    sqlstate: str = "HY000"


def error_of(job: Job) -> JobError | None:
    """Return the last error of a job; None when it had none."""
    raw = bytes(job.error)
    return None if raw == b"null" else msgspec.json.decode(raw, type=JobError)


def result_of(job: Job) -> Job:
    """Return the job when it reached its end; SqlRefused with its error when it was taken back."""
    if job.state in (JobState.SYNCED, JobState.DONE):
        return job
    error = error_of(job) or JobError()
    raise SqlRefused(error.code, error.message, error.sqlstate)
