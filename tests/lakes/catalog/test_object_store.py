"""A lake in an object store: the catalog reads it there, and readers bring keys of their own."""

import pytest

from tests.lakes.catalog.served import made, served
from tests.readers import Readers
from tests.s3 import BUCKET, SECRET, environment, serving
from tidegate.objectstore.stores import store

pytestmark = pytest.mark.slow


def test_a_lake_on_s3(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg finds the names in the catalog and the files in the bucket; the catalog gives it no keys."""
    root = f"s3://{BUCKET}/lake"
    with serving(BUCKET) as port:
        store.cache_clear()
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        made(root)
        with served(root) as client:
            told = client.ask(f"/v1/{client.prefix('lake@now')}/namespaces/s/tables/T").body
            keys = {"s3.access-key-id": "writer", "s3.secret-access-key": SECRET, "s3.region": "us-east-1"}
            place = {"s3.endpoint": f"http://127.0.0.1:{port}", "s3.force-virtual-addressing": "false"}
            asked = {"type": "rest", "uri": client.uri, "warehouse": "lake@now", **keys, **place}
            names = readers.names("pyiceberg", asked)
            [rows] = readers.tables("pyiceberg", asked, ["s.T"])
        store.cache_clear()

    assert told["metadata-location"].startswith(f"{root}/tables/")
    assert told["config"] == {}
    assert SECRET not in str(told)
    assert names == ["s.T", "s.w"]
    assert rows.sort_by("id").to_pylist() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
