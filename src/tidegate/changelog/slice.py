"""A range of timestamps of the changelog, made on the driver and read by workers.

    footers  ->  RowGroup(path, number, table, rows, min_ts, max_ts ...)   ->  tables()    driver, no row is read
                                                              ->  batches(table) -> Chunks        any process

A slice is a plain value: it pickles, and `narrow` leaves only what one table needs.  Names match without case.
"""

import io
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.changelog.chunks import chunks_of, text_chunks
from tidegate.changelog.columns import LANDED_SCHEMA
from tidegate.engine.change import Chunk, Layout, decode_layout
from tidegate.engine.ports import RowRange
from tidegate.model.table import TableName
from tidegate.objectstore.blob import opened

LAYOUT_COLUMNS: Final = ["commit_ts", "layout"]
GROUPS_KEPT: Final = 200_000
"""About 50 MB: with 200 tables, the footers of a thousand files."""
FILES_KNOWN: Final = 16
"""Whose footers a worker keeps, as it reads one table after the other from the same files."""
READS_AT_ONCE: Final = 4
"""Of row groups in an object store, where each is a request."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: rows of one table."""

    path: str
    number: int
    name: TableName
    rows: int
    min_ts: int
    max_ts: int
    size_bytes: int = 0
    """What it takes when it is read: images are written plain, so a text in a thousand rows counts a thousand times,
    however well it shrinks on disk."""

    def touches(self, after: int, upto: int) -> bool:
        """Return True if a row of it may lie in (after, upto]."""
        return self.max_ts > after and self.min_ts <= upto


@dataclass(frozen=True, slots=True)
class TableSlice:
    """What a slice holds of a table: at most `rows` rows, duplicates counted, between `min_ts` and `max_ts`."""

    rows: int
    min_ts: int
    max_ts: int


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """The row changes with after < commit_ts <= upto, by table."""

    uri: str
    after: int
    upto: int
    groups: tuple[RowGroup, ...]

    def tables(self) -> dict[TableName, TableSlice]:
        """Return the tables in the slice, each under the first spelling of its name."""
        found: dict[tuple[str, str], tuple[TableName, TableSlice]] = {}
        for group in self.groups:
            low, high = max(group.min_ts, self.after + 1), min(group.max_ts, self.upto)
            name, known = found.get(group.name.key, (group.name, TableSlice(0, low, high)))
            merged = TableSlice(known.rows + group.rows, min(known.min_ts, low), max(known.max_ts, high))
            found[group.name.key] = name, merged
        return dict(found.values())

    def row_ranges(self) -> Iterator[RowRange]:
        """Return what a round is measured by: the row groups, each with what it takes in memory."""
        for group in self.groups:
            yield RowRange(group.min_ts, group.max_ts, group.rows, group.size_bytes)

    def narrow(self, name: TableName, after: int | None = None, upto: int | None = None) -> "ChangeSlice":
        """Return the part of the slice that belongs to one table and a smaller range."""
        low = self.after if after is None else max(after, self.after)
        high = self.upto if upto is None else min(upto, self.upto)
        groups = tuple(group for group in self.groups if group.name.key == name.key and group.touches(low, high))
        return replace(self, after=low, upto=high, groups=groups)

    def read(self, name: TableName, after: int | None = None, upto: int | None = None) -> pa.Table:
        """Return the rows of one table in commit_ts order, arrival order within it.

        Columns are those of ROWS_SCHEMA, `layout` dictionary-encoded (LANDED_SCHEMA): it repeats a long text."""
        parts = self.narrow(name, after, upto).parts(LANDED_SCHEMA.names)
        rows = pa.concat_tables([LANDED_SCHEMA.empty_table(), *parts]).unify_dictionaries()
        order = [(column, "ascending") for column in ("commit_ts", "topic", "partition", "offset", "seq")]
        places = pc.sort_indices(rows, sort_keys=order)
        return rows if np.array_equal(places.to_numpy(), np.arange(len(places))) else rows.take(places)

    def layouts(self, name: TableName, after: int | None = None, upto: int | None = None) -> list[Layout]:
        """Return the different layouts of one table's rows, in the order in which they first appear."""
        mine = self.narrow(name, after, upto)
        rows = pa.concat_tables(
            [LANDED_SCHEMA.empty_table().select(LAYOUT_COLUMNS), *mine.parts(LAYOUT_COLUMNS)]
        ).unify_dictionaries()
        first = rows.group_by("layout").aggregate([("commit_ts", "min")]).sort_by("commit_ts_min")
        return [decode_layout(text) for text in first.column("layout").to_pylist()]

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of one table in (after, upto] in commit order, arrival order within it; images are texts."""
        return text_chunks(self.read(name, after, upto))

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto]: whole transactions, in commit order."""
        return chunks_of([self.read(name, after, upto) for name in names])

    def parts(self, columns: Sequence[str]) -> list[pa.Table]:
        """Return some columns of all rows in the range, one table a file."""
        by_path: dict[str, list[RowGroup]] = {}
        for group in self.groups:
            by_path.setdefault(group.path, []).append(group)
        range_ = self.after, self.upto
        if "://" not in self.uri:
            return [_read(self.uri, path, groups, columns, range_) for path, groups in by_path.items()]
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            return list(pool.map(lambda group: _read(self.uri, group.path, [group], columns, range_), self.groups))


def _read(uri: str, path: str, groups: Sequence[RowGroup], columns: Sequence[str], range_: tuple[int, int]) -> pa.Table:
    """Some row groups of a file, one after the other: a large one of which little is wanted goes before the next."""
    after, upto = range_
    schema = pa.schema([LANDED_SCHEMA.field(name) for name in columns])
    found = []
    metadata, size = _known(uri, path)
    with opened(uri, path, size) as source:
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=["layout"], pre_buffer=True)
        for group in groups:
            rows = file.read_row_groups([group.number], columns=list(columns))
            if group.min_ts <= after or group.max_ts > upto:
                ts = rows.column("commit_ts")
                rows = rows.filter(pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto)))
            found.append(rows.select(list(columns)).cast(schema))
    return pa.concat_tables(found)


class Footers:
    """The footers that were asked for last, as many as have `most` row groups together; files never change."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.groups = 0
        self._kept: OrderedDict[tuple[str, str], tuple[RowGroup, ...]] = OrderedDict()
        self._turn = threading.Lock()

    def of(self, uri: str, path: str) -> tuple[RowGroup, ...]:
        """Return the row groups of one file."""
        with self._turn:
            found = self._kept.get((uri, path))
            if found is not None:
                self._kept.move_to_end((uri, path))
                return found
        found = _footer(uri, path)
        with self._turn:
            if (uri, path) not in self._kept:
                self._kept[uri, path] = found
                self.groups += len(found)
            while self.groups > self.most and len(self._kept) > 1:
                self.groups -= len(self._kept.popitem(last=False)[1])
        return found


FOOTERS: Final = Footers(GROUPS_KEPT)


def groups_of(uri: str, path: str) -> tuple[RowGroup, ...]:
    """Return the row groups of one file, from its footer, which is kept."""
    return FOOTERS.of(uri, path)


@lru_cache(FILES_KNOWN)
def _known(uri: str, path: str) -> tuple[pq.FileMetaData, int]:
    """The footer of a file, and its size."""
    with opened(uri, path) as source:
        return pq.ParquetFile(source).metadata, source.seek(0, io.SEEK_END) or source.tell()


def _footer(uri: str, path: str) -> tuple[RowGroup, ...]:
    metadata, size = _known(uri, path)
    with opened(uri, path, size) as source:
        file = pq.ParquetFile(source, metadata=metadata)
        columns = {file.metadata.schema.column(at).path: at for at in range(file.metadata.num_columns)}
        return tuple(_group(path, number, file, columns) for number in range(file.metadata.num_row_groups))


def _group(path: str, number: int, file: pq.ParquetFile, columns: dict[str, int]) -> RowGroup:
    group = file.metadata.row_group(number)
    schema, table, ts = (group.column(columns[name]).statistics for name in ("schema", "table", "commit_ts"))
    if schema.has_min_max and table.has_min_max:
        assert (schema.min, table.min) == (schema.max, table.max), (path, number)
        name = _named(schema.min, table.min)
    else:  # Parquet keeps none of texts above 4 KiB
        first = file.read_row_group(number, columns=["schema", "table"]).slice(0, 1).to_pylist()[0]
        name = _named(first["schema"], first["table"])
    return RowGroup(path, number, name, group.num_rows, ts.min, ts.max, group.total_byte_size)


@lru_cache(maxsize=10_000)
def _named(schema: str, table: str) -> TableName:
    """One object for all row groups of a table."""
    return TableName(schema, table)
