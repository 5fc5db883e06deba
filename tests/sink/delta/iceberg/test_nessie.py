"""A lake's names in a real REST catalog: Nessie, over a lake in an S3 server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.nessie import running
from tests.readers import Readers
from tests.s3 import BUCKET, SECRET, environment, serving
from tests.sink.delta.small import Small
from tidegate.engine.retention import Limits
from tidegate.objectstore.stores import store as clients
from tidegate.sink.delta.iceberg_catalogs import LOAD, TRANSACTION, CatalogAnswer, RestCatalog, RestClient, requirements

pytestmark = [pytest.mark.slow, pytest.mark.soak]
LAKE = f"s3://{BUCKET}/shop"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of an S3 server with which this process speaks; it takes Nessie's way of signing, too."""
    with serving(BUCKET, signed=False) as port:
        clients.cache_clear()
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        yield port
        clients.cache_clear()


def change(rest: RestClient, table: str, seen: int) -> dict[str, Any]:
    """A harmless change of a table, for main at a snapshot."""
    there = rest.ask(LOAD, namespace="s", table=table)["metadata"]
    return {
        "identifier": {"namespace": ["s"], "name": table},
        "requirements": requirements(there | {"refs": {"main": {"snapshot-id": seen}}}),
        "updates": [{"action": "set-properties", "updates": {"seen": str(seen)}}],
    }


def test_nessie(store: int, readers: Readers) -> None:
    """Tables, rows, DDLs, renames, swaps and drops arrive; PyIceberg reads them by their names; a commit in which one
    requirement is stale changes nothing."""
    with running(store) as uri:
        feed = Small(LAKE, Limits(), iceberg=True)  # type: ignore[arg-type]
        catalog = RestCatalog(feed.options, RestClient(uri, "lake"))
        found = {
            "type": "rest",
            "uri": uri,
            "warehouse": "lake",
            "header.X-Iceberg-Access-Delegation": "",
            "s3.endpoint": f"http://127.0.0.1:{store}",
            "s3.access-key-id": "writer",
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

        def shows(upto: int, **rows: list[dict[str, Any]]) -> None:
            feed.round(upto)
            catalog.publish(feed.sink.snapshot)
            assert readers.names("pyiceberg", found) == [f"s.{name}" for name in rows]
            for seen, told in zip(
                readers.tables("pyiceberg", found, [f"s.{x}" for x in rows]), rows.values(), strict=True
            ):
                assert sorted(seen.to_pylist(), key=str) == told

        feed.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        feed.ddl(11, "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20))", "u")
        feed.rows.insert(20, id=1, v="a")
        shows(20, t=[{"id": 1, "v": "a"}], u=[])

        feed.rows.insert(30, id=2, v="b")
        feed.rows.insert(30, "u", id=7, v="c")
        shows(30, t=[{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], u=[{"id": 7, "v": "c"}])

        rest = RestClient(uri, "lake")
        rest.begin()
        with pytest.raises(CatalogAnswer) as told:
            rest.ask(TRANSACTION, {"table-changes": [change(rest, "u", 2), change(rest, "t", 2)]})
        assert told.value.status == 409
        for table in ("t", "u"):
            assert "seen" not in rest.ask(LOAD, namespace="s", table=table)["metadata"]["properties"]

        feed.ddl(40, "ALTER TABLE t ADD COLUMN w INT DEFAULT 4")
        feed.ddl(41, "ALTER TABLE t DROP COLUMN v")
        shows(45, t=[{"id": 1, "w": 4}, {"id": 2, "w": 4}], u=[{"id": 7, "v": "c"}])

        feed.ddl(50, "RENAME TABLE t TO a, u TO t, a TO u", "t")
        shows(55, t=[{"id": 7, "v": "c"}], u=[{"id": 1, "w": 4}, {"id": 2, "w": 4}])

        feed.ddl(60, "RENAME TABLE u TO y", "u")
        feed.ddl(61, "DROP TABLE t", "t")
        feed.rows.insert(62, "y", id=9, w=5)
        shows(65, y=[{"id": 1, "w": 4}, {"id": 2, "w": 4}, {"id": 9, "w": 5}])
