"""Recorded keys and values through the whole feed: what it writes is what TiCDC wrote."""

import base64
import json
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest

from tests.golden.codec_cases import DATA
from tests.golden.codec_cases import lines as golden_lines
from tests.golden.encode_kit import BUILD_TIME, masked
from tests.kv.kv_recordings import text_of
from tests.promises import keep_promises, resolved
from tests.source.tidb.kit import Broker, changes, feed, recorded_log, target, write_log
from tidegate.engine.filter import TableFilter
from tidegate.model.mysql import ActionType
from tidegate.model.tso import MAX_TS
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import SegmentLog
from tidegate.testing.validators import ddls, event_text, rows

pytestmark = pytest.mark.slow

STREAMS = ("types", "partition", "ddl", "interleave")
VARIANTS = {"open-protocol": "open_default", "canal-json": "canal_tidb_ext"}


@cache
def recorded(stream: str, kind: str) -> list[dict[str, Any]]:
    """The recorded events of a kind, in order."""
    return [line for line in golden_lines(DATA / "codec" / stream / "events.jsonl.gz") if line["kind"] == kind]


@cache
def run(stream: str, protocol: str) -> Broker:
    """A finished feed of a stream, with single events in messages."""
    broker = Broker()
    made = target(broker, protocol, max_batch_size="1")
    with TemporaryDirectory() as directory:
        feed(recorded_log(Path(directory, "log"), stream), made, Path(directory, "state")).run(idle_s=0)
    return broker


def comparable(message: tuple[bytes | None, bytes]) -> tuple[Any, ...]:
    """A message without what a recording cannot repeat: canal's clock and the order of its types."""
    key, value = message
    return (key, value) if key else masked(BUILD_TIME.sub(b',"ts":0,"sql":', value))


@pytest.mark.parametrize("protocol", VARIANTS)
@pytest.mark.parametrize("stream", STREAMS)
def test_rows_are_those_of_ticdc_byte_by_byte(stream: str, protocol: str) -> None:
    """Each row's message is the recorded one; those of a table lie in one partition, in the recorded order."""
    broker = run(stream, protocol)
    path = DATA / "codec" / stream / f"{VARIANTS[protocol]}.jsonl.gz"
    messages = {line["events"][0]: line["messages"][0] for line in golden_lines(path) if line.get("events")}
    expected: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    for event in sorted(recorded(stream, "row"), key=lambda line: line["commit_ts"]):
        message = messages[event["id"]]
        pair = base64.b64decode(message["key_b64"] or ""), base64.b64decode(message["value_b64"])
        expected[crc32(f"{event['schema']}{event['table']}".encode()) % 3].append(comparable(pair))
    for (_, number), held in broker.messages.items():
        events = broker.events(protocol)["feed", number]
        found = [comparable(m) for m, event in zip(held, events, strict=True) if rows([event])]
        assert found == expected[number]
    assert sum(map(len, expected.values())) >= 5


@pytest.mark.parametrize("protocol", VARIANTS)
@pytest.mark.parametrize("stream", STREAMS)
def test_ddls_are_those_of_ticdc(stream: str, protocol: str) -> None:
    """Name, timestamp, action and the user's own text of each DDL, in order; those of no interest are left out."""
    broker = run(stream, protocol)
    events = broker.events(protocol)
    wanted = [(e["schema"], e["table"], e["commit_ts"], e["event_query"]) for e in recorded(stream, "ddl")]

    keep_promises(events, protocol)
    for (_, number), held in events.items():
        found = [(ddl.schema, ddl.table, ddl.commit_ts, ddl.query) for ddl in ddls(held)]
        assert found == (wanted if protocol == "open-protocol" or number == 0 else [])
        if found and protocol == "open-protocol":
            assert [ddl.type for ddl in ddls(held)] == [e["type"] for e in recorded(stream, "ddl")]
    marks = [resolved(held) for held in events.values()]
    assert marks[0] == marks[1] == marks[2]
    row_times = sorted({row.commit_ts or 0 for held in events.values() for row in rows(held)})
    for ddl_ts in (ddl[2] for ddl in wanted):  # DDLs without a row between them have one resolved ts behind the last
        following = next((ts for ts in row_times if ts > ddl_ts), MAX_TS)
        assert any(ddl_ts <= mark < following for mark in marks[0]), ddl_ts


@pytest.mark.parametrize("stream", STREAMS)
def test_names_that_tables_had_before(tmp_path: Path, stream: str) -> None:
    """By them DDLs find their topic: that of the old name of a RENAME, of the other table of an exchange."""
    timeline = Timeline(SegmentLog(recorded_log(tmp_path, stream)), TableFilter.parse(()), force=True)
    timeline.start(0)
    timeline.read(max(row.commit_ts for row in changes(stream)))
    found = []
    while (stop := timeline.stop()) is not None:
        found += [event.previous and tuple(event.previous) for event in timeline.walk(stop)]

    assert found == [
        (ddl["pre_schema"], ddl["pre_table"]) if ddl.get("pre_table") else None for ddl in recorded(stream, "ddl")
    ]


def test_however_the_log_is_cut_the_topic_is_the_same(tmp_path: Path) -> None:
    """One segment, many, cuts inside of what belongs together: rows and DDLs do not change."""
    found = []
    for number, pieces in enumerate((1, 7, 40)):
        broker, state = Broker(), tmp_path / f"state{number}"
        log = recorded_log(tmp_path / f"log{number}", "interleave", pieces)
        feed(log, target(broker, "open-protocol"), state, tasks=pieces).run(idle_s=0)
        held = broker.events("open-protocol").items()
        found.append({place: [event_text(e) for e in [*rows(events), *ddls(events)]] for place, events in held})

    assert all(one == other for one, other in pairwise(found))


def test_only_tables_whose_rows_can_be_told_apart(tmp_path: Path) -> None:
    """Without force-replicate the recorded rows of eligible tables come.  `nopk` began without a key: it stays out when
    it gets one, as in the topics of a real TiCDC, of whose parts alone this recording is made."""
    eligible = [json.loads(text) for text in text_of("interleave.eligible_only.jsonl").splitlines()]
    wanted = Counter(line["commit_ts"] for line in eligible if line.get("row") and line["row"]["table"] != "nopk")
    skipped = {line["commit_ts"] for line in eligible if line.get("ddl_skipped")}
    late = {line["commit_ts"] for line in recorded("interleave", "ddl") if line["table"] == "nopk"}
    broker = Broker()
    log = recorded_log(tmp_path / "log", "interleave")
    feed(log, target(broker, "open-protocol"), tmp_path / "state", force=False).run(idle_s=0)

    held = [event for events in broker.events("open-protocol").values() for event in events]
    assert Counter(row.commit_ts for row in rows(held)) == wanted
    sent = {ddl.commit_ts for ddl in ddls(held)}
    everything = {line["commit_ts"] for line in recorded("interleave", "ddl")}
    assert everything - sent == skipped | late
    assert skipped < late


def test_a_swap_by_names_is_one_ddl(tmp_path: Path) -> None:
    """A RENAME that names one table twice comes as one statement; rows before it have the old names, others the new."""
    broker = Broker(1)
    feed(recorded_log(tmp_path / "log", "rename_swap"), target(broker, "open-protocol"), tmp_path / "state").run(
        idle_s=0
    )
    events = broker.events("open-protocol")["feed", 0]
    swap = ddls(events)[-1]

    assert (swap.schema, swap.table, swap.type) == ("gs", "s2", ActionType.RENAME_TABLES)
    assert swap.query == ("RENAME TABLE `gs`.`s1` TO `gs`.`s_tmp`, `gs`.`s2` TO `gs`.`s1`, `gs`.`s_tmp` TO `gs`.`s2`")
    at = events.index(swap)
    told = [
        [(row.table, [field.name for field in row.fields]) for row in rows(some)] for some in (events[:at], events[at:])
    ]
    assert told == [[("s1", ["id", "v"]), ("s2", ["id", "w"])], [("s1", ["id", "w"]), ("s2", ["id", "v"])]]


def test_filter_rules(tmp_path: Path) -> None:
    """Rows and DDLs of tables that the rules leave out are not there; a database's own DDL is, if it is taken."""
    log = write_log(tmp_path / "log", changes("types"))
    broker = Broker(1)
    feed(log, target(broker, "open-protocol"), tmp_path / "state", rules=("gt.t_int", "gt.t_misc")).run(idle_s=0)
    events = broker.events("open-protocol")["feed", 0]

    assert {row.table for row in rows(events)} == {"t_int", "t_misc"}
    assert [(ddl.schema, ddl.table) for ddl in ddls(events)] == [("gt", ""), ("gt", "t_int"), ("gt", "t_misc")]
