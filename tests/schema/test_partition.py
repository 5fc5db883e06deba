"""Rows and their partitions: recorded physical ids, then each method's rules."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tidegate.model.errors import SchemaError, UnsupportedError
from tidegate.model.event import Ddl, Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, PartitionDef, PartitionInfo, TableInfo
from tidegate.model.table import ColumnType as C
from tidegate.schema.partition import partition_of
from tidegate.schema.state import SchemaState, apply_ddl

DATA = Path(__file__).parents[1] / "data" / "codec" / "partition" / "events.jsonl.gz"
METHODS = {1: "RANGE", 2: "HASH", 3: "LIST", 4: "KEY"}
INT, TEXT, DATE = C(T.LONG, 11), C(T.VARCHAR, 20), C(T.DATE)


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def info_of(partition: dict[str, Any]) -> PartitionInfo:
    return PartitionInfo(
        METHODS[partition["type"]],
        partition["expr"],
        tuple(name["O"] for name in partition["columns"] or ()),
        tuple(
            PartitionDef(one["name"]["O"], tuple(one["less_than"] or ()), tuple(map(tuple, one["in_values"] or ())))
            for one in partition["definitions"]
        ),
        partition["num"],
    )


def columns_of(table: dict[str, Any]) -> tuple[ColumnInfo, ...]:
    return tuple(
        ColumnInfo(one["id"], one["name"]["O"], C(T(one["type"]["Tp"]), charset=one["type"]["Charset"]))
        for one in table["cols"]
    )


def value_of(recording: dict[str, Any] | None) -> Value:
    if recording is None:
        return None
    kind, value = next(iter(recording.items()))
    return base64.b64decode(value).decode() if kind == "b" else value


def test_recorded_physical_ids() -> None:
    """Every recorded row of a partitioned table lies where TiDB put it, in all methods and after every change."""
    tables: dict[str, Any] = {}
    methods = []
    for event in recorded():
        if event["kind"] == "table" and event["tidb_table_info"].get("partition"):
            table = event["tidb_table_info"]
            names = {one["id"]: one["name"]["O"] for one in table["partition"]["definitions"]}
            info = info_of(table["partition"])
            tables[event["ref"]] = partition_of(info, columns_of(table)), names, info.method
        if event["kind"] == "row" and event["table_ref"] in tables:
            locate, names, method = tables[event["table_ref"]]
            for image in filter(None, (event["columns"], event["pre_columns"])):
                row = {one["name"]: value_of(one["value"]) for one in image}
                assert locate(row) == names[event["physical_table_id"]], event["id"]
            methods.append(method)
    assert len(methods) == 47
    assert set(methods) == set(METHODS.values())


def columns(**kinds: C | tuple[C, str]) -> tuple[ColumnInfo, ...]:
    told = {name: kind if isinstance(kind, tuple) else (kind, "") for name, kind in kinds.items()}
    return tuple(
        ColumnInfo(number, name, kind, collation=collation)
        for number, (name, (kind, collation)) in enumerate(told.items(), 1)
    )


def collated(collation: str) -> tuple[C, str]:
    return C(T.VARCHAR, 20), collation


def ranges(*bounds: str, expr: str = "", names: tuple[str, ...] = ()) -> PartitionInfo:
    """p0, p1, .. with bounds whose columns are separated by '|'."""
    defs = tuple(PartitionDef(f"p{n}", tuple(bound.split("|"))) for n, bound in enumerate(bounds))
    return PartitionInfo("RANGE", expr, names, defs)


def lists(*entries: tuple[str, ...], expr: str = "", names: tuple[str, ...] = ()) -> PartitionInfo:
    defs = tuple(
        PartitionDef(f"p{n}", in_values=tuple(tuple(entry.split("|")) for entry in values))
        for n, values in enumerate(entries)
    )
    return PartitionInfo("LIST", expr, names, defs)


def test_range() -> None:
    """A bound is exclusive, NULL lies in the first partition, and above the last bound lies nothing."""
    locate = partition_of(ranges("-5", "10", "TO_DAYS('0001-01-01')", expr="`ID`"), columns(id=INT))
    found = {number: locate({"id": number}) for number in (None, -6, -5, 9, 10, 365, 366)}
    assert found == {None: "p0", -6: "p0", -5: "p1", 9: "p1", 10: "p2", 365: "p2", 366: None}


def test_range_of_days() -> None:
    """An expression over a date decides, with bounds that are expressions too."""
    info = ranges("TO_DAYS('2024-01-01')", "MAXVALUE", expr="to_days(`d`)")
    locate = partition_of(info, columns(d=DATE))
    days = ("2023-12-31", "2024-01-01", None, "0000-00-00")
    assert [locate({"d": day}) for day in days] == ["p0", "p1", "p0", "p0"]


def test_range_columns() -> None:
    """Columns compare one after the other, by their types; NULL is below everything."""
    info = ranges("_UTF8MB4'b'|10", "'b'|MAXVALUE", "MAXVALUE|MAXVALUE", names=("s", "n"))
    locate = partition_of(info, columns(s=TEXT, n=INT))
    rows = [("a", 99), ("b", 9), ("b", None), ("b", 10), ("b", 1000), ("b ", 10), ("c", 0), (None, 5), ("B", 50)]
    assert [locate({"s": s, "n": n}) for s, n in rows] == ["p0", "p0", "p0", "p1", "p1", "p1", "p2", "p0", "p0"]


@pytest.mark.parametrize(
    ("kind", "bound", "below", "at"),
    [
        (C(T.DATETIME), "'2024-1-1'", "2023-12-31 23:59:59", "2024-01-01 00:00:00"),
        (C(T.DECIMAL, 6, 2), "9.5", "9.49", "9.50"),
        (C(T.TIME), "'10:00'", "-11:00:00", "10:00:00"),
        (C(T.VARCHAR, 9, charset="binary"), "x'80'", b"\x7f\xff", b"\x80"),
        (C(T.LONGLONG, unsigned=True), "18446744073709551615", 1 << 63, (1 << 64) - 1),
    ],
    ids=lambda part: part.code.name if isinstance(part, C) else repr(part),
)
def test_range_columns_compares_by_type(kind: C, bound: str, below: Value, at: Value) -> None:
    """A bound is a value of the column's type, not a text."""
    locate = partition_of(ranges(bound, "MAXVALUE", names=("c",)), columns(c=kind))
    assert [locate({"c": below}), locate({"c": at})] == ["p0", "p1"]


def test_list() -> None:
    """NULL lies only where it is listed, and what nobody lists lies in the DEFAULT partition if there is one."""
    entries = ("1", "-2", "NULL"), ("3",)
    locate = partition_of(lists(*entries, expr="id + 0"), columns(id=INT))
    assert [locate({"id": number}) for number in (1, -2, None, 3, 4)] == ["p0", "p0", "p0", "p1", None]
    locate = partition_of(lists(*entries, ("DEFAULT",), expr="id"), columns(id=INT))
    assert locate({"id": 4}) == "p2"


def test_list_columns() -> None:
    """Several columns are listed together; case matters unless the collation ignores it."""
    info = lists(("'a'|1", "'b'|NULL"), ("'c'|1",), names=("s", "n"))
    rows = [{"s": "a", "n": 1}, {"s": "b", "n": None}, {"s": "C ", "n": 1}]
    exact = partition_of(info, columns(s=TEXT, n=INT))
    folded = partition_of(info, columns(s=collated("utf8mb4_general_ci"), n=INT))
    assert [exact(row) for row in rows] == ["p0", "p0", None]
    assert [folded(row) for row in rows] == ["p0", "p0", "p1"]


def test_hash() -> None:
    """HASH takes the absolute remainder; NULL is 0 and huge unsigned numbers count as signed."""
    locate = partition_of(PartitionInfo("HASH", "id", count=4), columns(id=C(T.LONGLONG, unsigned=True)))
    found = [locate({"id": number}) for number in (None, 0, 5, -5, -4, (1 << 64) - 1)]
    assert found == ["p0", "p0", "p1", "p1", "p0", "p1"]
    by_year = partition_of(PartitionInfo("HASH", "YEAR(d)", count=3), columns(d=DATE))
    assert by_year({"d": "2024-05-05"}) == "p2"


def test_key() -> None:
    """KEY hashes the texts of its columns in order; trailing spaces do not count, NULL is a zero byte."""
    locate = partition_of(PartitionInfo("KEY", columns=("a", "b"), count=1000), columns(a=TEXT, b=INT))
    assert locate({"a": "x  ", "b": 1}) == locate({"a": "x", "b": 1})
    assert locate({"a": "x", "b": 1}) == f"p{crc32(b'x1') % 1000}"
    assert locate({"a": None, "b": 1}) == f"p{crc32(bytes([0]) + b'1') % 1000}"


def test_key_of_names() -> None:
    """ENUM and SET are hashed by their names, whether a row has names or numbers."""
    table = columns(e=C(T.ENUM, elems=("x", "y")), s=C(T.SET, elems=("a", "b")))
    locate = partition_of(PartitionInfo("KEY", columns=("e", "s"), count=1000), table)
    assert locate({"e": 2, "s": 3}) == locate({"e": "y", "s": "a,b"}) == f"p{crc32(b'ya,b') % 1000}"


def table_of(*queries: str) -> TableInfo:
    """What these DDLs leave behind."""
    state = SchemaState()
    for at, query in enumerate(queries, 1):
        state, _ = apply_ddl(state, Ddl(schema="d", table="", query=query, commit_ts=at), 1)
    (table,) = state.tables.values()
    assert SchemaState.from_json(state.to_json()) == state
    return table


FOLDS, EXACT = "utf8mb4_general_ci", "utf8mb4_bin"
COLLATED = (
    (f"CREATE TABLE d.t (s VARCHAR(9) COLLATE {FOLDS})",),
    (f"CREATE TABLE d.t (s VARCHAR(9)) COLLATE {FOLDS}",),
    (f"CREATE DATABASE d COLLATE {FOLDS}", "CREATE TABLE d.t (s VARCHAR(9))"),
    ("CREATE DATABASE d", f"ALTER DATABASE d COLLATE {FOLDS}", "CREATE TABLE d.t (s CHAR(9))"),
    (f"CREATE TABLE d.t (i INT) COLLATE {FOLDS}", "ALTER TABLE d.t ADD s VARCHAR(9)"),
    ("CREATE TABLE d.t (i INT)", f"ALTER TABLE d.t COLLATE {FOLDS}", "ALTER TABLE d.t ADD s VARCHAR(9)"),
    (f"CREATE TABLE d.t (s VARCHAR(9) COLLATE {EXACT})", f"ALTER TABLE d.t MODIFY s VARCHAR(9) COLLATE {FOLDS}"),
    ("CREATE TABLE d.t (s VARCHAR(9))", f"ALTER TABLE d.t CONVERT TO CHARACTER SET utf8mb4 COLLATE {FOLDS}"),
    (f"CREATE TABLE d.u (s VARCHAR(9) COLLATE {FOLDS})", "RENAME TABLE d.u TO d.t"),
    ("CREATE TABLE d.t (s VARCHAR(9) CHARACTER SET gbk)",),
)


@pytest.mark.parametrize("queries", COLLATED, ids=lambda queries: queries[-1][:60])
def test_key_of_a_collation_without_case(queries: tuple[str, ...]) -> None:
    """Wherever the collation was written, a row's partition is not guessed; a _bin collation in its place is hashed."""
    table = table_of(*queries, "ALTER TABLE d.t PARTITION BY KEY (s) PARTITIONS 4")
    assert table.partition is not None
    with pytest.raises(UnsupportedError, match=r"KEY\(s\).*use a _bin collation, or exclude the table"):
        partition_of(table.partition, table.columns)

    table = table_of(
        *queries, f"ALTER TABLE d.t MODIFY s VARCHAR(9) COLLATE {EXACT}, PARTITION BY KEY (s) PARTITIONS 4"
    )
    assert table.partition is not None
    assert partition_of(table.partition, table.columns)({"s": "A "}) == f"p{crc32(b'A') % 4}"


def test_texts_compare_by_their_collation() -> None:
    """RANGE COLUMNS finds the partition that TiDB does, where bytes would say another one."""
    create = (
        "CREATE TABLE d.t (s VARCHAR(9) %s) PARTITION BY RANGE COLUMNS (s) (PARTITION p0 VALUES LESS THAN ('B'), %s)"
    )
    rest = "PARTITION p1 VALUES LESS THAN (MAXVALUE)"
    found = {}
    for collation in (EXACT, FOLDS, "utf8mb4_0900_ai_ci"):
        table = table_of(create % (f"COLLATE {collation}", rest))
        assert table.partition is not None
        locate = partition_of(table.partition, table.columns)
        found[collation] = [locate({"s": text}) for text in ("A", "a", "á", "b", "_")]

    assert found == {
        EXACT: ["p0", "p1", "p1", "p1", "p1"],
        FOLDS: ["p0", "p0", "p0", "p1", "p1"],
        "utf8mb4_0900_ai_ci": ["p0", "p0", "p0", "p1", "p0"],
    }
    table = table_of(create % ("CHARACTER SET gbk", rest))
    assert table.partition is not None
    with pytest.raises(UnsupportedError, match=r"gbk_chinese_ci.*exclude the table by a filter rule"):
        partition_of(table.partition, table.columns)


def test_key_of_a_timestamp() -> None:
    """TiDB hashes it on the clocks of the session that wrote the row, which nobody tells; a DATETIME has none."""
    by_key = PartitionInfo("KEY", columns=("c",), count=2)
    with pytest.raises(UnsupportedError, match=r"KEY\(c\).*use a DATETIME, or exclude the table by a filter rule"):
        partition_of(by_key, columns(c=C(T.TIMESTAMP)))
    locate = partition_of(by_key, columns(c=C(T.DATETIME)))
    assert locate({"c": "2024-01-01 00:00:00"}) == f"p{crc32(b'2024-01-01 00:00:00') % 2}"


def test_key_without_columns() -> None:
    """KEY() means the primary key."""
    table = columns(id=INT, v=INT)
    implied = partition_of(PartitionInfo("KEY", count=7), table, primary_key=("ID",))
    named = partition_of(PartitionInfo("KEY", columns=("id",), count=7), table)
    assert [implied({"id": n}) for n in range(50)] == [named({"id": n}) for n in range(50)]


def test_lone_maxvalue() -> None:
    """VALUES LESS THAN MAXVALUE closes a table of any number of columns."""
    locate = partition_of(ranges("1|1", "MAXVALUE", names=("a", "b")), columns(a=INT, b=INT))
    assert [locate({"a": 1, "b": 0}), locate({"a": 1, "b": 1}), locate({"a": 2, "b": None})] == ["p0", "p1", "p1"]


def test_unknown() -> None:
    """What cannot be followed is refused by name, at once and not at the first row."""
    table = columns(id=INT)
    with pytest.raises(UnsupportedError, match="CRC32"):
        partition_of(PartitionInfo("HASH", "CRC32(id)", count=2), table)
    with pytest.raises(UnsupportedError, match="SPIRAL"):
        partition_of(PartitionInfo("SPIRAL"), table)
    with pytest.raises(UnsupportedError, match="primary key"):
        partition_of(PartitionInfo("KEY", count=2), table)
    with pytest.raises(UnsupportedError, match="collation"):
        partition_of(PartitionInfo("KEY", columns=("id",), count=2), columns(id=collated("utf8mb4_general_ci")))
    with pytest.raises(SchemaError, match="'nope'"):
        partition_of(PartitionInfo("HASH", "nope", count=2), table)
    with pytest.raises(SchemaError, match="differ in number"):
        partition_of(ranges("1|2", names=("id",)), table)


def test_missing_column() -> None:
    """A row that lacks the deciding column says so."""
    locate = partition_of(PartitionInfo("HASH", "id", count=2), columns(id=INT))
    with pytest.raises(SchemaError, match="does not carry"):
        locate({"other": 1})
