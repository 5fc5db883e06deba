"""Stored tables and row changes as Arrow tables and Spark frames: the parts of snapshots and live views.

    version of a Delta table  ──►  rows
    rows, NetChanges          ──►  rows whose key did not change, and the rows that exist afterwards

A table without a key is a log: its changes are appended.  `NetChanges` comes from the function that the merge uses
(`sink/delta/rows.py`), so a live view and a merge cannot differ.

A read by values opens only files that may contain them:

    {"id": 17}   {"id": [17, 18], "status": "paid"}   {"email": None}
        └──► each value as the column's type ──► outside the bounds of a file?  the file is not opened
                                            └──► the named columns of the others, then the rest if a row matches

Spark frames of stored rows are planned quickly, since they are requested often, each time of another version:

    few rows     Arrow ──► LocalRelation ──filter, project──► LocalTableScan     answered by the planner, without a job
    many rows    the version's own data files as Parquet ──► scan                without Spark reading the Delta log
    the rest     Delta, `versionAsOf`                                            stores that Spark names otherwise, and
                                                                                 files with deleted rows

The files of a version are known here already; Spark's Delta reader would replay the log as a job of its own.

Source: Spark, `ConvertToLocalRelation`; its limit is `spark.sql.execution.arrow.localRelationThreshold` (48 MB).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from tidegate.engine.retention import PURGED
from tidegate.expr.tokens import quote_name
from tidegate.model.errors import ConfigError, SinkError
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import DataFile, TableSnapshot, schema_field
from tidegate.objectstore.stores import STORE_ERRORS, first_line
from tidegate.sink.delta.columns import LakeColumn, arrow_type, stored_columns
from tidegate.sink.delta.files import logical_schema, read
from tidegate.sink.delta.rows import NetChanges

Where: TypeAlias = Mapping[str, Any]
"""Column -> the value to select, or a list of them; None is NULL."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The columns of a filter, each with its values."""

    columns: tuple[LakeColumn, ...] = ()
    values: tuple[pa.Array, ...] = ()

    @classmethod
    def of(cls, where: Where, stored: Sequence[LakeColumn], table: TableInfo) -> Self:
        """Return the filter for `where`. Raises ConfigError for unknown columns and for values that no row can have."""
        by_name = {lowered(column.name): column for column in stored}
        unknown = [name for name in where if lowered(name) not in by_name]
        if unknown:
            names = ", ".join(column.name for column in stored)
            raise ConfigError(f"table {table.name} has no column {unknown[0]}; it has: {names}")
        columns = tuple(by_name[lowered(name)] for name in where)
        return cls(
            columns, tuple(_values(column, value) for column, value in zip(columns, where.values(), strict=True))
        )

    def may_match(self, file: DataFile) -> bool:
        """Return False if the bounds of a file exclude every row of the filter."""
        return all(_within(file, column, values) for column, values in zip(self.columns, self.values, strict=True))

    def indices(self, rows: pa.Table) -> pa.Array:
        """Return the indices of the matching rows; `rows` has at least the columns of the filter."""
        fits = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
        for column, values in zip(self.columns, self.values, strict=True):
            fits = pc.and_(fits, pc.is_in(rows.column(column.name), value_set=values))
        return pc.indices_nonzero(fits)

    def matching(self, rows: pa.Table) -> pa.Table:
        """Return the matching rows."""
        return rows.take(self.indices(rows)) if self.columns else rows


EVERY: Final = RowFilter()


def _values(column: LakeColumn, value: Any) -> pa.Array:
    """Return values of the column's type: numbers and text are treated alike, so 17, "17" and Decimal(17) are one
    key."""
    several = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    kind = arrow_type(column.delta)
    try:
        scalars = (value_ if isinstance(value_, pa.Scalar) else pa.scalar(value_) for value_ in several)
        return pa.array([value_.cast(kind) for value_ in scalars], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ConfigError(
            f"column {column.name} is {column.delta}: {value!r} is not a value of it ({error})"
        ) from error


def _within(file: DataFile, column: LakeColumn, values: pa.Array) -> bool:
    low, high = file.lows.get(column.physical), file.highs.get(column.physical)
    if low is None or high is None:
        return True
    try:
        low, high = pa.scalar(low, values.type), pa.scalar(high, values.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # bounds as some writers have them, of another type
        return True
    inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return values.null_count > 0 or bool(pc.any(inside).as_py())


@dataclass(frozen=True, slots=True)
class Tail:
    """The changes above a stored version of a table, in order: net changes by key, or rows of a log of changes."""

    parts: tuple[NetChanges | pa.Table, ...]

    @property
    def empty(self) -> bool:
        return not self.parts


NOTHING: Final = Tail(())


def stored_table(uri: str, version: int, name: str) -> TableSnapshot:
    """Return a Delta table at a version. Raises SinkError if it no longer exists."""
    try:
        table = None if version == PURGED else deltalog.load(uri, version)
    except DeltaError as error:
        raise SinkError(f"table {name}: version {version} of {uri} cannot be read any more: {error}") from error
    if table is None:
        raise SinkError(f"table {name}: its stored rows at {uri} are missing")
    return table


def stored_rows(
    table: TableSnapshot, names: Sequence[str] = (), limit: int | None = None, *, row_filter: RowFilter = EVERY
) -> pa.Table:
    """Return rows of a stored table, of the columns `names` (all if empty), from as many files as `limit` requires.

    With a filter, at least the matching rows, from the files that may contain them."""
    columns = {column.name: column for column in stored_columns(table)}
    columns_read = [columns[name] for name in names or columns]
    parts = [logical_schema(columns_read).empty_table()]
    left = limit
    for part in () if left == 0 else stored_parts(table, columns_read, row_filter):
        parts.append(part)
        left = None if left is None else left - part.num_rows
        if left is not None and left <= 0:
            break
    rows = pa.concat_tables(parts)
    return rows if limit is None else rows.slice(0, limit)


def stored_parts(
    table: TableSnapshot,
    columns: Sequence[LakeColumn],
    row_filter: RowFilter = EVERY,
    *,
    only: Collection[str] | None = None,
) -> Iterator[pa.Table]:
    """Return the rows of a stored table, one of its files after the other, or of the files at the paths `only`."""
    for file in table.files():
        if (only is not None and file.path not in only) or not row_filter.may_match(file):
            continue
        try:
            yield _part(table.uri, file, columns, row_filter)
        except (*STORE_ERRORS, pa.ArrowInvalid) as error:
            reason = first_line(error)
            raise SinkError(f"{table.uri} at version {table.version}: a data file cannot be read: {reason}") from error


class LakeRows(NamedTuple):
    """The rows of a table: their schema, about how many there are, and a part of them after the other."""

    schema: pa.Schema
    stored: int
    parts: Callable[[], Iterable[pa.Table]]
    columns: Sequence[LakeColumn] = ()


def rows_in_parts(stored: TableSnapshot, tail: Tail, *, only: Collection[str] | None = None) -> LakeRows:
    """Return the stored rows, or those of the files `only`, with a tail applied; one data file is in memory at a
    time."""
    columns = stored_columns(stored)

    def parts() -> Iterator[pa.Table]:
        for part in stored_parts(stored, columns, only=only):
            yield without_keys(part, tail)
        if not tail.empty:
            yield overlaid(schema.empty_table(), tail)

    schema = logical_schema(columns)
    return LakeRows(schema, sum(file.rows for file in stored.files()), parts, columns)


def _part(uri: str, file: DataFile, columns: Sequence[LakeColumn], row_filter: RowFilter) -> pa.Table:
    if not row_filter.columns:
        return read(uri, file, columns)
    indices = row_filter.indices(read(uri, file, row_filter.columns))
    if not len(indices):
        return logical_schema(columns).empty_table()
    return read(uri, file, columns).take(indices)


def chosen(names: Sequence[str], stored: Sequence[str], table: TableInfo) -> list[str]:
    """Return the stored names of requested columns, which are compared without case."""
    by_name = {lowered(name): name for name in stored}
    unknown = [name for name in names if lowered(name) not in by_name]
    if unknown:
        raise ConfigError(f"table {table.name} has no column {unknown[0]}; it has: {', '.join(stored)}")
    return [by_name[lowered(name)] for name in names]


def overlaid(stored: pa.Table, tail: Tail) -> pa.Table:
    """Return the stored rows with a tail applied."""
    for part in tail.parts:
        if isinstance(part, NetChanges):
            stored = pa.concat_tables([_without(stored, part.keys), part.rows.select(stored.column_names)])
        else:
            stored = pa.concat_tables([stored, part.select(stored.column_names)])
    return stored


def without_keys(rows: pa.Table, tail: Tail) -> pa.Table:
    """Return the stored rows that a tail does not change."""
    for part in tail.parts:
        if isinstance(part, NetChanges):
            rows = _without(rows, part.keys)
    return rows


def _without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    if not keys.num_rows or not rows.num_rows:
        return rows
    names = keys.column_names
    indices = rows.select(names).append_column("_at", pa.array(range(rows.num_rows), pa.int64()))
    left = indices.join(keys, keys=names, join_type="left anti").column("_at")
    return rows if len(left) == rows.num_rows else rows.take(left)


def spark_rows(spark: Any, uri: str, version: int) -> Any:
    """Return a Delta table at a version as a DataFrame. Raises EnvironmentFault for a session that cannot read it."""
    from tidegate.spark.session import check_dates, explaining_lacks

    check_dates(spark)
    with explaining_lacks(spark):
        frame = spark.read.format("delta").option("versionAsOf", version).load(uri)
        assert frame.schema is not None  # a Connect session looks for Delta only now
        return frame


def spark_frame(spark: Any, rows: pa.Table, schema: Any) -> Any:
    """Return rows as a DataFrame, sent in one piece: Spark 4.1 stops reading at a piece without rows.

    Spark 3 makes frames of Python's rows alone, so there the piece is a cell of bytes, which a task unpacks."""
    from tidegate.spark.versions import is_3

    if not is_3(spark):
        return spark.createDataFrame(rows.combine_chunks(), schema=schema)
    from pyspark.sql.pandas.types import to_arrow_schema

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # inside: workers may lack Tidegate
        for batch in batches:
            for piece in batch.column(0):
                yield from pa.ipc.open_stream(piece.as_buffer())

    buffer = pa.BufferOutputStream()
    rows = rows.cast(to_arrow_schema(schema)).combine_chunks()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows)
    piece = bytearray(buffer.getvalue())
    return spark.createDataFrame([(piece,)], "piece binary").coalesce(1).mapInArrow(unpacked, schema)


def collected(frame: Any) -> pa.Table:
    """Return the rows of a DataFrame."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    from tidegate.spark.session import is_connect

    if is_connect(spark := frame.sparkSession):
        return spark.client.to_table(frame._plan.to_proto(spark.client))[0]  # noqa: SLF001  Spark 3
    return pa.Table.from_batches(frame._collect_as_arrow(), to_arrow_schema(frame.schema))  # noqa: SLF001  Spark 3


def spark_overlaid(spark: Any, stored: Any, tail: Tail) -> Any:
    """Return `stored` with a tail applied, as a DataFrame: an anti join with the few changed keys, and a union."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    for part in tail.parts:
        rows = part.rows if isinstance(part, NetChanges) else part
        if isinstance(part, NetChanges) and part.keys.num_rows:
            names = part.keys.column_names
            schema = StructType([stored.schema[name] for name in names])
            keys = spark_frame(spark, part.keys, schema)
            left = stored.join(functions.broadcast(keys), on=names, how="left_anti")
            stored = left.select([left[quote_name(name)] for name in stored.columns])  # USING puts the keys in front
        if rows.num_rows:
            stored = stored.unionByName(spark_frame(spark, rows.select(stored.columns), stored.schema))
    return stored


LOCAL_ROWS: Final = 100_000
"""Rows above which sending a frame costs more (1.5 µs a row) than planning its files."""
LOCAL_BYTES: Final = 8 << 20
"""Stored bytes above which rows are not sent; the driver holds them about three times meanwhile."""
FILES_MAX: Final = 200
"""Files above which replaying the log in one job is faster: Spark requests the status of each file separately."""
GLOB: Final = frozenset("*?[]{}\\")
"""Characters that Spark takes for a pattern in a path."""


def is_local(stored: TableSnapshot, tail: Tail = NOTHING) -> bool:
    """Return True if a table's rows are few enough to be sent to Spark as they are."""
    files = stored.files()
    rows = sum(file.rows for file in files)
    rows += sum((part.rows if isinstance(part, NetChanges) else part).num_rows for part in tail.parts)
    return rows <= LOCAL_ROWS and sum(file.size_bytes for file in files) <= LOCAL_BYTES


def spark_local(spark: Any, rows: pa.Table, columns: Sequence[LakeColumn]) -> Any:
    """Return rows as a DataFrame with the types of the stored table in Spark."""
    return spark_frame(spark, rows, spark_schema(columns))


def spark_schema(columns: Sequence[LakeColumn]) -> Any:
    """Return columns of a lake as Spark's StructType."""
    from pyspark.sql.types import StructType

    fields = [schema_field(column.name, column.delta) for column in columns]
    return StructType.fromJson({"type": "struct", "fields": fields})


def spark_stored(spark: Any, stored: TableSnapshot) -> Any:
    """Return a stored version as a DataFrame."""
    paths = [file.path if file.path.startswith("/") else f"{stored.uri}/{file.path}" for file in stored.files()]
    if not _is_plain(stored, paths):
        return spark_rows(spark, stored.uri, stored.version)
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    from tidegate.spark.session import check_dates

    check_dates(spark)

    columns = stored_columns(stored)
    fields = [schema_field(column.physical, column.delta) for column in columns]
    files = spark.read.schema(StructType.fromJson({"type": "struct", "fields": fields})).parquet(*paths)
    quoted = {column.name: f"`{column.physical.replace('`', '``')}`" for column in columns}
    return files.select([functions.col(physical).alias(name) for name, physical in quoted.items()])


def _is_plain(stored: TableSnapshot, paths: Sequence[str]) -> bool:
    """Return True if the rows of a version are those of its files, and Spark finds them under their paths."""
    whole = stored.configuration.get("delta.enableDeletionVectors") != "true" and not stored.partition_columns
    named = all("://" not in path and not GLOB.intersection(path) for path in (stored.uri, *paths))
    return whole and named and 0 < len(paths) <= FILES_MAX
