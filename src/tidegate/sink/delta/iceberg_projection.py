"""The Iceberg projection: Iceberg metadata for versions of a Delta table, over the data files that the version has.

    _delta_log/   …007  …008  …009                     the truth
                         │     │   files added and removed, the columns if they changed
                         ▼     ▼
    metadata/     v8 ─────────► v10.metadata.json      number = Delta version + 1, also that of snapshot and sequence
                                snap-10-<uuid>.avro    its manifest list
                                m-01-10-<uuid>.avro    a manifest it wrote, of files whose digest begins with 01

A projection starts from the newest one below and reads the commits between.  It reads the whole table where there is
none, where the lake was moved (addresses are absolute) or where the log between is gone.  No data file is opened.
Metadata is derived and can be derived again: a writer that finds the file is done, and one that dies leaves files that
upkeep deletes.

Upkeep treats these files like data files, by their life spans, and opens none: names tell the first version that needs
a manifest, and it ends where another manifest of the same bucket, or of both halves of it, begins.

    m-01-12 ─────────────► m-01-15 ────────► m-010-19, m-011-19
            12, 13, 14              15 .. 18                   19 ..

Metadata lists the last SNAPSHOTS_MAX snapshots whose own `v….metadata.json` exists, which upkeep decides; each such
file shows its own moment.  Tables say `gc.enabled=false`, since no file is Iceberg's to delete.  Commits by other
programs are not built upon and are replaced when their number is needed; of the files `00007-<uuid>.metadata.json`
that a REST catalog writes beside ours, the newest stay.

`_tidegate/iceberg.json` (`{"location": "file:///srv/lake"}`) says that each published version of the lake has its
metadata there.  A feed writes it once all that is published has metadata; from then on each unit projects before its
round is published.  A feed without projection deletes the file; one that finds another address in it begins anew.

Source: the Iceberg table specification, "Table Metadata", "Snapshots".
"""

import json
import logging
import re
import threading
import time
import uuid
from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import obstore

from tidegate.engine.retention import PURGED
from tidegate.model.errors import SinkError
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import TableDescription, TableSnapshot, VersionSpan
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import (
    STORE_ERRORS,
    Changed,
    StoredFile,
    VersionedFile,
    listed,
    read_file,
    store,
    storing,
    writable,
)
from tidegate.objectstore.threads import ContextPool, begin_thread
from tidegate.sink.delta.columns import logical_key, stored_columns
from tidegate.sink.delta.iceberg_format import (
    ADDED,
    DELETED,
    EXISTING,
    ManifestEntry,
    Metadata,
    bucket_of,
    current,
    current_schema,
    data_file,
    decode_list,
    decode_manifest,
    described,
    encode_list,
    encode_manifest,
    fresh,
    iceberg_bounds,
    iceberg_fields,
    is_live,
    is_ours,
    kinds,
    manifest_record,
    parted,
    was_ours,
    with_snapshot,
    with_snapshots,
)
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, kept_snapshots

FOLDER: Final = "metadata/"
METADATA: Final = re.compile(r"metadata/v(\d+)\.metadata\.json")
LIST: Final = re.compile(r"metadata/snap-(\d+)-\w+\.avro")
FOREIGN: Final = re.compile(r"metadata/[^/]+\.metadata\.json")
FOREIGN_MAX: Final = 100
"""As many as a table of Iceberg keeps by itself."""
MANIFEST: Final = re.compile(r"metadata/m-([01]*)-(\d+)-\w+\.avro")


def metadata_path(version: int) -> str:
    """Return the path of the Iceberg metadata of a Delta version, relative to the table's directory."""
    return f"{FOLDER}v{version + 1}.metadata.json"


def list_path(snapshot: int) -> str:
    """Return a new name for the manifest list of a snapshot."""
    return f"{FOLDER}snap-{snapshot}-{uuid.uuid4().hex}.avro"


def manifest_path(bits: str, snapshot: int) -> str:
    """Return a new name for a manifest of a bucket that a snapshot writes."""
    return f"{FOLDER}m-{bits}-{snapshot}-{uuid.uuid4().hex}.avro"


def bits_of(path: str) -> str:
    """Return the bucket of a manifest."""
    return path[path.rindex("/m-") + 3 :].partition("-")[0]


def versions_of(paths: Collection[str]) -> set[int]:
    """Return the Delta versions that have a metadata file."""
    return {int(match[1]) - 1 for path in paths if (match := METADATA.fullmatch(path))}


def spans_of(files: Sequence[StoredFile]) -> dict[str, VersionSpan]:
    """Return for each Iceberg file of a table the Delta versions that need it."""
    spans: dict[str, VersionSpan] = {}
    manifests: list[tuple[str, int, StoredFile]] = []
    for file in files:
        if match := METADATA.fullmatch(file.path) or LIST.fullmatch(file.path):
            snapshot = int(match[1])
            spans[file.path] = VersionSpan(snapshot - 1, snapshot, file.written_ms)
        elif match := MANIFEST.fullmatch(file.path):
            manifests.append((match[1], int(match[2]), file))
    foreign = [file for file in files if file.path not in spans and FOREIGN.fullmatch(file.path)]
    for file in sorted(foreign, key=lambda file: file.written_ms)[-FOREIGN_MAX:]:
        spans[file.path] = VersionSpan(0)
    ends = dict(_ends([(bits, snapshot) for bits, snapshot, _ in manifests]))
    for bits, snapshot, file in manifests:
        end = ends[bits, snapshot]
        spans[file.path] = VersionSpan(snapshot - 1, None if end is None else end - 1, file.written_ms)
    return spans


def _ends(manifests: Collection[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], int | None]]:
    """The snapshot that takes over the files of each manifest, from buckets and writing snapshots."""
    written: dict[str, set[int]] = defaultdict(set)
    for bits, snapshot in manifests:
        written[bits].add(snapshot)
    buckets = sorted(written)
    for bits in buckets:
        wider = [bits[:index] for index in range(len(bits)) if bits[:index] in written]
        narrower = takewhile(lambda other, bits=bits: other.startswith(bits), buckets[bisect_left(buckets, bits) :])  # type: ignore[misc]
        numbers = sorted(set().union(*(written[bits] for bits in (*wider, *narrower))))
        for snapshot in written[bits]:
            index = bisect_right(numbers, snapshot)
            yield (bits, snapshot), numbers[index] if index < len(numbers) else None


REQUESTS_AT_ONCE: Final = 8
T = TypeVar("T")


def metadata_uri(uri: str, version: int) -> str:
    """Return the absolute address of that metadata, in the form that readers of Iceberg accept."""
    return f"{location_of(uri)}/{metadata_path(version)}"


@lru_cache(4_096)
def location_of(uri: str) -> str:
    """Return the address of a table in the form that Iceberg's readers accept: with a scheme, not quoted."""
    return uri if "://" in uri else f"file://{Path(uri).resolve()}"


def projected(uri: str) -> set[int]:
    """Return the Delta versions that have a metadata file."""
    begin = f"{FOLDER}v"
    return versions_of({file["path"] for file in listed(uri, FOLDER.rstrip("/"), offset=begin)})


def read_metadata(uri: str, version: int) -> Metadata | None:
    """Return the metadata of a version; None if it is missing or was not written here."""
    try:
        body = get_file(uri, metadata_path(version))
    except FileNotFoundError:
        return None
    metadata: Metadata = msgspec.json.decode(body)
    return metadata if is_ours(metadata, version + 1, location_of(uri)) else None


def address_of(uri: str, path: str) -> str:
    """Return the absolute address of a data file from its path in the log, which may be absolute already."""
    return path if "://" in path else f"{location_of(uri)}/{path}"


def inside(uri: str, address: str) -> str:
    """Return a path relative to the table's directory."""
    return address.removeprefix(f"{location_of(uri)}/")


def each(uri: str, work: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
    """Return the results of `work` for all items, several at a time where each is a request to a store or server."""
    if "://" not in uri or len(items) < 2:
        return [work(item) for item in items]
    with ContextPool(min(len(items), REQUESTS_AT_ONCE)) as pool:
        return list(pool.map(work, items))


class RecentFiles:
    """The files of object stores that this process wrote or read last, up to a number of bytes. They never change,
    and the next commit of a table begins with them."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._files: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, uri: str, path: str, body: bytes) -> None:
        """Remember a file, and evict the least recently used ones."""
        if "://" not in uri:
            return
        with self._lock:
            self._left += len(self._files.pop((uri, path), b"")) - len(body)
            self._files[uri, path] = body
            while self._left < 0:
                self._left += len(self._files.popitem(last=False)[1])

    def get(self, uri: str, path: str) -> bytes | None:
        """Return a remembered file."""
        with self._lock:
            if (uri, path) in self._files:
                self._files.move_to_end((uri, path))
            return self._files.get((uri, path))


RECENT: Final = RecentFiles(16 << 20)


def get_file(uri: str, path: str) -> bytes:
    """Return a file of the table."""
    body = RECENT.get(uri, path)
    if body is None:
        body = bytes(obstore.get(store(uri), path).bytes().to_bytes())
        RECENT.keep(uri, path, body)
    return body


def put_file(uri: str, path: str, body: bytes) -> None:
    """Write a file of the table. Raises SinkError for errors of the store."""
    with storing(uri):
        obstore.put(writable(uri), path, body)
    RECENT.keep(uri, path, body)


COMMITS_MAX: Final = 200
"""Commits of the log that are read one by one; beyond, the table as a whole is read sooner."""


@dataclass(slots=True)
class TableMove:
    """The way from metadata to the files of a version: added files by address, with their statistics from the log,
    and removed files. `manifests` are the live ones before; `table` is set where columns may have changed."""

    metadata: Metadata
    manifests: Sequence[Mapping[str, Any]] = ()
    come: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    go: set[str] = field(default_factory=set)
    table: TableSnapshot | TableDescription | None = None


def read_ahead(uri: str, version: int) -> None:
    """Begin to read what a projection from that version needs while rows are merged; only where requests take time."""

    def read() -> None:
        with suppress(*STORE_ERRORS):  # whoever needs it meets the error again
            metadata = read_metadata(uri, version)
            manifests = [] if metadata is None else _listed(uri, metadata)
            if len(manifests) == 1:
                get_file(uri, inside(uri, manifests[0]["manifest_path"]))

    if "://" in uri:
        begin_thread(read, "iceberg-ahead")


def move_to(uri: str, version: int, since: int | None, versions: Collection[int] | None) -> TableMove:
    """Return the move to a version: from `since` (-1: from the beginning) if possible, else from the newest
    projection among `there`, else from nothing to the whole table."""
    if since is not None and since < version and (move := _from(uri, since, version)) is not None:
        return move
    below = (older for older in (projected(uri) if versions is None else versions) if older < version)
    moves = (_from(uri, older, version) for older in sorted(below, reverse=True))
    return next((move for move in moves if move is not None), None) or _whole(uri, version)


def _from(uri: str, from_version: int, version: int) -> TableMove | None:
    """The way from an earlier version; None if it has no metadata of ours, or the log between is long or gone."""
    metadata = read_metadata(uri, from_version) if from_version >= 0 else None
    if version - from_version > COMMITS_MAX or (metadata is None and from_version >= 0):
        return None
    reads: list[Callable[[], Any]] = [
        partial(deltalog.actions, uri, number) for number in range(from_version + 1, version + 1)
    ]
    if metadata is not None:
        reads.append(partial(_listed, uri, metadata))
    contents = each(uri, lambda read: read(), reads)
    commits, listed = contents[: version - from_version], contents[version - from_version :]
    if not all(commits):
        return None
    described = [TableDescription.of(action) for actions in commits for action in actions if "metaData" in action]
    move = TableMove(
        metadata or fresh(described[0].table_id, location_of(uri)), table=described[-1] if described else None
    )
    move.manifests = [manifest for manifests in listed for manifest in manifests if is_live(manifest)]
    for action in chain.from_iterable(commits):
        match action:
            case {"add": added}:
                stats = json.loads(added.get("stats") or "{}")
                move.come[address_of(uri, unquote(added["path"]))] = {
                    "rows": stats.get("numRecords", 0),
                    "size_bytes": added["size"],
                    "lows": stats.get("minValues", {}),
                    "highs": stats.get("maxValues", {}),
                    "nulls": stats.get("nullCount", {}),
                }
            case {"remove": removed}:
                path = address_of(uri, unquote(removed["path"]))
                if move.come.pop(path, None) is None:
                    move.go.add(path)
    return move


def _listed(uri: str, metadata: Metadata) -> list[dict[str, Any]]:
    snapshot = current(metadata)
    assert snapshot is not None, "what was written here has a snapshot"
    return decode_list(get_file(uri, inside(uri, snapshot["manifest-list"])))


def _whole(uri: str, version: int) -> TableMove:
    table = deltalog.load(uri, version)
    if table is None:
        raise SinkError(f"{uri}: no table to project to Iceberg")
    come: dict[str, Mapping[str, Any]] = {
        address_of(uri, file.path): {
            "rows": file.rows,
            "size_bytes": file.size_bytes,
            "lows": file.lows,
            "highs": file.highs,
            "nulls": {},
        }
        for file in table.files()
    }
    return TableMove(fresh(table.table_id, location_of(uri)), come=come, table=table)


LOGGER: Final = logging.getLogger("tidegate.iceberg")
TIDY_EVERY: Final = 20
"""Versions between two looks into the directory for snapshots that upkeep has ended."""


def project(uri: str, version: int, table: TableInfo, since: int | None = None) -> None:
    """Write the Iceberg metadata of a table at a version, if it is missing; `since` is an earlier version that
    probably has metadata. Raises SinkError for errors of a store."""
    if (since is None or since == version) and read_metadata(uri, version) is not None:
        return
    tidies = version % TIDY_EVERY == 0
    versions = projected(uri) if tidies else None
    move = move_to(uri, version, since, versions)
    metadata = move.metadata if move.table is None else _described(move.metadata, move.table, table)
    failpoint("iceberg/before-manifests")
    manifests, counts, bodies = _manifests(uri, version + 1, move, metadata)
    listed, parent = list_path(version + 1), current(metadata)
    bodies[listed] = encode_list(manifests, version + 1, None if parent is None else parent["snapshot-id"])
    each(uri, lambda body: put_file(uri, *body), list(bodies.items()))
    if versions is not None:
        metadata = with_snapshots(metadata, {older + 1 for older in versions})
    newer = with_snapshot(metadata, version + 1, f"{location_of(uri)}/{listed}", counts, time.time_ns() // 1_000_000)
    failpoint("iceberg/before-metadata")
    _publish(uri, version, msgspec.json.encode(newer))
    failpoint("iceberg/after-metadata")


def _described(metadata: Metadata, snapshot: TableSnapshot | TableDescription, table: TableInfo) -> Metadata:
    columns = stored_columns(snapshot)
    names = {column.physical: column.mapping_id for column in columns}
    key = set(logical_key(table, columns))
    ids = [column.mapping_id for column in columns if column.name in key]
    return described(metadata, iceberg_fields(columns, table), names, ids, table.comment)


def _manifests(
    uri: str, number: int, move: TableMove, metadata: Metadata
) -> tuple[list[Mapping[str, Any]], dict[str, int], dict[str, bytes]]:
    """Return all manifests of the new snapshot, what came and went, and those that the move touches by their paths."""
    column_kinds, schema = kinds(metadata), current_schema(metadata)
    columns = json.dumps(schema)
    buckets = {bits_of(manifest["manifest_path"]): manifest for manifest in move.manifests}
    come: dict[str, list[ManifestEntry]] = defaultdict(list)
    go: dict[str, set[str]] = defaultdict(set)
    bits_before = set(buckets)
    for path, stats in move.come.items():
        bits = bucket_of(path, bits_before)
        bits_before.add(bits)
        lows, highs = (iceberg_bounds(stats[end], column_kinds) for end in ("lows", "highs"))
        nulls = {column_kinds[name][0]: count for name, count in stats["nulls"].items() if name in column_kinds}
        file = data_file(path, rows=stats["rows"], size_bytes=stats["size_bytes"], lows=lows, highs=highs, nulls=nulls)
        come[bits].append(ManifestEntry(ADDED, number, number, file))
    for path in move.go:
        go[bucket_of(path, buckets)].add(path)
    counts = dict.fromkeys((f"{did}_{unit}" for did in ("added", "deleted") for unit in UNITS), 0)
    bodies: dict[str, bytes] = {}
    manifests: list[Mapping[str, Any]] = [manifest for bits, manifest in buckets.items() if bits not in {*come, *go}]
    touched = sorted({*come, *go})
    paths = [inside(uri, buckets[bits]["manifest_path"]) if bits in buckets else None for bits in touched]
    contents = each(uri, lambda path: [] if path is None else decode_manifest(get_file(uri, path)), paths)
    for bits, before in zip(touched, contents, strict=True):
        stay = [
            ManifestEntry(EXISTING, entry.snapshot, entry.sequence, entry.file)
            for entry in before
            if entry.status != DELETED
        ]
        gone = [ManifestEntry(DELETED, number, entry.sequence, entry.file) for entry in stay if entry.path in go[bits]]
        live = [*(entry for entry in stay if entry.path not in go[bits]), *come[bits]]
        _count(counts, "added", come[bits])
        _count(counts, "deleted", gone)
        parts = list(parted(live, bits)) if live else [(bits, [])]
        for index, (part_bits, part) in enumerate(parts):
            entries = [*part, *(gone if index == 0 else ())]
            path = manifest_path(part_bits, number)
            bodies[path] = encode_manifest(entries, columns, schema["schema-id"])
            manifests.append(manifest_record(f"{location_of(uri)}/{path}", len(bodies[path]), entries, number))
    return manifests, counts, bodies


UNITS: Final = {"files": lambda _: 1, "rows": lambda file: file.rows, "size_bytes": lambda file: file.size_bytes}


def _count(counts: dict[str, int], did: str, entries: Sequence[ManifestEntry]) -> None:
    for unit, of in UNITS.items():
        counts[f"{did}_{unit}"] += sum(map(of, entries))


def _publish(uri: str, version: int, body: bytes) -> None:
    """Write a metadata file, over one of another location or of others; ours tells the same and stays."""
    try:
        with storing(uri):
            VersionedFile(uri, metadata_path(version)).write(body)
        RECENT.keep(uri, metadata_path(version), body)
    except Changed:
        if read_metadata(uri, version) is not None:
            return
        if not was_ours(msgspec.json.decode(get_file(uri, metadata_path(version))), version + 1):
            LOGGER.warning(
                "%s is a foreign commit, which this lake's upstream does not have: it is reverted. Write to other "
                "tables, and only read this one",
                metadata_uri(uri, version),
            )
        put_file(uri, metadata_path(version), body)


NOTE: Final = "iceberg.json"
TABLES_A_TASK: Final = 16
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class TableProjection(msgspec.Struct, frozen=True):
    """A table's definition and the versions that readers may request."""

    table: TableInfo
    versions: tuple[int, ...]


def begin_projection(options: DeltaOptions, snapshot: Snapshot, runner: Runner) -> None:
    """Bring the lake's published state in line with `options`: metadata for all of its tables, or no promise of any."""
    if not options.iceberg:
        forget_projection(options)
    elif not is_projected(options):
        project_all(options, list(_published(snapshot)), runner)
        _promise(options)


def project_lake(options: DeltaOptions, runner: Runner) -> int:
    """Write the metadata of every version that a kept snapshot has; return how many versions there are."""
    tables: dict[str, TableInfo] = {}
    versions: dict[str, set[int]] = defaultdict(set)
    for snapshot in kept_snapshots(options):
        for move in _published(snapshot):
            tables[move.table.incarnation] = move.table
            versions[move.table.incarnation].update(move.versions)
    project_all(
        options, [TableProjection(tables[name], tuple(projected)) for name, projected in versions.items()], runner
    )
    _promise(options)
    return sum(map(len, versions.values()))


def is_projected(options: DeltaOptions) -> bool:
    """Return True for a lake whose published versions all have metadata for its current location."""
    body = read_file(options.control_uri, NOTE)
    return body is not None and msgspec.json.decode(body)["location"] == location_of(options.root)


def forget_projection(options: DeltaOptions) -> None:
    """Withdraw the promise that published versions have metadata."""
    with suppress(FileNotFoundError):
        obstore.delete(store(options.control_uri), NOTE)


def project_all(options: DeltaOptions, tables: Sequence[TableProjection], runner: Runner) -> None:
    """Write the missing metadata."""
    bins = [tables[start : start + TABLES_A_TASK] for start in range(0, len(tables), TABLES_A_TASK)]
    runner(partial(_project, options=options), bins)


def _promise(options: DeltaOptions) -> None:
    note = msgspec.json.encode({"location": location_of(options.root)})
    with storing(options.control_uri):
        obstore.put(writable(options.control_uri), NOTE, note)


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
