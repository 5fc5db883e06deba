"""A column whose type changes: nodes cast its values as TiDB's reorganisation does.

expr/change.py says the same of rows that a feed holds, and is held by recordings of its own."""

from datetime import UTC
from decimal import Decimal

import pytest

from tests.upstream.sql.table_kit import NOW, context
from tidegate.expr.cast import Problem, Target, convert, recast
from tidegate.expr.change import converter, event_value
from tidegate.model.errors import SchemaError, UnsupportedError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned
from tidegate.mysql.packed_time import ZERO, Time

SECOND = 10**9
ELEMS = ("a", "B", "7")
VALUES: dict[ColumnType, list[KvValue]] = {
    ColumnType(T.TINY): [0, 1, -5, 70, 127],
    ColumnType(T.LONGLONG): [-1, 0, 5, 99, 300, 20240131102030, 2**62],
    ColumnType(T.LONGLONG, unsigned=True): [Unsigned(n) for n in (0, 2024, 101112, 20240131, 2**64 - 1)],
    ColumnType(T.BIT, 8): [Unsigned(0), Unsigned(65), Unsigned(255)],
    ColumnType(T.YEAR): [0, 1970, 2024, 2155],
    ColumnType(T.FLOAT): [0.0, 1.5, -2.5, 0.10000000149011612, 3.4028234663852886e38],
    ColumnType(T.DOUBLE): [0.0, 2.5, -1e20, 1e-7, 123456.789, 1e300],
    ColumnType(T.DECIMAL, 10, 4): [Decimal(n) for n in ("0.0000", "1.2345", "-99.5000", "2024.0000", "999999.9999")],
    ColumnType(T.VARCHAR, 40): [
        text.encode()
        for text in ("", "12", "12abc", "abc", "-1.5e2", "2024-01-31", "2024-01-31 10:20:30.567", "10:20:30.5", "a")
    ]
    + [text.encode() for text in ("a,B", "B ", "7", "0", "00", "70", " é", '{"a": 1}')],
    ColumnType(T.VARCHAR, 20, charset="binary"): [b"", b"12", b"abc", b"\xff", b"2024-01-31", b"10:20:30"],
    ColumnType(T.DATE): [Time(2024, 1, 31), Time(1999, 12, 31), ZERO],
    ColumnType(T.DATETIME, 26, 6): [Time(2024, 1, 31, 23, 59, 59, 999_999), Time(2024, 2, 29, 0, 0, 0, 500_000), ZERO],
    ColumnType(T.TIMESTAMP, 23, 3): [Time(2024, 1, 31, 1, 2, 3, 456_000), ZERO],
    ColumnType(T.TIME, 14, 3): [Duration(n * SECOND // 2) for n in (0, 72_001, -7446, 6_040_798)],
    ColumnType(T.JSON): [JsonDatum(n) for n in (1, 1.5, "x", "12", {"a": [1, None]}, True, None, "2024-01-31")],
    ColumnType(T.ENUM, elems=ELEMS): [Unsigned(n) for n in range(4)],
    ColumnType(T.SET, elems=ELEMS): [Unsigned(0), Unsigned(5), Unsigned(7)],
}
TARGETS = [
    *VALUES,
    ColumnType(T.TINY, unsigned=True),
    ColumnType(T.FLOAT, 5, 2),
    ColumnType(T.DECIMAL, 5, 2),
    ColumnType(T.DECIMAL, 5, 2, unsigned=True),
    ColumnType(T.STRING, 5),
    ColumnType(T.VARCHAR, 3),
    ColumnType(T.STRING, 3, charset="binary"),
    ColumnType(T.TINY_BLOB),
    ColumnType(T.DATETIME, 19, 0),
    ColumnType(T.TIMESTAMP, 19, 0),
    ColumnType(T.TIME, 10, 0),
]
TS = int(NOW.timestamp() * 1000) << 18


@pytest.mark.parametrize("old", VALUES, ids=lambda kind: kind.code.name)
def test_values_change_as_in_a_reorganisation(old):
    """For every pair of types that MODIFY COLUMN allows, a stored value becomes what the reorganisation makes of it."""
    found, allowed = context(()), 0
    for new in TARGETS:
        try:
            rule = converter(old, new, commit_ts=TS)
        except UnsupportedError:
            continue
        allowed += 1
        for value in VALUES[old]:
            before = event_value(old, value)
            made = convert(recast(value, old, new, UTC), Target("c", new), found)
            try:
                due = before if rule is None else rule(before)
            except SchemaError:
                assert made.problem is Problem.NO_JSON, (old, before)
                continue

            assert event_value(new, made.value) == due, (old, new, before)

    assert allowed > 5
