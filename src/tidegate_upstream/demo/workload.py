# ruff: noqa: S608  the statements are its own
"""What the demo lets people and administrators do: a shop, a bank, and online DDL of every kind while they work.

    stream      node   transactions on
    orders      n1     shop.orders (partitioned), shop.order_items
    stock       n2     shop.products, shop.customers, and columns that come and go
    bank-1, -2  n3 n1  bank.accounts, bank.transfers: the sum of all balances never changes
    carts       n2     tables that are made, emptied, renamed, swapped, dropped and brought back

    DDLS        two administrators, each with a script: one changes the shop's tables, one makes and unmakes tables

Pure: a seed and a stream give the same statements, however fast they run and whatever becomes of them.  What a stream
asks for may not be there at that moment (a column that was dropped, a table that has another name): then the upstream
refuses it, as it would refuse a program that did not hear of the change.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple, TypeAlias

Transaction: TypeAlias = tuple[str, ...]
"""Statements that are committed together."""

DATABASES: Final = ("shop", "bank", "lab")
ACCOUNTS: Final = 40
TOTAL: Final = ACCOUNTS * 1000
"""The sum of all balances, always."""
_CUSTOMERS: Final = 40
_PRODUCTS: Final = 30
_KINDS: Final = ("tool", "toy", "food", "book")
_STATES: Final = ("new", "paid", "sent", "done")
_FLAGS: Final = ("", "new", "sale", "new,hot", "new,sale,hot")


def _script(text: str) -> tuple[str, ...]:
    """The statements of a text, divided by `;`."""
    return tuple(" ".join(one.split()) for one in text.split(";") if one.strip())


_ORDERS: Final = (
    "id BIGINT NOT NULL, month INT NOT NULL, customer INT NOT NULL, total DECIMAL(12,2) NOT NULL DEFAULT 0, "
    "status ENUM('new','paid','sent','done') NOT NULL DEFAULT 'new', weight DOUBLE NULL, "
    "placed TIMESTAMP(3) NOT NULL DEFAULT '2026-01-01 00:00:00.000', PRIMARY KEY (id, month)"
)
_TABLES: Final = _script(f"""
CREATE DATABASE shop;
CREATE DATABASE bank;
CREATE TABLE shop.customers (id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, email VARCHAR(80) NULL, vip
    TINYINT(1) NOT NULL DEFAULT 0, note TEXT NULL, since DATE NOT NULL, UNIQUE KEY uk_email (email));
CREATE TABLE shop.products (sku VARCHAR(16) NOT NULL PRIMARY KEY, title VARCHAR(80) NOT NULL, price DECIMAL(10,2)
    NOT NULL, stock INT UNSIGNED NOT NULL DEFAULT 0, kind ENUM('tool','toy','food','book') NOT NULL DEFAULT 'toy',
    flags SET('new','sale','hot') NOT NULL DEFAULT '', attrs JSON NULL, photo VARBINARY(16) NULL, weight DOUBLE NOT
    NULL DEFAULT 0);
CREATE TABLE shop.orders ({_ORDERS}) PARTITION BY RANGE (month) (PARTITION p0 VALUES LESS THAN (1),
    PARTITION p1 VALUES LESS THAN (2), PARTITION p2 VALUES LESS THAN (3), PARTITION p3 VALUES LESS THAN (4),
    PARTITION p4 VALUES LESS THAN (5), PARTITION p5 VALUES LESS THAN (6));
CREATE TABLE shop.order_items (order_id BIGINT NOT NULL, line INT NOT NULL, sku VARCHAR(16) NOT NULL, qty INT NOT
    NULL DEFAULT 1, price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE bank.accounts (id INT NOT NULL PRIMARY KEY, owner VARCHAR(40) NOT NULL, balance DECIMAL(18,2) NOT NULL,
    version INT NOT NULL DEFAULT 0);
CREATE TABLE bank.transfers (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, src INT NOT NULL, dst INT NOT NULL,
    amount DECIMAL(18,2) NOT NULL, took TIME(3) NULL);
""")

_SHOP_DDLS: Final = _script(f"""
ALTER TABLE shop.customers ADD COLUMN tier INT NOT NULL DEFAULT 1;
ALTER TABLE shop.orders ADD INDEX i_customer (customer);
ALTER TABLE shop.orders ADD PARTITION (PARTITION p6 VALUES LESS THAN (7));
ALTER TABLE shop.customers MODIFY COLUMN name VARCHAR(160) NOT NULL;
ALTER TABLE shop.order_items MODIFY COLUMN qty VARCHAR(12) NOT NULL DEFAULT '1';
ALTER TABLE shop.orders TRUNCATE PARTITION p0;
ALTER TABLE shop.customers RENAME COLUMN note TO remark;
CREATE TABLE shop.orders_old ({_ORDERS}, INDEX i_customer (customer));
ALTER TABLE shop.products ADD COLUMN score INT NOT NULL DEFAULT 7 AFTER title, DROP COLUMN photo, ADD INDEX i_kind
    (kind);
ALTER TABLE shop.orders EXCHANGE PARTITION p4 WITH TABLE shop.orders_old;
ALTER TABLE shop.products MODIFY COLUMN weight INT NOT NULL DEFAULT 0;
ALTER TABLE shop.orders REORGANIZE PARTITION p2, p3 INTO (PARTITION p23 VALUES LESS THAN (4));
RENAME TABLE shop.order_items TO shop.lines;
ALTER TABLE shop.customers ADD UNIQUE INDEX uk_name (email, name);
RENAME TABLE shop.lines TO shop.order_items;
ALTER TABLE shop.products MODIFY COLUMN price DECIMAL(8,1) NOT NULL;
ALTER TABLE shop.customers CHANGE COLUMN vip grade BIGINT NOT NULL DEFAULT 0;
ALTER TABLE shop.orders DROP INDEX i_customer;
ALTER TABLE shop.orders DROP PARTITION p1;
ALTER TABLE shop.products MODIFY COLUMN kind ENUM('tool','toy','food','book','film') NOT NULL DEFAULT 'toy';
ALTER TABLE shop.customers DROP COLUMN tier;
ALTER TABLE shop.orders ADD COLUMN gift TINYINT(1) NOT NULL DEFAULT 1, ALTER COLUMN total SET DEFAULT 9.75;
ALTER TABLE shop.customers DROP INDEX uk_name;
ALTER TABLE shop.customers MODIFY COLUMN since DATETIME(2) NOT NULL;
ALTER TABLE shop.order_items MODIFY COLUMN price DOUBLE NOT NULL, DROP COLUMN qty;
""")
_SIDE_DDLS: Final = _script("""
CREATE TABLE shop.carts (id INT NOT NULL PRIMARY KEY, what VARCHAR(20) NULL, pieces INT NOT NULL DEFAULT 1, INDEX
    i_what (what));
ALTER TABLE bank.accounts ADD COLUMN memo VARCHAR(20) NULL DEFAULT 'none' AFTER owner;
TRUNCATE TABLE shop.carts;
ALTER TABLE bank.accounts MODIFY COLUMN version BIGINT NOT NULL DEFAULT 0;
RENAME TABLE shop.carts TO shop.baskets;
CREATE TABLE shop.carts LIKE shop.baskets;
ALTER TABLE bank.accounts ADD INDEX i_version (version);
RENAME TABLE shop.carts TO shop.swap, shop.baskets TO shop.carts, shop.swap TO shop.baskets;
ALTER TABLE bank.transfers ADD COLUMN booked TIMESTAMP(3) NULL DEFAULT '2026-02-28 23:59:59.999';
ALTER TABLE shop.baskets PARTITION BY HASH (id) PARTITIONS 3;
DROP TABLE shop.carts;
ALTER TABLE bank.accounts MODIFY COLUMN balance DECIMAL(20,4) NOT NULL;
RECOVER TABLE shop.carts;
CREATE DATABASE lab;
CREATE TABLE lab.trial (id INT NOT NULL PRIMARY KEY, v INT NULL);
ALTER TABLE shop.baskets REMOVE PARTITIONING;
ALTER TABLE bank.accounts DROP COLUMN memo;
CREATE VIEW shop.rich AS SELECT id, owner FROM bank.accounts WHERE balance > 1000;
ALTER TABLE shop.baskets RENAME INDEX i_what TO i_thing;
ALTER TABLE shop.baskets ALTER COLUMN pieces SET DEFAULT 2;
TRUNCATE TABLE bank.transfers;
DROP DATABASE lab;
DROP VIEW shop.rich;
ALTER TABLE shop.baskets COMMENT = 'what is left';
DROP TABLE shop.baskets;
""")
Scripts: TypeAlias = tuple[tuple[str, ...], ...]
"""What each administrator does, in order."""
DDLS: Final[Scripts] = (_SHOP_DDLS, _SIDE_DDLS)


def without_recovery(scripts: Scripts) -> Scripts:
    """Return scripts without what only a TiDB can do: bring back a table that was dropped."""
    return tuple(tuple(one for one in script if not one.startswith("RECOVER TABLE")) for script in scripts)


class Stream(NamedTuple):
    """Who works, and at which node (from 0)."""

    name: str
    node: int


def setup(seed: int) -> Iterator[str]:
    """Return the tables and their first rows."""
    random = Random(f"{seed} setup")
    yield from _TABLES
    people = (f"({at}, 'owner {at}', {TOTAL // ACCOUNTS})" for at in range(1, ACCOUNTS + 1))
    yield f"INSERT INTO bank.accounts (id, owner, balance) VALUES {', '.join(people)}"
    old = (f"({-at}, {at % 2}, {at}, {at}.5)" for at in range(1, 21))
    yield f"INSERT INTO shop.orders (id, month, customer, total) VALUES {', '.join(old)}"
    for at in range(1, _CUSTOMERS + 1):
        yield _customer(random, at)
    for at in range(1, _PRODUCTS + 1):
        yield _product(random, at)


def transactions(seed: int, stream: Stream) -> Iterator[Transaction]:
    """Return what a stream does, for ever."""
    random = Random(f"{seed} {stream.name}")
    made = _MAKERS[stream.name.partition("-")[0]]
    number = 0
    while True:
        number += 1
        yield made(random, number)


def _customer(random: Random, at: int) -> str:
    note = random.choice(("NULL", "'quiet'", "'pays late \\u20ac'", "''"))
    return (
        f"INSERT INTO shop.customers (id, name, email, since) VALUES ({at}, 'name {random.randint(1, 99)}', "
        f"'c{at}@example.org', '20{random.randint(10, 25)}-0{random.randint(1, 9)}-1{random.randint(0, 9)}') "
        f"ON DUPLICATE KEY UPDATE name = {note if note != 'NULL' else repr('nobody')}"
    )


def _product(random: Random, at: int) -> str:
    attrs = random.choice(("NULL", f'\'{{"size": {random.randint(1, 9)}, "tags": ["a", null]}}\''))
    return (
        f"REPLACE INTO shop.products (sku, title, price, stock, kind, flags, attrs, weight) VALUES ('p{at}', "
        f"'product {at}', {random.randint(100, 99_999) / 100}, {random.randint(0, 99)}, '{random.choice(_KINDS)}', "
        f"'{random.choice(_FLAGS)}', {attrs}, {random.randint(0, 4000) / 100})"
    )


def _month(order: int) -> int:
    """An order's month follows from its number, so that whoever changes it later finds its partition; that of 0 is
    emptied once, that of 1 dropped, whose orders lie in the next one from then on."""
    return order % 7


def _orders(random: Random, number: int) -> Transaction:
    old = random.randint(1, number)
    where = f"WHERE id = {old} AND month = {_month(old)}"
    match random.choices(("new", "pay", "move", "forget"), (6, 3, 1, 1))[0]:
        case "pay":
            paid = f"status = '{random.choice(_STATES)}', total = total + {random.randint(-500, 500) / 100}"
            return (f"UPDATE shop.orders SET {paid} {where}",)
        case "move":
            return (f"UPDATE shop.order_items SET line = line + 10 WHERE order_id = {old} AND line < 10",)
        case "forget":
            return (f"DELETE FROM shop.order_items WHERE order_id = {old}", f"DELETE FROM shop.orders {where}")
    weight = random.choice(("NULL", str(random.randint(0, 9000) / 1000)))
    order = (
        f"INSERT INTO shop.orders (id, month, customer, total, weight) VALUES ({number}, {_month(number)}, "
        f"{random.randint(1, _CUSTOMERS)}, {random.randint(1, 99_999) / 100}, {weight})"
    )
    items = (
        f"INSERT INTO shop.order_items (order_id, line, sku, qty, price) VALUES ({number}, {line}, "
        f"'p{random.randint(1, _PRODUCTS)}', {random.randint(1, 9)}, {random.randint(100, 9999) / 100})"
        for line in range(1, random.randint(2, 4))
    )
    return order, *items


def _stock(random: Random, number: int) -> Transaction:
    sku, at = f"p{random.randint(1, _PRODUCTS)}", random.randint(1, _CUSTOMERS)
    person = f"WHERE id = {at}"
    choices: tuple[Callable[[], Transaction], ...] = (
        lambda: (f"UPDATE shop.products SET stock = stock + {random.randint(1, 5)} WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.products SET price = price * 1.1, weight = weight + 0.4 WHERE sku = '{sku}'",),
        lambda: (_product(random, _PRODUCTS + number), f"UPDATE shop.customers SET since = '2026-02-03' {person}"),
        lambda: (_customer(random, random.randint(1, 2 * _CUSTOMERS)),),
        lambda: (f"UPDATE shop.customers SET email = 'n{number}@example.org' {person}",),
        lambda: (f"UPDATE shop.customers SET {random.choice(('note', 'remark'))} = 'note {number}' {person}",),
        lambda: (f"UPDATE shop.customers SET tier = tier + 1, {random.choice(('vip', 'grade'))} = 1 {person}",),
        lambda: (f"UPDATE shop.products SET score = score * 2, photo = x'00ff{number % 256:02x}' WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.products SET photo = x'00ff{number % 256:02x}' WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.orders SET gift = 0, weight = {number} WHERE id < 5",),
        lambda: (f"DELETE FROM shop.customers WHERE id > {_CUSTOMERS} AND id < {_CUSTOMERS + at // 4}",),
    )
    return random.choice(choices)()


def _bank(random: Random, number: int) -> Transaction:
    source, target = random.sample(range(1, ACCOUNTS + 1), 2)
    amount, took = f"{random.randint(1, 5000) / 100:.2f}", f"'{number % 24:02d}:00:0{random.randint(0, 9)}.5'"
    return (
        f"UPDATE bank.accounts SET balance = balance - {amount}, version = version + 1 WHERE id = {source}",
        f"UPDATE bank.accounts SET balance = balance + {amount}, version = version + 1 WHERE id = {target}",
        f"INSERT INTO bank.transfers (src, dst, amount, took) VALUES ({source}, {target}, {amount}, {took})",
    )


def _carts(random: Random, number: int) -> Transaction:
    table = f"shop.{random.choice(('carts', 'baskets'))}"
    key = random.randint(1, 60)
    choices = (
        (f"REPLACE INTO {table} (id, what, pieces) VALUES ({key}, 'thing {number}', {number})",),
        (f"REPLACE INTO {table} (id, what) VALUES ({key}, NULL), ({key + 1}, 'two'), ({key + 2}, 'three')",),
        (f"UPDATE {table} SET pieces = pieces + 1 WHERE id <= {key}",),
        (f"DELETE FROM {table} WHERE id = {key}", f"REPLACE INTO {table} (id, what) VALUES ({key + 60}, 'moved')"),
        (
            f"REPLACE INTO shop.orders_old (id, month, customer, total) VALUES ({9_000 + number}, 4, {key}, {key}.25)",
            f"UPDATE shop.orders SET customer = {key} WHERE id < {key} AND month = 4",
        ),
        (f"REPLACE INTO lab.trial (id, v) VALUES ({key}, {number})",),
    )
    return random.choice(choices)


_MAKERS: Final = {"orders": _orders, "stock": _stock, "bank": _bank, "carts": _carts}
STREAMS: Final = (
    Stream("orders", 0),
    Stream("stock", 1),
    Stream("bank-1", 2),
    Stream("bank-2", 0),
    Stream("carts", 1),
)
