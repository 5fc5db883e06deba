"""Dates and times: reading loose text, rounding, zones."""

import pytest

from tidegate.expr.change import converter, type_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType as C

VARCHAR, BIGINT, JSON, DECIMAL = C(T.VARCHAR, 60), C(T.LONGLONG), C(T.JSON), C(T.DECIMAL, 20, 3)
DATE, DATETIME, DATETIME3, DATETIME6 = C(T.DATE), C(T.DATETIME), C(T.DATETIME, decimal=3), C(T.DATETIME, decimal=6)
TIME, TIME3, TIMESTAMP = C(T.TIME), C(T.TIME, decimal=3), C(T.TIMESTAMP)
ZERO = "0000-00-00 00:00:00"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-01-02 03:04:05", "2020-01-02 03:04:05"),
        ("2020-01-02T03:04:05.5", "2020-01-02 03:04:06"),
        ("2020/1/2", "2020-01-02 00:00:00"),
        ("2020.01.02 03.04.05", "2020-01-02 03:04:05"),
        ("20-1-2 3:4", "2020-01-02 03:04:00"),
        ("70-01-01", "1970-01-01 00:00:00"),
        ("20200102", "2020-01-02 00:00:00"),
        ("200102", "2020-01-02 00:00:00"),
        ("991231235959", "1999-12-31 23:59:59"),
        ("20200102030405.999", "2020-01-02 03:04:06"),
        ("20200102.0304", "2020-01-02 03:04:00"),
        ("2020-12-31 23:59:59.9", "2021-01-01 00:00:00"),
        ("2020-01-02T03:04:05Z", "2020-01-02 03:04:05"),
        ("2020-01-02 03:04:05+08:00", "2020-01-01 19:04:05"),
        ("2020-00-00", "2020-00-00 00:00:00"),
        ("00-00-00", ZERO),
        ("2020-02-30", ZERO),
        ("2021-02-29", ZERO),
        ("2020-01-02 25:00:00", ZERO),
        ("soon", ZERO),
        ("", ZERO),
        ("12", ZERO),
        ("9" * 500, ZERO),
    ],
)
def test_loose_text(text: str, moment: str) -> None:
    """MySQL's free spellings of a date and time are read; what is none becomes the zero date."""
    rule = converter(VARCHAR, DATETIME)
    assert rule is not None
    assert rule(text) == moment


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (20200101, "2020-01-01 00:00:00"),
        (200101, "2020-01-01 00:00:00"),
        (700101, "1970-01-01 00:00:00"),
        (20200101123059, "2020-01-01 12:30:59"),
        (200101123059, "2020-01-01 12:30:59"),
        (0, ZERO),
        (7, ZERO),
        (-20200101, ZERO),
        (20201301, ZERO),
        (10**18, ZERO),
    ],
)
def test_numbers(number: int, moment: str) -> None:
    """A number reads as YYMMDD or YYYYMMDD with or without a clock."""
    rule = converter(BIGINT, DATETIME)
    assert rule is not None
    assert rule(number) == moment


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (DATETIME6, DATETIME, "2020-12-31 23:59:59.500000", "2021-01-01 00:00:00"),
        (DATETIME6, DATETIME3, "2020-12-31 23:59:59.123499", "2020-12-31 23:59:59.123"),
        (DATETIME6, DATETIME, "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59"),
        (DATETIME6, DATETIME, "0000-00-00 00:00:00.000000", ZERO),
        (DATETIME, DATETIME3, "2020-01-01 00:00:00", "2020-01-01 00:00:00.000"),
        (DATETIME6, DATE, "2020-12-31 23:59:59.999999", "2020-12-31"),
        (DATE, DATETIME3, "2020-01-01", "2020-01-01 00:00:00.000"),
        (DATETIME3, TIME, "2020-01-01 23:59:59.600", "24:00:00"),
        (TIME3, TIME, "10:20:30.500", "10:20:31"),
        (TIME3, TIME, "-10:20:30.500", "-10:20:30"),
        (TIME3, TIME, "-10:20:30.501", "-10:20:31"),
        (VARCHAR, TIME, "1 02:03:04", "26:03:04"),
        (VARCHAR, TIME, "10:20", "10:20:00"),
        (VARCHAR, TIME, "1112", "00:11:12"),
        (VARCHAR, TIME, "-900:00:00", "-838:59:59"),
        (VARCHAR, TIME, "2020-01-01 10:20:30", "10:20:30"),
        (VARCHAR, TIME, "20200101102030", "10:20:30"),
        (VARCHAR, TIME, "10:70:00", "00:00:00"),
        (VARCHAR, TIME3, "10:20:30.9999", "10:20:31.000"),
        (BIGINT, TIME, 102030, "10:20:30"),
        (BIGINT, TIME, 9999999, "838:59:59"),
        (BIGINT, TIME, -9999999, "00:00:00"),
        (DECIMAL, TIME3, "102030.500", "10:20:30.500"),
        (JSON, DATE, '"2020-01-02"', "2020-01-02"),
        (JSON, TIME, '"10:20:30"', "10:20:30"),
    ],
    ids=lambda part: type_name(part) if isinstance(part, C) else part,
)
def test_clock(old: C, new: C, before: str, after: str) -> None:
    """Clocks round half up with carry, except that DATE cuts."""
    rule = converter(old, new)
    assert rule is not None
    assert rule(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2024-03-31 01:59:59", "2024-03-31 01:59:59"),
        ("2024-03-31 02:30:00", "2024-03-31 03:00:00"),
        ("2024-10-27 02:30:00", "2024-10-27 02:30:00"),
        ("1969-01-01 00:00:00", ZERO),
        ("2038-01-19 05:00:00", ZERO),
        (ZERO, ZERO),
    ],
)
def test_timestamp(before: str, after: str) -> None:
    """A DATETIME keeps its wall clock as TIMESTAMP, but not inside a summer-time gap or outside 1970 to 2038."""
    rule = converter(DATETIME, TIMESTAMP, time_zone="Europe/Berlin")
    assert rule is not None
    assert rule(before) == after


def test_datetime_of_timestamp() -> None:
    """A TIMESTAMP stands in the session's wall clock already, so a DATETIME keeps it, rounded."""
    rule = converter(C(T.TIMESTAMP, decimal=6), C(T.DATETIME, decimal=2), time_zone="Asia/Shanghai")
    assert rule is not None
    assert rule("2024-05-05 10:00:00.995000") == "2024-05-05 10:00:01.00"


@pytest.mark.parametrize(
    ("zone", "digits", "clock", "moment"),
    [
        ("+05:30", 0, "2001-07-22 17:27:12", "2001-07-22 11:57:12"),
        ("+05:30", 0, "2027-02-19 02:41:06", "2027-02-18 21:11:06"),
        ("America/New_York", 3, "2001-05-08 23:45:29.000", "2001-05-09 03:45:29.000"),
        ("America/New_York", 3, "2027-11-14 21:05:25.000", "2027-11-15 02:05:25.000"),
        ("America/New_York", 3, "2031-02-20 19:12:23.000", "2031-02-21 00:12:23.000"),
    ],
)
def test_the_zone_of_a_session(zone: str, digits: int, clock: str, moment: str) -> None:
    """What a TiDB 8.5 made of DATETIMEs, by the zone of the session that changed the column, as UTC shows it."""
    datetime, timestamp = (C(code, decimal=digits) for code in (T.DATETIME, T.TIMESTAMP))
    there, back = converter(datetime, timestamp, session=zone), converter(timestamp, datetime, session=zone)
    assert there is not None
    assert back is not None
    assert (there(clock), back(moment)) == (moment, clock)
