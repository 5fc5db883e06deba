"""What an upstream that is not strict may hold arrives as it is, or the feed ends with the column and a way out."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.mariadb import Server
from tests.recorded_tidb import recorded
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Value
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

DEEP = "[" * 60 + "]" * 60
ODD: dict[str, list[Value]] = {
    "enum('a','b','12.5','2024-01-01')": [0],
    "set('a','b','c')": [0, 7],
    "date": ["2024-02-30", "2024-00-00", "0000-00-00"],
    "datetime(3)": ["2023-02-31 10:11:12.123", "2024-00-00 00:00:00.000"],
    "json": [DEEP, '{"a": {"b": [1.5, "\\u00e9"]}}'],
    "float": [1.100000023841858, 3.4028234663852886e38],
    "double": [0.1, 1.7976931348623157e308],
    "year": [0],
}
"""Values that no recording has, as events have them."""


class Group(NamedTuple):
    """Types by their first words: an event's value of a recorded (text, hex), and how a column is read again."""

    value: Callable[[str, str], Value]
    sql: str
    shown: Callable[[Value], object] = str


def _bits(_text: str, digits: str) -> Value:
    return int(digits, 16)


def _member(members: str) -> Callable[[str, str], Value]:
    names = [name.strip("'") for name in members.split(",")]
    return lambda text, _: names.index(text) + 1 if text else 0


def _members(members: str) -> Callable[[str, str], Value]:
    names = [name.strip("'") for name in members.split(",")]
    return lambda text, _: sum(1 << names.index(name) for name in text.split(",") if name)


WHOLE = Group(lambda text, _: int(text), "c0 + 0")
TEXT = Group(lambda text, _: text, "HEX(CONVERT(c0 USING utf8mb4))", lambda value: str(value).encode().hex().upper())
PRINTED = Group(lambda text, _: text, "CAST(c0 AS CHAR)")
REAL = Group(lambda text, _: float(text), "c0 + 0e0", lambda value: float(str(value)))
BYTES = Group(lambda _, digits: bytes.fromhex(digits), "HEX(c0)", lambda value: bytes(value).hex().upper())  # type: ignore[arg-type]
DOCUMENT = Group(lambda text, _: text, "CAST(c0 AS CHAR)", lambda value: json.loads(str(value)))
GROUPS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), WHOLE),
    "decimal": PRINTED,
    "bit": Group(_bits, "c0 + 0"),
    "year": WHOLE,
    **dict.fromkeys(("float", "double"), REAL),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), PRINTED),
    **dict.fromkeys(("char", "varchar", "text"), TEXT),
    **dict.fromkeys(("binary", "varbinary", "blob"), BYTES),
    "json": DOCUMENT,
}


def group_of(kind: str) -> Group:
    """How values of a type are told and read."""
    word, _, rest = kind.partition("(")
    if word in {"enum", "set"}:
        read = _member if word == "enum" else _members
        return Group(read(rest.rstrip(")")), "c0 + 0")
    return GROUPS[word.split()[0]]


def held() -> dict[str, list[Value]]:
    """What a real TiDB that is not strict has stored, by the column's type."""
    found: dict[str, list[Value]] = {}
    for one in recorded("store"):
        for text, digits in one.get("stored") or ():
            kind = one["type"]
            known = found.setdefault(kind, list(ODD.get(kind, [])))
            if text is None or kind.startswith(("float", "double")):
                continue
            value = group_of(kind).value(text, digits)
            known += [] if value in known else [value]
    return found


def run(server: Server, story: Script) -> None:
    """The feed of a story into a server."""
    story.resolve()
    run_here(ScriptedSource(story), SqlSink(SqlOptions("feed", "127.0.0.1", server.port)), until=story.ts)


@pytest.fixture(params=["mariadb", "tidb"])
def target(request: pytest.FixtureRequest) -> Server:
    """An empty target of each kind."""
    found: Server = request.getfixturevalue("running" if request.param == "mariadb" else "embedded")
    emptied(found)
    return found


def test_values_of_all_types(target: Server) -> None:
    """Each value that a real TiDB stored, and others that it may hold, is in the target, to the last byte."""
    wanted = held()
    assert len(wanted) > 30
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    columns = ", ".join(f"`c{at}` {kind}" for at, kind in enumerate(wanted))
    story.ddl("d.t", f"CREATE TABLE d.t (id INT PRIMARY KEY, {columns})")
    most = max(map(len, wanted.values()))
    for number in range(most):
        row = {f"c{at}": values[number] for at, values in enumerate(wanted.values()) if number < len(values)}
        story.commit(put("d.t", id=number, **row))
    story.commit(*(put("d.t", id=number, c0=None) for number in range(most)))
    run(target, story)
    for at, (kind, values) in enumerate(wanted.items()):
        group, column = group_of(kind), f"`c{at}`"
        sql = group.sql.replace("c0", column)
        rows = asked(target, f"SELECT {sql} FROM d.t WHERE id < {len(values)} ORDER BY id")
        shown = [group.shown(value) for value in values] if at else [None] * len(values)
        assert [None if one is None else _read(group, one) for (one,) in rows] == shown, kind


def _read(group: Group, value: Any) -> object:
    if group is DOCUMENT:
        return json.loads(value)
    return float(value) if group is REAL else str(int(value)) if group.sql == "c0 + 0" else str(value)


def test_an_empty_enum_is_written_changed_and_removed(target: Server) -> None:
    """Index 0 of an ENUM, what is left of a value that is no member, goes through INSERT, UPDATE, DELETE, in a key and
    in a table without a key too."""
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.e", "CREATE TABLE d.e (id INT PRIMARY KEY, e ENUM('a','b') NOT NULL)")
    story.ddl("d.k", "CREATE TABLE d.k (e ENUM('a','b') PRIMARY KEY, v INT)")
    story.ddl("d.n", "CREATE TABLE d.n (e ENUM('a','b'), v INT)")
    story.commit(put("d.e", id=1, e=0), put("d.e", id=2, e=1), put("d.k", e=0, v=1), put("d.n", e=0, v=1))
    story.commit(put("d.e", id=2, e=0), put("d.e", id=1, e=2), put("d.k", e=0, v=2), put("d.n", e=0, v=1))
    story.commit(put("d.e", id=3, e=0), put("d.k", e=1, v=3))
    story.commit(remove("d.e", id=3), put("d.k", e=0, v=4))
    run(target, story)
    assert asked(target, "SELECT id, e + 0 FROM d.e ORDER BY id") == [(1, 2), (2, 0)]
    assert asked(target, "SELECT e + 0, v FROM d.k ORDER BY 1") == [(0, 4), (1, 3)]
    assert asked(target, "SELECT e + 0, v FROM d.n") == [(0, 1), (0, 1)]


def test_a_generated_column_that_was_cut(target: Server) -> None:
    """A stored generated column that a session that is not strict has cut off is as the upstream's."""
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.g", "CREATE TABLE d.g (id INT PRIMARY KEY, g VARCHAR(3) AS (CONCAT('ab', id, 'xyz')) STORED)")
    story.commit(put("d.g", id=1, g="ab1"))
    run(target, story)
    assert asked(target, "SELECT id, g FROM d.g") == [(1, "ab1")]


@pytest.mark.parametrize(
    ("kind", "other", "value"),
    [
        ("ENUM('a','b','c')", "ENUM('a','b')", 3),
        ("VARCHAR(9)", "VARCHAR(3)", "abcdef"),
        ("INT", "TINYINT", 1000),
        ("SET('x','y')", "SET('x')", 2),
    ],
)
def test_a_column_that_cannot_hold_it(target: Server, kind: str, other: str, value: Value) -> None:
    """A value that the target would store otherwise is not written: the feed ends with the column, and goes on when
    that has its type again."""
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", f"CREATE TABLE d.t (id INT PRIMARY KEY, c {kind})")
    story.commit(put("d.t", id=1))
    run(target, story)
    target.run(f"ALTER TABLE d.t MODIFY c {other}")
    story.commit(put("d.t", id=2, c=value))
    with pytest.raises(SinkRefused, match=r"another value in column c of `d`.`t`.*ALTER it") as caught:
        run(target, story)
    assert caught.value.where.table == "d.t"
    assert asked(target, "SELECT COUNT(*) FROM d.t") == [(1,)]
    target.run(f"ALTER TABLE d.t MODIFY c {kind}")
    run(target, story)
    assert asked(target, "SELECT COUNT(*) FROM d.t WHERE c IS NOT NULL") == [(1,)]


def test_checks_are_the_upstreams(running: Server) -> None:
    """A MariaDB's own CHECKs refuse no row that the upstream took, one on JSON deeper than 31 among them."""
    emptied(running)
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", "CREATE TABLE d.t (id INT PRIMARY KEY, j JSON, CHECK (id < 2))")
    story.commit(put("d.t", id=1, j=DEEP), put("d.t", id=2))
    run(running, story)
    assert asked(running, "SELECT id, j FROM d.t ORDER BY id") == [(1, DEEP), (2, None)]


def test_members_beyond_the_first_plane(target: Server) -> None:
    """Members of an ENUM and a SET may have any character, though a MariaDB shows some as question marks."""
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", "CREATE TABLE d.t (id INT PRIMARY KEY, e ENUM('😀','b'), s SET('x','𝄞')) CHARSET utf8mb4")
    story.ddl("d.t", "ALTER TABLE d.t MODIFY e ENUM('😀','b','c')")
    story.commit(put("d.t", id=1, e=1, s=2))
    run(target, story)
    assert asked(target, "SELECT e, s FROM d.t") == [("😀", "𝄞")]


def test_names_beyond_the_first_plane(running: Server) -> None:
    """A name that a MariaDB has nowhere is refused by name, at once, with the ways out."""
    emptied(running)
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    story.ddl("d.t", "ALTER TABLE d.t ADD COLUMN `c😀` INT")
    story.commit(put("d.t", id=1))
    with pytest.raises(SinkRefused, match=r"beyond U\+FFFF.*exclude the table") as caught:
        run(running, story)
    assert caught.value.where.table == "d.t"


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("v VARCHAR(1000) PRIMARY KEY", r"\(1071\); its keys are shorter.*by hand.*--done"),
        ("id INT PRIMARY KEY, v VARCHAR(10000), w VARCHAR(10000)", r"\(1118\); its rows are shorter.*by hand.*--done"),
    ],
)
def test_limits_of_tables(running: Server, definition: str, told: str) -> None:
    """A table that a MariaDB cannot have is refused at once, with the ways out."""
    emptied(running)
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", f"CREATE TABLE d.t ({definition}) CHARSET utf8mb4")
    with pytest.raises(SinkRefused, match=told) as caught:
        run(running, story)
    assert caught.value.where.table == "d.t"


def test_a_character_that_utf8mb3_has_not(running: Server) -> None:
    """A longer character in a column that is `utf8`, which an upstream that does not check may hold, is not made a
    question mark: the feed ends with the column, and goes on when that is `utf8mb4`."""
    emptied(running)
    story = Script()
    story.ddl("d", "CREATE DATABASE d")
    story.ddl("d.t", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(9) CHARSET utf8)")
    story.commit(put("d.t", id=1, v="😀"))
    with pytest.raises(SinkRefused, match=r"another value in column v of `d`.`t`.*charset"):
        run(running, story)
    running.run("ALTER TABLE d.t MODIFY v VARCHAR(9) CHARSET utf8mb4 COLLATE utf8mb4_bin")
    run(running, story)
    assert asked(running, "SELECT v FROM d.t") == [("😀",)]
