"""Open Protocol rows from columns: key JSON and value JSON of a batch.

    key     {"ts":  TS  ,"scm":"s","tbl":"t"  ,"rid":R  ,"ptn":P  ,"t":1}
    value   I   {"u":  AFTER                  }
            U   {"u":  AFTER  ,"p":{  BEFORE  }}
            D          {"d":{  BEFORE         }}

Parts in capitals are arrays, the rest is the same for all rows of an op.  An UPDATE whose old image is left out,
by output-old-value or because nothing changed (classic), is written as an INSERT.

Source: the format of `codec/open_encode.py`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.cells import DIGITS, open_cell
from tidegate.codec.columnar.encode.compose import (
    NEW,
    OLD,
    BatchImages,
    CellStep,
    Chosen,
    Composer,
    ImageStep,
    Member,
    Step,
)
from tidegate.codec.columnar.encode.images import DELETE, INSERT, UPDATE, RowOps, differing
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.open_encode import TableForm, style_of
from tidegate.codec.wire_table import WireTable

_HEADS: Final = [b'{"u":{', b'{"u":{', b'{"d":{']
_MIDDLES: Final = [b"}", b'},"p":{', b""]
_TAILS: Final = [b"}", b"}}", b"}}"]


class OpenColumns:
    """Encodes batches of one table as key JSON and value JSON; the table is prepared once."""

    def __init__(self, table: WireTable, options: EncodeOptions) -> None:
        images = TableForm(table, options)
        members = [
            Member(
                part.column,
                part.head.encode("utf-8", "surrogateescape"),
                open_cell(table.columns[part.column], options),
                b"}",
            )
            for part in images.parts
        ]
        self._columns_sent = [member.column for member in members]
        self._handles = [table.columns[column].handle for column in self._columns_sent]
        self._composer, self._keys_composer = Composer(members), Composer([])
        self._options = options
        self._quote = style_of(options).quote

    def texts(self, batch: Batch, row_ids: Any) -> tuple[Any, Any]:
        """Return key JSON and value JSON of all rows, uncompressed; Mismatch for what only the plain encoder writes."""
        ops = RowOps.of(batch)
        self._check(batch, ops)
        return self._keys(batch, row_ids), self._values(batch, ops)

    def _check(self, batch: Batch, ops: RowOps) -> None:
        options = self._options
        if "stale-flags" in options.faults and batch.partition_id.null_count < batch.rows:
            raise Mismatch("flags that depend on what came before")
        if "unnamed-null" in options.faults and options.only_output_updated_columns:
            raise Mismatch("members without their names")
        if options.delete_only_output_handle_key_columns and not any(self._handles) and DELETE in ops.codes:
            raise Mismatch("no handle key column")

    def _keys(self, batch: Batch, row_ids: Any) -> Any:
        schema, table = (self._quote(name).encode("utf-8", "surrogateescape") for name in (batch.schema, batch.table))
        partition = _optional(b',"ptn":', batch.partition_id)
        steps: list[Step] = [b'{"ts":', CellStep(DIGITS, batch.commit_ts), b',"scm":' + schema + b',"tbl":' + table]
        if self._options.newarch:
            steps += [b',"t":1', *partition, b"}"]
        else:
            if row_ids is not None:
                row_ids_sent = pc.if_else(pc.equal(row_ids, 0), pa.scalar(None, row_ids.type), row_ids)
                steps += _optional(b',"rid":', row_ids_sent)
            steps += [*partition, b',"t":1}']
        return self._keys_composer.texts(steps, batch.rows)

    def _values(self, batch: Batch, ops: RowOps) -> Any:
        options, codes, images = self._options, ops.codes, ops.images
        masks = self._masks(batch, ops)
        if not options.output_old_value:
            codes = np.where(codes == UPDATE, INSERT, codes)
        elif options.only_output_updated_columns and not options.newarch:
            empty = np.zeros(batch.rows, np.bool_)
            empty[ops.has_before] = ~np.logical_or.reduce(masks)
            codes = np.where(empty, INSERT, codes)
        images[OLD, codes == INSERT] = -1
        heads, middles, tails = (Chosen(texts, codes) for texts in (_HEADS, _MIDDLES, _TAILS))
        steps: list[Step] = [heads, ImageStep(NEW), middles, ImageStep(OLD), tails]
        return self._composer.texts(steps, batch.rows, BatchImages((batch.before, batch.after), images, masks))

    def _masks(self, batch: Batch, ops: RowOps) -> list[Any]:
        """Per column, the old images that have it; [] when all have all."""
        options = self._options
        partly = options.only_output_updated_columns and options.output_old_value
        if not partly and not options.delete_only_output_handle_key_columns:
            return []
        deleted = ops.codes_before == DELETE
        masks = [np.ones(len(deleted), np.bool_) for _ in self._columns_sent]
        if partly:
            masks = [deleted | _changed(batch, ops, column) for column in self._columns_sent]
        if options.delete_only_output_handle_key_columns:
            masks = [mask & (~deleted | handle) for mask, handle in zip(masks, self._handles, strict=True)]
        return masks


def _optional(name: bytes, numbers: Any) -> list[Step]:
    """A member with its comma for the numbers that are not null."""
    return [] if numbers.null_count == len(numbers) else [CellStep(DIGITS, numbers, name)]


def _changed(batch: Batch, ops: RowOps, column: int) -> Any:
    return differing(batch.before.column(column), batch.after.column(column).take(ops.after_of_before))
