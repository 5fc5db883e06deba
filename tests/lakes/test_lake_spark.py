"""Snapshots and live views in Spark: the same rows as by delta-rs, and SQL over all tables of one moment."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lakes.stages import Play, truths
from tidegate.lakes import read as lake_local
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, EnvironmentFault, SqlError
from tidegate.spark.session import REBASE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SUM = "select sum(balance) as balance from bank.accounts"
EMPTY_ORDERS = "select count(*) as n from shop.orders left anti join shop.order_items i on shop.orders.id = i.order_id"


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """One Spark for this file."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake merged up to moments 2 and 6, landed up to 8: DDLs in the tail of both."""
    where = tmp_path_factory.mktemp("a lake")
    play = Play(where)
    for truth in truths()[:8]:
        play.land(truth.ts)
        if truth.n in (2, 6):
            play.merge(truth.ts)
    return where


def rows_of(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(
    ("moment", "way"),
    [
        *((moment, way) for moment in (3, 8) for way in ("snapshot small", "live small", "live large")),
        pytest.param(3, "snapshot large", marks=pytest.mark.soak),
        pytest.param(8, "snapshot large", marks=pytest.mark.soak),
    ],
)
def test_spark_and_arrow_agree(
    root: Path, spark: "SparkSession", moment: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's frames have the columns, types and rows that delta-rs and Arrow give; large ones by Delta's reader."""
    lake = Lake(str(root)).at(truths()[moment - 1].ts)
    live = way.startswith("live")
    if way.endswith("large"):
        monkeypatch.setattr(lake_local, "LOCAL_ROWS", -1)
    view = lake.live() if live else lake

    assert view.tables()
    if live:
        assert view.tables() == sorted(truths()[moment - 1].tables)
    for name in view.tables():
        arrow, frame = view.arrow(name), view.table(name, spark).toArrow()
        assert frame.column_names == arrow.column_names, name
        assert frame.schema.types == arrow.schema.types, name
        assert rows_of(frame) == rows_of(arrow), name


def test_small_tables_are_answered_without_a_job(root: Path, spark: "SparkSession") -> None:
    """A point query on a small live table runs no Spark job: its plan holds the one row."""
    frame = Lake(str(root)).live().table("bank.accounts", spark)
    spark.sparkContext.setJobGroup("point", "a point query")

    found = frame.filter(frame.id == 7).collect()

    assert [row.id for row in found] == [7]
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("point") == []


def test_sql_over_one_moment(root: Path, spark: "SparkSession") -> None:
    """A query joins tables of one moment by their names, in snapshots and live, and leaves no view behind."""
    lake = Lake(str(root))

    for view in (lake, lake.at(truths()[1].ts), lake.live(), lake.at(truths()[6].ts).live()):
        assert int(view.sql(SUM, spark).first()["balance"]) == 60_000
        assert view.sql(EMPTY_ORDERS, spark).first()["n"] == 0
    counted = lake.live().sql("with accounts as (select 1) select count(*) from accounts, bank.accounts a", spark)
    assert counted.first()[0] == len(truths()[7].tables["bank.accounts"].rows)
    assert not spark.catalog.listTables()


def test_wrong_queries(root: Path, spark: "SparkSession") -> None:
    """An unknown table or column is told by its own name, and no view stays."""
    lake = Lake(str(root))

    with pytest.raises(ConfigError, match=r"no table shop\.nosuch"):
        lake.sql("select * from shop.nosuch", spark)
    with pytest.raises(SqlError, match="nosuch"):
        lake.sql("select nosuch from bank.accounts", spark)
    assert not spark.catalog.listTables()


def test_frames_outlive_their_view(root: Path, spark: "SparkSession") -> None:
    """A frame of a table that a DDL touched can be read after the names of its view and lake are gone."""
    truth = truths()[3]
    changed = [name for name in truth.tables if name in ("shop.products", "shop.orders", "shop.visits")]

    frames = {name: Lake(str(root)).at(truth.ts).live().table(name, spark) for name in changed}

    assert {name: frame.count() for name, frame in frames.items()} == {
        name: len(truth.tables[name].rows) for name in changed
    }


def test_sql_command(root: Path, spark: "SparkSession") -> None:
    """`tidegate lake sql` prints the rows of a query at the moment that is asked for."""
    from click.testing import CliRunner

    from tidegate.cli.main import main

    words = ["lake", "sql", str(root), SUM, "--live", "--format", "json"]

    assert CliRunner().invoke(main, words).stdout == '{"balance":60000}\n'


def test_dates_that_would_be_others(root: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that reads dates of files as of the Julian calendar is told the line that mends it."""
    monkeypatch.setattr(lake_local, "LOCAL_ROWS", -1)
    lake = Lake(str(root))
    spark.conf.set(REBASE, "LEGACY")
    try:
        for view in (lake, lake.live()):
            with pytest.raises(EnvironmentFault, match=r'spark\.conf\.set\("spark.*", "CORRECTED"\)'):
                view.table("shop.orders", spark)
    finally:
        spark.conf.unset(REBASE)


def test_names_in_a_metastore(root: Path, spark: "SparkSession") -> None:
    """`register` names each table in the session's metastore, twice as well as once, and the names lead to its rows."""
    lake = Lake(str(root))
    for _ in range(2):
        lake.register(spark)

    for name in ("shop.orders", "bank.accounts"):
        schema, table = name.split(".")
        assert spark.sql(f"select count(*) from `{schema}`.`{table}`").first()[0] == lake.count(name)
