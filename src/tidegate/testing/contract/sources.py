"""The contract suite of sources: the guarantees that the engine relies on.

    class TestMySource(SourceContract):
        def source(self, home):  return MySource(...)      a new object on the same data each time
        def more(self, source):  ...                       make more data available; False if there is none

pytest then runs every case.  Sources of one home read the same data; `more` is for data that arrives in steps.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

import pytest

from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.engine.change import Chunk, ChunkPart, Layout, SourceDdl
from tidegate.engine.plan import Checkpoint, identity
from tidegate.engine.ports import Changes, LocalTasks, Source
from tidegate.engine.segment import segment_end
from tidegate.model.errors import Retry, TidegateError, Where
from tidegate.model.event import RowChange
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.testing.script import commit_time
from tidegate.testing.validators import event_text

STEPS_MAX: Final = 10_000
"""Most rounds of a test."""


@dataclass(frozen=True)
class _Segment:
    """A range of changes between two stops, and the DDLs at its end."""

    changes: Changes
    ddls: tuple[SourceDdl, ...]

    @cached_property
    def rows(self) -> list[str]:
        return listed(every(self.changes))


@dataclass
class _Walk:
    """What an engine gets that reads to the end, DDL by DDL."""

    begun: int
    segments: list[_Segment] = field(default_factory=list)
    frontiers: list[int] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)

    def rows(self) -> list[str]:
        """Return all rows as text, in commit order."""
        return [row for segment in self.segments for row in segment.rows]

    def ddls(self) -> list[tuple[int | None, str]]:
        """Return all DDLs in order."""
        return [
            (source_ddl.ddl.commit_ts, source_ddl.ddl.query) for segment in self.segments for source_ddl in segment.ddls
        ]


class SourceContract:
    """The test cases; override `source`, and other methods as needed."""

    across_ddls: ClassVar[bool] = True
    """True if a range of changes may have DDLs inside."""
    inclusive: ClassVar[bool] = True
    """True if DDLs of a resolved timestamp may still come, so that `ddls` returns those at `after` again."""

    def source(self, home: Path) -> Source:
        """Return a new source over the same material."""
        raise NotImplementedError

    def more(self, source: Source) -> bool:  # noqa: ARG002
        """Make more of the material available; return False when all of it is."""
        return False

    def going_back(self, home: Path) -> Source | None:  # noqa: ARG002
        """Return a source that reports a lower resolved ts after a higher one; None if it never does."""
        return None

    def damaged(self, home: Path) -> tuple[Source, Where] | None:  # noqa: ARG002
        """Return a source with something that it cannot read, and its position; None to skip the test."""
        return None

    def away(self, home: Path) -> Source | None:  # noqa: ARG002
        """Return a source whose upstream does not answer; None to skip the test."""
        return None

    # --- the frontier ---

    def test_the_frontier_never_goes_back(self, tmp_path: Path) -> None:
        """The frontier rises to an end where the source is idle, with rows on the way."""
        source = self.source(tmp_path)
        walk = self.walk(source)

        assert walk.frontiers == sorted(walk.frontiers)
        assert source.idle()
        assert source.failure() is None
        assert walk.rows()
        assert walk.ddls()

    def test_a_lower_resolved_ts_is_ignored(self, tmp_path: Path) -> None:
        """A repeated or late resolved ts moves nothing."""
        source = self.going_back(tmp_path)
        if source is None:
            pytest.skip("this source is told no resolved ts")
        frontiers = self.walk(source).frontiers
        assert frontiers == sorted(frontiers)

    # --- rows ---

    def test_chunks_are_whole_transactions_in_order(self, tmp_path: Path) -> None:
        """Chunks number their rows and transactions, go up in commit_ts, and cut no transaction."""
        for segment in self.walk(self.source(tmp_path)).segments:
            check_order(list(every(segment.changes)), segment.changes.after, segment.changes.upto)

    def test_a_table_alone_is_the_table_among_others(self, tmp_path: Path) -> None:
        """`batches` of a table returns the rows that `in_order` has of it, in the same order."""
        for segment in self.walk(self.source(tmp_path)).segments:
            changes = segment.changes
            rows = rows_of(every(changes))
            for name in changes.tables():
                alone = rows_of(changes.batches(name, changes.after, changes.upto))
                assert list(map(event_text, alone)) == [event_text(row) for row in rows if key_of(row) == name.key], (
                    name
                )

    def test_ranges_add_up(self, tmp_path: Path) -> None:
        """(a, b] and (b, c] are (a, c], from one value or from the source; no row is in two."""
        walk, source = self.walk(self.source(tmp_path)), self.source(tmp_path)
        self.walk(source, upto=walk.begun)
        for segment in walk.segments:
            changes, rows = segment.changes, rows_of(every(segment.changes))
            middle = commit_time(rows[len(rows) // 2]) if rows else changes.after
            halves = [(changes.after, middle), (middle, changes.upto)]
            names = list(changes.tables())
            assert [row for low, high in halves for row in listed(changes.in_order(names, low, high))] == segment.rows
            ranges = [source.changes(low, high) for low, high in halves if low < high]
            assert [row for part in ranges for row in listed(every(part))] == segment.rows

    def test_a_range_across_ddls(self, tmp_path: Path) -> None:
        """A range with DDLs inside holds the rows of its segments."""
        if not self.across_ddls:
            pytest.skip("this source gives ranges between DDLs")
        source = self.source(tmp_path)
        walk = self.walk(source)
        assert listed(every(source.changes(walk.begun, walk.frontiers[-1]))) == walk.rows()

    def test_what_is_told_without_reading(self, tmp_path: Path) -> None:
        """Spans bound the rows of each table, ranges cover them, layouts are those of their batches."""
        for segment in self.walk(self.source(tmp_path)).segments:
            changes = segment.changes
            stretches, spans = list(changes.row_ranges()), {name.key: span for name, span in changes.tables().items()}
            chunks = list(every(changes))
            rows = rows_of(chunks)
            assert sum(each.rows for each in stretches) >= len(rows)
            for row in rows:
                ts, span = commit_time(row), spans[key_of(row)]
                assert span.min_ts <= ts <= span.max_ts
                assert any(each.first_ts <= ts <= each.last_ts for each in stretches)
            for name in changes.tables():
                mine = [
                    part.batch for part in parts_of(chunks) if TableName(part.batch.schema, part.batch.table) == name
                ]
                assert spans[name.key].rows >= sum(batch.rows for batch in mine)
                layouts = changes.layouts(name, changes.after, changes.upto)
                assert {Layout(batch.fields, batch.pk_names) for batch in mine} <= set(layouts)

    def test_changes_travel(self, tmp_path: Path) -> None:
        """Changes can be pickled, and the copy reads the same rows."""
        for segment in self.walk(self.source(tmp_path)).segments:
            copy: Changes = pickle.loads(pickle.dumps(segment.changes))  # noqa: S301  our own, a moment ago
            assert (copy.after, copy.upto) == (segment.changes.after, segment.changes.upto)
            assert listed(every(copy)) == segment.rows

    # --- DDLs and definitions ---

    def test_ddls_come_once_in_order(self, tmp_path: Path) -> None:
        """Each DDL is returned once, with its commit_ts, by (commit_ts, arrival); also at `after` itself."""
        source = self.source(tmp_path)
        walk = self.walk(source)
        source_ddl = [source_ddl for segment in walk.segments for source_ddl in segment.ddls]
        marks = [(ddl.ddl.commit_ts, identity(ddl.ddl)) for ddl in source_ddl]
        assert len(set(marks)) == len(marks)
        assert [ts for ts, _ in marks] == sorted(ts for ts, _ in marks if ts is not None)
        if self.inclusive:
            ts = source_ddl[-1].ddl.commit_ts
            assert ts is not None
            assert source_ddl[-1] in source.ddls(ts, walk.frontiers[-1])

    def test_rows_fit_the_definition_of_their_time(self, tmp_path: Path) -> None:
        """A row has the columns of its table just before its commit_ts: one at a DDL's timestamp comes before it."""
        source = self.source(tmp_path)
        walk = self.walk(source)
        state = SchemaState()
        for table in self.source_at(tmp_path, walk.begun).definitions(walk.begun):
            state = state.with_table(table)
        for segment in walk.segments:
            for row in rows_of(every(segment.changes)):
                definition = state.table(TableName(row.schema, row.table))
                if definition is not None:
                    columns = {column.name for column in definition.columns if not column.virtual}
                    assert {column.name for column in row.fields} == columns, event_text(row)
            for seq, source_ddl in enumerate(segment.ddls, start=1):
                state, _ = apply_ddl(state, source_ddl.ddl, seq)

    # --- starting again ---

    def test_going_on_from_a_checkpoint(self, tmp_path: Path) -> None:
        """A source started at a checkpoint returns the changes after it, whatever was released and stopped before."""
        source = self.source(tmp_path)
        walk = self.walk(source)
        source.stop()
        for index in (len(walk.segments) // 3, len(walk.segments) - 2):
            again = self.walk(self.source(tmp_path), walk.checkpoints[index])
            rest = _Walk(again.begun, walk.segments[index + 1 :])
            assert again.begun == walk.checkpoints[index].ts
            assert (again.rows(), again.ddls()) == (rest.rows(), rest.ddls())

    def test_a_second_start(self, tmp_path: Path) -> None:
        """A source that was stopped starts again, as it does after a failure."""
        source = self.source(tmp_path)
        source.start(LocalTasks(), None)
        source.stop()
        whole = self.walk(self.source(tmp_path))
        assert self.walk(source).rows() == whole.rows()

    # --- what goes wrong ---

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        """It ends the reading with an error that states its position and does not pass; everything before it is
        read."""
        damage = self.damaged(tmp_path)
        if damage is None:
            pytest.skip("nothing is damaged here")
        source, where = damage
        with pytest.raises(TidegateError) as failed:
            self.walk(source)
        assert failed.value.retry is Retry.NEVER
        assert failed.value.where == where
        assert pickle.loads(pickle.dumps(failed.value)).where == where  # noqa: S301

    def test_an_outage(self, tmp_path: Path) -> None:
        """An upstream that does not answer is an error that may pass."""
        source = self.away(tmp_path)
        if source is None:
            pytest.skip("this source has nobody to wait for")
        with pytest.raises(TidegateError) as failed:
            self.walk(source)
        assert failed.value.retry is Retry.LATER

    # --- what the cases share ---

    def source_at(self, home: Path, ts: int) -> Source:
        """Return a new source that was started at `ts`."""
        source = self.source(home)
        source.start(LocalTasks(), ts)
        return source

    def walk(self, source: Source, checkpoint: Checkpoint | None = None, *, upto: int | None = None) -> _Walk:
        """Read like an engine that stops at every DDL; raise the failure that ends the reading.

        With `upto`, all data is available and `more` is not called."""
        start_ts = source.start(LocalTasks(), None if checkpoint is None else checkpoint.ts)
        walk, checkpoint_now = _Walk(start_ts), checkpoint or Checkpoint(start_ts)
        for _ in range(STEPS_MAX):
            more, advanced = self.more(source), False
            source.refresh()
            frontier = source.frontier()
            if frontier is not None:
                walk.frontiers.append(frontier)
            while (
                upto is None
                and frontier is not None
                and (step := self.step(source, checkpoint_now, frontier)) is not None
            ):
                segment, checkpoint_now = step
                walk.segments.append(segment)
                walk.checkpoints.append(checkpoint_now)
                source.release(checkpoint_now.ts)
                advanced = True
            if (failure := source.failure()) is not None:
                raise failure
            if not (more or advanced) and (upto is not None or source.idle()):
                return walk
        pytest.fail(f"the source has no end in {STEPS_MAX} steps")

    def step(self, source: Source, checkpoint: Checkpoint, frontier: int) -> tuple[_Segment, Checkpoint] | None:
        """Return the segment between a checkpoint and the next DDL, and the checkpoint after it; None at the
        frontier."""
        if frontier < checkpoint.ts:
            return None
        ddls = source.ddls(checkpoint.ts, frontier)
        end = segment_end(checkpoint, ddls, frontier)
        already_done = checkpoint.done if end == checkpoint.ts else ()
        source_ddl = tuple(ddl for ddl in ddls if ddl.ddl.commit_ts == end and identity(ddl.ddl) not in already_done)
        if end == checkpoint.ts and not source_ddl:
            return None
        done = (*already_done, *(identity(ddl.ddl) for ddl in source_ddl))
        return _Segment(source.changes(checkpoint.ts, end), source_ddl), Checkpoint(end, done)


def every(changes: Changes) -> Iterator[Chunk]:
    """Return all rows of some changes."""
    return changes.in_order(list(changes.tables()), changes.after, changes.upto)


def parts_of(chunks: Iterable[Chunk]) -> Iterator[ChunkPart]:
    """Return the parts of some chunks."""
    return (part for chunk in chunks for part in chunk.parts)


def rows_of(chunks: Iterable[Chunk]) -> list[RowChange]:
    """Return the rows of chunks in the order of their numbers."""
    ordered: list[RowChange] = []
    for chunk in chunks:
        numbered = [
            (number, row)
            for part in chunk.parts
            for number, row in zip(part.numbers.tolist(), events_of(part.batch), strict=True)
        ]
        ordered += [row for _, row in sorted(numbered, key=lambda pair: pair[0])]
    return ordered


def listed(chunks: Iterable[Chunk]) -> list[str]:
    """Return the rows of chunks as text; those of one commit_ts table by table, since tables have no order within
    it."""
    return [event_text(row) for row in sorted(rows_of(chunks), key=lambda row: (commit_time(row), key_of(row)))]


def key_of(row: RowChange) -> tuple[str, str]:
    """Return the table of a row, as names are compared."""
    return TableName(row.schema, row.table).key


def check_order(chunks: Sequence[Chunk], after: int, upto: int) -> None:
    """Assert the guarantees of engine/change.py about chunks."""
    last = (after, -1)
    for chunk in chunks:
        assert len(chunk) > 0
        numbers = [number for part in chunk.parts for number in part.numbers.tolist()]
        assert sorted(numbers) == list(range(len(chunk)))
        transaction = chunk.transaction.tolist()
        assert transaction[0] == 0
        assert all(later - number in (0, 1) for number, later in pairwise(transaction))
        times: dict[int, set[tuple[int, int]]] = {}
        for part in chunk.parts:
            starts = part.batch.start_ts
            begun = [0] * part.batch.rows if starts is None else starts.to_pylist()
            assert part.numbers.tolist() == sorted(part.numbers.tolist())
            for number, ts, start in zip(part.numbers.tolist(), part.batch.commit_ts.to_pylist(), begun, strict=True):
                times.setdefault(transaction[number], set()).add((ts, start))
        for _, of_one in sorted(times.items()):
            (moment,) = of_one
            assert moment > last, "a transaction is cut, or lies behind a later one"
            last = moment
    assert last[0] <= upto
