"""The comparer: an upstream and a target at one timestamp, table by table, with any pair of readers.

    upstream ── sums of all chunks ──┐
                                     ├─ equal: done          most tables, without reading a row
    target   ── sums of all chunks ──┘
                     │ different chunks
    upstream ── their rows ──┐  chunk by chunk, by meaning
                             ├─ equal: gone
    target   ── their rows ──┘
                     │ rows of one side alone
                     └─ by key ──► differences

    row ── CRC32 of its key's texts, modulo the number of chunks ──► chunk
        ── MD5 of all texts, the first 60 bits ────────────────────► hash       length,text,5,...,00100
                                                                                └ texts and bytes ┘ └ which are NULL
    chunk   rows    sum of the hashes

A reader returns tables with their columns, and their counts, sums and rows: a lake or a recording (local.py), a server
of MySQL's protocol (database.py), a Redis (cache.py).  A server computes the sums of all chunks in one statement, in
parallel with the other side.  Two chunks are equal if row counts and sums are.  A server cannot hash a row that is
longer than its max_allowed_packet: such a row adds UNHASHED to the sum, which never compares equal.  An exclusive or
of CRC32s would miss two rows that exchanged values of one length, and a row written twice in place of another.  Lakes
and recordings both hold TiDB's own texts, which are compared exactly, without sums.  Memory: one chunk of each side,
and the rows that differ.

If the two sides write a key in different forms, a row is in different chunks on each side.  Both chunks differ, the row
is left over on both sides, and is found equal at the end.

    types                    read from a server                              hashed as        compared as
    integers, BIT, YEAR      c + 0                                           digits           int
    DECIMAL                  c                                               text             its digits, no zeros ahead
    FLOAT, DOUBLE            c + 0e0                                         text             the number, of 32 bits
    DATE, DATETIME, TIME ..  c                                               text             text with fsp digits, UTC
    CHAR, TEXT, ENUM, SET    CAST(CONVERT(c USING utf8mb4) AS BINARY)        length, UTF-8    text
    BINARY, BLOB             c                                               length, bytes    bytes
    JSON, VECTOR             CAST(CAST(c AS CHAR) AS BINARY)                 length, UTF-8    the document

Servers print some values differently (1e15, the order of a document's keys): their hashes differ, so such rows are
compared by meaning.  Equal hashes always mean equal values.  Names of tables and columns compare without case;
VIRTUAL columns are left out.

Source: the columns of MySQL, MariaDB and TiDB as information_schema names their types; sync-diff-inspector compares
chunks by a checksum, too, over ranges of an index.
"""

import calendar
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from hashlib import md5
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tidegate.expr.tokens import quote_name
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.mysql import server_sql as sent
from tidegate.mysql.conversion import float_text, nearest_single
from tidegate.schema.columns import render_type

Plain: TypeAlias = int | float | str | bytes | None
Key: TypeAlias = tuple[Plain, ...]
Answer: TypeAlias = str | bytes
Passes: TypeAlias = Callable[[str, str], bool]
"""Tells by schema and name if a table is compared."""
CHUNK_ROWS: Final = 20_000
_DIGITS: Final = 15
"""Hexadecimal digits of a hash: 60 bits."""
UNHASHED: Final = 10**40
"""Stands for a hash that a server cannot compute; larger than the sum of all hashes of a table."""


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

    @property
    def equal(self) -> bool:
        return not self.differences


# How values are read, hashed and compared.

_WORD: Final = re.compile(r"[a-z_0-9]+")
_LEAST: Final = -(1 << 63)
_MOST: Final = 1 << 64
"""Limits within which a document may hold a whole number."""


def _same(value: Plain) -> Plain:
    return value


def _digits(value: Plain) -> bytes:
    return str(value).encode()


def _text(answer: Answer) -> str:
    return answer if isinstance(answer, str) else answer.decode("utf-8", "backslashreplace")


def _octets(answer: Answer) -> bytes:
    return answer if isinstance(answer, bytes) else answer.encode()


def _hashed(value: Plain) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _real(value: Plain) -> bytes:
    assert isinstance(value, float), value
    return float_text(value, single=False).encode()


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
    """A group of types. `sized`: a value's length is hashed before it, as it may contain a comma. `spreads`: a value
    has one text on all servers, so rows are assigned to chunks by it."""

    sql: str
    read: Callable[[Answer], Plain]
    hashed: Callable[[Plain], bytes]
    meaning: Callable[[Plain], Plain] = _same
    sized: bool = False
    spreads: bool = True
    is_day: bool = False
    is_document: bool = False


_INTEGER: Final = ComparedType("{} + 0", int, _digits)
_EXACT: Final = ComparedType("{}", _text, _digits, _decimal)
_DOUBLE: Final = ComparedType("{} + 0e0", float, _real, spreads=False)
_FLOAT: Final = ComparedType("{} + 0e0", float, _real, _single, spreads=False)
_MOMENT: Final = ComparedType("{}", _text, _digits, is_day=True)
_TIME: Final = ComparedType("{}", _text, _digits)
_TEXT: Final = ComparedType("CAST(CONVERT({} USING utf8mb4) AS BINARY)", _text, _hashed, sized=True)
_BYTES: Final = ComparedType("{}", _octets, _hashed, sized=True)
_JSON: Final = ComparedType(
    "CAST(CAST({} AS CHAR) AS BINARY)", _text, _hashed, _document, sized=True, spreads=False, is_document=True
)
_FORMS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"), _INTEGER),
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


def meaning_of(expected: ComparedType, actual: ComparedType, *, calendar: bool) -> Callable[[Plain], Plain]:
    """Return the function that makes values of a column comparable. One side may store a document in a text column;
    with `calendar`, one side stores NULL for a date that does not exist."""
    form = actual if actual.is_document else expected
    meaning = _dated if calendar and form.is_day else form.meaning
    return partial(_unless_null, meaning)


def _unless_null(meaning: Callable[[Plain], Plain], value: Plain) -> Plain:
    return None if value is None else meaning(value)


def _dated(value: Plain) -> Plain:
    return value if is_date(str(value)) else None


_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def is_date(text: str) -> bool:
    """Return True if the date exists: zero dates, zero parts and February 30 do not."""
    match = _DATE.match(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return year > 0 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]


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


class ChunkPlan(NamedTuple):
    """How both sides chunk a table: the columns to compare, those that determine the chunk, and the number of chunks.

    Names are in lower case."""

    columns: tuple[str, ...]
    spread: tuple[str, ...]
    chunks: int


class ChunkSum(NamedTuple):
    """The number of rows of a chunk, and the sum of their hashes."""

    rows: int
    total: int


def different(upstream_sums: dict[int, ChunkSum], target_sums: dict[int, ChunkSum]) -> list[int]:
    """Return the chunks that are not certain to be equal on both sides."""
    chunks = sorted(upstream_sums.keys() | target_sums.keys())
    return [
        chunk
        for chunk in chunks
        if upstream_sums.get(chunk) != target_sums.get(chunk) or upstream_sums[chunk].total >= UNHASHED
    ]


def chunk_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expression of a row's chunk."""
    if plan.chunks == 1 or not plan.spread:
        return "0"
    texts = ", ".join(map(_read_sql, shape.chosen(plan.spread)))
    return sent.CHUNK.format(texts=texts, chunks=plan.chunks)


def hash_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expression of a row's hash."""
    columns = shape.chosen(plan.columns)
    parts: list[str] = []
    for column in columns:
        read = _read_sql(column)
        parts += [f"LENGTH({read})", read] if form_of(column.type).sized else [read]
    nulls = ", ".join(f"ISNULL({quote_name(column.name)})" for column in columns)
    digest = sent.DIGEST.format(parts=", ".join(parts), nulls=nulls)
    return sent.HASH.format(digest=digest, digits=_DIGITS, unhashed=UNHASHED)


def row_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expressions of a row's values."""
    return ", ".join(map(_read_sql, shape.chosen(plan.columns)))


def _read_sql(column: TruthColumn) -> str:
    return form_of(column.type).sql.format(quote_name(column.name))


class RowHasher:
    """Computes chunks and hashes of this process's rows, equal to those of `chunk_sql` and `hash_sql`."""

    def __init__(self, shape: ComparedTable, plan: ChunkPlan) -> None:
        self._forms: Sequence[ComparedType] = [form_of(column.type) for column in shape.chosen(plan.columns)]
        self._spread = [plan.columns.index(name) for name in plan.spread]
        self._chunks = plan.chunks

    def chunk(self, row: Key) -> int:
        """Return the chunk of a row."""
        if self._chunks == 1:
            return 0
        texts = [self._forms[index].hashed(row[index]) for index in self._spread if row[index] is not None]
        return zlib.crc32(b",".join(texts)) % self._chunks

    def hash(self, row: Key) -> int:
        """Return the hash of a row."""
        parts: list[bytes] = []
        for value, form in zip(row, self._forms, strict=True):
            if value is None:
                continue
            text = form.hashed(value)
            parts += [b"%d" % len(text), text] if form.sized else [text]
        parts.append(bytes(48 + (value is None) for value in row))
        return int(md5(b",".join(parts), usedforsecurity=False).hexdigest()[:_DIGITS], 16)

    def sums(self, rows: Iterable[Key]) -> dict[int, ChunkSum]:
        """Return the sum of each chunk."""
        counts: dict[int, int] = defaultdict(int)
        totals: dict[int, int] = defaultdict(int)
        for row in rows:
            chunk = self.chunk(row)
            counts[chunk] += 1
            totals[chunk] += self.hash(row)
        return {chunk: ChunkSum(count, totals[chunk]) for chunk, count in counts.items()}


def shape_of_table(table: TableInfo, columns: Sequence[ColumnInfo]) -> ComparedTable:
    """Return a table with some of its columns for comparison."""
    shown = (
        TruthColumn(column.name, render_type(column.type), generated="virtual" if column.virtual else "")
        for column in columns
    )
    return ComparedTable(str(table.name), table.handle_key, tuple(shown), has_key=bool(table.handle_key))


# Both sides.


class TableReader(ABC):
    """One side: its `tables` by their names in lower case, and their contents at one moment. `label` names it in
    messages; `calendar` are the columns of the last table read that store NULL for dates that do not exist."""

    label: str
    tables: Mapping[str, ComparedTable]
    calendar: frozenset[str] = frozenset()
    verbatim = False
    """True if its values are TiDB's own texts."""

    @abstractmethod
    def count(self, shape: ComparedTable) -> int:
        """Return the approximate number of rows of a table."""

    @abstractmethod
    def sums(self, shape: ComparedTable, plan: ChunkPlan) -> dict[int, ChunkSum]:
        """Return the sum of each chunk of a table."""

    @abstractmethod
    def rows(self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int]) -> Iterator[tuple[int, Key]]:
        """Return the rows of some chunks, each with its chunk, chunk after chunk."""

    def aligned(self, expected: ComparedTable) -> ComparedTable | None:
        """Return a table of the upstream with the key and columns that this target stores; None if it does not store
        the table."""
        return expected

    def checked(self, expected: ComparedTable, differences: list[Difference]) -> list[Difference]:  # noqa: ARG002
        """Return the differences of a table that the target is responsible for."""
        return differences


class RowReader(TableReader):
    """A reader whose rows this process chunks and hashes itself."""

    @abstractmethod
    def all_rows(self, shape: ComparedTable, plan: ChunkPlan) -> Iterable[Key]:
        """Return the planned columns of all rows of a table."""

    def sums(self, shape: ComparedTable, plan: ChunkPlan) -> dict[int, ChunkSum]:
        return RowHasher(shape, plan).sums(self.all_rows(shape, plan))

    def rows(self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int]) -> Iterator[tuple[int, Key]]:
        hasher = RowHasher(shape, plan)
        rows_by_chunk: dict[int, list[Key]] = {chunk: [] for chunk in sorted(chunks)}
        for row in self.all_rows(shape, plan):
            if (rows := rows_by_chunk.get(hasher.chunk(row))) is not None:
                rows.append(row)
        yield from ((chunk, row) for chunk, rows in rows_by_chunk.items() for row in rows)


def compare_sides(
    upstream: TableReader, target: TableReader, begin: Callable[[str, int], None] = lambda *_: None
) -> Iterator[TableReport]:
    """Yield a report for each table of the upstream, then for each that only the target has. `begin` is called with the
    name of a table and its number of rows in the target before it is compared."""
    with ThreadPoolExecutor(1) as pool:
        for name in sorted(upstream.tables):
            expected = target.aligned(upstream.tables[name])
            if expected is None:
                continue
            actual = target.tables.get(name)
            if actual is None:
                count = upstream.count(expected)
                left_out = not expected.has_key and not count
                yield TableReport(expected.name, count, () if left_out else (Difference("missing table"),), left_out)
                continue
            rows = target.count(actual)
            begin(expected.name, rows)
            plan = _plan(expected, actual, rows)
            verbatim = upstream.verbatim and target.verbatim
            compare = _letter_by_letter if verbatim else partial(_by_chunks, pool)
            count, differences = compare(upstream, target, (expected, actual), plan)
            differences = _columns(expected, actual) + differences
            yield TableReport(expected.name, count, tuple(target.checked(expected, differences)))
    for name in sorted(target.tables.keys() - upstream.tables.keys()):
        yield TableReport(target.tables[name].name, 0, (Difference("extra table"),))


Shapes: TypeAlias = tuple[ComparedTable, ComparedTable]
"""A table as the upstream and the target have it."""


def _by_chunks(
    pool: ThreadPoolExecutor, upstream: TableReader, target: TableReader, shapes: Shapes, plan: ChunkPlan
) -> tuple[int, list[Difference]]:
    """Count the rows of the upstream, and return the differences of the rows in chunks that differ."""
    expected, actual = shapes
    if not plan.columns:
        return upstream.count(expected), []
    pending = pool.submit(upstream.sums, expected, plan)
    target_sums = target.sums(actual, plan)
    upstream_sums = pending.result()
    count = sum(chunk_sum.rows for chunk_sum in upstream_sums.values())
    chunks = different(upstream_sums, target_sums)
    if not chunks:
        return count, []
    forms = [
        (form_of(column.type), form_of(other.type))
        for column, other in zip(*(shape.chosen(plan.columns) for shape in shapes), strict=True)
    ]

    def meanings(days: Collection[str]) -> Meanings:
        return [meaning_of(*pair, calendar=name in days) for name, pair in zip(plan.columns, forms, strict=True)]

    both = meanings(target.calendar), meanings(upstream.calendar)
    chosen = upstream.rows(expected, plan, chunks), target.rows(actual, plan, chunks)
    return count, _rows(expected, plan, both, *chosen)


def _letter_by_letter(
    upstream: TableReader, target: TableReader, shapes: Shapes, plan: ChunkPlan
) -> tuple[int, list[Difference]]:
    """Count the rows of the upstream, and return the differences of all rows, compared as text."""
    expected, actual = shapes
    plan = plan._replace(chunks=1)
    want, have = list(upstream.rows(expected, plan, [0])), list(target.rows(actual, plan, [0]))

    def meanings(days: Collection[str]) -> Meanings:
        return [partial(_unless_null, _dated) if name in days else _same for name in plan.columns]

    both = meanings(target.calendar), meanings(upstream.calendar)
    return upstream.count(expected), _rows(expected, plan, both, iter(want), iter(have))


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
    return ChunkPlan(tuple(lowered(column.name) for column, _ in shared), tuple(spread), 1 + rows // CHUNK_ROWS)


Meanings: TypeAlias = Sequence[Callable[[Plain], Plain]]
Chunked: TypeAlias = Iterator[tuple[int, Key]]
"""Rows with their chunks, chunk by chunk."""


def _rows(
    expected: ComparedTable,
    plan: ChunkPlan,
    meanings: tuple[Meanings, Meanings],
    want: Chunked,
    have: Chunked,
) -> list[Difference]:
    """Return the differences of the rows of some chunks, by the meanings of their values on either side; none if a
    column of the key is not planned."""
    in_key = {lowered(name) for name in expected.key}
    key_indices = [index for index, name in enumerate(plan.columns) if name in in_key]
    if len(key_indices) < len(expected.key):
        return []
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
    if key_indices:
        return _by_key(expected.chosen(plan.columns), key_indices, missing, extra, repeated)
    return [*(Difference("missing row", row) for row in missing), *(Difference("extra row", row) for row in extra)]


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
