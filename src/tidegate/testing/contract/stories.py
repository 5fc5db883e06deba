"""The scripts of the sink contract: a small shop, one DDL of each kind, and a row that must be refused.

`shop.accounts` has a key and no DDL, `shop.visits` has no key, `shop.orders` has DDLs between its rows.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.model.event import Value
from tidegate.testing.script import Row, Script, ScriptedWrite, move, put, remove, remove_bare

NOTES: Final = "shop.notes"
UNREADABLE: Final = "GRUMBLE ABOUT TABLE shop.t"
"""A DDL that cannot be parsed."""


def shop() -> Script:
    """Return a script of three tables, transactions over several of them, and DDLs; five marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.accounts", "CREATE TABLE shop.accounts (id INT PRIMARY KEY, owner VARCHAR(20), balance BIGINT)")
    story.ddl("shop.visits", "CREATE TABLE shop.visits (at BIGINT, page VARCHAR(20))", again=True)
    story.commit(*(put("shop.accounts", id=number, owner=f"owner {number}", balance=100) for number in range(4)))
    story.resolve()
    story.ddl("shop.orders", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, item VARCHAR(20), price DOUBLE)")
    for number in range(3):
        story.commit(
            put("shop.orders", id=number, item=f"item {number}", price=number + 0.5),
            put("shop.accounts", id=number, balance=100 - number),
            put("shop.visits", at=story.ts, page="cart"),
        )
    story.resolve()
    story.ddl(
        "shop.orders",
        "ALTER TABLE shop.orders ADD COLUMN paid INT NOT NULL DEFAULT 7",
        along=(put("shop.orders", id=1, item="the item", price=None), put("shop.accounts", id=3, owner=None)),
    )
    story.commit(put("shop.orders", id=2, paid=1), remove("shop.orders", id=0), remove("shop.accounts", id=3))
    story.commit(put("shop.accounts", id=3, owner="owner 3 again", balance=-1), put("shop.visits", at=1, page=""))
    story.resolve()
    story.commit(put("shop.orders", id=3, item="käse", price=1.25, paid=0))
    story.ddl("shop.purchases", "RENAME TABLE shop.orders TO shop.purchases")
    story.ddl("shop.orders", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, total DOUBLE)", again=True)
    story.commit(put("shop.orders", id=1, total=2.5), put("shop.purchases", id=3, price=2.5))
    story.resolve()
    story.ddl("shop.purchases", "ALTER TABLE shop.purchases DROP COLUMN price")
    story.commit(put("shop.purchases", id=4, item="last", paid=2), put("shop.visits", at=story.ts, page="end"))
    story.resolve()
    return story


def tenants() -> Script:
    """Return a script of DDLs of several tables that follow each other without rows in between; two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    for number in range(3):
        story.ddl(f"shop.t{number}", f"CREATE TABLE shop.t{number} (id INT PRIMARY KEY, v INT)")
    story.commit(*(put(f"shop.t{number}", id=1, v=number) for number in range(3)))
    story.resolve()
    story.ddl("shop.t0", "ALTER TABLE shop.t0 ADD COLUMN w INT NOT NULL DEFAULT 7")
    story.ddl("shop.t1", "ALTER TABLE shop.t1 DROP COLUMN v")
    story.ddl("shop.t3", "RENAME TABLE shop.t2 TO shop.t3")
    story.ddl("shop.t2", "RENAME TABLE shop.t1 TO shop.t2")
    story.ddl("shop.t1", "CREATE TABLE shop.t1 (id INT PRIMARY KEY)")
    story.ddl("shop.t3", "ALTER TABLE shop.t3 ADD COLUMN w INT")
    story.commit(put("shop.t0", id=2, v=1, w=1), put("shop.t1", id=5), put("shop.t2", id=2), put("shop.t3", id=1, w=9))
    story.resolve()
    return story


def accounts() -> Script:
    """Return a script of a table of `shop` with other rows, before those of that script; one mark."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.accounts", "CREATE TABLE shop.accounts (id INT PRIMARY KEY, owner VARCHAR(20), balance BIGINT)")
    story.commit(*(put("shop.accounts", id=number, owner="somebody else", balance=number) for number in (1, 99)))
    story.resolve()
    return story


def around_ddl(kind: str) -> Script:
    """Return a script of rows, the DDL of that kind (a name of DDLS), and rows after it."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), n INT, KEY old (n))")
    story.ddl("shop.other", "CREATE TABLE shop.other (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
    story.ddl("shop.parts", f"CREATE TABLE shop.parts (id INT PRIMARY KEY, v VARCHAR(20), n INT) {PARTITIONS}")
    for table in ("shop.t", "shop.other", "shop.parts"):
        story.commit(*(put(table, id=id_, v=f"{table} {id_}", n=id_) for id_ in (1, 2, 15)))
    story.resolve()
    DDLS[kind](story)
    story.commit(put("shop.other", id=2, v="after"), put("shop.other", id=3))
    story.resolve()
    return story


def bare_deletes() -> Script:
    """Return a script of rows whose DELETEs carry only the key: they differ in layout from the INSERTs and UPDATEs
    around them, in the same transactions and in others; two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
    story.commit(*(put("shop.t", id=number, v=f"row {number}", n=number) for number in range(1, 7)))
    story.resolve()
    story.commit(put("shop.t", id=1, v="changed"))
    story.commit(remove_bare("shop.t", id=1))
    story.commit(put("shop.t", id=1, v="here again"))
    story.commit(remove_bare("shop.t", id=2))
    story.commit(put("shop.t", id=2, v="here for a while"))
    story.commit(remove_bare("shop.t", id=2))
    story.commit(put("shop.t", id=3, n=30), remove_bare("shop.t", id=4))
    story.commit(remove_bare("shop.t", id=5), put("shop.t", id=5, v="in one transaction"))
    story.commit(remove_bare("shop.t", id=6), put("shop.t", id=7, v="last"))
    story.resolve()
    return story


def middle() -> Script:
    """Return a script of rows of two layouts, for sources without its DDLs; two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
    story.commit(put("shop.t", id=1, v="first"), put("shop.t", id=2, v="gone"))
    story.resolve()
    story.ddl("shop.t", "ALTER TABLE shop.t ADD COLUMN n BIGINT")
    story.commit(put("shop.t", id=1, n=7), put("shop.t", id=3, v="with both", n=8), remove("shop.t", id=2))
    story.resolve()
    return story


def keys() -> Script:
    """Return a script of compound keys: rows that change their key, keys that are freed and reused, in separate
    transactions and in common ones; two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (v INT, a BIGINT, b VARCHAR(9), PRIMARY KEY (b, a))")
    story.commit(*(put("shop.t", a=a, b=b, v=a) for a in (1, 2, 3) for b in ("x", "y", "X")))
    story.resolve()
    story.commit(move("shop.t", {"a": 1, "b": "x"}, a=4))
    story.commit(put("shop.t", a=1, b="x", v=10), move("shop.t", {"a": 2, "b": "x"}, a=5, v=20))
    story.commit(remove("shop.t", a=3, b="x"), move("shop.t", {"a": 3, "b": "y"}, b="x"))
    story.commit(remove("shop.t", a=3, b="X"), put("shop.t", a=3, b="X", v=None))
    story.resolve()
    return story


def large() -> Script:
    """Return a script whose transactions are longer than one read: over two tables, with changes of their own new rows;
    two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    for table in ("shop.t", "shop.u"):
        story.ddl(table, f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
    story.commit(*(put(table, id=number, v="first") for table in ("shop.t", "shop.u") for number in range(8)))
    story.resolve()
    story.commit(
        *(put("shop.t", id=number, v="second") for number in range(4, 12)),
        *(remove("shop.u", id=number) for number in range(5)),
        *(put("shop.u", id=number, v="again") for number in range(2, 9)),
    )
    story.commit(*(remove("shop.t", id=number) for number in range(8)), put("shop.t", id=0, v="last"))
    story.resolve()
    return story


ODD_NAMES: Final = ("a.b", "Käse {1}", 'a"b', "it's; --", "per%cent", "select")
"""Names of tables; columns are called so, too."""


def odd_names() -> Script:
    """Return a script of tables and columns with names that require quoting; two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    columns = ", ".join(f"`{name}` VARCHAR(20)" for name in ODD_NAMES)
    for name in ODD_NAMES:
        story.ddl(f"shop.{name}", f"CREATE TABLE shop.`{name}` (`i d` INT PRIMARY KEY, {columns})")
        for number in (1, 2):
            story.commit(ScriptedWrite(f"shop.{name}", {"i d": number, **dict.fromkeys(ODD_NAMES, name)}))
    story.resolve()
    for name in ODD_NAMES:
        story.commit(ScriptedWrite(f"shop.{name}", {"i d": 1, name: None}), remove(f"shop.{name}", **{"i d": 2}))
    story.ddl("shop.a.b", "ALTER TABLE shop.`a.b` RENAME COLUMN `select` TO `from`, ADD COLUMN `where` INT DEFAULT 1")
    story.commit(ScriptedWrite("shop.a.b", {"i d": 1, "from": "it"}))
    story.resolve()
    return story


TYPES: Final[Mapping[str, tuple[Value, Value]]] = {
    "TINYINT": (-128, 127),
    "SMALLINT UNSIGNED": (0, 65535),
    "MEDIUMINT": (-8388608, 8388607),
    "INT UNSIGNED": (0, 4294967295),
    "BIGINT": (-(1 << 63), (1 << 63) - 1),
    "BIGINT UNSIGNED": (1 << 63, (1 << 64) - 1),
    "FLOAT": (0.5, -0.25),
    "DOUBLE": (1e300, 0.1 + 0.2),
    "DECIMAL(30,10)": ("12345678901234567890.0123456789", "-0.1000000000"),
    "YEAR": (1901, 2155),
    "DATE": ("1000-01-01", "9999-12-31"),
    "DATETIME(6)": ("2024-02-29 12:00:00.123456", "9999-12-31 23:59:59.999999"),
    "TIMESTAMP": ("1970-01-02 00:00:00", "2037-12-31 23:59:59"),
    "TIME": ("-838:59:59", "12:00:00"),
    "BIT(64)": (5, (1 << 64) - 1),
    "CHAR(9)": ("", "ü"),
    "TEXT": ("a 'quoted' \\ text\n", "\U0001f600"),
    "VARBINARY(9)": (b"\x00\xff", b""),
    "BLOB": (b"\xc3\x28", b"text"),
    "ENUM('a','b')": (1, 2),
    "SET('a','b')": (3, 0),
    "JSON": ("[null]", '"text"'),
}
"""By a column's type two values of it."""
TYPED: Final = "shop.typed"


def every_type(*, altered: bool = True) -> Script:
    """Return a script of TYPED, which has a column of each of TYPES, and NULLs in all; `altered` adds a column with a
    default at its end. Two marks."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    story.ddl(TYPED, f"CREATE TABLE {TYPED} (id INT PRIMARY KEY, {columns})")
    first, second = ({f"c{index}": pair[side] for index, pair in enumerate(TYPES.values())} for side in (0, 1))
    story.commit(put(TYPED, id=1, **first), put(TYPED, id=2, **second), put(TYPED, id=3), put(TYPED, id=4))
    story.resolve()
    story.commit(put(TYPED, id=1, **second), put(TYPED, id=2, **dict.fromkeys(second)))
    story.commit(put(TYPED, id=3, **first), remove(TYPED, id=4))
    if altered:
        story.ddl(TYPED, f"ALTER TABLE {TYPED} ADD COLUMN more INT NOT NULL DEFAULT 7")
    story.resolve()
    return story


PARTITIONS: Final = (
    "PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))"
)
Kind = Callable[[Script], None]


def _alter(change: str, *, table: str = "shop.t", **values: Value) -> Kind:
    """Do an ALTER TABLE, then a change of row 1 and row 16 to `values`."""

    def act(story: Script) -> None:
        story.ddl(table, f"ALTER TABLE {table} {change}", along=(put(table, id=2, n=20),))
        if values:
            story.commit(put(table, id=1, **values), put(table, id=16, **values))

    return act


def _ddl_kind(name: str, query: str, *then: tuple[str, Row]) -> Kind:
    def act(story: Script) -> None:
        story.ddl(name, query)
        if then:
            story.commit(*(put(table, **values) for table, values in then))

    return act


def _swap(story: Script) -> None:
    query = "RENAME TABLE shop.t TO shop.aside, shop.other TO shop.t, shop.aside TO shop.other"
    story.ddl("shop.other", query, along=(put("shop.t", id=1, v="was t"), put("shop.other", id=1, v="was other")))
    story.commit(put("shop.t", id=1, v="is t"), put("shop.other", id=15, v="is other"))


def _drop_and_create(story: Script) -> None:
    story.ddl("shop.t", "DROP TABLE shop.t", along=(put("shop.t", id=1, v="gone"),))
    story.ddl("shop.t", "CREATE TABLE shop.t (id VARCHAR(9) PRIMARY KEY)", again=True)
    story.commit(put("shop.t", id="1"))


def _handle_moves(keys: str, change: str) -> Kind:
    """A table with these keys, and a DDL by which another one becomes the handle key."""

    def act(story: Script) -> None:
        story.ddl("shop.u", f"CREATE TABLE shop.u (a INT NOT NULL, b INT NOT NULL, v INT, {keys})")
        story.commit(*(put("shop.u", a=number, b=9 - number, v=number) for number in range(3)))
        story.ddl("shop.u", f"ALTER TABLE shop.u {change}")
        story.commit(put("shop.u", a=1, b=8, v=10), remove("shop.u", a=2, b=7), put("shop.u", a=5, b=5, v=5))

    return act


def _recover(story: Script) -> None:
    story.ddl("shop.t", "DROP TABLE shop.t")
    story.ddl("shop.t", "RECOVER TABLE shop.t")
    story.commit(put("shop.t", id=1, v="is back"))


def _exchange(story: Script) -> None:
    story.ddl("shop.more", "CREATE TABLE shop.more (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
    story.commit(put("shop.more", id=11, v="more 11"), put("shop.more", id=12, v="more 12"))
    change = "ALTER TABLE shop.parts EXCHANGE PARTITION high WITH TABLE shop.more"
    story.ddl("shop.parts", change, along=(put("shop.parts", id=16), put("shop.more", id=12, v="at the same ts")))
    story.commit(put("shop.parts", id=11, v="in parts"), put("shop.more", id=15, v="in more"))


DDLS: Final[Mapping[str, Kind]] = {
    "create table": _ddl_kind(
        "shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY, w BIGINT)", ("shop.u", {"id": 1, "w": 2})
    ),
    "create empty table": _ddl_kind("shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY)"),
    "create table like": _ddl_kind("shop.u", "CREATE TABLE shop.u LIKE shop.t", ("shop.u", {"id": 1, "v": "new"})),
    "create database": _ddl_kind("market", "CREATE DATABASE market"),
    "drop database": _ddl_kind("shop", "DROP DATABASE IF EXISTS market"),
    "create view": _ddl_kind("shop.seen", "CREATE VIEW shop.seen AS SELECT id FROM shop.t"),
    "add column": _alter("ADD COLUMN c INT NOT NULL DEFAULT 7 AFTER id", c=8),
    "drop column": _alter("DROP COLUMN v", n=3),
    "modify column": _alter("MODIFY COLUMN n BIGINT", n=1 << 40),
    "rename column": _alter("CHANGE COLUMN v w VARCHAR(20)", w="renamed"),
    "add index": _alter("ADD INDEX more (v)", n=3),
    "drop index": _alter("DROP INDEX old", n=3),
    "comment": _alter("COMMENT = 'told'", n=3),
    "default": _alter("ALTER COLUMN n SET DEFAULT 9", n=3),
    "rename table": _ddl_kind("shop.u", "RENAME TABLE shop.t TO shop.u", ("shop.u", {"id": 1, "v": "moved"})),
    "swap names": _swap,
    "truncate table": _ddl_kind("shop.t", "TRUNCATE TABLE shop.t", ("shop.t", {"id": 1, "v": "again"})),
    "drop table": _ddl_kind("shop.t", "DROP TABLE shop.t"),
    "drop and create table": _drop_and_create,
    "add partition": _alter("ADD PARTITION (PARTITION top VALUES LESS THAN (30))", table="shop.parts", v="x"),
    "drop partition": _alter("DROP PARTITION low", table="shop.parts"),
    "truncate partition": _alter("TRUNCATE PARTITION low", table="shop.parts", v="x"),
    "exchange partition": _exchange,
    "drop key": _handle_moves("UNIQUE KEY ka (a), UNIQUE KEY kb (b)", "DROP INDEX ka"),
    "add primary key": _handle_moves("UNIQUE KEY kb (b)", "ADD PRIMARY KEY (a)"),
    "recover table": _recover,
    "unreadable": _ddl_kind("shop.t", UNREADABLE, ("shop.t", {"id": 1, "v": "after"})),
}
"""The DDLs of `around_ddl`, by kind."""


def notes(column: str, value: Value) -> tuple[Script, int]:
    """Return a script of rows of NOTES, one of which has `value` in `column`, and the commit_ts of that row."""
    story = Script()
    story.ddl(NOTES, f"CREATE TABLE {NOTES} (id INT PRIMARY KEY, note TEXT, taken DATETIME)")
    story.commit(put(NOTES, id=1, note="before", taken="2024-02-29 12:00:00"))
    story.resolve()
    story.commit(put(NOTES, id=2, note="before, in the same round"))
    ts = story.commit(put(NOTES, id=3, **{column: value}))
    story.commit(put(NOTES, id=4, note="after"))
    story.resolve()
    return story, ts
