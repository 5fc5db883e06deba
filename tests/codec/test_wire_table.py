"""Tables as they go on the wire: flags, handles and types made from definitions."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.golden.codec_cases import DATA
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, decode, wire_table
from tidegate.codec.canal_encode import mysql_type
from tidegate.codec.stream import read_frames
from tidegate.codec.wire_table import flags_of, table_of_fields, table_of_row
from tidegate.model.event import Ddl, Field, Resolved
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import SchemaState, apply_ddl

STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")


def tables(stream: str) -> Iterator[tuple[TableInfo, dict[str, Any]]]:
    """Each recorded definition with the table that the recorded DDLs have made by then."""
    state, last_ts, seq = SchemaState(), 0, 0
    with gzip.open(DATA / "codec" / stream / "events.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["kind"] == "ddl":
                seq = seq + 1 if line["commit_ts"] == last_ts else 0
                last_ts = line["commit_ts"]
                ddl = Ddl(
                    schema=line["schema"],
                    table=line["table"],
                    query=line["query"],
                    commit_ts=last_ts,
                    type=line["type"],
                )
                state, _ = apply_ddl(state, ddl, seq)
            elif line["kind"] == "table":
                found = state.table(TableName(line["schema"], line["table"]))
                if found is not None and found.version == line["version"]:
                    yield found, line


@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_flags_come_from_definitions(stream: str) -> None:
    """The flags that TiCDC sent are those of the definition that the DDLs make, hidden columns aside."""
    compared = 0
    for info, line in tables(stream):
        theirs = {column["name"]: column["flag"] for column in line["columns"] if not column["hidden"]}
        assert flags_of(info) == theirs, line["ref"]
        compared += len(theirs)
    assert compared > 3


@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_types_come_from_definitions(stream: str) -> None:
    """The full mysqlType is TiDB's own text, and virtual columns are left out."""
    for info, line in tables(stream):
        shown = {column["name"]: column for column in line["columns"] if column["visible_to_cdc"]}
        table = wire_table(info)
        assert [column.name for column in table.columns] == list(shown)
        for column in table.columns:
            full = mysql_type(column, full=True)
            assert full.removesuffix(" zerofill") == shown[column.name]["info_schema"], line["ref"]


@pytest.mark.parametrize("name", ["sysbench", "wide"])
def test_recorded_messages_can_be_made_of_decoded_rows(name: str) -> None:
    """Rows that were decoded make the very messages that they came from."""
    encoder = BatchEncoder(EncodeOptions(protocol="open-protocol"))
    with gzip.open(DATA / "speed" / f"open_{name}.bin.gz") as file:
        frames = list(read_frames(file.read()))
    made = [
        message
        for key, value in frames
        for event in decode(key, value, DecodeOptions(protocol="open-protocol"))
        for message in encoder.append(event)
    ]
    assert [(message.key, message.value) for message in (*made, *encoder.flush())] == frames


def test_decoded_canal_rows_keep_their_types() -> None:
    """A canal-json row has no flags; its mysqlType goes on as it came."""
    with gzip.open(DATA / "speed" / "canal_wide.bin.gz") as file:
        (key, value), *_ = read_frames(file.read())
    (row,) = decode(key, value, DecodeOptions(protocol="canal-json"))
    assert not isinstance(row, Ddl | Resolved)
    table = table_of_row(row)
    types = json.loads(value)["mysqlType"]
    assert {column.name: mysql_type(column, full=True) for column in table.columns} == types
    assert table.pk_names == tuple(json.loads(value)["pkNames"])


@pytest.mark.parametrize(("names", "flag"), [(("a",), 8), (("a", "b"), 8 | 32)])
def test_composite_keys_of_canal_rows(names: tuple[str, ...], flag: int) -> None:
    """PkNames tells that a key has several columns."""
    fields = (Field("a", MysqlType.VARCHAR), Field("b", MysqlType.VARCHAR))
    table = table_of_fields(fields, names)
    assert {column.name: column.flag & (8 | 32) for column in table.columns if column.name in names} == dict.fromkeys(
        names, flag
    )


KEYED = """CREATE TABLE k (z INT(6) ZEROFILL NOT NULL, c VARCHAR(9) NOT NULL, g INT AS (z + 1) STORED, n INT UNSIGNED,
    v INT AS (z + 2), UNIQUE KEY c (c), KEY zn (z, n), UNIQUE KEY cz (c, z))"""
CANAL = (
    Field("z", 3, None, "int unsigned zerofill", unsigned=True, binary=True),
    Field("c", 15, None, "varchar"),
    Field("g", 3, None, "int", binary=True),
    Field("n", 3, None, "int unsigned", unsigned=True, binary=True),
)


def defined(text: str) -> TableInfo:
    """The table that a CREATE TABLE makes."""
    state, _ = apply_ddl(SchemaState(), Ddl(schema="s", table="k", query=text, commit_ts=5, type=3), 0)
    found = state.table(TableName("s", "k"))
    assert found is not None
    return found


def test_what_a_message_lacks_is_read_off_its_table() -> None:
    """Flags and handle of canal-json's columns, ZEROFILL of Open Protocol's, in any case of names and for some of the
    columns alone."""
    info = defined(KEYED)
    whole = wire_table(info)
    flags = {column.name: column.flag for column in whole.columns}
    assert (flags["c"] & 2, flags["n"] & 64, flags["g"] & 4, flags["z"] & 32) == (2, 64, 4, 32)

    canal = table_of_fields(CANAL, (), info)
    assert {column.name: column.flag for column in canal.columns} == flags
    assert canal.names_handle
    assert not table_of_fields(CANAL, ()).names_handle
    some = table_of_fields((msgspec.structs.replace(CANAL[1], name="C"), CANAL[2]), (), info)
    assert [(column.name, column.flag) for column in some.columns] == [("C", flags["c"]), ("g", flags["g"])]
    opened = table_of_fields(whole.fields, None, info)
    types = [mysql_type(column, full=False) for column in opened.columns]
    assert types == ["int unsigned zerofill", "varchar", "int", "int unsigned"]


@pytest.mark.parametrize(
    ("text", "primary"),
    [
        (KEYED.replace("c VARCHAR(9)", "c INT"), ()),
        (KEYED.replace("c VARCHAR(9)", "c VARBINARY(9)"), ()),
        (KEYED.replace("n INT UNSIGNED", "n INT"), ()),
        (KEYED.replace(" n INT", " m INT").replace("z, n", "z, m"), ()),
        (KEYED.replace("g INT AS (z + 1) STORED", "g INT AS (z + 1)"), ()),
        (KEYED.replace("UNIQUE KEY c (c)", "PRIMARY KEY (c)"), ()),
        (KEYED, ("c",)),
    ],
)
def test_another_table_tells_nothing(text: str, primary: tuple[str, ...]) -> None:
    """Where names, types, signs or primary key differ, a row is written by its message alone."""
    assert table_of_fields(CANAL, primary, defined(text)) == table_of_fields(CANAL, primary)


def test_a_primary_key_is_told_in_its_order() -> None:
    """By the definition; flags know the columns alone."""
    info = defined("CREATE TABLE k (a INT, b INT, c INT, PRIMARY KEY (c, a))")

    assert table_of_fields(wire_table(info).fields, None, info).pk_names == ("c", "a")
    assert table_of_fields(wire_table(info).fields, None).pk_names == ("a", "c")


def test_a_table_read_off_rows_tells_nothing_more() -> None:
    """It was made of such rows itself."""
    info = msgspec.structs.replace(defined(KEYED), inferred=True)

    assert table_of_fields(CANAL, (), info) == table_of_fields(CANAL, ())
