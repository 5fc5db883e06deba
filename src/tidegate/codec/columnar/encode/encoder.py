"""Row changes as columns to messages: the fast path of both protocols, with the plain encoder behind it.

    Batch ──→ columns to rows of JSON ──→ keys, values ──→ compress ──→ too large? ──no──→ cut ──→ MessageArrays
                      │ Mismatch, no numba                                │ yes
                      └─→ plain encoder, row by row ←─────────────────────┘ these rows only

    encoder = ColumnarEncoder(encode_options(config))
    for batch in decode_chunk(messages, reading).batches:
        for key, value in encoder.append(batch).pairs(): …
    encoder.flush()

The input is the `Batch` that `decode_chunk` returns: one table, one layout, a typed column per field (decision
8); `text_batch` makes one from rows of a changelog.  The bytes are those of BatchEncoder, message by message,
whichever path a row takes.  A Mismatch reports what columns cannot hold: values that are not of their column's type,
flags that depend on earlier rows, an error that the plain encoder reports better.  A batch of few rows is faster row
by row, and so is any batch without numba, which compiles the loops that write rows (write.py).

The columnar path makes no Python call per row or value, except for floats that Go formats in its own way and
compressed values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.batch import BatchEncoder, ClaimStore
from tidegate.codec.columnar.encode.arrays import BINARY, replaced
from tidegate.codec.columnar.encode.canal import CanalColumns
from tidegate.codec.columnar.encode.changes import typed_batch
from tidegate.codec.columnar.encode.cut import Cutter, EncodedRows, MessageArrays, sizes
from tidegate.codec.columnar.encode.open import OpenColumns
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch, slow_reason
from tidegate.codec.compression import COMPRESSORS
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.open_encode import Pair
from tidegate.codec.wire_table import WireColumn, WireTable, table_of_fields
from tidegate.model.compiled import AVAILABLE
from tidegate.model.errors import EncodeError
from tidegate.model.event import Delete, Insert, RowChange, Update, Value, Values
from tidegate.model.path_counts import PathCounts, Reason, SlowReason, counted

FEW_ROWS: Final = 8
"""Below this many rows a batch is written row by row, since its calls cost as much as 1 to 12 rows."""

_Columns: TypeAlias = OpenColumns | CanalColumns


class ColumnarEncoder:
    """Encodes batches as messages. `now_ms` is canal-json's clock, read once per batch; `claims` is needed for
    claim-check only; below `few_rows` rows a batch is written row by row."""

    def __init__(
        self,
        options: EncodeOptions,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        claims: ClaimStore | None = None,
        few_rows: int = FEW_ROWS,
    ) -> None:
        self.options = options
        self._plain = BatchEncoder(options, now_ms=now_ms, claims=claims)
        self._cutter = Cutter(options)
        self._now_ms = now_ms
        self._few_rows = few_rows
        self._path_counts = PathCounts()
        self._is_open = options.protocol == "open-protocol"
        self._tables = LayoutMemory[tuple[int, tuple[str, ...] | None], tuple[Any, WireTable]](TABLES_MAX)
        self._ready = LayoutMemory[tuple[int, str, str], tuple[WireTable, _Columns]](TABLES_MAX)

    def append(
        self, batch: Batch, table: WireTable | None = None, *, row_ids: Any = None, row_keys: Any = None
    ) -> MessageArrays:
        """Return the messages that the rows of `batch` complete; the last rows may stay in an open one until `flush`.

        `table` describes the columns; without it, the batch's own fields do.  `row_ids` (int64, null where there is
        none) are the handles that Open Protocol's keys may have, `row_keys` (binary) those of output-row-key.  A batch
        with a row that is refused (EncodeError) leaves the encoder unchanged, except for files of claim checks."""
        return self._cutter.append(self.texts(batch, table, row_ids=row_ids, row_keys=row_keys))

    def flush(self) -> MessageArrays:
        """Return the open message, if there is one."""
        return self._cutter.flush()

    def texts(
        self, batch: Batch, table: WireTable | None = None, *, row_ids: Any = None, row_keys: Any = None
    ) -> EncodedRows:
        """Return the rows' keys and values before framing, for the `Cutter` of each partition."""
        table = self._table_of(batch) if table is None else table
        width = len(table.columns)
        if {width, batch.before.num_columns, batch.after.num_columns} != {width}:
            raise EncodeError(
                f"a batch of {batch.schema}.{batch.table} has not as many columns as its table has ({width})"
            )
        name = batch.schema, batch.table
        slow = None
        if not AVAILABLE:
            slow = SlowReason(Reason.SWITCHED_OFF, "there is no numba, which compiles what writes rows of columns")
        elif batch.rows < self._few_rows:
            slow = SlowReason(Reason.FEW_ROWS, f"{counted(batch.rows)} at once, columns need {self._few_rows}")
        if slow is not None:
            self._path_counts.add("encode/rows", batch.rows, slow, name)
            return self._by_rows(batch, table, row_ids, row_keys)
        try:
            encoded = self._by_columns(batch, table, row_ids, row_keys)
        except pa.lib.ArrowCapacityError as error:
            raise EncodeError(f"{batch.rows} rows of {batch.schema}.{batch.table} take 2 GiB; give fewer") from error
        except (Mismatch, EncodeError, UnicodeError) as mismatch:
            self._path_counts.add("encode/rows", batch.rows, slow_reason(mismatch), name)
            return self._by_rows(batch, table, row_ids, row_keys)
        return self._fitted(encoded, batch, table, row_ids, row_keys)

    def take_path_counts(self) -> PathCounts:
        """Return the rows by encode path since the last call, rows of refused batches included."""
        counts, self._path_counts = self._path_counts, PathCounts()
        return counts

    def pair(self, row: RowChange, table: WireTable) -> Pair:
        """Return key JSON and value of a single row before they are framed. Raises EncodeError."""
        return self._plain.pair(row, table)

    def texts_of(self, pairs: Sequence[Pair]) -> EncodedRows:
        """Return rows that were written one by one, for a `Cutter`."""
        return self._array_of(pairs)

    def _by_columns(self, batch: Batch, table: WireTable, row_ids: Any, row_keys: Any) -> EncodedRows:
        ts = batch.commit_ts
        if ts.null_count or ts.type != pa.int64() or (batch.rows and ts.to_numpy().min() < 0):
            raise Mismatch("a commit_ts that is none")
        if not batch.schema or not batch.table or not table.columns:
            raise Mismatch("a row of no table")
        columns = self._columns(batch, table)
        if isinstance(columns, OpenColumns):
            keys, values = columns.texts(batch, row_ids)
        else:
            keys, values = None, columns.texts(batch, row_keys, self._now_ms())
        if self.options.compression != "none":
            compress = COMPRESSORS[self.options.compression]
            values = pa.array([compress(value) for value in values.to_pylist()], BINARY)
        return EncodedRows(keys, values)

    def _by_rows(self, batch: Batch, table: WireTable, row_ids: Any, row_keys: Any) -> EncodedRows:
        """Write all rows with the plain encoder, which raises the error of the first that is refused."""
        return self._array_of(self._pairs(range(batch.rows), batch, table, row_ids, row_keys))

    def _fitted(self, texts: EncodedRows, batch: Batch, table: WireTable, row_ids: Any, row_keys: Any) -> EncodedRows:
        """Replace rows that are too large by the plain encoder's messages."""
        limit = self.options.max_message_bytes
        rows = np.flatnonzero(sizes(texts) > limit)
        self._path_counts.add("encode/columns", batch.rows - len(rows))
        if not len(rows):
            return texts
        slow = SlowReason(Reason.TOO_LARGE, f"a row above the {limit} bytes of a message")
        self._path_counts.add("encode/rows", len(rows), slow, (batch.schema, batch.table))
        cut = self._array_of(self._pairs(rows.tolist(), batch, table, row_ids, row_keys))
        keys = None if texts.keys is None else replaced(texts.keys, rows, cut.keys)
        return EncodedRows(keys, replaced(texts.values, rows, cut.values))

    def _pairs(self, numbers: Sequence[int], batch: Batch, table: WireTable, row_ids: Any, row_keys: Any) -> list[Pair]:
        rows = rows_of(batch, numbers, table, row_ids)
        keys = [None if row_keys is None else row_keys[number].as_py() for number in numbers]
        return [self._plain.pair(row, table, key) for row, key in zip(rows, keys, strict=True)]

    def _array_of(self, pairs: Sequence[Pair]) -> EncodedRows:
        keys = pa.array([pair.key for pair in pairs], BINARY) if self._is_open else None
        return EncodedRows(keys, pa.array([pair.value for pair in pairs], BINARY))

    def _columns(self, batch: Batch, table: WireTable) -> _Columns:
        key = (id(table), batch.schema, batch.table)
        prepared = self._ready.get(key)
        if prepared is None:
            columns: _Columns
            if self._is_open:
                columns = OpenColumns(table, self.options)
            else:
                columns = CanalColumns(batch.schema, batch.table, table, self.options)
            prepared = self._ready.keep(key, (table, columns))
        return prepared[1]

    def _table_of(self, batch: Batch) -> WireTable:
        """The table of decoded rows; batches of one layout share their fields, so those are known by identity."""
        key = (id(batch.fields), batch.pk_names)
        cached = self._tables.get(key)
        if cached is None:
            cached = self._tables.keep(key, (batch.fields, table_of_fields(batch.fields, batch.pk_names)))
        return cached[1]


def events_of(batch: Batch) -> list[RowChange]:
    """Return the rows of a batch, one event each."""
    table = table_of_fields(batch.fields, batch.pk_names)
    return list(rows_of(typed_batch(batch), range(batch.rows), table, batch.row_ids))


def rows_of(batch: Batch, numbers: Sequence[int], table: WireTable, row_ids: Any = None) -> Iterator[RowChange]:
    """Return the rows `numbers` of a batch as events; `table` distinguishes texts from bytes."""
    chosen = pa.array(numbers, pa.int64())
    ops = np.array(batch.op.to_pylist(), object)
    images = {
        kind: _images(rows, np.flatnonzero(ops != absent), np.asarray(numbers, np.int64), table)
        for kind, absent, rows in (("before", "I", batch.before), ("after", "D", batch.after))
    }
    singles = (batch.commit_ts, batch.partition_id, pa.nulls(batch.rows) if row_ids is None else row_ids)
    ids = zip(*(column.take(chosen).to_pylist() for column in singles), strict=True)
    each_row = zip(ops[numbers].tolist(), ids, images["before"], images["after"], strict=True)
    for op, (commit_ts, partition_id, row_id), before, after in each_row:
        shared: dict[str, Any] = {
            "schema": batch.schema,
            "table": batch.table,
            "fields": batch.fields,
            "commit_ts": commit_ts,
            "row_id": row_id,
            "partition_id": partition_id,
            "pk_names": batch.pk_names,
        }
        match op:
            case "I":
                yield Insert(after=after, **shared)
            case "U":
                yield Update(before=before, after=after, **shared)
            case "D":
                yield Delete(before=before, **shared)
            case _:
                raise EncodeError(f"a row of {batch.schema}.{batch.table} has op {op!a}, which is not I, U or D")


def _images(rows: Any, row_numbers: Any, numbers: Any, table: WireTable) -> list[Values]:
    """The image of each of the rows `numbers`, () for rows without one; `rows` are the images of the rows that are
    `there`."""
    if len(row_numbers) != rows.num_rows:
        raise EncodeError(f"{rows.num_rows} images of {len(row_numbers)} rows")
    positions = np.searchsorted(row_numbers, numbers)
    has = np.isin(numbers, row_numbers)
    chosen = rows.take(pa.array(positions[has]))
    columns = [_values(column.to_pylist(), of) for column, of in zip(chosen.columns, table.columns, strict=True)]
    values = iter(zip(*columns, strict=True))
    return [next(values) if present else () for present in has.tolist()]


def _values(values: list[Any], column: WireColumn) -> list[Value]:
    """Values in the form of events; bytes of a text column become texts, whatever their Arrow type."""
    if column.binary:
        return values
    return [value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value for value in values]
