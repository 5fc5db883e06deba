"""The projection: Iceberg metadata of one version of a Delta table, over the very files that the version has.

    _delta_log/   …007  …008  …009                     truth
                         │     │   files that came and went, the columns if they changed
                         ▼     ▼
    metadata/     v8 ─────────► v10.metadata.json      version + 1 = number of the Iceberg snapshot, of its sequence
                                snap-…, m-…-….avro     and of its file, written if there is none

What is derived can be derived again: whoever finds the file there is done, whoever dies on the way leaves files that
upkeep deletes.  It begins at the newest projection below, or with the table as a whole where there is none, where it
lies elsewhere (addresses are whole: a lake was moved) or where the log between is gone.  No data file is opened.

Metadata names the last SNAPSHOTS_MAX snapshots whose own file `v….metadata.json` is there, which upkeep decides; each
such file shows its own moment.  A table says `gc.enabled=false`: no file is Iceberg's to delete.  What others commit
here is not built upon, and replaced when its number is needed.

Source: the Iceberg table specification, "Table Metadata", "Snapshots".
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError

from tidegate.model.table import TableInfo
from tidegate.objectstore.deltalog import TableDescription, TableSnapshot
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.delta.columns import logical_key, stored_columns
from tidegate.sink.delta.iceberg.files import (
    RECENT,
    each,
    get_file,
    inside,
    location_of,
    metadata_uri,
    projected,
    put_file,
    read_metadata,
)
from tidegate.sink.delta.iceberg.manifest import (
    ADDED,
    DELETED,
    EXISTING,
    ManifestEntry,
    bucket_of,
    data_file,
    decode_manifest,
    encode_list,
    encode_manifest,
    manifest_record,
    parted,
)
from tidegate.sink.delta.iceberg.metadata import (
    Metadata,
    current,
    current_schema,
    described,
    kinds,
    was_ours,
    with_snapshot,
    with_snapshots,
)
from tidegate.sink.delta.iceberg.move import TableMove, move_to
from tidegate.sink.delta.iceberg.names import bits_of, list_path, manifest_path, metadata_path
from tidegate.sink.delta.iceberg.schema import iceberg_bounds, iceberg_fields

LOGGER: Final = logging.getLogger("tidegate.iceberg")
TIDY_EVERY: Final = 20
"""Versions between two looks into the directory for snapshots that upkeep has ended."""


def project(uri: str, version: int, table: TableInfo, since: int | None = None) -> None:
    """Write the Iceberg metadata of a table at a version, if it is not there; `since` is an earlier version that is
    likely to have some. SinkError for what a store says."""
    if (since is None or since == version) and read_metadata(uri, version) is not None:
        return
    tidies = version % TIDY_EVERY == 0
    there = projected(uri) if tidies else None
    move = move_to(uri, version, since, there)
    metadata = move.metadata if move.table is None else _described(move.metadata, move.table, table)
    reach("iceberg/before-manifests")
    manifests, counts, bodies = _manifests(uri, version + 1, move, metadata)
    listed, parent = list_path(version + 1), current(metadata)
    bodies[listed] = encode_list(manifests, version + 1, None if parent is None else parent["snapshot-id"])
    each(uri, lambda one: put_file(uri, *one), list(bodies.items()))
    if there is not None:
        metadata = with_snapshots(metadata, {one + 1 for one in there})
    found = with_snapshot(metadata, version + 1, f"{location_of(uri)}/{listed}", counts, time.time_ns() // 1_000_000)
    reach("iceberg/before-metadata")
    _publish(uri, version, msgspec.json.encode(found))
    reach("iceberg/after-metadata")


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
    known, schema = kinds(metadata), current_schema(metadata)
    columns = json.dumps(schema)
    buckets = {bits_of(one["manifest_path"]): one for one in move.manifests}
    come: dict[str, list[ManifestEntry]] = defaultdict(list)
    go: dict[str, set[str]] = defaultdict(set)
    there = set(buckets)
    for path, told in move.come.items():
        bits = bucket_of(path, there)
        there.add(bits)
        lows, highs = (iceberg_bounds(told[end], known) for end in ("lows", "highs"))
        nulls = {known[name][0]: count for name, count in told["nulls"].items() if name in known}
        file = data_file(path, rows=told["rows"], size_bytes=told["size_bytes"], lows=lows, highs=highs, nulls=nulls)
        come[bits].append(ManifestEntry(ADDED, number, number, file))
    for path in move.go:
        go[bucket_of(path, buckets)].add(path)
    counts = dict.fromkeys((f"{did}_{unit}" for did in ("added", "deleted") for unit in UNITS), 0)
    bodies: dict[str, bytes] = {}
    manifests: list[Mapping[str, Any]] = [one for bits, one in buckets.items() if bits not in {*come, *go}]
    touched = sorted({*come, *go})
    places = [inside(uri, buckets[bits]["manifest_path"]) if bits in buckets else None for bits in touched]
    found = each(uri, lambda place: [] if place is None else decode_manifest(get_file(uri, place)), places)
    for bits, before in zip(touched, found, strict=True):
        stay = [
            ManifestEntry(EXISTING, one.snapshot, one.sequence, one.file) for one in before if one.status != DELETED
        ]
        gone = [ManifestEntry(DELETED, number, one.sequence, one.file) for one in stay if one.path in go[bits]]
        live = [*(one for one in stay if one.path not in go[bits]), *come[bits]]
        _count(counts, "added", come[bits])
        _count(counts, "deleted", gone)
        parts = list(parted(live, bits)) if live else [(bits, [])]
        for at, (part_bits, part) in enumerate(parts):
            entries = [*part, *(gone if at == 0 else ())]
            path = manifest_path(part_bits, number)
            bodies[path] = encode_manifest(entries, columns, schema["schema-id"])
            manifests.append(manifest_record(f"{location_of(uri)}/{path}", len(bodies[path]), entries, number))
    return manifests, counts, bodies


UNITS: Final = {"files": lambda _: 1, "rows": lambda one: one.rows, "size_bytes": lambda one: one.size_bytes}


def _count(counts: dict[str, int], did: str, entries: Sequence[ManifestEntry]) -> None:
    for unit, of in UNITS.items():
        counts[f"{did}_{unit}"] += sum(map(of, entries))


def _publish(uri: str, version: int, body: bytes) -> None:
    """Write a metadata file, over one of another place or of others; ours tells the same and stays."""
    try:
        with storing(uri):
            obstore.put(store(uri), metadata_path(version), body, mode="create")
        RECENT.keep(uri, metadata_path(version), body)
    except AlreadyExistsError:
        if read_metadata(uri, version) is not None:
            return
        if not was_ours(msgspec.json.decode(get_file(uri, metadata_path(version))), version + 1):
            LOGGER.warning(
                "%s is a commit of somebody else, which this lake's upstream does not have: it is taken back. Write to "
                "tables of your own, and read this one",
                metadata_uri(uri, version),
            )
        put_file(uri, metadata_path(version), body)
