"""Variables: what they hold, who may set them, and what SET takes and refuses."""

from datetime import UTC, timedelta, timezone

import pytest

from tidegate.model.errors import SqlRefused
from tidegate.mysql.values import SqlValue
from tidegate.schema.columns import CHARSETS, COLLATIONS
from tidegate_upstream.tidb.commands import Assign, SetScope, read_set
from tidegate_upstream.tidb.variables import (
    MODE_BITS,
    VARIABLES,
    GlobalVariables,
    SessionVariables,
    VariableScope,
    zone_named,
)


@pytest.fixture
def session() -> SessionVariables:
    return SessionVariables(GlobalVariables())


def code_of(session: SessionVariables, name: str, value: SqlValue) -> int:
    with pytest.raises(SqlRefused) as refused:
        session.set(name, value)
    return refused.value.mysql_code


@pytest.mark.parametrize("name", VARIABLES)
def test_defaults_are_values_of_their_kind(name: str) -> None:
    """Every default is what setting the variable to what SHOW VARIABLES prints of it gives."""
    variable = VARIABLES[name]
    shown = variable.kind.show(variable.default)
    told: list[int] = []

    assert variable.kind.read(name, shown, lambda code, _text: told.append(code)) == variable.default
    assert not told


@pytest.mark.parametrize(
    ("name", "given", "held", "shown"),
    [
        ("autocommit", "OFF", 0, "OFF"),
        ("autocommit", 1, 1, "ON"),
        ("foreign_key_checks", "true", 1, "ON"),
        ("max_sort_length", "2048", 2048, "2048"),
        ("tx_isolation", "read-committed", "READ-COMMITTED", "READ-COMMITTED"),
        ("tx_isolation", 2, "REPEATABLE-READ", "REPEATABLE-READ"),
        ("sql_mode", "ansi_quotes,strict_trans_tables", "ANSI_QUOTES,STRICT_TRANS_TABLES", None),
        ("sql_mode", "", "", ""),
        ("time_zone", "+08:00", "+08:00", "+08:00"),
        ("time_zone", "Asia/Shanghai", "Asia/Shanghai", None),
        ("character_set_client", "UTF8MB3", "utf8", "utf8"),
        ("character_set_results", None, "", ""),
        ("tidb_row_format_version", 1, 1, "1"),
        ("timestamp", 1.5, 1.5, "1.5"),
    ],
)
def test_values(session: SessionVariables, name: str, given: SqlValue, held: object, shown: str | None) -> None:
    """A value is held in one form, whatever form it was given in."""
    session.set(name, given)

    assert session[name] == held
    assert shown is None or dict(session.show())[name] == shown


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("nope", 1, 1193),
        ("version", "9", 1238),
        ("tidb_gc_life_time", "1h", 1229),
        ("autocommit", 2, 1231),
        ("autocommit", "maybe", 1231),
        ("tx_isolation", "SOMETIMES", 1231),
        ("sql_mode", "STRICT_TRANS_TABLES,NOPE", 1105),
        ("max_sort_length", "many", 1232),
        ("max_sort_length", 1.5, 1232),
        ("time_zone", "Nowhere/City", 1298),
        ("time_zone", "+15:00", 1298),
        ("character_set_client", "klingon", 1115),
        ("collation_connection", "utf8mb4_klingon_ci", 1273),
    ],
)
def test_refusals(session: SessionVariables, name: str, value: SqlValue, code: int) -> None:
    """What does not fit is refused with MySQL's number, and nothing changes."""
    before = dict(session)

    assert code_of(session, name, value) == code
    assert dict(session) == before


def test_numbers_are_cut_to_their_bounds(session: SessionVariables) -> None:
    """A number beyond the bounds becomes the bound, with warning 1292."""
    told: list[int] = []
    session.set("tidb_ddl_reorg_batch_size", 7, lambda code, _text: told.append(code))

    assert session["tidb_ddl_reorg_batch_size"] == 32
    assert told == [1292]


def test_globals_are_for_sessions_to_come() -> None:
    """SET GLOBAL changes what new sessions start with; a session that is there keeps its own, but sees GLOBAL ones."""
    shared = GlobalVariables()
    old = SessionVariables(shared)
    shared.set("max_sort_length", 99)
    shared.set("tidb_gc_life_time", "1h")

    assert (old["max_sort_length"], SessionVariables(shared)["max_sort_length"]) == (1024, 99)
    assert old["tidb_gc_life_time"] == "1h"
    with pytest.raises(SqlRefused) as refused:
        shared.set("tidb_snapshot", "1")
    assert refused.value.mysql_code == 1228


def test_what_goes_together(session: SessionVariables) -> None:
    """Two names of one thing agree, and a charset brings its collation along, a collation its charset."""
    session.set("transaction_isolation", "READ-COMMITTED")
    session.set("collation_connection", "gbk_bin")
    assert (session["tx_isolation"], session["character_set_connection"]) == ("READ-COMMITTED", "gbk")

    session.set("character_set_connection", "utf8mb4")
    assert session["collation_connection"] == "utf8mb4_bin"


def test_traditional_is_many_modes(session: SessionVariables) -> None:
    """A combined mode sets its parts."""
    session.set("sql_mode", "traditional")

    assert {"STRICT_ALL_TABLES", "NO_ZERO_DATE", "TRADITIONAL"} <= set(str(session["sql_mode"]).split(","))
    assert set(str(VARIABLES["sql_mode"].default).split(",")) <= MODE_BITS.keys()


def test_read_only_is_not_listed_by_show_global() -> None:
    """SHOW GLOBAL VARIABLES lists what the server has, not what only a session has."""
    shown = dict(SessionVariables(GlobalVariables({"port": 4711})).show(shared=True))

    assert shown["port"] == "4711"
    assert not [name for name in shown if VARIABLES[name].scope is VariableScope.SESSION]


def test_zones() -> None:
    """SYSTEM is UTC here, offsets count from it, names are of the zone database."""
    assert zone_named("SYSTEM") is UTC
    assert zone_named("-03:30") == timezone(-timedelta(hours=3, minutes=30))
    assert str(zone_named("Europe/Berlin")) == "Europe/Berlin"


def test_collations_belong_to_charsets() -> None:
    """Every charset's default is a known collation of its own."""
    assert all(one.default in COLLATIONS and one.default.startswith(one.name) for one in CHARSETS.values())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SET x = ON", [Assign(SetScope.SESSION, "x", word="ON")]),
        ("SET @@global.x = 1+1", [Assign(SetScope.GLOBAL, "x", "1+1")]),
        ("SET GLOBAL x = DEFAULT", [Assign(SetScope.GLOBAL, "x")]),
        (
            "SET @u := f(1, 2), @@y = 'a,b'",
            [Assign(SetScope.USER, "u", "f(1, 2)"), Assign(SetScope.SESSION, "y", "'a,b'")],
        ),
        ("/*!40101 SET @a=@@b, c='d' */", [Assign(SetScope.USER, "a", "@@b"), Assign(SetScope.SESSION, "c", "'d'")]),
        (
            "SET SESSION TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
            [
                Assign(SetScope.SESSION, "transaction_read_only", word="ON"),
                Assign(SetScope.SESSION, "transaction_isolation", word="SERIALIZABLE"),
            ],
        ),
        ("SET PASSWORD = 'x'", []),
    ],
)
def test_grammar(text: str, found: list[Assign]) -> None:
    """SET reads as its assignments."""
    assert list(read_set(text)) == found
