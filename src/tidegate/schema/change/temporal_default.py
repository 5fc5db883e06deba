"""Default values of DATE, DATETIME and TIMESTAMP as definitions keep them: one form, TIMESTAMP in UTC.

    '2020-1-2'          DATETIME(3)             "2020-01-02 00:00:00.000"
    '2020-01-01 8:00'   TIMESTAMP, zone +08     "2020-01-01 00:00:00"

Source: TiDB pkg/ddl/add_column.go (getDefaultValue, convertTimestampDefaultValToUTC), pkg/expression (GetTimeValue).
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.schema.change.session import DdlSession
from tidegate.schema.stored.definition import StoredType

__all__ = ["MOMENTS", "kept_moment"]

MOMENTS: Final = frozenset({T.DATE, T.DATETIME, T.TIMESTAMP})
_MOMENT: Final = re.compile(r"^(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d+)?)?)?$")
_STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


def kept_moment(kind: StoredType, value: str, session: DdlSession, refused: SqlRefused) -> str:
    """`value` in the definition's form; raises `refused` for no moment, and for a zero date where sql_mode forbids it.

    Forms without signs between the numbers ("20200102") are kept as they were written."""
    text = value.strip()
    if text.startswith("0000-00-00"):
        if "NO_ZERO_DATE" in session.sql_mode and session.sql_mode & _STRICT:
            raise refused
        return value
    found = _MOMENT.match(text)
    if found is None:
        if not text[:1].isdigit():
            raise refused
        return value
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=session.zone)
    except ValueError:
        raise refused from None
    if kind.tp == T.DATE:
        return moment.date().isoformat()
    digits = max(kind.decimal, 0)
    fraction = Decimal("0" + (found[7] or ".0")).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    if fraction == 1:
        moment, fraction = moment + timedelta(seconds=1), Decimal(0)
    if kind.tp == T.TIMESTAMP:
        moment = moment.astimezone(UTC)
    shown = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
    return f"{shown}.{int(fraction.scaleb(digits)):0{digits}d}" if digits else shown
