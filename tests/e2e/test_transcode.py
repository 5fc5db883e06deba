"""A topic of one protocol becomes a topic of the other, on a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.e2e.rig import PROTOCOLS, Topic, cli, moment_ts, recorded
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.codec.neutral import event_object
from tidegate.model.event import Ddl, Event, Resolved, RowChange
from tidegate.source.kafka_fetch import messages

pytestmark = pytest.mark.slow

MOMENT = 4
EXTENDED = {"open": "", "canal": "&enable-tidb-extension=true"}
Frames = list[tuple[bytes | None, bytes | None]]


def target(bootstrap: str, topic: str, kind: str, **given: object) -> str:
    """The address of a topic that is written."""
    words = "".join(f"&{name.replace('_', '-')}={value}" for name, value in given.items())
    return f"kafka://{bootstrap}/{topic}?protocol={PROTOCOLS[kind]}{EXTENDED[kind]}{words}"


def held(bootstrap: str, topic: str, kind: str) -> dict[int, list[Event]]:
    """The events of every partition of a topic."""
    options = from_config({"protocol": PROTOCOLS[kind]})
    found: dict[int, list[Event]] = {}
    for key, value, place in messages(topics_to_read(bootstrap, (topic,), options)):
        found.setdefault(int(place.split("/")[1]), []).extend(decode(key, value, options))
    return found


def told_of(event: RowChange | Ddl) -> str:
    """What both protocols say of an event."""
    line: dict[str, Any] = event_object(event)
    if isinstance(event, Ddl):
        return json.dumps([line["schema"], line["table"], line["commit_ts"], line["query"]])
    images = [line["columns"], line["pre_columns"]]
    values = [image and sorted((c["name"], c["type"], repr(c["value"])) for c in image) for image in images]
    return json.dumps([line["op"], line["schema"], line["table"], line["commit_ts"], values])


def changes(events: Iterator[Event]) -> set[str]:
    """All rows and DDLs, once."""
    return {told_of(event) for event in events if not isinstance(event, Resolved)}


def check_order(partitions: dict[int, list[Event]], kind: str) -> None:
    """Within a partition nothing at or below a watermark follows it, and a DDL stands behind the rows of its ts."""
    for number, events in partitions.items():
        resolved = last = -1
        for event in events:
            if isinstance(event, Resolved):
                assert event.ts > resolved
                resolved = event.ts
                continue
            assert event.commit_ts is not None
            assert event.commit_ts >= last
            assert event.commit_ts > resolved
            last = event.commit_ts + isinstance(event, Ddl)
            assert number == 0 or kind == "open" or not isinstance(event, Ddl)


@pytest.mark.parametrize(("kind", "other"), [("open", "canal"), ("canal", "open")])
def test_a_topic_becomes_one_of_the_other_protocol(bootstrap: str, kind: str, other: str) -> None:
    """Every row and DDL of the recording is there once more, where TiCDC would have put it, in commit order."""
    source = Topic.fed(bootstrap, f"from-{kind}", kind, recorded(kind, MOMENT))
    name = f"to-{other}"

    result = cli("transcode", "--from", source.uri(), "--to", target(bootstrap, name, other, partition_num=3), "--json")

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    written = held(bootstrap, name, other)
    theirs = held(bootstrap, source.name, kind)
    assert sorted(written) == [0, 1, 2]
    assert changes(e for one in written.values() for e in one) == changes(e for one in theirs.values() for e in one)
    check_order(written, other)
    marks = [max(e.ts for e in events if isinstance(e, Resolved)) for events in theirs.values()]
    assert [max(e.ts for e in events if isinstance(e, Resolved)) for events in written.values()] == [min(marks)] * 3
    ddls = [sum(isinstance(e, Ddl) for e in written[number]) for number in range(3)]
    assert ddls == ([report["ddls"]] * 3 if other == "open" else [report["ddls"], 0, 0])
    assert (report["done"], report["refused"], report["resolved_ts"]) == (True, 0, min(marks))
    assert report["messages_read"] == sum(map(len, recorded(kind, MOMENT)))
    assert report["rows"] == sum(not isinstance(e, Ddl | Resolved) for one in written.values() for e in one)


def test_rows_lie_where_ticdc_puts_them(bootstrap: str) -> None:
    """Without dispatchers all rows of a table lie in one partition, which the hash of its name says."""
    source = Topic.fed(bootstrap, "placed-open", "open", recorded("open", 2))
    result = cli("transcode", "--from", source.uri(), "--to", target(bootstrap, "placed", "canal", partition_num=3))
    assert result.exit_code == 0, result.output
    written = held(bootstrap, "placed", "canal")
    rows = {
        told_of(e): number for number, events in written.items() for e in events if not isinstance(e, Resolved | Ddl)
    }
    assert rows
    for text, number in rows.items():
        assert crc32("".join(json.loads(text)[1:3]).encode()) % 3 == number


def test_dispatchers_and_options_of_a_file(bootstrap: str, tmp_path: Path) -> None:
    """A changefeed file decides topics, partitions and what messages hold; missing topics are made."""
    file = tmp_path / "feed.toml"
    file.write_text(
        '[sink]\nprotocol = "canal-json"\ndispatchers = [\n'
        '  {matcher = ["shop.orders"], topic = "split_{schema}_{table}",'
        ' partition = "index-value", index = "PRIMARY"},\n'
        '  {matcher = ["shop.*"], partition = "columns", columns = ["nowhere"]},\n]\n'
        "[sink.kafka-config.codec-config]\nenable-tidb-extension = true\n"
    )
    source = Topic.fed(bootstrap, "ruled-open", "open", recorded("open", 1))
    words = ("transcode", "--from", source.uri(), "--to", target(bootstrap, "ruled", "canal", partition_num=4))

    refused = cli(*words, "--config", str(file))
    file.write_text(file.read_text().replace('partition = "columns", columns = ["nowhere"]', 'partition = "ts"'))
    good = cli(*words, "--config", str(file))

    assert refused.exit_code == 1
    assert "CDC:ErrDispatcherFailed" in refused.stderr
    assert good.exit_code == 0, good.output
    split = held(bootstrap, "split_shop_orders", "canal")
    rows = [e for events in split.values() for e in events if not isinstance(e, Resolved | Ddl)]
    assert {(row.schema, row.table) for row in rows} == {("shop", "orders")}
    assert len([number for number, events in split.items() if any(isinstance(e, RowChange) for e in events)]) > 1
    assert all(any(isinstance(e, Resolved) for e in events) for events in split.values()), "watermarks go everywhere"


def test_reading_goes_on_where_it_ended(bootstrap: str) -> None:
    """The last report says where to start; what came meanwhile follows, and nothing is lost or out of order."""
    whole = recorded("open", 2)
    source = Topic.fed(
        bootstrap, "paused-open", "open", [some[: len(some) * (2 + at) // 6] for at, some in enumerate(whole)]
    )
    to = target(bootstrap, "paused", "canal", partition_num=3)
    first = cli("transcode", "--from", source.uri(), "--to", to, "--json")
    source.send([some[len(some) * (2 + at) // 6 :] for at, some in enumerate(whole)])
    start = json.loads(first.stdout.splitlines()[-1])["start"]

    second = cli("transcode", "--from", source.uri(start=start), "--to", to, "--stop-when-idle", "1", "--json")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    written, theirs = held(bootstrap, "paused", "canal"), held(bootstrap, source.name, "open")
    assert changes(e for one in written.values() for e in one) == changes(e for one in theirs.values() for e in one)


@pytest.mark.parametrize(("kind", "other"), [("open", "canal"), pytest.param("canal", "open", marks=pytest.mark.soak)])
def test_run_keeps_its_place(bootstrap: str, tmp_path: Path, kind: str, other: str) -> None:
    """`tidegate run` from topic to topic goes on from its state directory: what came meanwhile follows, nothing that
    was resolved is written twice, and all of it stands in TiCDC's order."""
    whole = recorded(kind, 2)
    cut = [len(some) * (2 + at) // 6 for at, some in enumerate(whole)]
    source = Topic.fed(bootstrap, f"kept-{kind}", kind, [some[:at] for some, at in zip(whole, cut, strict=True)])
    to = target(bootstrap, f"kept-to-{other}", other, partition_num=3)
    line = ["run", "--source-uri", source.uri(), "--sink-uri", to, "--state-dir", str(tmp_path), "--json"]
    first = cli(*line, "-c", "kept", "--stop-when-idle", "1")
    saved = json.loads((tmp_path / "kept.json").read_text())
    source.send([some[at:] for some, at in zip(whole, cut, strict=True)])
    second = cli(*line, "-c", "kept", "--until", str(moment_ts(2)))

    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr + second.stderr
    told = [json.loads(result.stdout.splitlines()[-1]) for result in (first, second)]
    assert [one["state"] for one in told] == ["stopped", "finished"]
    assert told[0]["checkpoint_ts"] == saved["checkpoint_ts"] < told[1]["checkpoint_ts"] == moment_ts(2)
    assert [one["messages"] for one in told] == [sum(cut), sum(map(len, whole)) - sum(cut)]
    written, theirs = held(bootstrap, f"kept-to-{other}", other), held(bootstrap, source.name, kind)
    check_order(written, other)
    assert {resolved_of(events) for events in written.values()} == {moment_ts(2)}
    rows = [e for one in written.values() for e in one if not isinstance(e, Resolved | Ddl)]
    assert len(rows) == sum(one["rows"] for one in told) == len({told_of(e) for e in rows})
    both = [{told_of(e) for one in events.values() for e in upto(one, moment_ts(2))} for events in (written, theirs)]
    assert both[0] == both[1]
    assert sorted(path.name for path in (tmp_path / "kept" / "_tidegate").iterdir()) == ["changelog"]


def resolved_of(events: list[Event]) -> int:
    """How far a partition is resolved."""
    return max(event.ts for event in events if isinstance(event, Resolved))


def upto(events: list[Event], ts: int) -> list[RowChange | Ddl]:
    """Rows and DDLs at or below a ts."""
    return [event for event in events if not isinstance(event, Resolved) and (event.commit_ts or 0) <= ts]


def test_run_refuses_words_without_a_use(tmp_path: Path) -> None:
    """What a feed between topics has no use for is told before anything is read."""
    uris = ["--source-uri", "kafka://h/t?protocol=open-protocol", "--sink-uri", "kafka://h/u?protocol=open-protocol"]
    begun = cli("run", *uris, "--state-dir", str(tmp_path), "--start-ts", "now")
    nowhere = cli("run", *uris)

    assert (begun.exit_code, nowhere.exit_code) == (1, 1)
    assert "start-ts is for tikv:// or tidb://" in begun.stderr
    assert "set --state-dir" in nowhere.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--from", "kafka://h/t?protocol=open-protocol"), "--to kafka://"),
        (("--from", "kafka://h/t?protocol=canal-json", "--to", "kafka://h/u?protocol=open-protocol"), "enable-tidb"),
        (
            ("--from", "kafka://h/t?protocol=open-protocol", "--to", "kafka://h/t?protocol=canal-json"),
            "is also the source",
        ),
        (("--from", "kafka://h/t?protocol=open-protocol", "--to", "kafka://h/u,v?protocol=canal-json"), "one topic"),
        (("--json",), "need topics"),
    ],
)
def test_wrong_use(words: tuple[str, ...], text: str) -> None:
    """What cannot work is told before anything is read."""
    result = cli("transcode", *words)
    assert result.exit_code in {1, 2}
    assert text in " ".join(result.stderr.split())


def test_a_topic_that_may_not_be_made(bootstrap: str) -> None:
    """With auto-create-topic=false a missing topic is an error that names it."""
    source = Topic.fed(bootstrap, "nomake-open", "open", recorded("open", 1))
    to = target(bootstrap, "not-made", "canal", auto_create_topic="false")
    result = cli("transcode", "--from", source.uri(), "--to", to)
    assert result.exit_code == 1
    assert "not-made does not exist" in result.stderr
