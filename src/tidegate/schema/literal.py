"""Literals of column definitions as stored values: defaults of ADD COLUMN and bounds of partitions.

    ADD COLUMN g DECIMAL(10,4) DEFAULT 3.14          rows written before it hold   "3.1400"
    ADD COLUMN y BINARY(4)     DEFAULT 'ab'                                        "ab" and two NUL bytes
    ADD COLUMN d VARCHAR(20)   NOT NULL                                            ""   (the zero value)
    ADD COLUMN b INT                                                               None

No row is written when a column is added: rows without it read as its *origin* default, whatever SET DEFAULT says later.
Source: TiDB's GetColOriginDefaultValue and GetZeroValue; rows of tests/data/codec/interleave after each ADD COLUMN.
"""

import re
from datetime import UTC, datetime
from typing import Final

from tidegate.expr.cast import zero_of
from tidegate.expr.change import assigned, event_value, family_of
from tidegate.model.event import NO_SESSION, DdlSession, Value
from tidegate.model.mysql import Family
from tidegate.model.table import ColumnInfo, ColumnType
from tidegate.model.tso import to_datetime
from tidegate.mysql.conversion import decode_bytes, numeric_prefix, session_zone, to_integer, zone_of
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import Context

_NUMERIC: Final = frozenset({Family.INT, Family.BIT, Family.YEAR, Family.FLOAT, Family.DECIMAL})
_NAMED: Final = frozenset({Family.ENUM, Family.SET})
_BOOLEAN: Final = {"TRUE": "1", "FALSE": "0"}
_NOW: Final = re.compile(
    r"(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)(?:\s*\(\s*\d?\s*\))?|CURRENT_DATE(?:\s*\(\s*\))?",
    re.IGNORECASE,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stored_value(
    column: ColumnInfo, *, time_zone: str = "UTC", commit_ts: int = 0, session: DdlSession = NO_SESSION
) -> Value:
    """Return the value that rows written before the column existed hold, a TIMESTAMP on the clocks of `time_zone`.

    `session` is that of the ADD COLUMN.  DEFAULT CURRENT_TIMESTAMP is the moment when the statement started, cut to the
    digits of the column, which no message carries: without it the value is as exact as `commit_ts` is near.
    """
    default, kind = column.origin_default, column.type
    if default is None:
        return None if column.nullable else event_value(kind, zero_of(kind))
    if isinstance(default, str) and family_of(kind) is Family.MOMENT and _NOW.fullmatch(default.strip()):
        clocks = zone_of(time_zone)
        zone = session_zone(session.zone, clocks)
        utc = datetime.fromisoformat(session.moment).replace(tzinfo=UTC) if session.moment else to_datetime(commit_ts)
        now = utc.astimezone(zone)
        unit_us = 10 ** (6 - max(kind.decimal, 0))
        cut = Time(*now.timetuple()[:6], now.microsecond // unit_us * unit_us)
        return assigned(cut, kind, Context(now, zone), clocks)
    return cast_literal(default, kind, time_zone=time_zone, session=session.zone)


def cast_literal(literal: str | bytes, kind: ColumnType, *, time_zone: str = "UTC", session: str = "") -> Value:
    """Return a literal (text of a string or number, bytes of x'..' and b'..'), as a session of that zone means it, as a
    value of that type."""
    family = family_of(kind)
    if family is Family.VECTOR:
        return literal
    if isinstance(literal, bytes) and family in _NUMERIC | _NAMED:
        literal = (
            str(int.from_bytes(literal[-8:], "big")) if family in _NUMERIC else decode_bytes(literal, kind.charset)
        )
    if family in _NUMERIC and isinstance(literal, str):
        literal = _BOOLEAN.get(literal.strip().upper(), literal)
    number = to_integer(numeric_prefix(str(literal))) if family is Family.BIT else literal
    clocks = zone_of(time_zone)
    return assigned(number, kind, Context(_EPOCH, session_zone(session, clocks)), clocks)
