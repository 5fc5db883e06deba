"""Compaction changes files, never rows, versions that snapshots name, or positions."""

import obstore
import pytest

from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY
from tidegate.lakes.lake import Lake
from tidegate.objectstore import deltalog
from tidegate.objectstore.stores import store
from tidegate.sink.delta import upkeep as compaction
from tidegate.sink.delta.snapshots import position
from tidegate.sink.delta.upkeep import Compaction, compact

pytestmark = pytest.mark.slow

ROUNDS = 20


def grown(root, key: str = "") -> Small:
    """A feed that has appended to `t` in many small rounds, the ids falling."""
    feed = Small(root, NO_MERCY)
    feed.ddl(10, f"CREATE TABLE t (id INT{key}, v VARCHAR(9))")
    for n in range(ROUNDS):
        feed.rows.insert(20 + n, id=100 - n, v=n)
        feed.round(20 + n)
    return feed


def head(feed: Small):
    return deltalog.load(feed.options.table_uri("a-1"))


def job(feed: Small) -> Compaction:
    (table,) = feed.sink.snapshot.state.tables.values()
    return Compaction(table, feed.sink.snapshot.tables[table.incarnation].version)


def rows(root) -> list[tuple]:
    return sorted(tuple(row.values()) for row in Lake(str(root)).arrow("s.t").to_pylist())


def test_many_files_become_one(tmp_path):
    """A log table's many files become one in a commit without change of data, adopted by the next snapshot."""
    feed = grown(tmp_path)
    before, at = rows(tmp_path), position(head(feed), "f")
    published = feed.sink.snapshot.tables["a-1"].version
    assert len(head(feed).files()) == ROUNDS

    assert feed.tend().compacted == {"a-1": published + 1}

    assert len(head(feed).files()) == 1
    assert position(head(feed), "f") == at
    assert rows(tmp_path) == before
    feed.round(100)
    assert feed.sink.snapshot.tables["a-1"].version == published + 1
    assert rows(tmp_path) == before
    assert feed.tend().files == ROUNDS
    assert rows(tmp_path) == before
    actions = obstore.get(store(head(feed).uri), f"_delta_log/{published + 1:020d}.json")
    assert b'"dataChange":true' not in actions.bytes().to_bytes()


def test_sorted_by_key(tmp_path, monkeypatch):
    """The files of a table with a key are folded in key order, with bounds."""
    feed = grown(tmp_path, " PRIMARY KEY")
    monkeypatch.setattr(compaction, "SMALL_FILES_MAX", 1)
    before = rows(tmp_path)
    assert len(head(feed).files()) > 1

    feed.tend()

    (file,) = head(feed).files()
    assert (file.lows["id"], file.highs["id"]) == (100 - ROUNDS + 1, 100)
    assert [row["id"] for row in Lake(str(tmp_path)).arrow("s.t").to_pylist()] != []
    feed.round(100)
    assert rows(tmp_path) == before


def test_a_table_ahead_is_left_alone(tmp_path):
    """A table that a round has moved beyond its published version is not compacted."""
    feed = grown(tmp_path)
    work = job(feed)
    feed.rows.insert(200, id=1, v=1)
    feed.round(200)
    version = head(feed).version

    assert compact(work, feed.options) == work.version
    assert head(feed).version == version


def test_compacted_by_somebody_else(tmp_path):
    """What was compacted by hand meanwhile is found and adopted, and nothing is done twice."""
    feed = grown(tmp_path)
    work = job(feed)

    first = compact(work, feed.options)

    assert compact(work, feed.options) == first == work.version + 1
    assert feed.tend().compacted == {"a-1": first}


def test_a_step_that_comes_in_between(tmp_path, monkeypatch):
    """Losing the race for the version, a compaction is not done and the rows of the winner stay."""
    feed = grown(tmp_path)
    work = job(feed)
    folded = compaction._folded

    def slowly(*args):
        actions = folded(*args)
        feed.rows.insert(200, id=1, v=1)
        feed.round(200)
        return actions

    monkeypatch.setattr(compaction, "_folded", slowly)

    assert compact(work, feed.options) == work.version
    assert len(rows(tmp_path)) == ROUNDS + 1


@pytest.mark.slow
def test_spark_reads_it(tmp_path):
    """Spark reads a compacted and swept table at its published version and at its newest."""
    from tidegate.spark.session import session

    feed = grown(tmp_path)
    feed.tend()
    feed.round(100)
    feed.tend()

    uri, version = Lake(str(tmp_path)).location("s.t")
    spark = session()
    for options in ({}, {"versionAsOf": version}):
        found = spark.read.format("delta").options(**options).load(uri).collect()
        assert sorted(tuple(row) for row in found) == rows(tmp_path)
