"""Canal-JSON: types as text, old images, official Canal's habits, and every example of the document."""

import json
from typing import Any

import pytest

from tidegate.codec import DecodeOptions
from tidegate.codec.canal import decode_canal as decode
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, Update, images
from tidegate.model.mysql import MysqlType

LEGACY = DecodeOptions(protocol="canal-json", legacy=True)
INTS = {
    "c_bigint": "9223372036854775807",
    "c_int": "2147483647",
    "c_mediumint": "8388607",
    "c_smallint": "32767",
    "c_tinyint": "127",
    "id": "2",
}
INT_TYPES = {name: name.removeprefix("c_") if name != "id" else "int" for name in INTS}
DML: dict[str, Any] = {
    "id": 0,
    "database": "test",
    "table": "tp_int",
    "pkNames": ["id"],
    "isDdl": False,
    "type": "INSERT",
    "es": 1639633141221,
    "ts": 1639633142960,
    "sql": "",
    "sqlType": {"c_bigint": -5, "c_int": 4, "c_mediumint": 4, "c_smallint": 5, "c_tinyint": -6, "id": 4},
    "mysqlType": INT_TYPES,
    "data": [INTS],
    "old": None,
    "_tidb": {"commitTs": 163963314122145239},
}


def read(options: DecodeOptions = DecodeOptions(protocol="canal-json"), **members: Any) -> tuple[Event, ...]:  # noqa: B008
    """The events of the document's DML message with other members."""
    return decode(None, json.dumps({**DML, **members}).encode(), options)


def column(mysql_type: str, text: str | None, *, legacy: bool = False) -> Any:
    """The value that one column gives."""
    options = LEGACY if legacy else DecodeOptions(protocol="canal-json")
    (event,) = read(options, mysqlType={"c": mysql_type}, data=[{"c": text}])
    assert isinstance(event, Insert)
    return event.after[0]


def test_example_dml() -> None:
    """The document's INSERT: names, both times, commit_ts, key and typed values in the order of `data`."""
    (event,) = read()
    assert isinstance(event, Insert)
    assert event.after == (9223372036854775807, 2147483647, 8388607, 32767, 127, 2)
    assert [field.name for field in event.fields if field.handle] == ["id"]
    assert (event.schema, event.table, event.pk_names) == ("test", "tp_int", ("id",))
    assert (event.commit_ts, event.es_ms, event.build_ms) == (163963314122145239, 1639633141221, 1639633142960)


def test_example_ddl() -> None:
    """The document's DROP DATABASE."""
    members = {"type": "QUERY", "table": "", "isDdl": True, "sql": "drop database if exists test", "pkNames": None}
    nothing = {"sqlType": None, "mysqlType": None, "data": None, "es": 1639633094670, "ts": 1639633095489}
    (event,) = read(**members, **nothing, _tidb={"commitTs": 163963309467037594})
    assert event == Ddl(
        schema="test",
        table="",
        query="drop database if exists test",
        canal_type="QUERY",
        commit_ts=163963309467037594,
        es_ms=1639633094670,
        build_ms=1639633095489,
    )


def test_example_watermark() -> None:
    """The document's TIDB_WATERMARK is a resolved timestamp."""
    members = {"database": "", "table": "", "type": "TIDB_WATERMARK", "es": 1640007049196, "ts": 1640007050284}
    nothing = {"pkNames": None, "sqlType": None, "mysqlType": None, "data": None}
    assert read(**members, **nothing, _tidb={"watermarkTs": 429918007904436226}) == (Resolved(429918007904436226),)


@pytest.mark.parametrize("old", [{**INTS, "c_int": "0", "c_tinyint": "0"}, {"c_int": "0", "c_tinyint": "0"}])
def test_example_update_with_full_and_partial_old_row(old: dict[str, str]) -> None:
    """TiCDC's full `old` and official Canal's partial one give the same UPDATE."""
    (event,) = read(type="UPDATE", old=[old])
    assert isinstance(event, Update)
    assert event.before == (9223372036854775807, 0, 8388607, 32767, 0, 2)
    assert event.after == (9223372036854775807, 2147483647, 8388607, 32767, 127, 2)


@pytest.mark.parametrize("old", [None, [INTS]])
def test_example_delete(old: Any) -> None:
    """The deleted row stands in `data`; before 5.4 `old` repeated it."""
    (event,) = read(type="DELETE", old=old)
    assert isinstance(event, Delete)
    assert event.before[-1] == 2


def test_example_binary() -> None:
    """The document's sixteen bytes of VARBINARY."""
    raw = bytes([5, 7, 10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70])
    text = '"\\u0005\\u0007\\n\\u000f$2+cx\\u003c\\u0026ÿþ-7F"'
    assert column("varbinary", json.loads(text)) == raw
    assert column("varbinary(16)", json.loads(text)) == raw


@pytest.mark.parametrize("full", [False, True])
def test_example_types_with_and_without_parameters(*, full: bool) -> None:
    """The document's two mysqlType maps, TiCDC's and official Canal's, describe the same columns."""
    types = {
        "c_binary": ("binary", "binary(16)", "abc", b"abc", MysqlType.STRING),
        "c_bit": ("bit", "bit(64)", "65", 65, MysqlType.BIT),
        "c_char": ("char", "char(16)", "abc", "abc", MysqlType.STRING),
        "c_decimal": ("decimal", "decimal(10, 4)", "123.4560", "123.4560", MysqlType.DECIMAL),
        "c_enum": ("enum", "enum('a','b','c')", "1", 1, MysqlType.ENUM),
        "c_set": ("set", "set('a','b','c')", "3", 3, MysqlType.SET),
        "c_varbinary": ("varbinary", "varbinary(16)", "abc", b"abc", MysqlType.VARCHAR),
        "c_varchar": ("varchar", "varchar(16)", "abc", "abc", MysqlType.VARCHAR),
        "id": ("int", "int", "1", 1, MysqlType.LONG),
    }
    data = {name: row[2] for name, row in types.items()}
    (event,) = read(mysqlType={name: row[full] for name, row in types.items()}, data=[data])
    assert isinstance(event, Insert)
    assert event.after == tuple(row[3] for row in types.values())
    assert [field.type for field in event.fields] == [row[4] for row in types.values()]


@pytest.mark.parametrize(
    ("mysql_type", "text", "value"),
    [
        ("bigint unsigned", "18446744073709551615", (1 << 64) - 1),
        ("bit(64)", "18446744073709551615", (1 << 64) - 1),
        ("int(10) unsigned zerofill", "0000000007", 7),
        ("tinyint(1)", "1", 1),
        ("INT", "-5", -5),
        ("year(4)", "2155", 2155),
        ("float", "153.123", 153.12300109863281),
        ("double", "-0.5", -0.5),
        ("double(20,5)", "1E3", 1000.0),
        ("decimal(65,30) unsigned", "1.0", "1.0"),
        ("timestamp(6)", "2020-01-01 00:00:00.000000", "2020-01-01 00:00:00.000000"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("vector(3)", "[1,2,3]", "[1,2,3]"),
        ("longblob", "ÿ", b"\xff"),
        ("text", "ÿ", "ÿ"),
        ("enum('blob) unsigned','x')", "2", 2),
        ("varchar(3)", None, None),
        ("brand new(7)", "kept", "kept"),
        ("double", "1" + "0" * 308, 1e308),
    ],
)
def test_values_by_mysql_type(mysql_type: str, text: str | None, value: Any) -> None:
    """Each kind of mysqlType turns its text into the value; a name that nobody knows keeps it."""
    assert column(mysql_type, text) == value
    assert type(column(mysql_type, text)) is type(value)


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("int", ""),
        ("int", "1.0"),
        ("int", " 1"),
        ("int", "1_0"),
        ("int", "٣"),
        ("int", "9" * 5000),
        ("tinyint", "256"),
        ("int unsigned", "-1"),
        ("bit(1)", "-1"),
        ("enum('a')", "a"),
        ("set('a')", "a"),
        ("float", "nan"),
        ("float", "1e39"),
        ("double", "inf"),
        ("double", "1e400"),
        ("double", "0x1p3"),
        ("double", ""),
        ("blob", "Ā"),
        ("binary(1)", "😀"),
    ],
)
def test_texts_that_are_no_such_value_are_refused(mysql_type: str, text: str) -> None:
    """A text that its type cannot have is a DecodeError that names the column."""
    with pytest.raises(DecodeError, match="column 'c'"):
        column(mysql_type, text)


def test_official_enum_and_set_names() -> None:
    """With legacy, names become numbers where the elements are listed, quotes and commas in them included."""
    assert column("enum('a','b,c','it''s')", "it's", legacy=True) == 3
    assert column("set('a','b','c')", "a,c", legacy=True) == 5
    assert column("set('a','b')", "", legacy=True) == 0
    assert column("enum('a','b')", "2", legacy=True) == 2
    assert column("enum", "a", legacy=True) == "a"


def test_several_rows_in_one_message() -> None:
    """Official Canal's rows give an event each, `old` matched by position."""
    types = {"id": "int(11)", "v": "varchar(5)"}
    data = [{"id": "1", "v": "x"}, {"id": "2", "v": None}]
    first, second = read(type="UPDATE", mysqlType=types, data=data, old=[{"v": "w"}, {"v": "y"}])
    assert isinstance(first, Update)
    assert isinstance(second, Update)
    assert [images(first), images(second)] == [((1, "w"), (1, "x")), ((2, "y"), (2, None))]
    with pytest.raises(DecodeError, match="1 old rows next to 2"):
        read(type="UPDATE", mysqlType=types, data=data, old=[{}])


def test_update_without_old_row_is_an_insert() -> None:
    """An UPDATE that says nothing of the row before is a row that may have existed."""
    (event,) = read(type="UPDATE", old=None)
    assert isinstance(event, Insert)


def test_marks_and_missing_extension() -> None:
    """OnlyHandleKey and claimCheckLocation are marks; without `_tidb` there is no commit_ts."""
    (row,) = read(_tidb={"commitTs": 5, "onlyHandleKey": True, "rowkey": "AA=="})
    (claim,) = read(_tidb={"commitTs": 5, "claimCheckLocation": "file:///a/b.json"})
    plain = decode(None, json.dumps({name: value for name, value in DML.items() if name != "_tidb"}).encode())[0]
    assert isinstance(row, Insert)
    assert isinstance(claim, Insert)
    assert isinstance(plain, Insert)
    assert (row.handle_only, claim.claim_check, plain.commit_ts, plain.es_ms) == (
        True,
        "file:///a/b.json",
        None,
        1639633141221,
    )


def test_row_without_columns() -> None:
    """A DELETE of a table without a handle, with only handle columns sent, has none at all."""
    (event,) = read(type="DELETE", data=[{}], mysqlType=None, sqlType=None, pkNames=[])
    assert event == Delete(
        schema="test",
        table="tp_int",
        fields=(),
        before=(),
        commit_ts=163963314122145239,
        pk_names=(),
        es_ms=1639633141221,
        build_ms=1639633142960,
    )


@pytest.mark.parametrize(
    "members",
    [
        {"type": "REPLACE"},
        {"type": None},
        {"data": None},
        {"data": []},
        {"data": {}},
        {"data": [None]},
        {"table": ""},
        {"database": None},
        {"mysqlType": None},
        {"mysqlType": {"id": 4}},
        {"data": [{"id": 1}]},
        {"es": -1},
        {"ts": 1 << 63},
        {"_tidb": {"commitTs": 1 << 63}},
        {"_tidb": {"commitTs": True}},
        {"_tidb": {"commitTs": 1.5}},
        {"_tidb": []},
        {"type": "TIDB_WATERMARK"},
        {"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": 1 << 64}},
        {"pkNames": "id"},
        {"type": "UPDATE", "old": [{"z": "1"}]},
        {"isDdl": "yes"},
        {"data": [{"id": "x"}]},
    ],
)
def test_messages_of_the_wrong_shape_are_refused(members: dict[str, Any]) -> None:
    """Each wrong member gives a DecodeError."""
    with pytest.raises(DecodeError) as caught:
        read(**members)
    assert caught.value.codec == "canal-json"


@pytest.mark.parametrize("value", [None, b"", b"null", b"[]", b"{", b"{}", b"[" * 100_000, b'{"type":NaN}', b"\xff"])
def test_what_is_no_message_is_refused(value: bytes | None) -> None:
    """Nothing, other JSON and no JSON give a DecodeError."""
    with pytest.raises(DecodeError):
        decode(None, value)


def test_bytes_that_are_not_utf8_are_kept() -> None:
    """A raw byte in a text survives as a surrogate escape, an escaped lone surrogate is refused."""
    raw = json.dumps({**DML, "mysqlType": {"c": "varchar"}, "data": [{"c": "@"}]}).encode()
    (event,) = decode(None, raw.replace(b"@", b"\xe9"))
    assert isinstance(event, Insert)
    assert event.after == ("\udce9",)
    with pytest.raises(DecodeError):
        decode(None, raw.replace(b"@", b"\xe9\\ud800"))
    with pytest.raises(DecodeError):
        decode(None, raw.replace(b"@", b"\\ud800"))
