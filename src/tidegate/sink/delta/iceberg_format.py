"""Iceberg's form of a lake table: types and bounds, the metadata file, manifests.

    byte, short, integer     int             4 bytes, little endian
    long                     long            8 bytes, little endian
    decimal(p,s)             decimal(p, s)   the unscaled number, big endian, as few bytes as hold it
    date                     date            days since 1970-01-01, 4 bytes, little endian
    string                   string          UTF-8
    timestamp                timestamptz     no bounds, as for every other type
    timestamp_ntz            timestamp

A field's id is the column's mapping id, which the Parquet files carry too, so renames do not concern a reader.

The metadata file is an immutable value that gains a description (schema, sort order, names in Parquet files) and one
snapshot per version.  A snapshot's id and sequence number are the number of its file, one above the Delta version.
The key is the sort order and not `identifier-field-ids`, since those require columns that cannot be NULL.

    manifest list ──► manifest  m--…           all files of the table
                  └─► manifests m-0-…  m-1-…   beyond ENTRIES_MAX: by the first bit of the digest of the path, then the
                                               next

Which manifest holds a file follows from its path alone.  A commit therefore opens only the manifests of the files that
it adds and removes, and costs the same however many others there are; untouched manifests are listed again unchanged.
An entry is ADDED or DELETED in the snapshot that did so and EXISTING afterwards; deleted entries are dropped when their
manifest is next written.

Source: the Iceberg table specification, "Schemas and Data Types", "Single-value serialization", "Table Metadata",
"Sorting", "Column Projection" (name mapping), "Manifests", "Manifest Lists".
"""

import io
import json
import re
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import fastavro

from tidegate.model.table import TableInfo
from tidegate.sink.delta.columns import DECIMAL_TYPE, LakeColumn

TYPES: Final[Mapping[str, str]] = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
ICEBERG_DECIMAL: Final = re.compile(r"decimal\(\d+, (\d+)\)")
EPOCH: Final = date(1970, 1, 1).toordinal()


def iceberg_type(delta: str) -> str:
    """Return the Iceberg type of a Delta type."""
    if match := DECIMAL_TYPE.fullmatch(delta):
        return f"decimal({match[1]}, {match[2]})"
    return TYPES[delta]


def iceberg_fields(columns: Sequence[LakeColumn], table: TableInfo) -> list[dict[str, Any]]:
    """Return the fields of a schema; comments of the upstream's columns become their `doc`."""
    comments = {column.id: column.comment for column in table.columns if column.comment}
    return [
        {"id": column.mapping_id, "name": column.name, "required": False, "type": iceberg_type(column.delta)}
        | ({"doc": comments[column.upstream_id]} if column.upstream_id in comments else {})
        for column in columns
    ]


Kinds = Mapping[str, tuple[int, str]]
"""Field id and Iceberg type of each column by its name in Parquet files."""


def kinds_of(fields: Sequence[Mapping[str, Any]], names: Mapping[str, int]) -> Kinds:
    """Return the fields of a schema by their names in Parquet files."""
    types = {field["id"]: field["type"] for field in fields}
    return {name: (number, types[number]) for name, number in names.items()}


def iceberg_bounds(bounds: Mapping[str, Any], kinds: Kinds) -> dict[int, bytes]:
    """Return bounds by name in Parquet files, as in the log, as bytes by field id; only for types that have bounds."""
    pairs = ((*kinds[name], value) for name, value in bounds.items() if name in kinds and value is not None)
    packed: dict[int, bytes] = {}
    for number, kind, value in pairs:
        if match := ICEBERG_DECIMAL.fullmatch(kind):
            packed[number] = _decimal(Decimal(str(value)), int(match[1]))
        elif kind in PACKED:
            packed[number] = PACKED[kind](value)
    return packed


def _decimal(value: Decimal, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a bound is a number"
    unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)


PACKED: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "int": lambda value: int(value).to_bytes(4, "little", signed=True),
    "long": lambda value: int(value).to_bytes(8, "little", signed=True),
    "date": lambda value: (
        (value if isinstance(value, date) else date.fromisoformat(value)).toordinal() - EPOCH
    ).to_bytes(4, "little", signed=True),
    "string": lambda value: str(value).encode(),
}


Metadata = Mapping[str, Any]
VERSION: Final = "tidegate.delta-version"
KEY: Final = "tidegate.key"
NAMES: Final = "schema.name-mapping.default"
SNAPSHOTS_MAX: Final = 300
"""Some 200 kB, which every commit reads and writes."""
COUNTED: Final = {"data-files": "files", "records": "rows", "files-size": "size_bytes"}


def fresh(table_id: str, location: str) -> dict[str, Any]:
    """Return the metadata of a table without columns and snapshots."""
    return {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(table_id)),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": -1,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"gc.enabled": "false", "write.parquet.compression-codec": "zstd"},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def described(
    metadata: Metadata, fields: Sequence[Mapping[str, Any]], names: Mapping[str, int], key: Sequence[int], comment: str
) -> dict[str, Any]:
    """Return the metadata with these fields, their names in Parquet files, the key by field ids and a comment."""
    changed = dict(metadata)
    schemas = _by_id(changed["schemas"], "schema-id")
    new = max(schemas, default=-1) + 1
    number = next((number for number, schema in schemas.items() if schema["fields"] == list(fields)), new)
    if number == new:
        changed["schemas"] = [*changed["schemas"], {"type": "struct", "schema-id": new, "fields": list(fields)}]
    changed["current-schema-id"] = number
    changed["last-column-id"] = max((changed["last-column-id"], *(field["id"] for field in fields)))
    order = [
        {"transform": "identity", "source-id": field_id, "direction": "asc", "null-order": "nulls-first"}
        for field_id in key
    ]
    orders = _by_id(changed["sort-orders"], "order-id")
    number = next((number for number, sort_order in orders.items() if sort_order["fields"] == order), max(orders) + 1)
    if number not in orders:
        changed["sort-orders"] = [*changed["sort-orders"], {"order-id": number, "fields": order}]
    changed["default-sort-order-id"] = number
    mapping = [{"field-id": number, "names": [name]} for name, number in names.items()]
    names_of = {field["id"]: field["name"] for field in fields}
    properties = {name: value for name, value in changed["properties"].items() if name not in {"comment", KEY}}
    properties |= {NAMES: json.dumps(mapping, ensure_ascii=False)}
    properties |= ({"comment": comment} if comment else {}) | (
        {KEY: json.dumps([names_of[field_id] for field_id in key], ensure_ascii=False)} if key else {}
    )
    return changed | {"properties": properties}


def with_snapshot(
    metadata: Metadata, number: int, manifest_list: str, counts: Mapping[str, int], now_ms: int
) -> dict[str, Any]:
    """Return the metadata with snapshot `number` as the newest, and at most SNAPSHOTS_MAX.

    `counts` has added_files, added_rows, added_size_bytes, and the same of deleted ones."""
    parent = current(metadata)
    now_ms = max(now_ms, metadata["last-updated-ms"])
    snapshot = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": now_ms,
        "manifest-list": manifest_list,
        "summary": _summary(counts, parent["summary"] if parent else {}, number - 1),
        "schema-id": metadata["current-schema-id"],
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent["snapshot-id"]
    changed = {
        **metadata,
        "last-sequence-number": number,
        "last-updated-ms": now_ms,
        "current-snapshot-id": number,
        "snapshots": [*metadata["snapshots"], snapshot],
        "snapshot-log": [*metadata["snapshot-log"], {"snapshot-id": number, "timestamp-ms": now_ms}],
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
    }
    return with_snapshots(changed, {snapshot["snapshot-id"] for snapshot in changed["snapshots"][-SNAPSHOTS_MAX:]})


def with_snapshots(metadata: Metadata, numbers: Collection[int]) -> dict[str, Any]:
    """Return the metadata with only the snapshots in `numbers`, and their schemas."""
    snapshots = [snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] in numbers]
    schemas = {metadata["current-schema-id"], *(snapshot["schema-id"] for snapshot in snapshots)}
    return {
        **metadata,
        "snapshots": snapshots,
        "schemas": [schema_entry for schema_entry in metadata["schemas"] if schema_entry["schema-id"] in schemas],
        "snapshot-log": [snapshot for snapshot in metadata["snapshot-log"] if snapshot["snapshot-id"] in numbers],
    }


def current(metadata: Metadata) -> Mapping[str, Any] | None:
    """Return the newest snapshot; None for a table without any."""
    return _by_id(metadata["snapshots"], "snapshot-id").get(metadata.get("current-snapshot-id", -1))


def kinds(metadata: Metadata) -> Kinds:
    """Return the columns by their names in Parquet files."""
    schema = current_schema(metadata)
    mapping = json.loads(metadata["properties"][NAMES])
    return kinds_of(schema["fields"], {field["names"][0]: field["field-id"] for field in mapping})


def current_schema(metadata: Metadata) -> Mapping[str, Any]:
    """Return the current schema."""
    return _by_id(metadata["schemas"], "schema-id")[metadata["current-schema-id"]]


def is_ours(metadata: Metadata, number: int, location: str) -> bool:
    """Return True for metadata that a projection wrote as `number` for a table at this location."""
    return metadata.get("location") == location and was_ours(metadata, number)


def was_ours(metadata: Metadata, number: int) -> bool:
    """Return True for metadata that a projection wrote as `number`, wherever the table was then."""
    newest = current(metadata)
    return newest is not None and newest["snapshot-id"] == number and newest["summary"].get(VERSION) == str(number - 1)


def _summary(counts: Mapping[str, int], before: Mapping[str, str], version: int) -> dict[str, str]:
    totals: dict[str, int] = {}
    for name, unit in COUNTED.items():
        added, deleted = counts[f"added_{unit}"], counts[f"deleted_{unit}"]
        totals[f"added-{name}"] = added
        totals["removed-files-size" if unit == "size_bytes" else f"deleted-{name}"] = deleted
        totals[f"total-{name}"] = int(before.get(f"total-{name}", "0")) + added - deleted
    totals |= dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), 0)
    operation = "overwrite" if counts["deleted_files"] else "append"
    return {"operation": operation, **{name: str(value) for name, value in totals.items()}, VERSION: str(version)}


def _by_id(things: Sequence[Mapping[str, Any]], name: str) -> dict[int, Mapping[str, Any]]:
    return {thing[name]: thing for thing in things}


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
    """A data file in a manifest; `file` is its Avro record."""

    status: int
    snapshot: int
    """The snapshot that added the file; of a deleted one the snapshot that did so."""
    sequence: int
    """The number of the snapshot that added it."""
    file: Mapping[str, Any]

    @property
    def path(self) -> str:
        return str(self.file["file_path"])

    @property
    def rows(self) -> int:
        return int(self.file["record_count"])

    @property
    def size_bytes(self) -> int:
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
    """Return the record of a Parquet file without deletes, with the known statistics of its columns by field id."""
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
        **{name: [{"key": key, "value": value} for key, value in values.items()] for name, values in maps.items()},
    }


def bucket_of(path: str, buckets: Collection[str]) -> str:
    """Return the bits of the manifest that holds a file: one of `buckets`, none of which is a prefix of another, or
    a new one beside them."""
    digest = f"{zlib.crc32(path.encode()):0{DIGEST_BITS}b}"
    found_bits = next((digest[:length] for length in range(DIGEST_BITS + 1) if digest[:length] in buckets), None)
    if found_bits is not None:
        return found_bits
    shared = -1
    for bits in buckets:
        shared = max(shared, next(length for length, (a, b) in enumerate(zip(bits, digest, strict=False)) if a != b))
    return digest[: shared + 1]


def parted(entries: Sequence[ManifestEntry], bits: str) -> Iterable[tuple[str, Sequence[ManifestEntry]]]:
    """Return the entries of a bucket, split by further bits until no part has too many."""
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
    header = {
        "schema": schema,
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return _encoded(_ENTRY, records, header)


def decode_manifest(body: bytes) -> list[ManifestEntry]:
    """Return the entries of a manifest."""
    entries: Iterable[Any] = fastavro.reader(io.BytesIO(body))
    return [
        ManifestEntry(entry["status"], entry["snapshot_id"], entry["sequence_number"], entry["data_file"])
        for entry in entries
    ]


def manifest_record(path: str, size_bytes: int, entries: Sequence[ManifestEntry], snapshot: int) -> dict[str, Any]:
    """Return the entry in a manifest list for a manifest that `snapshot` wrote."""
    by_status = {
        status: [entry for entry in entries if entry.status == status] for status in (ADDED, EXISTING, DELETED)
    }
    live = [*by_status[ADDED], *by_status[EXISTING]]
    record: dict[str, Any] = {
        "manifest_path": path,
        "manifest_length": size_bytes,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": snapshot,
        "min_sequence_number": min((entry.sequence for entry in live), default=snapshot),
        "added_snapshot_id": snapshot,
    }
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        record[f"{name}_files_count"] = len(by_status[status])
        record[f"{name}_rows_count"] = sum(entry.rows for entry in by_status[status])
    return record


def is_live(manifest: Mapping[str, Any]) -> bool:
    """Return True for a manifest with files that are not deleted."""
    return bool(manifest["added_files_count"] or manifest["existing_files_count"])


def encode_list(manifests: Iterable[Mapping[str, Any]], snapshot: int, parent: int | None) -> bytes:
    """Return a manifest list."""
    header = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot),
        "format-version": "2",
    }
    return _encoded(_MANIFEST, manifests, header)


def decode_list(body: bytes) -> list[dict[str, Any]]:
    """Return the manifests of a list."""
    records: Iterable[Any] = fastavro.reader(io.BytesIO(body))
    return list(records)


def _encoded(schema: Any, records: Iterable[Any], header: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, metadata=dict(header))
    return out.getvalue()
