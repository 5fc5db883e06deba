"""Open Protocol rows from columns: key JSON and value JSON of a batch.

    key     {"ts":  TS  ,"scm":"s","tbl":"t"  ,"rid":R  ,"ptn":P  ,"t":1}
    value   I   {"u":  AFTER                  }
            U   {"u":  AFTER  ,"p":{  BEFORE  }}
            D          {"d":{  BEFORE         }}

What stands in capitals is an array, the rest the same for all rows of an op.  An UPDATE whose old image is left out,
by output-old-value or because nothing changed (classic), is written as an INSERT.

Source: `open/encode/`, whose bytes these are.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.arrays import BINARY, Piece, constant, joined, spread
from tidegate.codec.columnar.encode.cells import open_cell
from tidegate.codec.columnar.encode.images import (
    DELETE,
    INSERT,
    UPDATE,
    Member,
    Places,
    differing,
    image_texts,
)
from tidegate.codec.columnar.encode.text import integers
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.open.encode.row import TableForm
from tidegate.codec.open.encode.values import style_of
from tidegate.codec.wire_table import WireTable

_HEADS: Final = pa.array([b'{"u":{', b'{"u":{', b'{"d":{'], BINARY)
_MIDDLES: Final = pa.array([b"}", b'},"p":{', b""], BINARY)
_TAILS: Final = pa.array([b"}", b"}}", b"}}"], BINARY)


class OpenColumns:
    """Batches of one table to key JSON and value JSON; the table is made ready once."""

    def __init__(self, table: WireTable, options: EncodeOptions) -> None:
        images = TableForm(table, options)
        self._members = [
            Member(
                part.place,
                part.head.encode("utf-8", "surrogateescape"),
                open_cell(table.columns[part.place], options),
                b"}",
            )
            for part in images.parts
        ]
        self._handles = [table.columns[member.place].handle for member in self._members]
        self._options = options
        self._quote = style_of(options).quote

    def texts(self, batch: Batch, row_ids: Any) -> tuple[Any, Any]:
        """Return key JSON and value JSON of all rows, uncompressed; Misfit for what the plain encoder has to write."""
        places = Places.of(batch)
        self._check(batch, places)
        return self._keys(batch, row_ids), self._values(batch, places)

    def _check(self, batch: Batch, places: Places) -> None:
        options = self._options
        if "stale-flags" in options.faults and batch.partition_id.null_count < batch.rows:
            raise Misfit("flags that depend on what came before")
        if "unnamed-null" in options.faults and options.only_output_updated_columns:
            raise Misfit("members without their names")
        if options.delete_only_output_handle_key_columns and not any(self._handles) and DELETE in places.codes:
            raise Misfit("no handle key column")

    def _keys(self, batch: Batch, row_ids: Any) -> Any:
        schema, table = (self._quote(name).encode("utf-8", "surrogateescape") for name in (batch.schema, batch.table))
        ts, partition = batch.commit_ts, _optional(b',"ptn":', batch.partition_id)
        start: list[Piece] = [b'{"ts":', integers(ts), b',"scm":', schema, b',"tbl":', table]
        if self._options.newarch:
            return joined([*start, b',"t":1', *partition, b"}"], batch.rows)
        row_id: list[Piece] = []
        if row_ids is not None:
            row_id = _optional(b',"rid":', pc.if_else(pc.equal(row_ids, 0), pa.scalar(None, row_ids.type), row_ids))
        return joined([*start, *row_id, *partition, b',"t":1}'], batch.rows)

    def _values(self, batch: Batch, places: Places) -> Any:
        options, rows, codes = self._options, batch.rows, places.codes
        before, has_before = batch.before, places.has_before
        if not options.output_old_value:
            before = before.filter(pa.array(places.codes_before == DELETE))
            has_before = codes == DELETE
            codes = np.where(codes == UPDATE, INSERT, codes)
        old, new = image_texts(self._members, before, batch.after, self._masks(batch, places))
        if options.only_output_updated_columns and not options.newarch:
            empty = np.zeros(rows, np.bool_)
            empty[has_before] = pc.equal(pc.binary_length(old), 0).to_numpy(zero_copy_only=False)
            codes = np.where(empty, INSERT, codes)
        return joined(
            [
                constant(_HEADS, codes),
                spread(new, places.has_after),
                constant(_MIDDLES, codes),
                spread(old, has_before),
                constant(_TAILS, codes),
            ],
            rows,
        )

    def _masks(self, batch: Batch, places: Places) -> list[Any]:
        """Which old images have each column; [] when all have all."""
        options = self._options
        deleted = places.codes_before == DELETE
        if not options.output_old_value:
            if not options.delete_only_output_handle_key_columns:
                return []
            return [np.full(int(deleted.sum()), handle) for handle in self._handles]
        masks = [np.ones(len(deleted), np.bool_) for _ in self._members]
        if options.only_output_updated_columns:
            masks = [deleted | _changed(batch, places, member.place) for member in self._members]
        if options.delete_only_output_handle_key_columns:
            masks = [mask & (~deleted | handle) for mask, handle in zip(masks, self._handles, strict=True)]
        return masks


def _optional(name: bytes, numbers: Any) -> list[Piece]:
    """A member with its comma for the numbers that are not null."""
    if numbers.null_count == len(numbers):
        return []
    digits = integers(numbers)
    if not numbers.null_count:
        return [name, digits]
    head, end = pa.scalar(name, BINARY), pa.scalar(b"", BINARY)
    return [pc.binary_join_element_wise(head, digits, end, null_handling="emit_null").fill_null(b"")]


def _changed(batch: Batch, places: Places, place: int) -> Any:
    return differing(batch.before.column(place), batch.after.column(place).take(places.after_of_before))
