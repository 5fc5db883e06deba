"""Every column type from its DDL text through rows of TiKV and both protocols into a lake."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.codec.columnar_kit import by_chunk, by_decoder
from tests.sink.delta.lake import Rows, options, run, stored
from tidegate.codec import BatchEncoder, DecodeOptions, decode, encode_options, wire_table
from tidegate.engine.mount import converter
from tidegate.engine.plan import Create
from tidegate.engine.plan import Rows as Apply
from tidegate.kv.row_columns import column_reader, locate
from tidegate.kv.rows import encode_raw_row
from tidegate.kv.slices import slices
from tidegate.model.event import Ddl, Insert, RowChange, Value
from tidegate.model.mysql import TYPES, UNDECLARED, MysqlType
from tidegate.model.table import ColumnType, TableInfo
from tidegate.mysql.column_value import parse_value, read_value, write_value
from tidegate.schema.state import SchemaState, apply_ddl

CASES: dict[str, tuple[Value, object]] = {
    "TINYINT": (-7, -7),
    "SMALLINT UNSIGNED": (65535, 65535),
    "MEDIUMINT": (-8388608, -8388608),
    "INT UNSIGNED": (4294967295, 4294967295),
    "BIGINT UNSIGNED": (18446744073709551615, Decimal(18446744073709551615)),
    "YEAR": (2024, 2024),
    "BIT(3)": (5, 5),
    "ENUM('a', 'b')": (2, "b"),
    "SET('a', 'b')": (3, "a,b"),
    "FLOAT": (0.5, 0.5),
    "DOUBLE": (1e300, 1e300),
    "DECIMAL(10, 2)": ("-12.50", Decimal("-12.50")),
    "DATE": ("2024-02-29", date(2024, 2, 29)),
    "DATETIME(3)": ("2024-02-29 01:02:03.450", datetime(2024, 2, 29, 1, 2, 3, 450_000, UTC).replace(tzinfo=None)),
    "TIMESTAMP": ("2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    "TIME(1)": ("-01:00:00.5", "-01:00:00.5"),
    "CHAR(9)": ("é<", "é<"),
    "VARBINARY(9)": (b"\xff\0", b"\xff\0"),
    "TINYTEXT": ("a", "a"),
    "TEXT": ("b", "b"),
    "MEDIUMTEXT": ("c", "c"),
    "LONGBLOB": (b"\xfe", b"\xfe"),
    "JSON": ('{"a": [1, "<"]}', '{"a": [1, "<"]}'),
    "VECTOR(2)": ("[1,2.5]", "[1,2.5]"),
}
"""By declaration: the value of an event, and the one of the lake."""
NO_VALUES = {MysqlType.GEOMETRY, MysqlType.VAR_STRING}
"""Types of which no column holds a value that TiDB writes."""


def declared(declaration: str) -> TableInfo:
    query = f"CREATE TABLE s.t (id INT PRIMARY KEY, v {declaration})"
    state, _ = apply_ddl(SchemaState(), Ddl(schema="s", table="t", query=query, commit_ts=10), 10)
    (table,) = state.tables.values()
    return table


def stored_in_tikv(kind: ColumnType, value: Value) -> list[object]:
    """The value as it comes back from a row of TiKV, alone and as a column."""
    raw = write_value(kind, parse_value(kind, value))

    def read(data: bytes) -> Value:
        return converter(kind)(read_value(kind, data))

    rows = locate(slices(pa.array([encode_raw_row({2: raw})], pa.binary())), [2])
    array, unread = column_reader(kind, read)(rows.data, rows.cells[2])
    assert not unread.any()
    return [read(raw), *array.to_pylist()]


@pytest.mark.parametrize("declaration", CASES)
def test_from_wire_to_lake(declaration: str, tmp_path: Path) -> None:
    """A value is the same in rows of TiKV and in messages, plainly read and in columns, and arrives in the lake."""
    value, kept = CASES[declaration]
    table = declared(declaration)
    kind, wire = table.columns[1].type, wire_table(table)
    assert stored_in_tikv(kind, value) == [value, value]

    lake, rows = options(tmp_path), Rows()
    for number, protocol in enumerate(("open-protocol", "canal-json")):
        extension = {"enable-tidb-extension": True} if protocol == "canal-json" else {}
        encoder = BatchEncoder(encode_options({"protocol": protocol, **extension}))
        row = Insert(schema="s", table="t", commit_ts=20 + number, fields=wire.fields, after=(number, value))
        pairs = [(message.key, message.value) for message in (*encoder.append(row, wire), *encoder.flush())]
        read = DecodeOptions(protocol=protocol)
        decoded = [event for pair in pairs for event in decode(*pair, read)]
        assert by_chunk(pairs, read) == by_decoder(pairs, read)
        for change in decoded:
            assert isinstance(change, RowChange)
            assert change.after == (number, value)
            assert change.fields[1].type == kind.code
            rows.changes.append(change)

    run(lake, rows, Create(table, 10, 1), Apply(table, 10, 40))

    assert stored(lake, table.incarnation) == [{"id": 0, "v": kept}, {"id": 1, "v": kept}]


def test_every_type_has_a_record_and_a_case() -> None:
    """No type of the wire is without a record, and none that columns have without a value above."""
    assert set(TYPES) == set(MysqlType)
    assert {declared(one).columns[1].type.code for one in CASES} == set(MysqlType) - UNDECLARED - NO_VALUES
