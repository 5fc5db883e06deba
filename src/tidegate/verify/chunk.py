"""Chunks of a table: which rows belong together, and one sum over all of them, in SQL and here.

    row ── CRC32 of its key's texts, modulo the number of chunks ──► chunk
        ── MD5 of all texts, the first 60 bits ────────────────────► hash       length,text,5,...,00100
                                                                                └ texts and bytes ┘ └ which are NULL
    chunk   rows    sum of the hashes

One statement gives all chunks of a table.  Two chunks are equal when both numbers are.  A server has no hash of a row
that is longer than its max_allowed_packet: such a row makes the sum UNHASHED larger, which is never taken for equal.

Why not the exclusive or of CRC32s: it does not see two rows that exchanged values of one length, as a CRC is linear,
nor one row written twice in the place of another that was there twice.

Source: sync-diff-inspector compares chunks by a checksum, too, over ranges of an index.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, NamedTuple

from tidegate.expr.syntax.tokens import quote_name
from tidegate.model.name import lowered
from tidegate.mysql import server_sql as sent
from tidegate.verify.column import ComparedType, form_of
from tidegate.verify.lake import Key, TruthColumn

CHUNK_ROWS: Final = 20_000
_DIGITS: Final = 15
"""Hexadecimal digits of a hash: 60 bits."""
UNHASHED: Final = 10**40
"""In the place of a hash that a server does not have; more than all hashes of a table together."""


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table of one side: its name, key and columns. `is_whole` is False for a lake that keeps chosen columns."""

    name: str
    key: tuple[str, ...]
    columns: tuple[TruthColumn, ...]
    is_whole: bool = True

    def chosen(self, names: Iterable[str]) -> list[TruthColumn]:
        """Return the columns of these names in lower case, in their order."""
        by_name = {lowered(column.name): column for column in self.columns}
        return [by_name[name] for name in names]


class ChunkPlan(NamedTuple):
    """What both sides do with a table: the columns to compare, those that choose the chunk, and how many chunks.

    Names are in lower case."""

    columns: tuple[str, ...]
    spread: tuple[str, ...]
    chunks: int


class ChunkSum(NamedTuple):
    """What a chunk holds."""

    rows: int
    total: int


def different(ours: dict[int, ChunkSum], theirs: dict[int, ChunkSum]) -> list[int]:
    """Return the chunks that are not surely equal on both sides."""
    chunks = sorted(ours.keys() | theirs.keys())
    return [at for at in chunks if ours.get(at) != theirs.get(at) or ours[at].total >= UNHASHED]


# In SQL.


def chunk_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expression of a row's chunk."""
    if plan.chunks == 1 or not plan.spread:
        return "0"
    texts = ", ".join(map(_asked, shape.chosen(plan.spread)))
    return sent.CHUNK.format(texts=texts, chunks=plan.chunks)


def hash_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expression of a row's hash."""
    columns = shape.chosen(plan.columns)
    parts: list[str] = []
    for column in columns:
        asked = _asked(column)
        parts += [f"LENGTH({asked})", asked] if form_of(column.type).sized else [asked]
    nulls = ", ".join(f"ISNULL({quote_name(column.name)})" for column in columns)
    digest = sent.DIGEST.format(parts=", ".join(parts), nulls=nulls)
    return sent.HASH.format(digest=digest, digits=_DIGITS, unhashed=UNHASHED)


def row_sql(shape: ComparedTable, plan: ChunkPlan) -> str:
    """Return the expressions of a row's values."""
    return ", ".join(map(_asked, shape.chosen(plan.columns)))


def _asked(column: TruthColumn) -> str:
    return form_of(column.type).sql.format(quote_name(column.name))


# Here.


class RowHasher:
    """Chunks and hashes of rows that this process has, equal to those of `chunk_sql` and `hash_sql`."""

    def __init__(self, shape: ComparedTable, plan: ChunkPlan) -> None:
        self._forms: Sequence[ComparedType] = [form_of(column.type) for column in shape.chosen(plan.columns)]
        self._spread = [plan.columns.index(name) for name in plan.spread]
        self._chunks = plan.chunks

    def chunk(self, row: Key) -> int:
        """Return the chunk of a row."""
        texts = [self._forms[at].hashed(row[at]) for at in self._spread if row[at] is not None]
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
        """Return what each chunk holds."""
        counts: dict[int, int] = defaultdict(int)
        totals: dict[int, int] = defaultdict(int)
        for row in rows:
            chunk = self.chunk(row)
            counts[chunk] += 1
            totals[chunk] += self.hash(row)
        return {chunk: ChunkSum(count, totals[chunk]) for chunk, count in counts.items()}
