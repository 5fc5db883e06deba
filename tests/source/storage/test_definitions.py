"""Definitions of a place: told at once or file by file, they are the same."""

import re
from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from tests.real_topics import files, messages
from tests.source.storage.kit import COLUMNS, ID, NAME
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.storage import SchemaFile, parse_schema_file
from tidegate.model.event import Ddl
from tidegate.source.storage_listing import FileDefinitions

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), `w` INT AS (`id` + 1))"
VIRTUAL = {"ColumnName": "w", "ColumnType": "INT"}
FILES = [
    SchemaFile("shop", "", 1, None, "CREATE DATABASE `shop`", 1),
    SchemaFile("shop", "t", 2, (*COLUMNS, VIRTUAL), CREATE, 3),
    SchemaFile("shop", "t", 4, (ID, VIRTUAL, NAME), "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(20) AFTER `w`", 12),
    SchemaFile("shop", "u", 6, (ID, VIRTUAL, NAME), "RENAME TABLE `t` TO `u`", 14),
    SchemaFile("shop", "t", 6, (ID, VIRTUAL, NAME), "RENAME TABLE `x` TO `t`", 14),
]


def told(definitions: FileDefinitions) -> list[object]:
    """All that definitions tell."""
    places = [("shop/t", 2), ("shop/t", 4), ("shop/u", 6), ("shop/t", 5)]
    return [definitions.ddls, definitions.directories, *(definitions.layout(*place) for place in places)]


def test_file_by_file() -> None:
    """In the order of versions, or with a file that comes late: what is told in the end does not depend on it."""
    whole = FileDefinitions.of({file.path: file for file in FILES})
    for order in (FILES, FILES[::-1], [FILES[2], FILES[0], FILES[4], FILES[1], FILES[3]]):
        found = FileDefinitions()
        for file in order:
            found = found.after({file.path: file})
        assert told(found) == told(whole)
    layout = whole.layout("shop/u", 6)
    assert layout is not None
    assert [column.name for column in layout.wire.columns] == ["id", "v"]
    assert whole.layout("shop/t", 5) is None


def test_a_ddl_that_cannot_be_read() -> None:
    """It is told all the same, for the sink to judge; columns come from the schema file alone."""
    file = SchemaFile("shop", "t", 3, COLUMNS, "GRUMBLE", 5)
    found = FileDefinitions.of({file.path: file})
    assert [ddl.query for ddl in found.ddls] == ["GRUMBLE"]
    layout = found.layout("shop/t", 3)
    assert layout is not None
    assert [field.mysql_type for field in layout.fields] == ["int", "varchar(20)"]


SWAP_TS = 470735636274610186
Names = tuple[tuple[str, str], ...]


@pytest.mark.slow
def test_the_swap_of_a_real_ticdc(tmp_path: Path) -> None:
    """Its directory has two of three files of a swap; what they tell is what the three messages of its topic did."""
    root = files(tmp_path)
    schemas = {str(path.relative_to(root)): path for path in root.rglob("meta/schema_*.json")}
    assert sum(f"_{SWAP_TS}_" in path for path in schemas) == 2
    found = FileDefinitions.of({path: parse_schema_file(file.read_bytes()) for path, file in schemas.items()})
    sent = [
        event
        for one in messages("new/canal")[0]
        for event in decode(one.key, one.value, DecodeOptions(protocol="canal-json"))
        if isinstance(event, Ddl) and event.commit_ts == SWAP_TS
    ]
    assert [(ddl.table, ddl.query) for ddl in found.ddls if ddl.commit_ts == SWAP_TS] == [
        (ddl.table, ddl.query) for ddl in sent
    ]
    assert not found.unclear


def columns_like(shape: str) -> tuple[dict[str, str], ...]:
    """Columns that tell one shape from another."""
    return (ID, {**NAME, "ColumnName": shape})


def as_ticdc_writes(pairs: Names, shapes: dict[str, str], version: int = 9) -> dict[str, SchemaFile]:
    """The files of a RENAME TABLE: a step is filed under the name that its table has in the end; the last one stays."""
    written: dict[str, SchemaFile] = {}
    for at, (old, new) in enumerate(pairs):
        last = new
        for later_old, later_new in pairs[at + 1 :]:
            last = later_new if later_old == last else last
        first = old
        for earlier_old, earlier_new in reversed(pairs[:at]):
            first = earlier_old if earlier_new == first else first
        query = f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`;"
        file = SchemaFile("shop", last, version, columns_like(shapes[first]), query, 14)
        written[file.path] = file
    return written


def location_of(pairs: Names, shapes: dict[str, str]) -> dict[str, SchemaFile]:
    """The files of tables of some shapes, and of a RENAME of them."""
    tables = (SchemaFile("shop", name, 2, columns_like(shape)) for name, shape in shapes.items())
    return {**{file.path: file for file in tables}, **as_ticdc_writes(pairs, shapes)}


def steps_of(found: FileDefinitions) -> list[tuple[str, ...]]:
    """The steps of a RENAME that definitions tell."""
    return [tuple(re.findall(r"`shop`\.`(\w+)`", ddl.query)) for ddl in found.ddls]


def turned(order: Sequence[str]) -> Names:
    """A RENAME in a circle: the first table becomes the last by way of a free name, each other one the one before."""
    free = f"tmp_{order[0]}"
    return (order[0], free), *((late, early) for early, late in pairwise(order)), (free, order[-1])


@pytest.mark.parametrize("shape", ["alike", "each its own"])
@pytest.mark.parametrize("order", [order for size in (2, 3, 4) for order in permutations("abcd", size)])
def test_renames_in_circles(order: tuple[str, ...], shape: str) -> None:
    """Each step is told once, in an order that can be run, and every table ends as the statement had it."""
    shapes = {name: "same" if shape == "alike" else f"v{name}" for name in "abcde"}
    pairs = turned(order)
    found = FileDefinitions.of(location_of(pairs, shapes))
    tables = {name: name for name in shapes}
    for old, new in steps_of(found):
        assert new not in tables
        tables[new] = tables.pop(old)
    assert sorted(steps_of(found)) == sorted(pairs)
    assert tables == {
        **{name: name for name in shapes},
        order[-1]: order[0],
        **dict(pairwise(order)),
    }


TWO_CIRCLES = (*turned("ab"), *turned("cd"))


@pytest.mark.parametrize(
    ("pairs", "shapes", "lost", "named"),
    [
        (TWO_CIRCLES, {"a": "v", "b": "w", "c": "x", "d": "y"}, [("a", "tmp_a"), ("c", "tmp_c")], ""),
        (TWO_CIRCLES, {"a": "v", "b": "v", "c": "v", "d": "v"}, [], "shop.a, shop.c"),
        ((("a", "x"), ("x", "b")), {"a": "v", "c": "v", "d": "w"}, [], "shop.a, shop.c"),
        ((("a", "b"), ("x", "y")), {"a": "v", "x": "w", "c": "v"}, [], ""),
    ],
    ids=["two circles", "two circles of tables alike", "by way of a name", "no circle"],
)
def test_steps_that_are_lost(pairs: Names, shapes: dict[str, str], lost: list[tuple[str, str]], named: str) -> None:
    """A step is told again where one table alone can be its own; else the error names those that could be."""
    found = FileDefinitions.of(location_of(pairs, shapes))
    kept = [tuple(re.findall(r"`shop`\.`(\w+)`", file.query)) for file in as_ticdc_writes(pairs, shapes).values()]
    assert sorted(steps_of(found)) == sorted([*kept, *lost])
    assert list(found.unclear) == ([9] if named else [])
    if named:
        assert f"{named} have such columns" in str(found.unclear[9][1])
        assert found.unclear[9][1].where.commit_ts == 9


def test_a_table_that_was_never_seen() -> None:
    """A RENAME of a table that has no file yet, and like which no other is, is told as it is."""
    files = as_ticdc_writes((("x", "y"),), {"x": "v"})
    found = FileDefinitions.of({**location_of((), {"a": "w"}), **files})
    assert (steps_of(found), found.unclear) == ([("x", "y")], {})


def test_hidden_columns(tmp_path: Path) -> None:
    """Columns that TiDB makes for keys on expressions are not in rows; one that a CREATE TABLE names is."""
    path = next((files(tmp_path) / "rc_types" / "jsonmv" / "meta").iterdir())
    file = parse_schema_file(path.read_bytes())
    assert [column["ColumnName"] for column in file.columns or ()] == ["id", "j", "_V$_mv_0", "_V$_ex_0"]
    layout = FileDefinitions.of({"rc_types/jsonmv/meta/" + path.name: file}).layout("rc_types/jsonmv", file.version)
    assert layout is not None
    assert [column.name for column in layout.wire.columns] == ["id", "j"]

    named = {**NAME, "ColumnName": "_V$_x"}
    own = SchemaFile("shop", "t", 2, (ID, named), "CREATE TABLE `t` (`id` INT PRIMARY KEY, `_V$_x` VARCHAR(20))", 3)
    layout = FileDefinitions.of({own.path: own}).layout("shop/t", 2)
    assert layout is not None
    assert [column.name for column in layout.wire.columns] == ["id", "_V$_x"]
