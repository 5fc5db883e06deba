"""One side whose rows this process reads itself: a lake at one moment, or a moment of a recording.

    lake at ts      the snapshot of that very ts, else a live view: what landed up to ts on top of the one before
    recording       the moment whose ts it is

Rows of a table are read once; the last table's are kept until the next one is asked for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered, parts_of
from tidegate.model.table import TableInfo
from tidegate.schema.columns import render_type
from tidegate.verify.chunk import ChunkPlan, ChunkSum, ComparedTable, RowHasher
from tidegate.verify.lake import Key, Truth, TruthColumn, TruthTable, lake_values, load_truth, table_at, truth_value

if TYPE_CHECKING:
    from tidegate.lakes.lake import Lake
    from tidegate.lakes.live import Live
    from tidegate.sink.delta.options import DeltaOptions

Rows = tuple[list[Key], frozenset[str]]
ReadRows = Callable[[ComparedTable, Sequence[TruthColumn]], Rows]


class LocalSide:
    """Tables by their names in lower case, and `read`, which gives a table's rows."""

    def __init__(self, place: str, tables: Mapping[str, ComparedTable], read: ReadRows) -> None:
        self.place, self.tables, self._read = place, tables, read
        self._kept: tuple[ComparedTable, ChunkPlan] | None = None
        self._rows: list[Key] = []
        self.calendar: frozenset[str] = frozenset()
        """Columns of the table read last that hold NULL for a day that no calendar has, in lower case."""

    def sums(self, shape: ComparedTable, plan: ChunkPlan) -> dict[int, ChunkSum]:
        """Return what each chunk of a table holds."""
        return RowHasher(shape, plan).sums(self._of(shape, plan))

    def rows(self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int]) -> Iterator[tuple[int, Key]]:
        """Return the rows of some chunks, each with its chunk, chunk after chunk."""
        hasher = RowHasher(shape, plan)
        found: dict[int, list[Key]] = {chunk: [] for chunk in sorted(chunks)}
        for row in self._of(shape, plan):
            if (rows := found.get(hasher.chunk(row))) is not None:
                rows.append(row)
        yield from ((chunk, row) for chunk, rows in found.items() for row in rows)

    def _of(self, shape: ComparedTable, plan: ChunkPlan) -> list[Key]:
        if self._kept != (shape, plan):
            self._rows, self.calendar = self._read(shape, shape.chosen(plan.columns))
            self._kept = shape, plan
        return self._rows


def recording_side(recording: Path, ts: int, passes: Callable[[str, str], bool]) -> LocalSide:
    """Return the tables of a recording at `ts`. ConfigError where it has no such moment."""
    truths = load_truth(recording)
    found = next((truth for truth in truths if truth.ts == ts), None)
    if found is None:
        moments = ", ".join(f"{truth.ts}" for truth in truths)
        raise ConfigError(f"the recording {recording} has no moment {ts}; it has {moments}")
    return truth_side(str(recording), found, passes)


def truth_side(place: str, truth: Truth, passes: Callable[[str, str], bool] = lambda *_: True) -> LocalSide:
    """Return the tables of a moment that is told whole."""
    tables = {lowered(name): table for name, table in truth.tables.items() if passes(*parts_of(name))}
    shapes = {
        lowered(name): ComparedTable(name, table.key, table.columns)
        for name, table in truth.tables.items()
        if lowered(name) in tables
    }
    return LocalSide(place, shapes, partial(_recorded, tables))


def _recorded(tables: Mapping[str, TruthTable], shape: ComparedTable, columns: Sequence[TruthColumn]) -> Rows:
    table = tables[lowered(shape.name)]
    places = [table.columns.index(column) for column in columns]
    return [tuple(truth_value(row[at], as_date=False) for at in places) for row in table.rows], frozenset()


@contextmanager
def lake_side(root: str, ts: int, passes: Callable[[str, str], bool]) -> Iterator[LocalSide]:
    """Give the tables of a lake at exactly `ts`. ConfigError or HistoryLost where it cannot show that moment."""
    from tidegate.lakes.lake import Lake

    lake = Lake(root).at(ts)
    if lake.checkpoint_ts == ts:
        yield _lake(root, lake, lake.snapshot.options or lake.options, passes)
        return
    with lake.live() as view:
        yield _lake(root, view, view.options, passes)


def _lake(root: str, view: "Lake | Live", options: "DeltaOptions", passes: Callable[[str, str], bool]) -> LocalSide:
    shapes = {
        lowered(name): _lake_shape(view.definition(name), options) for name in view.tables() if passes(*parts_of(name))
    }
    return LocalSide(root, shapes, partial(_stored, view))


def _lake_shape(table: TableInfo, options: "DeltaOptions") -> ComparedTable:
    from tidegate.sink.delta.selection import stored_definition

    kept = stored_definition(table, options).columns
    columns = (
        TruthColumn(column.name, render_type(column.type), generated="virtual" if column.virtual else "")
        for column in kept
    )
    return ComparedTable(str(table.name), table.handle_key, tuple(columns), is_whole=len(kept) == len(table.columns))


def _stored(view: "Lake | Live", shape: ComparedTable, columns: Sequence[TruthColumn]) -> Rows:
    import pyarrow as pa

    found = table_at(shape.key, view.checkpoint_ts, view.arrow(shape.name))
    by_name = {lowered(name): found.column(name) for name in found.column_names}
    values = {lowered(column.name): by_name[lowered(column.name)] for column in columns}
    days = {name for name, one in values.items() if pa.types.is_date(one.type) or pa.types.is_timestamp(one.type)}
    rows = zip(*(lake_values(column, values[lowered(column.name)]) for column in columns), strict=True)
    return list(rows), frozenset(days)
