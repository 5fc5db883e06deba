"""Old images of UPDATEs in the log of a table without a key: a text beside the new image. Pure.

    id   v   _tidegate_op   _tidegate_commit_ts   _tidegate_before
    5    a   I              20                    NULL
    5    b   U              30                    {"c1":"5","c2":"a"}         5, a became 5, b
    6    b   U              40                    NULL                        the change came without its old image

The text is a JSON object: the column's physical name and the value as text, bytes as hexadecimal digits; NULLs are
left out.  Physical names stay when a column is renamed and are never used again, so a DDL that leaves data files alone
leaves these texts alone, too.  A row of its own for each old image would be counted by readers who count changes.

`unfolded` gives the log with a row of operation OLD for each old image, which is how DDLs take rows out of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.modes import BEFORE, COMMIT_TS, OP
from tidegate.sink.delta.types import arrow_type

OLD: Final = "B"
"""The operation of an old image in an unfolded log; no stored row has it."""

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(dict[str, str]).decode


def packed(images: pa.Table, columns: Sequence[LakeColumn]) -> pa.Array:
    """Return the texts of images, one a row, of the upstream's columns among `columns`."""
    data = _data(columns)
    names = [column.physical for column in data]
    rows = zip(*(_texts(images.column(column.name)) for column in data), strict=True)
    texts = [{name: text for name, text in zip(names, row, strict=True) if text is not None} for row in rows]
    return pa.array([_ENCODE(text).decode() for text in texts], pa.string())


def unpacked(texts: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the images of texts, one for each, as the upstream's columns among `columns`."""
    images = [_DECODE(text) for text in texts.to_pylist()]
    data = _data(columns)
    arrays = [_values([image.get(column.physical) for image in images], column) for column in data]
    return pa.Table.from_arrays(arrays, names=[column.name for column in data])


def renamed(texts: Any, names: Mapping[str, str]) -> pa.Array:
    """Return the texts, NULLs among them, under other physical names; values of columns that `names` lacks are left
    out."""
    images = [None if text is None else _DECODE(text) for text in texts.to_pylist()]
    moved = [image and {names[name]: text for name, text in image.items() if name in names} for image in images]
    return pa.array([None if image is None else _ENCODE(image).decode() for image in moved], pa.string())


def with_old_images(log: pa.Table, images: pa.Table, known: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the log with `images` as old images of the rows where the mask `known` is true, none elsewhere."""
    texts = np.full(log.num_rows, None, object)
    texts[np.asarray(known)] = packed(images, columns).to_pylist()
    at = log.schema.get_field_index(BEFORE)
    return log.set_column(at, log.schema.field(at), pa.array(texts, pa.string()))


def unfolded(log: pa.Table, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the log with a row of operation OLD for each old image, and without the column of their texts."""
    if BEFORE not in log.column_names:
        return log
    updates = log.filter(log.column(BEFORE).is_valid())
    log = log.drop_columns([BEFORE])
    return pa.concat_tables([log, _as_rows(updates, columns, OLD).select(log.column_names)])


def parted(rows: pa.Table, columns: Sequence[LakeColumn], leaves: Callable[[pa.Table], Any]) -> list[pa.Table]:
    """Return the stored rows of a table that stay, and those that leave, by a mask for images.

    An UPDATE whose old and new image part is a DELETE where the old one lies and an INSERT where the new one lies."""
    leaving = np.asarray(leaves(rows))
    if BEFORE not in rows.column_names or rows.column(BEFORE).null_count == rows.num_rows:
        return [rows.filter(pa.array(leaving == side)) for side in (False, True)]
    known = np.asarray(rows.column(BEFORE).is_valid())
    old_leaving = leaving.copy()
    old_leaving[known] = np.asarray(leaves(unpacked(rows.column(BEFORE).filter(pa.array(known)), columns)))
    across = leaving != old_leaving
    sides = []
    for side in (False, True):
        comes = _without_old_image(rows.filter(pa.array(across & (leaving == side))), "I")
        goes = _as_rows(rows.filter(pa.array(across & (old_leaving == side))), columns, "D")
        sides.append(pa.concat_tables([rows.filter(pa.array(~across & (leaving == side))), goes, comes]))
    return sides


def _as_rows(updates: pa.Table, columns: Sequence[LakeColumn], op: str) -> pa.Table:
    """Rows of the operation `op` that hold the old images of `updates`."""
    images = unpacked(updates.column(BEFORE), columns)
    for name in (OP, COMMIT_TS, BEFORE):
        images = images.append_column(name, updates.column(name))
    return _without_old_image(images.select(updates.column_names), op)


def _without_old_image(log: pa.Table, op: str) -> pa.Table:
    values = {OP: pa.repeat(op, log.num_rows), BEFORE: pa.nulls(log.num_rows, pa.string())}
    for name, array in values.items():
        at = log.schema.get_field_index(name)
        log = log.set_column(at, log.schema.field(at), array)
    return log


def _data(columns: Sequence[LakeColumn]) -> list[LakeColumn]:
    return [column for column in columns if column.upstream_id >= 0]


def _texts(values: Any) -> list[str | None]:
    if pa.types.is_binary(values.type):
        return [None if value is None else value.hex() for value in values.to_pylist()]
    texts: list[str | None] = pc.cast(values, pa.string()).to_pylist()
    return texts


def _values(texts: Sequence[str | None], column: LakeColumn) -> Any:
    kind = arrow_type(column.delta)
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts], kind)
    return pc.cast(pa.array(texts, pa.string()), kind)
