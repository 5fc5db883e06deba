"""An error as a changefeed shows it: its code, the table, timestamp and place that it speaks of, since when, next try.

    MessageTooLarge(.., at: table gt.t_big, commit_ts 470..)  ──►  {"code":"CDC:ErrMessageTooLarge","table":"gt.t_big",
                                                                   "commit_ts":470..,"since":"2026-01-31T10:00:00Z",..}

Errors carry their place as attributes (`TidegateError.at`), from the task that raised them to here.

Source: `error` of a changefeed in TiCDC's OpenAPI v2.
"""

from datetime import UTC, datetime

import msgspec

from tidegate.engine.parked import Parked
from tidegate.model.errors import TidegateError
from tidegate.model.tso import compose, to_datetime


class FeedError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a changefeed waits out, or what ended it. `next_try_s` is None when there is no next try.

    `topic`, `partition` and `offset`, or `file`, say where the error lies, `table` and `commit_ts` in which row."""

    code: str
    message: str
    since: str
    table: str = ""
    commit_ts: int = 0
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    file: str = ""
    tries: int = 1
    next_try_s: float | None = None

    @classmethod
    def of(cls, error: TidegateError, *, since: str, tries: int = 1, next_try_s: float | None = None) -> "FeedError":
        """Return `error` as it is shown."""
        places = msgspec.structs.asdict(error.where)
        return cls(code=error.code, message=str(error), since=since, tries=tries, next_try_s=next_try_s, **places)

    @classmethod
    def of_parked(cls, group: Parked, name: str) -> "FeedError":
        """Return why the table `name` is parked."""
        since = to_datetime(compose(group.since_ms)).isoformat(timespec="milliseconds")
        return cls(code=group.code, message=group.message, since=since, table=name, commit_ts=group.commit_ts)

    def __str__(self) -> str:
        where = f" in {self.table}" if self.table else ""
        where += f" at commit_ts {self.commit_ts}" if self.commit_ts else ""
        times = f", {self.tries} tries" if self.tries > 1 else ""
        again = "" if self.next_try_s is None else f" (next try in {self.next_try_s:.0f} s)"
        return f"{self.code}{where} since {self.since}{times}: {' '.join(self.message.split())}{again}"


def now() -> str:
    """Return the time of now in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
