"""Landing messages: what comes out of a run of them, and where it stops."""

import base64
import importlib.util
import json
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.kit import OPEN, TOPIC, TS, ddl, delete, framed, insert, open_message, recording, resolved
from tests.sources import topics_to_read
from tidegate.changelog.files import LANDED_SCHEMA
from tidegate.codec.columnar import MessageChunk, PlainMessage, RowTexts, decode_chunk, swept
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.engine.change import EventPosition
from tidegate.engine.event_expression import SqlExpressions
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule
from tidegate.model.errors import DecodeError
from tidegate.model.table import TableName
from tidegate.model.tso import MAX_TS
from tidegate.source import kafka_messages
from tidegate.source.kafka_land import TopicPlan
from tidegate.source.kafka_messages import BAD_TS, LandPlan, Resolution, TopicMessage, land_messages

pytestmark = pytest.mark.slow

PLAN = LandPlan(TOPIC, 0, OPEN)
ORDERS = TableName("shop", "orders")
JUNK = TopicMessage(1, b"junk", b"\x00")


def around(bad: TopicMessage) -> list[TopicMessage]:
    return [open_message(0, insert(5, 1)), bad, open_message(2, insert(6, 2), resolved(6))]


def test_rows_ddls_and_watermarks_part_ways():
    """One message may hold rows of several tables, DDLs and watermarks; each event keeps its place."""
    messages = [
        open_message(7, insert(5, 1), insert(5, 2, "items"), insert(6, 3)),
        open_message(8, resolved(6)),
        open_message(9, ddl(9, "create table x (id int)")),
        open_message(10, resolved(4)),
    ]

    landed = land_messages(messages, PLAN, start=7)

    rows = landed.tables[ORDERS]
    assert rows.schema == LANDED_SCHEMA
    assert rows.select(["offset", "seq", "commit_ts", "op"]).to_pylist() == [
        {"offset": 7, "seq": 0, "commit_ts": 5, "op": "I"},
        {"offset": 7, "seq": 2, "commit_ts": 6, "op": "I"},
    ]
    assert rows.column("after").to_pylist() == [[b"1", b"n1"], [b"3", b"n3"]]
    assert set(landed.tables) == {ORDERS, TableName("shop", "items")}
    assert [placed.position for placed in landed.ddls] == [EventPosition(TOPIC, 0, 9)]
    assert (landed.resolved, landed.position, landed.messages) == (6, 11, 4)


def test_layouts_stand_once():
    """However many rows share a layout, its text is there once."""
    landed = land_messages([open_message(n, insert(5, n)) for n in range(50)], PLAN)

    assert len(landed.tables[ORDERS].column("layout").chunk(0).dictionary) == 1


def test_halt_stops_before_the_poison():
    """Under halt everything before the unreadable message lands, and the position is that message's."""
    landed = land_messages(around(JUNK), PLAN)

    assert landed.position == 1
    assert landed.tables[ORDERS].num_rows == 1
    assert landed.letters == []
    assert landed.halt is not None
    assert (landed.halt.position, landed.halt.code) == (EventPosition(TOPIC, 0, 1), "CDC:ErrDecodeFailed")
    assert landed.halted_at is not None
    assert landed.halted_at.raw_value == JUNK.value


def test_skip_keeps_the_message_whole_and_goes_on():
    """Under skip the message becomes a dead letter with its bytes, and what follows lands."""
    landed = land_messages(around(JUNK), replace(PLAN, skip_dead=True))

    assert (landed.position, landed.resolved, landed.halt) == (3, 6, None)
    (letter,) = landed.letters
    assert (letter.position, letter.raw_key, letter.raw_value) == (EventPosition(TOPIC, 0, 1), b"junk", b"\x00")
    assert landed.tables[ORDERS].num_rows == 2


def test_a_message_lands_whole_or_not_at_all():
    """Good events of a bad message do not land: neither its rows nor its watermark."""
    half = open_message(0, insert(5, 1), resolved(9), insert(6, 2, ohk=True))

    landed = land_messages([half], replace(PLAN, skip_dead=True))

    assert (landed.tables, landed.resolved, len(landed.letters)) == ({}, None, 1)


def test_handle_only_rows_cannot_land():
    """A row of which only the key came is a dead letter that names table, ts and ways out."""
    landed = land_messages([open_message(0, insert(TS, 1, ohk=True))], PLAN)

    assert landed.halt is not None
    assert landed.halt.code == "CDC:ErrHandleKeyOnly"
    for word in ("shop.orders", str(TS), "claim-check", "replay"):
        assert word in landed.halt.reason


def test_handle_only_deletes_land():
    """A DELETE says all with its key."""
    landed = land_messages([open_message(0, delete(5, 1, ohk=True))], PLAN)

    assert landed.tables[ORDERS].column("op").to_pylist() == ["D"]


def test_claim_checks_are_fetched(tmp_path):
    """A row that waits in the claim-check storage lands whole, under its base name there and nowhere else."""
    whole = open_message(0, insert(5, 1))
    body = {"key": base64.b64encode(whole.key).decode(), "value": base64.b64encode(whole.value).decode()}
    (tmp_path / "c.json").write_text(json.dumps(body))
    plan = LandPlan(TOPIC, 0, DecodeOptions(protocol="open-protocol", claim_check_storage_uri=tmp_path.as_uri()))

    landed = land_messages([open_message(0, insert(5, 1, ohk=True, ccl="s3://elsewhere/c.json"))], plan)

    assert landed.tables[ORDERS].column("after").to_pylist() == [[b"1", b"n1"]]


@pytest.mark.parametrize("body", [None, b"{}", b'{"key":"","value":""}'])
def test_claim_checks_that_hold_nothing_are_dead(tmp_path, body):
    """A claim check that is missing or broken is a dead letter, and its message shows no storage address."""
    if body is not None:
        (tmp_path / "c.json").write_bytes(body)
    plan = LandPlan(TOPIC, 0, DecodeOptions(protocol="open-protocol", claim_check_storage_uri=tmp_path.as_uri()))

    landed = land_messages([open_message(0, insert(5, 1, ohk=True, ccl="s3://key:secret@b/c.json"))], plan)

    assert landed.halt is not None
    assert "shop.orders at ts 5" in landed.halt.reason
    assert "secret" not in landed.halt.reason
    assert str(tmp_path) not in landed.halt.reason


def test_filtered_rows_do_not_land_and_ddls_do():
    """Rows of tables outside the feed are dropped even when they could not be read whole; DDLs are always kept."""
    plan = replace(PLAN, accept=lambda _schema, table: table == "orders")
    messages = [
        open_message(0, insert(5, 1, "items", ohk=True), insert(5, 2)),
        open_message(1, ddl(6, "create table items (id int)", "items")),
    ]

    landed = land_messages(messages, plan)

    assert list(landed.tables) == [ORDERS]
    assert (landed.filtered, len(landed.ddls), landed.halt) == (1, 1, None)


def test_endless_watermarks_are_passed_over():
    """The largest unsigned ts says that nothing is to come; it moves nothing and harms nothing."""
    landed = land_messages([open_message(0, resolved((1 << 64) - 1)), open_message(1, resolved(MAX_TS))], PLAN)

    assert (landed.resolved, landed.halt, landed.letters) == (MAX_TS, None, [])


def test_timestamps_beyond_bigint_are_dead():
    """A row that no lake could order is no row."""
    landed = land_messages([open_message(0, insert(1 << 63, 1))], PLAN)

    assert landed.halt is not None


def test_resolution_skip():
    """A resolution lets one message pass under halt, as a dead letter."""
    skip = Resolution(topic=TOPIC, partition=0, offset=1, action="skip")

    landed = land_messages(around(JUNK), replace(PLAN, resolutions={1: skip}))

    assert (landed.position, landed.halt, len(landed.letters)) == (3, None, 1)


def test_resolution_replace():
    """A resolution's bytes land in the place of the message's own."""
    fixed = open_message(1, insert(5, 9))
    key, value = (base64.b64encode(body).decode() for body in (fixed.key, fixed.value))
    replaced = Resolution(topic=TOPIC, partition=0, offset=1, action="replace", key_b64=key, value_b64=value)

    landed = land_messages(around(JUNK), replace(PLAN, resolutions={1: replaced}))

    rows = landed.tables[ORDERS].select(["offset", "after"]).to_pylist()
    assert [(row["offset"], row["after"][0]) for row in rows] == [(0, b"1"), (1, b"9"), (2, b"2")]
    assert landed.halt is None


def slow(landed):
    """The reasons for which rows landed a slow way, with their examples."""
    return {one.reason: one.example for one in landed.path_counts.slow()}


def test_made_up_timestamps_only_grow():
    """Order "offset" gives every event a ts of its own, as late as its time says and later than all before."""
    plan = replace(PLAN, order_by_offset=True)
    messages = [open_message(0, insert(TS, 1), insert(TS, 2)), open_message(1, insert(TS - (1 << 30), 3), resolved(TS))]

    landed = land_messages(messages, plan, clock=7)

    ts = landed.tables[ORDERS].column("commit_ts").to_pylist()
    first = TS >> 18 << 18
    assert ts == [first, first + 1, first + 2]
    assert slow(landed) == {"by-offset": "shop.orders: order=offset makes up each row's timestamp"}
    assert (landed.clock, landed.resolved) == (first + 2, None)


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_recordings_land_without_a_letter(partition):
    """Every message of a real changefeed is readable."""
    landed = land_messages(recording("open", partition), PLAN)

    assert (landed.halt, landed.letters) == (None, [])
    assert landed.resolved is not None


@given(key=st.none() | st.binary(max_size=64), value=st.none() | st.binary(max_size=64))
def test_junk_never_escapes(key, value):
    """Whatever bytes arrive, the message lands or is dead; nothing is raised."""
    landed = land_messages([TopicMessage(0, key, value)], replace(PLAN, skip_dead=True))

    assert landed.position == 1


def test_landing_runs_what_the_benchmark_measures(monkeypatch):
    """One callable turns bytes into columns, in the benchmark and in landing."""
    path = Path(__file__).parents[3] / "benchmarks" / "decode.py"
    monkeypatch.syspath_prepend(path.parent)
    spec = importlib.util.spec_from_file_location("benchmark_decode", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)

    assert kafka_messages.decode_chunk is benchmark.decode_chunk
    assert kafka_messages.decode_chunk is decode_chunk


def plainly(messages, options, *, as_texts):
    """A chunk of which nothing takes the fast path."""
    assert as_texts

    def one(index, key, value):
        try:
            return PlainMessage(index, decode(key, value, options))
        except DecodeError as error:
            return PlainMessage(index, (), error)

    return MessageChunk((), tuple(one(index, *pair) for index, pair in enumerate(zip(*messages, strict=True))))


def landed_rows(landed):
    """Rows by place, images by column name; and all else that landing says."""
    rows = []
    for name, table in sorted(landed.tables.items()):
        for row in table.to_pylist():
            layout = json.loads(row["layout"])
            fields = [json.dumps(field, sort_keys=True) for field in layout.pop("fields")]
            images = {
                side: None if row[side] is None else dict(zip(fields, row[side], strict=True))
                for side in ("before", "after")
            }
            rows.append((name, row["offset"], row["seq"], {**row, **images, "layout": layout}))
    rows.sort(key=lambda row: row[:3])
    return rows, replace(landed, tables={})


RECORDED = [("open", 0), ("open", 1), ("open_table", 2), ("canal", 0), ("canal", 2), ("canal_table", 1)]


@pytest.mark.parametrize(
    ("name", "partition"),
    [case if number % 9 == 1 else pytest.param(*case, marks=pytest.mark.slow) for number, case in enumerate(RECORDED)],
)
def test_both_ways_land_the_same(monkeypatch, name, partition):
    """Whether a row came as a column or as an event, the same lands, text by text."""
    options = OPEN if name.startswith("open") else DecodeOptions(protocol="canal-json")
    plan = replace(PLAN, options=options, accept=lambda _schema, table: table != "products")
    messages = list(recording(name, partition))
    chunks = [messages[at : at + 700] for at in range(0, len(messages), 700)]
    quick = [landed_rows(land_messages(chunk, plan)) for chunk in chunks]
    monkeypatch.setattr(kafka_messages, "decode_chunk", plainly)

    assert quick == [landed_rows(land_messages(chunk, plan)) for chunk in chunks]


DIGITS = [
    "0",
    "-1",
    "007",
    "-0",
    "+7",
    "",
    " 7",
    "7.0",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "\u0661",
]
TEXTS = ["", "é", "\u0000", "\x7f", '"', "\\", "}", "\ud800", "😀", "null", "\n"]


def canal_row(offset, number, text):
    """A canal-json row as TiCDC writes it, without a space."""
    value = {"id": 0, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1}
    value |= {"ts": 2, "sql": "", "sqlType": {}, "mysqlType": {"id": "int", "n": "varchar"}, "old": None}
    value |= {"data": [{"id": number, "n": text}], "_tidb": {"commitTs": 7 + offset}}
    return TopicMessage(offset, None, json.dumps(value, separators=(",", ":"), ensure_ascii=text == "\ud800").encode())


def open_row(offset, number, text):
    """The same in Open Protocol; `number` as it stands in the message."""
    key = json.dumps({"ts": 7 + offset, "scm": "shop", "tbl": "t", "t": 1}, separators=(",", ":"))
    note = json.dumps(text, ensure_ascii=text == "\ud800")
    body = f'{{"u":{{"id":{{"t":3,"h":true,"f":11,"v":{number}}},"n":{{"t":15,"f":64,"v":{note}}}}}}}'
    return TopicMessage(offset, struct.pack(">Q", 1) + framed([key.encode()]), framed([body.encode()]))


@pytest.mark.parametrize(("row", "protocol"), [(canal_row, "canal-json"), (open_row, "open-protocol")])
def test_rows_of_plain_texts_are_not_typed_and_odd_ones_land_the_same(monkeypatch, row, protocol):
    """Texts go from the message to the changelog as they stand, where a typed value would give that very text."""
    plan = replace(PLAN, options=DecodeOptions(protocol=protocol), skip_dead=True)
    plain = [row(offset, str(offset), f"n{offset}") for offset in range(450)]
    odd = [(number, "x") for number in DIGITS] + [("5", text) for text in TEXTS] + [("null", None)]
    chunks = [[*plain[:77], row(77, *one), *plain[78:]] for one in odd]
    seen = []

    def noted(*args, **options):
        seen.append(decode_chunk(*args, **options))
        return seen[-1]

    monkeypatch.setattr(kafka_messages, "decode_chunk", noted)
    quick = [landed_rows(land_messages(chunk, plan)) for chunk in [plain, *chunks]]
    monkeypatch.setattr(kafka_messages, "decode_chunk", plainly)

    assert quick == [landed_rows(land_messages(chunk, plan)) for chunk in [plain, *chunks]]
    assert all(isinstance(batch.after, RowTexts) for chunk in seen for batch in chunk.batches)
    assert [len(chunk.rest) for chunk in seen[:1]] == [0]
    assert any(chunk.rest for chunk in seen[1:])


def test_both_ways_stop_at_the_same_message(monkeypatch):
    """What a chunk has read beyond a halt does not land, nor what a resolution takes out of its middle."""
    messages = [open_message(n, insert(n + 1, n), insert(n + 1, n, "items")) for n in range(30)]
    messages[20] = TopicMessage(20, b"junk", b"")
    skip = Resolution(topic=TOPIC, partition=0, offset=7, action="skip")
    plan = replace(PLAN, resolutions={7: skip})
    quick = landed_rows(land_messages(messages, plan))
    monkeypatch.setattr(kafka_messages, "decode_chunk", plainly)

    assert quick == landed_rows(land_messages(messages, plan))
    assert len(quick[0]) == 38


def test_rows_that_event_filters_leave_out(monkeypatch):
    """They are counted as filtered, whatever else is in their message, which goes event by event; messages of other
    tables stay columns. A row without a verdict makes its message bad."""
    rule = EventRule(matcher=("shop.orders",), ignore_insert_value_expr="id = 2", ignore_delete_value_expr="note = 'x'")
    judge = EventFilter.of([rule], SqlExpressions()).messages()
    messages = [
        open_message(0, insert(5, 1), insert(5, 2), insert(5, 2, "items")),
        open_message(1, insert(6, 2, "items"), resolved(6)),
        open_message(2, insert(7, 3)),
        open_message(3, delete(8, 1)),
        open_message(4, insert(9, 4)),
    ]

    monkeypatch.setattr(swept, "ROWS_MIN", 1)
    monkeypatch.setattr(swept, "ROWS_TO_LEARN", 1)
    landed = land_messages(messages, replace(PLAN, judge=judge))

    assert landed.tables[ORDERS].select(["offset", "seq"]).to_pylist() == [
        {"offset": 0, "seq": 0},
        {"offset": 2, "seq": 0},
    ]
    items = landed.tables[TableName("shop", "items")].select(["offset", "seq"]).to_pylist()
    assert items == [{"offset": 0, "seq": 2}, {"offset": 1, "seq": 0}]
    assert (landed.filtered, landed.resolved, landed.position) == (1, 6, 3)
    assert slow(landed)["event-filter"] == "shop.orders: an event filter looks at each row"
    assert landed.halt is not None
    assert landed.halt.code == "CDC:ErrExpressionColumnNotFound"
    assert "for a row of shop.orders at commit_ts 8" in landed.halt.reason
    skipped = land_messages(messages, replace(PLAN, judge=judge, skip_dead=True))
    assert [letter.position.offset for letter in skipped.letters] == [3]
    assert skipped.tables[ORDERS].num_rows == 3


@pytest.mark.parametrize("name", ["open", "canal"])
def test_a_filter_of_nothing_changes_nothing(name):
    """A recorded topic lands the same rows event by event as in columns."""
    kind = {"open": "open-protocol", "canal": "canal-json"}[name]
    plan = LandPlan(TOPIC, 0, DecodeOptions(protocol=kind))
    rule = EventRule(matcher=("*.*",), ignore_insert_value_expr="1 = 2", ignore_delete_value_expr="1 = 2")
    some = list(recording(name, 0))[:800]
    calm = land_messages(some, plan)
    judged = land_messages(some, replace(plan, judge=EventFilter.of([rule], SqlExpressions()).messages()))

    assert calm.tables.keys() == judged.tables.keys()
    assert len(calm.tables) > 1
    for table, rows in calm.tables.items():
        assert judged.tables[table].to_pylist() == rows.to_pylist()
    assert (judged.position, judged.ddls, judged.filtered) == (calm.position, calm.ddls, 0)


def test_a_resolved_ts_of_a_time_to_come() -> None:
    """It is bad: believed, it would carry the frontier above all rows that follow."""
    plan = TopicPlan(source=topics_to_read("b:1", ("t",), OPEN), changelog="c").land_plan("t", 0)
    tomorrow, next_week = (int((time.time() + days * 86_400) * 1000) << 18 for days in (0.9, 7))
    assert tomorrow <= plan.latest_ts < next_week
    messages = [open_message(0, resolved(6)), open_message(1, resolved(next_week)), open_message(2, resolved(tomorrow))]

    halted = land_messages(messages, plan)
    skipped = land_messages(messages, replace(plan, skip_dead=True))

    assert halted.halt is not None
    assert (halted.resolved, halted.position, halted.halt.code) == (6, 1, BAD_TS)
    assert (skipped.resolved, [letter.position.offset for letter in skipped.letters]) == (tomorrow, [1])
