"""What the two dialects say of the same row, and the faults that can be had."""

import pytest

from tests.codec.encode_rows import (
    ES_MS,
    NO_KEY,
    TABLE,
    TS,
    Claims,
    delete,
    encoder,
    insert,
    key_and_value,
    only,
    update,
)
from tidegate.codec import DecodeOptions, WireTable, decode
from tidegate.codec.wire_table import WireColumn
from tidegate.model.errors import EncodeError
from tidegate.model.event import Ddl, Insert, Update
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

NEWARCH = {"dialect": "newarch"}
PARTIAL = {"only_output_updated_columns": True}
U = '"u":{"a":{"t":15,"f":64,"v":%s},"id":{"t":3,"h":true,"f":11,"v":1}}'
NEW_U = '"u":{"id":{"t":3,"h":true,"f":11,"v":1},"a":{"t":15,"f":64,"v":%s}}'


def value_of(event: Insert | Update, **settings: object) -> str:
    """The value JSON of an Open Protocol event."""
    one = encoder(**settings)
    one.append(event)
    return key_and_value(only(one.flush()))[1].decode()


def key_of(event: Insert, **settings: object) -> str:
    """The key JSON of an Open Protocol event."""
    one = encoder(**settings)
    one.append(event)
    return key_and_value(only(one.flush()))[0].decode()


def test_order_of_columns_and_members() -> None:
    """Classic sorts columns by name and tells the row id; newarch keeps table order and puts `ptn` last."""
    row = Insert(schema="s", table="t", fields=(), after=(1, "x"), commit_ts=TS, row_id=-1, partition_id=9)
    one, two = encoder(), encoder(**NEWARCH)
    one.append(row, TABLE)
    two.append(row, TABLE)
    old, new = key_and_value(only(one.flush())), key_and_value(only(two.flush()))
    assert old[0].decode() == f'{{"ts":{TS},"scm":"s","tbl":"t","rid":-1,"ptn":9,"t":1}}'
    assert new[0].decode() == f'{{"ts":{TS},"scm":"s","tbl":"t","t":1,"ptn":9}}'
    assert old[1].decode() == "{" + U % '"x"' + "}"
    assert new[1].decode() == "{" + NEW_U % '"x"' + "}"


def test_rows_without_a_row_id() -> None:
    """A row id of 0 is not told."""
    row = Insert(schema="s", table="t", fields=TABLE.fields, after=(1, "x"), commit_ts=TS, row_id=0)
    assert key_of(row) == f'{{"ts":{TS},"scm":"s","tbl":"t","t":1}}'


@pytest.mark.parametrize(
    ("settings", "old", "new", "value"),
    [
        ({}, "o", "n", "{" + U % '"n"' + ',"p"' + (U % '"o"')[3:] + "}"),
        ({"output_old_value": False}, "o", "n", "{" + U % '"n"' + "}"),
        (PARTIAL, "o", "n", "{" + U % '"n"' + ',"p":{"a":{"t":15,"f":64,"v":"o"}}}'),
        (PARTIAL, "o", None, "{" + U % "null" + ',"p":{"a":{"t":15,"f":64,"v":"o"}}}'),
        (PARTIAL, None, "n", "{" + U % '"n"' + ',"p":{"a":{"t":15,"f":64,"v":null}}}'),
        (PARTIAL, "n", "n", "{" + U % '"n"' + "}"),
        ({**PARTIAL, **NEWARCH}, "n", "n", "{" + NEW_U % '"n"' + ',"p":{}}'),
        ({**PARTIAL, **NEWARCH}, "o", None, "{" + NEW_U % "null" + ',"p":{"a":{"t":15,"f":64,"v":"o"}}}'),
        (
            {**PARTIAL, **NEWARCH, "newarch_faults": "unnamed-null"},
            "o",
            None,
            "{" + NEW_U % "null" + ',"p":{"t":15,"f":64,"v":"o"}}',
        ),
    ],
)
def test_old_images(settings: dict[str, object], old: str, new: str | None, value: str) -> None:
    """What `p` holds under each option."""
    assert value_of(update(old, new), **settings) == value


def test_empty_names() -> None:
    """A DDL of a database names no table: classic leaves the member out, newarch leaves it empty."""
    ddl = Ddl(schema="s", table="", query="CREATE DATABASE `<`", commit_ts=TS, type=1)
    classic, newarch = only(encoder().append(ddl)), only(encoder(**NEWARCH).append(ddl))
    assert key_and_value(classic) == (
        f'{{"ts":{TS},"scm":"s","t":2}}'.encode(),
        b'{"q":"CREATE DATABASE `\\u003c`","t":1}',
    )
    assert key_and_value(newarch) == (
        f'{{"ts":{TS},"scm":"s","tbl":"","t":2}}'.encode(),
        b'{"q":"CREATE DATABASE `<`","t":1}',
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, b'"v":"\\ufffd\\u003c"'),
        (NEWARCH, b'"v":"\\ufffd<"'),
        ({**NEWARCH, "newarch_faults": "raw-bytes"}, b'"v":"\xff<"'),
    ],
)
def test_bytes_that_are_not_utf8(settings: dict[str, object], text: bytes) -> None:
    """They are replaced; raw bytes have to be asked for."""
    one = encoder(**settings)
    one.append(insert(1, "\udcff<"))
    assert text in only(one.flush()).value


def test_claim_check_keys() -> None:
    """Classic says `ccl` alone, newarch "ohk":false before it, and true before that when the fault is asked for."""
    settings: dict[str, object] = {
        "large_message_handle_option": "claim-check",
        "claim_check_storage_uri": "file:///c",
        "max_message_bytes": 400,
    }
    big = insert(1, "b" * 500)
    keys = []
    for more in ({}, NEWARCH, {**NEWARCH, "newarch_faults": "double-ohk"}):
        one = encoder("open-protocol", Claims(), **settings, **more)
        one.append(big)
        keys.append(key_and_value(only(one.flush()))[0].decode().partition('"t":1')[2])
    ccl = '"ccl":"file:///c/1.json"}'
    assert keys == [f',"rid":1,{ccl}'[8:], f',"ohk":false,{ccl}', f',"ohk":true,"ohk":false,{ccl}']


def test_stale_flags() -> None:
    """With the fault, a partition keeps the flags of its first row; nothing else does, and values stay right."""
    blob = ColumnType(MysqlType.VARCHAR, charset="binary")
    later = WireTable((*TABLE.columns[:1], WireColumn("b", blob, 65)), ("id",))
    flags = []
    for more in ({}, {"newarch_faults": "stale-flags"}):
        one = encoder(**NEWARCH, **more)
        for table, value in ((TABLE, "x"), (later, b"\xff")):
            one.append(Insert(schema="s", table="t", fields=(), after=(1, value), commit_ts=TS, partition_id=3), table)
        flags.append([part.split(b",")[0] for part in only(one.flush()).value.split(b'"f":')[1:]])
        assert flags[-1][:3] == [b"11", b"64", b"11"]
    assert [found[3] for found in flags] == [b"65", b"0"]


def test_canal_layout() -> None:
    """Members in TiCDC's order, times in ms, the clock's too."""
    one = encoder("canal-json", enable_tidb_extension=True)
    types = '"sqlType":{"id":4,"a":12},"mysqlType":{"id":"int","a":"varchar"}'
    head = '{"id":0,"database":"s","table":"t","pkNames":["id"],"isDdl":false,"type":"UPDATE"'
    data = '"old":[{"id":"1","a":"o"}],"data":[{"id":"1","a":null}]'
    extension = f'"_tidb":{{"commitTs":{TS}}}'
    text = f'{head},"es":{ES_MS},"ts":7,"sql":"",{types},{data},{extension}}}'
    assert only(one.append(update("o", None), TABLE)).value.decode() == text


def test_canal_without_columns() -> None:
    """The dialects differ in one word."""
    for dialect, word in (("classic", b'"mysqlType":{}'), ("newarch", b'"mysqlType":null')):
        one = encoder("canal-json", dialect=dialect, delete_only_output_handle_key_columns=True)
        assert word in only(one.append(delete(1, NO_KEY), NO_KEY)).value


def test_canal_row_keys() -> None:
    """output-row-key tells the key of TiKV, and asks for it."""
    settings: dict[str, object] = {**NEWARCH, "enable_tidb_extension": True, "output_row_key": True}
    one = encoder("canal-json", **settings)
    value = only(one.append(insert(1), TABLE, b"t\x80_r\x01")).value
    assert value.endswith(f'"_tidb":{{"commitTs":{TS},"rowkey":"dIBfcgE="}}}}'.encode())
    with pytest.raises(EncodeError, match="output-row-key"):
        one.append(insert(1), TABLE)


def test_unchanged_zeros() -> None:
    """0.0 and -0.0 are equal by value, which classic compares, and not by text, which newarch does."""
    double = WireTable((WireColumn("d", ColumnType(MysqlType.DOUBLE, charset="binary"), 65),))
    row = Update(schema="s", table="t", fields=double.fields, before=(0.0,), after=(-0.0,), commit_ts=TS)
    for dialect, old in (("classic", b'"old":[{}]'), ("newarch", b'"old":[{"d":"0"}]')):
        one = encoder("canal-json", dialect=dialect, **PARTIAL)
        assert old in only(one.append(row, double)).value


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_time_zones(protocol: str) -> None:
    """TIMESTAMPs are moved from UTC, DATETIMEs and zero dates are not."""
    names = (MysqlType.TIMESTAMP, MysqlType.DATETIME, MysqlType.TIMESTAMP)
    columns = tuple(WireColumn(f"c{i}", ColumnType(code, charset="binary"), 65) for i, code in enumerate(names))
    table = WireTable(columns)
    values = ("2024-07-01 16:00:00.50", "2024-07-01 16:00:00", "0000-00-00 00:00:00")
    row = Insert(schema="s", table="t", fields=table.fields, after=values, commit_ts=TS)
    one = encoder(protocol, time_zone="Asia/Shanghai")
    message = only((*one.append(row, table), *one.flush()))
    (found,) = decode(message.key, message.value, DecodeOptions(protocol=protocol))
    assert isinstance(found, Insert)
    assert found.after == ("2024-07-02 00:00:00.50", values[1], values[2])
    with pytest.raises(EncodeError, match="TIMESTAMP"):
        one.append(Insert(schema="s", table="t", fields=table.fields, after=("x", None, None), commit_ts=TS), table)
