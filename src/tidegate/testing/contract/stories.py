"""The scripts that every sink has to carry: a small shop, one DDL of each kind, and a row that cannot be taken.

`shop.accounts` has a key and no DDL, `shop.visits` has no key, `shop.orders` meets DDLs while rows come.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.model.event import Value
from tidegate.testing.script import Row, Script, put, remove, remove_bare

NOTES: Final = "shop.notes"
UNREADABLE: Final = "GRUMBLE ABOUT TABLE shop.t"
"""A DDL that nobody can read."""


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
    """Return a script of rows whose DELETEs tell the key alone: they are of another layout than the INSERTs and UPDATEs
    that they lie between, in transactions of their own and in common ones; two marks."""
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


PARTITIONS: Final = (
    "PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))"
)
Kind = Callable[[Script], None]


def _alter(change: str, *, table: str = "shop.t", **values: Value) -> Kind:
    """ALTER TABLE, then a change of row 1 and row 16 to `values`."""

    def act(story: Script) -> None:
        story.ddl(table, f"ALTER TABLE {table} {change}", along=(put(table, id=2, n=20),))
        if values:
            story.commit(put(table, id=1, **values), put(table, id=16, **values))

    return act


def _say(name: str, query: str, *then: tuple[str, Row]) -> Kind:
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


def _exchange(story: Script) -> None:
    story.ddl("shop.more", "CREATE TABLE shop.more (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
    story.commit(put("shop.more", id=11, v="more 11"), put("shop.more", id=12, v="more 12"))
    change = "ALTER TABLE shop.parts EXCHANGE PARTITION high WITH TABLE shop.more"
    story.ddl("shop.parts", change, along=(put("shop.parts", id=16), put("shop.more", id=12, v="at the same ts")))
    story.commit(put("shop.parts", id=11, v="in parts"), put("shop.more", id=15, v="in more"))


DDLS: Final[Mapping[str, Kind]] = {
    "create table": _say("shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY, w BIGINT)", ("shop.u", {"id": 1, "w": 2})),
    "create table like": _say("shop.u", "CREATE TABLE shop.u LIKE shop.t", ("shop.u", {"id": 1, "v": "new"})),
    "create database": _say("market", "CREATE DATABASE market"),
    "drop database": _say("shop", "DROP DATABASE IF EXISTS market"),
    "create view": _say("shop.seen", "CREATE VIEW shop.seen AS SELECT id FROM shop.t"),
    "add column": _alter("ADD COLUMN c INT NOT NULL DEFAULT 7 AFTER id", c=8),
    "drop column": _alter("DROP COLUMN v", n=3),
    "modify column": _alter("MODIFY COLUMN n BIGINT", n=1 << 40),
    "rename column": _alter("CHANGE COLUMN v w VARCHAR(20)", w="renamed"),
    "add index": _alter("ADD INDEX more (v)", n=3),
    "drop index": _alter("DROP INDEX old", n=3),
    "comment": _alter("COMMENT = 'told'", n=3),
    "default": _alter("ALTER COLUMN n SET DEFAULT 9", n=3),
    "rename table": _say("shop.u", "RENAME TABLE shop.t TO shop.u", ("shop.u", {"id": 1, "v": "moved"})),
    "swap names": _swap,
    "truncate table": _say("shop.t", "TRUNCATE TABLE shop.t", ("shop.t", {"id": 1, "v": "again"})),
    "drop table": _say("shop.t", "DROP TABLE shop.t"),
    "drop and create table": _drop_and_create,
    "add partition": _alter("ADD PARTITION (PARTITION top VALUES LESS THAN (30))", table="shop.parts", v="x"),
    "drop partition": _alter("DROP PARTITION low", table="shop.parts"),
    "truncate partition": _alter("TRUNCATE PARTITION low", table="shop.parts", v="x"),
    "exchange partition": _exchange,
    "unreadable": _say("shop.t", UNREADABLE, ("shop.t", {"id": 1, "v": "after"})),
}
"""What happens in `around_ddl`, by kind."""


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
