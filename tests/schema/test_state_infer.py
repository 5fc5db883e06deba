"""Tables read off messages."""

import json
from hashlib import sha256

import msgspec
import pytest

from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Field
from tidegate.model.mysql import ColumnFlag as F
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import TableName
from tidegate.schema.columns import render_type
from tidegate.schema.effects import TableAltered
from tidegate.schema.infer import infer_table
from tidegate.schema.state import SchemaState, apply_ddl

NAME = TableName("Db", "T")


def test_from_open_protocol() -> None:
    """Type codes and flags give types, sign, nullability and the primary key."""
    fields = (
        Field(
            "id",
            T.LONGLONG,
            F.HANDLE_KEY | F.PRIMARY_KEY | F.BINARY | F.UNSIGNED,
            unsigned=True,
            binary=True,
            handle=True,
        ),
        Field("v", T.VARCHAR, F.NULLABLE),
        Field("b", T.BLOB, F.NULLABLE | F.BINARY, binary=True),
        Field("g", T.LONG, F.GENERATED | F.BINARY, binary=True),
        Field("d", T.DECIMAL, F.BINARY, binary=True),
    )
    info = infer_table(NAME, fields, None, 0x2A)
    assert info.inferred
    digest = sha256(b"\0\0\0\x02db\0\0\0\x01t").hexdigest()
    assert info.incarnation == f"n-{digest[:32]}-2a"
    assert [render_type(column.type) for column in info.columns] == [
        "bigint(20) unsigned",
        "varchar",
        "blob",
        "int(11)",
        "decimal",
    ]
    assert [column.nullable for column in info.columns] == [False, True, True, False, False]
    assert (info.columns[3].generated, info.columns[3].virtual) == ("", False)
    assert info.handle_key == ("id",)


@pytest.mark.parametrize(
    ("one", "other"),
    [(TableName("a.b", "c"), TableName("a", "b.c")), (TableName("db", "ΛΣ"), TableName("db", "λς"))],
    ids=str,
)
def test_no_two_names_share_an_id(one: TableName, other: TableName) -> None:
    """Tables whose names look alike when they are joined or folded have ids, and so rows, of their own."""
    made = [infer_table(name, (Field("id", T.LONG, F.PRIMARY_KEY),), None, 5).incarnation for name in (one, other)]
    assert made[0] != made[1]


def test_two_tables_with_one_id_are_an_error() -> None:
    """A state in which two tables claim one incarnation is refused, when a round makes it and when it is read."""
    table = infer_table(NAME, (Field("a", T.LONG, F.NULLABLE),), None, 5)
    twin = msgspec.structs.replace(table, name=TableName("Db", "U"))
    state = SchemaState().with_table(table).with_table(twin)
    with pytest.raises(SchemaError, match=r"Db\.T and Db\.U both refer to"):
        state.distinct()
    with pytest.raises(SchemaError, match=r"Db\.T and Db\.U both refer to"):
        SchemaState.from_json(state.to_json())
    dropped = SchemaState().with_table(table).with_dropped(twin)
    with pytest.raises(SchemaError, match="both refer to"):
        dropped.distinct()
    assert SchemaState().with_table(table).distinct().tables


def test_from_canal_json() -> None:
    """MysqlType and pkNames give types as exact as they are written; a unique handle is a key too."""
    fields = (
        Field("a", T.LONG, mysql_type="int(10) unsigned", unsigned=True),
        Field("e", T.ENUM, mysql_type="enum('x','y,z')"),
        Field("s", T.VARCHAR, mysql_type="varchar"),
    )
    info = infer_table(NAME, fields, ("a",), 5)
    assert [render_type(column.type) for column in info.columns] == ["int(10) unsigned", "enum('x','y,z')", "varchar"]
    assert info.columns[1].type.elems == ("x", "y,z")
    assert [column.nullable for column in info.columns] == [False, True, True]
    assert info.handle_key == ("a",)
    keyless = infer_table(NAME, fields, (), 5)
    assert keyless.handle_key == ()
    flagged = infer_table(NAME, (Field("u", T.LONG, F.HANDLE_KEY | F.UNIQUE_KEY, handle=True),), None, 5)
    assert flagged.handle_key == ("u",)


def test_unknown_code() -> None:
    """A column of a type that MySQL does not have, by its code or by its name, is text: no row is lost for it."""
    fields = (Field("x", 99), Field("y", T.VARCHAR, mysql_type="decimal(-1)"), Field("z", T.ENUM, mysql_type="enum()"))
    assert {column.type.code for column in infer_table(NAME, fields, None, 5).columns} == {T.VARCHAR}


def test_ddl_on_inferred() -> None:
    """DDL on an inferred table applies as far as rows could tell: unknown keys and columns are passed over."""
    info = infer_table(NAME, (Field("a", T.LONG, F.NULLABLE),), None, 5)
    state = SchemaState().with_table(info)
    for ts, query in enumerate(
        ("alter table t drop index i", "alter table t drop virtual_one", "alter table t add b int after v")
    ):
        state, effects = apply_ddl(state, Ddl(schema="db", table="t", query=query, commit_ts=9 + ts), 0)
    assert isinstance(effects[0], TableAltered)
    found = state.table(NAME)
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "b"]
    assert json.loads(state.to_json())["tables"][0]["inferred"]
