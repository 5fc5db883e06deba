"""TiDB's own codec on chosen values: every line of its output is named here, and ours is the same."""

import re
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta, timezone
from decimal import Decimal

import pytest

from tests.kv.kv_recordings import text_of
from tidegate.kv import (
    ColumnLayout,
    IndexEntry,
    IndexLayout,
    IndexPart,
    TableLayout,
    decode_index_entry,
    decode_meta_key,
    decode_row,
    encode_index_entry,
    encode_meta_key,
    encode_row,
    record_key,
)
from tidegate.kv.keys import (
    IntHandle,
    common_handle,
    hash_key,
    index_prefix,
    mvcc_key,
    split_mvcc_key,
    string_key,
    table_prefix,
)
from tidegate.kv.rows import (
    Row,
    RowChecksums,
    column_checksum,
    decode_old_row,
    decode_raw_row,
    encode_old_row,
    encode_raw_row,
    verify_checksum,
)
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import read_value, write_value
from tidegate.mysql.datum import (
    Bound,
    DecimalDatum,
    Duration,
    JsonDatum,
    PackedTime,
    Unsigned,
    Vector,
    decode_datum,
    encode_key,
    encode_value,
)
from tidegate.mysql.encoding import DecimalForm, decode_bytes, encode_bytes, form_of, read_decimal, write_decimal
from tidegate.mysql.json_value import decode_json, render_json
from tidegate.mysql.packed_time import Time, pack_time, render_duration, to_utc
from tidegate.schema.job import Job
from tidegate.schema.stored.definition import StoredTable, parse_stored, render_stored

VECTOR = re.compile(r"(.+?)\s{2,}([0-9a-f]+)")
MOMENT = Time(2020, 1, 2, 3, 4, 5, 678_901)
HANDLE = common_handle([b"abc", 5])
R1 = record_key(45, IntHandle(1))


def section(title: str) -> list[str]:
    """The lines of a section."""
    parts = re.split(r"^## (.+)\n", text_of("vectors.txt"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title].splitlines()


def vectors(title: str) -> dict[str, bytes]:
    """Name -> bytes of a section."""
    found = [VECTOR.fullmatch(line) for line in section(title)]
    return {match[1].strip(): bytes.fromhex(match[2]) for match in found if match}


KEYS: dict[str, Callable[[], bytes]] = {
    "t45_r1": lambda: R1,
    "t45_r-1": lambda: record_key(45, IntHandle(-1)),
    "t45 prefix": lambda: table_prefix(45),
    "t45_i2 prefix": lambda: index_prefix(45, 2),
    "memcmp(t45_r1)": lambda: mvcc_key(R1),
    "memcmp(t45_r1)+desc ts 400000000000000001": lambda: mvcc_key(R1, 400000000000000001),
    "common handle('abc' utf8mb4_bin,5)": lambda: HANDLE.encoded,
    "t45_r common('abc',5)": lambda: record_key(45, HANDLE),
    "EncodeKey('aBc ' general_ci)": lambda: encode_key([sort_key("utf8mb4_general_ci", b"aBc ")]),
    "EncodeKey('aBc ' utf8mb4_bin)": lambda: encode_key([sort_key("utf8mb4_bin", b"aBc ")]),
    "EncodeKey('aBc ' binary)": lambda: encode_key([sort_key("binary", b"aBc ")]),
    "EncodeKey('aBc' unicode_ci)": lambda: encode_key([sort_key("utf8mb4_unicode_ci", b"aBc")]),
    "EncodeKey('aBc' 0900_ai_ci)": lambda: encode_key([sort_key("utf8mb4_0900_ai_ci", b"aBc")]),
    "common handle(NULL) padded": lambda: common_handle([None]).encoded,
    "EncodeBytes()": lambda: encode_bytes(b""),
    "EncodeBytes(a)": lambda: encode_bytes(b"a"),
    "EncodeBytes(12345678)": lambda: encode_bytes(b"12345678"),
    "EncodeBytes(123456789)": lambda: encode_bytes(b"123456789"),
}
META_KEYS = {
    "hash DBs field DB:2": hash_key("DBs", "DB:2"),
    "hash DB:2 field Table:45": hash_key("DB:2", "Table:45"),
    "string SchemaVersionKey": string_key("SchemaVersionKey"),
    "string NextGlobalID": string_key("NextGlobalID"),
    "string Diff:100": string_key("Diff:100"),
}
DATUMS = {
    "nil": None,
    "int 1": 1,
    "int -1": -1,
    "uint 1": Unsigned(1),
    "uint max": Unsigned((1 << 64) - 1),
    "float 1.5": 1.5,
    "float -1.5": -1.5,
    "float 0": 0.0,
    "string abc": b"abc",
    "bytes abc": b"abc",
    "dec 1234567890.1234 (14,4)": DecimalDatum(Decimal("1234567890.1234"), DecimalForm(14, 4)),
    "dec -1234567890.1234 (14,4)": DecimalDatum(Decimal("-1234567890.1234"), DecimalForm(14, 4)),
    "dec 12.5 (10,2)": DecimalDatum(Decimal("12.5"), DecimalForm(10, 2)),
    "dec -12.5 (10,2)": DecimalDatum(Decimal("-12.5"), DecimalForm(10, 2)),
    "dec 0 (10,2)": DecimalDatum(Decimal(0), DecimalForm(10, 2)),
    "dec 0.00 (0,0 unspecified)": DecimalDatum(Decimal("0.00")),
    "dec 3.14 (unspecified)": DecimalDatum(Decimal("3.14")),
    "dec 99999999999999999999.9999999999 (30,10)": DecimalDatum(
        Decimal("99999999999999999999.9999999999"), DecimalForm(30, 10)
    ),
    "datetime 2020-01-02 03:04:05.678901": PackedTime(pack_time(MOMENT)),
    "date 2020-01-02": PackedTime(pack_time(Time(2020, 1, 2))),
    "duration 11:22:33": Duration(40_953_000_000_000),
    "duration -01:00:00": Duration(-3_600_000_000_000),
    'json {"a":1}': JsonDatum({"a": 1}),
    "max": Bound.MAX,
    "min not null": Bound.MIN_NOT_NULL,
}
INT, UINT, DOUBLE, FLOAT = ColumnType(T.LONGLONG), ColumnType(T.LONGLONG, unsigned=True), T.DOUBLE, T.FLOAT
TEXT, DATETIME, TIME = ColumnType(T.VARCHAR), ColumnType(T.DATETIME, decimal=6), ColumnType(T.TIME)
VALUES = {
    "float32 1.5": (ColumnType(FLOAT), 1.5),
    "float32 0.1": (ColumnType(FLOAT), 0.10000000149011612),
    "double -2.25": (ColumnType(DOUBLE), -2.25),
    "decimal(10,2) 12.50": (ColumnType(T.DECIMAL, 10, 2), Decimal("12.50")),
    "decimal(10,2) -12.50": (ColumnType(T.DECIMAL, 10, 2), Decimal("-12.50")),
    "decimal(20,0) 18446744073709551615": (ColumnType(T.DECIMAL, 20, 0), Decimal(18446744073709551615)),
    "datetime 2020-01-02 03:04:05.678901": (DATETIME, MOMENT),
    "datetime 2020-01-02 03:04:05": (DATETIME, MOMENT._replace(microsecond=0)),
    "timestamp 2020-01-02 03:04:05 +08 -> UTC": (
        ColumnType(T.TIMESTAMP),
        to_utc(Time(2020, 1, 2, 3, 4, 5), timezone(timedelta(hours=8))),
    ),
    "date 2020-01-02": (ColumnType(T.DATE), Time(2020, 1, 2)),
    "datetime zero": (DATETIME, Time(0, 0, 0)),
    "time 11:22:33": (TIME, 40_953_000_000_000),
    "time -00:00:01": (TIME, -1_000_000_000),
    "year 2024": (ColumnType(T.YEAR), 2024),
    "enum #2": (ColumnType(T.ENUM), 2),
    "set 5": (ColumnType(T.SET), 5),
    "bit(12) 0xABC": (ColumnType(T.BIT, 12), 0xABC),
    "empty string": (TEXT, b""),
    "vector [1,2.5,-3]": (ColumnType(T.VECTOR), Vector((1.0, 2.5, -3.0))),
    **{f"int {n}": (INT, n) for n in (0, 127, 128, -128, -129, 32768, 2147483648)},
    **{f"uint {n}": (UINT, n) for n in (255, 256, 65536)},
    "uint max": (UINT, (1 << 64) - 1),
}
ROWS = {
    "ids 1,2,3 = 1,'abc',NULL": {1: b"\x01", 2: b"abc", 3: None},
    "ids 2=int300,3=uint200,4=-2": {
        2: write_value(INT, 300),
        3: write_value(UINT, 200),
        4: write_value(INT, -2),
    },
    "large ids 1=1,300='x',301=NULL": {1: b"\x01", 300: b"x", 301: None},
    "ids none": {},
}
CHECKED = "rawchecksum handle=1 : 2='abc',3=NULL"


def indexed(*, clustered: bool, unique: bool, column: int) -> TableLayout:
    """The table of the index vectors: id, a, s (general_ci), sb (utf8mb4_bin); CHAR and INT behind a common handle."""
    varchar, char = ColumnType(T.VARCHAR, 20), ColumnType(T.STRING, 20)
    columns = (
        ColumnLayout(1, ColumnType(T.LONG)),
        ColumnLayout(2, ColumnType(T.LONG)),
        ColumnLayout(3, varchar, "utf8mb4_general_ci"),
        ColumnLayout(4, varchar, "utf8mb4_bin"),
        ColumnLayout(5, char, "utf8mb4_bin", primary=True),
    )
    index_id = 4 if clustered else column - 1
    handle = IndexLayout(9, (IndexPart(5), IndexPart(1)), unique=True) if clustered else None
    index = IndexLayout(index_id, (IndexPart(column),), unique=unique)
    return TableLayout(45, columns, (index,), None if clustered else 1, handle)


def index_case(name: str) -> tuple[TableLayout, IndexEntry]:
    """What `clustered uniq a=7 h=('abc',5)` says."""
    column, text = re.search(r"(?<=\s)(a|sb|s)='?([^'=]*?)'?(?: \w+_\w+)? h=", name).groups()
    column_id = {"a": 2, "s": 3, "sb": 4}[column]
    value = {"7": 7, "NULL": None}.get(text, text.encode())
    clustered = name.startswith("clustered")
    table = indexed(clustered=clustered, unique=" uniq" in f" {name}", column=column_id)
    handle = HANDLE if clustered else IntHandle(1)
    return table, IndexEntry(table.indexes[0].id, {column_id: value}, handle)


def test_keys():
    """Keys, handles, sort keys and groups of eight are TiDB's; what can be read gives the same bytes again."""
    found = vectors("keys")

    assert {name: make() for name, make in KEYS.items()} == found
    for name, data in found.items():
        if name.startswith("EncodeBytes"):
            assert encode_bytes(decode_bytes(data)[0]) == data
        if name.startswith("memcmp"):
            assert mvcc_key(*split_mvcc_key(data)) == data


def test_meta_keys():
    """Keys of the schema are TiDB's, and come back."""
    found = vectors("meta keys")

    assert found == META_KEYS
    assert {name: encode_meta_key(decode_meta_key(key)) for name, key in found.items()} == found


def test_datums():
    """Both forms of every kind of datum, written and read."""
    found = vectors("datums key/value")
    keys = {name.removeprefix("key").strip(): data for name, data in found.items() if name.startswith("key")}
    values = {name.removeprefix("val").strip(): data for name, data in found.items() if name.startswith("val")}

    assert {name: encode_key([datum]) for name, datum in DATUMS.items()} == keys
    assert {name: encode_value([datum]) for name, datum in DATUMS.items()} == values
    for name, data in keys.items():
        if name != "min not null":  # which is the bare flag of a string, and no datum to read
            assert encode_key([decode_datum(data)[0]]) == data
            assert encode_key([decode_datum(values[name])[0]]) == data


def test_values_in_rows():
    """Each typed value in a row of one column, written and read; JSON with the text that TiDB prints."""
    found = vectors("row v2")
    texts = json_texts()
    plain = {name: data for name, data in found.items() if name not in ROWS and name not in texts and name != CHECKED}

    assert {name: encode_raw_row({1: write_value(*case)}) for name, case in VALUES.items()} == plain
    for name, (kind, _) in VALUES.items():
        data = decode_raw_row(plain[name]).values[1]
        assert write_value(kind, read_value(kind, data)) == data
    assert texts
    for name, text in texts.items():
        data = decode_raw_row(found[name]).values[1]
        document, end = decode_json(data)
        assert (render_json(document), end) == (text, len(data))
        assert write_value(ColumnType(T.JSON), JsonDatum(document)) == data


def json_texts() -> dict[str, str]:
    """Name -> printed text of the JSON vectors."""
    found = section("row v2")
    shown = [(found[at - 1], line) for at, line in enumerate(found) if line.strip().startswith("->")]
    return {VECTOR.fullmatch(name)[1].strip(): line.strip().removeprefix("-> ") for name, line in shown}


def test_rows():
    """Whole rows: small, large, empty, and one with a checksum that covers its handle."""
    found = vectors("row v2")

    assert {name: encode_raw_row(values) for name, values in ROWS.items()} == {name: found[name] for name in ROWS}
    assert {name: decode_raw_row(found[name]).values for name in ROWS} == ROWS
    table = TableLayout(45, (ColumnLayout(2, TEXT), ColumnLayout(3, INT)))
    row = Row(45, IntHandle(1), {2: b"abc", 3: None}, (2, 3), 2, RowChecksums(2, 0))
    key, value = encode_row(table, row)
    assert value == found[CHECKED]
    assert verify_checksum(table, decode_row(table, key, value), value)


def test_old_rows():
    """Rows of version 1."""
    found = vectors("row v1")
    datetime = Unsigned(pack_time(MOMENT._replace(microsecond=0)))
    full = {1: 1, 2: b"abc", 3: None, 4: datetime, 5: DecimalDatum(Decimal("12.50"), DecimalForm(10, 2))}

    assert [encode_old_row(full), encode_old_row({})] == list(found.values())
    assert [decode_old_row(data) for data in found.values()] == [full, {}]


def test_column_checksum():
    """The checksum over columns, as TiDB prints it; (the bytes in that file are a buffer that was reused)."""
    (printed,) = (line for line in section("column checksum (v0)") if "crc32" in line)
    columns = [(INT, 1), (TEXT, b"abc"), (INT, None)]

    assert column_checksum(columns) == int(printed.split()[1])
    assert zlib.crc32(bytes.fromhex("010000000000000003000000616263")) == column_checksum(columns)


def index_vectors() -> Iterator[tuple[str, bytes, bytes]]:
    found = vectors("index kv")
    for name, data in found.items():
        if name.endswith(" key"):
            yield name[:-4], data, found[name[:-4] + " val"]


@pytest.mark.parametrize(
    ("name", "key", "value"), list(index_vectors()), ids=lambda part: part if isinstance(part, str) else ""
)
def test_index_entries(name, key, value):
    """Entries of every form, written and read."""
    table, entry = index_case(name)

    assert encode_index_entry(table, entry) == (key, value)
    assert encode_index_entry(table, decode_index_entry(table, key, value)) == (key, value)
    assert entry.columns.items() <= decode_index_entry(table, key, value).columns.items()


def test_definitions():
    """A table and a job of an older TiDB parse and come back byte for byte."""
    table, job = section("JSON")

    assert render_stored(parse_stored(table, StoredTable)).decode() == table
    assert render_stored(parse_stored(job, Job)).decode() == job


def test_strings():
    """Printed numbers: JSON doubles of the older TiDB, decimals, durations."""
    for line in section("strings"):
        kind, _, rest = line.partition(" ")
        if kind == "json":
            number, text = rest.removeprefix("float ").split(" -> ")
            assert render_json(float(number), old_floats=True) == text
        elif kind == "dec":
            number, text = rest.removeprefix("str ").split(" ")
            given = Decimal(number)
            assert format(read_decimal(write_decimal(given, form_of(given)))[0], "f") == text
        else:
            assert kind == "dur"
            assert render_duration(-3_020_399_500_000_000, 3) == rest
