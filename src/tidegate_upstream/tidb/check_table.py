"""ADMIN CHECK TABLE: the consistency of a table's rows and index entries. Simulations check it after every step.

    index          must hold                                                       in the states
    complete       every row has its entry, with equal bytes                       public
    no orphans     every entry is the entry of a row                               public, write-reorg; an index that
                                                                                   is being dropped may have orphans
    copy of rows   every copied row is a row in use, with the same values          ddl_state 1 .. 4

The rows in use are the truth.  Nothing is changed, and every inconsistency is reported.

Source: TiDB pkg/executor (admin.go, check_table_index.go); the consistency of the F1 paper, section 6 of our checker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.kv.keys import index_prefix, record_key
from tidegate.model.errors import SqlRefused
from tidegate.mysql.values import Context
from tidegate.schema.stored.definition import ElementState
from tidegate.schema.stored.meta import Reader
from tidegate_upstream.tidb.table_access import TableReader, key_after
from tidegate_upstream.tidb.table_rows import Placement, RowImage, ShapeIndex, TableShape, index_mutation, same

_INCONSISTENT: Final = 8223
_OLD_GOES: Final = 5
_TRUSTED: Final = frozenset({ElementState.PUBLIC, ElementState.WRITE_REORG})


@dataclass(frozen=True, slots=True)
class Fault:
    """An inconsistency: its description, its element, its key."""

    what: str
    element: str
    key: bytes

    def __str__(self) -> str:
        return f"{self.element}: {self.what} at key {self.key.hex()}"


def check_table(source: Reader, shape: TableShape, context: Context) -> list[Fault]:
    """Return all inconsistencies of a table, as a reader with this definition sees it."""
    reader = TableReader(source, shape, context)
    images = list(reader.all())
    faults = [fault for index in shape.indexes for fault in _index_faults(reader, index, images)]
    for placement in shape.placements[1:]:
        faults += _copy_faults(reader, placement, images)
    return faults


def _index_faults(reader: TableReader, index: ShapeIndex, images: list[RowImage]) -> Iterator[Fault]:
    expected: dict[bytes, set[bytes | None]] = {}
    for image in images:
        entry = index_mutation(reader.shape, index, image)
        expected.setdefault(entry.key, set()).add(entry.value)
    entries = dict(_entries(reader, index))
    if index.access.read:
        for key in expected.keys() - entries.keys():
            yield Fault("a row without its entry", f"index {index.name}", key)
        for key in (key for key, values in expected.items() if len(values) > 1):
            yield Fault("two rows with one unique key", f"index {index.name}", key)
    if index.stored.state in _TRUSTED:
        for key, value in entries.items():
            if key not in expected:
                yield Fault("an entry without a row", f"index {index.name}", key)
            elif value not in expected[key]:
                yield Fault("an entry that names another row", f"index {index.name}", key)


def _entries(reader: TableReader, index: ShapeIndex) -> Iterator[tuple[bytes, bytes]]:
    shape = reader.shape
    for physical_id in (shape.stored.id,) if index.layout.global_index else shape.physical_ids:
        start = index_prefix(physical_id, index.layout.id)
        yield from reader.source.scan(start, key_after(start))


def _copy_faults(reader: TableReader, placement: Placement, images: list[RowImage]) -> Iterator[Fault]:
    partition = reader.shape.stored.partition
    state = partition.ddl_state if partition else 0
    if state == _OLD_GOES:
        return
    due = {}
    for image in images:
        physical_id = placement.locate(image.columns)
        if physical_id is not None:
            due[physical_id, image.handle] = image
    rows = {(row.physical_id, row.handle): row for ident in placement.ids for row in reader.rows_of(ident)}
    for location, copy in rows.items():
        if location not in due or not _alike(reader.shape, copy, due[location]):
            yield Fault("a copied row that is not in use", f"partition {location[0]}", record_key(*location))


def _alike(shape: TableShape, first: RowImage, second: RowImage) -> bool:
    return all(same(column.target.type, first.columns[column.id], second.columns[column.id]) for column in shape.public)


def refusal(shape: TableShape, fault: Fault) -> SqlRefused:
    """Return the error of ADMIN CHECK TABLE for a fault."""
    return SqlRefused(_INCONSISTENT, f"data inconsistency in table: {shape.name}, {fault}")
