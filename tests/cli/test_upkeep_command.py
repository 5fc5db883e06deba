"""`tidegate lake upkeep` says and does what the feed's limits allow."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY, published
from tidegate.cli.lake import upkeep
from tidegate.config.delta import parse_delta
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.upkeep import note_limits, noted_limits

SOURCE = "kafka://h:9092/t?protocol=open-protocol"


def run(*arguments: str) -> dict[str, int]:
    result = CliRunner().invoke(upkeep, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def lake(tmp_path):
    feed = Small(tmp_path, NO_MERCY)
    feed.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY)")
    for ts in range(20, 30):
        feed.rows.insert(ts, id=ts)
        feed.round(ts)
    note_limits(feed.options, dataclasses.replace(NO_MERCY, snapshot_ms=10**9))
    return tmp_path


def test_the_feeds_limits_hold(lake):
    """Without options, by hand forgets no more than the feed does."""
    assert run(str(lake))["snapshots"] == 0
    assert len(published(lake)) == 10


def test_by_hand(lake):
    """A dry run tells the number and changes nothing; the run itself leaves the newest snapshot, readable."""
    assert run(str(lake), "--snapshot-retention", "0", "--dry-run")["snapshots"] == 9
    assert len(published(lake)) == 10

    done = run(str(lake), "--snapshot-retention", "0")

    assert (done["snapshots"], done["dry_run"]) == (9, False)
    assert done["files"] + run(str(lake))["files"] > 0
    assert published(lake) == [9]
    assert Lake(str(lake)).arrow("s.t").num_rows == 10


def test_for_people(lake):
    """Without --json it prints sentences."""
    result = CliRunner().invoke(upkeep, [str(lake), "--dry-run"], catch_exceptions=False)

    assert result.output.startswith("0 snapshots would be removed")


def test_no_lake(tmp_path):
    """A directory that is not a lake is not made one."""
    with pytest.raises(ConfigError, match="not a lake"):
        CliRunner().invoke(upkeep, [str(tmp_path / "x")], catch_exceptions=False)
    assert not (tmp_path / "x").exists()
    (tmp_path / "_tidegate").mkdir()
    with pytest.raises(ConfigError, match="--snapshot-retention"):
        CliRunner().invoke(upkeep, [str(tmp_path), "--snapshot-retention", "x"], catch_exceptions=False)


def test_limits(tmp_path):
    """Sink parameters become limits; what a feed notes in the lake is what is read back."""
    uri = f"delta://{tmp_path}?snapshot-retention=2h&changelog-retention=5s&recover-retention=1m"
    limits = parse_delta(uri).limits
    assert (limits.snapshot_ms, limits.changelog_ms, limits.recover_ms) == (7_200_000, 5_000, 60_000)
    assert parse_delta(f"delta://{tmp_path}").limits == Limits()

    options = DeltaOptions(root=str(tmp_path), feed="")
    assert noted_limits(options) == Limits()
    note_limits(options, limits)
    assert noted_limits(options) == limits
