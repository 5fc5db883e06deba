"""The data source `tidegate-lake`: one table of a lake at one moment, by Spark's own reader and SQL.

    spark.read.format("tidegate-lake").option("table", "shop.orders").load("/srv/lake")

    option     default    what it says
    path       required   the lake (the argument of `load`)
    table      required   database.table
    at         latest     a TSO or a time: the newest snapshot not above it
    live       false      with what has landed and is not merged: exactly at that moment
    columns    all        the columns to read, such as `id,total`

    driver    snapshot, files, tail ──► partitions: bins of files, and the tail      fixed when the DataFrame is made
    task      a bin of files ──► rows without the keys of the tail ──► batches

Filters `column = value` and `column IN (..)` on numbers and texts leave out the files whose bounds exclude them, and
rows.  Spark 4.1 tells a Python source no columns: `columns` does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from tidegate.lakes.lake import LATEST, Lake
from tidegate.lakes.local import is_local, spark_schema
from tidegate.lakes.read import NOTHING, Tail, chosen, overlaid, stored_rows, without_keys
from tidegate.lakes.where import Wanted
from tidegate.model.errors import ConfigError
from tidegate.model.table import TableInfo
from tidegate.objectstore.deltalog import DataFile, TableSnapshot
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.files import logical_schema, read

OPTIONS: Final = frozenset({"path", "table", "at", "live", "columns"})
BIN_BYTES: Final = 32 << 20
"""Stored bytes of one task."""
PUSHED: Final = (int, str, Decimal)
"""Values that mean the same to Spark and to a lake's bounds; a time depends on the session's zone."""


@dataclass(frozen=True, slots=True)
class Files(InputPartition):  # type: ignore[misc]  # the library has no types
    """Some data files of a table; rows of the tail are in a partition of their own."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Newer(InputPartition):  # type: ignore[misc]  # the library has no types
    """The rows that the tail brings."""


@dataclass(frozen=True, slots=True)
class TableView:
    """One table at one moment, as it travels to tasks: where its files lie, and what follows them."""

    table: TableInfo
    uri: str
    files: tuple[DataFile, ...]
    stored: tuple[LakeColumn, ...]
    tail: Tail
    names: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TableView":
        """Return what the options of a reader ask for. ConfigError for those that are missing, unknown or wrong."""
        asked = {name.lower(): value for name, value in options.items()}
        check_options(asked, OPTIONS, required=("path", "table"))
        name = asked["table"]
        lake = Lake(asked["path"], asked.get("at", LATEST))
        if asked.get("live", "false").lower() == "true":
            with lake.live() as view:
                table, (found, tail) = view.definition(name), view.pieces(name)
                files, tail = (found.files(), tail) if not view.is_clone(found) else ((), _held(found, table))
        else:
            table, found, tail = lake.definition(name), lake.stored(name), NOTHING
            files = found.files()
        columns = tuple(stored_columns(found))
        every = [column.name for column in columns]
        return cls(table, found.uri, files, columns, tail, tuple(chosen(_names(asked), every, table) or every))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        by_name = {column.name: column for column in self.stored}
        return spark_schema([by_name[name] for name in self.names])

    def wanted(self, filters: Iterable[Filter]) -> Wanted:
        """Return what some filters ask for, as far as bounds can answer it."""
        found = Wanted()
        for one in filters:
            if not isinstance(one, EqualTo | In) or len(one.attribute) != 1:
                continue
            values = [one.value] if isinstance(one, EqualTo) else list(one.value)
            if not all(type(value) in PUSHED for value in values):
                continue
            try:
                more = Wanted.of({one.attribute[0]: values}, self.stored, self.table)
            except ConfigError:  # no value of this column: Spark decides
                continue
            found = Wanted((*found.columns, *more.columns), (*found.values, *more.values))
        return found

    def bins(self, wanted: Wanted) -> list[InputPartition]:
        """Return the files that can hold such rows, in bins of about BIN_BYTES, and the tail if there is one."""
        bins: list[list[DataFile]] = []
        left = 0
        for file in self.files:
            if not wanted.may_lie_in(file):
                continue
            if left <= 0:
                bins.append([])
                left = BIN_BYTES
            bins[-1].append(file)
            left -= file.size_bytes
        return [*(Files(tuple(files)) for files in bins), *([] if self.tail.empty else [Newer()])]

    def rows(self, partition: InputPartition, wanted: Wanted) -> Iterator[pa.Table]:
        """Return the rows of one partition, a table a file."""
        if isinstance(partition, Newer):
            tables: Iterable[pa.Table] = [overlaid(logical_schema(self.stored).empty_table(), self.tail)]
        else:
            assert isinstance(partition, Files)
            tables = (without_keys(read(self.uri, file, self.stored), self.tail) for file in partition.files)
        for table in tables:
            yield wanted.among(table).select(list(self.names))


def _held(clone: TableSnapshot, table: TableInfo) -> Tail:
    """The rows of a clone, which goes with its view."""
    if not is_local(clone):
        raise ConfigError(
            f"table {table.name}: a DDL came since the last snapshot, so its live rows would have to be written: read "
            "it without live, or again when the feed has merged them"
        )
    return Tail((stored_rows(clone),))


class LakeReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads a table's view; travels to tasks."""

    def __init__(self, view: TableView) -> None:
        self._view, self._wanted = view, Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take what bounds can answer; Spark evaluates all of them again."""
        self._wanted = self._view.wanted(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read; one that finds nothing, where no file is left."""
        return self._view.bins(self._wanted) or [Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition."""
        for rows in self._view.rows(partition, self._wanted):
            yield from rows.to_batches(max_chunksize=10_000)


class LakeSource(DataSource):  # type: ignore[misc]  # the library has no types
    """`spark.read.format("tidegate-lake")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._view = TableView.of(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegate-lake"

    def schema(self) -> StructType:
        """Return the table's columns at that moment."""
        return self._view.schema()

    def reader(self, schema: StructType) -> LakeReader:  # noqa: ARG002  ours
        """Return what reads the table."""
        return LakeReader(self._view)


def check_options(asked: Mapping[str, str], known: Iterable[str], *, required: Sequence[str] = ()) -> None:
    """Raise ConfigError for options that nobody knows, and for those that are missing."""
    unknown = sorted(asked.keys() - set(known))
    if unknown:
        raise ConfigError(f"no option {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    for name in required:
        if not asked.get(name):
            raise ConfigError(f"option {name!r} is missing")


def _names(asked: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in asked.get("columns", "").split(",") if name.strip()]
