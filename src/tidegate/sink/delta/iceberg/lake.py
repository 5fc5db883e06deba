"""The projection of a whole lake: begun when it is asked for, and kept by every writer from then on.

    _tidegate/iceberg.json      {"location": "file:///srv/lake"}      each published version has its metadata, there

A feed writes the file once all that is published has metadata; after that each unit of its rounds projects before the
round is published, so a published version is never without.  A feed without projection takes the file away; one that
finds another address in it was moved with its lake, and begins anew.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import obstore

from tidegate.engine.retention import PURGED
from tidegate.model.table import TableInfo
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.delta.iceberg.files import location_of
from tidegate.sink.delta.iceberg.project import project
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, kept_snapshots

NOTE: Final = "iceberg.json"
TABLES_A_TASK: Final = 16
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class TableProjection(msgspec.Struct, frozen=True):
    """A table's definition and the versions that readers may ask for."""

    table: TableInfo
    versions: tuple[int, ...]


class _Note(msgspec.Struct, frozen=True):
    location: str


def begin_projection(options: DeltaOptions, snapshot: Snapshot, runner: Runner) -> None:
    """Bring the lake's published state to what `options` ask for: all of its tables with metadata, or none promised."""
    if not options.iceberg:
        forget_projection(options)
    elif not is_projected(options):
        project_all(options, list(_published(snapshot)), runner)
        _promise(options)


def project_lake(options: DeltaOptions, runner: Runner) -> int:
    """Bring every version that a kept snapshot has its metadata; return how many versions there are."""
    tables: dict[str, TableInfo] = {}
    versions: dict[str, set[int]] = defaultdict(set)
    for snapshot in kept_snapshots(options):
        for one in _published(snapshot):
            tables[one.table.incarnation] = one.table
            versions[one.table.incarnation].update(one.versions)
    project_all(options, [TableProjection(tables[name], tuple(found)) for name, found in versions.items()], runner)
    _promise(options)
    return sum(map(len, versions.values()))


def is_projected(options: DeltaOptions) -> bool:
    """Return True for a lake whose published versions all have metadata for the place where it lies."""
    try:
        body = obstore.get(store(options.control_uri), NOTE).bytes().to_bytes()
    except FileNotFoundError:
        return False
    return msgspec.json.decode(body, type=_Note).location == location_of(options.root)


def forget_projection(options: DeltaOptions) -> None:
    """Take back that published versions have metadata."""
    try:
        obstore.delete(store(options.control_uri), NOTE)
    except FileNotFoundError:
        return


def project_all(options: DeltaOptions, tables: Sequence[TableProjection], runner: Runner) -> None:
    """Write the metadata that is missing."""
    bins = [tables[at : at + TABLES_A_TASK] for at in range(0, len(tables), TABLES_A_TASK)]
    runner(partial(_project, options=options), bins)


def _promise(options: DeltaOptions) -> None:
    note = _Note(location_of(options.root))
    with storing(options.control_uri):
        obstore.put(store(options.control_uri), NOTE, msgspec.json.encode(note))


def _project(jobs: Sequence[TableProjection], options: DeltaOptions) -> None:
    for job in jobs:
        uri = options.table_uri(job.table.incarnation)
        for version in sorted(job.versions):
            project(uri, version, job.table)


def _published(snapshot: Snapshot) -> Iterator[TableProjection]:
    versions = {incarnation: table.version for incarnation, table in snapshot.tables.items()}
    versions |= snapshot.retired
    for table in (*snapshot.state.tables.values(), *snapshot.state.dropped):
        version = versions.get(table.incarnation, PURGED)
        if version != PURGED:
            yield TableProjection(table, (version,))
