"""Stored tables and row changes as Arrow and as Spark frames: the pieces that snapshots and live views are made of.

    version of a Delta table  ──►  rows
    rows, NetChanges             ──►  rows whose key was not touched, and the rows that exist afterwards

A keyless table is a log: its changes are appended.  `NetChanges` comes from the very function that the merge uses
(`sink/delta/rows.py`), so a live view and a merge cannot disagree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegate.engine.retention import PURGED
from tidegate.expr.tokens import quote_name
from tidegate.lakes.where import EVERY, Wanted
from tidegate.model.errors import ConfigError, SinkError
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import DataFile, TableSnapshot
from tidegate.objectstore.storing import STORE_ERRORS, first_line
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.files import logical_schema, read
from tidegate.sink.delta.rows import NetChanges


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows a stored version of a table, in order: net changes by key, or rows of a log of changes."""

    parts: tuple[NetChanges | pa.Table, ...]

    @property
    def empty(self) -> bool:
        """True when nothing follows."""
        return not self.parts


NOTHING: Final = Tail(())


def stored_table(uri: str, version: int, name: str) -> TableSnapshot:
    """Return a Delta table at a version. Raises SinkError when it is not there any more."""
    try:
        found = None if version == PURGED else deltalog.load(uri, version)
    except DeltaError as lost:
        raise SinkError(f"table {name}: version {version} of {uri} cannot be read any more: {lost}") from lost
    if found is None:
        raise SinkError(f"table {name}: its stored rows at {uri} are gone")
    return found


def stored_rows(
    table: TableSnapshot, names: Sequence[str] = (), limit: int | None = None, *, wanted: Wanted = EVERY
) -> pa.Table:
    """Return rows of a stored table, the columns called `names` (all when empty), of as many files as `limit` asks for.

    With `wanted` at least the rows that it asks for, from the files that can hold them."""
    columns = {column.name: column for column in stored_columns(table)}
    asked = [columns[name] for name in names or columns]
    parts = [logical_schema(asked).empty_table()]
    left = limit
    for file in table.files():
        if left is not None and left <= 0:
            break
        if not wanted.may_lie_in(file):
            continue
        try:
            part = _part(table.uri, file, asked, wanted)
        except STORE_ERRORS as lost:
            told = first_line(lost)
            raise SinkError(f"{table.uri} at version {table.version}: a data file cannot be read: {told}") from lost
        parts.append(part)
        left = None if left is None else left - part.num_rows
    rows = pa.concat_tables(parts)
    return rows if limit is None else rows.slice(0, limit)


def _part(uri: str, file: DataFile, asked: Sequence[LakeColumn], wanted: Wanted) -> pa.Table:
    """The wanted rows of a file; the columns that decide are read first, the others only where there is a row."""
    if not wanted.columns:
        return read(uri, file, asked)
    places = wanted.places(read(uri, file, wanted.columns))
    if not len(places):
        return logical_schema(asked).empty_table()
    return read(uri, file, asked).take(places)


def chosen(wanted: Sequence[str], stored: Sequence[str], table: TableInfo) -> list[str]:
    """Return the stored names of the columns that a reader asks for, without regard to case."""
    known = {lowered(name): name for name in stored}
    unknown = [name for name in wanted if lowered(name) not in known]
    if unknown:
        raise ConfigError(f"table {table.name} has no column {unknown[0]}; it has: {', '.join(stored)}")
    return [known[lowered(name)] for name in wanted]


def overlaid(stored: pa.Table, tail: Tail) -> pa.Table:
    """Return the stored rows and what follows them."""
    for part in tail.parts:
        if isinstance(part, NetChanges):
            stored = pa.concat_tables([_without(stored, part.keys), part.rows.select(stored.column_names)])
        else:
            stored = pa.concat_tables([stored, part.select(stored.column_names)])
    return stored


def without_keys(rows: pa.Table, tail: Tail) -> pa.Table:
    """Return the stored rows that a tail leaves as they are."""
    for part in tail.parts:
        if isinstance(part, NetChanges):
            rows = _without(rows, part.keys)
    return rows


def _without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is not among `keys`."""
    if not keys.num_rows or not rows.num_rows:
        return rows
    names = keys.column_names
    places = rows.select(names).append_column("_at", pa.array(range(rows.num_rows), pa.int64()))
    left = places.join(keys, keys=names, join_type="left anti").column("_at")
    return rows if len(left) == rows.num_rows else rows.take(left)


def spark_rows(spark: Any, uri: str, version: int) -> Any:
    """Return a Delta table at a version as a DataFrame. EnvironmentFault for a session that cannot read it."""
    from tidegate.spark.fitness import check_dates, lacks_told

    check_dates(spark)
    with lacks_told(spark):
        frame = spark.read.format("delta").option("versionAsOf", version).load(uri)
        assert frame.schema is not None  # a Connect session looks for Delta only now
        return frame


def spark_frame(spark: Any, rows: pa.Table, schema: Any) -> Any:
    """Return rows as a DataFrame, handed over in one piece: Spark 4.1 stops reading at a piece without rows."""
    return spark.createDataFrame(rows.combine_chunks(), schema=schema)


def spark_overlaid(spark: Any, stored: Any, tail: Tail) -> Any:
    """Return `stored` with a tail on top, as a DataFrame: an anti join with the few touched keys, and a union."""
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
