r"""Csv lines from columns: the lines of a batch.

    HEAD  commit_ts  is-update  column  column ..  terminator       "I","t","s",445,false,1,"x"\r\n
    HEAD  `"I","t","s",`, one for each of I, U and D

Each row has one line, an UPDATE with old values two: its old image as D, its new one as I. The quotes in texts are
doubled by one call per column; the plain writer returns the names of ENUM and SET, once per distinct value.  Without a
quote character texts are escaped, and rows are written one by one.

Source: the format of codec/csv.py.
"""

from binascii import hexlify
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.arrays import (
    BINARY,
    NO_ROWS,
    Piece,
    bytes_of,
    constant,
    content,
    joined,
    shaped,
    spread,
    text_of,
)
from tidegate.codec.columnar.encode.images import DELETE, INSERT, UPDATE, RowOps
from tidegate.codec.columnar.encode.text import base64, floats, integers, shifted
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.csv import FLOAT_TEXTS, CsvEncoder, CsvOptions
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.mysql import FLOATS, NAMED, NUMBERS, STRINGS, MysqlType

Cell: TypeAlias = Callable[[Any], Any]
"""Returns the fields of a column's values as a binary array."""

FEW_ROWS: Final = 24
"""Below this many rows a batch is written row by row, since its calls cost as much."""

_GENERAL: Final = (1e-4, 1e6)
"""The range in which Arrow's digits of a float equal those of Go's %v."""
_MARKS: Final = pa.array([b"false", b"true"], BINARY)


class CsvColumns:
    """Encodes batches of one table as lines; the table is prepared once. Raises Mismatch for options without a
    quote."""

    def __init__(self, schema: str, name: str, table: WireTable, options: CsvOptions) -> None:
        if not options.quote:
            raise Mismatch("texts that are escaped")
        self._options = options
        self._delimiter, self._null = options.delimiter.encode(), options.null.encode()
        self._terminator = options.terminator.encode()
        plain = CsvEncoder(options)
        names = [plain.quoted(text).encode("utf-8", "surrogateescape") for text in (name, schema)]
        heads = [self._delimiter.join([plain.quoted(op).encode(), *names]) for op in "IUD"]
        self._heads = pa.array(heads, BINARY)
        self._cells = [self._cell(column, plain.writer(column)) for column in table.columns]

    def lines(self, batch: Batch) -> Any:
        """Return the line of each row, both lines of an UPDATE with old values. Raises Mismatch for rows to write one
        by one."""
        ops = RowOps.of(batch)
        codes, old_values = ops.codes, self._options.output_old_value
        leaves = ops.has_before if old_values else codes == DELETE
        before = batch.before if old_values else batch.before.filter(pa.array(ops.codes_before == DELETE))
        comes = ops.has_after
        new_codes = np.where(codes == UPDATE, INSERT, codes) if old_values else codes
        old = self._images(before, np.full(int(leaves.sum()), DELETE), batch, leaves)
        new = self._images(batch.after, new_codes[comes], batch, comes)
        return joined([spread(old, leaves), spread(new, comes)], batch.rows)

    def _images(self, images: Any, codes: Any, batch: Batch, present: Any) -> Any:
        """One line per image; `there` marks the rows of the batch that have one."""
        if not images.num_rows:
            return NO_ROWS
        options = self._options
        pieces: list[Piece] = [constant(self._heads, codes)]
        if options.include_commit_ts:
            commit_ts = batch.commit_ts.filter(pa.array(present))
            if commit_ts.null_count:
                raise Mismatch("rows without a commit_ts")
            pieces += [self._delimiter, integers(commit_ts)]
        if options.output_old_value:
            is_update = (RowOps.of(batch).codes[present] == UPDATE).astype(np.int64)
            pieces += [self._delimiter, constant(_MARKS, is_update)]
        for cell, column in zip(self._cells, images.columns, strict=True):
            pieces += [self._delimiter, cell(column).fill_null(self._null)]
        return joined([*pieces, self._terminator], images.num_rows)

    def _cell(self, column: WireColumn, write: Callable[[Any], str]) -> Cell:
        code, options = column.type.code, self._options
        if code in FLOATS:
            return partial(floats, write=FLOAT_TEXTS[code], single=code == MysqlType.FLOAT, within=_GENERAL)
        if code in NUMBERS - NAMED:
            return integers
        if code in NAMED:
            return partial(_looked_up, write=write)
        if code in STRINGS and column.binary:
            encode = partial(base64, binary=True) if options.binary_encoding_method == "base64" else _hexadecimal
            return lambda array: self._quoted(encode(bytes_of(array)))
        if code == MysqlType.TIMESTAMP and options.time_zone != "UTC":
            return lambda array: self._quoted(shifted(array, options.time_zone))
        return lambda array: self._quoted(array if pa.types.is_binary(array.type) else text_of(array))

    def _quoted(self, texts: Any) -> Any:
        mark = self._options.quote.encode()
        doubled = pc.replace_substring(texts, pattern=mark, replacement=mark + mark)
        return pc.binary_join_element_wise(mark, doubled, mark, b"")


def _hexadecimal(array: Any) -> Any:
    ends, raw = content(array)
    return shaped(array, (ends * 2).astype(np.int32), hexlify(raw))


def _looked_up(array: Any, write: Callable[[Any], str]) -> Any:
    """Write each distinct integer once with the plain writer."""
    if not pa.types.is_integer(array.type):
        raise Mismatch(f"numbers that come as {array.type}")
    distinct = array.dictionary_encode()
    try:
        texts = [write(number).encode("utf-8", "surrogateescape") for number in distinct.dictionary.to_pylist()]
    except IndexError as error:
        raise Mismatch("a number that has no name") from error
    return pa.array(texts, BINARY).take(distinct.indices)
