"""The mounter's rules, one scenario each: which schema, which columns, which rows."""

import itertools
import json

import msgspec
import pytest

from tidegate.engine.mount import Mounter
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle, index_prefix
from tidegate.kv.rows import ChecksumForm, handle_of, select_stored
from tidegate.model.errors import KvDecodeError, TableNotFound
from tidegate.model.event import Delete, Insert, Update
from tidegate.model.mysql import ActionType, MysqlType
from tidegate.mysql.datum import Unsigned
from tidegate.mysql.packed_time import Time
from tidegate.schema.job import Job, parse_job
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredTable,
    StoredType,
    render_stored,
    table_layout,
)
from tidegate.schema.stored.snapshot import SchemaHistory

NOT_NULL, PRIMARY = 1, 2
LONG, TIMESTAMP, ENUM, VARCHAR = int(MysqlType.LONG), int(MysqlType.TIMESTAMP), int(MysqlType.ENUM), 15


def column(column_id: int, name: str, tp: int = LONG, flag: int = 0, **members) -> StoredColumn:
    """A column; `elems` go into the type."""
    charset = "utf8mb4" if tp in (VARCHAR, ENUM) else "binary"
    kind = StoredType(
        tp, flag, 20, 0, charset, "utf8mb4_bin" if charset == "utf8mb4" else charset, members.pop("elems", None)
    )
    return StoredColumn(column_id, Name.of(name), offset=column_id - 1, type=kind, **members)


NUMBERS = itertools.count(1)
"""Every job has an id of its own."""
KEY = column(1, "id", flag=NOT_NULL | PRIMARY)


def table(*columns: StoredColumn, table_id: int = 5, **members) -> StoredTable:
    """A table with an integer primary key in front."""
    return StoredTable(table_id, Name.of("t"), cols=[KEY, *columns], pk_is_handle=True, **members)


def finished(action: ActionType, definition: StoredTable | None = None, **members) -> Job:
    """A finished job of database 2."""
    binlog = {"SchemaVersion": 1, "TableInfo": definition and json.loads(render_stored(definition))}
    job = {"id": next(NUMBERS), "type": int(action), "state": 4, "schema_id": 2, "schema_name": "db", "binlog": binlog}
    return parse_job(json.dumps({**job, **members}))


def record(definition: StoredTable, values: dict) -> tuple[bytes, bytes]:
    """Key and value of a row, as TiDB writes it under that definition."""
    layout = table_layout(definition)
    handle = handle_of(layout, values, row_id=9)
    return encode_row(layout, Row(definition.id, handle, values, select_stored(layout, values)))


def history(*definitions: StoredTable) -> SchemaHistory:
    """The versions of one table at 10, 20, 30 .."""
    made = SchemaHistory()
    for place, definition in enumerate(definitions, 1):
        action = ActionType.CREATE_TABLE if place == 1 else ActionType.ADD_COLUMN
        made.apply(finished(action, definition), place * 10)
    return made


def values_of(mounted) -> dict:
    """Column -> new value."""
    return dict(zip([field.name for field in mounted.row.fields], mounted.row.after, strict=True))


def test_what_happened_follows_from_the_values():
    """Both values: UPDATE; the new one: INSERT; the old one: DELETE; none, or an index entry: nothing."""
    definition = table(column(2, "v"))
    mounter = Mounter(history(definition))
    key, old = record(definition, {1: 1, 2: 10})
    _, new = record(definition, {1: 1, 2: 20})

    assert isinstance(mounter.mount(key, new, None, 15).row, Insert)
    assert mounter.mount(key, new, old, 15).row == Update(
        before=(1, 10),
        after=(1, 20),
        schema="db",
        table="t",
        fields=mounter.mount(key, new, old, 15).row.fields,
        commit_ts=15,
        row_id=1,
        pk_names=("id",),
    )
    assert isinstance(mounter.mount(key, None, old, 15).row, Delete)
    assert mounter.mount(key, b"", b"", 15) is None
    assert mounter.mount(index_prefix(5, 1) + b"\x00", b"0", None, 15) is None


def test_a_row_at_the_ts_of_a_ddl_comes_before_it():
    """The schema is that of commit_ts - 1."""
    before, after = table(column(2, "v")), table(column(2, "renamed"))
    mounter = Mounter(history(before, after))
    key, value = record(before, {1: 1, 2: 10})

    assert values_of(mounter.mount(key, value, None, 20)) == {"id": 1, "v": 10}
    assert values_of(mounter.mount(key, value, None, 21)) == {"id": 1, "renamed": 10}


def test_new_rows_under_the_old_schema():
    """ADD COLUMN on its way: a row already holds the new column, and the old definition does not name it."""
    before, after = table(column(2, "v")), table(column(2, "v"), column(3, "added"))
    mounter = Mounter(history(before, after))
    key, value = record(after, {1: 1, 2: 10, 3: 7})

    assert values_of(mounter.mount(key, value, None, 15)) == {"id": 1, "v": 10}
    assert values_of(mounter.mount(key, value, None, 25)) == {"id": 1, "v": 10, "added": 7}


def test_old_rows_under_the_new_schema():
    """A column that the value lacks: origin default and not DEFAULT, else NULL, else the zero value."""
    old = table()
    new = table(
        column(2, "origin", default="8", origin_default="3"),
        column(3, "nothing", default="8"),
        column(4, "zero", flag=NOT_NULL),
        column(5, "choice", ENUM, NOT_NULL, elems=["a", "b"]),
        column(6, "chosen", ENUM, elems=["a", "b"], origin_default="b"),
        column(7, "text", VARCHAR, NOT_NULL),
        column(8, "at", TIMESTAMP, origin_default="2020-01-01 00:00:00"),
    )
    key, value = record(old, {1: 1})
    mounted = Mounter(history(old, new), time_zone="Asia/Shanghai").mount(key, value, None, 25)

    assert values_of(mounted) == {
        "id": 1,
        "origin": 3,
        "nothing": None,
        "zero": 0,
        "choice": 1,
        "chosen": 2,
        "text": "",
        "at": "2020-01-01 08:00:00",
    }


def test_timestamps_are_on_the_clocks_of_the_zone():
    """A stored TIMESTAMP is UTC; the zero one belongs to no zone."""
    definition = table(column(2, "at", TIMESTAMP))
    mounter = Mounter(history(definition), time_zone="Asia/Shanghai")
    shown = []
    for moment in (Time(2020, 1, 1, 20), Time(0, 0, 0)):
        key, value = record(definition, {1: 1, 2: moment})
        shown.append(values_of(mounter.mount(key, value, None, 15))["at"])

    assert shown == ["2020-01-02 04:00:00", "0000-00-00 00:00:00"]


def test_virtual_columns_are_left_out():
    """A stored generated column is in the row, a virtual one is nowhere."""
    virtual = column(2, "v", generated_expr_string="`id` + 1")
    stored = column(3, "s", generated_expr_string="`id` + 2", generated_stored=True)
    definition = table(virtual, stored)
    key, value = record(definition, {1: 1, 3: 3})

    assert values_of(Mounter(history(definition)).mount(key, value, None, 15)) == {"id": 1, "s": 3}


@pytest.mark.parametrize(
    ("flag", "unique", "generated", "eligible"),
    [
        (NOT_NULL, True, "", True),
        (0, True, "", False),
        (NOT_NULL, False, "", False),
        (NOT_NULL, True, "`b`", False),
    ],
)
def test_eligible_tables(flag, unique, generated, eligible):
    """Rows need a primary key, or a unique key on stored NOT NULL columns; --force-replicate takes all."""
    name = Name.of("v")
    index = StoredIndex(1, Name.of("k"), idx_cols=[StoredPart(name)], is_unique=unique)
    only = column(1, "v", flag=flag, generated_expr_string=generated)
    definition = StoredTable(5, Name.of("t"), cols=[only], index_info=[index])
    key, value = record(definition, {1: 4})

    assert (Mounter(history(definition)).mount(key, value, None, 15) is not None) == eligible
    assert Mounter(history(definition), force_replicate=True).mount(key, value, None, 15) is not None


def test_late_rows_of_truncated_tables():
    """A row under an id that TRUNCATE left is dropped silently; an id that nobody knows is an error."""
    made = history(table())
    made.apply(finished(ActionType.TRUNCATE_TABLE, table(table_id=6), table_id=5), 20)
    mounter = Mounter(made)
    key, value = record(table(), {1: 1})

    assert mounter.mount(key, value, None, 20) is not None
    assert mounter.mount(key, value, None, 21) is None
    unknown, _ = record(table(table_id=77), {1: 1})
    with pytest.raises(TableNotFound, match="table 77 is not in the schema at 24"):
        mounter.mount(unknown, value, None, 25)


def test_non_public_columns_are_shown():
    """A definition with a column on its way (a start in the middle of a DDL) is mounted with all that it names."""
    half = table(column(2, "half", state=2, origin_default="1"))
    key, value = record(table(), {1: 1})

    assert values_of(Mounter(history(half)).mount(key, value, None, 15)) == {"id": 1, "half": 1}


def test_unsigned_and_hidden_handles():
    """An unsigned primary key comes from the key; a table without one has hidden row numbers."""
    unsigned = msgspec.structs.replace(KEY, type=StoredType(8, NOT_NULL | PRIMARY | 32, 20, 0, "binary", "binary"))
    definition = StoredTable(5, Name.of("t"), cols=[unsigned], pk_is_handle=True)
    key, value = record(definition, {1: Unsigned((1 << 64) - 1)})
    mounted = Mounter(history(definition)).mount(key, value, None, 15)

    assert (mounted.row.after, mounted.row.row_id) == (((1 << 64) - 1,), -1)
    hidden = StoredTable(5, Name.of("t"), cols=[column(1, "v")])
    key, value = record(hidden, {1: 4})
    mounted = Mounter(history(hidden), force_replicate=True).mount(key, value, None, 15)
    assert (mounted.row.after, mounted.handle, mounted.row.pk_names) == ((4,), IntHandle(9), ())


def test_damage_names_the_key():
    """Bytes that are no row are a KvDecodeError with the key."""
    definition = table(column(2, "v"))
    key, _ = record(definition, {1: 1, 2: 10})

    with pytest.raises(KvDecodeError, match=key.hex()):
        Mounter(history(definition)).mount(key, b"\x80\x00\x01", None, 15)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_checksums(version):
    """With `verify` a row whose checksum contradicts it is marked; without, and without a checksum, nothing is."""
    definition = table(column(2, "v"))
    layout = table_layout(definition)
    row = Row(5, IntHandle(1), {1: 1, 2: 10}, (2,))
    key, value = encode_row(layout, row, checksum=ChecksumForm(version))
    damaged = value[:-1] + bytes([value[-1] ^ 1])
    made = history(definition)

    assert not Mounter(made, verify=True).mount(key, value, value, 15).corrupt
    assert Mounter(made, verify=True).mount(key, damaged, None, 15).corrupt
    assert Mounter(made, verify=True).mount(key, None, damaged, 15).corrupt == (version > 0)
    assert not Mounter(made).mount(key, damaged, None, 15).corrupt
    assert not Mounter(made, verify=True).mount(key, record(definition, row.columns)[1], None, 15).corrupt
