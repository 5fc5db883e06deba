"""A range of timestamps of the changelog, made on the driver and read by workers.

    footers  ->  Group(path, number, table, rows, min_ts, max_ts) ...  ->  tables()            driver, no row is read
                                                                       ->  read(table) -> Arrow   any process

A slice is a plain value: it pickles, and `narrow` leaves only what one table needs.  Names match without case.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.feed.change import Layout, decode_layout
from tidegate.model.table import TableName
from tidegate.source.kafka.blob import opened
from tidegate.source.kafka.columns import LANDED_SCHEMA

__all__ = ["ChangeSlice", "Group", "TableSlice", "groups_of"]

LAYOUT_COLUMNS: Final = ["commit_ts", "layout"]
FOOTERS_KEPT: Final = 50_000


@dataclass(frozen=True, slots=True)
class Group:
    """One row group: rows of one table."""

    path: str
    number: int
    name: TableName
    rows: int
    min_ts: int
    max_ts: int

    def touches(self, after: int, upto: int) -> bool:
        """True if a row of it may lie in (after, upto]."""
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
    groups: tuple[Group, ...]

    def tables(self) -> dict[TableName, TableSlice]:
        """The tables in the slice, each under the first spelling of its name."""
        found: dict[tuple[str, str], tuple[TableName, TableSlice]] = {}
        for group in self.groups:
            low, high = max(group.min_ts, self.after + 1), min(group.max_ts, self.upto)
            name, known = found.get(group.name.key, (group.name, TableSlice(0, low, high)))
            merged = TableSlice(known.rows + group.rows, min(known.min_ts, low), max(known.max_ts, high))
            found[group.name.key] = name, merged
        return dict(found.values())

    def narrow(self, name: TableName, after: int | None = None, upto: int | None = None) -> "ChangeSlice":
        """The part of the slice that belongs to one table and a smaller range."""
        low = self.after if after is None else max(after, self.after)
        high = self.upto if upto is None else min(upto, self.upto)
        groups = tuple(group for group in self.groups if group.name.key == name.key and group.touches(low, high))
        return replace(self, after=low, upto=high, groups=groups)

    def read(self, name: TableName, after: int | None = None, upto: int | None = None) -> pa.Table:
        """The rows of one table in commit_ts order, arrival order within it.

        Columns are those of ROWS_SCHEMA, `layout` dictionary-encoded (LANDED_SCHEMA): it repeats a long text."""
        parts = self.narrow(name, after, upto).parts(LANDED_SCHEMA.names)
        rows = pa.concat_tables([LANDED_SCHEMA.empty_table(), *parts]).unify_dictionaries()
        order = [(column, "ascending") for column in ("commit_ts", "topic", "partition", "offset", "seq")]
        return rows.take(pc.sort_indices(rows, sort_keys=order))

    def layouts(self, name: TableName, after: int | None = None, upto: int | None = None) -> list[Layout]:
        """The different layouts of one table's rows, in the order in which they first appear."""
        mine = self.narrow(name, after, upto)
        rows = pa.concat_tables(
            [LANDED_SCHEMA.empty_table().select(LAYOUT_COLUMNS), *mine.parts(LAYOUT_COLUMNS)]
        ).unify_dictionaries()
        first = rows.group_by("layout").aggregate([("commit_ts", "min")]).sort_by("commit_ts_min")
        return [decode_layout(text) for text in first.column("layout").to_pylist()]

    def parts(self, columns: Sequence[str]) -> list[pa.Table]:
        """Some columns of all rows in the range, one table a file."""
        by_path: dict[str, list[Group]] = {}
        for group in self.groups:
            by_path.setdefault(group.path, []).append(group)
        return [_read(self.uri, path, groups, columns, (self.after, self.upto)) for path, groups in by_path.items()]


def _read(uri: str, path: str, groups: Sequence[Group], columns: Sequence[str], range_: tuple[int, int]) -> pa.Table:
    after, upto = range_
    with opened(uri, path) as source:
        file = pq.ParquetFile(source, read_dictionary=["layout"], pre_buffer=True)
        rows = file.read_row_groups([group.number for group in groups], columns=list(columns))
    if any(group.min_ts <= after or group.max_ts > upto for group in groups):
        ts = rows.column("commit_ts")
        rows = rows.filter(pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto)))
    return rows.select(list(columns)).cast(pa.schema([LANDED_SCHEMA.field(name) for name in columns]))


@lru_cache(maxsize=FOOTERS_KEPT)
def groups_of(uri: str, path: str) -> tuple[Group, ...]:
    """The row groups of one file, from its footer. Files never change, so the answer is kept."""
    with opened(uri, path) as source:
        metadata = pq.read_metadata(source)
    columns = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    return tuple(_group(path, number, metadata.row_group(number), columns) for number in range(metadata.num_row_groups))


def _group(path: str, number: int, group: Any, columns: dict[str, int]) -> Group:
    schema, table, ts = (group.column(columns[name]).statistics for name in ("schema", "table", "commit_ts"))
    assert (schema.min, table.min) == (schema.max, table.max), (path, number)
    return Group(path, number, TableName(schema.min, table.min), group.num_rows, ts.min, ts.max)
