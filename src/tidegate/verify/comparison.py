"""Two sides at one moment, table by table: by the sums of chunks, then row by row where these differ.

    upstream ── sums of all chunks ──┐
                                     ├─ equal: done          most tables, and not one row is sent
    replica  ── sums of all chunks ──┘
                     │ different chunks
    upstream ── their rows ──┐  chunk by chunk, by meaning
                             ├─ equal: gone
    replica  ── their rows ──┘
                     │ rows of one side alone
                     └─ by key (verify.py) ──► differences

A key that the two sides write in different forms puts one row into two chunks.  Both chunks differ then, the row is
left over on both sides, and is found equal at the end.

Both sides compute sums at the same time.  Memory: one chunk of each side, and the rows that differ.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from tidegate.model.name import lowered
from tidegate.verify.cache import CacheSide
from tidegate.verify.chunk import CHUNK_ROWS, ChunkPlan, ChunkSum, ComparedTable, different
from tidegate.verify.column import form_of, meaning_of
from tidegate.verify.database import DatabaseSide
from tidegate.verify.lake import Difference, Key, TableReport, compare_rows
from tidegate.verify.local import LocalSide

Side: TypeAlias = DatabaseSide | LocalSide
Replica: TypeAlias = DatabaseSide | CacheSide
Chunked: TypeAlias = Iterator[tuple[int, Key]]
"""Rows, each with its chunk, chunk after chunk."""
Begin: TypeAlias = Callable[[str, int], None]
"""Told the name of a table that is begun, and its rows in the replica."""


def compare_sides(upstream: Side, replica: Replica, begin: Begin) -> Iterator[TableReport]:
    """Return a report for each table of the upstream, then for each that only the replica has."""
    with ThreadPoolExecutor(1) as pool:
        for name, expected in sorted(upstream.tables.items()):
            found = replica.tables.get(name)
            if found is None:
                yield TableReport(expected.name, 0, (Difference("missing table"),))
            else:
                yield _compare(pool, upstream, replica, (expected, found), begin)
    for name in sorted(replica.tables.keys() - upstream.tables.keys()):
        yield TableReport(replica.tables[name].name, 0, (Difference("extra table"),))


def _compare(
    pool: ThreadPoolExecutor,
    upstream: Side,
    replica: Replica,
    shapes: tuple[ComparedTable, ComparedTable],
    begin: Begin,
) -> TableReport:
    expected, found = shapes
    differences = _columns(expected, found)
    rows = replica.count(found)
    begin(expected.name, rows)
    plan = _plan(expected, found, rows)
    if not plan.columns:
        return TableReport(expected.name, rows, tuple(differences))
    asked = pool.submit(upstream.sums, expected, plan)
    theirs = replica.sums(found, plan)
    ours = asked.result()
    if chunks := different(ours, theirs):
        want, have = upstream.rows(expected, plan, chunks), replica.rows(found, plan, chunks)
        differences += _rows(shapes, plan, upstream.calendar, want, have)
    return TableReport(expected.name, _count(ours), tuple(differences))


def _count(sums: dict[int, ChunkSum]) -> int:
    return sum(one.rows for one in sums.values())


def _columns(expected: ComparedTable, found: ComparedTable) -> list[Difference]:
    """Columns that one side lacks; VIRTUAL ones are not compared."""
    virtual = {lowered(column.name) for column in expected.columns if column.generated == "virtual"}
    wanted, have = ({lowered(column.name) for column in one.columns} for one in (expected, found))
    missing = [
        Difference("missing column", column=column.name)
        for column in expected.columns
        if lowered(column.name) not in have | virtual
    ]
    extra = [
        Difference("extra column", column=column.name)
        for column in found.columns
        if expected.is_whole and lowered(column.name) not in wanted and column.generated != "virtual"
    ]
    return missing + extra


def _plan(expected: ComparedTable, found: ComparedTable, rows: int) -> ChunkPlan:
    have = {lowered(column.name): column for column in found.columns}
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
    return ChunkPlan(tuple(lowered(column.name) for column, _ in shared), tuple(spread), 1 + rows // CHUNK_ROWS)


def _rows(
    shapes: tuple[ComparedTable, ComparedTable], plan: ChunkPlan, days: frozenset[str], want: Chunked, have: Chunked
) -> list[Difference]:
    """What differs in the rows of some chunks; `days` are the columns that hold NULL for a day of no calendar."""
    columns, others = (shape.chosen(plan.columns) for shape in shapes)
    meanings = [
        meaning_of(form_of(column.type), form_of(other.type), calendar=lowered(column.name) in days)
        for column, other in zip(columns, others, strict=True)
    ]

    def counted(rows: Iterable[Key]) -> Counter[Key]:
        return Counter(tuple(mean(value) for mean, value in zip(meanings, row, strict=True)) for row in rows)

    missing: list[Key] = []
    extra: list[Key] = []
    for ours, theirs in _by_chunk(want, have):
        mine, other = Counter(ours), Counter(theirs)
        expected, found = counted((mine - other).elements()), counted((other - mine).elements())
        missing += (expected - found).elements()
        extra += (found - expected).elements()
    return compare_rows(columns, shapes[0].key, missing, extra)


def _by_chunk(*sides: Chunked) -> Iterator[list[list[Key]]]:
    """The rows of each chunk, of one side after the other; a chunk that a side does not have is empty there."""
    groups = [groupby(rows, key=itemgetter(0)) for rows in sides]
    heads = [next(group, None) for group in groups]
    while left := [head[0] for head in heads if head is not None]:
        chunk = min(left)
        yield [[row for _, row in head[1]] if head is not None and head[0] == chunk else [] for head in heads]
        heads = [
            next(group, None) if head is not None and head[0] == chunk else head
            for group, head in zip(groups, heads, strict=True)
        ]
