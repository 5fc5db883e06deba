"""Manifests: which files a snapshot of an Iceberg table has, in Avro.

    manifest list ──► manifest  m--…           files whose digest begins with no bit in particular: all
                  └─► manifests m-0-…  m-1-…   once there are more than ENTRIES_MAX: by the first bit, then the next

A file's place follows from its path alone, so a commit opens the manifests of the files that it adds and removes, and
costs the same however many others there are.  What is not touched goes on from list to list as it is.

Entries say ADDED or DELETED in the snapshot that did so and EXISTING afterwards; deleted ones go with the next writing
of their manifest.  Source: the Iceberg table specification, "Manifests", "Manifest Lists".
"""

import io
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro

ENTRIES_MAX: Final = 64
"""Some 10 kB; larger ones cost each commit more, smaller ones make longer lists, which it reads and writes too."""
EXISTING, ADDED, DELETED = 0, 1, 2
DIGEST_BITS: Final = 32


def _field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _by_field(key: int, value: int, kind: str) -> dict[str, Any]:
    """A map whose keys are field ids, which Avro's maps cannot have."""
    entry = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_field(key, "key", "int"), _field(value, "value", kind)],
    }
    return {"type": "array", "items": entry, "logicalType": "map"}


_FILE: Final = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": []}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _field(109, "value_counts", _by_field(119, 120, "long")),
        _field(110, "null_value_counts", _by_field(121, 122, "long")),
        _field(125, "lower_bounds", _by_field(126, 127, "bytes")),
        _field(128, "upper_bounds", _by_field(129, 130, "bytes")),
    ],
}
_ENTRY: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int"),
            _field(1, "snapshot_id", "long"),
            _field(3, "sequence_number", "long"),
            _field(4, "file_sequence_number", "long"),
            _field(2, "data_file", _FILE),
        ],
    },
)
_MANIFEST: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            _field(500, "manifest_path", "string"),
            _field(501, "manifest_length", "long"),
            _field(502, "partition_spec_id", "int"),
            _field(517, "content", "int"),
            _field(515, "sequence_number", "long"),
            _field(516, "min_sequence_number", "long"),
            _field(503, "added_snapshot_id", "long"),
            *(
                _field(number, f"{status}_{what}_count", kind)
                for what, kind, numbers in (("files", "int", (504, 505, 506)), ("rows", "long", (512, 513, 514)))
                for number, status in zip(numbers, ("added", "existing", "deleted"), strict=True)
            ),
        ],
    },
)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A data file of a manifest; `file` as Avro has it."""

    status: int
    snapshot: int
    """The snapshot that added the file; of a deleted one the snapshot that did so."""
    sequence: int
    """The number of the snapshot that added it."""
    file: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The whole address of the file."""
        return str(self.file["file_path"])

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(self.file["record_count"])

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return int(self.file["file_size_in_bytes"])


def data_file(
    path: str,
    *,
    rows: int,
    size_bytes: int,
    lows: Mapping[int, bytes],
    highs: Mapping[int, bytes],
    nulls: Mapping[int, int],
) -> dict[str, Any]:
    """Return a Parquet file without deletes, with what is known of its columns by their field ids."""
    some = {number: count for number, count in nulls.items() if count}
    maps = {
        "value_counts": dict.fromkeys(some, rows),
        "null_value_counts": some,
        "lower_bounds": lows,
        "upper_bounds": highs,
    }
    return {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": rows,
        "file_size_in_bytes": size_bytes,
        **{name: [{"key": key, "value": value} for key, value in told.items()] for name, told in maps.items()},
    }


def bucket_of(path: str, buckets: Collection[str]) -> str:
    """Return the bits of the manifest that a file belongs to: one of `buckets`, of which none begins another, or a
    new one beside them."""
    digest = f"{zlib.crc32(path.encode()):0{DIGEST_BITS}b}"
    there = next((digest[:at] for at in range(DIGEST_BITS + 1) if digest[:at] in buckets), None)
    if there is not None:
        return there
    shared = -1
    for bits in buckets:
        shared = max(shared, next(at for at, (a, b) in enumerate(zip(bits, digest, strict=False)) if a != b))
    return digest[: shared + 1]


def parted(entries: Sequence[ManifestEntry], bits: str) -> Iterable[tuple[str, Sequence[ManifestEntry]]]:
    """Return the entries of a bucket, cut by further bits until no part has too many."""
    if len(entries) <= ENTRIES_MAX or len(bits) == DIGEST_BITS:
        yield bits, entries
        return
    for bit in "01":
        part = [entry for entry in entries if bucket_of(entry.path, (bits + "0", bits + "1")) == bits + bit]
        if part:
            yield from parted(part, bits + bit)


def encode_manifest(entries: Iterable[ManifestEntry], schema: str, schema_id: int) -> bytes:
    """Return a manifest; `schema` is the table's, as JSON."""
    records = [
        {
            "status": entry.status,
            "snapshot_id": entry.snapshot,
            "sequence_number": entry.sequence,
            "file_sequence_number": entry.sequence,
            "data_file": entry.file,
        }
        for entry in entries
    ]
    told = {
        "schema": schema,
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return _encoded(_ENTRY, records, told)


def decode_manifest(body: bytes) -> list[ManifestEntry]:
    """Return the entries of a manifest."""
    found: Iterable[Any] = fastavro.reader(io.BytesIO(body))
    return [ManifestEntry(one["status"], one["snapshot_id"], one["sequence_number"], one["data_file"]) for one in found]


def manifest_record(path: str, size_bytes: int, entries: Sequence[ManifestEntry], snapshot: int) -> dict[str, Any]:
    """Return what a list tells of a manifest that `snapshot` wrote."""
    by_status = {status: [one for one in entries if one.status == status] for status in (ADDED, EXISTING, DELETED)}
    live = [*by_status[ADDED], *by_status[EXISTING]]
    record: dict[str, Any] = {
        "manifest_path": path,
        "manifest_length": size_bytes,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": snapshot,
        "min_sequence_number": min((one.sequence for one in live), default=snapshot),
        "added_snapshot_id": snapshot,
    }
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        record[f"{name}_files_count"] = len(by_status[status])
        record[f"{name}_rows_count"] = sum(one.rows for one in by_status[status])
    return record


def is_live(manifest: Mapping[str, Any]) -> bool:
    """Return True for a manifest that has files which are not deleted."""
    return bool(manifest["added_files_count"] or manifest["existing_files_count"])


def encode_list(manifests: Iterable[Mapping[str, Any]], snapshot: int, parent: int | None) -> bytes:
    """Return a manifest list."""
    told = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot),
        "format-version": "2",
    }
    return _encoded(_MANIFEST, manifests, told)


def decode_list(body: bytes) -> list[dict[str, Any]]:
    """Return the manifests of a list."""
    found: Iterable[Any] = fastavro.reader(io.BytesIO(body))
    return list(found)


def _encoded(schema: Any, records: Iterable[Any], told: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, metadata=dict(told))
    return out.getvalue()
