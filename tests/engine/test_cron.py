"""Cron lines of six fields: when they are due."""

from datetime import UTC, datetime

import pytest

from tidegate.model.errors import SinkConfigInvalid
from tidegate.sink.storage_bucket import CronLine

FRIDAY = datetime(2026, 11, 20, 12, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "due"),
    [
        ("0 0 2 * * *", (11, 21, 2, 0, 0)),
        ("* * * * * *", (11, 20, 12, 30, 16)),
        ("*/20 30 12 * * ?", (11, 20, 12, 30, 20)),
        ("15 30 12 * * *", (11, 21, 12, 30, 15)),
        ("0 0 8-20/4 * * *", (11, 20, 16, 0, 0)),
        ("0 0 0 1 * *", (12, 1, 0, 0, 0)),
        ("0 0 0 * * 0", (11, 22, 0, 0, 0)),
        ("0 0 0 * * 7", (11, 22, 0, 0, 0)),
        ("0 0 0 30 * 1", (11, 23, 0, 0, 0)),
        ("0 0 0 30 11 *", (11, 30, 0, 0, 0)),
        ("0 0 3,1 * * *", (11, 21, 1, 0, 0)),
    ],
)
def test_due(line: str, due: tuple[int, int, int, int, int]) -> None:
    """The next moment is strictly behind the one that is given; of two days that are told one is enough."""
    assert CronLine.parse(line).after(FRIDAY) == datetime(2026, *due, tzinfo=UTC)


def test_leap_days() -> None:
    """The 29th of February is found, years ahead."""
    assert CronLine.parse("0 0 0 29 2 *").after(FRIDAY) == datetime(2028, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    ["", "0 2 * * *", "0 0 24 * * *", "0 0 2 0 * *", "x 0 2 * * *", "5-1 * * * * *", "*/0 * * * * *", "0 0 0 31 6 *"],
)
def test_no_line(line: str) -> None:
    """What is out of range, has another number of fields or names a 31st of June is refused."""
    with pytest.raises(SinkConfigInvalid):
        CronLine.parse(line)
