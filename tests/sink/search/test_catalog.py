"""Which index a table has after each kind of DDL, and what a new one is filled with."""

from collections.abc import Sequence

import msgspec
import pytest

from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.search import Filling, Follower, Indexes
from tidegate.sink.search_mapping import IndexRule

PARTS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
BEFORE = (
    "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
    "CREATE TABLE shop.other (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
    f"CREATE TABLE shop.parts (id INT PRIMARY KEY, v VARCHAR(20), n INT) {PARTS}",
    "CREATE TABLE shop.keyless (id INT, v VARCHAR(20))",
)


class Story:
    """Tables and their indexes, DDL by DDL; the nth index has the name #n."""

    def __init__(self, rules: Sequence[IndexRule] = ()) -> None:
        self.state, self.indexes, self.made, self.rules = SchemaState(), dict[tuple[str, str], object](), 0, rules
        for query in BEFORE:
            self.meet(query)

    def meet(self, query: str) -> list[Filling]:
        """What a DDL fills."""
        self.made += 100
        table = query.partition("TABLE shop.")[2].split()[0]
        ddl = Ddl(schema="shop", table=table, query=query, commit_ts=self.made)
        self.state, found = apply_ddl(self.state, ddl, 1)
        follower = self.follower()
        fillings = list(follower.follow(found))
        self.indexes = dict(follower.indexes)
        return fillings

    def follower(self) -> Follower:
        """What follows the next effects."""
        indexes: Indexes = self.indexes  # type: ignore[assignment]
        return Follower(indexes, self.rules, self.name, time_zone="UTC", commit_ts=self.made)

    def name(self, table: TableInfo) -> str:
        """The next name."""
        self.made += 1
        return f"{table.name.table}#{self.made}"

    def names(self) -> dict[str, str]:
        """The index of each table."""
        return {table: one.index for (_, table), one in self.indexes.items()}  # type: ignore[attr-defined]


def told(fillings: list[Filling]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Which table each filling is for, and of what."""
    return [
        (
            str(one.table.name),
            [(part.index.partition("#")[0], part.how, part.partitions, part.within) for part in one.parts],
        )
        for one in fillings
    ]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("ALTER TABLE shop.t ADD COLUMN c INT DEFAULT 7", [("shop.t", [("t", "alter", (), True)])]),
        ("ALTER TABLE shop.t DROP COLUMN v", [("shop.t", [("t", "alter", (), True)])]),
        ("ALTER TABLE shop.t MODIFY COLUMN n BIGINT", []),
        ("ALTER TABLE shop.t MODIFY COLUMN v TEXT", [("shop.t", [("t", "copy", (), True)])]),
        ("ALTER TABLE shop.t MODIFY COLUMN v VARCHAR(99)", []),
        ("ALTER TABLE shop.t ADD INDEX (n), COMMENT = 'told'", []),
        ("ALTER TABLE shop.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)", [("shop.t", [("t", "alter", (), True)])]),
        ("ALTER TABLE shop.keyless ADD PRIMARY KEY (id)", [("shop.keyless", [])]),
        ("TRUNCATE TABLE shop.t", [("shop.t", [])]),
        ("TRUNCATE TABLE shop.keyless", []),
        ("DROP TABLE shop.t", []),
        ("RENAME TABLE shop.t TO shop.u", []),
        ("ALTER TABLE shop.parts DROP PARTITION p0", [("shop.parts", [("parts", "copy", ("p0",), False)])]),
        ("ALTER TABLE shop.parts TRUNCATE PARTITION p1", [("shop.parts", [("parts", "copy", ("p1",), False)])]),
        (
            "ALTER TABLE shop.parts EXCHANGE PARTITION p1 WITH TABLE shop.other",
            [
                ("shop.other", [("parts", "columns", ("p1",), True)]),
                ("shop.parts", [("parts", "columns", ("p1",), False), ("other", "columns", (), True)]),
            ],
        ),
    ],
)
def test_fillings(query: str, wanted: list[object]) -> None:
    """A DDL fills new indexes exactly where rows, keys or mappings change."""
    assert told(Story().meet(query)) == wanted


def test_names_move() -> None:
    """RENAME moves names between indexes, DROP takes them away, and a table that lost its key has none."""
    story = Story()
    before = story.names()
    story.meet("RENAME TABLE shop.t TO shop.aside, shop.other TO shop.t, shop.aside TO shop.other")
    assert story.names() == {**before, "t": before["other"], "other": before["t"]}
    story.meet("DROP TABLE shop.t")
    story.meet("ALTER TABLE shop.other DROP PRIMARY KEY")
    assert set(story.names()) == {"parts"}


def test_rules_of_the_new_name() -> None:
    """A table that gets a name with other rules gets an index of them, with the rows of the old one."""
    story = Story([IndexRule(("shop.words",), "text")])
    assert told(story.meet("RENAME TABLE shop.t TO shop.words")) == [("shop.words", [("t", "copy", (), True)])]
    assert story.meet("RENAME TABLE shop.other TO shop.more") == []


def test_a_table_that_only_rows_have_told() -> None:
    """It gets an index; one whose columns changed without a DDL gets the next one, with the rows of the last."""
    story = Story()
    table = story.state.tables[("shop", "t")]
    wider = story.state.tables[("shop", "other")]
    story.indexes = {}
    assert told(list(story.follower().ensure(table))) == [("shop.t", [])]
    follower = story.follower()
    list(follower.ensure(table))
    assert not list(follower.ensure(table))
    story.meet("CREATE TABLE shop.wide (id INT PRIMARY KEY, w TEXT)")
    drifted = msgspec.structs.replace(story.state.tables[("shop", "wide")], name=wider.name)
    follower = story.follower()
    list(follower.ensure(wider))
    assert told(list(follower.ensure(drifted))) == [("shop.other", [("other", "copy", (), True)])]
