"""Each endpoint of the catalog, over HTTP: what it answers, and how it refuses."""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lakes.catalog.served import Client, made, served
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Parked
from tidegate.model.tso import compose, to_datetime
from tidegate.sink.delta.snapshots import publish

pytestmark = pytest.mark.slow

ERRORS = [
    ("GET", "/v1/lake/namespaces/none", 404, "NoSuchNamespaceException", "no database none at snapshot 2"),
    ("GET", "/v1/lake/namespaces/s%1Fx", 404, "NoSuchNamespaceException", "no database s.x"),
    ("GET", "/v1/lake/namespaces/none/tables", 404, "NoSuchNamespaceException", "no database none"),
    ("GET", "/v1/lake/namespaces?parent=none", 404, "NoSuchNamespaceException", "no database none"),
    ("GET", "/v1/lake/namespaces/s/tables/none", 404, "NoSuchTableException", "no table s.none at snapshot 2"),
    ("GET", "/v1/lake/namespaces/s/tables/u", 404, "NoSuchTableException", "no table s.u at snapshot 2"),
    ("GET", "/v1/lake/namespaces/s/tables?pageToken=&pageSize=0", 400, "BadRequestException", "pageSize 0"),
    ("GET", f"/v1/lake/namespaces?pageSize={'9' * 5000}", 400, "BadRequestException", "pageSize 9999"),
    ("GET", f"/v1/config?warehouse=lake@{'9' * 5000}", 400, "BadRequestException", "neither a TSO"),
    ("GET", f"/v1/at-{'9' * 5000}/namespaces", 404, "NoSuchWarehouseException", "not a prefix"),
    ("GET", "/v1/at-99999999999999999999/namespaces", 404, "NoSuchWarehouseException", "never published"),
    ("GET", "/v1/lake/namespaces/%2e%2e%2f%00/tables/%ff", 404, "NoSuchNamespaceException", "no database ../"),
    ("GET", "/v1/lake/namespaces/s/views/v", 404, "NoSuchViewException", "only tables"),
    ("GET", "/v1/lake/namespaces/none/views", 404, "NoSuchNamespaceException", "no database none"),
    ("GET", "/v1/at-7/namespaces", 404, "NoSuchWarehouseException", "snapshot 7 was never published"),
    ("GET", "/v1/other/namespaces", 404, "NoSuchWarehouseException", "other is not a prefix"),
    ("GET", "/v1/config?warehouse=lake@7", 404, "NoSuchWarehouseException", "snapshot 7 was never published"),
    (
        "GET",
        "/v1/config?warehouse=lake@1970-01-01",
        404,
        "NoSuchWarehouseException",
        "no published snapshot at or before",
    ),
    ("GET", "/v1/config?warehouse=lake@yesterday", 400, "BadRequestException", "'yesterday' is neither a TSO"),
    ("GET", "/v1/elsewhere", 404, "NoSuchPathException", "/v1/elsewhere"),
    ("GET", "/", 404, "NoSuchPathException", "not a path"),
    ("POST", "/v1/lake/namespaces", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/namespaces/s/tables", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/namespaces/s/tables/T", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/namespaces/s/properties", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/namespaces/s/register", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/namespaces/s/views", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/tables/rename", 403, "ForbiddenException", "read-only"),
    ("POST", "/v1/lake/transactions/commit", 403, "ForbiddenException", "read-only"),
    ("DELETE", "/v1/lake/namespaces/s", 403, "ForbiddenException", "read-only"),
    ("DELETE", "/v1/lake/namespaces/s/tables/T?purgeRequested=true", 403, "ForbiddenException", "read-only"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of the catalog of a small lake."""
    root = tmp_path_factory.mktemp("lake")
    made(root)
    with served(root) as found:
        yield found


def test_config(client: Client) -> None:
    """The config call gives the prefix, and tells of the endpoints that answer."""
    told = client.ask("/v1/config?warehouse=lake")

    assert told.status == 200
    assert told.headers["content-type"] == "application/json"
    assert told.body["defaults"] == {}
    assert told.body["overrides"] == {"prefix": "lake"}
    assert told.body["endpoints"] == [
        "GET /v1/{prefix}/namespaces",
        "GET /v1/{prefix}/namespaces/{namespace}",
        "HEAD /v1/{prefix}/namespaces/{namespace}",
        "GET /v1/{prefix}/namespaces/{namespace}/tables",
        "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    ]
    assert client.ask("/v1/config").body == told.body


@pytest.mark.parametrize(
    ("warehouse", "prefix"),
    [
        ("lake", "lake"),
        ("anything", "lake"),
        ("lake@now", "at-2"),
        ("lake@latest", "at-2"),
        ("lake@", "at-2"),
        ("lake@0", "at-0"),
        ("lake@1", "at-1"),
        ("/srv/shop@home/lake@1", "at-1"),
        ("s3%3A%2F%2Fbucket%2Flake%401", "at-1"),
        (f"lake@{compose(20_000)}", "at-2"),
        (f"lake@{to_datetime(compose(20_000)):%Y-%m-%dT%H:%M:%S.%f}Z", "at-2"),
        ("lake@2026-01-02T03:04:05%2B02:00", "at-2"),
    ],
)
def test_warehouses(client: Client, warehouse: str, prefix: str) -> None:
    """A warehouse means a moment, and the prefix names the snapshot of it."""
    assert client.prefix(warehouse) == prefix


def test_a_pinned_session_is_told_its_moment(client: Client) -> None:
    """The config of a pinned session names snapshot and checkpoint."""
    assert client.ask("/v1/config?warehouse=lake@1").body["overrides"] == {
        "prefix": "at-1",
        "tidegate.snapshot": "1",
        "tidegate.checkpoint-ts": "40",
    }


def test_namespaces(client: Client) -> None:
    """Databases are namespaces of one level, with the names that they were given."""
    assert client.ask("/v1/lake/namespaces").body == {"namespaces": [["Empty"], ["s"]], "next-page-token": None}
    assert client.ask("/v1/lake/namespaces?parent=").body["namespaces"] == [["Empty"], ["s"]]
    assert client.ask("/v1/lake/namespaces?parent=s").body["namespaces"] == []


def test_a_namespace(client: Client) -> None:
    """A database is found in any case and tells the name that it was given."""
    assert client.ask("/v1/lake/namespaces/EMPTY").body == {
        "namespace": ["Empty"],
        "properties": {"database": "Empty"},
    }


def test_tables(client: Client) -> None:
    """The tables of a database are those of the session's snapshot."""
    names = {
        prefix: [
            (one["namespace"], one["name"])
            for one in client.ask(f"/v1/{prefix}/namespaces/S/tables").body["identifiers"]
        ]
        for prefix in ("lake", "at-0", "at-2")
    }

    assert names["lake"] == names["at-2"] == [(["s"], "T"), (["s"], "w")]
    assert names["at-0"] == [(["s"], "T"), (["s"], "u")]
    assert client.ask("/v1/lake/namespaces/Empty/tables").body == {"identifiers": [], "next-page-token": None}


def test_pages(client: Client) -> None:
    """Lists come in pages of the size asked for, until there is no next token; without a token they are whole."""
    first = client.ask("/v1/lake/namespaces/s/tables?pageToken=&pageSize=1").body
    second = client.ask(f"/v1/lake/namespaces/s/tables?pageToken={first['next-page-token']}&pageSize=1").body
    spaces = client.ask("/v1/lake/namespaces?pageToken=&pageSize=1").body

    assert [one["name"] for one in first["identifiers"] + second["identifiers"]] == ["T", "w"]
    assert second["next-page-token"] is None
    assert spaces == {"namespaces": [["Empty"]], "next-page-token": "Empty"}
    assert len(client.ask("/v1/lake/namespaces/s/tables?pageSize=1").body["identifiers"]) == 2


def test_a_table(client: Client) -> None:
    """A table is answered with its metadata of the session's snapshot, byte for byte, and where that lies."""
    for prefix, version in (("at-0", 1), ("at-1", 2), ("lake", 2)):
        for query in ("", "?snapshots=all", "?snapshots=refs"):
            told = client.ask(f"/v1/{prefix}/namespaces/s/tables/t{query}")
            assert told.status == 200
            assert told.body["config"] == {}
            assert told.body["metadata"]["current-snapshot-id"] == version + 1
            assert told.body["metadata-location"].startswith("file:///")
            assert told.body["metadata-location"].endswith(f"/metadata/v{version + 1}.metadata.json")


def test_a_table_that_is_known(client: Client) -> None:
    """A client that names the metadata that it has is told that nothing has changed, until it has."""
    old = client.ask("/v1/at-0/namespaces/s/tables/T").headers["etag"]
    known = {"If-None-Match": f'"x", {old}'}

    assert client.ask("/v1/at-0/namespaces/s/tables/T", headers=known).status == 304
    assert client.ask("/v1/at-1/namespaces/s/tables/T", headers=known).status == 200


def test_heads(client: Client) -> None:
    """HEAD tells whether a GET would be answered, without a body."""
    statuses = {
        path: client.ask(f"/v1/lake/namespaces/{path}", "HEAD")[:2]
        for path in ("s", "none", "s/tables/t", "s/tables/none")
    }

    assert statuses == {
        "s": (204, None),
        "none": (404, None),
        "s/tables/t": (204, None),
        "s/tables/none": (404, None),
    }


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: f"{row[0]} {row[1][:60]}")
def test_errors(client: Client, row: tuple[str, str, int, str, str]) -> None:
    """What is not there, not understood or not allowed is refused in the specification's form, with the reason."""
    method, path, status, kind, why = row
    told = client.ask(path, method)

    assert (told.status, told.error[0]) == (status, kind)
    assert why in told.error[1]


def test_views_and_reports(client: Client) -> None:
    """There are no views, reports of metrics are taken and dropped, and nobody gets a token here."""
    assert client.ask("/v1/lake/namespaces/s/views").body == {"identifiers": [], "next-page-token": None}
    assert client.ask("/v1/lake/namespaces/s/tables/T/metrics", "POST").status == 204
    refused = client.ask("/v1/oauth/tokens", "POST")
    assert refused.status == 400
    assert refused.body["error"] == "unsupported_grant_type"
    assert "`token`" in refused.body["error_description"]
    assert client.ask("/healthz").body == {"status": "ok"}


def test_a_name_of_another_page(client: Client) -> None:
    """Without a token, a request under a name that is not the machine's own is refused."""
    assert client.ask("/v1/config", headers={"Host": "localhost:1"}).status == 200
    assert client.ask("/v1/config", headers={"Host": "evil.example"}).error[0] == "ForbiddenException"


def test_tokens(tmp_path: Path) -> None:
    """With a token only its bearers are answered, under any name; the rest learn nothing of what is there."""
    made(tmp_path)
    with served(tmp_path, "s3cret") as client:
        nobody = Client(client.uri)
        assert client.ask("/v1/lake/namespaces", headers={"Host": "lake.example"}).status == 200
        assert client.ask("/v1/lake/namespaces", headers={"Authorization": "bearer s3cret"}).status == 200
        for header in (
            {},
            {"Authorization": "Bearer s3cre"},
            {"Authorization": "s3cret"},
            {"Authorization": "Basic s3cret"},
        ):
            for path in ("/v1/config", "/v1/lake/namespaces/none", "/v1/elsewhere"):
                told = nobody.ask(path, headers=header)
                assert (told.status, told.error[0]) == (401, "NotAuthorizedException")
                assert told.headers["www-authenticate"] == "Bearer"
        assert nobody.ask("/healthz").status == 200
        assert nobody.ask("/v1/oauth/tokens", "POST").status == 400


def test_a_table_without_metadata(tmp_path: Path) -> None:
    """A table that is not projected is told with the command that does it."""
    made(tmp_path, iceberg=False)
    with served(tmp_path) as client:
        told = client.ask("/v1/lake/namespaces/s/tables/T")

    assert (told.status, told.error[0]) == (404, "NoSuchTableException")
    assert f"tidegate lake project {tmp_path}" in told.error[1]


def test_a_snapshot_that_is_forgotten(tmp_path: Path) -> None:
    """A session whose snapshot the lake's retention has removed is told so, whether its names are known or not."""
    feed = made(tmp_path)
    with served(tmp_path) as client:
        path = f"/v1/{client.prefix('lake@0')}/namespaces/s/tables/T"
        assert client.ask(path).status == 200
        for later_s in range(1, 4):
            feed.tend(now_ms=int((time.time() + later_s) * 1000))
        known, unknown = client.ask(path).error, client.ask(path.replace("at-0", "at-1")).error

    assert known[0] == "NoSuchTableException"
    assert "retention has removed that snapshot" in known[1]
    assert unknown[0] == "NoSuchWarehouseException"
    assert "retention has removed it" in unknown[1]


def test_a_parked_table(tmp_path: Path) -> None:
    """A table whose rows are of another ts is refused with the reason; the others are answered."""
    feed = made(tmp_path)
    snapshot = feed.sink.snapshot
    [incarnation] = [one for one, table in snapshot.tables.items() if table.table == "T"]
    parked = Parked((incarnation,), ("s.T",), Checkpoint(40), "", "CDC:ErrSink", "disk full")
    publish(feed.options, dataclasses.replace(snapshot, number=3, parked=(parked,)))
    with served(tmp_path) as client:
        told = client.ask("/v1/lake/namespaces/s/tables/T")
        other = client.ask("/v1/lake/namespaces/s/tables/w")

    assert (told.status, told.error[0]) == (403, "ForbiddenException")
    assert "disk full" in told.error[1]
    assert other.status == 200


def test_a_lake_that_goes_on(tmp_path: Path) -> None:
    """A moving session sees each new snapshot at once, a pinned one stays; a lake that begins anew is seen, too."""
    with served(tmp_path / "lake") as client:
        assert client.ask("/v1/lake/namespaces").body["namespaces"] == []
        assert client.ask("/v1/config?warehouse=lake@now").error[0] == "NoSuchWarehouseException"
        feed = made(tmp_path / "lake")
        prefix = client.prefix("lake@now")
        feed.ddl(70, "CREATE TABLE x (id INT PRIMARY KEY)", table="x")
        feed.round(80)
        moving, pinned = (client.ask(f"/v1/{one}/namespaces/s/tables").body["identifiers"] for one in ("lake", prefix))

    assert [one["name"] for one in moving] == ["T", "w", "x"]
    assert [one["name"] for one in pinned] == ["T", "w"]
