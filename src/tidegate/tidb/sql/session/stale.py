"""Reading the past: timestamps in all their forms, and AS OF TIMESTAMP in a SELECT.

    tidb_snapshot = 470606745168510976               a TSO
    tidb_snapshot = '2024-01-31 01:02:03.5'          that moment on the session's clocks
    SELECT .. FROM t AS OF TIMESTAMP <moment> ..     the statement without it, and the moment

Source: TiDB documentation, "Read Historical Data Using the System Variable tidb_snapshot", "AS OF TIMESTAMP Clause".
"""

from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, reveal, tokenize
from tidegate.expr.value.kinds import SqlValue
from tidegate.kv.packed_time import Time
from tidegate.model.errors import SqlRefused
from tidegate.model.tso import LOGICAL_BITS
from tidegate.schema.cursor import Cursor

__all__ = ["moment_ts", "split_stale"]

_WRONG_MOMENT: Final = 1292
_SEVERAL: Final = 8135
_TSO_MIN: Final = 1 << 40
"""Whole numbers from here on are TSOs: as a moment they would be no date."""


def moment_ts(value: SqlValue, zone: tzinfo, newest_ts: int) -> int:
    """Return the timestamp that a value means; SqlRefused 1292 for none, 8128 for one to come."""
    ts = _tso(value) or _moment(value, zone)
    if ts is None:
        raise SqlRefused(_WRONG_MOMENT, f"Incorrect datetime value: '{_shown(value)}'", "22007")
    if ts > newest_ts:
        raise SqlRefused(8128, f"cannot read at ts {ts}, a time to come: the newest is {newest_ts}", "HY000")
    return ts


def _shown(value: SqlValue) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _tso(value: SqlValue) -> int | None:
    if isinstance(value, int | Decimal) and value >= _TSO_MIN:
        return int(value)
    if isinstance(value, str) and value.isdigit() and int(value) >= _TSO_MIN:
        return int(value)
    return None


def _moment(value: SqlValue, zone: tzinfo) -> int | None:
    try:
        if isinstance(value, Time):
            moment = datetime(*value, tzinfo=zone)
        elif isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
            moment = found if found.tzinfo is not None else found.replace(tzinfo=zone)
        else:
            return None
    except ValueError:
        return None
    return round(moment.timestamp() * 1000) << LOGICAL_BITS


def split_stale(text: str, *, escapes: bool = True) -> tuple[str, str | None]:
    """Return a SELECT without its AS OF TIMESTAMP, and the text of the moment; None where it has none.

    Raises SqlRefused 8135 when tables are to be read at several moments."""
    if "OF" not in text.upper():
        return text, None
    revealed = reveal(text, escapes=escapes)
    cursor = Cursor(revealed, tokenize(revealed, escapes=escapes))
    parts, moments, last = [], set[str](), 0
    while not cursor.done():
        if not cursor.looking_at("AS OF TIMESTAMP"):
            cursor.next()
            continue
        parts.append(revealed[last : cursor.peek().start])
        cursor.expect("AS OF TIMESTAMP")
        moments.add(_operand(cursor))
        last = cursor.peek().start
    if len(moments) > 1:
        raise SqlRefused(_SEVERAL, "can not set different time in the as of", "HY000")
    return ("".join([*parts, revealed[last:]]), moments.pop()) if moments else (text, None)


def _operand(cursor: Cursor) -> str:
    """The text of a moment: a literal, a call, with an interval added or taken away."""
    start = cursor.at
    _skip_term(cursor)
    while cursor.is_sign("+") or cursor.is_sign("-"):
        cursor.next()
        if cursor.accept("INTERVAL"):
            _skip_term(cursor)
            cursor.next()
        else:
            _skip_term(cursor)
    return cursor.slice(start)


def _skip_term(cursor: Cursor) -> None:
    if cursor.is_sign("("):
        cursor.skip_group()
        return
    while cursor.sign("@"):
        pass
    if cursor.next().kind in (TokenKind.WORD, TokenKind.NAME) and cursor.is_sign("("):
        cursor.skip_group()
