"""How a table of a REST catalog is led from what the catalog shows to what the lake has published. Pure.

    theirs ── requirements ──► this very table, main where it was seen      else 409, and nothing of it is done
      │    ── updates ───────► columns, sort order, properties, our newest snapshot, main, tag tidegate-<n>
      ▼                        snapshots that the lake no longer has go, with their tags
    ours

Tables keep their field ids: one that the catalog lacks is registered by its metadata file or begun by updates, never by
`create table`, which counts fields anew.  Snapshots and refs of others stay.  Numbers of schemas and sort orders are
the catalog's own, so they are compared by what is in them.

Source: Iceberg REST catalog specification, TableUpdate, TableRequirement, CommitTableRequest.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tidegate.sink.delta.iceberg.metadata import VERSION, Metadata, current, current_schema

Update = Mapping[str, Any]
NOTHING: Final[Metadata] = {
    "schemas": [],
    "current-schema-id": -1,
    "sort-orders": [],
    "default-sort-order-id": -1,
    "properties": {},
    "snapshots": [],
    "refs": {},
    "last-sequence-number": 0,
}
"""A table that is not there."""
MAIN: Final = "main"
TAG: Final = re.compile(r"tidegate-\d+")
OWN: Final = re.compile(r"comment$|tidegate\.")
"""Properties that nobody else sets; those of others stay."""
UNPARTITIONED: Final = {"spec-id": 0, "fields": []}
LATEST: Final = -1
"""The schema, order or spec that this very request adds."""


def requirements(theirs: Metadata) -> list[Update]:
    """Return what must still hold in the catalog for updates of `theirs`."""
    return [
        {"type": "assert-table-uuid", "uuid": theirs["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": main_of(theirs)},
    ]


def beginning(ours: Metadata, number: int) -> tuple[list[Update], list[Update]]:
    """Return requirements and updates that begin a table where there is none."""
    columns: list[Update] = []
    rest: list[Update] = []
    for one in updates({**NOTHING, "location": ours["location"]}, ours, number):
        (columns if "schema" in one["action"] else rest).append(one)
    return [{"type": "assert-create"}], [
        {"action": "assign-uuid", "uuid": ours["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": ours["format-version"]},
        {"action": "set-location", "location": ours["location"]},
        *columns,
        {"action": "add-spec", "spec": UNPARTITIONED},
        {"action": "set-default-spec", "spec-id": LATEST},
        *rest,
    ]


def updates(theirs: Metadata, ours: Metadata, number: int) -> list[Update]:
    """Return what leads the catalog's table to ours, published by the lake's snapshot `number`; none if it is there."""
    schema, columns = _columns(theirs, ours)
    told = [*columns, *_order(theirs, ours), *_properties(theirs, ours), *_rows(theirs, ours, schema, number)]
    if theirs.get("location", "").rstrip("/") != ours["location"]:
        told.insert(0, {"action": "set-location", "location": ours["location"]})
    return told


def main_of(theirs: Metadata) -> int | None:
    """Return the snapshot that readers of the catalog see."""
    found: int | None = theirs.get("refs", {}).get(MAIN, {}).get("snapshot-id")
    if found is None:
        newest = theirs.get("current-snapshot-id", -1)
        return None if newest in {None, -1} else newest
    return found


def strange(theirs: Metadata) -> int | None:
    """Return the snapshot that readers of the catalog see if somebody else made it."""
    main = main_of(theirs)
    made = {one["snapshot-id"] for one in theirs.get("snapshots", ()) if _is_ours(one)}
    return None if main in made else main


def _is_ours(snapshot: Mapping[str, Any]) -> bool:
    return VERSION in snapshot.get("summary", {})


def _columns(theirs: Metadata, ours: Metadata) -> tuple[int, list[Update]]:
    """The number of our schema there, and what makes it current."""
    fields = _told(current_schema(ours)["fields"])
    known = {one["schema-id"]: _told(one["fields"]) for one in theirs["schemas"]}
    number = next((number for number, one in known.items() if one == fields), None)
    if number == theirs["current-schema-id"] and number is not None:
        return number, []
    if number is not None:
        return number, [{"action": "set-current-schema", "schema-id": number}]
    number = max(known, default=-1) + 1
    schema = {**current_schema(ours), "schema-id": number}
    return number, [
        {"action": "add-schema", "schema": schema, "last-column-id": ours["last-column-id"]},
        {"action": "set-current-schema", "schema-id": LATEST},
    ]


def _told(fields: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Fields without what a catalog may write in several ways."""
    return [(one["id"], one["name"], one["required"], one["type"], one.get("doc", "")) for one in fields]


def _order(theirs: Metadata, ours: Metadata) -> list[Update]:
    fields = next(one["fields"] for one in ours["sort-orders"] if one["order-id"] == ours["default-sort-order-id"])
    known = {one["order-id"]: one["fields"] for one in theirs["sort-orders"]}
    if known.get(theirs["default-sort-order-id"]) == fields:
        return []
    number = next((number for number, one in known.items() if one == fields), None)
    if number is not None:
        return [{"action": "set-default-sort-order", "sort-order-id": number}]
    order = {"order-id": max(known, default=0) + 1 if fields else 0, "fields": fields}
    return [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LATEST},
    ]


def _properties(theirs: Metadata, ours: Metadata) -> Iterator[Update]:
    there = theirs.get("properties", {})
    new = {name: value for name, value in ours["properties"].items() if there.get(name) != value}
    if new:
        yield {"action": "set-properties", "updates": new}
    if gone := [name for name in there if OWN.match(name) and name not in ours["properties"]]:
        yield {"action": "remove-properties", "removals": gone}


def _rows(theirs: Metadata, ours: Metadata, schema: int, number: int) -> Iterator[Update]:
    newest = current(ours)
    assert newest is not None, "what is published has a snapshot"
    there = {one["snapshot-id"]: one["manifest-list"] for one in theirs.get("snapshots", ())}
    kept = {one["snapshot-id"]: one["manifest-list"] for one in ours["snapshots"]}
    wanted = newest["snapshot-id"]
    stale = wanted in there and there[wanted] != newest["manifest-list"]
    if stale:  # of the place where the lake lay before
        yield _without(wanted)
    if stale or wanted not in there:
        yield {"action": "add-snapshot", "snapshot": _fitting(newest, theirs) | {"schema-id": schema}}
    if stale or main_of(theirs) != wanted:
        yield {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": wanted}
    refs = {name: one["snapshot-id"] for name, one in theirs.get("refs", {}).items()}
    if stale or wanted not in {one for name, one in refs.items() if TAG.fullmatch(name)}:
        yield {"action": "set-snapshot-ref", "ref-name": f"tidegate-{number}", "type": "tag", "snapshot-id": wanted}
    held = {one for name, one in refs.items() if name != MAIN and TAG.fullmatch(name) is None}
    ending = {one["snapshot-id"] for one in theirs.get("snapshots", ()) if _is_ours(one)} - held - {wanted}
    ending = {one for one in ending if there[one] != kept.get(one)}
    for name in sorted(name for name, one in refs.items() if one in ending and name != MAIN):
        yield {"action": "remove-snapshot-ref", "ref-name": name}
    yield from map(_without, sorted(ending))


def _without(snapshot: int) -> Update:
    """One by one: catalogs of older releases take no list of several."""
    return {"action": "remove-snapshots", "snapshot-ids": [snapshot]}


def _fitting(snapshot: Mapping[str, Any], theirs: Metadata) -> dict[str, Any]:
    """A snapshot whose number is not above what the catalog has seen is taken only without a parent."""
    behind = snapshot["sequence-number"] <= theirs.get("last-sequence-number", 0)
    return {name: value for name, value in snapshot.items() if not (behind and name == "parent-snapshot-id")}
