"""The metadata file of an Iceberg table, as a value that moves from version to version. Pure.

    fresh ──described──► schema, sort order, names in Parquet files ──with_snapshot──► one snapshot more

Identity: a snapshot's id and sequence number are the number of its file, one above the Delta version.  The key is the
sort order; it is no `identifier-field-ids`, since those have to be required columns, and ours can all be NULL.
Source: the Iceberg table specification, "Table Metadata", "Sorting", "Column Projection" (name mapping).
"""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tidegate.sink.delta.iceberg.schema import Kinds, kinds_of

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
    told = dict(metadata)
    schemas = _by_id(told["schemas"], "schema-id")
    new = max(schemas, default=-1) + 1
    number = next((number for number, one in schemas.items() if one["fields"] == list(fields)), new)
    if number == new:
        told["schemas"] = [*told["schemas"], {"type": "struct", "schema-id": new, "fields": list(fields)}]
    told["current-schema-id"] = number
    told["last-column-id"] = max((told["last-column-id"], *(field["id"] for field in fields)))
    order = [
        {"transform": "identity", "source-id": one, "direction": "asc", "null-order": "nulls-first"} for one in key
    ]
    orders = _by_id(told["sort-orders"], "order-id")
    number = next((number for number, one in orders.items() if one["fields"] == order), max(orders) + 1)
    if number not in orders:
        told["sort-orders"] = [*told["sort-orders"], {"order-id": number, "fields": order}]
    told["default-sort-order-id"] = number
    mapping = [{"field-id": number, "names": [name]} for name, number in names.items()]
    names_of = {field["id"]: field["name"] for field in fields}
    properties = {name: value for name, value in told["properties"].items() if name not in {"comment", KEY}}
    properties |= {NAMES: json.dumps(mapping, ensure_ascii=False)}
    properties |= ({"comment": comment} if comment else {}) | (
        {KEY: json.dumps([names_of[one] for one in key], ensure_ascii=False)} if key else {}
    )
    return told | {"properties": properties}


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
    told = {
        **metadata,
        "last-sequence-number": number,
        "last-updated-ms": now_ms,
        "current-snapshot-id": number,
        "snapshots": [*metadata["snapshots"], snapshot],
        "snapshot-log": [*metadata["snapshot-log"], {"snapshot-id": number, "timestamp-ms": now_ms}],
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
    }
    return with_snapshots(told, {one["snapshot-id"] for one in told["snapshots"][-SNAPSHOTS_MAX:]})


def with_snapshots(metadata: Metadata, numbers: Collection[int]) -> dict[str, Any]:
    """Return the metadata with no other snapshots than `numbers`, and the schemas that they have."""
    snapshots = [one for one in metadata["snapshots"] if one["snapshot-id"] in numbers]
    schemas = {metadata["current-schema-id"], *(one["schema-id"] for one in snapshots)}
    return {
        **metadata,
        "snapshots": snapshots,
        "schemas": [one for one in metadata["schemas"] if one["schema-id"] in schemas],
        "snapshot-log": [one for one in metadata["snapshot-log"] if one["snapshot-id"] in numbers],
    }


def current(metadata: Metadata) -> Mapping[str, Any] | None:
    """Return the newest snapshot; None for a table without any."""
    return _by_id(metadata["snapshots"], "snapshot-id").get(metadata.get("current-snapshot-id", -1))


def kinds(metadata: Metadata) -> Kinds:
    """Return the columns by their names in Parquet files."""
    schema = current_schema(metadata)
    told = json.loads(metadata["properties"][NAMES])
    return kinds_of(schema["fields"], {one["names"][0]: one["field-id"] for one in told})


def current_schema(metadata: Metadata) -> Mapping[str, Any]:
    """Return the schema of now."""
    return _by_id(metadata["schemas"], "schema-id")[metadata["current-schema-id"]]


def is_ours(metadata: Metadata, number: int, location: str) -> bool:
    """Return True for what a projection wrote as `number` for a table that lies there."""
    return metadata.get("location") == location and was_ours(metadata, number)


def was_ours(metadata: Metadata, number: int) -> bool:
    """Return True for what a projection wrote as `number`, wherever the table lay then."""
    newest = current(metadata)
    return newest is not None and newest["snapshot-id"] == number and newest["summary"].get(VERSION) == str(number - 1)


def _summary(counts: Mapping[str, int], before: Mapping[str, str], version: int) -> dict[str, str]:
    told: dict[str, int] = {}
    for name, unit in COUNTED.items():
        added, deleted = counts[f"added_{unit}"], counts[f"deleted_{unit}"]
        told[f"added-{name}"] = added
        told["removed-files-size" if unit == "size_bytes" else f"deleted-{name}"] = deleted
        told[f"total-{name}"] = int(before.get(f"total-{name}", "0")) + added - deleted
    told |= dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), 0)
    operation = "overwrite" if counts["deleted_files"] else "append"
    return {"operation": operation, **{name: str(value) for name, value in told.items()}, VERSION: str(version)}


def _by_id(things: Sequence[Mapping[str, Any]], name: str) -> dict[int, Mapping[str, Any]]:
    return {one[name]: one for one in things}
