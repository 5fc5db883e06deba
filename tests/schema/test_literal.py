"""Values of rows that are older than a column."""

import base64
import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.event import DdlSession, Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo
from tidegate.model.table import ColumnType as C
from tidegate.model.tso import compose
from tidegate.schema.literal import cast_literal, stored_value

DATA = Path(__file__).parents[1] / "data" / "codec" / "interleave" / "events.jsonl.gz"


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def column_of(described: dict[str, Any]) -> ColumnInfo:
    """A column as TiDB describes it, with its origin default as a DDL would give it."""
    kind = described["type"]
    default: str | bytes | None = described.get("origin_default")
    if described.get("origin_default_bit"):
        default = base64.b64decode(described["origin_default_bit"])
    return ColumnInfo(
        id=described["id"],
        name=described["name"]["O"],
        type=C(
            T(kind["Tp"]),
            kind["Flen"],
            kind["Decimal"],
            unsigned=bool(kind["Flag"] & 32),
            charset=kind["Charset"],
            elems=tuple(kind["Elems"]) if kind["Elems"] else None,
        ),
        nullable=not kind["Flag"] & 1,
        origin_default=default,
    )


def value_of(recording: dict[str, Any] | None, column: ColumnInfo) -> Value:
    """A recorded value as the neutral one: text decoded, ENUM and SET as names."""
    if recording is None:
        return None
    kind, value = next(iter(recording.items()))
    elems = column.type.elems or ()
    if column.type.code is T.ENUM:
        return elems[value - 1]
    if column.type.code is T.SET:
        return ",".join(name for bit, name in enumerate(elems) if value >> bit & 1)
    if kind == "b":
        data = base64.b64decode(value)
        return data if column.type.charset == "binary" else data.decode()
    return float(value) if kind.startswith("f") else value


def test_recorded_old_rows() -> None:
    """A row that is older than most of its columns shows, in each of them, what `stored_value` says."""
    seen = set()
    columns: dict[str, ColumnInfo] = {}
    for event in recorded():
        if event["kind"] == "table" and event["tidb_table_info"]["name"]["O"] == "t":
            columns = {one["name"]["O"]: column_of(one) for one in event["tidb_table_info"]["cols"]}
        if event["kind"] != "row" or event["table"] != "t" or event["op"] != "UPDATE":
            continue
        row = {one["name"]: one["value"] for one in event["columns"]}
        if row["id"] != {"i": 4} or "modify" in event["sql"] or "set d=" in event["sql"]:
            continue
        for name in row.keys() - {"id", "a", "b", "c_renamed"}:
            assert stored_value(columns[name]) == value_of(row[name], columns[name]), name
            seen.add(columns[name].type.code)
    assert len(seen) >= 17


@pytest.mark.parametrize(
    ("kind", "zero"),
    [
        (C(T.LONG), 0),
        (C(T.BIT, 10), 0),
        (C(T.YEAR), 0),
        (C(T.DOUBLE), 0.0),
        (C(T.DECIMAL, 5, 2), "0.00"),
        (C(T.VARCHAR, 5), ""),
        (C(T.STRING, 3, charset="binary"), b"\0\0\0"),
        (C(T.BLOB, charset="binary"), b""),
        (C(T.DATE), "0000-00-00"),
        (C(T.DATETIME, decimal=3), "0000-00-00 00:00:00.000"),
        (C(T.TIMESTAMP), "0000-00-00 00:00:00"),
        (C(T.TIME, decimal=1), "00:00:00.0"),
        (C(T.JSON), "null"),
        (C(T.ENUM, elems=("x", "y")), "x"),
        (C(T.SET, elems=("x", "y")), ""),
    ],
    ids=lambda part: part.code.name if isinstance(part, C) else repr(part),
)
def test_zero_value(kind: C, zero: Value) -> None:
    """A NOT NULL column without a default starts at its type's zero, a nullable one at NULL."""
    assert stored_value(ColumnInfo(1, "c", kind, nullable=False)) == zero
    assert stored_value(ColumnInfo(1, "c", kind)) is None


@pytest.mark.parametrize(
    ("literal", "kind", "value"),
    [
        ("3.14", C(T.DECIMAL, 10, 4), "3.1400"),
        ("TRUE", C(T.TINY, 1), 1),
        ("1.5e+10", C(T.DOUBLE), 1.5e10),
        ("513", C(T.BIT, 10), 513),
        (b"\x02\x01", C(T.BIT, 10), 513),
        (b"\x41", C(T.LONG), 65),
        (b"ab", C(T.STRING, 4, charset="binary"), b"ab\0\0"),
        (b"\xc3\xa9", C(T.VARCHAR, 5), "é"),
        ("ab  ", C(T.STRING, 9), "ab"),
        ("2020-02-29", C(T.DATETIME, decimal=3), "2020-02-29 00:00:00.000"),
        ("Q,p", C(T.SET, elems=("p", "q")), "p,q"),
        ("Y", C(T.ENUM, elems=("x", "y")), "y"),
        ("2", C(T.ENUM, elems=("x", "y")), "y"),
        ("23", C(T.YEAR), 2023),
        ('{"b":1,"a":2}', C(T.JSON), '{"a": 2, "b": 1}'),
        ("[1,2]", C(T.VECTOR), "[1,2]"),
    ],
    ids=lambda part: part.code.name if isinstance(part, C) else repr(part),
)
def test_cast_literal(literal: str | bytes, kind: C, value: Value) -> None:
    """A literal takes the form that the column stores."""
    assert cast_literal(literal, kind) == value


def test_now() -> None:
    """DEFAULT CURRENT_TIMESTAMP of an added column is the time of the statement, in the given zone."""
    column = ColumnInfo(1, "c", C(T.DATETIME, decimal=3), origin_default="CURRENT_TIMESTAMP(3)")
    commit_ts = compose(1_577_934_245_678)
    assert stored_value(column, commit_ts=commit_ts) == "2020-01-02 03:04:05.678"
    assert stored_value(column, commit_ts=commit_ts, time_zone="Asia/Shanghai") == "2020-01-02 11:04:05.678"


@pytest.mark.parametrize("code", [T.DATETIME, T.TIMESTAMP, T.DATE], ids=lambda code: code.name)
@pytest.mark.parametrize(
    "moment", ["2023-11-14 22:13:20.654321", "2024-12-31 23:59:59.999999", "2024-02-28 12:00:00.5"]
)
def test_the_moment_of_a_ddl_is_cut(code: T, moment: str) -> None:
    """As in a TiDB and a MariaDB: a column with fewer digits has the second in which the statement began."""
    whole = f"{moment:0<26}"
    for digits in range(7) if code is not T.DATE else (-1, 0):
        column = ColumnInfo(1, "c", C(code, decimal=digits), origin_default="CURRENT_TIMESTAMP")
        expected = whole[:10] if code is T.DATE else whole[: 19 + digits + (digits > 0)]
        assert stored_value(column, session=DdlSession(moment=moment)) == expected
        since = datetime.fromisoformat(moment) - datetime(1970, 1, 1)  # noqa: DTZ001  both in UTC
        assert (
            stored_value(column, commit_ts=compose(since // timedelta(milliseconds=1)))
            == f"{whole[:23]}000"[: len(expected)]
        )
