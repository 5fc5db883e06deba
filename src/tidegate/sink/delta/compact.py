"""Many small files of a table into few, in one commit that changes no row.

    part-1  part-2  …  part-40      a few rows each, one for every round of a keyless table, or of a quiet one
    └────────── part-41 ──────┘     sorted by key, with exact bounds, so that merges skip it when they can

The commit says dataChange=false and leaves the position alone, so a step that runs again afterwards still knows what
is done.  Whoever commits to the table first wins; a compaction that finds its version taken is simply not done.
A table that is ahead of its published version (a round died) is left alone, unless only compactions are ahead.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, CommitConflict, DataFile, TableSnapshot
from tidegate.objectstore.failpoint import reach
from tidegate.sink.delta.columns import bounded, stored_columns
from tidegate.sink.delta.files import is_small, read, within, write
from tidegate.sink.delta.keys import by_key
from tidegate.sink.delta.options import DeltaOptions

__all__ = ["Compaction", "compact", "small_files"]

SMALL_FILES_MAX: Final = 16
"""Merges fold their own small files beyond eight; twice as many come only from appends."""
UPKEEP: Final = "upkeep"


class Compaction(msgspec.Struct, frozen=True):
    """A table to look at: its definition and the version that is published."""

    table: TableInfo
    version: int


def small_files(snapshot: TableSnapshot) -> tuple[DataFile, ...]:
    """Return the files worth folding into one, the smallest first, as many as one task may hold; none when they are
    few."""
    small = sorted((file for file in snapshot.files() if is_small(file)), key=lambda file: (file.rows, file.path))
    chosen = tuple(small[at] for at in within(small)[0]) if small else ()
    return chosen if len(chosen) > SMALL_FILES_MAX else ()


def compact(job: Compaction, options: DeltaOptions) -> int:
    """Fold the table's small files if they are many; give the version that holds the published rows now."""
    uri = options.table_uri(job.table.incarnation)
    snapshot = deltalog.load(uri)
    if snapshot is None or not _same_rows(uri, job.version, snapshot.version):
        return job.version
    small = small_files(snapshot)
    if not small:
        return snapshot.version
    metadata = {"feed": options.feed, UPKEEP: True}
    actions = _folded(snapshot, small, job.table)
    reach("compact/before-commit")
    try:
        deltalog.commit(uri, snapshot.version + 1, actions, operation="OPTIMIZE", metadata=metadata)
    except CommitConflict:
        return job.version
    reach("compact/after-commit")
    return snapshot.version + 1


def _same_rows(uri: str, published: int, head: int) -> bool:
    """True if nothing but compactions came after the published version."""
    ahead = range(published + 1, head + 1)
    return all(deltalog.user_metadata(uri, version).get(UPKEEP) for version in ahead)


def _folded(snapshot: TableSnapshot, small: Sequence[DataFile], table: TableInfo) -> list[Action]:
    columns = stored_columns(snapshot)
    key = bounded(table, columns)
    rows = pa.concat_tables([read(snapshot.uri, file, columns) for file in small])
    rows = by_key(rows, key)
    added = [{"add": {**action["add"], "dataChange": False}} for action in write(snapshot.uri, rows, columns, key)]
    return [*(deltalog.remove(file, data_change=False) for file in small), *added]
