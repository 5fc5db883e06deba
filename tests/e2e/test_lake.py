"""A finished lake as its readers see it: Spark, delta-rs, past moments, tables by rule, one writing feed."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.e2e.conftest import MOMENTS
from tests.e2e.rig import Topic, cli, differences, feed, moment_ts, recorded, truths
from tidegate.config.changefeed import Changefeed
from tidegate.engine.progress import Progress
from tidegate.lakes.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

RULES = ("shop.*", "!shop.visits*", "!shop.order*")


def words(rules: tuple[str, ...]) -> list[str]:
    return [word for rule in rules for word in ("--filter", rule)]


def rows_of(table: pa.Table) -> list[str]:
    """Rows as texts in an order that is the same for the same rows."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_stop_stays_readable(finished: Path, moment: int) -> None:
    """The lake at each ts where a run ended is, for ever, what the database was at that ts."""
    assert differences(finished, "--at", str(moment)) == {}
    assert Lake(str(finished)).at(moment_ts(moment)).checkpoint_ts == moment_ts(moment)


def test_spark_and_delta_rs_agree(finished: Path, spark: "SparkSession") -> None:
    """Spark's own Delta reader and delta-rs give the same columns, types and rows of every table."""
    lake = Lake(str(finished))

    assert sorted(lake.tables()) == sorted(truths()[-1].tables)
    for name in lake.tables():
        arrow, frame = lake.arrow(name), lake.table(name, spark).toArrow()
        assert frame.column_names == arrow.column_names, name
        assert frame.schema.types == arrow.schema.types, name
        assert rows_of(frame) == rows_of(arrow), name


def test_columns_have_their_last_names(finished: Path) -> None:
    """After renames, moves and drops the columns stand under the database's last names, in its order."""
    lake = Lake(str(finished))

    for name, truth in truths()[-1].tables.items():
        stored = [column.name for column in truth.columns if column.generated != "virtual"]
        assert lake.arrow(name).column_names == stored, name


def test_another_feed_is_refused(finished: Path, open_topic: Topic) -> None:
    """A lake belongs to one changefeed: another id is refused with both names, and changes nothing."""
    before = Lake(str(finished)).snapshot.number

    refused = cli(*feed(open_topic.uri(), finished, "-c", "somebody-else"))

    assert refused.exit_code == 1
    assert "somebody-else" in refused.stderr
    assert "belongs to changefeed" in refused.stderr
    assert Lake(str(finished)).snapshot.number == before
    assert cli(*feed(open_topic.uri(), finished)).exit_code == 0, "its own feed still may"


@pytest.mark.usefixtures("spark")
def test_filter(canal_topic: Topic, tmp_path: Path) -> None:
    """With filter rules the lake has just the tables that they let pass, equal to the database's."""
    lake = tmp_path / "lake"
    kept = {name for name in truths()[-1].tables if name.startswith("shop.") and not name.startswith("shop.visits")}

    done = cli(*feed(canal_topic.uri(), lake, *words(RULES)))

    assert done.exit_code == 0, done.stderr
    assert set(Lake(str(lake)).tables()) == {name for name in kept if not name.startswith("shop.order")}
    assert differences(lake, *words(RULES)) == {}


def test_python_api(bootstrap: str, spark: "SparkSession", tmp_path: Path) -> None:
    """`Changefeed(source, sink).run(spark)` brings a lake up to the ts that is asked for and tells how it goes."""
    topic = Topic.fed(bootstrap, "api", "canal", recorded("canal", 2))
    heard: list[Progress] = []

    done = Changefeed(topic.uri(), f"delta://{tmp_path}/lake").run(spark, until=moment_ts(2), on_progress=heard.append)

    assert (done.phase, done.checkpoint_ts) == ("stopped", moment_ts(2))
    assert heard[-1] == done
    assert 0 < done.rows <= done.rows_landed
    assert done.messages == sum(map(len, recorded("canal", 2)))
    assert differences(tmp_path / "lake") == {}
