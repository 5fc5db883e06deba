"""Who computes the values of columns that change: the table, its page, and the key by which rows are found."""

from pathlib import Path

import pytest

from tests.sink.sql.ddl.odd_values import TYPES
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.plan import plan_ddl
from tidegate.expr.change import family_of, keeps_values
from tidegate.model.event import Ddl
from tidegate.model.mysql import Family
from tidegate.model.tso import compose
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.sql.connection import ServerKind, TargetServer
from tidegate.sink.sql.ddl_shape import known_facts
from tidegate.sink.sql.ddl_task import DdlTask, task_of
from tidegate.sink.sql.ddl_values import SAME, Computes, computed_values, computes

PAGE = Path(__file__).parents[4] / "docs" / "databases.md"
WORDS = {
    "integer": (Family.INT,),
    "text": (Family.TEXT,),
    "text, into utf8mb4 or the charset that it has": (Family.TEXT,),
    "bytes": (Family.BINARY,),
    "DATE, DATETIME, TIMESTAMP, TIME": (Family.MOMENT, Family.SPAN),
    **{name: (Family[name],) for name in ("BIT", "YEAR", "DECIMAL", "ENUM", "SET")},
}
MARIADB, MYSQL, TIDB = (
    TargetServer(ServerKind.MARIADB, (10, 11)),
    TargetServer(ServerKind.MYSQL, (8, 0)),
    TargetServer(ServerKind.TIDB, (8, 5)),
)


def families(words: str) -> set[Family]:
    """The families that a cell of the page names."""
    return set(WORDS[words]) if words in WORDS else {one for word in words.split(", ") for one in WORDS[word]}


def test_the_page_is_the_table() -> None:
    """docs/databases.md shows the changes that a MySQL and a MariaDB compute, no more and no less."""
    lines = PAGE.read_text(encoding="utf-8").partition("## Values that a DDL changes")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    shown: dict[Family, set[Family]] = {}
    for old, new, here, *_ in rows[2 : next(at for at, row in enumerate(rows) if row[0] == "TIME")]:
        if here == "the target" and old != "any type":
            for family in families(old):
                shown.setdefault(family, set()).update(families(new))

    assert shown == {family: set(found) for family, found in SAME.items()}


@pytest.mark.parametrize("target", [MARIADB, MYSQL, TIDB], ids=str)
def test_who_computes(target: TargetServer) -> None:
    """A TiDB computes all but the day of a TIME; others what keeps every value, and what the table names."""
    for old in TYPES.values():
        for new in TYPES.values():
            pair = family_of(old), family_of(new)
            alone = pair != (Family.SPAN, Family.MOMENT)
            if target is not TIDB:
                alone = keeps_values(old, new) or pair[1] in SAME.get(pair[0], ())
            assert (computes(old, new, target) is Computes.TARGET) == alone, (old, new)


def task(*texts: str) -> DdlTask:
    """The last of some DDLs in a database d."""
    state, ddls = SchemaState(), [Ddl(schema="d", table="", query=text, commit_ts=compose(1)) for text in texts]
    for ddl in ddls[:-1]:
        state, _ = apply_ddl(state, ddl, 1)
    return task_of(plan_ddl(state, SourceDdl(EventPosition(), ddls[-1])))


@pytest.mark.parametrize(
    ("keys", "ddl", "target", "key"),
    [
        ("primary key (a), unique key (b)", "modify v int", MARIADB, ("a",)),
        ("primary key (a, b)", "change a aa bigint not null, modify v int", MARIADB, ("a", "b")),
        ("unique key u (v), unique key w (b, a)", "modify v int not null", MARIADB, ("b", "a")),
        ("unique key u (v)", "modify v int not null", MARIADB, ()),
        ("unique key u (n)", "modify v int not null", MARIADB, ()),
        ("unique key u (a)", "modify v int, drop column a", MARIADB, ()),
        ("unique key u (e), unique key w (a)", "modify t date", TIDB, ("a",)),
        ("unique key u (e)", "modify t date", TIDB, ()),
    ],
)
def test_the_key(keys: str, ddl: str, target: TargetServer, key: tuple[str, ...]) -> None:
    """Rows are found by a unique key of the target, of NOT NULL columns that stay; the primary key first."""
    columns = "a int not null, b varchar(9) not null, v varchar(9) not null, n int, e enum('x') not null, t time"
    found = task("create database d", f"create table d.t ({columns}, {keys})", f"alter table d.t {ddl}")
    values = computed_values(found, target)
    assert values is not None
    assert values.key(known_facts(found.before.tables.values(), target), target) == key
