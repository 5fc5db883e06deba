"""Events of several partitions, let through in commit order once every partition has come as far.

    partition 0   r5 r7 R8 r9
    partition 1   r6 D6 R8          held          take()  →  r5 r6 D6 r7 R8          held: r9
    partition 2   D6 R10

What is let through, and in which order:

    rows and DDLs up to the least resolved ts of all partitions, by commit_ts; rows of a DDL's ts before it
    of one partition and one commit_ts, in the order in which they came
    a DDL that several partitions bring: once, by (commit_ts, schema, table, query)
    at last the resolved ts itself, whenever it has grown

A row at or below a resolved ts that was let through has been let through before: a restart of the sender repeats it,
and it is passed over.  A DDL at that very ts may still come, since resolved T is sent before the DDL of T.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Resolved, RowChange

Partition = TypeVar("Partition", bound=Hashable)


class _Held(NamedTuple):
    """An event in its place: rows before DDLs of their ts, both as they came."""

    ts: int
    is_ddl: bool
    number: int
    event: RowChange | Ddl


class WatermarkMerge(Generic[Partition]):
    """The gate of these partitions; all of them have to resolve before anything passes."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._resolved: dict[Partition, int] = dict.fromkeys(partitions, -1)
        self._held: list[_Held] = []
        self._counts: dict[Partition, int] = dict.fromkeys(self._resolved, 0)
        self._owners: dict[int, Partition] = {}
        self._ddls: set[tuple[int, str, str, str]] = set()
        self._passed = -1
        self._number = 0
        self.repeated = 0
        """Rows and DDLs that were passed over."""

    def add(self, partition: Partition, event: RowChange | Ddl | Resolved) -> None:
        """Take what a partition brings next; SchemaError for an event without commit timestamp."""
        if isinstance(event, Resolved):
            self._resolved[partition] = max(self._resolved[partition], event.ts)
            return
        if event.commit_ts is None:
            raise SchemaError(
                f"{event.schema}.{event.table}: an event carries no commit_ts, so it cannot be ordered (canal-json "
                "carries one with enable-tidb-extension=true)"
            )
        if not self._is_new(event, event.commit_ts):
            self.repeated += 1
            return
        self._number += 1
        self._held.append(_Held(event.commit_ts, isinstance(event, Ddl), self._number, event))
        self._counts[partition] += 1
        self._owners[self._number] = partition

    def _is_new(self, event: RowChange | Ddl, ts: int) -> bool:
        if not isinstance(event, Ddl):
            return ts > self._passed
        identity = ts, event.schema, event.table, event.query
        if ts < self._passed or identity in self._ddls:
            return False
        self._ddls.add(identity)
        return True

    @property
    def resolved(self) -> int | None:
        """The least resolved ts of all partitions; None while one has said nothing."""
        least = min(self._resolved.values(), default=-1)
        return None if least < 0 else least

    @property
    def held(self) -> int:
        """Events that wait."""
        return len(self._held)

    def ahead(self, most: int) -> set[Partition]:
        """Partitions that need not be read on for now: more than `most` of their events wait for another one."""
        least = min(self._resolved.values(), default=-1)
        return {one for one, count in self._counts.items() if count > most and self._resolved[one] > least}

    def take(self) -> list[RowChange | Ddl | Resolved]:
        """Return what may pass now, in order."""
        resolved = self.resolved
        if resolved is None:
            return []
        passing = self._out(sorted(one for one in self._held if one.ts <= resolved))
        self._held = [one for one in self._held if one.ts > resolved]
        if resolved <= self._passed:
            return passing
        self._passed = resolved
        self._ddls = {identity for identity in self._ddls if identity[0] >= resolved}
        return [*passing, Resolved(resolved)]

    def rest(self) -> list[RowChange | Ddl | Resolved]:
        """Return all that waits, in order, though more may come between; the gate is empty afterwards."""
        held, self._held = self._held, []
        return self._out(sorted(held))

    def _out(self, held: list[_Held]) -> list[RowChange | Ddl | Resolved]:
        for one in held:
            self._counts[self._owners.pop(one.number)] -= 1
        return [one.event for one in held]
