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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError

from tidegate.model.errors import SinkError
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import TableSnapshot
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.delta.columns import logical_key, stored_columns
from tidegate.sink.delta.iceberg.manifest import (
    ADDED,
    DELETED,
    EXISTING,
    ManifestEntry,
    bucket_of,
    data_file,
    decode_list,
    decode_manifest,
    encode_list,
    encode_manifest,
    is_live,
    manifest_record,
    parted,
)
from tidegate.sink.delta.iceberg.metadata import (
    Metadata,
    current,
    current_schema,
    described,
    fresh,
    is_ours,
    kinds,
    was_ours,
    with_snapshot,
    with_snapshots,
)
from tidegate.sink.delta.iceberg.names import FOLDER, bits_of, list_path, manifest_path, metadata_path, versions_of
from tidegate.sink.delta.iceberg.schema import iceberg_bounds, iceberg_fields

LOGGER: Final = logging.getLogger("tidegate.iceberg")
TIDY_EVERY: Final = 20
"""Versions between two looks into the directory for snapshots that upkeep has ended."""
COMMITS_MAX: Final = 200
"""Commits of the log that are read one by one; beyond, the table as a whole is read sooner."""


@dataclass(slots=True)
class _Move:
    """From which metadata to which files: those that come by their address, with what the log tells of them, and those
    that go. `manifests` are the live ones of the metadata; `table` is there where columns may have changed."""

    metadata: Metadata
    manifests: Sequence[Mapping[str, Any]] = ()
    come: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    go: set[str] = field(default_factory=set)
    table: TableSnapshot | None = None


def metadata_uri(uri: str, version: int) -> str:
    """Return the whole address of that metadata, as readers of Iceberg take it."""
    return f"{location_of(uri)}/{metadata_path(version)}"


def location_of(uri: str) -> str:
    """Return the address of a table as Iceberg's readers take it: with a scheme, not quoted."""
    return uri if "://" in uri else f"file://{Path(uri).resolve()}"


def project(uri: str, version: int, table: TableInfo, since: int | None = None) -> None:
    """Write the Iceberg metadata of a table at a version, if it is not there; `since` is an earlier version that is
    likely to have some. SinkError for what a store says."""
    if (since is None or since == version) and _read(uri, version) is not None:
        return
    tidies = version % TIDY_EVERY == 0
    there = projected(uri) if tidies else None
    move = _since(uri, version, since, there) or _whole(uri, version)
    metadata = move.metadata if move.table is None else _described(move.metadata, move.table, table)
    reach("iceberg/before-manifests")
    manifests, counts = _manifests(uri, version + 1, move, metadata)
    listed = list_path(version + 1)
    parent = current(metadata)
    _put(uri, listed, encode_list(manifests, version + 1, None if parent is None else parent["snapshot-id"]))
    if there is not None:
        metadata = with_snapshots(metadata, {one + 1 for one in there})
    found = with_snapshot(metadata, version + 1, f"{location_of(uri)}/{listed}", counts, time.time_ns() // 1_000_000)
    reach("iceberg/before-metadata")
    _publish(uri, version, msgspec.json.encode(found))
    reach("iceberg/after-metadata")


def projected(uri: str) -> set[int]:
    """Return the Delta versions that have a metadata file."""
    begin = f"{FOLDER}v"
    paths = (one["path"] for batch in obstore.list(store(uri), FOLDER.rstrip("/"), offset=begin) for one in batch)
    return versions_of(set(paths))


def _read(uri: str, version: int) -> Metadata | None:
    """The metadata of a version; None if it is not there or was not written here."""
    try:
        body = obstore.get(store(uri), metadata_path(version)).bytes().to_bytes()
    except FileNotFoundError:
        return None
    found: Metadata = msgspec.json.decode(body)
    return found if is_ours(found, version + 1, location_of(uri)) else None


def _since(uri: str, version: int, since: int | None, there: Collection[int] | None) -> _Move | None:
    """The way from the newest projection below; None if there is none, or the log no longer tells it."""
    at, metadata = _newest(uri, version, since, there)
    if metadata is None or version - at > COMMITS_MAX:
        return None
    snapshot = current(metadata)
    assert snapshot is not None, "what was written here has a snapshot"
    listed = decode_list(_get(uri, _inside(uri, snapshot["manifest-list"])))
    move = _Move(metadata, [one for one in listed if is_live(one)])
    return move if all(_take(move, uri, number, version) for number in range(at + 1, version + 1)) else None


def _newest(uri: str, version: int, since: int | None, there: Collection[int] | None) -> tuple[int, Metadata | None]:
    """The newest version below that has metadata of ours, and that; `since` is tried before the directory is read."""
    if since is not None and 0 <= since < version and (metadata := _read(uri, since)) is not None:
        return since, metadata
    below = (one for one in (projected(uri) if there is None else there) if one < version)
    found = ((one, _read(uri, one)) for one in sorted(below, reverse=True))
    return next((one for one in found if one[1] is not None), (-1, None))


def _take(move: _Move, uri: str, number: int, version: int) -> bool:
    """Take up a commit of the log; False if it is gone."""
    actions = deltalog.actions(uri, number)
    for action in actions:
        match action:
            case {"add": added}:
                move.come[_address(uri, unquote(added["path"]))] = _told(added)
            case {"remove": removed}:
                path = _address(uri, unquote(removed["path"]))
                if move.come.pop(path, None) is None:
                    move.go.add(path)
            case {"metaData": _}:
                move.table = move.table or _loaded(uri, version)
    return bool(actions)


def _told(added: Mapping[str, Any]) -> dict[str, Any]:
    stats = json.loads(added.get("stats") or "{}")
    return {
        "rows": stats.get("numRecords", 0),
        "size_bytes": added["size"],
        "lows": stats.get("minValues", {}),
        "highs": stats.get("maxValues", {}),
        "nulls": stats.get("nullCount", {}),
    }


def _whole(uri: str, version: int) -> _Move:
    """The way from nothing."""
    table = _loaded(uri, version)
    come: dict[str, Mapping[str, Any]] = {
        _address(uri, file.path): {
            "rows": file.rows,
            "size_bytes": file.size_bytes,
            "lows": file.lows,
            "highs": file.highs,
            "nulls": {},
        }
        for file in table.files()
    }
    return _Move(fresh(table.table_id, location_of(uri)), come=come, table=table)


def _loaded(uri: str, version: int) -> TableSnapshot:
    table = deltalog.load(uri, version)
    if table is None:
        raise SinkError(f"{uri}: there is no table to be seen as an Iceberg table")
    return table


def _described(metadata: Metadata, snapshot: TableSnapshot, table: TableInfo) -> Metadata:
    columns = stored_columns(snapshot)
    names = {column.physical: column.mapping_id for column in columns}
    key = set(logical_key(table, columns))
    ids = [column.mapping_id for column in columns if column.name in key]
    return described(metadata, iceberg_fields(columns, table), names, ids, table.comment)


def _manifests(
    uri: str, number: int, move: _Move, metadata: Metadata
) -> tuple[list[Mapping[str, Any]], dict[str, int]]:
    """Write the manifests that the move touches; return all of the new snapshot, and what came and went."""
    known, schema = kinds(metadata), current_schema(metadata)
    buckets = {bits_of(one["manifest_path"]): one for one in move.manifests}
    come: dict[str, list[ManifestEntry]] = defaultdict(list)
    go: dict[str, set[str]] = defaultdict(set)
    for path, told in move.come.items():
        bits = bucket_of(path, {*buckets, *come})
        lows, highs = (iceberg_bounds(told[end], known) for end in ("lows", "highs"))
        nulls = {known[name][0]: count for name, count in told["nulls"].items() if name in known}
        file = data_file(path, rows=told["rows"], size_bytes=told["size_bytes"], lows=lows, highs=highs, nulls=nulls)
        come[bits].append(ManifestEntry(ADDED, number, number, file))
    for path in move.go:
        go[bucket_of(path, buckets)].add(path)
    counts = dict.fromkeys((f"{did}_{unit}" for did in ("added", "deleted") for unit in UNITS), 0)
    manifests: list[Mapping[str, Any]] = [one for bits, one in buckets.items() if bits not in {*come, *go}]
    for bits in sorted({*come, *go}):
        before = [] if bits not in buckets else decode_manifest(_get(uri, _inside(uri, buckets[bits]["manifest_path"])))
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
            body = encode_manifest(entries, json.dumps(schema), schema["schema-id"])
            _put(uri, path, body)
            manifests.append(manifest_record(f"{location_of(uri)}/{path}", len(body), entries, number))
    return manifests, counts


UNITS: Final = {"files": lambda _: 1, "rows": lambda one: one.rows, "size_bytes": lambda one: one.size_bytes}


def _count(counts: dict[str, int], did: str, entries: Sequence[ManifestEntry]) -> None:
    for unit, of in UNITS.items():
        counts[f"{did}_{unit}"] += sum(map(of, entries))


def _address(uri: str, path: str) -> str:
    """A data file's whole address, from its path in the log; one that is whole already stands for itself."""
    return path if "://" in path else f"{location_of(uri)}/{path}"


def _inside(uri: str, address: str) -> str:
    """A path from the table's directory on."""
    return address.removeprefix(f"{location_of(uri)}/")


def _get(uri: str, path: str) -> bytes:
    return bytes(obstore.get(store(uri), path).bytes().to_bytes())


def _put(uri: str, path: str, body: bytes) -> None:
    with storing(uri):
        obstore.put(store(uri), path, body)


def _publish(uri: str, version: int, body: bytes) -> None:
    """Write a metadata file, over one of another place or of others; ours tells the same and stays."""
    try:
        with storing(uri):
            obstore.put(store(uri), metadata_path(version), body, mode="create")
    except AlreadyExistsError:
        if _read(uri, version) is not None:
            return
        if not was_ours(msgspec.json.decode(_get(uri, metadata_path(version))), version + 1):
            LOGGER.warning(
                "%s is a commit of somebody else, which this lake's upstream does not have: it is taken back. Write to "
                "tables of your own, and read this one",
                metadata_uri(uri, version),
            )
        _put(uri, metadata_path(version), body)
