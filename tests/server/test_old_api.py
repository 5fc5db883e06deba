"""TiCDC's OpenAPI v1 on a socket: statuses, bare lists, bodies with settings beside the address."""

import re
from collections.abc import Iterator

import pytest

from tests.server.http_kit import Answered, Client, served
from tests.server.kit import ServerHome, until
from tests.server.test_api import JSON_TIME, assert_fault
from tidegate.server.record import FeedId
from tidegate.server.server import Server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def serving(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server that owns."""
    with served(place) as serving:
        yield serving


def test_a_life(serving: tuple[Server, Client], place: ServerHome) -> None:
    """A changefeed is made, shown, changed and removed by the requests of v1: each change answers 202, lists are bare,
    and an update keeps what it does not name."""
    server, client = serving

    def old(method: str, path: str, body: object = None) -> Answered:
        return client.ask(method, f"/api/v1{path}", body)

    rules = {"filter_rules": ["test.*"], "mounter_worker_num": 32, "ignore_ineligible_table": True}
    made = old("POST", "/changefeeds", {"changefeed_id": "one", "sink_uri": place.sink("one"), "start_ts": 1, **rules})
    assert (made.status, made.json) == (202, {}), made.text
    until(lambda: server.changefeeds.get(FeedId("default", "one")).table_ids)
    (listed,) = old("GET", "/changefeeds").json
    assert (listed["id"], listed["state"], listed["error"]) == ("one", "normal", None)
    assert old("GET", "/changefeeds?state=stopped").json == []
    shown = old("GET", "/changefeeds/one").json
    assert (shown["checkpoint_tso"], shown["target_ts"], shown["error"]) == (shown["checkpoint_ts"], 0, None)
    assert re.fullmatch(JSON_TIME, shown["create_time"])
    (task,) = shown["task_status"]
    assert task["table_ids"]

    (capture,) = old("GET", "/captures").json
    assert old("GET", "/processors").json[0]["changefeed_id"] == "one"
    assert old("GET", f"/processors/one/{capture['id']}").json.keys() == {
        *("checkpoint_ts", "resolved_ts", "table_ids", "error")
    }
    for verb in ("rebalance_table", "move_table"):
        assert_fault(old("POST", f"/changefeeds/one/tables/{verb}", {}), 500, "CDC:ErrTableNotSupportMove")

    assert_fault(old("PUT", "/changefeeds/one", {"filter_rules": ["a.*"]}), 400, "CDC:ErrChangefeedUpdateRefused")
    assert old("POST", "/changefeeds/one/pause").status == 202
    assert old("PUT", "/changefeeds/one", {"ignore_txn_start_ts": [7], "mounter_worker_num": 16}).status == 202
    config = old("GET", "/changefeeds/one").json["config"]
    assert (config["filter"]["rules"], config["filter"]["ignore_txn_start_ts"]) == (["test.*"], [7])
    assert (config["mounter"]["worker_num"], config["ignore_ineligible_table"]) == (16, True)
    assert old("PUT", "/changefeeds/one", {"filter_rules": ["*.*"]}).status == 202
    assert old("GET", "/changefeeds/one").json["config"]["filter"]["rules"] == ["*.*"]
    assert old("POST", "/changefeeds/one/resume").status == 202
    assert old("DELETE", "/changefeeds/one").status == 202
    assert_fault(old("DELETE", "/changefeeds/one"), 400, "CDC:ErrChangeFeedNotExists")


def test_the_server(serving: tuple[Server, Client]) -> None:
    """The server tells who it is under the old paths, too, and takes a level of its log."""
    server, client = serving

    assert client.ask("GET", "/api/v1/status").json["id"] == server.id
    assert client.ask("GET", "/api/v1/health").json == {}
    assert client.ask("POST", "/api/v1/log", {"log_level": "info"}).status == 202
    assert client.ask("POST", "/api/v1/owner/resign").status == 202


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "CDC:ErrSinkURIInvalid"),
        ({"sink_uri": "x://y", "filter_rules": "test.*"}, "CDC:ErrAPIInvalidParam"),
        ({"sink_uri": "callback://a/b", "sink_config": {"protocol": 3}}, "CDC:ErrAPIInvalidParam"),
    ],
)
def test_what_is_wrong(serving: tuple[Server, Client], body: object, code: str) -> None:
    """A wrong body is refused as in v2."""
    assert_fault(serving[1].ask("POST", "/api/v1/changefeeds", body), 400, code)
