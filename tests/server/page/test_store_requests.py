"""What the page asks an object store: nothing for what the server has in memory, and of a history only what is new."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.s3 import BUCKET, environment, serving
from tests.s3_proxy import Request, running
from tests.server.http_kit import served
from tests.server.kit import ServerHome, until
from tidegate.objectstore.stores import store
from tidegate.server.documents import documents_in
from tidegate.server.record import FeedId, FeedRecord

pytestmark = pytest.mark.slow

API = "/api/tidegate/v1"
DELAY_S = 0.02
FEEDS = 20
PARTS = (
    "ddls",
    "changes?after={newest}",
    "dead_letters",
    "snapshots",
    "schema",
    "schema?table=test.a",
    "schema?table=test.a&ts={ts}",
)
FEED = FeedId("default", "lake")


@pytest.fixture(scope="module")
def seen() -> Iterator[list[Request]]:
    """The requests to a store that takes 20 ms for each."""
    with (
        serving(BUCKET) as port,
        running(port, delay_s=DELAY_S) as (counted, made),
        pytest.MonkeyPatch.context() as env,
    ):
        store.cache_clear()
        for name, value in environment(counted).items():
            env.setenv(name, value)
        yield made.requests
        store.cache_clear()


def of_feeds(seen: list[Request]) -> list[str]:
    """The paths asked for, but for the lease of the server."""
    return [request.path for request in seen if not re.search("/data/(owner|captures|servers|probe)", request.path)]


def test_what_is_in_memory_is_not_asked_for(seen: list[Request], tmp_path: Path) -> None:
    """A list of changefeeds, and the line of one, ask the store for nothing. The second request for rows, DDLs, dead
    letters, definitions or snapshots asks once whether there is something new, and has it if there is."""
    place, home = ServerHome(tmp_path), f"s3://{BUCKET}/data"
    documents = documents_in(home)
    for number in range(FEEDS):
        record = FeedRecord(
            id=FeedId("default", f"feed-{number}"),
            sink_uri="delta:///srv/lake",
            source_uri="tidb:///log",
            state="stopped",
        )
        documents.write(record.id.document, msgspec.json.encode(record))
    with served(place, data_dir=home) as (server, client):

        def ask(path: str) -> Any:
            answer = client.ask("GET", f"{API}{path}")
            assert answer.status == 200, answer.text
            return answer.json.get("items", answer.json)

        def follow() -> None:
            end = place.work()
            until(lambda: server.changefeeds.get(FEED).checkpoint_ts >= end)

        lake = {"changefeed_id": "lake", "sink_uri": f"delta+s3://{BUCKET}/lake", "start_ts": 1}
        assert client.post("/changefeeds", lake).status == 200
        follow()
        assert client.post("/changefeeds/lake/pause").status == 200
        until(lambda: not server.changefeeds.get(FEED).running)

        seen.clear()
        assert len(ask("/overview")) == FEEDS + 1
        ask("/changefeeds/lake")
        assert of_feeds(seen) == []

        newest, ts = ask("/changefeeds/lake/changes")[-1]["commit_ts"], server.changefeeds.get(FEED).checkpoint_ts
        paths = [f"/changefeeds/lake/{part.format(newest=newest, ts=ts)}" for part in PARTS]
        before = [ask(path) for path in paths]
        for path, told in zip(paths, before, strict=True):
            seen.clear()
            assert ask(path) == told
            assert len(of_feeds(seen)) == 1, path

        assert client.post("/changefeeds/lake/resume").status == 200
        follow()
        assert ask(f"/changefeeds/lake/changes?after={newest}") != []
        assert len(ask("/changefeeds/lake/snapshots")) > len(before[PARTS.index("snapshots")])
