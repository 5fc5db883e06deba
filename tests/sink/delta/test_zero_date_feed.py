"""A feed whose upstream has zero dates in a key: stopped by name, and brought on by the way out that is named."""

from pathlib import Path

import pytest

from tests.replay.test_ways_out import create, ddl, ended
from tests.sink.sql.upstream import Upstream
from tests.source.tidb.test_landing import landing
from tidegate import lake
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.model.errors import SchemaError
from tidegate.model.event import Field, Insert
from tidegate.model.mysql import MysqlType
from tidegate.sink.delta.options import DeltaOptions, SchemaChange, ZeroDate
from tidegate.sink.delta.sink import DeltaSink
from tidegate.testing.script import run_here

KEYS = ["2024-00-00", "2023-00-00", "2024-05-00", "2024-05-06"]


def test_zero_dates_in_a_key(tmp_path: Path) -> None:
    """Three rows upstream are three rows in the lake, once zero-date=string is set, beside those that it had; an UPDATE
    that changes the case of a key alone leaves one row."""

    def run(zero_date: ZeroDate) -> None:
        landing(tmp_path / "log", tmp_path / "lake").batch()
        options = DeltaOptions(root=str(tmp_path / "lake"), feed="f", zero_date=zero_date)
        run_here(ChangelogSource(changelog_uri(options.root)), DeltaSink(options))

    upstream = Upstream(tmp_path / "log")
    upstream.run(
        "SET sql_mode = ''",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (u VARCHAR(9) COLLATE utf8mb4_general_ci, since DATE, v INT, PRIMARY KEY (u, since))",
        "INSERT INTO d.t VALUES ('a', '2024-05-06', 1)",
    )
    run("null")
    upstream.run(*(f"INSERT INTO d.t VALUES ('a', '{key}', 2)" for key in KEYS[:3]))
    with pytest.raises(SchemaError, match=r"d\.t column since.*zero date '2024-00-00'.*zero-date=string"):
        run("null")
    run("string")

    rows = lake(str(tmp_path / "lake")).arrow("d.t").to_pylist()
    assert sorted((row["u"], row["since"], row["v"]) for row in rows) == sorted(
        upstream.rows("SELECT u, CONCAT(since), v FROM d.t")
    )

    upstream.run("UPDATE d.t SET u = 'A ' WHERE v = 2", "REPLACE INTO d.t VALUES ('A', '2024-05-06', 3)")
    run("string")
    rows = lake(str(tmp_path / "lake")).arrow("d.t").to_pylist()
    assert sorted((row["u"], row["since"], row["v"]) for row in rows) == sorted(
        upstream.rows("SELECT u, CONCAT(since), v FROM d.t")
    )
    assert len(rows) == len(KEYS)


@pytest.mark.parametrize("policy", ["lenient", "ignore"])
def test_what_a_policy_kept_stays(tmp_path: Path, policy: SchemaChange) -> None:
    """Columns that upstream dropped, and that the lake keeps with its values, are there when dates become texts."""

    def dated(key: int, date: str, *more: str) -> Insert:
        keys = (("u", MysqlType.LONG), ("since", MysqlType.DATE))
        fields = [Field(name, kind, 11, binary=True, handle=True) for name, kind in keys]
        fields += [Field(name, MysqlType.LONG, 65, binary=True) for name in more]
        after = (key, date, *[key for _ in more])
        return Insert(schema="s", table="t", fields=tuple(fields), after=after, pk_names=("u", "since"))

    made = create("t", "u int, since date, x int, y int, primary key (u, since)")
    changed = (ddl("t", "alter table t drop column x"), ddl("t", "alter table t modify column y varchar(9)"))
    begun = (made, dated(1, "2024-01-01", "x", "y"), *changed)
    assert ended(tmp_path, begun, schema_change=policy) is None
    kept = lake(str(tmp_path)).arrow("s.t").schema.remove_metadata()

    assert ended(tmp_path, (*begun, dated(2, "2024-00-00")), schema_change=policy, zero_date="string") is None

    found = lake(str(tmp_path)).arrow("s.t").sort_by("u")
    assert found["since"].to_pylist() == ["2024-01-01", "2024-00-00"]
    assert found["x"].to_pylist() == [1, None]
    assert set(found.schema.remove_metadata()) == {
        *(field for field in kept if field.name != "since"),
        found.schema.field("since").remove_metadata(),
    }
