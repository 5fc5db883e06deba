"""What leads a catalog's table to ours, done by a catalog that is strict."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.sink.delta.iceberg.rest_tables import Refused, committed
from tidegate.sink.delta.iceberg_catalogs import beginning, main_of, requirements, strange, updates
from tidegate.sink.delta.iceberg_format import (
    current,
    current_schema,
    described,
    fresh,
    with_snapshot,
    with_snapshots,
)

COUNTS = {f"{did}_{what}": 1 for did in ("added", "deleted") for what in ("files", "rows", "size_bytes")}


def fields(*names: str) -> list[dict[str, Any]]:
    return [{"id": ord(one) - 96, "name": one, "required": False, "type": "long"} for one in names]


def version(before: Mapping[str, Any], number: int, names: str = "ab", key: str = "a", comment: str = "") -> dict:
    """Our metadata one version on."""
    columns = fields(*names)
    mapping = {f"c{one['id']}": one["id"] for one in columns}
    told = described(before, columns, mapping, [ord(one) - 96 for one in key], comment)
    return with_snapshot(told, number, f"file:///lake/t/metadata/snap-{number}-x.avro", COUNTS, number)


def first() -> dict:
    return version(fresh("0" * 32, "file:///lake/t"), 1)


def begun(ours: dict, number: int = 0) -> dict:
    return committed(None, *beginning(ours, number))


def moved(theirs: dict, ours: dict, number: int) -> dict:
    return committed(theirs, requirements(theirs), updates(theirs, ours, number))


def shown(table: dict) -> tuple[Any, ...]:
    """What readers see."""
    order = next(one["fields"] for one in table["sort-orders"] if one["order-id"] == table["default-sort-order-id"])
    newest = current(table)
    assert newest is not None
    named = next(one["fields"] for one in table["schemas"] if one["schema-id"] == newest["schema-id"])
    return (
        table["table-uuid"],
        table["location"],
        current_schema(table)["fields"],
        named,
        order,
        table["properties"],
        newest["snapshot-id"],
        newest["manifest-list"],
        table["refs"]["main"],
    )


def lives(seed: int) -> Iterator[dict]:
    """Versions of a table: columns come and go, the key and the comment change, snapshots are forgotten."""
    chance = random.Random(seed)
    ours, number = first(), 1
    for _ in range(40):
        number += chance.choice([1, 1, 2])
        names = "".join(sorted({"a", *chance.sample("bcdef", 2)}))
        ours = version(ours, number, names, chance.choice(["a", names[1], ""]), chance.choice(["", "things"]))
        if chance.random() < 0.3:
            known = [one["snapshot-id"] for one in ours["snapshots"]]
            ours = with_snapshots(ours, {*chance.sample(known, len(known) // 2), number})
        yield ours


@pytest.mark.parametrize("seed", range(20))
def test_a_life(seed: int) -> None:
    """However many versions a catalog misses, it gets where the lake is, keeps no more than the lake, and is told
    nothing twice."""
    chance, theirs = random.Random(seed), None
    for number, ours in enumerate(lives(seed)):
        if chance.random() < 0.4:
            continue
        theirs = begun(ours, number) if theirs is None else moved(theirs, ours, number)

        assert shown(theirs) == shown(ours)
        assert theirs["refs"][f"tidegate-{number}"]["snapshot-id"] == ours["current-snapshot-id"]
        kept = {one["snapshot-id"] for one in ours["snapshots"]}
        assert {one["snapshot-id"] for one in theirs["snapshots"]} <= kept
        assert {one["snapshot-id"] for one in theirs["refs"].values()} <= kept
        assert updates(theirs, ours, number + 1) == []


def test_a_plain_step() -> None:
    """A version with nothing but rows is a snapshot, main and a tag."""
    ours = version(first(), 2)

    assert [one["action"] for one in updates(begun(first()), ours, 7)] == ["add-snapshot", *["set-snapshot-ref"] * 2]
    assert moved(begun(first()), ours, 7)["refs"] == {
        "main": {"snapshot-id": 2, "type": "branch"},
        "tidegate-0": {"snapshot-id": 1, "type": "tag"},
        "tidegate-7": {"snapshot-id": 2, "type": "tag"},
    }


def test_registered() -> None:
    """A table that a catalog took as it is needs a tag and nothing else."""
    assert [one["ref-name"] for one in updates(first(), first(), 3)] == ["tidegate-3"]


def test_a_catalog_that_writes_otherwise() -> None:
    """Words that a catalog adds to a schema, to properties and to the location change nothing."""
    theirs = begun(first())
    theirs["schemas"] = [one | {"identifier-field-ids": []} for one in theirs["schemas"]]
    theirs["properties"] |= {"owner": "me"}
    theirs["location"] += "/"

    assert updates(theirs, first(), 1) == []
    assert moved(theirs, version(first(), 2), 1)["properties"]["owner"] == "me"


def foreign(theirs: dict, sequence: int, **more: Any) -> dict:
    """A commit of somebody else."""
    newest = current(theirs)
    assert newest is not None
    snapshot = newest | {"snapshot-id": 987654321, "sequence-number": sequence, "summary": {"operation": "append"}}
    told = [
        {"action": "add-snapshot", "snapshot": snapshot | {"parent-snapshot-id": newest["snapshot-id"]}},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 987654321},
    ]
    return committed(theirs, [], [*told, *more.values()])


def test_a_foreign_commit() -> None:
    """A commit of others is noticed and main moved back, to a newer version too; what they made stays."""
    theirs = foreign(begun(first()), 2)

    assert (strange(begun(first())), strange(theirs)) == (None, 987654321)
    for ours in (first(), version(first(), 2)):
        after = moved(theirs, ours, 1)
        assert shown(after) == shown(ours)
        assert 987654321 in {one["snapshot-id"] for one in after["snapshots"]}


def test_tags_of_others() -> None:
    """A snapshot that somebody's own tag names stays with the tag, though the lake no longer has it."""
    tag = {"action": "set-snapshot-ref", "ref-name": "audit", "type": "tag", "snapshot-id": 1}
    theirs = committed(begun(first()), [], [tag])
    after = moved(theirs, with_snapshots(version(first(), 2), {2}), 5)

    assert set(after["refs"]) == {"main", "audit", "tidegate-0", "tidegate-5"}


def test_a_lake_that_was_moved() -> None:
    """The same versions at another place take the place of those that were."""
    there = {"location": "file:///new/t"}
    ours = first() | there
    ours["snapshots"] = [one | {"manifest-list": "file:///new/t/metadata/snap-1-x.avro"} for one in ours["snapshots"]]

    for newest in (ours, version(ours, 2)):
        assert shown(moved(begun(version(first(), 2)), newest, 3)) == shown(newest)


def test_requirements() -> None:
    """Updates are for one table and one moment of it: of anything else, nothing is done."""
    theirs = begun(first())
    told = updates(theirs, version(first(), 2), 1)

    for other in (foreign(theirs, 9), theirs | {"table-uuid": "another"}):
        with pytest.raises(Refused, match="CommitFailed"):
            committed(other, requirements(theirs), told)
    with pytest.raises(Refused, match="CommitFailed"):
        committed(theirs, *beginning(first(), 1))


def test_main() -> None:
    """A catalog may leave out the ref main, and a table may have no snapshot."""
    assert main_of({"current-snapshot-id": 5}) == 5
    assert main_of({"current-snapshot-id": -1, "refs": {}}) is None
    assert main_of({}) is None
