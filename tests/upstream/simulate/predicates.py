"""F1's predicates over what is stored, in the eyes of a definition that a living node has.

complete, no orphans    sql/rows/check.py for indexes and copies of rows; here also for indexes that are not trusted,
                        and entries of indexes that nobody knows, where no delete range is to take them
copies                  that nobody has put in use may differ once a delete range is to take them: the job went back
NOT NULL                no public column that says so shows a NULL
readable                every row decodes under the definition
"""

from collections.abc import Iterable, Iterator

from tests.upstream.ddl.kit import CONTEXT, shape_of
from tidegate.kv.keys import IndexKey, decode_table_key, index_prefix, table_prefix
from tidegate.schema.stored.definition import StoredTable
from tidegate_upstream.tidb.check_table import check_table
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.ddl_jobs import read_entries
from tidegate_upstream.tidb.metadata import DELETE_RANGE
from tidegate_upstream.tidb.table_access import TableReader, key_after
from tidegate_upstream.tidb.table_rows import TableShape, index_mutation

_NOT_NULL = 1
_Range = tuple[bytes, bytes]


def faults(cluster: Cluster, stored: StoredTable) -> Iterator[str]:
    """What is wrong with a table as a reader with that definition finds it."""
    reader, shape = cluster.storage.snapshot(), shape_of(stored)
    copies = {f"partition {ident}" for placement in shape.placements[1:] for ident in placement.ids}
    for fault in check_table(reader, shape, CONTEXT):
        if fault.element not in copies or not _doomed(doomed(reader), fault.key):
            yield str(fault)
    images = list(TableReader(reader, shape, CONTEXT).all())
    for image in images:
        for column in shape.public:
            if column.stored.type.flag & _NOT_NULL and image.columns[column.id] is None:
                yield f"row {image.handle} has NULL in {column.target.name}"
    yield from _orphans(reader, cluster, shape, images)


def _orphans(reader, cluster: Cluster, shape: TableShape, images) -> Iterator[str]:
    """Entries of no row, in indexes of any state, unless a range will take them."""
    copies = {ident for placement in shape.placements[1:] for ident in placement.ids}
    for index in shape.indexes:
        ids = (shape.stored.id,) if index.layout.global_index else shape.physical_ids
        expected = {index_mutation(shape, index, image).key for image in images}
        for physical_id in (one for one in ids if one not in copies):
            start = index_prefix(physical_id, index.layout.id)
            lost = [key for key, _ in reader.scan(start, key_after(start)) if key not in expected]
            if lost and not all(_doomed(ranges := doomed(reader), key) for key in lost):
                yield f"index {index.name} ({index.stored.state}): {len(lost)} entries of no row, {len(ranges)} ranges"


def unknown_entries(cluster: Cluster, definitions: Iterable[StoredTable]) -> Iterator[str]:
    """Entries of indexes that none of the definitions has, which no range will take."""
    known: dict[int, set[int]] = {}
    for stored in definitions:
        for physical_id in {stored.id, *stored.physical_ids}:
            known.setdefault(physical_id, set()).update(one.id for one in stored.index_info or [])
    reader = cluster.storage.snapshot()
    for physical_id, indexes in known.items():
        start = table_prefix(physical_id)
        for key, _ in reader.scan(start, start + b"_j"):
            found = decode_table_key(key)
            if isinstance(found, IndexKey) and found.index_id not in indexes and not _doomed(doomed(reader), key):
                yield f"entry {key.hex()} of index {found.index_id} of {physical_id}, which nobody knows"


def doomed(reader) -> list[_Range]:
    """What delete ranges will take, those of jobs under way included."""
    bounds = [(row["start_key"], row["end_key"]) for _, row in DELETE_RANGE.rows(reader)]
    later = [one.bounds for entry in read_entries(reader) for one in entry.progress.ranges]
    return [*((bytes.fromhex(start.decode()), bytes.fromhex(end.decode())) for start, end in bounds), *later]


def _doomed(ranges: list[_Range], key: bytes) -> bool:
    return any(start <= key < end for start, end in ranges)
