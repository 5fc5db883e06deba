"""What the type of a value adds to it on its way into a column: how it prints, how it counts.

    value           of type       into text                into a number     into JSON
    Time            DATE          2024-01-31               20240131          a date
                    DATETIME(3)   2024-01-31 10:20:30.500  20240131102030.5  a moment
    Duration        TIME(1)       10:20:30.5               102030.5          a span of time
    float           FLOAT         0.1, not 0.10000000149   the double        the double
    int             INT(4) ZEROFILL, YEAR   0007, 0000     itself            itself

`fitted` serves statements; `recast` serves a column whose type changes, where integers print without zeros before them,
BIT counts as its number, and binary strings are read as text.

change.py does so with values as a feed has them.

Source: TiDB pkg/types (Datum.ConvertTo).
"""

from datetime import tzinfo
from decimal import Decimal
from typing import Final

from tidegate.expr.cast.number import NUMBERS
from tidegate.expr.json_value import as_member
from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.convert.text import decode_bytes, encode_text
from tidegate.mysql.datum import Unsigned
from tidegate.mysql.value.kinds import Duration, JsonDatum, SqlValue, Time, from_column
from tidegate.mysql.value.text import text_of

_DATES: Final = frozenset({T.DATE, T.NEWDATE})


def fitted(value: SqlValue, kind: ColumnType, target: ColumnType) -> SqlValue:
    """Return a value of type `kind` so that an assignment to `target` needs to know no more about it."""
    if isinstance(value, Time | Duration):
        if target.code in STRINGS:
            return text_of(value, kind)
        if target.code is T.JSON:
            return JsonDatum(as_member(value, kind))
        if isinstance(value, Time) and kind.code in _DATES and target.code in NUMBERS and target.code is not T.YEAR:
            return (value.year * 100 + value.month) * 100 + value.day
        return value
    if isinstance(value, float):
        text = text_of(value, kind)
        return text if target.code in STRINGS else Decimal(str(text)) if target.code is T.TIME else value
    if isinstance(value, int) and not isinstance(value, bool) and target.code in STRINGS:
        return text_of(value, kind)
    return value


def recast(value: KvValue, kind: ColumnType, target: ColumnType, zone: tzinfo) -> SqlValue:
    """Return the stored value of a column of type `kind` on its way into the type that the column is to have."""
    running = from_column(kind, value, zone)
    if isinstance(running, bytes) and target.code is T.JSON:
        return _document(running, kind)
    if isinstance(running, str) and kind.code in STRINGS and target.code in STRINGS and target.charset == "binary":
        return encode_text(running, kind.charset)
    if kind.code is T.BIT and isinstance(running, bytes):
        number = Unsigned(int.from_bytes(running, "big"))
        return str(int(number)) if target.code in STRINGS else number
    return running if isinstance(running, int) and not isinstance(running, Duration) else fitted(running, kind, target)


def _document(data: bytes, kind: ColumnType) -> SqlValue:
    """Binary strings are texts of documents, BIT is a string in one."""
    text = decode_bytes(data, "utf8mb4")
    return JsonDatum(text) if kind.code is T.BIT else text
