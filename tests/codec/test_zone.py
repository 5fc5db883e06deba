"""Zones whose clocks go back: two moments have one text there."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tidegate.codec.zone import hour_twice, repeated_hour, zone_shift

TWICE = {
    "Europe/Berlin": "2037-10-25 02:00",
    "America/New_York": "2037-11-01 01:00",
    "Europe/Moscow": "2014-10-26 01:00",
    "America/Sao_Paulo": "2019-02-16 23:00",
    "Australia/Lord_Howe": "2037-04-05 01:30",
    "Asia/Shanghai": "1991-09-15 01:00",
    "Asia/Hong_Kong": "1979-10-21 02:30",
    "Asia/Seoul": "1988-10-09 02:00",
}


@pytest.mark.parametrize("name", TWICE)
def test_an_hour_that_comes_twice(name: str) -> None:
    """The text that is told is that of two moments indeed, and the minute before it is that of one."""
    last = repeated_hour(name)
    clock = datetime.fromisoformat(last)
    moments = [clock.replace(tzinfo=ZoneInfo(name), fold=fold).astimezone(ZoneInfo("UTC")) for fold in (0, 1)]

    assert last == TWICE[name]
    assert moments[0] < moments[1]
    assert {zone_shift(name)(f"{moment:%Y-%m-%d %H:%M:%S}") for moment in moments} == {f"{clock}"}
    before = clock - timedelta(minutes=1)
    assert len({before.replace(tzinfo=ZoneInfo(name), fold=fold).utcoffset() for fold in (0, 1)}) == 1


@pytest.mark.parametrize("name", ["UTC", "Asia/Singapore", "Asia/Tokyo", "Asia/Kolkata", "Etc/GMT+5"])
def test_a_zone_without_one(name: str) -> None:
    """Zones whose clocks have not gone back since 1970."""
    assert repeated_hour(name) == hour_twice(name) == ""


def test_long_ago() -> None:
    """Who has no TIMESTAMP of that time hears that nothing is wrong, the last hour of the zone being long ago."""
    assert "went back, the last time on 1991-09-15 01:00 (a TIMESTAMP after that day is safe)" in hour_twice(
        "Asia/Shanghai"
    )
    assert "safe" not in hour_twice("Europe/Berlin")
