"""The formats `tidegate` and `tidegate-lake`: what Spark reads equals what the lake and its changelog hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate
from tests.lakes.stages import Play, truths
from tidegate.lakes.data_source import TableChanges, TableView
from tidegate.lakes.lake import Lake
from tidegate.lakes.read import RowFilter
from tidegate.model.errors import ConfigError
from tidegate.sink.delta.rows import folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NAMES = ("bank.accounts", "shop.orders", "shop.order_items")


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """One Spark for this file, which knows the formats."""
    from tidegate.spark.session import session

    started = session()
    tidegate.register(started)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake merged at moments 1 to 6, landed up to 8."""
    where = tmp_path_factory.mktemp("lake")
    play = Play(where)
    for truth in truths()[:8]:
        play.land(truth.ts)
        if truth.n <= 6:
            play.merge(truth.ts)
    return where


def ordered(rows: list[Any]) -> list[str]:
    """Rows without an order of theirs."""
    return sorted(map(repr, rows))


def of(frame: "DataFrame") -> list[dict[str, Any]]:
    """The rows of a DataFrame."""
    return frame.toArrow().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("at", "live"), [("latest", False), (truths()[2].ts, False), ("latest", True)])
def test_a_table_at_a_moment(root: Path, name: str, at: str | int, *, live: bool) -> None:
    """The partitions together have all rows; live, with those in the tail."""
    view = TableView.of({"path": str(root), "table": name, "at": str(at), "live": str(live)})
    lake = Lake(str(root)).at(at)

    rows = [
        row for part in view.bins(RowFilter()) for table in view.rows(part, RowFilter()) for row in table.to_pylist()
    ]

    assert ordered(rows) == ordered((lake.live() if live else lake).arrow(name).to_pylist())
    assert rows


@pytest.mark.parametrize("live", [False, True])
def test_spark_reads_a_table(spark: "SparkSession", root: Path, *, live: bool) -> None:
    """Spark's own reader gives the same rows, with the types of the lake."""
    read = spark.read.format("tidegate-lake").option("table", "shop.orders").option("live", live)
    lake = Lake(str(root))

    frame = read.load(str(root))

    found = lake.live() if live else lake
    assert ordered(of(frame)) == ordered(found.arrow("shop.orders").to_pylist())
    assert frame.schema == found.table("shop.orders", spark).schema


def test_sql_filters_and_columns(spark: "SparkSession", root: Path) -> None:
    """A view in SQL; filters leave out rows and files, and Spark asks again; `columns` reads no others."""
    spark.sql(
        f"create or replace temporary view orders using `tidegate-lake` options (path '{root}', table 'shop.orders')"
    )
    every = {row["id"]: row for row in Lake(str(root)).arrow("shop.orders").to_pylist()}
    some = sorted(every)[3]

    assert of(spark.sql(f"select * from orders where id = {some}")) == [every[some]]
    assert of(spark.sql(f"select id from orders where id in ({some}, -1) and id > 0")) == [{"id": some}]
    assert of(spark.sql("select count(*) as n from orders where id = 1.5")) == [{"n": 0}]
    frame = spark.read.format("tidegate-lake").option("table", "shop.orders").option("columns", "id").load(str(root))
    assert frame.columns == ["id"]
    assert frame.count() == len(every)


def test_a_filter_leaves_out_files(root: Path) -> None:
    """What no file can hold is not read by any task."""
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    view = TableView.of({"path": str(root), "table": "bank.accounts"})

    assert view.bins(view.row_filter([EqualTo(("id",), 1 << 20)])) == []
    assert view.bins(view.row_filter([In(("id",), (1 << 20, 1 << 21))])) == []
    assert view.bins(view.row_filter([GreaterThan(("id",), 1 << 20), EqualTo(("id",), True)])) == view.bins(
        view.row_filter([])
    )


@pytest.mark.parametrize(("name", "columns"), [("bank.accounts", ()), ("shop.orders", ("id", "status", "remark"))])
def test_changes_of_a_range_make_the_later_rows(
    spark: "SparkSession", root: Path, name: str, columns: tuple[str, ...]
) -> None:
    """All changes, folded, are the rows at the end of the range; values that a DDL made are no row's change."""
    lake = Lake(str(root)).at(truths()[5].ts)
    key = list(lake.definition(name).handle_key)

    read = spark.read.format("tidegate").option("table", name).option("ending", str(lake.checkpoint_ts))
    changes = read.option("starting", "0").load(str(root)).toArrow()

    assert changes.num_rows
    now = folded(changes, key)
    names = list(columns) or now.column_names
    assert ordered(now.select(names).to_pylist()) == ordered(lake.arrow(name, names).to_pylist())


def test_ranges_add_up(root: Path) -> None:
    """However a range is cut, its changes come once, and in commit order within a task."""
    changes = TableChanges.of(str(root), "bank.accounts")
    end = changes.frontier()

    def rows(*cuts: int) -> list[str]:
        found = []
        for after, upto in zip((0, *cuts), (*cuts, end), strict=True):
            for task in changes.tasks(after, upto, changes.form()):
                batches = [batch for batch in task.read() if batch.num_rows]
                times = [ts for batch in batches for ts in batch.column("_commit_ts").to_pylist()]
                assert times == sorted(times)
                assert all(after < ts <= upto for ts in times)
                found += [row for batch in batches for row in batch.to_pylist()]
        return ordered(found)

    assert rows() == rows(*(truth.ts for truth in truths()[:8])) == rows(truths()[3].ts + 1)


def test_a_stream_over_stops(spark: "SparkSession", tmp_path: Path) -> None:
    """A stream that is stopped and started while more lands brings what the range brings, each row once."""
    play, root = Play(tmp_path / "lake"), str(tmp_path / "lake")
    play.land(truths()[0].ts)
    play.merge(truths()[0].ts)
    reader = spark.readStream.format("tidegate").option("table", "bank.accounts").option("starting", "0")
    start = reader.option("maxRowsPerBatch", "2000").load(root).writeStream.format("parquet")
    start = start.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))

    for truth in truths()[1:5:3]:
        query = start.start()
        play.land(truth.ts)
        query.processAllAvailable()
        query.stop()

    streamed = of(spark.read.parquet(str(tmp_path / "out")))
    whole = spark.read.format("tidegate").option("table", "bank.accounts").option("starting", "0").load(root)
    assert ordered(streamed) == ordered(of(whole.select(*streamed[0])))


def test_each_micro_batch_merged_by_key_makes_the_table(spark: "SparkSession", root: Path, tmp_path: Path) -> None:
    """Net changes of micro-batches, one after the other, are the rows at the end."""
    made: dict[int, dict[str, Any]] = {}

    def merge(batch: "DataFrame", _number: int) -> None:
        for row in of(tidegate.net_changes(batch, ["id"])):
            op = row.pop("_op")
            made.pop(row["id"], None)
            if op == "upsert":
                made[row["id"]] = row

    reader = spark.readStream.format("tidegate").option("table", "bank.accounts").option("starting", "0")
    stream = reader.option("maxRowsPerBatch", "2000").load(str(root)).writeStream.foreachBatch(merge)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()

    rows = {row["id"]: row for row in Lake(str(root)).live().arrow("bank.accounts").to_pylist()}
    assert made == rows


def test_mistakes(spark: "SparkSession", root: Path, tmp_path: Path) -> None:
    """Unknown options, tables and ranges that are gone are told."""
    with pytest.raises(ConfigError, match="unknown option 'tabel'"):
        TableView.of({"path": str(root), "tabel": "x"})
    with pytest.raises(ConfigError, match="'table' is missing"):
        TableView.of({"path": str(root)})
    with pytest.raises(Exception, match=r"no table shop\.nothing"):
        spark.read.format("tidegate-lake").option("table", "shop.nothing").load(str(root)).count()
    orders = TableChanges.of(str(root), "shop.orders")
    with pytest.raises(ConfigError, match="has landed up to"):
        orders.tasks(0, 1 << 60, orders.form())


def test_what_a_task_is_made_of(root: Path) -> None:
    """Rows steps alone: a task has rows and the definition of their time."""
    changes = TableChanges.of(str(root), "shop.orders")
    tasks = changes.tasks(0, changes.frontier(), changes.form())

    assert tasks
    assert all(task.changes.groups for task in tasks)
    assert {str(task.table.name) for task in tasks} == {"shop.orders"}
