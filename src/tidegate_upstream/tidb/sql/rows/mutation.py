"""Keys that a changed row touches, in any schema state: pure, so that statements, backfill and tests share it.

    row_mutations(shape, old, new)     INSERT: old None   DELETE: new None   UPDATE: both
      record       removed where the row was, written where it is
      index entry  old and new entry compared; the same: nothing.  Else the old one is removed (every state knows how),
                   the new one written unless the index is delete-only or delete-reorg
      copies       the same under the other set of partitions, as far as its state allows (placement.py); all
                   entries are written with the row, since nobody knows whether it was copied before

    index_mutation(shape, index, row)  the entry that a row has in one index: what backfill writes

`distinct` marks keys that no other row may have: whoever applies the mutations looks first, and says 1062.

Source: TiDB pkg/table/tables (tables.go, index.go); f1.py.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidegate.kv.index_entry import IndexEntry, encode_index_entry, is_distinct
from tidegate.kv.row.row import ChecksumForm, Row, encode_row, select_stored
from tidegate.kv.table_key import record_key
from tidegate.model.errors import SqlRefused
from tidegate_upstream.f1 import Access, Touch
from tidegate_upstream.tidb.sql.rows.row import RowImage
from tidegate_upstream.tidb.sql.rows.shape import ShapeIndex, TableShape


class RowForm(NamedTuple):
    """How rows are written: tidb_row_format_version, and the checksum of tidb_enable_row_level_checksum."""

    version: int = 2
    checksum: ChecksumForm | None = None


CURRENT: Final = RowForm()


class KeyMutation(NamedTuple):
    """A key to put, or to remove when `value` is None. `within` is the index, None for the row itself."""

    key: bytes
    value: bytes | None
    within: ShapeIndex | None
    distinct: bool = False


def row_mutations(
    shape: TableShape, old: RowImage | None, new: RowImage | None, form: RowForm = CURRENT
) -> list[KeyMutation]:
    """Return what has to be written when a row becomes another; the same key never twice."""
    found: dict[bytes, KeyMutation] = {}
    before, after = _spots(shape, old), _spots(shape, new)
    moves: list[KeyMutation] = []
    for physical_id in {**before, **after}:
        allowed = (before.get(physical_id) or after[physical_id])[0]
        was = before[physical_id][1] if physical_id in before else None
        now = after[physical_id][1] if physical_id in after else None
        known = old is not None and physical_id == old.physical_id
        moves += _at(shape, allowed, (was, now), form, known=known)
    for mutation in moves:
        if mutation.value is None:
            found[mutation.key] = mutation
    for mutation in moves:
        if mutation.value is not None:
            own = mutation.key in found or not mutation.distinct
            found[mutation.key] = mutation._replace(distinct=not own)
    return list(found.values())


def _spots(shape: TableShape, image: RowImage | None) -> dict[int, tuple[Access, RowImage]]:
    """Where a row lies, by physical id: in use, and where a DDL keeps a copy."""
    if image is None:
        return {}
    spots = {image.physical_id: (shape.placements[0].access, image)}
    for placement in shape.placements[1:]:
        physical_id = placement.locate(image.columns)
        if physical_id is not None:
            spots.setdefault(physical_id, (placement.access, image._replace(physical_id=physical_id)))
    return spots


def _at(
    shape: TableShape,
    allowed: Access,
    images: tuple[RowImage | None, RowImage | None],
    form: RowForm,
    *,
    known: bool,
) -> Iterator[KeyMutation]:
    """The mutations under one physical id; `known` when the old row is sure to lie there with its entries."""
    old, new = images
    writes = allowed.insert is Touch.PUT
    if old is not None and allowed.delete:
        yield KeyMutation(record_key(old.physical_id, old.handle), None, None)
    if new is not None and writes:
        yield record_mutation(shape, new, form)
    for index in shape.indexes:
        was = None if old is None else index_mutation(shape, index, old)
        now = None if new is None else index_mutation(shape, index, new)
        if known and writes and was is not None and now is not None and was[:2] == now[:2]:
            continue
        if was is not None and allowed.delete and index.access.delete:
            yield was._replace(value=None, distinct=False)
        if now is not None and writes and index.access.insert is Touch.PUT:
            yield now


def record_mutation(shape: TableShape, image: RowImage, form: RowForm = CURRENT) -> KeyMutation:
    """Return the row itself."""
    layout = shape.layout_of(image.physical_id)
    stored = select_stored(layout, image.columns)
    row = Row(image.physical_id, image.handle, dict(image.columns), stored, form.version)
    key, value = encode_row(layout, row, checksum=form.checksum if form.version > 1 else None)
    return KeyMutation(key, value, None, distinct=True)


def index_mutation(shape: TableShape, index: ShapeIndex, image: RowImage) -> KeyMutation:
    """Return the entry of a row in an index; SqlRefused 1235 for a multi-valued one."""
    if index.stored.mv_index:
        what = f"writing the multi-valued index {index.name} of table {shape.name}"
        raise SqlRefused(1235, f"This version of Tidegate doesn't yet support '{what}'", "42000")
    layout = shape.index_layout(index, image.physical_id)
    partition_id = image.physical_id if index.layout.global_index else None
    entry = IndexEntry(index.layout.id, dict(image.columns), image.handle, partition_id)
    key, value = encode_index_entry(layout, entry)
    return KeyMutation(key, value, index, distinct=is_distinct(index.layout, image.columns))
