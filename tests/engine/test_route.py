"""Topics and partitions are those that TiCDC's rules give."""

import doctest
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.dispatch_rows import FIELDS, INFO, NAME, ROW, TS, delete, insert, plan, router, update
from tidegate.engine.dispatch import complaints, dispatch_rules, topic_name, topic_pattern, value_text
from tidegate.model.errors import (
    ConfigError,
    DispatcherFailed,
    EncodeError,
    FilterRuleInvalid,
    SinkConfigInvalid,
    TopicExpressionInvalid,
)
from tidegate.model.event import Insert
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableName

TABLE_CRC = crc32(b"ShopItem")

TEXTS = [
    (MysqlType.LONG, -5, b"-5"),
    (MysqlType.LONGLONG, (1 << 64) - 1, b"18446744073709551615"),
    (MysqlType.ENUM, 2, b"2"),
    (MysqlType.SET, 1 << 63, b"9223372036854775808"),
    (MysqlType.FLOAT, 153.12300109863281, b"153.123"),
    (MysqlType.DOUBLE, 1e21, b"1000000000000000000000"),
    (MysqlType.DOUBLE, 1e-7, b"0.0000001"),
    (MysqlType.VARCHAR, "\u4f60\udcff", b"\xe4\xbd\xa0\xff"),
    (MysqlType.VARCHAR, b"\x00\xff", b"\x00\xff"),
    (MysqlType.DECIMAL, "1.50", b"1.50"),
    (MysqlType.TIMESTAMP, "2024-01-01 00:00:00.5", b"2024-01-01 08:00:00.5"),
    (MysqlType.DATETIME, "2024-01-01 00:00:00", b"2024-01-01 00:00:00"),
]

HASHES = [
    ({}, TABLE_CRC, "Shop.Item"),
    ({"partition": "TABLE"}, TABLE_CRC, "Shop.Item"),
    ({"dispatcher": "default"}, TABLE_CRC, "Shop.Item"),
    ({"partition": "no-such-rule"}, TABLE_CRC, "Shop.Item"),
    ({"partition": "ts"}, TS, str(TS)),
    ({"partition": "index-value"}, TABLE_CRC ^ crc32(b"Id11"), None),
    ({"partition": "rowid"}, TABLE_CRC ^ crc32(b"Id11"), None),
    ({"partition": "index-value", "index": "primary"}, TABLE_CRC ^ crc32(b"Id11"), None),
    ({"partition": "index-value", "index": "by_code"}, TABLE_CRC ^ crc32(b"codex"), None),
    ({"partition": "index-value", "index": "odd"}, TABLE_CRC ^ crc32(b"codex"), None),
    ({"partition": "columns", "columns": ["DAY", "price"]}, None, None),
    ({"partition": "columns", "columns": []}, TABLE_CRC, str(TABLE_CRC)),
]

TOPICS = [
    ("{schema}_{table}", "shop", "item", "shop_item"),
    ("a.{schema}", "shop", "item", "a.shop"),
    ("x-{table}.y", "shop", "item", "x-item.y"),
    ("fixed", "shop", "item", "fixed"),
    ("{schema}", "Läden", "item", "L_den"),
    ("{table}", "s", "你好\udcff", "___"),
    ("{schema}", ".", "t", "_"),
    ("{schema}", "..", "t", "__"),
    ("{schema}{table}", "s" * 200, "t" * 200, "s" * 200 + "t" * 49),
    ("{schema}_{table}", "{table}", "t", "_table__t"),
]


@pytest.mark.parametrize(("code", "value", "text"), TEXTS)
def test_values_are_hashed_as_texts(code, value, text):
    """Every kind of value has TiCDC's text, TIMESTAMP in the changefeed's zone."""
    assert value_text(code, "Asia/Shanghai")(value) == text


@pytest.mark.parametrize(("entry", "hashed", "key"), HASHES)
def test_each_rule_has_its_hash(entry, hashed, key):
    """A row goes by its table, its handle, a unique index in any case, columns in any case, or its timestamp."""
    if hashed is None:
        hashed = TABLE_CRC ^ crc32(b"Daymon") ^ crc32(b"price1000000000000000000000")
    for row in (insert(), delete(), update((12, "y", "tue", 2.0), ROW)):
        for partitions in (1, 3, 16):
            assert plan(**entry).route(row, partitions) == ("events", hashed % partitions, key or str(hashed))


def test_a_key_is_the_plain_name():
    """However names are quoted for people, TiCDC joins them by a dot."""
    row = msgspec.structs.replace(insert(), schema="sh.op")

    assert router().plan(TableName("sh.op", "Item"), FIELDS, INFO).route(row, 3).key == "sh.op.Item"


def test_null_is_a_text_or_nothing():
    """Classic hashes NULL as `null`, newarch leaves it out; a handle has no NULL to differ by."""
    row = insert(11, None, "mon", 1.0)
    for entry in ({"partition": "index-value", "index": "by_code"}, {"partition": "columns", "columns": ["code"]}):
        assert plan(**entry).route(row, 16).key == str(TABLE_CRC ^ crc32(b"codenull"))
        assert plan({"dialect": "newarch"}, **entry).route(row, 16).key == str(TABLE_CRC)


def test_first_matching_rule_decides():
    """Rules are asked in order, without case; tables that none takes go by table into the default topic."""
    entries = (
        {"matcher": ["none.*"], "topic": "n"},
        {"topic": "never"},
        {"matcher": ["shop.*", "!shop.Order"], "topic": "first"},
        {"matcher": ["SHOP.*"], "topic": "{schema}"},
    )
    how = router(*entries)

    assert [how.topic("Shop", table) for table in ("Item", "order", "")] == ["first", "Shop", "events"]
    assert how.topic("bank", "account") == "events"
    assert how.watermark_topics([NAME, TableName("Shop", "order"), NAME]) == ("first", "Shop", "events")
    assert how.watermark_topics([]) == ("events",)


def test_ddls_go_where_their_table_was():
    """A RENAME goes to the topic of the old name, a schema's DDL to the default; canal-json has it once."""
    entry = {"matcher": ["*.*"], "topic": "{table}"}
    how, once = router(entry), router(entry, protocol="canal-json")

    assert how.ddl("s", "new", 3, TableName("s", "old")) == ("old", range(3))
    assert how.ddl("s", "t", 3) == ("t", range(3))
    assert how.ddl("s", "", 3) == ("events", range(3))
    assert once.ddl("s", "t", 3) == ("t", range(1))


@pytest.mark.parametrize(("pattern", "schema", "table", "topic"), TOPICS)
def test_topics_are_named_by_expressions(pattern, schema, table, topic):
    """Placeholders are filled once, with names that Kafka allows and that end after 249 bytes."""
    assert topic_name(topic_pattern(pattern, "open-protocol"), schema, table) == topic


@pytest.mark.parametrize("pattern", ["{table}_{schema}", "{other}", "a b", "{schema}{schema}", "ä", "{schema", "a\n"])
def test_other_expressions_are_refused(pattern):
    """What is no topic expression has TiCDC's code."""
    with pytest.raises(TopicExpressionInvalid) as found:
        router({"matcher": ["*.*"], "topic": pattern})
    assert found.value.code == "CDC:ErrKafkaInvalidTopicExpression"


def test_avro_needs_both_placeholders():
    """Schemas of avro are registered by topic, so that each table needs its own."""
    assert topic_pattern("{schema}.{table}", "avro")
    with pytest.raises(TopicExpressionInvalid, match="avro"):
        topic_pattern("{table}", "avro")


@pytest.mark.parametrize(
    ("entries", "error", "what"),
    [
        ([{"matcher": ["*.*"], "partition": "ts", "dispatcher": "ts"}], SinkConfigInvalid, r"\[0\] has both"),
        ([{"matcher": ["*.*"], "partitions": "ts"}], ConfigError, "partitions"),
        ([{"matcher": "*.*"}], ConfigError, "matcher"),
        ({"matcher": []}, ConfigError, "dispatchers"),
        ([{"matcher": ["a%b.c"]}], FilterRuleInvalid, "unexpected"),
    ],
)
def test_entries_that_cannot_be_read(entries, error, what):
    """An entry with a wrong key, kind or matcher is refused by name."""
    with pytest.raises(error, match=what):
        router(*entries) if isinstance(entries, list) else dispatch_rules(entries)


def test_what_ticdc_warns_of_is_told():
    """Rules that work, but perhaps not as meant, are told with their place."""
    entries = [
        {"matcher": ["a.*"], "partition": "rowid"},
        {"matcher": ["a.*"], "partition": "index_value"},
        {"partition": "columns"},
        {"matcher": ["a.*"], "partition": "TS", "target-schema": "b"},
    ]
    found = complaints(dispatch_rules(entries))

    assert [text.split(":")[0][-3:] for text in found] == ["[0]", "[1]", "[2]", "[2]"]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"partition": "index-value", "index": "gone"}, "index not found.*PRIMARY, By_Code, odd"),
        ({"partition": "index-value", "index": "by_day"}, "index is not unique"),
        ({"partition": "columns", "columns": ["Id", "nope"]}, "'nope' of Shop.Item does not exist"),
        ({"partition": "columns", "columns": ["twice"]}, "'twice' of Shop.Item is virtual"),
    ],
)
def test_rules_that_do_not_fit_the_table(entry, what):
    """An index or a column that cannot decide is refused before the first row, with TiCDC's code."""
    with pytest.raises(DispatcherFailed, match=what) as found:
        plan(**entry)
    assert found.value.code == "CDC:ErrDispatcherFailed"


def test_rows_that_do_not_fit_the_plan():
    """Rows of other tables or columns, without a timestamp, with alien values, or no partitions at all are refused."""
    by_key = plan(partition="index-value")
    other = Insert(schema="Shop", table="Other", fields=FIELDS, after=ROW)
    narrow = Insert(schema="Shop", table="Item", fields=FIELDS[:1], after=ROW[:1])
    for row, partitions in ((other, 16), (narrow, 16), (insert(), 0)):
        with pytest.raises(DispatcherFailed):
            by_key.route(row, partitions)
    with pytest.raises(DispatcherFailed, match="timestamp"):
        plan(partition="ts").route(Insert(schema="Shop", table="Item", fields=FIELDS, after=ROW), 16)
    with pytest.raises(EncodeError, match="'Id'"):
        by_key.route(insert("eleven", "x", "mon", 1.0), 16)
    with pytest.raises(DispatcherFailed, match="unknown"):
        router({"matcher": ["*.*"], "partition": "index-value", "index": "a"}).plan(NAME, FIELDS)
    with pytest.raises(DispatcherFailed, match="do not contain it"):
        router({"matcher": ["*.*"], "partition": "index-value", "index": "by_code"}).plan(NAME, FIELDS[:1], INFO)


@given(st.text(), st.text(), st.sampled_from([pattern for pattern, *_ in TOPICS]))
def test_every_table_gets_a_topic_that_kafka_takes(schema, table, pattern):
    """Whatever a table is called, its topic consists of letters, digits, '.', '_', '-' and is short enough."""
    found = topic_name(pattern, schema, table)

    assert len(found) <= 249
    assert found not in {".", ".."}
    assert found.isascii()
    assert not set(found) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def test_examples_of_the_page():
    """Every example of the page about dispatching prints what the page says."""
    page = Path(__file__).parents[2] / "docs" / "formats" / "dispatching.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")

    assert (failed, tried > 1) == (0, True)
