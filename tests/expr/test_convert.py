"""Column changes, one value at a time: what TiDB makes of each."""

import pytest

from tidegate.expr.change import converter, type_name
from tidegate.model.errors import ConfigError, SchemaError, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType as C
from tidegate.model.tso import compose

TINY, INT, BIGINT = C(T.TINY), C(T.LONG, 11), C(T.LONGLONG, 20)
UTINY, UBIGINT = C(T.TINY, unsigned=True), C(T.LONGLONG, unsigned=True)
FLOAT, DOUBLE, DOUBLE52 = C(T.FLOAT), C(T.DOUBLE), C(T.DOUBLE, 5, 2)
DEC102, DEC52 = C(T.DECIMAL, 10, 2), C(T.DECIMAL, 5, 2)
CHAR5, VARCHAR = C(T.STRING, 5), C(T.VARCHAR, 30)
BINARY4, VARBINARY = C(T.STRING, 4, charset="binary"), C(T.VARCHAR, 30, charset="binary")
DATE, DATETIME, DATETIME3 = C(T.DATE), C(T.DATETIME), C(T.DATETIME, decimal=3)
TIMESTAMP, TIME, TIME2, YEAR = C(T.TIMESTAMP), C(T.TIME), C(T.TIME, decimal=2), C(T.YEAR, 4)
JSON, BIT10 = C(T.JSON), C(T.BIT, 10)
ENUM, SET = C(T.ENUM, elems=("a", "b", "7")), C(T.SET, elems=("x", "y", "z"))


def label(part: object) -> str:
    return type_name(part) if isinstance(part, C) else repr(part)[:20]


CASES: list[tuple[C, C, Value, Value]] = [
    # integers
    (BIGINT, TINY, 300, 127),
    (INT, UBIGINT, -1, 0),
    (DOUBLE, INT, 2.5, 2),
    (DOUBLE, INT, -3.5, -4),
    (DOUBLE, BIGINT, 1e300, (1 << 63) - 1),
    (DEC102, INT, "2.50", 3),
    (DEC102, INT, "-2.50", -3),
    (DEC102, INT, "0.04", 0),
    (VARCHAR, INT, "1.5", 2),
    (VARCHAR, INT, " -12abc", -12),
    (VARCHAR, INT, "1e2x", 100),
    (VARCHAR, INT, "abc", 0),
    (VARCHAR, UTINY, "1e999999999", 255),
    (VARBINARY, INT, b"42\xff", 42),
    (DATETIME3, BIGINT, "2020-01-31 23:59:59.999", 20200201000000),
    (DATETIME3, UBIGINT, "2020-01-31 23:59:59.999", 20200131235960),
    (DATE, BIGINT, "2020-01-31", 20200131),
    (TIME2, BIGINT, "-11:59:59.99", -120000),
    (ENUM, INT, "b", 2),
    (SET, INT, "x,z", 5),
    (JSON, INT, "2.5", 2),
    (JSON, INT, '"2.5"', 3),
    (JSON, INT, "true", 1),
    (JSON, INT, "[1]", 0),
    (YEAR, TINY, 2023, 127),
    # BIT and YEAR
    (INT, BIT10, 2000, 1023),
    (INT, C(T.BIT, 64), -1, (1 << 64) - 1),
    (ENUM, BIT10, "a", 1),
    (INT, YEAR, 69, 2069),
    (INT, YEAR, 70, 1970),
    (INT, YEAR, 0, 0),
    (INT, YEAR, 1, 2001),
    (VARCHAR, YEAR, "0", 2000),
    (VARCHAR, YEAR, "0000", 0),
    (INT, YEAR, 3000, 2155),
    (DATETIME, YEAR, "2020-05-05 00:00:00", 2020),
    # floats and decimals
    (DOUBLE, FLOAT, 0.1, 0.10000000149011612),
    (DOUBLE, DOUBLE52, 2.345, 2.35),
    (DOUBLE, DOUBLE52, 0.125, 0.12),
    (DOUBLE, DOUBLE52, 5000.0, 999.99),
    (DOUBLE, C(T.DOUBLE, unsigned=True), -1.5, 0.0),
    (VARCHAR, DOUBLE, "1.25e2abc", 125.0),
    (DATETIME3, DOUBLE, "2020-01-31 01:02:03.500", 20200131010203.5),
    (DEC102, C(T.DECIMAL, 12, 1), "62.45", "62.5"),
    (DEC102, C(T.DECIMAL, 12, 1), "-62.45", "-62.5"),
    (DEC102, C(T.DECIMAL, 12, 1), "-0.04", "0.0"),
    (DEC102, C(T.DECIMAL, 12, 4), "1.50", "1.5000"),
    (DEC102, DEC52, "999.995", "999.99"),
    (DEC102, C(T.DECIMAL, 3, 0), "-12345.00", "-999"),
    (INT, DEC102, -5, "-5.00"),
    (FLOAT, C(T.DECIMAL, 20, 10), 0.10000000149011612, "0.1000000015"),
    (DOUBLE, DEC52, 1e300, "999.99"),
    (DOUBLE, DEC52, 1e-300, "0.00"),
    (VARCHAR, DEC52, "-1.005", "-1.01"),
    (BIT10, DEC52, 513, "513.00"),
    # text and bytes
    (INT, VARCHAR, -7, "-7"),
    (BIT10, VARCHAR, 513, "513"),
    (DEC102, VARCHAR, "1.50", "1.50"),
    (FLOAT, VARCHAR, 0.10000000149011612, "0.1"),
    (FLOAT, VARCHAR, 16777216.0, "16777216"),
    (DOUBLE, VARCHAR, 1e20, "100000000000000000000"),
    (DOUBLE, VARCHAR, 1.5e-7, "0.00000015"),
    (DOUBLE, VARCHAR, 3.0, "3"),
    (VARCHAR, CHAR5, "ab   ", "ab"),
    (VARCHAR, CHAR5, "äöü€😀x", "äöü€😀"),
    (C(T.VARCHAR, 400), C(T.TINY_BLOB), "é" * 200, "é" * 127),
    (VARCHAR, BINARY4, "ab", b"ab\0\0"),
    (VARCHAR, VARBINARY, "é", b"\xc3\xa9"),
    (C(T.VARCHAR, 9, charset="gbk"), VARBINARY, "中", b"\xd6\xd0"),
    (VARBINARY, VARCHAR, b"\xc3\xa9", "é"),
    (VARBINARY, VARCHAR, b"a\xff", "a?"),
    (VARBINARY, BINARY4, b"a", b"a\0\0\0"),
    (ENUM, VARCHAR, "b", "b"),
    (DATETIME3, VARCHAR, "2020-01-01 00:00:00.120", "2020-01-01 00:00:00.120"),
    # ENUM and SET
    (VARCHAR, ENUM, "B ", "b"),
    (VARCHAR, ENUM, "7", "7"),
    (VARCHAR, ENUM, "2", "b"),
    (VARCHAR, ENUM, "zz", ""),
    (INT, ENUM, 2, "b"),
    (INT, ENUM, 9, ""),
    (ENUM, C(T.ENUM, elems=("b", "A")), "a", "A"),
    (VARCHAR, SET, "z,x,x", "x,z"),
    (VARCHAR, SET, "3", "x,y"),
    (INT, SET, 5, "x,z"),
    (SET, C(T.SET, elems=("z", "y", "x")), "x,z", "z,x"),
    # JSON
    (VARCHAR, JSON, '{"b":1, "a":[1.0,1e20, "é"]}', '{"a": [1.0, 1e20, "é"], "b": 1}'),
    (INT, JSON, 5, "5"),
    (DEC102, JSON, "1.50", "1.5"),
    (DOUBLE, JSON, 2.0, "2.0"),
    (DATE, JSON, "2020-01-01", '"2020-01-01"'),
    (DATETIME, JSON, "2020-01-01 00:00:00", '"2020-01-01 00:00:00.000000"'),
    (TIME2, JSON, "10:00:01.50", '"10:00:01.500000"'),
    (JSON, VARCHAR, '{"a": 1}', '{"a": 1}'),
]


@pytest.mark.parametrize(("old", "new", "before", "after"), CASES, ids=label)
def test_value(old: C, new: C, before: Value, after: Value) -> None:
    """A stored value becomes what TiDB casts it to, and NULL stays NULL."""
    rule = converter(old, new)
    assert rule is not None
    result = rule(before)
    assert result == after
    assert type(result) is type(after)
    assert rule(None) is None


KEPT = [
    (INT, BIGINT),
    (UTINY, BIGINT),
    (YEAR, INT),
    (BIT10, INT),
    (FLOAT, DOUBLE),
    (DEC52, C(T.DECIMAL, 7, 2)),
    (VARCHAR, C(T.VARCHAR, 400)),
    (VARCHAR, C(T.BLOB)),
    (CHAR5, VARCHAR),
    (C(T.VARCHAR, 20), C(T.VARCHAR, 20, charset="latin1")),
    (C(T.BLOB), C(T.LONG_BLOB)),
    (BINARY4, VARBINARY),
    (TIMESTAMP, DATETIME),
    (ENUM, C(T.ENUM, elems=("b", "a", "7", "new"))),
    (SET, C(T.SET, elems=("x", "y", "z", "last"))),
    (JSON, C(T.JSON, 5)),
]


@pytest.mark.parametrize(("old", "new"), KEPT, ids=label)
def test_kept(old: C, new: C) -> None:
    """A change that only widens has no rule, because every value stays itself."""
    assert converter(old, new) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [(VARCHAR, BIT10), (DATE, ENUM), (DEC102, DATE), (BIT10, TIME), (JSON, SET), (C(T.VECTOR), VARCHAR)],
    ids=label,
)
def test_refused(old: C, new: C) -> None:
    """A change that TiDB refuses names both types instead of guessing."""
    with pytest.raises(UnsupportedError, match=f"{old.code.name}.* to {new.code.name}"):
        converter(old, new)


def test_unknown_names() -> None:
    """An ENUM whose names are not known cannot become a number, and the error says how to make them known."""
    with pytest.raises(UnsupportedError, match="CREATE TABLE"):
        converter(C(T.ENUM), INT)


def test_unknown_zone() -> None:
    """A time zone that does not exist is the user's error."""
    with pytest.raises(ConfigError, match="Mars/Olympus"):
        converter(DATETIME, TIMESTAMP, time_zone="Mars/Olympus")


def test_wrong_value() -> None:
    """A value that cannot be of the old type means that schema and row do not belong together."""
    rule = converter(INT, VARCHAR)
    assert rule is not None
    with pytest.raises(SchemaError, match="schema does not belong"):
        rule("text")


def test_no_json() -> None:
    """Text that is no document cannot have become JSON."""
    rule = converter(VARCHAR, JSON)
    assert rule is not None
    for text in ("{", "", "NaN", "[" * 100_000):
        with pytest.raises(SchemaError):
            rule(text)


def test_time_takes_the_day_of_the_change() -> None:
    """TIME becomes a DATETIME on the day of the statement, in the session's zone."""
    commit_ts = compose(1_577_923_200_000)  # 2020-01-02 00:00:00 UTC
    rule = converter(TIME, DATETIME, time_zone="America/New_York", commit_ts=commit_ts)
    assert rule is not None
    assert rule("-01:00:00") == "2019-12-31 23:00:00"
    assert rule("25:00:00") == "2020-01-02 01:00:00"
