"""Canal-json rows from columns: the values of a batch.

    HEAD  ES  TYPES  BEFORE  MIDDLE  AFTER  }]  ,"_tidb":{"commitTs":  TS  }}

    HEAD     {"id":0,"database":"s","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":
    TYPES    ,"ts":…,"sql":"","sqlType":{…},"mysqlType":{…},"old":[{                 U
             ,"ts":…,"sql":"","sqlType":{…},"mysqlType":{…},"old":null,"data":[{     I D
    MIDDLE   }],"data":[{                                                            U

A deleted row goes to `data`, directly after BEFORE, so it needs no slot of its own.  A batch has as many different
TYPES as combinations of promoted unsigned columns (codec/canal_encode.py): nearly always one.

The clock is read once per batch.

Source: the format of `codec/canal_encode.py`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.codec.canal_encode import CanalRow, sql_types_of
from tidegate.codec.columnar.encode.cells import DIGITS, ROW_KEYS, canal_cell
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
from tidegate.codec.columnar.values import INT64_MAX, Mismatch
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.wire_table import WireTable
from tidegate.model.event import Delete, Insert, Update

_TSO_LOGICAL_BITS: Final = 18
_KINDS: Final = (Insert, Update, Delete)
_MIDDLES: Final = [b"", b'}],"data":[{', b""]


class CanalColumns:
    """Encodes batches of one table as values; the table is prepared once."""

    def __init__(self, schema: str, name: str, table: WireTable, options: EncodeOptions) -> None:
        row = CanalRow(schema, name, table, options)
        self._members = [
            Member(part.column, part.head.encode(), canal_cell(table.columns[part.column], options))
            for part in row.all.parts
        ]
        handles = {part.column for part in row.handles.parts}
        self._handles = [member.column in handles for member in self._members]
        self._options = options
        self._composer = Composer(self._members)
        self._heads = [f'{row.heads[kind]}"es":'.encode() for kind in _KINDS]
        only_handles = options.delete_only_output_handle_key_columns
        self._columns = row.all, row.all, row.handles if only_handles else row.all

    def texts(self, batch: Batch, row_keys: Any, now_ms: int) -> Any:
        """Return the values of all rows, uncompressed; Mismatch for values that only the plain encoder writes."""
        ops = RowOps.of(batch)
        codes = ops.codes
        es_ms = pa.array(batch.commit_ts.to_numpy() >> _TSO_LOGICAL_BITS)
        steps: list[Step] = [
            Chosen(self._heads, codes),
            CellStep(DIGITS, es_ms),
            self._types(batch, ops, now_ms),
            ImageStep(OLD),
            Chosen(_MIDDLES, codes),
            ImageStep(NEW),
            b"}]",
            *self._extension(batch, row_keys),
            b"}",
        ]
        images = BatchImages((batch.before, batch.after), ops.images, self._masks(batch, ops))
        return self._composer.texts(steps, batch.rows, images)

    def _masks(self, batch: Batch, ops: RowOps) -> list[Any]:
        """Per column, the old images that have it; [] when all have all."""
        options = self._options
        if not options.only_output_updated_columns and not options.delete_only_output_handle_key_columns:
            return []
        deleted = ops.codes_before == DELETE
        masks = [np.ones(len(deleted), np.bool_) for _ in self._members]
        if options.only_output_updated_columns:
            masks = [deleted | self._changed(batch, ops, member) for member in self._members]
        if options.delete_only_output_handle_key_columns:
            masks = [mask & (~deleted | handle) for mask, handle in zip(masks, self._handles, strict=True)]
        return masks

    def _changed(self, batch: Batch, ops: RowOps, member: Member) -> Any:
        old = batch.before.column(member.column)
        new = batch.after.column(member.column).take(ops.after_of_before)
        if self._options.newarch and pa.types.is_floating(old.type):
            old, new = (member.cell.prepared(array)[1] for array in (old, new))
        return differing(old, new)

    def _types(self, batch: Batch, ops: RowOps, now_ms: int) -> Chosen:
        """The text between `es` and the first image."""
        exceeding = {
            column: rows for column, most in self._bounds() if (rows := _larger(batch, ops, column, most)).any()
        }
        kinds, which = [[INSERT], [UPDATE], [DELETE]], ops.codes  # the different (code, flag, ..), that of each row
        for flag in exceeding.values():
            which = 2 * which + flag
            present = np.flatnonzero(np.bincount(which, minlength=2 * len(kinds)))
            numbers = np.zeros(2 * len(kinds), np.int64)
            numbers[present] = np.arange(len(present))
            kinds, which = [[*kinds[type_code >> 1], type_code & 1] for type_code in present.tolist()], numbers[which]
        texts = []
        for code, *flags in kinds:
            promoted = {column for column, flag in zip(exceeding, flags, strict=True) if flag}
            columns = self._columns[code]
            over_here = {position: larger for position, column, _, larger in columns.promoted if column in promoted}
            types = f'"sqlType":{sql_types_of(columns, over_here)},"mysqlType":{columns.mysql_type}'
            end = '"old":[{' if code == UPDATE else '"old":null,"data":[{'
            texts.append(f',"ts":{now_ms},"sql":"",{types},{end}'.encode())
        return Chosen(texts, which)

    def _bounds(self) -> list[tuple[int, int]]:
        """Positions of the columns whose sqlType depends on the value, and their largest value that is not promoted."""
        return [(column, most) for _, column, most, _ in self._columns[0].promoted]

    def _extension(self, batch: Batch, row_keys: Any) -> list[Step]:
        options = self._options
        if not options.enable_tidb_extension:
            return []
        start: list[Step] = [b',"_tidb":{"commitTs":', CellStep(DIGITS, batch.commit_ts)]
        if not options.output_row_key:
            return [*start, b"}"]
        if row_keys is None or row_keys.null_count:
            raise Mismatch("rows without their keys")
        return [*start, b',"rowkey":"', CellStep(ROW_KEYS, row_keys), b'"}']


def _larger(batch: Batch, ops: RowOps, column: int, most: int) -> Any:
    larger = np.zeros(batch.rows, np.bool_)
    larger[ops.has_after] = _above(batch.after.column(column), most)
    deleted = ops.codes_before == DELETE
    larger[ops.codes == DELETE] = _above(batch.before.column(column), most)[deleted]
    return larger


def _above(array: Any, most: int) -> Any:
    if not pa.types.is_integer(array.type):
        raise Mismatch(f"integers that come as {array.type}")
    if not len(array) or (most >= INT64_MAX and array.type != pa.uint64()):
        return np.zeros(len(array), np.bool_)
    kind = np.dtype(array.type.to_pandas_dtype())
    numbers = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    larger: Any = np.greater(numbers, most)
    return larger & array.is_valid().to_numpy(zero_copy_only=False) if array.null_count and larger.any() else larger
