"""A server is known by what it calls its version."""

import pytest

from tidegate.model.errors import SinkRefused
from tidegate.sink.sql.target import ServerKind, TargetServer, target_of


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
