"""TiCDC's OpenAPI v2 on a socket, row by row: paths, bodies, statuses, codes, shapes."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.http_kit import Answered, Client, served
from tests.server.kit import HereHost, ServerHome, until
from tidegate.engine.progress import FeedError, PartitionProgress, Progress
from tidegate.model.errors import ConfigError, Redaction, redacted, redaction
from tidegate.model.tso import compose, physical_ms
from tidegate.server import answers
from tidegate.server.record import FeedId, FeedRecord, FeedView
from tidegate.server.server import Server
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

JSON_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
INFO_ALWAYS = {"id", "namespace", "keyspace", "sink_uri", "create_time", "config", "creator_version", "resolved_ts",
               "checkpoint_ts", "checkpoint_time"}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def serving(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server that owns, with a changefeed that is stopped and one that runs."""
    with served(place) as (server, client):
        for name in ("stopped-1", "runs-1"):
            assert client.post("/changefeeds", body(place, name)).status == 200
        assert client.post("/changefeeds/stopped-1/pause").status == 200
        until(lambda: server.changefeeds.get(FeedId("default", "runs-1")).checkpoint_ts > 1)
        yield server, client


@pytest.fixture(scope="module")
def client(serving: tuple[Server, Client]) -> Client:
    """A client of it."""
    return serving[1]


def body(place: ServerHome, name: str, **more: object) -> dict[str, object]:
    """A changefeed from the beginning of the log."""
    return {"changefeed_id": name, "sink_uri": place.sink(name), "start_ts": 1, **more}


def assert_fault(answer: Answered, status: int, code: str) -> None:
    """The body of an error is two keys in their order, indented by four spaces, with the code before the text."""
    assert (answer.status, answer.json.get("error_code")) == (status, code), answer.text
    assert list(answer.json) == ["error_msg", "error_code"]
    assert answer.json["error_msg"].startswith(f"[{code}]")
    assert answer.text == json.dumps(answer.json, indent=4, ensure_ascii=False)


WRONG = [
    # method, path, body, status, code
    ("POST", "/changefeeds", "{", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", "", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", "[]", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/changefeeds", {"changefeed_id": "x"}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/changefeeds", {"changefeed_id": "a_b"}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"changefeed_id": "a" * 129}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"namespace": "-"}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", '{"sink_uri": "\\ud800"}', 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", b'{"sink_uri": "\xff"}', 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", '{"start_ts": 1e400, "sink_uri": "x://y"}', 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", "[" * 100_000, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"start_ts": 1 << 64}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"start_ts": "1"}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"start_ts": -1}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"start_ts": 1 << 62}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"start_ts": 9, "target_ts": 9}, 400, "CDC:ErrTargetTsBeforeStartTs"),
    ("POST", "/changefeeds", {"sink_uri": "nowhere"}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/changefeeds", {"sink_uri": "mongo://h/x"}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/changefeeds", {"sink_uri": "kafka://h/x?protocol=morse"}, 500, "CDC:ErrSinkUnknownProtocol"),
    ("POST", "/changefeeds", {"changefeed_id": "stopped-1"}, 500, "CDC:ErrChangeFeedAlreadyExists"),
    ("POST", "/changefeeds", {"replica_config": {"filter": {"rules": ["a["]}}}, 400, "CDC:ErrFilterRuleInvalid"),
    ("POST", "/changefeeds", {"replica_config": {"filter": 3}}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds", {"replica_config": {"bdr_mode": True}}, 500, "CDC:ErrInvalidReplicaConfig"),
    ("GET", "/changefeeds/none", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("GET", "/changefeeds/a_b", None, 400, "CDC:ErrAPIInvalidParam"),
    ("GET", "/changefeeds/runs-1?namespace=other", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("GET", "/changefeeds/runs-1?namespace=-", None, 400, "CDC:ErrAPIInvalidParam"),
    ("GET", "/changefeeds/none/status", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("GET", "/changefeeds/none/synced", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("PUT", "/changefeeds/none", {}, 400, "CDC:ErrChangeFeedNotExists"),
    ("PUT", "/changefeeds/stopped-1", "", 400, "CDC:ErrAPIInvalidParam"),
    ("PUT", "/changefeeds/stopped-1", {}, 400, "CDC:ErrChangefeedUpdateRefused"),
    ("PUT", "/changefeeds/runs-1", {"target_ts": 9}, 400, "CDC:ErrChangefeedUpdateRefused"),
    ("PUT", "/changefeeds/stopped-1", {"target_ts": 1}, 400, "CDC:ErrTargetTsBeforeStartTs"),
    ("PUT", "/changefeeds/stopped-1", {"sink_uri": "kafka://u:xxxxx@h/t"}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/changefeeds/none/pause", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("POST", "/changefeeds/none/resume", {}, 400, "CDC:ErrChangeFeedNotExists"),
    ("POST", "/changefeeds/stopped-1/resume", "nonsense", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds/stopped-1/resume", {"overwrite_checkpoint_ts": 1 << 62}, 400, "CDC:ErrAPIInvalidParam"),
    ("DELETE", "/changefeeds/a_b", None, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/verify_table", "", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/verify_table", {}, 400, "CDC:ErrSinkURIInvalid"),
    ("POST", "/log", {"log_level": "loud"}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/log", {"levels": {"tikv": "loud"}}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/log", {"levels": {"no.such": "debug"}}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/log", "", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/captures/nobody/drain", None, 400, "CDC:ErrCaptureNotExist"),
    ("POST", "/captures/SELF/drain", None, 400, "CDC:ErrSchedulerRequestFailed"),
    ("GET", "/processors/stopped-1/SELF", None, 400, "CDC:ErrAPIInvalidParam"),
    ("GET", "/processors/none/SELF", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("GET", "/processors/runs-1/nobody", None, 400, "CDC:ErrCaptureNotExist"),
    ("POST", "/tso", "{", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/get_all_tables", "", 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/get_all_tables", {"start_ts": 1 << 62}, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/get_all_tables", {"replica_config": {"filter": {"rules": ["a["]}}}, 400, "CDC:ErrFilterRuleInvalid"),
    ("GET", "/changefeeds/runs-1?keyspace=other", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("GET", "/changefeeds/runs-1?keyspace=-", None, 400, "CDC:ErrAPIInvalidParam"),
    ("POST", "/changefeeds/none/move_table?tableID=1&targetNodeID=x", None, 400, "CDC:ErrChangeFeedNotExists"),
    ("POST", "/changefeeds/runs-1/move_table?tableID=1&targetNodeID=x", None, 500, "CDC:ErrTableNotSupportMove"),
    ("POST", "/changefeeds/runs-1/move_split_table?tableID=1", None, 500, "CDC:ErrTableNotSupportMove"),
    ("POST", "/changefeeds/runs-1/split_table_by_region_count?tableID=1", None, 500, "CDC:ErrTableNotSupportMove"),
    ("POST", "/changefeeds/runs-1/merge_table?tableID=1&mode=0", None, 500, "CDC:ErrTableNotSupportMove"),
    ("POST", "/unsafe/resolve_lock", {"region_id": 0, "ts": 3}, 400, "CDC:ErrAPIInvalidParam"),
]


@pytest.mark.parametrize(("method", "path", "given", "status", "code"), WRONG)
def test_what_is_wrong(
    serving: tuple[Server, Client], place: ServerHome, *, method: str, path: str, given: Any, status: int, code: str
) -> None:
    """Each wrong request has TiCDC's status and code, and changes nothing."""
    server, client = serving
    if path == "/changefeeds" and given and isinstance(given, dict) and given != {"changefeed_id": "x"}:
        given = body(place, "wrong-1") | given
    before = [(view.id, view.state) for view in server.changefeeds.listed()]

    answer = client.ask(method, "/api/v2" + path.replace("SELF", server.id), given)

    assert_fault(answer, status, code)
    assert [(view.id, view.state) for view in server.changefeeds.listed()] == before


RIGHT = [
    # method, path, body, answer
    ("GET", "/health", None, {}),
    ("POST", "/log", {"log_level": "warn"}, {}),
    ("POST", "/log", {"log_level": "warn", "levels": {"tikv": "error"}}, {}),
    ("POST", "/log", {}, {}),
    ("POST", "/owner/resign", None, {}),
    ("POST", "/unsafe/resolve_lock", {"region_id": 1, "ts": 3}, {}),
    ("DELETE", "/unsafe/service_gc_safepoint", None, {}),
    ("DELETE", "/changefeeds/none", None, {}),
    ("POST", "/changefeeds/stopped-1/pause", None, {}),
    ("POST", "/changefeeds/runs-1/resume", {}, {}),
    ("POST", "/changefeeds/runs-1/resume", None, {}),
    ("GET", "/changefeeds?state=error", None, {"total": 0, "items": []}),
    ("GET", "/changefeeds?namespace=other", None, {"total": 0, "items": []}),
    ("GET", "/changefeeds?keyspace=other", None, {"total": 0, "items": []}),
    ("GET", "/processors?keyspace=other", None, {"total": 0, "items": []}),
]


@pytest.mark.parametrize(("method", "path", "given", "expected"), RIGHT)
def test_small_answers(serving: tuple[Server, Client], method: str, path: str, given: object, expected: object) -> None:
    """Each of these answers is 200 and compact JSON."""
    answer = serving[1].ask(method, "/api/v2" + path.replace("SELF", serving[0].id), given)

    assert (answer.status, answer.json) == (200, expected)
    assert answer.text == msgspec.json.encode(expected).decode()
    assert answer.headers["content-type"] == "application/json; charset=utf-8"


def test_a_wrong_query_is_named(client: Client) -> None:
    """The parameter and what is wrong with it, without where the server's own files are."""
    answer = client.get("/changefeeds/runs-1/get_dispatcher_count?mode=7")
    assert answer.json["error_msg"] == "[CDC:ErrAPIInvalidParam]mode: Input should be less than or equal to 1"


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v2/nothing"), ("PATCH", "/api/v2/status"),
                                              ("GET", "/api/v2/changefeeds/"), ("GET", "/docs")])  # fmt: skip
def test_unknown_paths(client: Client, method: str, path: str) -> None:
    """An unknown path or method is 404 in plain text."""
    answer = client.ask(method, path)

    assert (answer.status, answer.text) == (404, "404 page not found")
    assert answer.headers["content-type"].startswith("text/plain")


def test_status(serving: tuple[Server, Client]) -> None:
    """The server's status is indented by four spaces, has a version that TiCDC's tools take, and says who owns."""
    server, client = serving
    answer = client.get("/status")
    oldest = client.ask("GET", "/status")

    assert answer.text == json.dumps(answer.json, indent=4)
    assert re.fullmatch(r"v8\.5\.4-tidegate-[0-9.]+", answer.json["version"])
    told = {key: answer.json[key] for key in ("id", "cluster_id", "is_owner", "liveness", "pid")}
    assert told == {"id": server.id, "cluster_id": "default", "is_owner": True, "liveness": 0, "pid": server.pid}
    assert oldest.text == json.dumps(oldest.json, indent=1)
    assert set(answer.json) - set(oldest.json) == {"cluster_id", "liveness"}
    captures = client.get("/captures").json
    assert captures == {"total": 1, "items": [
        {"id": server.id, "is_owner": True, "address": client.address, "cluster_id": "default"}]}  # fmt: skip
    for path in ("/healthz", "/livez", "/readyz"):
        assert client.ask("GET", path).status == 200


def test_a_life(client: Client, place: ServerHome) -> None:
    """A changefeed is made, shown, changed, resumed at another checkpoint and removed, in TiCDC's shapes."""
    config = {"filter": {"rules": ["test.*"]}, "unknown": 1, "memory_quota": None}
    made = client.post("/changefeeds", body(place, "life-1", replica_config=config, ca_path="none"),
                       Content_Type="application/x-www-form-urlencoded")  # fmt: skip
    assert made.status == 200, made.text
    assert set(made.json) >= INFO_ALWAYS
    assert (made.json["state"], made.json["start_ts"], made.json["checkpoint_ts"]) == ("normal", 1, 1)
    assert "target_ts" not in made.json
    assert "error" not in made.json
    assert made.json["config"]["filter"]["rules"] == ["test.*"]
    assert made.json["config"]["sync_point_interval"] == 600_000_000_000
    assert re.fullmatch(JSON_TIME, made.json["checkpoint_time"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+[+-]\d\d:\d\d", made.json["create_time"])
    until(lambda: client.get("/changefeeds/life-1").json["checkpoint_ts"] > 1)

    assert client.post("/changefeeds/life-1/pause").json == {}
    shown = client.get("/changefeeds/life-1").json
    same = {"sink_uri": shown["sink_uri"], "target_ts": 0, "replica_config": shown["config"], "start_ts": 77}
    assert_fault(client.put("/changefeeds/life-1", same), 400, "CDC:ErrChangefeedUpdateRefused")
    odd = {**shown["config"], "memory_quotas": 1, "filter": {**shown["config"]["filter"], "rule": ["*.*"]}}
    refused = client.put("/changefeeds/life-1", {"replica_config": odd}).json["error_msg"]
    assert "unknown and not read: " in refused
    assert "memory_quotas; did you mean" in refused
    assert "filter.rule; did you mean" in refused
    changed = client.put("/changefeeds/life-1", {"replica_config": {"filter": {"rules": ["none.*"]}}})
    assert (changed.status, changed.json["config"]["filter"]["rules"]) == (200, ["none.*"])
    assert changed.json["config"]["check_gc_safe_point"] is True
    assert client.post("/changefeeds/life-1/resume", {"overwrite_checkpoint_ts": 5}).status == 200
    assert client.delete("/changefeeds/life-1").json == {}
    assert client.get("/changefeeds/life-1").status == 400


def test_a_name_is_made_up(client: Client, place: ServerHome) -> None:
    """Without a name a changefeed is given a UUID."""
    made = client.post("/changefeeds", {**body(place, "any"), "changefeed_id": ""}).json

    assert str(uuid.UUID(made["id"])) == made["id"]
    client.delete(f"/changefeeds/{made['id']}")


def test_list(serving: tuple[Server, Client]) -> None:
    """The list is sorted, has all keys of each changefeed, and is chosen by the state that is shown."""
    client = serving[1]
    found = client.get("/changefeeds").json

    assert [(one["id"], one["state"]) for one in found["items"]] == [("runs-1", "normal"), ("stopped-1", "stopped")]
    assert all(list(one) == ["upstream_id", "namespace", "keyspace", "id", "state", "checkpoint_tso", "checkpoint_time",
                             "error"] for one in found["items"])  # fmt: skip
    assert client.get("/changefeeds?state=stopped").json["total"] == 1
    assert client.get("/changefeeds?state=all").json["total"] == 2
    assert [one["changefeed_id"] for one in client.get("/processors").json["items"]] == ["runs-1"]


def test_status_and_synced(client: Client) -> None:
    """A changefeed that is not quiet for long enough is not synced, and says so with all its times."""
    assert set(client.get("/changefeeds/runs-1/status").json) == {"state", "resolved_ts", "checkpoint_ts"}
    found = client.get("/changefeeds/runs-1/synced").json
    times = ("sink_checkpoint_ts", "puller_resolved_ts", "last_synced_ts", "now_ts")

    assert set(found) == {"synced", "info", *times}
    assert all(re.fullmatch(JSON_TIME, found[name]) for name in times)
    assert found["synced"] is False


def test_what_is_ours(client: Client) -> None:
    """A changefeed's extension has its timestamps as texts, equal to the numbers beside it."""
    shown = client.get("/changefeeds/runs-1").json
    ours = shown["tidegate"]

    assert ours["start_ts"] == "1"
    assert ours["running"] is True
    assert isinstance(ours["checkpoint_ts"], str)
    assert ours["progress"]["tables"]
    assert ours["moments"][0]["kind"] == "created"


def test_tables_are_verified(client: Client, place: ServerHome) -> None:
    """Tables are told by database, name, number and whether they are partitioned; empty lists are left out."""
    found = client.post("/verify_table", {"sink_uri": place.sink("x"), "start_ts": place.work(0)}).json

    every = found.pop("all_tables")
    assert set(found) <= {"eligible_tables", "ineligible_tables"}
    assert sorted(map(str, every)) == sorted(str(table) for tables in found.values() for table in tables)
    assert all(set(table) == {"database_name", "table_name", "table_id", "is_partition"}
               for tables in found.values() for table in tables)  # fmt: skip
    every = client.post("/get_all_tables", {"sink_uri": place.sink("x"), "start_ts": place.work(0)}).json
    assert len(every["all_tables"]) == sum(map(len, found.values()))


def test_a_sink_is_tried_without_a_changefeed(client: Client, place: ServerHome) -> None:
    """With `sink=true` the error of a sink that cannot be reached comes before there is a changefeed."""
    wish = {"sink_uri": "redis://127.0.0.1:1", "start_ts": place.work(0)}
    assert client.post("/verify_table", wish).status == 200
    assert "127.0.0.1:1" in client.post("/verify_table?sink=true", wish).json["error_msg"]


def test_tables_of_a_run(serving: tuple[Server, Client], place: ServerHome) -> None:
    """A changefeed that runs tells the ids of its tables, partitions each, wherever TiCDC shows some; one that does not
    run has none, and nothing is of a redo log."""
    server, client = serving
    now = client.post("/verify_table", {"sink_uri": place.sink("x"), "start_ts": place.work(0)}).json["eligible_tables"]
    plain = {table["table_id"] for table in now if not table["is_partition"]}
    until(lambda: plain <= set(server.changefeeds.get(FeedId("default", "runs-1")).table_ids) != set())
    ((node,), count) = (client.get(f"/changefeeds/runs-1/{name}").json for name in ("tables", "get_dispatcher_count"))

    assert (node["node_id"], {"count": len(node["table_ids"])}) == (server.id, count)
    (task,) = client.get("/changefeeds/runs-1").json["task_status"]
    assert task["table_ids"] == client.get(f"/processors/runs-1/{server.id}").json["table_ids"] == node["table_ids"]
    assert (
        client.get("/changefeeds/stopped-1/tables").json == client.get("/changefeeds/runs-1/tables?mode=1").json == []
    )
    assert client.get("/changefeeds/stopped-1/get_dispatcher_count").json == {"count": 0}
    assert client.get("/changefeeds/none/tables").status == 400


def test_redaction(client: Client) -> None:
    """Rows in errors and in the log are redacted more strictly from now on, never less."""

    def ask(word: object) -> Answered:
        return client.post("/log/redact", {"redact_info_log": word})

    assert ask("marker").json == {"previous_mode": "OFF", "current_mode": "MARKER"}
    assert redaction() is Redaction.MARKER
    for wrong in ("off", "ON", "loud", None, 1):
        assert_fault(ask(wrong), 400, "CDC:ErrAPIInvalidParam")
    assert_fault(client.post("/log/redact", ""), 400, "CDC:ErrAPIInvalidParam")
    assert ask("on").json == {"previous_mode": "MARKER", "current_mode": "ON"}
    assert ask("on").json == {"previous_mode": "ON", "current_mode": "ON"}
    assert redacted("anna") == "?"


def test_redaction_by_the_servers_file(place: ServerHome, tmp_path: Path) -> None:
    """A server begins with the mode of its file, and names the modes that there are."""
    Server(place.config(data_dir=str(tmp_path), redact_info_log="marker"), HereHost())
    assert redaction() is Redaction.MARKER


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"redact_info_log": "maybe"}, "redact-info-log: expected one of off, marker, on (Invalid enum value 'maybe')"),
        ({"security": {"auth": "no"}}, "security.auth: expected one of token, none (Invalid enum value 'no')"),
        ({"tz": "Mars/Base"}, "tz 'Mars/Base': expected System, or a name such as UTC or Asia/Shanghai"),
        ({"gc_ttls": 1}, 'unknown key gc-ttls; did you mean "gc-ttl"?'),
    ],
)
def test_a_wrong_setting_of_a_server(flags: dict[str, object], message: str, place: ServerHome) -> None:
    """The error names the setting and the values that it takes."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        place.config(**flags)


def test_now(client: Client) -> None:
    """The timestamp of this moment is told in its parts."""
    for body in ({"ca_path": "none"}, {}, None):
        found = client.post("/tso", body).json

        assert set(found) == {"timestamp", "logic_time"}
        assert found["timestamp"] > 1_700_000_000_000


def test_what_the_newer_command_line_sends(client: Client, place: ServerHome) -> None:
    """`cdc cli changefeed create` and `update` of TiCDC's newer architecture: each request names a keyspace, tables are
    asked for without a sink, whatever the settings say of one, and every answer has what they print."""
    settings = {"filter": {"rules": ["test.*"]}, "sink": {"protocol": "canal-json"}, "bdr_mode": True}
    asked = {"ca_path": "", "cert_path": "", "key_path": "", "replica_config": settings, "start_ts": place.work(0)}
    tables = client.post("/get_all_tables?keyspace=default", asked)
    assert (tables.status, tables.json["all_tables"]) == (200, tables.json["eligible_tables"])
    assert client.post("/changefeeds?keyspace=team", body(place, "newer-1")).json["keyspace"] == "team"
    assert [one["keyspace"] for one in client.get("/changefeeds?keyspace=team").json["items"]] == ["team"]
    assert client.post("/changefeeds/newer-1/pause?keyspace=team").status == 200

    shown = client.get("/changefeeds/newer-1?keyspace=team").json
    asked = {"replica_config": shown["config"], "start_ts": shown["checkpoint_ts"]}
    assert client.post("/get_all_tables?keyspace=team", asked).status == 200
    changed = {"replica_config": {**shown["config"], "ignore_ineligible_table": True, "case_sensitive": True}}
    assert client.put("/changefeeds/newer-1?keyspace=team", changed).json["config"]["case_sensitive"] is True
    assert client.delete("/changefeeds/newer-1?keyspace=team").status == 200


TICDC_PATHS = """
    GET    /api/v2/status /api/v2/health /api/v2/captures /api/v2/processors /api/v2/unsafe/metadata /status
    GET    /api/v2/changefeeds /api/v2/changefeeds/{changefeed_id} /api/v2/changefeeds/{changefeed_id}/status
    GET    /api/v2/changefeeds/{changefeed_id}/synced /api/v2/processors/{changefeed_id}/{capture_id}
    GET    /api/v2/changefeeds/{changefeed_id}/meta_info /api/v2/changefeeds/{changefeed_id}/tables
    GET    /api/v2/changefeeds/{changefeed_id}/get_dispatcher_count /debug/info
    POST   /api/v2/log /api/v2/log/redact /api/v2/changefeeds /api/v2/changefeeds/{changefeed_id}/pause
    POST   /api/v2/changefeeds/{changefeed_id}/resume /api/v2/changefeeds/{changefeed_id}/move_table
    POST   /api/v2/changefeeds/{changefeed_id}/move_split_table /api/v2/changefeeds/{changefeed_id}/merge_table
    POST   /api/v2/changefeeds/{changefeed_id}/split_table_by_region_count /api/v2/captures/{capture_id}/drain
    POST   /api/v2/verify_table /api/v2/get_all_tables /api/v2/owner/resign /api/v2/tso /api/v2/unsafe/resolve_lock
    PUT    /api/v2/changefeeds/{changefeed_id}
    DELETE /api/v2/changefeeds/{changefeed_id} /api/v2/unsafe/service_gc_safepoint
"""
"""What the servers of TiCDC's two architectures answer."""


def test_each_path_of_ticdc(client: Client) -> None:
    """Each path of TiCDC's API is answered, or the page about the API says that it is not offered."""
    described = client.ask("GET", "/openapi.json").json["paths"]
    page = Path("docs/api.md").read_text()
    for line in TICDC_PATHS.strip().splitlines():
        method, *paths = line.split()
        for path in paths:
            assert method.lower() in described.get(path, {}) or f"`{path.rpartition('/')[2]}`" in page, path


def test_unhealthy(serving: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is unhealthy without an owner, and with a changefeed that should run and does not; a stopped one is
    none of these."""
    server, client = serving
    stuck = msgspec.structs.replace(server.changefeeds.get(FeedId("default", "stopped-1")).record, state="normal")
    with monkeypatch.context() as patch:
        patch.setattr(server.changefeeds, "listed", lambda: [FeedView(stuck)])
        assert_fault(client.get("/health"), 500, "CDC:ErrClusterIsUnhealthy")
    monkeypatch.setattr(server, "owner", lambda: None)
    assert_fault(client.get("/health"), 500, "CDC:ErrClusterIsUnhealthy")


# Shapes that need states: from values.


def view(state: str, *, error: bool = True, **more: Any) -> FeedView:
    """A changefeed in a state."""
    told = FeedError(code="CDC:ErrX", message="at kafka://u:geheim@h/t", since="2026-01-31T10:00:00.5+00:00")
    record = FeedRecord(
        id=FeedId("default", "x"), sink_uri="kafka://u:geheim@h/t?sasl-password=geheim", source_uri="tidb:///log",
        state=state, error=told if error else None, creator_version="0.1.0",
        config={"sink": {"kafka-config": {"sasl-password": "geheim"}}}, **more,
    )  # fmt: skip
    part = PartitionProgress("t", 0, 5, resolved_ts=1 << 60)
    return FeedView(record, Progress("running", checkpoint_ts=7, partitions=(part,), warnings=("kafka://u:geheim@h",)))


@pytest.mark.parametrize(
    ("state", "listed", "raw", "has_error", "kind"),
    [
        ("", "normal", None, False, None),
        ("normal", "normal", "normal", False, None),
        ("pending", "warning", "pending", True, "last_warning"),
        ("warning", "warning", "warning", True, "last_warning"),
        ("failed", "failed", "failed", True, "last_error"),
        ("stopped", "stopped", "stopped", False, None),
        ("finished", "finished", "finished", False, None),
    ],
)
def test_states(*, state: str, listed: str, raw: str | None, has_error: bool, kind: str | None) -> None:
    """Each state is shown as TiCDC shows it, with its error where it has one."""
    found = view(state)

    assert answers.item(found, "h:1", None)["state"] == listed
    assert (answers.item(found, "h:1", None)["error"] is not None) == has_error
    assert answers.info(found, "h:1", None, "c").get("state") == raw
    assert ("error" in answers.info(found, "h:1", None, "c")) == has_error
    assert {"last_error", "last_warning"} & set(answers.status(found, "h:1")) == ({kind} if kind else set())
    assert [one.state for one in answers.selected([found], listed)] == [state]


def test_no_secret_leaves() -> None:
    """No shape of a changefeed holds a secret of its addresses, settings, errors or warnings."""
    found = view("failed")
    every = [answers.item(found, "h:1", None), answers.info(found, "h:1", None, "c"), answers.status(found, "h:1"),
             answers.extension(found)]  # fmt: skip

    assert "geheim" not in str(every)
    assert answers.extension(found)["progress"]["partitions"][0]["resolved_ts"] == str(1 << 60)


NOW = compose(1_800_000_000_000)


@pytest.mark.parametrize(
    ("quiet_s", "checkpoint_age_s", "resolved_age_s", "config", "synced", "info"),
    [
        (301, 14, 14, {}, True, answers.QUIET),
        (301, 16, 16, {}, False, answers.BEHIND),
        (301, 40, 10, {}, False, answers.BUSY),
        (299, 1, 1, {}, False, answers.BUSY),
        (11, 1, 1, {"synced-status": {"synced-check-interval": 10}}, True, answers.QUIET),
        (301, 20, 20, {"synced-status": {"checkpoint-interval": 30}}, True, answers.QUIET),
    ],
)
def test_synced(
    *, quiet_s: int, checkpoint_age_s: int, resolved_age_s: int, config: dict[str, Any], synced: bool, info: str
) -> None:
    """Quiet for long enough and fresh is synced; quiet and stuck has a hint; all else is not."""

    def ago(seconds: int) -> int:
        return compose(physical_ms(NOW) - seconds * 1000)

    record = FeedRecord(
        id=FeedId("default", "x"), sink_uri="", source_uri="", config=config, state="normal",
        checkpoint_ts=ago(checkpoint_age_s), resolved_ts=ago(resolved_age_s), last_synced_ts=ago(quiet_s),
    )  # fmt: skip
    found = answers.synced(FeedView(record), NOW, None)

    assert (found["synced"], found["info"]) == (synced, info)


CURLS = r"""
curl -X GET http://127.0.0.1:8300/api/v2/status
curl -X GET http://127.0.0.1:8300/api/v2/health
curl -X POST -H "'Content-type':'application/json'" http://127.0.0.1:8300/api/v2/changefeeds -d '{"changefeed_id":"test5","sink_uri":"blackhole://"}'
curl -X GET http://127.0.0.1:8300/api/v2/processors
curl -X GET http://127.0.0.1:8300/api/v2/processors/test/561c3784-77f0-4863-ad52-65a3436db6af
curl -X GET http://127.0.0.1:8300/api/v2/changefeeds?state=normal
curl -X GET http://127.0.0.1:8300/api/v2/changefeeds/test1
curl -X GET http://127.0.0.1:8300/api/v2/changefeeds/test1/synced
curl -X POST http://127.0.0.1:8300/api/v2/changefeeds/test1/pause
curl -X PUT -H "'Content-type':'application/json'" http://127.0.0.1:8300/api/v2/changefeeds/test1 -d '{"target_ts":32}'
curl -X POST http://127.0.0.1:8300/api/v2/changefeeds/test1/resume -d '{}'
curl -X DELETE http://127.0.0.1:8300/api/v2/changefeeds/test1
curl -X GET http://127.0.0.1:8300/api/v2/captures
curl -X POST http://127.0.0.1:8300/api/v2/owner/resign
curl -X POST -H "'Content-type':'application/json'" http://127.0.0.1:8300/api/v2/log -d '{"log_level":"debug"}'
"""


def test_documented_calls(serving: tuple[Server, Client], place: ServerHome, tmp_path: Path) -> None:
    """The calls of TiCDC's documentation run as they are printed, malformed headers and all, but for the server's own
    address and id, a sink that is here, and the server's token where one writes."""
    server, client = serving
    own = {"127.0.0.1:8300": client.address, "blackhole://": place.sink("test5"),
           "561c3784-77f0-4863-ad52-65a3436db6af": server.id}  # fmt: skip
    login = f"--user any:{server.token}"
    for name in ("test", "test1"):
        assert client.post("/changefeeds", body(place, name)).status == 200
    for line in CURLS.strip().splitlines():
        words = line
        for printed, here in own.items():
            words = words.replace(printed, here)
        command = ["bash", "-c", f"{words} {login} -s -w '%{{http_code}}' -o out"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)

        assert ran.stdout == "200", (line, ran.stderr, (tmp_path / "out").read_text())
    for name in ("test", "test5"):
        client.delete(f"/changefeeds/{name}")


def test_both_directions(place: ServerHome, client: Client) -> None:
    """A changefeed with bdr_mode is for a database, and its answer says so."""
    with Upstream(Cluster.open()) as target:
        sink_uri = f"tidb://root@127.0.0.1:{target.ports['n1']}/"
        more = {"sink_uri": sink_uri, "replica_config": {"bdr_mode": True}}
        created = client.post("/changefeeds", body(place, "both-ways", **more))
        known = client.get("/changefeeds/both-ways").json
        deleted = client.delete("/changefeeds/both-ways")

    assert (created.status, deleted.status) == (200, 200), created.text
    assert known["config"]["bdr_mode"] is True
