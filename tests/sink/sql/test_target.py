"""A server is known by what it calls its version."""

import pytest

from tidegate.model.errors import SinkRefused
from tidegate.schema.job import MODE_BITS
from tidegate.sink.sql.connection import KINDS, ROWS, ServerKind, TargetServer, target_of
from tidegate_upstream.tidb.variables import VARIABLES


@pytest.mark.parametrize(
    ("version", "kind", "numbers"),
    [
        ("5.7.25-TiDB-v8.5.1", ServerKind.TIDB, (8, 5, 1)),
        ("8.0.11-TiDB-v7.5.0-serverless", ServerKind.TIDB, (7, 5, 0)),
        ("11.8.3-MariaDB-0+deb13u1", ServerKind.MARIADB, (11, 8, 3)),
        ("5.5.5-10.3.2-MariaDB-log", ServerKind.MARIADB, (10, 3, 2)),
        ("8.0.36", ServerKind.MYSQL, (8, 0, 36)),
        ("8.0.36-28", ServerKind.MYSQL, (8, 0, 36)),
    ],
)
def test_versions(version: str, kind: ServerKind, numbers: tuple[int, ...]) -> None:
    """Each kind of server is told from the others, with its own version."""
    assert target_of(version, {}) == TargetServer(kind, numbers)


def test_no_version() -> None:
    """What has no version is no server that we write to."""
    with pytest.raises(SinkRefused, match="no MySQL"):
        target_of("proxy", {})


def test_variables() -> None:
    """A variable that the server does not have is absent, and a packet is 16 MiB unless it says otherwise."""
    target = target_of("8.0.36", {"max_allowed_packet": "1024"})
    assert (target.has("tidb_txn_mode"), target.packet_bytes) == (False, 1024)
    assert target_of("8.0.36", {}).packet_bytes == 1 << 24


def settings(version: str, *variables: str) -> dict[str, str]:
    """What sessions set there, of rows and of DDLs."""
    target = target_of(version, dict.fromkeys(variables, ""))
    wanted = [*ROWS, *target.traits.rows, *target.traits.ddls]
    return {name: value for name, value, _ in target.settings(wanted)}


def test_a_tidb_is_asked_for_what_it_has() -> None:
    """Sessions set variables that a TiDB knows, and modes that it knows: it answers 1105 to one that it does not."""
    target = target_of("8.0.11-TiDB-v8.5.4", dict.fromkeys(KINDS[ServerKind.TIDB].optional, ""))
    for name, value, _ in target.settings([*ROWS, *target.traits.rows, *target.traits.ddls]):
        assert name in VARIABLES.keys() | {"tidb_placement_mode"}, name
        assert name != "sql_mode" or set(value.strip("'").split(",")) <= MODE_BITS.keys()


def test_settings_of_kinds() -> None:
    """A mode or variable of one kind is not asked of another, nor of a release that has not got it."""
    assert "TIME_ROUND_FRACTIONAL" in settings("11.8.3-MariaDB")["sql_mode"]
    for version in ("10.3.2-MariaDB", "8.0.36", "5.7.25-TiDB-v8.5.1"):
        assert "TIME_ROUND_FRACTIONAL" not in settings(version)["sql_mode"]
    assert "max_statement_time" in settings("10.11.6-MariaDB")
    assert not settings("8.0.36").keys() & {"max_statement_time", "tidb_cdc_write_source", "tx_isolation"}
    assert "tx_isolation" in settings("5.7.44", "tx_isolation")
    assert "tidb_cdc_write_source" in settings("8.0.11-TiDB-v8.5.4", "tidb_cdc_write_source")
