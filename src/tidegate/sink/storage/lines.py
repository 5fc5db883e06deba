"""Rows of one table to the lines of a file: the two protocols of a storage sink behind one interface.

canal-json    the value of a Kafka message and a terminator; a terminator in a text is escaped
csv           one line a row, two for an UPDATE with old values; a header, if asked for
"""

from typing import Any, TypeAlias

import pyarrow as pa

from tidegate.codec import EncodeOptions
from tidegate.codec.columnar import Batch, ColumnarEncoder
from tidegate.codec.columnar.encode.arrays import BINARY, joined
from tidegate.codec.columnar.encode.csv import FEW_ROWS, CsvColumns
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.csv import CsvEncoder, CsvOptions
from tidegate.codec.wire_table import WireTable
from tidegate.model.event import RowChange


class CanalLines:
    """Lines of canal-json."""

    def __init__(self, options: EncodeOptions, now_ms: int) -> None:
        self._columns = ColumnarEncoder(options, now_ms=lambda: now_ms)
        self._terminator = options.terminator.encode()

    def header(self, _table: WireTable) -> bytes:
        """Return what a file begins with: nothing."""
        return b""

    def lines(self, batch: Batch, table: WireTable) -> Any:
        """Return the line of each row of a batch in a binary array. EncodeError."""
        return joined([self._columns.texts(batch, table).values, self._terminator], batch.rows)

    def line(self, row: RowChange, table: WireTable) -> bytes:
        """Return the line of one row. EncodeError."""
        return self._columns.pair(row, table).value + self._terminator


class CsvLines:
    """Lines of csv."""

    def __init__(self, options: CsvOptions) -> None:
        self._options, self._rows = options, CsvEncoder(options)
        self._ready: dict[tuple[int, str, str], tuple[WireTable, CsvColumns]] = {}

    def header(self, table: WireTable) -> bytes:
        """Return what a file begins with: the names of its columns, or nothing."""
        return self._rows.header(table)

    def lines(self, batch: Batch, table: WireTable) -> Any:
        """Return the line of each row of a batch in a binary array. EncodeError; Misfit for what goes row by row."""
        if batch.rows < FEW_ROWS:
            rows = rows_of(batch, range(batch.rows), table)
            return pa.array([self._rows.row(row, table) for row in rows], BINARY)
        key = id(table), batch.schema, batch.table
        if key not in self._ready:
            self._ready[key] = table, CsvColumns(batch.schema, batch.table, table, self._options)
        return self._ready[key][1].lines(batch)

    def line(self, row: RowChange, table: WireTable) -> bytes:
        """Return the line of one row. EncodeError."""
        return self._rows.row(row, table)


Lines: TypeAlias = CanalLines | CsvLines


def lines_of(protocol: CsvOptions | EncodeOptions, now_ms: int) -> Lines:
    """Return a new encoder of a protocol; canal-json carries the time at which it was written."""
    return CsvLines(protocol) if isinstance(protocol, CsvOptions) else CanalLines(protocol, now_ms)
