"""The recorded shop in a Redis: at each recorded moment it has the rows that TiDB had, of all tables with a key."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis import Redis

from tests.contract.test_redis_sink import rows_here
from tests.counts import some
from tests.recorded import RecordedLanding, partitions_of
from tests.redis_server import running_redis
from tests.replay.test_database import WORKLOAD, known, truths
from tests.replay.test_history import PROTOCOLS
from tests.source.kafka.broker import row
from tidegate.changelog.changelog import changelog_uri, replace
from tidegate.changelog.source import ChangelogSource, LandedSource
from tidegate.codec import decode
from tidegate.codec.neutral import event_object
from tidegate.codec.options import DecodeOptions
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import MadeAnew
from tidegate.model.event import Resolved
from tidegate.model.table import TableInfo
from tidegate.schema.state import SchemaState
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.sink.redis_server import RedisServers
from tidegate.testing.script import Row, run_here

pytestmark = pytest.mark.slow


def landed(home: Path, protocol: str) -> str:
    """What a changefeed from the recorded topic has landed."""
    options, messages = DecodeOptions(protocol=PROTOCOLS[protocol]), partitions_of(WORKLOAD / protocol)
    landing = RecordedLanding(changelog_uri(str(home)), "f", options, messages, topic="shop")
    landing.start(LocalTasks())
    while landing.land(500):
        pass
    return changelog_uri(str(home))


def plain(kind: str, value: Any) -> Any:
    """A value as it is compared: texts as bytes, documents as what they say (`null` is NULL), 32-bit numbers."""
    if kind == "json":
        found = None if value is None else json.loads(value)
        return None if found is None else json.dumps(found, sort_keys=True)
    if kind.startswith("float") and value is not None:
        return float(np.float32(value))
    return value.encode() if isinstance(value, str) else value


def unlike(rows_of: Callable[[TableInfo], list[Row]], state: SchemaState, truth: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the rows of the tables that have a key."""
    keyed = {str(table.name): table for table in state.tables.values() if table.handle_key}
    for name, table in truth["tables"].items():
        if name not in keyed:
            info = next((one for one in state.tables.values() if str(one.name) == name), None)
            if info is None or info.handle_key:
                yield f"{name} is not known"
            continue
        columns = {at: (one["name"], one["type"]) for at, one in enumerate(table["columns"])}
        virtual = {column.name for column in keyed[name].columns if column.virtual}
        columns = {at: one for at, one in columns.items() if one[0] not in virtual}
        wanted = Counter(
            tuple(plain(kind, known(kind, row[at])) for at, (_, kind) in columns.items()) for row in table["rows"]
        )
        rows = rows_of(keyed[name])
        found = Counter(tuple(plain(kind, row[column]) for column, kind in columns.values()) for row in rows)
        yield from (f"{name} has {row}" for row in list(found - wanted)[:1])
        yield from (f"{name} lacks {row}" for row in list(wanted - found)[:1])


@pytest.mark.parametrize(
    ("protocol", "mode"),
    [
        ("open", "hash"),
        pytest.param("canal", "json", marks=pytest.mark.more),
        pytest.param("canal", "hash", marks=pytest.mark.soak),
        pytest.param("open", "json", marks=pytest.mark.soak),
    ],
)
def test_each_moment(tmp_path: Path, protocol: str, mode: Any) -> None:
    """From topics of either protocol Redis has, at each recorded moment, the rows that TiDB had."""
    source = landed(tmp_path / "home", protocol)
    with running_redis(tmp_path / "redis") as server:
        options = RedisOptions("f", (("127.0.0.1", server.port),), mode=mode)
        for truth in truths():
            sink = RedisSink(options)
            run_here(ChangelogSource(source), sink, until=truth["ts"])
            wrong = list(unlike(partial(rows_here, RedisServers(options)), sink.recover().state, truth))
            assert not wrong, "\n".join([str(truth["n"]), *wrong])


def test_a_redis_that_was_flushed(tmp_path: Path) -> None:
    """Its progress is gone, and what was trimmed behind it would be missing: the feed stops; once the changelog is
    removed, as the error says it, the topic lands again and Redis has all rows."""
    uri, messages = changelog_uri(str(tmp_path)), {0: [row(number) for number in range(30)]}

    def landing() -> RecordedLanding:
        return RecordedLanding(uri, "f", DecodeOptions(protocol="open-protocol"), messages, topic="shop")

    def live() -> None:
        begun = landing()
        begun.start(LocalTasks())
        while begun.land(30):
            pass
        run_here(LandedSource(landing, uri), RedisSink(redis), until=39)

    with running_redis(tmp_path / "redis") as server, Redis(port=server.port) as client:
        redis = RedisOptions("f", (("127.0.0.1", server.port),))
        live()
        assert replace(uri, [], [], floor=20)
        client.flushall()
        for _ in range(2):
            with pytest.raises(MadeAnew, match="the target has no progress of this changefeed") as stopped:
                live()
        shutil.rmtree(str(stopped.value).split("or remove ")[1].split(",")[0])
        client.flushall()

        live()

        assert len(client.keys("shop*")) == 30


def cached(state: SchemaState, truth: dict[str, Any]) -> dict[bytes, bytes]:
    """What an application has cached that has read all rows of tables with a key: each row under its key."""
    keyed = {str(table.name): table.handle_key for table in state.tables.values() if table.handle_key}
    found = {}
    for name in truth["tables"].keys() & keyed.keys():
        columns = [(one["name"], one["type"]) for one in truth["tables"][name]["columns"]]
        for cells in truth["tables"][name]["rows"]:
            row = {column: known(kind, cell) for (column, kind), cell in zip(columns, cells, strict=True)}
            values = (row[column] for column in keyed[name])
            texts = [one if isinstance(one, bytes) else str(one).encode() for one in values]
            found[b":".join([b"row", *name.encode().split(b"."), *texts])] = repr(sorted(row.items())).encode()
    return found


@pytest.mark.parametrize("protocol", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_nothing_stale_is_cached(tmp_path: Path, protocol: str) -> None:
    """Of all rows that are cached at a recorded moment only those are left at the next one that are still true."""
    source, moments = landed(tmp_path / "home", protocol), truths()
    before: dict[bytes, bytes] = {}
    dropped = kept = 0
    with running_redis(tmp_path / "redis") as server:
        options = RedisOptions(
            "f", (("127.0.0.1", server.port),), mode="invalidate", invalidated="row:{schema}:{table}:{pk}"
        )
        for truth in moments[: some(4, len(moments))]:
            sink = RedisSink(options)
            run_here(ChangelogSource(source), sink, until=truth["ts"])
            rows = cached(sink.recover().state, truth)
            left = {key: server.client.get(key) for key in server.client.scan_iter("row:*", count=1000)}
            stale = [key for key, text in left.items() if text != rows.get(key)]
            assert not stale, (truth["n"], stale[:3])
            assert before.keys() >= left.keys()
            dropped, kept = dropped + len(before) - len(left), kept + len(left)
            before = rows
            server.client.mset(rows)
    assert min(dropped, kept) > 100


def told(event: dict[str, Any]) -> str:
    """A change without what only its message tells."""
    if event["kind"] == "ddl":
        return f"{event['commit_ts']} {event['query']}"
    images = [
        sorted((column["name"], json.dumps(column["value"])) for column in event[image] or ())
        for image in ("pre_columns", "columns")
    ]
    return f"{event['commit_ts']} {event['schema']}.{event['table']} {event['op']} {images}"


@pytest.mark.parametrize("protocol", [pytest.param("open", marks=pytest.mark.soak), "canal"])
def test_streams(tmp_path: Path, protocol: str) -> None:
    """From topics of either protocol one stream has each change that was sent, once, with ids that go up, in whatever
    steps and however often it came."""
    source = landed(tmp_path / "home", protocol)
    options = DecodeOptions(protocol=PROTOCOLS[protocol])
    frames = [frame for each in partitions_of(WORKLOAD / protocol).values() for frame in each]
    sent = [event for frame in frames for event in decode(frame.key, frame.value, options)]
    moments = truths()[: some(4, len(truths()))]
    last = moments[-1]["ts"]
    happened = {
        told(event_object(one)) for one in sent if not isinstance(one, Resolved) and (one.commit_ts or 0) <= last
    }
    with running_redis(tmp_path / "redis") as server:
        for truth in moments:
            sink = RedisSink(RedisOptions("f", (("127.0.0.1", server.port),), mode="stream", stream="all"))
            run_here(ChangelogSource(source), sink, until=truth["ts"])
        held = server.client.xrange("all")

    ids = [tuple(map(int, one.split(b"-"))) for one, _ in held]
    assert ids == sorted(set(ids))
    arrived = [told(json.loads(fields[b"event"])) for _, fields in held]
    assert set(arrived) == happened
    assert len(arrived) == len(happened)
