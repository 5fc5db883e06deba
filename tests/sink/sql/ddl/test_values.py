"""Values that a DDL changes are TiDB's in every database, whatever the database itself would make of them."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.counts import some
from tests.failpoint import DDL_FAILPOINTS, VALUE_FAILPOINTS, armed
from tests.recorded_changes import RecordedChange, alike, excused, recorded_changes
from tests.sink.sql.ddl.odd_values import TYPES, odd_value
from tests.sink.sql.ddl.test_runner import Died, die
from tests.sink.sql.ddl.world import FEED, World, follow
from tests.upstream.worlds import seeds
from tidegate.expr.change import Rule, converter, elems_of, family_of
from tidegate.model.errors import SchemaError, SinkRefused, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.model.tso import compose
from tidegate.mysql.conversion import enum_index, set_mask
from tidegate.schema.state import SchemaState
from tidegate.sink.sql import ddl_values as values
from tidegate.sink.sql.connection import ServerKind, SqlOptions, TargetSession
from tidegate.sink.sql.ddl_ledger import list_ddls, settle
from tidegate.sink.sql.ddl_values import read_sql, read_value

pytestmark = pytest.mark.slow


def put(kind: ColumnType, value: Value) -> Value:
    """A value as a statement has it."""
    if value is None or kind.code not in (T.ENUM, T.SET):
        return value
    return (enum_index if kind.code is T.ENUM else set_mask)(elems_of(kind))(str(value))


def held(world: World, table: str, name: str, kind: ColumnType) -> dict[int, Value]:
    """The values of a column by id."""
    rows = world.ask(f"SELECT id, {read_sql(kind).format(name)} FROM d.{table}")
    return {int(number): None if value is None else read_value(kind, value) for number, value in rows}


def fill(world: World, number: int, old_sql: str, changes: Sequence[RecordedChange]) -> list[str]:
    """A table with a column for each change, and the values before them; the names of the columns."""
    names = [f"c{at}" for at in range(len(changes))]
    world.ddl(f"create table t{number} (id int primary key, {', '.join(f'{name} {old_sql}' for name in names)})")
    kind = changes[0].old
    columns = [[put(kind, None if excused(change, *pair) else pair[0]) for pair in change.pairs] for change in changes]
    with world.connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'")
        places = ", ".join(["%s"] * (1 + len(names)))
        rows = [(at, *row) for at, row in enumerate(zip_longest(*columns))]
        cursor.executemany(f"INSERT INTO d.t{number} VALUES ({places})", rows)
    return names


def unlike(world: World, number: int, old_sql: str, changes: Sequence[RecordedChange]) -> list[Any]:
    """The values of a new table that are other ones than due after a DDL of all the changes."""
    table, names = f"t{number}", fill(world, number, old_sql, changes)
    before = {name: held(world, table, name, changes[0].old) for name in names}
    clauses = (f"modify {name} {change.new_sql}" for name, change in zip(names, changes, strict=True))
    world.ddl(f"alter table {table} {', '.join(clauses)}")
    wrong = []
    for name, change in zip(names, changes, strict=True):
        after = held(world, table, name, change.new)
        for at, (old, new) in enumerate(change.pairs):
            if alike(change.old, before[name][at], old) and not alike(change.new, after[at], new):
                wrong.append((change.old_sql, change.new_sql, old, new, after[at]))
    return wrong


def test_recorded_changes(world: World) -> None:
    """What a TiDB made of odd values, when each type became each other one, a replica has as well."""
    world.ddl("create database d")
    mine = world.target.kind is ServerKind.TIDB
    chosen: dict[str, list[RecordedChange]] = {}
    for number, change in enumerate(recorded_changes()):
        families = family_of(change.old), family_of(change.new)
        days = families == (Family.SPAN, Family.MOMENT)
        if change.zone != "+00:00" or days or "latin1" in change.new_sql:
            continue
        if not mine:
            chosen.setdefault(change.old_sql, []).append(change)
        elif number % 60 == 0 and families[0] is not families[1]:
            chosen[str(number)] = [change]  # a TiDB computes them all by itself, as tests/expr has them
    wrong = [
        one
        for number, changes in enumerate(chosen.values())
        for one in unlike(world, number, changes[0].old_sql, changes)
    ]
    assert not wrong, wrong[:50]


@pytest.mark.parametrize("seed", seeds(some(2, 60)))
def test_any_change(maria: World, seed: int) -> None:
    """Whatever values a column has and whatever type it gets, a replica has what the rules of a lake make of them."""
    random, world = Random(seed), maria
    world.ddl("create database d")
    for number, (old_sql, old) in enumerate(random.sample(list(TYPES.items()), 6)):
        chosen = [one for one in TYPES.items() if allowed(old, one[1])]
        chosen = random.sample(chosen, min(12, len(chosen)))
        rules = [converter(old, new, commit_ts=compose(world.at_ms + 2_000)) for _, new in chosen]
        pairs = [[change_of(rule, odd_value(random, old)) for _ in range(40)] for rule in rules]
        changes = [
            RecordedChange(old_sql, new_sql, old, new, "", made)
            for (new_sql, new), made in zip(chosen, pairs, strict=True)
        ]
        wrong = unlike(world, number, old_sql, changes)
        assert not wrong, (seed, wrong[:20])


def allowed(old: ColumnType, new: ColumnType) -> bool:
    """Whether TiDB makes the one type of the other."""
    try:
        converter(old, new)
    except UnsupportedError:
        return False
    return True


def change_of(rule: Rule | None, value: Value) -> tuple[Value, Value]:
    """A value and what becomes of it; NULL instead of one for which the upstream refuses the statement."""
    try:
        return value, value if rule is None else rule(value)
    except SchemaError:
        return None, None


TABLE = (
    "create database d",
    """create table t (a int, v varchar(20), b varchar(20) not null, n int, seen timestamp not null default
    '2024-01-01 00:00:00' on update current_timestamp, primary key (b, a), unique key u (n))""",
)
CHANGE = "alter table t change v w int, change b bb varchar(30) not null after n, add column j json not null"


def prepared(world: World, rows: int) -> list[tuple[int, str, int]]:
    """A table with values of which each is another one in TiDB than in MariaDB; what they are to be."""
    for text in TABLE:
        world.ddl(text)
    values = ", ".join(f"({at}, '{at}.5', 'k{at % 7} ', {at})" for at in range(rows))
    world.ask(f"INSERT INTO d.t (a, v, b, n) VALUES {values}")
    return [(at, f"k{at % 7} ", at + 1) for at in range(rows)]


@pytest.mark.parametrize("place", [*DDL_FAILPOINTS, *VALUE_FAILPOINTS])
def test_a_death_amid_values(maria: World, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies wherever, the next one goes on: all values are written, nothing else is, and no table is left."""
    monkeypatch.setattr(values, "CHUNK_ROWS", 40)
    monkeypatch.setattr(values, "LARGE_ROWS", 40)
    due = prepared(maria, 100)
    placed = maria.placed(CHANGE)
    with armed({place: die}), suppress(Died):
        follow(maria.runner(), placed, maria.state)
    if place == "ddl/amid-values":
        ((left,),) = maria.ask("SELECT COUNT(*) FROM tidegate." + kept(maria)[0])
        assert left == 60
    maria.state = follow(maria.runner(epoch=1), placed, maria.state)
    assert maria.ask("SELECT a, bb, w FROM d.t ORDER BY a") == due
    assert maria.ask("SELECT DISTINCT CONCAT(seen), j FROM d.t") == [("2024-01-01 00:00:00", "null")]
    assert kept(maria) == []
    assert maria.ledger()[-1] == ("done", CHANGE)


@pytest.mark.parametrize("inferred", [False, True], ids=["unknown", "inferred"])
def test_a_table_that_the_schema_does_not_know(
    maria: World, *, inferred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is read from its middle does not tell what a column was; the target does, and after a death the
    ledger."""
    monkeypatch.setattr(values, "CHUNK_ROWS", 2)
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (id int primary key, v varchar(20), e enum('x', 'y') not null)")
    world.ask("INSERT INTO d.t VALUES (1, '12.5', 'x'), (2, '1e3', 'y'), (3, '0.5', 'y')")
    (known,) = world.state.tables.values()
    seen = [replace(one, type=replace(one.type, flen=-1, elems=None)) for one in known.columns]
    state = SchemaState()
    state = state.with_table(replace(known, columns=tuple(seen), inferred=True)) if inferred else state
    placed = world.placed("alter table t change v w int, modify e set('y') not null, add column z int", table="t")
    for place in ("ddl/running", "ddl/executed", "ddl/amid-values"):
        with armed({place: die}), suppress(Died):
            follow(world.runner(), placed, state)
    follow(world.runner(), placed, state)
    assert world.ask("SELECT w, e FROM d.t ORDER BY id") == [(13, ""), (1000, "y"), (1, "y")]


def kept(world: World) -> list[str]:
    """The tables in which values are kept."""
    return [name for (name,) in world.ask("SHOW TABLES FROM tidegate LIKE 'ddl\\_values%'")]


def test_a_table_without_a_key(maria: World) -> None:
    """Where the target makes the same of all its values it changes them; else the DDL is refused, by name, with a way
    out, and nothing has changed."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (v varchar(20), f double)")
    world.ask("INSERT INTO d.t VALUES ('12', 1.5), ('12', 2.5), (NULL, NULL)")
    world.ddl("alter table t modify v int")
    assert world.ask("SELECT v FROM d.t") == [(12,), (12,), (None,)]
    world.ask("INSERT INTO d.t VALUES (1, 1e15)")
    with pytest.raises(
        SinkRefused, match=r"column f .* has '1000000000000000', but .* '1e15', and table d\.t has no key"
    ) as told:
        world.ddl("alter table t modify f varchar(30)")
    assert "--done" in str(told.value)
    assert world.ask("SELECT data_type FROM information_schema.columns WHERE column_name = 'f'") == [("double",)]
    assert kept(world) == []


def test_a_key_that_changes_itself(maria: World) -> None:
    """Rows whose only key gets another type are found by another one, or the DDL is refused."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (v varchar(20) not null, a int not null, unique key u (v), unique key z (a))")
    world.ask("INSERT INTO d.t VALUES ('12.5', 1)")
    world.ddl("alter table t modify v int not null")
    assert world.ask("SELECT * FROM d.t") == [(13, 1)]
    world.ddl("alter table t modify v double not null, modify a int")
    world.ask("UPDATE d.t SET v = 1e15")
    with pytest.raises(SinkRefused, match="no key"):
        world.ddl("alter table t modify v varchar(30) not null")


def test_an_expression_as_default(maria: World) -> None:
    """Rows that are there when a column with an expression as its default comes have what a lake has for them."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (id int primary key)")
    world.ask("INSERT INTO d.t VALUES (1)")
    world.ddl(
        "alter table t add column a varchar(40) default (upper('x')), add column b bit(3) not null default (2 + 3)"
    )
    assert world.ask("SELECT a, b + 0 FROM d.t") == [(None, 0)]


def test_a_target_that_would_refuse(maria: World) -> None:
    """A DATETIME becomes a document, for which a MariaDB would have no valid one."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (id int primary key, c datetime(3), e varchar(9) not null)")
    world.ask("INSERT INTO d.t VALUES (1, '2024-01-31 10:20:30.500', 'z')")
    world.ddl("alter table t modify c json, modify e enum('a', 'b') not null")
    assert world.ask("SELECT c, e + 0 FROM d.t") == [('"2024-01-31 10:20:30.500000"', 0)]


def test_characters_that_a_charset_lacks(maria: World) -> None:
    """A latin1 of TiDB holds what one of MariaDB does not: the DDL says so, and goes on in a table that has room."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (id int primary key, c varchar(20))")
    world.ask("INSERT INTO d.t VALUES (1, 'é'), (2, '日本')")
    placed = world.placed("alter table t modify c varchar(20) charset latin1")
    with pytest.raises(SinkRefused, match="Incorrect string value"):
        follow(world.runner(), placed, world.state)
    world.ask("ALTER TABLE d.t MODIFY c VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    follow(world.runner(), placed, world.state)
    assert world.ask("SELECT c FROM d.t ORDER BY id") == [("é",), ("日本",)]


def test_the_day_of_a_time(world: World) -> None:
    """A TIME becomes a moment of the day of the statement, whichever day the replica runs it."""
    world.ddl("create database d")
    world.ddl("create table t (id int, s varchar(9), c time, primary key (s, id))")
    world.ask("INSERT INTO d.t VALUES (1, 'a ', '10:20:30'), (2, 'a ', '-01:00:00')")
    world.ddl("alter table t modify c datetime")
    assert world.ask("SELECT CONCAT(c) FROM d.t ORDER BY id") == [("2026-09-21 10:20:30",), ("2026-09-20 23:00:00",)]


def test_values_that_meet_in_a_unique_key(maria: World) -> None:
    """Values that only the target makes equal end the feed; without the key in the replica it goes on."""
    world = maria
    world.ddl("create database d")
    world.ddl("create table t (id int primary key, v varchar(20), unique key u (v))")
    world.ask("INSERT INTO d.t VALUES (1, '12.5'), (2, '12')")
    placed = world.placed("alter table t modify v int")
    with pytest.raises(SinkRefused, match=r"Duplicate entry '12' .*Fix the cause"):
        follow(world.runner(), placed, world.state)
    world.ask("ALTER TABLE d.t DROP INDEX u")
    follow(world.runner(), placed, world.state)
    world.ask("ALTER TABLE d.t ADD UNIQUE INDEX u (v)")
    assert world.ask("SELECT v FROM d.t ORDER BY id") == [(13,), (12,)]


def test_a_ddl_that_is_run_again(maria: World) -> None:
    """Values that the target has changed already are not taken for those that the column had."""
    world = maria
    due = prepared(world, 3)
    placed = world.placed(CHANGE)
    with armed({"ddl/executed": die}), suppress(Died):
        follow(world.runner(), placed, world.state)
    (name,) = kept(world)
    world.ask("DELETE FROM tidegate.ddl_history WHERE state = 'running'")  # tidegate sink ddl --again
    world.ask("ALTER TABLE d.t CHANGE w v INT, CHANGE bb b VARCHAR(20) NOT NULL, DROP COLUMN j")
    with pytest.raises(SinkRefused, match=r"column v is int\(11\) in the target and varchar\(20\) upstream.*--done"):
        follow(world.runner(), placed, world.state)
    assert world.ask(f"SELECT COUNT(*) FROM tidegate.{name}") == [(len(due),)]

    session = TargetSession(SqlOptions(FEED, "127.0.0.1", world.port))
    (waiting,) = list_ddls(session, FEED)
    settle(session, FEED, waiting.id, was_done=True)
    session.close()
    assert kept(world) == []
