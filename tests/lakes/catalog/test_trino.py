"""Trino as a reader of the catalog: names, rows and types of a moment, DDLs, an object store, one moment for all."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate
from tests.counts import some
from tests.docs.test_reader_pages import trino_blocks
from tests.lakes.catalog.served import Client, made, served
from tests.lakes.catalog.test_sessions import NAMES, going_on
from tests.lakes.stages import Play, truths
from tests.s3 import BUCKET, SECRET, environment, serving
from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY
from tests.trino import Trino, TrinoFault, running
from tidegate.engine.ports import LocalTasks
from tidegate.objectstore.stores import store
from tidegate.sink.delta.iceberg_projection import project_lake

pytestmark = [pytest.mark.slow, pytest.mark.soak]
PAGE = trino_blocks()[0]
DIRECTORY = {"fs.native-local.enabled", "local.location"}


def printed(block: str, **ours: str) -> dict[str, str]:
    """The lines of a block of Trino's page, by the first of them, with other values."""
    return dict(line.split("=", 1) for line in PAGE[block].splitlines()) | ours


@pytest.fixture(scope="module")
def trino() -> Iterator[Trino]:
    """A server in which statements make catalogs."""
    with running({"etc/config.properties": "catalog.management=dynamic\n"}) as server:
        yield server


def session(client: Client, warehouse: str = "lake") -> dict[str, str]:
    """The properties of a catalog, with the page's token where the client has one."""
    at = {"iceberg.rest-catalog.uri": client.uri, "iceberg.rest-catalog.warehouse": warehouse}
    found = printed("etc/catalog/lake.properties", **at)
    del found["connector.name"]
    return found | (printed("token of etc/catalog/lake.properties") if client.headers else {})


def names(trino: Trino, catalog: str, schema: str) -> list[str]:
    """The tables of a schema."""
    return [row["Table"] for row in trino.rows(f"SHOW TABLES FROM {catalog}.{schema}")]


def sorted_rows(trino: Trino, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table."""
    return sorted(tuple(row.values()) for row in trino.rows(f"SELECT * FROM {table}"))


def test_names_and_rows_of_a_moment(trino: Trino, tmp_path: Path) -> None:
    """With its token Trino finds the names and rows of the moment that its warehouse names, in any case; without it
    nothing."""
    made(tmp_path)
    rows = [(1, 1), (2, 2)]
    with served(tmp_path, "s3cret") as client:
        for warehouse, tables, told in (
            ("lake", ["t", "w"], rows),
            ("lake@now", ["t", "w"], rows),
            ("lake@1", ["t", "u"], rows),
            ("lake@0", ["t", "u"], rows[:1]),
        ):
            with trino.catalog("named", session(client, warehouse)) as catalog:
                schemas = {row["Schema"] for row in trino.rows(f"SHOW SCHEMAS FROM {catalog}")}
                assert schemas - {"information_schema", "system"} == {"empty", "s"}
                assert names(trino, catalog, "s") == tables
                assert sorted_rows(trino, f"{catalog}.s.T") == sorted_rows(trino, f'{catalog}.S."t"') == told
        barred = session(Client(client.uri))
        for asked in (barred, session(client) | {"iceberg.rest-catalog.oauth2.token": "other"}):
            with trino.catalog("barred", asked) as catalog, pytest.raises(TrinoFault, match="needs its bearer token"):
                names(trino, catalog, "s")


def test_types(trino: Trino, tmp_path: Path) -> None:
    """Each table of the recorded shop has in Trino the rows that it has in the lake, at each snapshot."""
    play = Play(tmp_path, iceberg=True)
    for truth in truths():
        play.land(truth.ts)
        play.merge(truth.ts)
    with served(tmp_path) as client:
        for number, truth in enumerate(truths()):
            lake = tidegate.lake(str(tmp_path)).at(truth.ts)
            with trino.catalog("typed", session(client, f"lake@{number}")) as catalog:
                for name in lake.tables():
                    expected = lake.arrow(name)
                    found = pa.Table.from_pylist(trino.rows(f"SELECT * FROM {catalog}.{name}"), expected.schema)
                    key = [(column, "ascending") for column in expected.column_names]
                    assert found.sort_by(key).equals(expected.sort_by(key)), (number, name)


def test_a_lake_that_goes_on(trino: Trino, tmp_path: Path) -> None:
    """A catalog of `lake` shows each DDL with its snapshot; one of `lake@now` stays where its first query found it."""
    feed = made(tmp_path)
    with (
        served(tmp_path) as client,
        trino.catalog("moving", session(client)),
        trino.catalog("pinned", session(client, "lake@now")),
    ):
        assert names(trino, "moving", "s") == ["t", "w"]
        feed.ddl(70, "ALTER TABLE T ADD COLUMN x INT DEFAULT 4, RENAME COLUMN v TO Vv", table="T")
        feed.rows.insert(71, "T", id=3, Vv=3, x=5)
        feed.round(80)
        rows = [(1, 1, 4), (2, 2, 4), (3, 3, 5)]
        assert sorted_rows(trino, "moving.s.t") == sorted_rows(trino, "pinned.s.t") == rows

        feed.ddl(90, "RENAME TABLE T TO y, w TO T", table="T")
        feed.round(95)
        assert names(trino, "moving", "s") == ["t", "y"]
        assert (sorted_rows(trino, "moving.s.t"), sorted_rows(trino, "moving.s.y")) == ([], rows)

        feed.ddl(100, "ALTER TABLE y DROP COLUMN x", table="y")
        feed.ddl(101, "DROP TABLE T", table="T")
        feed.round(105)
        assert names(trino, "moving", "s") == ["y"]
        assert trino.rows("SELECT id, vv FROM moving.s.y WHERE id = 3") == [{"id": 3, "vv": 3}]
        assert names(trino, "pinned", "s") == ["t", "w"]
        assert sorted_rows(trino, "pinned.s.t") == rows


def test_no_writing(trino: Trino, tmp_path: Path) -> None:
    """A read-only catalog refuses what would write, and no file comes or goes."""
    made(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with served(tmp_path) as client, trino.catalog("guarded", session(client)) as catalog:
        for text in (
            "DELETE FROM {}.s.t",
            "DROP TABLE {}.s.t",
            "CREATE TABLE {}.s.x (id INT)",
            "INSERT INTO {}.s.t VALUES (7, 7)",
            "ALTER TABLE {}.s.t EXECUTE optimize",
            "ALTER TABLE {}.s.t EXECUTE remove_orphan_files(retention_threshold => '7d')",
        ):
            with pytest.raises(TrinoFault, match="Access Denied"):
                trino.rows(text.format(catalog))
    assert sorted(tmp_path.rglob("*")) == before


def test_orphans(trino: Trino, tmp_path: Path) -> None:
    """A catalog that may write commits nothing, yet removes the old metadata of other versions; projecting the lake
    brings them back."""
    feed = made(tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    with served(tmp_path) as client:
        allowed = session(client) | {"iceberg.security": "allow_all"}
        with trino.catalog("allowed", allowed) as catalog, trino.catalog("first", session(client, "lake@0")) as first:
            with pytest.raises(TrinoFault, match="Server does not support endpoint"):
                trino.rows(f"DROP TABLE {catalog}.s.t")
            with pytest.raises(TrinoFault, match="GC is disabled"):
                trino.rows(f"ALTER TABLE {catalog}.s.t EXECUTE expire_snapshots(retention_threshold => '7d')")
            trino.rows(f"ALTER TABLE {catalog}.s.t EXECUTE remove_orphan_files(retention_threshold => '7d')")
            assert sorted_rows(trino, f"{catalog}.s.t") == [(1, 1), (2, 2)]
            with pytest.raises(TrinoFault, match="does not exist"):
                sorted_rows(trino, f"{first}.s.t")
            project_lake(feed.options, LocalTasks(pickles=False).run)
            assert sorted_rows(trino, f"{first}.s.t") == [(1, 1)]


def test_a_lake_on_s3(trino: Trino, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trino finds the names in the catalog and brings keys of its own for the bucket."""
    root = f"s3://{BUCKET}/lake"
    with serving(BUCKET) as port:
        store.cache_clear()
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        made(root)
        keys = {
            "s3.endpoint": f"http://127.0.0.1:{port}",
            "s3.aws-access-key": "writer",
            "s3.aws-secret-key": SECRET,
        }
        with served(root) as client:
            asked = {name: value for name, value in session(client).items() if name not in DIRECTORY}
            with trino.catalog("bucket", asked | printed("files of etc/catalog/lake.properties", **keys)) as catalog:
                assert names(trino, catalog, "s") == ["t", "w"]
                assert sorted_rows(trino, f"{catalog}.s.t") == [(1, 1), (2, 2)]
        store.cache_clear()


@pytest.mark.limit(3600)
def test_no_torn_reads(trino: Trino, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Beside a feed, all tables of a catalog of `lake@now` are of one moment, in one statement and in two; in a catalog
    of `lake` some are not."""
    feed = Small(tmp_path, NO_MERCY, iceberg=True)
    for at, name in enumerate(NAMES):
        table = name.removeprefix("s.")
        feed.ddl(at + 1, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", table=table)
        feed.rows.insert(10, table, id=1, v=1)
    feed.round(15)

    def seen(catalog: str) -> set[int]:
        """The numbers that the tables say: seven in one statement, the last one after it."""
        *most, last = (f"SELECT v FROM {catalog}.{name}" for name in NAMES)
        return {row["v"] for text in (" UNION ALL ".join(most), last) for row in trino.rows(text)}

    def pinned(number: int) -> set[int]:
        """A name that was not there: Trino may take up a catalog that it has just dropped, at its old moment."""
        with trino.catalog(f"moment{number}", session(client, "lake@now")) as catalog:
            return seen(catalog)

    with served(tmp_path) as client, trino.catalog("moving", session(client)) as moving, going_on(feed) as published:
        still = [pinned(number) for number in range(some(10, 500))]
        reads = (seen(moving) for _ in range(some(200, 500)))
        torn = list(islice((numbers for numbers in reads if len(numbers) > 1), some(1, 500)))

    record_property("torn reads of Trino", f"{len(torn)}, {len(published)} snapshots")
    assert {len(numbers) for numbers in still} == {1}
    assert len(set().union(*still)) > 1
    assert torn
