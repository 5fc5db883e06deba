"""Committed keys as columns: the fields of KvChange as an Arrow record batch.

    key     start_ts   commit_ts   op   value   old_value   txn_source
    t45r1   100        101         1    80 00…  null        0

The bytes of many rows are contiguous, so a columnar reader creates no Python object per row.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.model.errors import DecodeError
from tidegate.model.kv_change import KvChange, KvOp, LogType

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("start_ts", pa.int64()),
        ("commit_ts", pa.int64()),
        ("op", pa.int8()),
        ("value", pa.binary()),
        ("old_value", pa.binary()),
        ("txn_source", pa.int64()),
    ]
)
_OPS: Final = tuple(KvOp)
_ALWAYS: Final = ("key", "start_ts", "commit_ts", "op", "txn_source")
_CODEC: Final = "columns of changes"


def change_batch(rows: Sequence[KvChange]) -> Any:
    """Return a record batch of COMMITTED changes."""
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def changes_of(batch: Any) -> list[KvChange]:
    """Return the changes of a record batch."""
    keys, starts, commits, ops, values, olds, sources = (column.to_pylist() for column in batch.columns)
    every = zip(keys, starts, commits, map(_OPS.__getitem__, ops), values, olds, sources, strict=True)
    return [KvChange(LogType.COMMITTED, *row) for row in every]


def packed(batch: Any) -> bytes:
    """Return the bytes of a record batch, without its schema."""
    data: bytes = batch.serialize().to_pybytes()
    return data


def unpacked(data: bytes) -> Any:
    """Return the record batch in `data`, which it keeps referring to. DecodeError for invalid bytes.

    Bytes with a valid checksum may still be forged, so each offset is checked before it is followed."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DecodeError(f"rows: {error}", _CODEC, 0) from error
    if any(batch.column(name).null_count for name in _ALWAYS):
        raise DecodeError("rows: a change without key, time or operation", _CODEC, 0)
    if not np.isin(numbers(batch, "op"), range(len(_OPS))).all():
        raise DecodeError("rows: an operation that there is not", _CODEC, 0)
    return batch


def joined(batches: Sequence[Any]) -> Any:
    """Return record batches concatenated into one, which may be empty."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else change_batch([])


def numbers(batch: Any, name: str) -> Any:
    """Return a column of numbers as a numpy array."""
    return batch.column(name).to_numpy()
