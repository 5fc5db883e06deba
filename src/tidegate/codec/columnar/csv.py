r"""Csv files to Arrow columns: all lines of a file in one call per column.

    lines          pyarrow's reader, all fields as bytes, NULL distinct from a quoted text
    commit_ts      only rows with after < commit_ts <= upto are read further
    two lines      D and I, both with is-update true, of one commit_ts: one U

                line  op  is-update         row  op   before   after
                0     I   false        →    0    I             line 0
                1     D   true              1    U    line 1   line 2
                2     I   true              3    I             line 3      U without old values comes as an INSERT does
                3     U   false

Dialects with delimiters of several characters or without quotes, and any invalid input, raise `Mismatch`; the plain
reader (codec/csv.py) then reads the file.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch, from_texts, typed_texts
from tidegate.codec.csv import CODEC, CsvOptions, reader_of, terminator_of
from tidegate.codec.values import ColumnForm, Form
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import DecodeError
from tidegate.model.event import Field
from tidegate.model.mysql import NAMED, STRINGS, MysqlType
from tidegate.model.tso import MAX_TS

_TS: Final = ColumnForm(Form.INTEGER, 0, MAX_TS)
_BREAKS: Final = frozenset({"\r\n", "\n"})
_BLOCK_MAX: Final = (1 << 31) - 1


class CsvRead(NamedTuple):
    """The rows of a file in a range of commit_ts, if any; the least commit_ts above the range, if any; the number of
    lines, without a header."""

    batch: Batch | None
    waits: int | None
    lines: int


class CsvTable:
    """Reads files of one table as batches; `fields` describe the columns of `table`."""

    def __init__(
        self,
        schema: str,
        name: str,
        table: WireTable,
        fields: tuple[Field, ...],
        options: CsvOptions,
        *,
        handle_key: bool = False,
    ) -> None:
        self._schema, self._name, self._table, self._fields, self._options = schema, name, table, fields, options
        self._head = 4 + options.output_old_value + handle_key

    def lines(self, body: bytes, after: int, upto: int) -> CsvRead:
        """Return the rows of a file with after < commit_ts <= upto. Raises Mismatch."""
        lines = self._read(body)
        if not lines.num_rows:
            return CsvRead(None, None, 0)
        self._check(lines)
        count = lines.num_rows
        ts = from_texts(_TS, lines.column(3))
        if ts.null_count:
            raise Mismatch("a row without a commit_ts")
        later = ts.filter(pc.greater(ts, upto))
        waits = pc.min(later).as_py() if len(later) else None
        number = pa.array(np.arange(lines.num_rows, dtype=np.int32))
        inside = pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto))
        if not pc.all(inside).as_py():
            lines, ts, number = lines.filter(inside), ts.filter(inside), number.filter(inside)
        return CsvRead(self._batch(lines, ts, number) if lines.num_rows else None, waits, count)

    def _read(self, body: bytes) -> Any:
        options = self._options
        if len(options.delimiter) != 1 or len(options.quote) != 1 or terminator_of(options) not in _BREAKS:
            raise Mismatch("a dialect of several characters, or without quotes")
        if not (options.delimiter + options.quote).isascii() or len(body) > _BLOCK_MAX - 1:
            raise Mismatch("characters of several bytes, or a file of more than 2 GB")
        names = [str(index) for index in range(self._head + len(self._table.columns))]
        try:
            lines = csv.read_csv(
                pa.py_buffer(body),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=max(len(body), 1) + 1,
                    column_names=names,
                    skip_rows=int(options.output_field_header),
                ),
                csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=options.quote,
                    double_quote=True,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                ),
                csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(names, pa.binary()),
                    null_values=[options.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise Mismatch(str(error)) from error
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in lines.columns]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _check(self, lines: Any) -> None:
        for index, name in ((1, self._name), (2, self._schema)):
            expected = pa.scalar(name.encode("utf-8", "surrogateescape"), pa.binary())
            if pc.all(pc.fill_null(pc.equal(lines.column(index), expected), fill_value=False)).as_py() is False:
                raise Mismatch("rows of another table")

    def _batch(self, lines: Any, ts: Any, number: Any) -> Batch:
        op = lines.column(0)
        ops = [pc.fill_null(pc.equal(op, word), fill_value=False) for word in (b"I", b"U", b"D")]
        inserts, updates, deletes = (mask.to_numpy(zero_copy_only=False) for mask in ops)
        if not (inserts | updates | deletes).all():
            raise Mismatch("a row that is neither I, U nor D")
        second = self._second(lines, ts, inserts, deletes)
        rows = ~second
        words = np.where(deletes, "D", "I").astype(object)
        words[:-1][second[1:]] = "U"
        columns = [
            self._column(column, lines.column(self._head + index)) for index, column in enumerate(self._table.columns)
        ]
        images = pa.RecordBatch.from_arrays(columns, names=[column.name for column in self._table.columns])
        count = int(rows.sum())
        kept = pa.array(rows)
        return Batch(
            schema=self._schema,
            table=self._name,
            fields=self._fields,
            pk_names=self._table.pk_names or None,
            message=number.filter(kept),
            seq=pa.array(np.zeros(count, np.int32)),
            commit_ts=ts.filter(kept),
            op=pa.array(words[rows], pa.string()),
            partition_id=pa.nulls(count, pa.int64()),
            before=images.filter(pa.array(deletes)),
            after=images.filter(pa.array(~deletes)),
        )

    def _second(self, lines: Any, ts: Any, inserts: Any, deletes: Any) -> Any:
        """Mark the lines with the new image of an UPDATE whose old image is the line before."""
        second = np.zeros(len(ts), bool)
        if not self._options.output_old_value:
            return second
        mark = lines.column(4)
        marks = [pc.fill_null(pc.equal(mark, word), fill_value=False) for word in (b"true", b"false")]
        true, false = (mask.to_numpy(zero_copy_only=False) for mask in marks)
        if not (true | false).all():
            raise Mismatch("a mark that is neither true nor false")
        moment = ts.to_numpy()
        halves = deletes & true
        second[1:] = halves[:-1] & (inserts & true)[1:] & (moment[1:] == moment[:-1])
        return second

    def _column(self, column: WireColumn, texts: Any) -> Any:
        code = column.type.code
        if (code in STRINGS and column.binary) or code in NAMED:
            return _one_by_one(column, texts, self._options)
        return typed_texts(texts, code, unsigned=column.unsigned, binary=column.binary)


def _one_by_one(column: WireColumn, texts: Any, options: CsvOptions) -> Any:
    """Read each distinct value once with the plain reader."""
    read = reader_of(column, options)
    distinct = texts.dictionary_encode()
    try:
        values = [read(text.decode("utf-8", "surrogateescape")) for text in distinct.dictionary.to_pylist()]
    except DecodeError as error:
        raise Mismatch(f"{CODEC}: {error}") from error
    kind = pa.int64() if column.type.code in NAMED else pa.binary()
    if column.type.code == MysqlType.SET:
        kind = pa.uint64()
    return pa.array(values, kind).take(distinct.indices)
