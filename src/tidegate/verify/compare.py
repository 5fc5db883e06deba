"""The comparer: an upstream and a target at one timestamp, table by table, with any pair of readers.

    upstream ── all rows, in columns ──► sums of chunks ──┐
                                                          ├─ equal: done      most tables, no row of which is kept
    target   ── all rows, in columns ──► sums of chunks ──┘
                     │ different chunks
    upstream ── their rows ──┐  chunk by chunk, by meaning
                             ├─ equal: gone
    target   ── their rows ──┘
                     │ rows of one side alone
                     └─ by key ──► differences

A reader returns tables with their columns, their counts, columns and rows: a lake or a recording (local.py), a server
of MySQL's protocol (database.py), a Redis (cache.py).  Both sides are read at once, each once, and summed here
(sums.py): servers of different kinds print some values differently.  Lakes and recordings hold TiDB's own texts, whose
rows are compared exactly.  Memory: some batches of each side, GROUP_ROWS rows, and the rows that differ, of which
DIFFERENT_ROWS_MAX are collected.

If the two sides write a key in different forms, a row is in different chunks on each side.  Both chunks differ, the row
is left over on both sides, and is found equal at the end.

    types                    read from a server      in rows, and in chunks by key               compared as
    integers, BIT, YEAR      c + 0                   the same                                    int
    DECIMAL                  c                       the same                                    its digits
    FLOAT, DOUBLE            c + 0e0                 the same                                    the number, of 32 bits
    DATE, DATETIME, TIME ..  c                       the same                                    text, fsp digits, UTC
    CHAR, TEXT, ENUM, SET    c                       CAST(CONVERT(c USING utf8mb4) AS BINARY)    text
    BINARY, BLOB             c                       the same                                    bytes
    JSON, VECTOR             c                       CAST(CAST(c AS CHAR) AS BINARY)             the document

Equal sums always mean equal values; what only prints differently (the order of a document's keys) is compared in rows.
Names of tables and columns compare without case; VIRTUAL columns are left out.

Source: the columns of MySQL, MariaDB and TiDB as information_schema names their types; sync-diff-inspector compares
chunks by a checksum, too, over ranges of an index.
"""

import json
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from threading import Event
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.engine.ports import Tasks
from tidegate.expr.tokens import quote_name
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.mysql import server_sql as sent
from tidegate.mysql.conversion import nearest_single
from tidegate.objectstore.threads import ContextPool
from tidegate.schema.columns import render_type
from tidegate.verify.sums import ChunkPlan, ChunkSums, chunk_numbers, is_date, plain_column, sums_of

Plain: TypeAlias = int | float | str | bytes | None
Key: TypeAlias = tuple[Plain, ...]
Answer: TypeAlias = str | bytes
Passes: TypeAlias = Callable[[str, str], bool]
"""Tells by schema and name if a table is compared."""
CHUNK_ROWS: Final = 1000
_CHUNKS_MAX: Final = 1 << 20
GROUP_ROWS: Final = 200_000
"""About so many rows of differing chunks are read at a time."""
DIFFERENT_ROWS_MAX: Final = 100_000
"""Where more rows differ, the table's other chunks are left."""
_BATCH_ROWS: Final = 10_000
SHARED_CHUNKS: Final = 1000
"""Tables of more chunks are shared by tasks, if there are some."""
PARTS_A_SLOT: Final = 4


class TruthColumn(msgspec.Struct, frozen=True):
    """A column as information_schema describes it."""

    name: str
    type: str
    nullable: bool = True
    generated: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between target and upstream. `key` is empty for whole tables or columns; `stored_key` is the key of
    a Redis where it was found."""

    kind: str
    key: Key = ()
    column: str = ""
    expected: object = None
    found: object = None
    stored_key: str = ""

    @property
    def has_values(self) -> bool:
        return self.kind in {"value", "different"} and bool(self.column)

    def __str__(self) -> str:
        """Return a line for people."""
        values = f" column {self.column}: expected {self.expected!r}, found {self.found!r}" if self.has_values else ""
        if self.stored_key:
            return f"{self.kind:<9}  {self.stored_key}{values}"
        key = ", ".join(map(repr, self.key))
        match self.kind:
            case "value":
                return f"row ({key}){values}"
            case "missing row" | "extra row" | "repeated row":
                return f"{self.kind} ({key})"
            case "missing column" | "extra column":
                return f"{self.kind} {self.column}"
            case _:
                return self.kind


@dataclass(frozen=True, slots=True)
class TableReport:
    """The comparison of one table."""

    name: str
    rows: int
    differences: tuple[Difference, ...] = ()
    left_out: bool = False
    """The target lacks it, and it has neither rows nor a key: a changefeed leaves it out, and nothing is lost."""
    is_whole: bool = True
    """False if so many rows differ that others were not compared."""
    key: tuple[str, ...] = ()
    """The columns of which `Difference.key` has the values; none for a table without a primary key."""

    @property
    def equal(self) -> bool:
        return not self.differences


# How values are read and compared.

_WORD: Final = re.compile(r"[a-z_0-9]+")
_LEAST: Final = -(1 << 63)
_MOST: Final = 1 << 64
"""Limits within which a document may hold a whole number."""


def _same(value: Plain) -> Plain:
    return value


def _text(answer: Answer) -> str:
    return answer if isinstance(answer, str) else answer.decode("utf-8", "backslashreplace")


def _octets(answer: Answer) -> bytes:
    return answer if isinstance(answer, bytes) else answer.encode()


def _single(value: Plain) -> Plain:
    assert isinstance(value, float), value
    return nearest_single(value)


def _decimal(value: Plain) -> Plain:
    return format(Decimal(str(value)), "f")


def _document(value: Plain) -> Plain:
    """Return a document in one form: keys sorted, whole numbers without a fraction."""
    try:
        document = json.loads(str(value), parse_float=_number, parse_int=_number)
    except ValueError:
        return value
    return json.dumps(document, sort_keys=True, ensure_ascii=False)


def _number(text: str) -> int | float:
    exact = Decimal(text)
    return int(exact) if _LEAST <= exact < _MOST and exact == exact.to_integral_value() else float(exact)


@dataclass(frozen=True, slots=True)
class ComparedType:
    """A group of types: `sql` reads a value of a row, `summed` one that is only hashed. `spreads`: a value has one text
    on all servers, so rows are assigned to chunks by it. `number`: what it is hashed as."""

    sql: str
    read: Callable[[Answer], Plain]
    meaning: Callable[[Plain], Plain] = _same
    summed: str = ""
    spreads: bool = True
    number: pa.DataType | None = None
    is_day: bool = False
    is_document: bool = False


INTEGER: Final = ComparedType("{} + 0", int)
_EXACT: Final = ComparedType("{}", _text, _decimal)
_DOUBLE: Final = ComparedType("{} + 0e0", float, spreads=False, number=pa.float64())
_FLOAT: Final = ComparedType("{} + 0e0", float, _single, spreads=False, number=pa.float32())
_MOMENT: Final = ComparedType("{}", _text, is_day=True)
_TIME: Final = ComparedType("{}", _text)
_TEXT: Final = ComparedType("CAST(CONVERT({} USING utf8mb4) AS BINARY)", _text, summed="{}")
_BYTES: Final = ComparedType("{}", _octets)
_JSON: Final = ComparedType(
    "CAST(CAST({} AS CHAR) AS BINARY)", _text, _document, summed="{}", spreads=False, is_document=True
)
_FORMS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"), INTEGER),
    **dict.fromkeys(("decimal", "numeric"), _EXACT),
    **dict.fromkeys(("double", "real"), _DOUBLE),
    "float": _FLOAT,
    **dict.fromkeys(("date", "datetime", "timestamp"), _MOMENT),
    "time": _TIME,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("json", "vector"), _JSON),
}


def form_of(column_type: str) -> ComparedType:
    """Return the group of a type as information_schema prints it; unknown types are text."""
    match = _WORD.match(column_type.lower())
    return _FORMS.get(match[0] if match else "", _TEXT)


def agreed(expected: ComparedType, actual: ComparedType) -> ComparedType:
    """Return the group by which a column is compared: one side may store a document in a text column."""
    return actual if actual.is_document else expected


def meaning_of(form: ComparedType, *, calendar: bool, verbatim: bool = False) -> Callable[[Plain], Plain]:
    """Return the function that makes values of a column comparable. With `calendar`, one side stores NULL for a date
    that does not exist; `verbatim` values are compared exactly."""
    if calendar and (form.is_day or verbatim):
        return partial(_unless_null, _dated)
    return _same if verbatim else partial(_unless_null, form.meaning)


def _unless_null(meaning: Callable[[Plain], Plain], value: Plain) -> Plain:
    return None if value is None else meaning(value)


def _dated(value: Plain) -> Plain:
    return value if is_date(str(value)) else None


# Chunks.


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table of one side: its name, key and columns. `is_whole` is False for a lake that keeps chosen columns."""

    name: str
    key: tuple[str, ...]
    columns: tuple[TruthColumn, ...]
    is_whole: bool = True
    has_key: bool = True
    """False for one without any key, which a changefeed leaves out unless it is forced to take it."""

    def chosen(self, names: Iterable[str]) -> list[TruthColumn]:
        """Return the columns of these names in lower case, in their order."""
        by_name = {lowered(column.name): column for column in self.columns}
        return [by_name[name] for name in names]


def chunk_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expression of a row's chunk."""
    if plan.chunks == 1 or not plan.spread:
        return "0"
    texts = ", ".join(map(_read_sql, shape.chosen(plan.spread)))
    return sent.CHUNK.format(texts=texts, chunks=plan.chunks)


def row_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expressions of a row's values."""
    return ", ".join(map(_read_sql, shape.chosen(plan.columns)))


def summed_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expressions of a row's values that are only hashed."""
    forms = ((form_of(column.type), column) for column in shape.chosen(plan.columns))
    return ", ".join((form.summed or form.sql).format(quote_name(column.name)) for form, column in forms)


def _read_sql(column: TruthColumn) -> str:
    return form_of(column.type).sql.format(quote_name(column.name))


def shape_of_table(table: TableInfo, columns: Sequence[ColumnInfo]) -> ComparedTable:
    """Return a table with some of its columns for comparison."""
    shown = (
        TruthColumn(column.name, render_type(column.type), generated="virtual" if column.virtual else "")
        for column in columns
    )
    return ComparedTable(str(table.name), table.handle_key, tuple(shown), has_key=bool(table.handle_key))


# Both sides.


Columns: TypeAlias = Sequence[pa.Array]
"""Some rows: their columns as texts, bytes or floats, null for NULL."""
Watch: TypeAlias = Callable[[int], None]
"""Called with the number of further rows that are read."""
Part: TypeAlias = Callable[[ComparedTable, ChunkPlan, Watch], ChunkSums]
"""Returns the sums of a part of a table; pickles, and opens what it reads itself."""
RowsAt: TypeAlias = Callable[[Any], Iterable[Key]]
"""Returns the rows at some indices."""


class TableReader(ABC):
    """One side: its `tables` by their names in lower case, and their contents at one moment. `label` names it in
    messages."""

    label: str
    tables: Mapping[str, ComparedTable]
    verbatim = False
    """True if its values are TiDB's own texts."""
    whole = "it is read in one pass"
    """Why tasks cannot share a table of this side; "" if they can."""

    @abstractmethod
    def count(self, shape: ComparedTable) -> int:
        """Return the approximate number of rows of a table."""

    @abstractmethod
    def columns(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Columns]:
        """Return the planned columns of all rows of a table, some rows after the other."""

    @abstractmethod
    def rows(
        self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int], watch: Watch = lambda _: None
    ) -> Iterator[tuple[int, Key]]:
        """Return the rows of some chunks, each with its chunk, chunk after chunk."""

    def parts(self, shape: ComparedTable, count: int) -> Sequence[Part]:  # noqa: ARG002
        """Return about `count` parts that together are a table; none if tasks cannot share it."""
        return ()

    def calendar(self, shape: ComparedTable) -> frozenset[str]:  # noqa: ARG002
        """Return the columns that store NULL for dates that do not exist, in lower case."""
        return frozenset()

    def aligned(self, expected: ComparedTable) -> ComparedTable | None:
        """Return a table of the upstream with the key and columns that this target stores; None if it does not store
        the table."""
        return expected

    def checked(self, expected: ComparedTable, differences: list[Difference]) -> list[Difference]:  # noqa: ARG002
        """Return the differences of a table that the target is responsible for."""
        return differences

    def sums(self, shape: ComparedTable, plan: ChunkPlan, watch: Watch = lambda _: None) -> ChunkSums:
        """Return the sums of a table's chunks."""

        def watched() -> Iterator[Columns]:
            for columns in self.columns(shape, plan):
                yield columns
                watch(len(columns[0]))

        return sums_of(watched(), plan)


class BatchReader(TableReader):
    """A reader that cannot select rows by their chunk itself."""

    @abstractmethod
    def batches(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[tuple[Columns, RowsAt]]:
        """Return some rows after the other: their columns, and what makes rows of them."""

    def columns(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Columns]:
        return (columns for columns, _ in self.batches(shape, plan))

    def rows(
        self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int], watch: Watch = lambda _: None
    ) -> Iterator[tuple[int, Key]]:
        chosen = np.zeros(plan.chunks, np.bool_)
        chosen[list(chunks)] = True
        numbered: list[tuple[int, Key]] = []
        for columns, rows_at in self.batches(shape, plan):
            numbers = chunk_numbers(columns, plan)
            indices = np.flatnonzero(chosen[numbers])
            numbered += zip(numbers[indices].tolist(), rows_at(indices), strict=True)
            watch(len(numbers))
        return iter(sorted(numbered, key=itemgetter(0)))


class RowReader(BatchReader):
    """A reader of Python's rows."""

    @abstractmethod
    def all_rows(self, shape: ComparedTable, plan: ChunkPlan) -> Iterable[Key]:
        """Return the planned columns of all rows of a table."""

    def batches(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[tuple[Columns, RowsAt]]:
        rows = iter(self.all_rows(shape, plan))
        while batch := list(islice(rows, _BATCH_ROWS)):
            columns = [plain_column(values) for values in zip(*batch, strict=True)]
            yield columns, partial(map, batch.__getitem__)


Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of a table, about how many rows the target has, and how many of them are summed."""


class RateLimit:
    """Sleeps where more than `rows_per_s` rows are read in a second; 0 is no limit."""

    def __init__(self, rows_per_s: float) -> None:
        self._rows_per_s, self._begun_s, self._done = rows_per_s, time.monotonic(), 0

    def __call__(self, rows: int) -> None:
        """Count further rows."""
        self._done += rows
        if self._rows_per_s:
            time.sleep(max(self._begun_s + self._done / self._rows_per_s - time.monotonic(), 0))


def part_sums(shape: ComparedTable, plan: ChunkPlan, rows_per_s: float, part: Part) -> ChunkSums:
    """Return the sums of a part: the work of a task."""
    return part(shape, plan, RateLimit(rows_per_s))


class Comparison(NamedTuple):
    """Both sides, how many rows of each are read in a second at most (0: as many as come), who is told, and the tasks
    that share large tables."""

    upstream: TableReader
    target: TableReader
    rows_per_s: int = 0
    tell: Tell = lambda *_: None
    tasks: Tasks | None = None

    def reports(self) -> Iterator[TableReport]:
        """Yield a report for each table of the upstream, then for each that only the target has."""
        with ContextPool(1) as pool:
            for name in sorted(self.upstream.tables):
                expected = self.target.aligned(self.upstream.tables[name])
                if expected is None:
                    continue
                actual = self.target.tables.get(name)
                if actual is None:
                    count = self.upstream.count(expected)
                    left_out = not expected.has_key and not count
                    missing = () if left_out else (Difference("missing table"),)
                    yield TableReport(expected.name, count, missing, left_out)
                    continue
                yield self._report(pool, expected, actual)
        for name in sorted(self.target.tables.keys() - self.upstream.tables.keys()):
            yield TableReport(self.target.tables[name].name, 0, (Difference("extra table"),))

    def _report(self, pool: ContextPool, expected: ComparedTable, actual: ComparedTable) -> TableReport:
        upstream, target = self.upstream, self.target
        rows = target.count(actual)
        self.tell(expected.name, rows, 0)
        days = upstream.calendar(expected), target.calendar(actual)
        verbatim = upstream.verbatim and target.verbatim
        plan = _plan(expected, actual, rows)
        forms = [
            agreed(form_of(column.type), form_of(other.type))
            for column, other in zip(expected.chosen(plan.columns), actual.chosen(plan.columns), strict=True)
        ]
        named = list(zip(plan.columns, forms, strict=True))
        plan = plan._replace(
            numbers={
                name: pa.float64() if verbatim else form.number for name, form in named if form.number is not None
            },
            days=frozenset(name for name, form in named if name in days[0] | days[1] and (form.is_day or verbatim)),
        )
        if not plan.columns:
            count, differences, is_whole = upstream.count(expected), list[Difference](), True
        else:
            meanings = [
                [meaning_of(form, calendar=name in others, verbatim=verbatim) for name, form in named]
                for others in reversed(days)
            ]
            report = partial(self.tell, expected.name, rows)
            count, differences, is_whole = self._compared(
                pool, (expected, actual), plan, (meanings[0], meanings[1]), report
            )
        differences = _columns(expected, actual) + differences
        differences, in_key = target.checked(expected, differences), {lowered(name) for name in expected.key}
        key = tuple(column.name for column in expected.chosen(plan.columns) if lowered(column.name) in in_key)
        return TableReport(expected.name, count, tuple(differences), is_whole=is_whole, key=key)

    def _compared(
        self,
        pool: ContextPool,
        shapes: "Shapes",
        plan: ChunkPlan,
        meanings: "tuple[Meanings, Meanings]",
        report: Callable[[int], None],
    ) -> tuple[int, list[Difference], bool]:
        """Count the rows of the upstream, and return the differences of the rows in chunks that differ."""
        expected, actual = shapes
        stopped = Event()

        def paced(report: Callable[[int], None]) -> Watch:
            done, limit = 0, RateLimit(self.rows_per_s)

            def watch(rows: int) -> None:
                nonlocal done
                done += rows
                report(done)
                if stopped.is_set():
                    raise CancelledError  # the other side has failed, or somebody stops the command
                limit(rows)

            return watch

        pending = pool.submit(self._sums, self.upstream, expected, plan, paced(lambda _: None))
        try:
            target_sums = self._sums(self.target, actual, plan, paced(report))
        except BaseException:
            stopped.set()
            raise
        upstream_sums = pending.result()
        count = int(upstream_sums.rows.sum())
        chunks = upstream_sums.different(target_sums)
        if not chunks:
            return count, [], True
        group = max(GROUP_ROWS * plan.chunks // max(count, 1), 1)
        groups = [chunks[first : first + group] for first in range(0, len(chunks), group)]
        limits = RateLimit(self.rows_per_s), RateLimit(self.rows_per_s)
        want = chain.from_iterable(self.upstream.rows(expected, plan, some, limits[0]) for some in groups)
        have = chain.from_iterable(self.target.rows(actual, plan, some, limits[1]) for some in groups)
        return count, *_rows(expected, plan, meanings, want, have)

    def _sums(self, side: TableReader, shape: ComparedTable, plan: ChunkPlan, watch: Watch) -> ChunkSums:
        slots = self.tasks.slots if self.tasks is not None and plan.chunks > SHARED_CHUNKS else 0
        parts = side.parts(shape, PARTS_A_SLOT * slots) if slots else ()
        if self.tasks is None or not parts:
            return side.sums(shape, plan, watch)
        total = ChunkSums(plan)
        for first in range(0, len(parts), slots):
            work = partial(part_sums, shape, plan, self.rows_per_s / slots)
            for sums in self.tasks.run(work, parts[first : first + slots]):
                total.join(sums)
                watch(int(sums.rows.sum()))
        return total


def compare_sides(
    upstream: TableReader,
    target: TableReader,
    tell: Tell = lambda *_: None,
    *,
    rows_per_s: int = 0,
    tasks: Tasks | None = None,
) -> Iterator[TableReport]:
    """Yield a report for each table of the upstream, then for each that only the target has."""
    return Comparison(upstream, target, rows_per_s, tell, tasks).reports()


Shapes: TypeAlias = tuple[ComparedTable, ComparedTable]
"""A table as the upstream and the target have it."""


def _columns(expected: ComparedTable, actual: ComparedTable) -> list[Difference]:
    virtual = {lowered(column.name) for column in expected.columns if column.generated == "virtual"}
    expected_names, have = ({lowered(column.name) for column in shape.columns} for shape in (expected, actual))
    missing = [
        Difference("missing column", column=column.name)
        for column in expected.columns
        if lowered(column.name) not in have | virtual
    ]
    extra = [
        Difference("extra column", column=column.name)
        for column in actual.columns
        if expected.is_whole and lowered(column.name) not in expected_names and column.generated != "virtual"
    ]
    return missing + extra


def _plan(expected: ComparedTable, actual: ComparedTable, rows: int) -> ChunkPlan:
    have = {lowered(column.name): column for column in actual.columns}
    shared = [
        (column, have[lowered(column.name)])
        for column in expected.columns
        if column.generated != "virtual" and lowered(column.name) in have
    ]
    key = {lowered(name) for name in expected.key}
    spread = [
        lowered(column.name)
        for column, other in shared
        if (not key or lowered(column.name) in key) and form_of(column.type).spreads and form_of(other.type).spreads
    ]
    chunks = min(1 + rows // CHUNK_ROWS, _CHUNKS_MAX)
    return ChunkPlan(tuple(lowered(column.name) for column, _ in shared), tuple(spread), chunks)


Meanings: TypeAlias = Sequence[Callable[[Plain], Plain]]
Chunked: TypeAlias = Iterator[tuple[int, Key]]
"""Rows with their chunks, chunk by chunk."""


def _rows(
    expected: ComparedTable,
    plan: ChunkPlan,
    meanings: tuple[Meanings, Meanings],
    want: Chunked,
    have: Chunked,
) -> tuple[list[Difference], bool]:
    """Return the differences of the rows of some chunks, by the meanings of their values on either side, and whether
    they are all; none if a column of the key is not planned."""
    in_key = {lowered(name) for name in expected.key}
    key_indices = [index for index, name in enumerate(plan.columns) if name in in_key]
    if len(key_indices) < len(expected.key):
        return [], True
    is_whole = True
    missing: list[Key] = []
    extra: list[Key] = []
    repeated: set[Key] = set()

    def meant(rows: Counter[Key], side: Meanings) -> Counter[Key]:
        return Counter(tuple(mean(value) for mean, value in zip(side, row, strict=True)) for row in rows.elements())

    for expected_rows, actual_rows in _grouped(want, have):
        expected_counts, actual_counts = Counter(expected_rows), Counter(actual_rows)
        left, right = (
            meant(expected_counts - actual_counts, meanings[0]),
            meant(actual_counts - expected_counts, meanings[1]),
        )
        missing += (left - right).elements()
        more = list((right - left).elements())
        extra += more
        if key_indices and more:
            keys = Counter(tuple(meanings[1][index](row[index]) for index in key_indices) for row in actual_rows)
            repeated |= {key for key, times in keys.items() if times > 1}
        if max(len(missing), len(extra)) > DIFFERENT_ROWS_MAX:
            is_whole = False
            break
    if key_indices:
        return _by_key(expected.chosen(plan.columns), key_indices, missing, extra, repeated), is_whole
    rows = *(Difference("missing row", row) for row in missing), *(Difference("extra row", row) for row in extra)
    return list(rows), is_whole


def _by_key(
    columns: Sequence[TruthColumn],
    key: Sequence[int],
    missing: Iterable[Key],
    extra: Iterable[Key],
    repeated: Collection[Key],
) -> list[Difference]:
    """Return differences of rows and values from the rows of one side only; `repeated` are the keys that the target has
    twice."""
    out: list[Difference] = []
    have: dict[Key, Key] = {}
    for row in extra:
        row_key = tuple(row[index] for index in key)
        if row_key in have:
            out.append(Difference("repeated row", row_key))
        have[row_key] = row
    for want in missing:
        row_key = tuple(want[index] for index in key)
        other = have.pop(row_key, None)
        if other is None:
            out.append(Difference("missing row", row_key))
            continue
        out += [
            Difference("value", row_key, column.name, a, b)
            for column, a, b in zip(columns, want, other, strict=True)
            if a != b
        ]
    return out + [Difference("repeated row" if row_key in repeated else "extra row", row_key) for row_key in have]


def _grouped(*sides: Chunked) -> Iterator[list[list[Key]]]:
    """Yield the rows of each chunk, of one side after the other; empty for a side without the chunk."""
    groups = [groupby(rows, key=itemgetter(0)) for rows in sides]
    heads = [next(group, None) for group in groups]
    while left := [head[0] for head in heads if head is not None]:
        chunk = min(left)
        yield [[row for _, row in head[1]] if head is not None and head[0] == chunk else [] for head in heads]
        heads = [
            next(group, None) if head is not None and head[0] == chunk else head
            for group, head in zip(groups, heads, strict=True)
        ]
