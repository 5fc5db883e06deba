"""Changes of partitions that a key of text decides; all else of INSERT, UPDATE, DELETE is in tests/scripts/dml.txt."""

import pytest

from tests.upstream.sql.table_kit import ID, World, column, index, integer, table, varchar
from tidegate.model.errors import UnsupportedError
from tidegate.schema.stored.definition import Name, StoredPartition, StoredPartitionDef

A, UNIQUE = column(2, "a", integer()), index(1, "u", {"a": 1}, is_unique=True)


@pytest.mark.parametrize("collate", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_partitions_by_a_key_of_text(collate):
    """KEY() of a column whose collation ignores case is refused, with the way out that the other case takes."""
    parts = [StoredPartitionDef(200 + at, Name.of(f"p{at}")) for at in range(2)]
    text, by_key = column(3, "s", varchar(collate=collate)), StoredPartition(4, "", [Name.of("s")], definitions=parts)
    world = World(table([ID, A, text], [UNIQUE], partition=by_key))
    insert = "insert into t values (1, 10, 'x'), (2, 20, 'X')"

    if collate.endswith("_ci"):
        with pytest.raises(UnsupportedError, match=r"case-insensitive collation.*; use a _bin collation"):
            world.run(insert)
        return
    world.run(insert)
    assert world.rows() == [(1, 10, "x"), (2, 20, "X")]
