"""Parquet files of a lake table, read and written with key bounds, and the order and matching of keys.

Files are read under stored names and written under physical ones.  A file holds at most FILE_BYTES of Arrow columns or
ROWS_PER_FILE rows, or a single row that is larger than that, so that it fits into memory several times over.

Bounds of the key columns let a merge skip files that it cannot touch.  They are written only where JSON holds them
exactly (64-bit integers, short texts, dates): a rounded bound would hide rows from every reader.

    touched keys   3 7 9        stored rows   1 3 5 9 9 …       match  ->  null 0 null 2 2 …

A key of several columns is matched by numbering: the values of the first column, then the pairs of that number and
the value of the second column, and so on; values without a touched key drop out at once.  Keys are ordered as Arrow
orders them: numbers and dates by value, texts and binaries by bytes, the first column first.
"""

import io
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.objectstore.deltalog import Action, DataFile, add
from tidegate.objectstore.stores import store, storing, writable
from tidegate.sink.delta.columns import LakeColumn, arrow_type

ROWS_PER_FILE: Final = 1_000_000
FILE_BYTES: Final = 64 << 20
"""In memory; a third to a tenth of it on disk."""
SMALL_ROWS: Final = 100_000
SMALL_BYTES: Final = 4 << 20
DICTIONARY_BYTES_MAX: Final = 256 << 10
"""Of a column in a row group; further values are written without a dictionary."""
DICTIONARY_SAMPLE: Final = 8192
"""Rows that tell whether a column has a dictionary: values that hardly repeat are written faster without, and in
less."""
GROUP_ROWS_MAX: Final = 500_000
GROUP_BYTES_MAX: Final = 16 << 20
"""Of compressed files: what is read at once to make one of small ones."""
TEXT_BOUND_CHARS_MAX: Final = 32
BOUNDED_TYPES: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_decimal)


def read(uri: str, file: DataFile, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the requested columns of one data file under their stored names; columns newer than the file are NULL."""
    parquet = pq.ParquetFile(_source(uri, file.path))
    present = set(parquet.schema_arrow.names)
    table = parquet.read(columns=[column.physical for column in columns if column.physical in present])
    arrays = [
        table.column(column.physical).cast(arrow_type(column.delta))
        if column.physical in present
        else pa.nulls(parquet.metadata.num_rows, arrow_type(column.delta))
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=logical_schema(columns))


def logical_schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    """Return the columns as readers see them."""
    return pa.schema([pa.field(column.name, arrow_type(column.delta)) for column in columns])


def _source(uri: str, path: str) -> Any:
    """The path or bytes of a data file; a clone has whole addresses, of its origin's files."""
    if "://" in path:
        uri, _, path = path.rpartition("/")
    return io.BytesIO(obstore.get(store(uri), path).bytes().to_bytes()) if "://" in uri else Path(uri) / path


def is_small(file: DataFile) -> bool:
    """Return True for a file that should be combined with others."""
    return file.rows < SMALL_ROWS and file.size_bytes < SMALL_BYTES


def within(files: Sequence[DataFile]) -> list[list[int]]:
    """Return the indexes of `files` in groups small enough to be read at once, in order."""
    groups: list[list[int]] = []
    rows = size_bytes = 0
    for index, file in enumerate(files):
        rows, size_bytes = rows + file.rows, size_bytes + file.size_bytes
        if not groups or rows > GROUP_ROWS_MAX or size_bytes > GROUP_BYTES_MAX:
            groups.append([])
            rows, size_bytes = file.rows, file.size_bytes
        groups[-1].append(index)
    return groups


def write(uri: str, rows: pa.Table, columns: Sequence[LakeColumn], key: Sequence[str]) -> Iterator[Action]:
    """Write `rows` (stored names, in the order of `columns`) as data files; yield their add actions."""
    schema = pa.schema(
        pa.field(column.physical, arrow_type(column.delta), metadata={"PARQUET:field_id": str(column.mapping_id)})
        for column in columns
    )
    physical = rows.rename_columns([column.physical for column in columns]).cast(schema)
    bounded = [column.physical for column in columns if column.name in key]
    for part in _parts(physical):
        sink, sample = pa.BufferOutputStream(), part.slice(0, DICTIONARY_SAMPLE)
        named = zip(sample.column_names, sample.columns, strict=True)
        repeating = [name for name, values in named if 2 * pc.count_distinct(values).as_py() <= sample.num_rows]
        pq.write_table(
            part,
            sink,
            compression="zstd",
            compression_level=1,
            use_dictionary=repeating,
            dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
        )
        body = sink.getvalue()
        path = f"part-{uuid.uuid4().hex}.zstd.parquet"
        with storing(uri):
            obstore.put(writable(uri), path, memoryview(body).cast("B"))
        yield add(path, body.size, _stats(part, bounded))


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    if not rows.num_rows:
        return
    count = max(-(-rows.nbytes // FILE_BYTES), -(-rows.num_rows // ROWS_PER_FILE))
    step = -(-rows.num_rows // min(count, rows.num_rows))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        if count > 1 and part.num_rows > 1 and part.nbytes > 2 * FILE_BYTES:
            yield from _parts(part)
        else:
            yield part


def _stats(rows: pa.Table, bounded: Sequence[str]) -> dict[str, Any]:
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for name in bounded:
        if not any(fits(rows.schema.field(name).type) for fits in BOUNDED_TYPES):
            continue
        bounds = pc.min_max(rows.column(name))
        low, high = (_exact(bounds[end].as_py()) for end in ("min", "max"))
        if low is not None and high is not None:
            lows[name], highs[name] = low, high
    nulls = {name: rows.column(name).null_count for name in lows}
    return {"numRecords": rows.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _exact(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() and abs(value) < 1 << 53 else None
        case date():
            return value.isoformat()
        case str():
            return value if len(value) <= TEXT_BOUND_CHARS_MAX else None
        case _:
            return value


Bound = Any
"""A value of a key's first column as the log has it: int, str, date; None where it has none."""

RADIX_MAX: Final = 1 << 31


def key_order(keys: pa.Table) -> Any:
    """Return the row indexes of `keys` in key order; None if the rows are already ordered."""
    if _ascending(keys, pc.less_equal):
        return None
    if keys.num_columns == 1:
        return pc.sort_indices(keys.column(0))
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def by_key(rows: pa.Table, key: list[str]) -> pa.Table:
    """`rows` in the order of their keys."""
    order = key_order(rows.select(key)) if key else None
    return rows if order is None else rows.take(order)


def distinct(keys: pa.Table) -> bool:
    """Return True if no key occurs twice."""
    if _ascending(keys, pc.less):
        return True
    if keys.num_columns == 1:
        return bool(pc.count_distinct(keys.column(0), mode="all").as_py() == keys.num_rows)
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows)


def between(first: Any, low: Bound, high: Bound) -> tuple[int, int]:
    """Return the range of the ascending values `first` that lies between the bounds, both included."""
    if not len(first):
        return 0, 0
    if low is None or high is None or not type(low) is type(high) is type(first[0].as_py()):
        return 0, len(first)
    return bisect_left(first, low, key=_plain), bisect_right(first, high, key=_plain)


def match(stored: pa.Table, keys: pa.Table) -> tuple[Any, Any]:
    """Return the rows of `stored` whose key is among the distinct `keys`: their indexes, and for each the key's
    index."""
    codes, keyed = _numbered(stored.column(0), keys.column(0))
    for name in keys.column_names[1:]:
        more_found, more_wanted = _numbered(stored.column(name), keys.column(name))
        radix = pa.scalar(RADIX_MAX, pa.int64())
        codes, keyed = _numbered(
            pc.add(pc.multiply(codes, radix), more_found), pc.add(pc.multiply(keyed, radix), more_wanted)
        )
    numbers = np.empty(keys.num_rows, np.int64)
    numbers[keyed.to_numpy(zero_copy_only=False)] = np.arange(keys.num_rows)
    touched = codes.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    return touched, numbers[codes.drop_null().to_numpy()]


def _numbered(stored: Any, keys: Any) -> tuple[Any, Any]:
    """Both columns as numbers of the values that `keys` has, null for any other value."""
    values = pc.unique(keys)
    first, second = (_whole(pc.index_in(column, value_set=values)).cast(pa.int64()) for column in (stored, keys))
    return first, second


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain(scalar: Any) -> Any:
    return scalar.as_py()


def _ascending(keys: pa.Table, compare: Any) -> bool:
    if keys.num_rows < 2:
        return True
    *leading, last = [_whole(column) for column in keys.columns]
    holds = compare(last[:-1], last[1:])
    for column in reversed(leading):
        left, right = column[:-1], column[1:]
        holds = pc.or_(pc.less(left, right), pc.and_(pc.equal(left, right), holds))
    return bool(pc.all(holds, skip_nulls=False).as_py())
