"""The JSON of the page: what a changefeed is, what it has brought, who did what; texts for timestamps, no secret."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.rig import Topic
from tests.server.http_kit import Client, served
from tests.server.kit import WAIT_S, ServerHome, until
from tests.source.kit import open_message, resolved
from tidegate.engine.progress import FeedError, PartitionProgress, Progress
from tidegate.engine.reading import CaptureProgress
from tidegate.model.errors import SourceError
from tidegate.model.tso import compose, physical_ms
from tidegate.server import dashboard
from tidegate.server.answers import details, lag_s, overview_line, settings, short_name, slowest_partition, sync_point
from tidegate.server.parameters import mend_of, sink_parameters
from tidegate.server.record import FeedId, FeedRecord, FeedView, Sample
from tidegate.server.server import Server
from tidegate.source.tidb_segment import trim

pytestmark = pytest.mark.slow

API = "/api/tidegate/v1"
NOW_MS = 1_767_323_045_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with online DDLs and rows behind it."""
    place = ServerHome(tmp_path_factory.mktemp("dashboard"))
    for sql in (
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "CREATE TABLE shop (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x')",
        "INSERT INTO shop VALUES (1, 'one'), (2, 'two')",
        "ALTER TABLE shop ADD COLUMN price INT",
        "ALTER TABLE shop ADD INDEX by_name (name)",
        "UPDATE shop SET price = 5 WHERE id = 2",
        "DELETE FROM shop WHERE id = 1",
    ):
        place.upstream.run(sql)
    place.work(0)
    return place


@pytest.fixture(scope="module")
def serving(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server with a changefeed that reads the log as it is, and one that lands it in a lake."""
    with served(place) as (server, client):
        lake = f"delta://{place.home / 'lake'}"
        sinks = {"log-1": place.sink("log-1"), "lake-1": lake, "file-1": f"sqlite://{place.home}/one.db"}
        for name, sink in sinks.items():
            made = client.post("/changefeeds", {"changefeed_id": name, "sink_uri": sink, "start_ts": 1})
            assert made.status == 200, made.text
            end, feed = place.work(0), FeedId("default", name)
            until(lambda feed=feed, end=end: server.changefeeds.get(feed).checkpoint_ts >= end)
        place.upstream.run("INSERT INTO other VALUES (1)")
        end = place.work(0)
        until(lambda: server.changefeeds.get(FeedId("default", "lake-1")).checkpoint_ts >= end)
        yield server, client


def get(serving: tuple[Server, Client], path: str) -> Any:
    """An answer, which nobody may keep."""
    answer = serving[1].ask("GET", f"{API}{path}")
    assert answer.status == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json


@pytest.mark.parametrize("name", ["log-1", "lake-1", "file-1"])
def test_a_changefeed(serving: tuple[Server, Client], name: str) -> None:
    """The overview has a line of each changefeed; one of them whole has progress, moments, settings and operations."""
    line = next(one for one in get(serving, "/overview")["items"] if one["id"] == name)
    assert get(serving, f"/changefeeds/{name}/source")["begin_ts"] == "0"
    assert line["state"] == "normal"
    assert line["lag_s"] < 3600
    assert re.fullmatch(r"\d{18}", line["checkpoint_ts"])

    one = get(serving, f"/changefeeds/{name}")
    assert [moment["kind"] for moment in one["moments"]][-1] == "created"
    assert [done["operation"] for done in one["operations"]] == ["create"]
    assert sum(table["rows"] for table in one["table_rows"]) == one["progress"]["rows"] > 0
    assert {"read", "write", "publish"} <= one["progress"]["spent_s"].keys()
    assert not one["config"][-1]["changed"]


@pytest.mark.parametrize("name", ["log-1", "lake-1"])
def test_the_past(serving: tuple[Server, Client], name: str) -> None:
    """DDLs come with the states that they went through upstream, definitions as of a ts, rows with their old values."""
    ddls = get(serving, f"/changefeeds/{name}/ddls")["items"]
    index = next(one for one in ddls if "by_name" in one["query"])
    assert index["state"] == "done"
    states = [step["state"] for step in index["steps"]]
    assert [state for state in states if state in {"delete-only", "write-only", "write-reorg"}] == [
        "delete-only",
        "write-only",
        "write-reorg",
    ]
    column = next(one for one in ddls if "price" in one["query"])

    assert "test.shop" in get(serving, f"/changefeeds/{name}/schema")["tables"]
    told = get(serving, f"/changefeeds/{name}/schema?table=test.shop")
    assert [(one["name"], one["type"]) for one in told["columns"]] == [
        ("id", "int(11)"),
        ("name", "varchar(20)"),
        ("price", "int(11)"),
    ]
    assert told["key"] == ["id"]
    if name == "log-1":
        before = get(serving, f"/changefeeds/{name}/schema?table=test.shop&ts={int(column['commit_ts']) - 1}")
        assert [one["name"] for one in before["columns"]] == ["id", "name"]
        assert before["statement"].startswith("CREATE TABLE `shop`")

    rows = get(serving, f"/changefeeds/{name}/changes?table=test.shop")["items"]
    assert [(row["op"], row["values"], row["old"]) for row in rows[-2:]] == [
        ("U", {"id": "2", "name": "two", "price": "5"}, {"price": None}),
        ("D", {"id": "1", "name": "one", "price": None}, {}),
    ]
    assert get(serving, f"/changefeeds/{name}/changes?table=test.shop&after={rows[-1]['commit_ts']}")["items"] == []
    assert len(get(serving, f"/changefeeds/{name}/changes?limit=3")["items"]) == 3


def test_snapshots(serving: tuple[Server, Client]) -> None:
    """A lake shows its published states, the newest first; another sink has none; both have no dead letters."""
    found = get(serving, "/changefeeds/lake-1/snapshots?limit=2")
    assert found["kept"]
    assert found["items"][0]["number"] > found["items"][-1]["number"]
    assert get(serving, "/changefeeds/log-1/snapshots") == {"kept": False, "items": []}
    assert get(serving, "/changefeeds/lake-1/dead_letters") == {"total": 0, "items": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/changefeeds/none", None, 400),
        ("GET", "/changefeeds/a_b/ddls", None, 400),
        ("GET", "/changefeeds/log-1/ddls?limit=0", None, 400),
        ("GET", "/changefeeds/log-1/ddls?limit=9999", None, 400),
        ("GET", "/changefeeds/log-1/schema?table=no.where", None, 400),
        ("GET", "/changefeeds/log-1/schema?ts=yesterday", None, 400),
        ("GET", "/changefeeds/log-1/changes?after=-1", None, 400),
        ("POST", "/changefeeds/log-1/dead_letters/skip", None, 400),
        ("POST", "/changefeeds/log-1/dead_letters/skip", {"topic": "t", "partition": 0}, 400),
        ("POST", "/changefeeds/log-1/dead_letters/skip", {"topic": "t", "partition": 0, "offset": 1}, 400),
        (
            "POST",
            "/changefeeds/log-1/dead_letters/replay",
            {"topic": "t", "partition": 0, "offset": 1, "value_b64": "%"},
            400,
        ),
    ],
)
def test_wrong_words(serving: tuple[Server, Client], method: str, path: str, body: object, status: int) -> None:
    """What cannot be answered says why, as the rest of the API does."""
    answer = serving[1].ask(method, f"{API}{path}", body)
    assert answer.status == status, answer.text
    assert answer.json["error_code"]


def test_what_a_topic_keeps(
    bootstrap: str, place: ServerHome, serving: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far the topics of a changefeed go back is told while it is paused, and while it runs, as a metric, too; a
    broker that does not answer leaves it open."""
    server, client = serving
    begun_ms, feed = time.time_ns() // 1_000_000, FeedId("default", "topic-1")
    messages = [open_message(0, resolved(compose(begun_ms + at))) for at in range(3)]
    frames = [(message.key or b"", message.value or b"") for message in messages]
    topic = Topic.fed(bootstrap, "page-history", "open", [frames])
    made = {"changefeed_id": feed.name, "sink_uri": place.sink(feed.name), "source_uri": topic.uri()}
    assert client.post("/changefeeds", made).status == 200
    until(lambda: server.changefeeds.get(feed).checkpoint_ts >= compose(begun_ms + 2))
    assert get(serving, "/changefeeds/topic-1/source")["begin_ts"] == "0"
    assert client.post("/changefeeds/topic-1/pause").status == 200
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic.name, 0, 2)]).values():
        future.result(WAIT_S)

    paused = get(serving, "/changefeeds/topic-1/source")
    assert begun_ms <= physical_ms(int(paused["begin_ts"])) <= time.time_ns() // 1_000_000
    assert paused["needed_ts"] == str(compose(begun_ms + 2))
    with monkeypatch.context() as away:
        away.setattr(dashboard, "begin_of", Mock(side_effect=SourceError("the broker is away")))
        assert get(serving, "/changefeeds/topic-1/source") == {**paused, "begin_ts": None}
        assert client.post("/changefeeds/topic-1/resume").status == 200
        until(lambda: get(serving, "/changefeeds/topic-1/source")["begin_ts"] == paused["begin_ts"])
    assert 'tidegate_changefeed_history_left_seconds{changefeed="topic-1"' in client.ask("GET", "/metrics").text


def test_what_a_trimmed_log_keeps(place: ServerHome, serving: tuple[Server, Client]) -> None:
    """A log that was trimmed begins at its base, up to which a changefeed must have come."""
    end = place.work()
    place.upstream.run("INSERT INTO other VALUES (9)")
    last = place.work(0)
    until(lambda: serving[0].changefeeds.get(FeedId("default", "log-1")).checkpoint_ts >= last)
    trim(place.home / "log", end)
    source = get(serving, "/changefeeds/log-1/source")
    assert (source["begin_ts"], int(source["needed_ts"]) >= last > end) == (str(end), True)


# The shapes, without a server.


def view(state: str = "normal", **told: Any) -> FeedView:
    """A changefeed in some state."""
    record = FeedRecord(
        id=FeedId("default", "one"),
        sink_uri="kafka://u:geheim@h/t?protocol=open-protocol",
        source_uri="tidb:///log",
        config={"sink": {"kafka-config": {"sasl-password": "geheim"}}, "case-sensitive": True},
        state=state,
        checkpoint_ts=compose(NOW_MS - 7000),
        resolved_ts=compose(NOW_MS - 2000),
    )
    samples = (Sample(NOW_MS, record.checkpoint_ts, record.resolved_ts, 1, 2.0, 3, state),) * 500
    return FeedView(record, Progress("running", **told), running=state == "normal", samples=samples)


def test_lag() -> None:
    """Checkpoint and resolved ts have lags of their own; a changefeed that rests has none, nor has a ts of old."""
    line = overview_line(view(), NOW_MS)
    assert (line["lag_s"], line["resolved_lag_s"], line["checkpoint_age_s"]) == (7, 2, 7)
    for state in ("stopped", "finished"):
        assert overview_line(view(state), NOW_MS)["lag_s"] is None
        assert set(details(view(state), NOW_MS)["samples"]["checkpoint_lag_s"]) == {None}
    assert lag_s(1, NOW_MS, "normal") is None
    assert lag_s(compose(NOW_MS + 5000), NOW_MS, "normal") == 0


def test_bounds_and_secrets() -> None:
    """Samples are thinned, the newest stays, settings that differ from the defaults come first, secrets never."""
    one = details(view(warnings=("kafka://u:geheim@h/t is away",)), NOW_MS)
    assert len(one["samples"]["time_ms"]) <= 240
    assert "geheim" not in json.dumps(one)
    assert one["config"][0]["changed"]
    assert {row["key"] for row in settings({"case-sensitive": True}) if row["changed"]} == {"case_sensitive"}


def test_parameters() -> None:
    """The parameters of a sink come with units beside the exact value, from its address, the settings or the default;
    no secret; settings have units, too."""
    uri = "https://hooks.example/geheim?batch-bytes=3145728&timeout=90000ms"
    record = msgspec.structs.replace(
        view().record, sink_uri=uri, config={"sink": {"webhook-config": {"batch-size": 5}}}
    )
    rows = {row["key"]: row for row in sink_parameters(record)}
    assert [
        (rows[name]["shown"], rows[name]["value"]) for name in ("batch-bytes", "timeout", "batch-size", "resolved")
    ] == [
        ("3 MiB", "3145728"),
        ("1m30s", "90000ms"),
        ("5", "5"),
        ("false", "false"),
    ]
    assert [row["changed"] for row in rows.values()][:4] == [True, True, True, False]
    assert sink_parameters(msgspec.structs.replace(record, sink_uri="gone://h")) == []
    points = {row["key"]: row["shown"] for row in settings({"sync-point-interval": "600s"})}
    assert points["sync_point_interval"] == "10m"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "schema-change=exception forbids it; run with schema-change=evolve to",
            ("sink_uri", "schema-change", "evolve"),
        ),
        ("or set dead-letter=skip. Then start it again", ("source_uri", "dead-letter", "skip")),
        ("set zero-date=null or zero-date=string", ("sink_uri", "zero-date", "null")),
        ("certificate; insecure-skip-verify=true disables the check", None),
        ("run with some-thing=else", None),
    ],
)
def test_advice(message: str, advice: tuple[str, str, str] | None) -> None:
    """A parameter that an error says to set is found, with the address that takes it; one that it mentions is not."""
    error = FeedError(code="CDC:Err", message=message, since="")
    addresses = {"sink_uri": "delta:///srv/lake", "source_uri": "kafka://h/t"}
    mend = mend_of(msgspec.structs.replace(view().record, error=error, **addresses))
    assert (mend and tuple(mend.values())) == advice


def test_sync_points() -> None:
    """The last sync point that was passed is shown with the interval; without sync points there is none."""
    record = view().record
    for config, last_ms, interval_s in (
        ({"enable-sync-point": True, "sync-point-interval": "1m"}, 1_767_323_030_000 // 60_000 * 60_000, 60),
        ({"enable-sync-point": True}, 1_767_323_030_000 // 600_000 * 600_000, 600),
    ):
        shown = sync_point(FeedView(msgspec.structs.replace(record, config=config)))
        assert shown == {"last_ts": str(compose(last_ms)), "interval_s": interval_s}
    assert sync_point(view()) is None


def test_names() -> None:
    """A list names topic, path or database, without user, secret or parameter."""
    assert [
        short_name(uri)
        for uri in (
            "kafka://u:geheim@h1,h2:9092/shop?protocol=canal-json",
            "delta+s3://lakes/eu/shop",
            "mysql://root:geheim@db:3306/shop?ssl-ca=/a/b",
            "https://hooks.example/geheim",
            "delta:///srv/lake",
        )
    ] == ["kafka shop", "delta+s3 eu/shop", "mysql db:3306/shop", "https hooks.example", "delta srv/lake"]


def test_the_laggard() -> None:
    """The partition that all wait for is named, with what it waits for; partitions side by side name none. What holds
    the source is named, in the API's fields, too."""
    ts, late = compose(NOW_MS), compose(NOW_MS - 60_000)

    def said(*parts: PartitionProgress) -> str:
        return slowest_partition(parts, NOW_MS)

    ahead = PartitionProgress("shop", 0, 10, 10, ts)
    assert said(ahead, PartitionProgress("shop", 1, 10, 10, ts)) == ""
    assert "partition 1 has brought no resolved ts since" in said(ahead, PartitionProgress("shop", 1, 10, 10, late))
    assert "partition 1 has 5 messages to read" in said(ahead, PartitionProgress("shop", 1, 5, 10, late))
    assert "partition 1 has brought no resolved ts yet" in said(ahead, PartitionProgress("shop", 1, 0, 0, None))
    held = "table shop.t: region 7 at store 3: its scan has not ended, for 62 s at ts 10"
    shown = details(view(capture=CaptureProgress(held_by=held)), NOW_MS)
    assert (shown["laggard"], shown["progress"]["capture"]["held_by"]) == (held, held)
