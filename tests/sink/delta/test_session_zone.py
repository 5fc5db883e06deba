"""A lake that follows a TiDB's log has the values that the upstream's sessions made, whatever their time zones."""

from datetime import date, datetime
from itertools import product
from pathlib import Path

import pytest

from tests.sink.sql.upstream import Upstream
from tests.source.tidb.test_landing import landing
from tidegate import lake
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

ZONES = ("+08:00", "-09:30", "America/New_York", "UTC")
CHANGES = (
    "MODIFY ts DATETIME(3)",
    "MODIFY ts DATETIME(6)",
    "MODIFY ts VARCHAR(40)",
    "MODIFY ts BIGINT",
    "MODIFY ts DATE",
    "MODIFY at TIMESTAMP(3) NULL",
    "MODIFY v TIMESTAMP NULL",
    "ADD COLUMN c TIMESTAMP DEFAULT '2024-01-01 12:00:00'",
    "ADD COLUMN c DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)",
    "ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP, ADD COLUMN e DATETIME DEFAULT CURRENT_TIMESTAMP",
)


def shown(value: object) -> str:
    """A value of either side as one text, without trailing zeros of fractions."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None).isoformat(" ")
    text = value.isoformat() if isinstance(value, date) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def test_values_of_a_session(tmp_path: Path) -> None:
    """Stored values that a DDL converts, and those that a new column fills in, through landing and changelog."""
    upstream = Upstream(tmp_path / "log")
    upstream.run("CREATE DATABASE d")
    cases = {f"t{at}": case for at, case in enumerate(product(ZONES, CHANGES))}
    for name, (zone, change) in cases.items():
        upstream.run(
            f"CREATE TABLE d.{name} (id INT PRIMARY KEY, ts TIMESTAMP(6) NULL, at DATETIME, v VARCHAR(30))",
            f"INSERT INTO d.{name} VALUES (1,'2024-02-03 04:05:06.5','2024-07-03 04:05:06','2024-01-02 03:04:05'), "
            "(2,'2024-07-31 23:30:00','2024-10-27 02:30:00','2024-06-02 23:04:05'), (3,NULL,NULL,NULL)",
            f"SET time_zone = '{zone}'",
            f"ALTER TABLE d.{name} {change}",
            "SET time_zone = '+00:00'",
            f"INSERT INTO d.{name} (id) VALUES (4)",
        )
    landing(tmp_path / "log", tmp_path / "lake").batch()
    options = DeltaOptions(root=str(tmp_path / "lake"), feed="f")
    run_here(ChangelogSource(changelog_uri(options.root)), DeltaSink(options))

    found = lake(options.root)
    for name, case in cases.items():
        rows = sorted(found.arrow(f"d.{name}").to_pylist(), key=lambda row: row["id"])
        columns = ", ".join(f"CONCAT(`{column}`)" for column in rows[0])
        truth = upstream.rows(f"SELECT {columns} FROM d.{name} ORDER BY id")
        assert [list(map(shown, row.values())) for row in rows] == [list(map(shown, row)) for row in truth], case
