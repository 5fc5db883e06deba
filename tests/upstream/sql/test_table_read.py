"""Reading by keys finds what reading everything finds, and any sequence of statements leaves keys in order."""

import random

import msgspec
import pytest

from tests.upstream.sql.table_kit import ID, NOT_NULL, PRIMARY, World, column, index, integer, table, varchar
from tidegate.expr.parse import parse_statements
from tidegate.expr.scope import ResultSet
from tidegate.kv.keys import index_prefix
from tidegate.kv.rows import decode_row, verify_checksum
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.schema.stored.definition import (
    Name,
    StoredPart,
    StoredPartition,
    StoredPartitionDef,
    StoredTable,
    StoredType,
)
from tidegate_upstream.tidb.check_table import refusal
from tidegate_upstream.tidb.select import select

A = column(2, "a", integer())
S = column(3, "s", varchar(20, collate="utf8mb4_general_ci"))
ID_OF_HIDDEN = column(1, "id", integer(NOT_NULL))
DATE = column(4, "d", StoredType(T.DATE, 128, 10, 0, "binary", "binary"))
ON_A, ON_S = index(1, "ka", {"a": 1}), index(2, "ks", {"s": 2}, is_unique=True)
PARTS = [StoredPartitionDef(200 + at, Name.of(f"p{at}"), [bound]) for at, bound in enumerate(("4", "8", "MAXVALUE"))]


def prefixed() -> StoredTable:
    """A unique index on the first two characters, and one on all of a virtual column."""
    virtual = column(4, "v", integer(), generated_expr_string="`a` * 2")
    prefix = msgspec.structs.replace(ON_S, idx_cols=[StoredPart(Name.of("s"), 2, 2)])
    return table([ID, A, S, virtual], [prefix, index(3, "kv", {"v": 3, "a": 1})])


def clustered_by_text() -> StoredTable:
    """A common handle of a text and a number."""
    name = column(3, "s", varchar(20, NOT_NULL | PRIMARY, "utf8mb4_general_ci"))
    number = column(1, "id", integer(NOT_NULL | PRIMARY))
    primary = index(9, "PRIMARY", {"s": 2, "id": 0}, is_unique=True, is_primary=True)
    stored = table([number, A, name], [primary, ON_A], clustered=False)
    return msgspec.structs.replace(stored, is_common_handle=True, common_handle_version=1)


TABLES = {
    "int handle": table([ID, A, S, DATE], [ON_A, ON_S, index(3, "kd", {"d": 3, "a": 1})]),
    "hidden handle": table([ID_OF_HIDDEN, A, S], [ON_A, ON_S], clustered=False),
    "common handle": clustered_by_text(),
    "prefix and virtual": prefixed(),
    "partitions": table([ID, A, S], [ON_A], partition=StoredPartition(1, "`id`", definitions=PARTS)),
    "global index": table(
        [ID, A, S],
        [ON_A, msgspec.structs.replace(ON_S, is_global=True)],
        partition=StoredPartition(1, "`id`", definitions=PARTS),
    ),
}
TEXTS = ("a", "A", "ab", "abc", "B ", "", "é")


def statement(rng: random.Random, names: list[str]) -> str:
    """A statement about few keys, so that they meet."""
    number, other, text = rng.randrange(10), rng.randrange(6), rng.choice(TEXTS)
    values = f"({number}, {other}, '{text}')" if rng.random() < 0.9 else f"({number}, null, '{text}')"
    return rng.choice(
        [
            f"insert into t (id, a, s) values {values}",
            f"insert ignore into t (id, a, s) values {values}, ({other}, {number}, 'z')",
            f"replace into t (id, a, s) values {values}",
            f"insert into t (id, a, s) values {values} on duplicate key update a = a + 1, s = concat(values(s), 'q')",
            f"update t set a = {other} where id = {number}",
            f"update t set id = id + 1 where a = {other} order by id desc",
            f"update t set s = '{text}' where id = {number} or s = 'ab'",
            f"delete from t where id = {number}",
            f"delete from t where {rng.choice(names)} = {other} limit 1",
        ]
    )


def answer(world: World, where: str) -> ResultSet:
    """The rows of a SELECT."""
    transaction = world.storage.begin()
    tables = world.tables(transaction)
    [parsed] = parse_statements(f"select id, a, s from t where {where}")
    return select(parsed.node, tables, tables.context)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak if seed > 2 else pytest.mark.slow) for seed in range(1, 8))]
)
@pytest.mark.parametrize("name", TABLES)
def test_any_statements_leave_keys_in_order(name, seed):
    """Whatever comes, every index is complete and without orphans, and reading by key agrees with reading all."""
    rng, world = random.Random(f"{name} {seed}"), World(TABLES[name])
    for _ in range(60):
        sql = statement(rng, ["id", "a"])
        try:
            world.run(sql)
        except SqlRefused as refused:
            if refused.mysql_code != 1062:
                raise

        assert [str(fault) for fault in world.faults()] == [], sql
    number, text = rng.randrange(10), rng.choice(TEXTS)
    for by_key, by_scan in (
        (f"id = {number}", f"id + 0 = {number}"),
        (f"a in (1, {number})", f"a + 0 in (1, {number})"),
        (f"s = '{text}'", f"concat(s, '') = '{text}'"),
        ("s = 0", "concat(s, '') = 0"),
        ("id = '1a'", "id + 0 = '1a'"),
        (f"s = '{text}' and id in (1, {number})", f"concat(s, '') = '{text}' and id + 0 in (1, {number})"),
    ):
        assert sorted(map(repr, answer(world, by_key).rows)) == sorted(map(repr, answer(world, by_scan).rows)), by_key


def test_point_reads_do_not_scan():
    """A row by its key costs one read, by an index a short scan; nothing else is touched."""
    world = World(TABLES["int handle"])
    world.run("insert into t (id, a, s) values (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    transaction = world.storage.begin()
    reader = world.open(transaction).reader

    class Counted:
        """Reads, counted."""

        keys = 0

        def get(self, key: bytes) -> bytes | None:
            self.keys += 1
            return transaction.get(key)

        def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False):
            for pair in transaction.scan(start, end, reverse=reverse):
                self.keys += 1
                yield pair

    for equal, expected in (({"id": (2,)}, 1), ({"s": ("B",)}, 2), ({"a": (3,)}, 2), ({"d": ("x",)}, 3)):
        reader.source = counted = Counted()
        found = list(reader.find(equal))

        assert counted.keys == expected, equal
        assert len(found) == (3 if "d" in equal else 1)


@pytest.mark.parametrize(("version", "checksum"), [(1, "OFF"), (2, "OFF"), (2, "ON")])
def test_rows_are_written_as_the_session_says(version, checksum):
    """tidb_row_format_version and tidb_enable_row_level_checksum decide the bytes, not the values."""
    world = World(TABLES["int handle"])
    variables = {"tidb_row_format_version": version, "tidb_enable_row_level_checksum": checksum}
    world.run("insert into t (id, a, s) values (1, 5, 'x')", variables=variables)
    world.run("update t set a = 6", variables=variables)
    layout = world.shapes.of(world.stored).layout
    [(key, value)] = [pair for pair in world.storage.snapshot().scan(b"t") if b"_r" in pair[0]]
    row = decode_row(layout, key, value)

    assert (row.version, row.tail is not None) == (version, checksum == "ON")
    assert verify_checksum(layout, row, value)
    assert world.rows() == [(1, 6, "x", None)]


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("entry", {"a row without its entry"}),
        ("row", {"an entry without a row"}),
        ("value", {"an entry that names another row"}),
    ],
)
def test_broken_tables_are_told(what, found):
    """A lost entry, a lost row, an entry that names another row: each is found, with its key."""
    world = World(TABLES["int handle"])
    world.run("insert into t (id, a, s) values (1, 5, 'x'), (2, 6, 'y')")
    keys = dict(world.storage.snapshot().scan(b"t"))
    entry = next(key for key in keys if key.startswith(index_prefix(100, 2)))
    record = next(key for key in keys if b"_r" in key)
    transaction = world.storage.begin()
    if what == "value":
        transaction.put(entry, keys[entry][:-8] + (9).to_bytes(8, "big"))
    else:
        transaction.delete(entry if what == "entry" else record)
    transaction.commit()
    faults = world.faults()

    assert {fault.what for fault in faults} == found
    assert refusal(world.shapes.of(world.stored), faults[0]).mysql_code == 8223
