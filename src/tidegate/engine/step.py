"""What a round asks of a sink: steps on stored tables, in order of position.

    position = (ts, seq)       Rows up to T end at (T, 0);  the n-th DDL at T ends at (T, n)

A row with commit_ts == D belongs before the DDL at D, so positions compare as pairs.  A sink keeps the position of
each table in the very commit that moves it there; a step at or below it is done and is skipped.  Steps are values:
made on the driver, run by a worker, repeated after a crash with the same result.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from tidegate.model.event import UNTOLD, ToldSession
from tidegate.model.table import TableInfo

Position: TypeAlias = tuple[int, int]


class Rows(msgspec.Struct, frozen=True):
    """Apply the row changes of `table` (by its name of that time) with after < commit_ts <= upto."""

    table: TableInfo
    after: int
    upto: int


class Create(msgspec.Struct, frozen=True):
    """Make the stored table of a new incarnation, empty; `old` is the one that a TRUNCATE emptied."""

    table: TableInfo
    ts: int
    seq: int
    old: TableInfo | None = None


class Alter(msgspec.Struct, frozen=True):
    """Turn stored rows and columns of `old` into those of `new`, as the session of the DDL does."""

    old: TableInfo
    new: TableInfo
    ts: int
    seq: int
    query: str = ""
    session: ToldSession = UNTOLD


class Trim(msgspec.Struct, frozen=True):
    """Remove the rows that lie in the named partitions of `old`, whose definition says where a row lies."""

    old: TableInfo
    new: TableInfo
    partitions: tuple[str, ...]
    ts: int
    seq: int
    query: str = ""


class Exchange(msgspec.Struct, frozen=True):
    """Swap the rows of one partition of `partitioned` with all rows of `other`."""

    partitioned: TableInfo
    partition: str
    other: TableInfo
    ts: int
    seq: int
    query: str = ""


Step: TypeAlias = Rows | Create | Alter | Trim | Exchange


class Unit(msgspec.Struct, frozen=True):
    """Steps that one worker runs in order; units are independent of each other."""

    steps: tuple[Step, ...]
    rows: int = 0
    """How many row changes the unit holds, to start the longest first."""

    @property
    def tables(self) -> list[TableInfo]:
        """The tables that it works on, as its steps name them."""
        found: list[TableInfo] = []
        for step in self.steps:
            match step:
                case Rows():
                    found.append(step.table)
                case Create():
                    found += [step.table] if step.old is None else [step.table, step.old]
                case Alter() | Trim():
                    found.append(step.old)
                case Exchange():
                    found += [step.partitioned, step.other]
        return found

    @property
    def incarnations(self) -> frozenset[str]:
        """The ids of those tables' rows."""
        return frozenset(table.incarnation for table in self.tables)


def position_of(step: Step) -> Position:
    """Return where a table stands once `step` is done."""
    return (step.upto, 0) if isinstance(step, Rows) else (step.ts, step.seq)


def row_steps(units: Iterable[Unit]) -> list[Rows]:
    """Return the steps of some units that are rows."""
    return [step for unit in units for step in unit.steps if isinstance(step, Rows)]
