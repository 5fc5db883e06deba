"""A recorded topic, landed, becomes one of the other protocol: the messages are those that an encoder of single events
makes, in the places where TiCDC puts them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.counts import crossed
from tests.promises import keep_promises, resolved
from tests.sink.kafka.topics import Feed, landed
from tests.source.kit import recording
from tidegate.cli.framed import FollowedTables
from tidegate.codec import BatchEncoder, decode, from_config
from tidegate.engine.dispatch import Splitter
from tidegate.engine.event_filter import acting
from tidegate.engine.frontier import WatermarkMerge
from tidegate.model.event import Ddl, Delete, Event, Resolved, RowChange, Update
from tidegate.model.table import TableName
from tidegate.sink import kafka_dispatch as target_module
from tidegate.source.kafka_messages import TopicMessage
from tidegate.testing.validators import ddls, rows

pytestmark = pytest.mark.slow

PROTOCOLS = {"open": "open-protocol", "canal": "canal-json"}
OTHER = {"open": "canal-json", "canal": "open-protocol"}
SPREAD = ({"matcher": ["*.orders"], "partition": "index-value"},)
PARTS = 4
ORDER = {Delete: 0, Update: 1}


def messages(kind: str) -> dict[int, list[TopicMessage]]:
    """The first part of each partition."""
    found = {number: list(recording(kind, number)) for number in range(3)}
    return {number: held[: len(held) // PARTS] for number, held in found.items()}


def in_order(held: dict[int, list[TopicMessage]], kind: str) -> list[Event]:
    """The events of all partitions up to the last watermark, in commit order."""
    gate: WatermarkMerge[int] = WatermarkMerge(held)
    options = from_config({"protocol": PROTOCOLS[kind], "enable-tidb-extension": True})
    for number, some in held.items():
        for message in some:
            for event in decode(message.key, message.value, options):
                gate.add(number, event)
    return gate.take()


def expected(events: Iterable[Event], feed: Feed) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The messages of all rows, one by one: of each partition by commit_ts, with kind."""
    encoder, router = BatchEncoder(feed.target.options, now_ms=lambda: 7), feed.target.router()
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    tables = FollowedTables()
    for event in events:
        if isinstance(event, Ddl):
            tables.follow(acting(event))
        if not isinstance(event, RowChange):
            continue
        wire = tables.wire(event)
        plan = router.plan(TableName(event.schema, event.table), wire.fields)
        row = msgspec.structs.replace(event, fields=wire.fields)
        for sent in Splitter.of(feed.target.split, plan).transaction([row]):
            route = plan.route(sent, feed.broker.partitions)
            done = [(one.key, one.value) for one in (*encoder.append(sent, wire), *encoder.flush())]
            mine = found.setdefault((route.topic, route.partition), [])
            mine += [(sent.commit_ts, ORDER.get(type(sent), 2), message) for message in done]
    return found


@pytest.mark.parametrize(
    ("kind", "dispatchers"), crossed({"open": "open", "canal": "canal"}, {"by table": (), "spread": SPREAD})
)
def test_a_topic_becomes_one_of_the_other_protocol(
    kind: str, dispatchers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte the rows of each commit_ts, deletes before updates before inserts; each DDL once in its partitions,
    with TiDB's action; the source's frontier is the last that is resolved."""
    monkeypatch.setattr(target_module, "now_ms", lambda: 7)
    held = messages(kind)
    source = landed(tmp_path / "changelog", held, PROTOCOLS[kind])
    events = in_order(held, kind)
    words = {"max_batch_size": "1"} if kind == "canal" else {}
    feed = Feed(OTHER[kind], dispatchers, **words)
    position = feed.carry(source)

    assert not source.dead_letters()
    wanted = expected(events, feed)
    for place, found in feed.broker.messages.items():
        pairs = zip(feed.events()[place], found, strict=True)
        mine = [(event.commit_ts, ORDER.get(type(event), 2), one) for event, one in pairs if rows([event])]
        assert [one[:2] for one in mine] == sorted(one[:2] for one in mine)
        assert sorted(mine) == sorted(wanted.pop(place, []))
    assert not wanted
    sent, frontier = ddls(events), max(event.ts for event in events if isinstance(event, Resolved))
    assert len(sent) >= 10
    for (_, number), some in feed.events().items():
        keys = [(ddl.schema, ddl.table, ddl.commit_ts, ddl.query) for ddl in ddls(some)]
        has = number == 0 or OTHER[kind] == "open-protocol"
        assert keys == ([(ddl.schema, ddl.table, ddl.commit_ts, ddl.query) for ddl in sent] if has else [])
        assert resolved(some)[-1] == frontier == position.checkpoint.ts
    keep_promises(feed.events(), OTHER[kind])


def test_both_recordings_become_the_same(tmp_path: Path) -> None:
    """The rows of one workload, recorded in both protocols, are the same rows again in a third topic."""
    found = []
    for kind, protocol in PROTOCOLS.items():
        feed = Feed("canal-json", SPREAD)
        feed.carry(landed(tmp_path / kind, messages(kind), protocol))
        some = [row for held in feed.events().values() for row in rows(held)]
        least = min(resolved(held)[-1] for held in feed.events().values())
        found.append((least, {key_of(row) for row in some}))

    least = min(found[0][0], found[1][0])
    one, other = ({key for key in keys if key[2] <= least} for _, keys in found)
    assert one == other
    assert len(one) > 1_000


def key_of(row: RowChange) -> tuple[Any, ...]:
    """Kind, table, timestamp and key of a row."""
    image = row.before if isinstance(row, Delete) else row.after
    named = {field.name: value for field, value in zip(row.fields, image, strict=True)}
    return type(row).__name__, row.table, row.commit_ts, *((name, named[name]) for name in sorted(row.pk_names or ()))
