"""The changefeed that writes a topic, from its API or its file, compared with what a load takes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.source.load.test_loading import Ahead, CountedLoad
from tidegate.config.load import document_of, load
from tidegate.config.ticdc import parse_ticdc
from tidegate.engine.filter import EventRule, SelectorRule
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan, LoadPlan
from tidegate.engine.ports import LocalTasks
from tidegate.engine.upstream_feed import FeedRules, UpstreamFeed
from tidegate.model.errors import ConfigError, FilterRuleInvalid, SourceError, UriInvalid
from tidegate.server.replica_config import render
from tidegate.testing.contract import stories

TOPIC = "kafka://k:9092/shop?protocol=canal-json&enable-tidb-extension=true"
FROM = "mysql://u@db:4000/"
STORY = stories.shop()
PLAN = CountedLoad(STORY, STORY.marks[1]).load_plan
DROPS = {"matcher": ["shop.accounts", "shop.orders"], "ignore-event": ["delete", "drop table"]}
NARROWS = {"matcher": ["shop.orders"], "columns": ["*", "!price"]}
OWN = FeedRules(addresses=("k:9092/shop",))


def compared(tree: dict[str, Any], own: FeedRules = OWN, **known: Any) -> LoadPlan:
    """What a changefeed of these settings leaves of the plan."""
    return UpstreamFeed.of("changefeed f", {"force-replicate": True, **tree}, **known).compared(own, PLAN)


def test_tables_that_it_leaves_out_are_not_loaded() -> None:
    """Those outside its rules, and without force-replicate those without a key: named, with their chunks."""
    left = compared({"filter": {"rules": ["shop.*", "!shop.orders"]}, "force-replicate": False})
    assert [str(one.name) for one in left.tables] == ["shop.accounts"]
    assert {left.table_of(chunk).name.table for chunk in left.chunks} == {"accounts"}
    assert [one.table for one in left.left_out] == ["shop.orders", "shop.visits"]
    assert "filter rules of changefeed f" in left.left_out[0].why
    assert compared({}) == PLAN
    with_case = compared({"filter": {"rules": ["Shop.*"]}, "case-sensitive": True})
    assert len(with_case.left_out) == 3


@pytest.mark.parametrize(
    ("tree", "own", "words"),
    [
        (
            {"filter": {"event-filters": [DROPS]}},
            {"events": (EventRule(("shop.accounts", "shop.orders"), ("delete", "drop table")),)},
            'ignore-event = ["delete","drop table"]) for shop.accounts, shop.orders: what it drops is never changed',
        ),
        (
            {"filter": {"event-filters": [{"matcher": ["shop.visits"], "ignore-insert-value-expr": "at > 1"}]}},
            {"events": (EventRule(("shop.visits",), ignore_insert_value_expr="at > 1"),)},
            'ignore-insert-value-expr = "at > 1") for shop.visits',
        ),
        (
            {"sink": {"column-selectors": [NARROWS]}},
            {"selectors": (SelectorRule(("shop.orders",), ("*", "!price")),)},
            "leave out shop.orders (price): loaded values of these columns never change",
        ),
        (
            {"sink": {"dispatchers": [{"matcher": ["shop.orders"], "topic": "o_{table}"}]}},
            {"addresses": ("k:9092/shop", "k:9092/o_orders")},
            "writes shop.orders to /o_orders, and this feed reads k:9092/shop: name it in source-uri",
        ),
    ],
)
def test_what_it_does_not_send_is_named(tree: dict[str, Any], own: dict[str, Any], words: str) -> None:
    """With the tables and the ways out; not where this feed has the same rule, nor for tables outside."""
    known = {"sink_uri": "kafka://elsewhere:9092/shop?protocol=canal-json"}
    left = compared(tree, **known)
    (note,) = left.notes
    assert note.startswith("ticdc: changefeed f ")
    assert words in note
    assert left.chunks == PLAN.chunks
    assert not compared(tree, FeedRules(**{"addresses": OWN.addresses, **own}), **known).notes
    none = json.loads(json.dumps(tree).replace("shop.", "shop.x"))
    assert not compared(none, **known).notes


def test_other_addresses_are_named() -> None:
    """Another topic, another directory; not the one that is read, under whatever host."""
    (topic,) = compared({}, sink_uri="kafka://k:9092/other").notes
    assert "writes shop.accounts, shop.visits, shop.orders to /other" in topic
    files = FeedRules(addresses=("s3://bucket/in",))
    assert not compared({}, files, sink_uri="s3://bucket/in/?protocol=csv").notes
    assert "bucket/out" in compared({}, files, sink_uri="s3://bucket/out?protocol=csv").notes[0]
    assert "ignore-txn-start-ts (7)" in compared({"filter": {"ignore-txn-start-ts": [7]}}).notes[0]


def test_a_changefeed_that_begins_above_s_is_refused() -> None:
    """So is one that has come further than a database of now; behind a given TSO that is usual."""
    assert compared({}, start_ts=PLAN.ts, checkpoint_ts=PLAN.ts) == PLAN
    with pytest.raises(ConfigError, match=r"begins at .* would be lost"):
        compared({}, start_ts=PLAN.ts + 1)
    with pytest.raises(ConfigError, match="another cluster"):
        compared({}, checkpoint_ts=PLAN.ts + 1)
    assert compared({}, FeedRules(now=False), checkpoint_ts=PLAN.ts + 1) == PLAN


@contextmanager
def served(answers: dict[str, tuple[int, Any]], seen: list[tuple[str, str | None]]) -> Iterator[str]:
    """A server with these answers; it notes paths and credentials."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            status, body = answers[self.path.rpartition("/")[2].partition("?")[0]]
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}/api/v2/changefeeds"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_api() -> None:
    """Names, nulls and defaults of TiCDC's answer; an account; what is no changefeed, and what comes later."""
    tree = {
        "force-replicate": True,
        "filter": {"rules": ["shop.*"], "event-filters": [DROPS]},
        "sink": {"column-selectors": [NARROWS], "dispatchers": [{"matcher": ["shop.orders"], "topic": "o"}]},
    }
    document_of(tree)
    config = {**render(tree), "bdr_mode": None}
    config["filter"]["event_filters"][0] |= {"ignore_sql": None, "ignore_delete_value_expr": ""}
    told = {"id": "one", "config": config, "start_ts": 5, "checkpoint_ts": 9, "sink_uri": "kafka://k/shop"}
    answers = {"one": (200, told), "none": (400, {"error_code": "CDC:ErrChangeFeedNotExists"}), "odd": (200, b"<html>")}
    answers |= {"late": (503, b"wait"), "list": (200, [])}
    seen: list[tuple[str, str | None]] = []
    with served(answers, seen) as base:
        known = {"start_ts": 5, "checkpoint_ts": 9, "sink_uri": "kafka://k/shop"}
        expected = UpstreamFeed.of("changefeed one", tree, **known)
        found = parse_ticdc(f"http://me:p%40ss@{base}/one?keyspace=ks").ask()
        assert (found.events, found.selectors, found.dispatchers) == (
            expected.events,
            expected.selectors,
            expected.dispatchers,
        )
        assert (found.start_ts, found.checkpoint_ts, found.sink_uri) == (5, 9, "kafka://k/shop")
        assert found.tables.rules == ("shop.*",)
        assert seen == [("/api/v2/changefeeds/one?keyspace=ks", "Basic bWU6cEBzcw==")]
        for name, kind, words in (
            ("none", ConfigError, "400.*ErrChangeFeedNotExists"),
            ("odd", ConfigError, "no changefeed"),
            ("list", ConfigError, "no changefeed"),
            ("late", SourceError, "503"),
        ):
            with pytest.raises(kind, match=words):
                parse_ticdc(f"http://{base}/{name}").ask()
    with pytest.raises(SourceError, match="does not answer"):
        parse_ticdc(f"http://{base}/one").ask()


def test_the_load_asks_once(tmp_path: Path) -> None:
    """The changefeed is asked before S is taken; the plan keeps what it leaves, and a restart does not ask."""
    asked: list[int] = []

    def upstream() -> Any:
        asked.append(load_.plans)
        tree = {"filter": {"rules": ["*.*", "!shop.orders"], "event-filters": [DROPS]}}
        return lambda plan: UpstreamFeed.of("changefeed f", tree).compared(OWN, plan)

    for _ in range(2):
        load_ = CountedLoad(STORY, STORY.marks[1])
        source = LoadingSource(
            load_, KeptPlan(str(tmp_path)), lambda *_: True, Ahead(STORY),
            ordered=False, keyless=True, ts=STORY.marks[1], upstream=upstream,
        )  # fmt: skip
        source.start(LocalTasks(), None)
        reading = source.reading()
        assert [one.table for one in reading.left_out] == ["shop.orders", "shop.visits"]
        assert ["event filter" in note for note in reading.warnings] == [True]
    assert asked == [0]


def test_the_option(tmp_path: Path) -> None:
    """An address or a file, as an option or under [source]; without a load, or with one that no topic follows, it is
    refused, and no password is shown."""
    file = tmp_path / "feed.toml"
    file.write_text('[filter]\nrules = ["shop.*"]\n')
    api = "https://me:zebra@cdc:8300/api/v2/changefeeds/one?ca=/x"
    lake = {"sink_uri": "delta:///lake", "load_from": FROM}
    by_file, by_api = (load(source_uri=TOPIC, ticdc=one, **lake) for one in (str(file), api))
    assert by_file.load is not None
    assert isinstance(by_file.load.ticdc, UpstreamFeed)
    assert "zebra" not in repr(by_api)
    for given, kind, words in (
        ({"ticdc": api, "sink_uri": "delta:///lake", "source_uri": TOPIC}, ConfigError, "give load-from"),
        ({"ticdc": api, **lake, "source_uri": f"tidb://{tmp_path}"}, ConfigError, "not written by TiCDC"),
        ({"ticdc": "http://cdc:8300/one", **lake, "source_uri": TOPIC}, UriInvalid, "api/v2/changefeeds/ID"),
        ({"ticdc": f"{api.replace('https', 'http')}", **lake, "source_uri": TOPIC}, UriInvalid, "https"),
        ({"ticdc": str(tmp_path / "none"), **lake, "source_uri": TOPIC}, ConfigError, "no configuration file"),
    ):
        with pytest.raises(kind, match=words):
            load(**given)  # type: ignore[arg-type]
    file.write_text('[filter]\nrules = ["shop"]\n')
    with pytest.raises(FilterRuleInvalid):
        load(source_uri=TOPIC, ticdc=str(file), **lake)
