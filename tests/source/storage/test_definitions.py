"""Definitions of a place: told at once or file by file, they are the same."""

from tests.source.storage.kit import COLUMNS, ID, NAME
from tidegate.codec.storage import SchemaFile
from tidegate.source.storage_listing import PlaceDefinitions

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), `w` INT AS (`id` + 1))"
VIRTUAL = {"ColumnName": "w", "ColumnType": "INT"}
FILES = [
    SchemaFile("shop", "", 1, None, "CREATE DATABASE `shop`", 1),
    SchemaFile("shop", "t", 2, (*COLUMNS, VIRTUAL), CREATE, 3),
    SchemaFile("shop", "t", 4, (ID, VIRTUAL, NAME), "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(20) AFTER `w`", 12),
    SchemaFile("shop", "u", 6, (ID, VIRTUAL, NAME), "RENAME TABLE `t` TO `u`", 14),
    SchemaFile("shop", "t", 6, (ID, VIRTUAL, NAME), "RENAME TABLE `x` TO `t`", 14),
]


def told(definitions: PlaceDefinitions) -> list[object]:
    """All that definitions tell."""
    places = [("shop/t", 2), ("shop/t", 4), ("shop/u", 6), ("shop/t", 5)]
    return [definitions.ddls, definitions.directories, *(definitions.layout(*place) for place in places)]


def test_file_by_file() -> None:
    """In the order of versions, or with a file that comes late: what is told in the end does not depend on it."""
    whole = PlaceDefinitions.of({file.path: file for file in FILES})
    for order in (FILES, FILES[::-1], [FILES[2], FILES[0], FILES[4], FILES[1], FILES[3]]):
        found = PlaceDefinitions()
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
    found = PlaceDefinitions.of({file.path: file})
    assert [ddl.query for ddl in found.ddls] == ["GRUMBLE"]
    layout = found.layout("shop/t", 3)
    assert layout is not None
    assert [field.mysql_type for field in layout.fields] == ["int", "varchar(20)"]
