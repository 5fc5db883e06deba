"""A script as a source: what a Script did comes in by resolved timestamps, with the troubles that it is told to have.

script.marks     R1       R2            R3
rows, DDLs    ───┴────────┴─────────────┴──►  one mark with each `refresh`

repeats          every row is there twice, within its transaction
back             behind each mark comes the one before it: a source that forgets how far it was
late             a DDL comes only when its ts is resolved already
outages          {"refresh": 2}: the first two calls raise SourceError, which passes; for `start`, `refresh`,
`ddls`, `changes`, and `failure`, which ends the reading until it is started anew
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from tidegate.changelog.chunks import chunks_of
from tidegate.changelog.columns import Encoder, RowColumns
from tidegate.engine.change import Chunk, Layout, Place, PlacedDdl
from tidegate.engine.pace import Stretch
from tidegate.engine.ports import Reading, Source, Tasks
from tidegate.model.errors import SourceError, TidegateError
from tidegate.model.event import Ddl, RowChange
from tidegate.model.table import TableInfo, TableName
from tidegate.testing.script import Script

CHUNK_ROWS: Final = 3
"""So few that a range has many chunks."""
TOPIC: Final = "script"


class ScriptedSpan(NamedTuple):
    """What a range has of a table."""

    rows: int
    min_ts: int
    max_ts: int


@dataclass(frozen=True, slots=True)
class ScriptedChanges:
    """The row changes of a script with after < commit_ts <= upto, in commit order."""

    after: int
    upto: int
    rows: tuple[RowChange, ...]

    def tables(self) -> dict[TableName, ScriptedSpan]:
        """Return the tables of the rows, with the exact bounds of each."""
        return {
            name: ScriptedSpan(len(rows), _ts(rows[0]), _ts(rows[-1])) for name, rows in _by_table(self.rows).items()
        }

    def stretches(self) -> Iterator[Stretch]:
        """Return each row as a stretch of its own."""
        return (Stretch(_ts(row), _ts(row), 1, 100) for row in self.rows)

    def layouts(self, name: TableName, after: int, upto: int) -> list[Layout]:
        """Return the different layouts of a table's rows in (after, upto], in the order of their first row."""
        return list(dict.fromkeys(Layout(row.fields, row.pk_names) for row in self._rows((name,), after, upto)))

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of one table in (after, upto], in commit order."""
        return self.in_order((name,), after, upto)

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto]: whole transactions, in commit order."""
        tables = _by_table(self._rows(names, after, upto))
        return chunks_of([landed(name, rows) for name, rows in tables.items()], CHUNK_ROWS)

    def _rows(self, names: Collection[TableName], after: int, upto: int) -> tuple[RowChange, ...]:
        keys = {name.key for name in names}
        inside = (row for row in self.rows if after < _ts(row) <= upto)
        return tuple(row for row in inside if TableName(row.schema, row.table).key in keys)


class ScriptedSource(Source):
    """A source of what `script` did; the module says what its troubles are."""

    def __init__(
        self,
        script: Script,
        *,
        repeats: bool = False,
        back: bool = False,
        late: bool = False,
        outages: Mapping[str, int] | None = None,
    ) -> None:
        self.script = script
        self._repeats = 2 if repeats else 1
        self._steps = list(_steps(script, back=back, late=late))
        self._outages = Counter(outages)
        self._at = -1
        self._failure: TidegateError | None = None

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002  nothing is read beside the rounds
        """Begin before the first mark, whatever the checkpoint."""
        self._trouble("start")
        self._failure, self._at = None, -1
        return self.script.begin if checkpoint_ts is None else checkpoint_ts

    def stop(self) -> None:
        """Do nothing: nothing runs."""

    def failure(self) -> TidegateError | None:
        """Return the failure that the last `refresh` had, until the next start."""
        return self._failure

    def idle(self) -> bool:
        """Return True behind the last mark."""
        return self._at >= len(self._steps) - 1

    def refresh(self) -> None:
        """Go on to the next mark."""
        self._trouble("refresh")
        if self._failure is None and self._outages["failure"]:
            self._outages["failure"] -= 1
            self._failure = SourceError("the script has stopped")
        if self._failure is None:
            self._at = min(self._at + 1, len(self._steps) - 1)

    def frontier(self) -> int | None:
        """Return the mark that came last; None before the first."""
        return self._steps[self._at].mark if self._at >= 0 else None

    def definitions(self, ts: int) -> Sequence[TableInfo]:  # noqa: ARG002
        """Return nothing: a script creates its tables."""
        return ()

    def ddls(self, after: int, upto: int) -> list[PlacedDdl]:
        """Return each DDL with after <= commit_ts <= upto that has come."""
        self._trouble("ddls")
        hidden = self._steps[self._at].hidden if self._at >= 0 else None
        ddls = [(seq, ddl) for seq, ddl in enumerate(self.script.ddls(upto)) if _ts(ddl) >= after]
        return [PlacedDdl(Place(TOPIC, 0, seq), ddl) for seq, ddl in ddls if _ts(ddl) != hidden]

    def changes(self, after: int, upto: int) -> ScriptedChanges:
        """Return the rows with after < commit_ts <= upto."""
        self._trouble("changes")
        rows = (row for row in self.script.rows(upto) if _ts(row) > after)
        return ScriptedChanges(after, upto, tuple(self._repeated(rows)))

    def release(self, checkpoint_ts: int) -> None:
        """Keep everything."""

    def reading(self) -> Reading:
        """Return how many marks have come, as messages."""
        return Reading(messages=self._at + 1)

    def _repeated(self, rows: Iterable[RowChange]) -> Iterator[RowChange]:
        transactions: dict[int, list[RowChange]] = {}
        for row in rows:
            transactions.setdefault(_ts(row), []).append(row)
        for transaction in transactions.values():
            yield from transaction * self._repeats

    def _trouble(self, call: str) -> None:
        if self._outages[call]:
            self._outages[call] -= 1
            raise SourceError(f"the script is away: {call}")


class _Step(NamedTuple):
    """A resolved ts that comes, and the ts whose DDLs are still to come then."""

    mark: int
    hidden: int | None = None


def _steps(script: Script, *, back: bool, late: bool) -> Iterator[_Step]:
    stops = sorted({_ts(ddl) for ddl in script.ddls(script.ts)}) if late else []
    before = script.begin
    for mark in script.marks:
        for stop in stops:
            if before < stop <= mark:
                yield _Step(stop, hidden=stop)
        yield _Step(mark)
        if back:
            yield _Step(before)
        before = mark
    if back and script.marks:
        yield _Step(before)


def _by_table(rows: Iterable[RowChange]) -> dict[TableName, list[RowChange]]:
    found: dict[TableName, list[RowChange]] = {}
    for row in rows:
        found.setdefault(TableName(row.schema, row.table), []).append(row)
    return found


def _ts(event: RowChange | Ddl) -> int:
    assert event.commit_ts is not None
    return event.commit_ts


def landed(name: TableName, rows: Sequence[RowChange]) -> pa.Table:
    """Return rows of a table as a changelog holds them."""
    encoder, columns = Encoder(), RowColumns(TOPIC, 0, name)
    for seq, row in enumerate(rows):
        columns.add(0, encoder.encode(row, seq))
    return columns.table()
