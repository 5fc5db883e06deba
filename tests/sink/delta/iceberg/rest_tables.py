"""The tables of an Iceberg REST catalog for tests: metadata, and commits that are checked as the specification says.

What a commit asks for is done to a copy; a requirement that does not hold, or an update that makes no sense, leaves the
tables as they were.  Numbers of schemas and sort orders are given here, whatever a client proposes.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

Update = Mapping[str, Any]


class Refused(Exception):
    """What the catalog answers instead."""

    def __init__(self, status: int, kind: str, why: str = "") -> None:
        super().__init__(f"{kind}: {why}")
        self.status, self.kind, self.why = status, kind, why


def required(metadata: dict[str, Any] | None, one: Update) -> None:
    """Refuse what does not hold."""
    match one:
        case {"type": "assert-create"}:
            holds = metadata is None
        case {"type": "assert-table-uuid", "uuid": uuid}:
            holds = metadata is not None and metadata["table-uuid"] == uuid
        case {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": number}:
            holds = metadata is not None and metadata["refs"].get(ref, {}).get("snapshot-id") == number
        case _:
            raise Refused(400, "BadRequestException", f"requirement {one}")
    if not holds:
        raise Refused(409, "CommitFailedException", f"requirement {one}")


def empty() -> dict[str, Any]:
    """A table that begins."""
    return {
        "format-version": 1,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": -1,
        "partition-specs": [],
        "default-spec-id": -1,
        "last-partition-id": 999,
        "sort-orders": [],
        "default-sort-order-id": -1,
        "properties": {},
        "current-snapshot-id": -1,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def committed(
    metadata: dict[str, Any] | None, requirements: Sequence[Update], updates: Sequence[Update]
) -> dict[str, Any]:
    """The table after a commit."""
    for one in requirements:
        required(metadata, one)
    after = copy.deepcopy(metadata) if metadata else empty()
    added: dict[str, int] = {}
    for one in updates:
        apply(after, dict(one), added)
    _check(after["format-version"] == 2, "format-version")
    _check(after["default-spec-id"] >= 0, "no partition spec")
    _check(after["default-sort-order-id"] >= 0, "no sort order")
    return after


def _check(holds: object, why: str) -> None:
    if not holds:
        raise Refused(400, "ValidationException", why)


def _ids(things: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    return [one[name] for one in things]


def apply(table: dict[str, Any], one: dict[str, Any], added: dict[str, int]) -> None:
    """One update."""
    action = one.pop("action")
    match action:
        case "assign-uuid":
            _check(table.get("table-uuid", one["uuid"]) == one["uuid"], "another uuid")
            table["table-uuid"] = one["uuid"]
        case "upgrade-format-version":
            _check(one["format-version"] >= table["format-version"], "downgrade")
            table["format-version"] = one["format-version"]
        case "set-location":
            table["location"] = one["location"]
        case "set-properties":
            _check(all(isinstance(value, str) for value in one["updates"].values()), "properties are texts")
            table["properties"] |= one["updates"]
        case "remove-properties":
            table["properties"] = {k: v for k, v in table["properties"].items() if k not in one["removals"]}
        case "add-spec":
            _check(table["current-schema-id"] >= 0, "a spec without a schema")
            table["partition-specs"].append(one["spec"] | {"spec-id": len(table["partition-specs"])})
            added["spec"] = table["partition-specs"][-1]["spec-id"]
        case "set-default-spec":
            table["default-spec-id"] = _added(one["spec-id"], added, "spec")
        case _:
            (_columns if "schema" in action or "sort-order" in action else _rows)(table, action, one, added)


def _added(number: int, added: Mapping[str, int], what: str) -> int:
    _check(number >= 0 or what in added, f"no {what} was added")
    return added[what] if number < 0 else number


def _columns(table: dict[str, Any], action: str, one: dict[str, Any], added: dict[str, int]) -> None:
    match action:
        case "add-schema":
            fields = one["schema"]["fields"]
            ids = _ids(fields, "id")
            _check(len(set(ids)) == len(ids), "a field id twice")
            _check(one["last-column-id"] >= max(ids, default=0), "last-column-id")
            _check(all(known["fields"] != fields for known in table["schemas"]), "a schema twice")
            added["schema"] = max(_ids(table["schemas"], "schema-id"), default=-1) + 1
            table["schemas"].append(one["schema"] | {"schema-id": added["schema"]})
            table["last-column-id"] = max(table["last-column-id"], one["last-column-id"])
        case "set-current-schema":
            table["current-schema-id"] = _added(one["schema-id"], added, "schema")
            _check(table["current-schema-id"] in _ids(table["schemas"], "schema-id"), "no such schema")
        case "add-sort-order":
            order = one["sort-order"]
            known = {field["id"] for field in current(table, "schema", "schemas")["fields"]}
            _check(all(field["source-id"] in known for field in order["fields"]), "no such column to sort by")
            numbers = _ids(table["sort-orders"], "order-id")
            _check(all(other["fields"] != order["fields"] for other in table["sort-orders"]), "an order twice")
            added["order"] = max(numbers, default=0) + 1 if order["fields"] else 0
            table["sort-orders"].append(order | {"order-id": added["order"]})
        case "set-default-sort-order":
            table["default-sort-order-id"] = _added(one["sort-order-id"], added, "order")
            _check(table["default-sort-order-id"] in _ids(table["sort-orders"], "order-id"), "no such order")
        case _:
            raise Refused(400, "BadRequestException", action)


def current(table: Mapping[str, Any], what: str, where: str) -> Mapping[str, Any]:
    """The schema of now."""
    return next(one for one in table[where] if one[f"{what}-id"] == table[f"current-{what}-id"])


def _rows(table: dict[str, Any], action: str, one: dict[str, Any], _added: Mapping[str, int]) -> None:
    numbers = _ids(table["snapshots"], "snapshot-id")
    match action:
        case "add-snapshot":
            snapshot = one["snapshot"]
            _check(snapshot["snapshot-id"] not in numbers, "a snapshot twice")
            behind = snapshot["sequence-number"] <= table["last-sequence-number"]
            _check(not behind or "parent-snapshot-id" not in snapshot, "an old sequence number")
            _check(snapshot["schema-id"] in _ids(table["schemas"], "schema-id"), "no such schema")
            table["snapshots"].append(snapshot)
            table["last-sequence-number"] = max(table["last-sequence-number"], snapshot["sequence-number"])
        case "set-snapshot-ref":
            number = one["snapshot-id"]
            _check(number in numbers, f"no snapshot {number}")
            table["refs"][one["ref-name"]] = {"snapshot-id": number, "type": one["type"]}
            if one["ref-name"] == "main":
                made = next(each for each in table["snapshots"] if each["snapshot-id"] == number)
                table["current-snapshot-id"], table["last-updated-ms"] = number, made["timestamp-ms"]
                table["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": made["timestamp-ms"]})
        case "remove-snapshot-ref":
            _check(table["refs"].pop(one["ref-name"], None) is not None, "no such ref")
        case "remove-snapshots":
            [gone] = one["snapshot-ids"]
            _check(gone in numbers, f"no snapshot {gone}")
            table["snapshots"] = [each for each in table["snapshots"] if each["snapshot-id"] != gone]
            table["snapshot-log"] = [each for each in table["snapshot-log"] if each["snapshot-id"] != gone]
            table["refs"] = {name: ref for name, ref in table["refs"].items() if ref["snapshot-id"] != gone}
            if "main" not in table["refs"]:
                table["current-snapshot-id"], table["snapshot-log"] = -1, []
        case _:
            raise Refused(400, "BadRequestException", action)
