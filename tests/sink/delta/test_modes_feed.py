"""A changelog and a history made by `tidegate run` from a real broker, asked by SQL and by `tidegate verify`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.rig import Topic, cli, differences, feed, moment_ts, recorded, truths
from tidegate.lakes.lake import Lake
from tidegate.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

NOW = {
    "changelog": """
        select id, balance from (
          select *, row_number() over (
            partition by id
            order by _commit_ts desc, _commit_seq desc, _change_type in ('insert', 'update_postimage') desc) as nth
          from bank.accounts where _commit_ts <= {ts})
        where nth = 1 and _change_type in ('insert', 'update_postimage')""",
    "history": """
        select id, balance from bank.accounts
        where _valid_from <= {ts} and (_valid_to > {ts} or _valid_to is null)""",
}
"""The questions that docs/lake.md teaches."""


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """The Spark of this process."""
    started = session()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> Topic:
    """The Canal-JSON recording in a real broker."""
    return Topic.fed(bootstrap, "shop-modes", "canal", recorded("canal"))


def with_mode(words: list[str], mode: str) -> list[str]:
    """The words of a run whose sink is in that mode."""
    return [f"{word}&mode={mode}" if word.startswith("delta:") else word for word in words]


@pytest.mark.parametrize("mode", NOW)
def test_a_feed_keeps_the_past(topic: Topic, spark: "SparkSession", tmp_path: Path, mode: str) -> None:
    """Stopped and started again, the lake equals the database by `verify`, and SQL on it tells past moments as well."""
    lake = tmp_path / "lake"
    for moment in (9, 12):
        done = cli(*with_mode(feed(topic.uri(), lake, moment=moment), mode))
        assert done.exit_code == 0, done.stderr
        assert differences(lake, "--at", str(moment)) == {}

    for truth in truths()[7:]:
        rows = Lake(str(lake)).sql(NOW[mode].format(ts=truth.ts), spark).collect()
        accounts = truth.tables["bank.accounts"].rows
        assert {row[0]: row[1] for row in rows} == {row[0]["i"]: row[1]["i"] for row in accounts}, truth.n


@pytest.mark.usefixtures("spark")
def test_a_lake_keeps_its_mode(topic: Topic, tmp_path: Path) -> None:
    """A feed that comes back in another mode is refused with both words, and the lake stays as it was."""
    lake = tmp_path / "lake"
    assert cli(*with_mode(feed(topic.uri(), lake, moment=2), "history")).exit_code == 0

    refused = cli(*feed(topic.uri(), lake, moment=3))

    assert refused.exit_code == 1
    assert "mode=history" in refused.stderr
    assert "mode=replica" in refused.stderr
    assert Lake(str(lake)).checkpoint_ts == moment_ts(2)
