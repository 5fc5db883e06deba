"""What a DDL makes of rows that a cache or an index holds."""

import pytest

from tests.sink.delta.lake import column, table
from tidegate.model.event import DdlSession
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType
from tidegate.sink.documents import altered

TIMESTAMP, DATETIME = ColumnType(MysqlType.TIMESTAMP), ColumnType(MysqlType.DATETIME)


@pytest.mark.parametrize(
    ("old", "new", "clocks", "zone", "before", "after"),
    [
        (TIMESTAMP, DATETIME, "UTC", "+08:00", "2024-01-01 00:00:00", "2024-01-01 08:00:00"),
        (TIMESTAMP, DATETIME, "Asia/Shanghai", "+00:00", "2024-01-01 08:00:00", "2024-01-01 00:00:00"),
        (DATETIME, TIMESTAMP, "UTC", "America/New_York", "2024-07-01 00:00:00", "2024-07-01 04:00:00"),
        (DATETIME, TIMESTAMP, "Asia/Shanghai", "", "2024-07-01 00:00:00", "2024-07-01 00:00:00"),
        (TIMESTAMP, DATETIME, "UTC", "+08:00", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_moments_and_clocks(  # noqa: PLR0917
    old: ColumnType, new: ColumnType, clocks: str, zone: str, before: str, after: str
) -> None:
    """TIMESTAMPs stand on the clocks of the feed, and a DDL converts them on those of its session."""
    was, now = table(column(1, "id"), column(2, "c", old)), table(column(1, "id"), column(2, "c", new))
    change = altered(was, now, clocks, 1, DdlSession(zone), keeps_null=True)
    row = {"id": 1, "c": before}

    assert (row if change is None else change(row)) == {"id": 1, "c": after}


def test_a_new_column() -> None:
    """The text of a moment is the session's."""
    fill = ColumnInfo(2, "c", TIMESTAMP, origin_default="2024-01-01 08:00:00")
    change = altered(
        table(column(1, "id")), table(column(1, "id"), fill), "UTC", 1, DdlSession("+08:00"), keeps_null=True
    )

    assert change is not None
    assert change({"id": 1}) == {"id": 1, "c": "2024-01-01 00:00:00"}
