"""What a real TiDB made of stored values when columns changed their types (tests/data/tidb_sql/modify.jsonl.gz).

    {"from": "varchar(40)", "to": "int", "zone": "+00:00", "rows": [["12.5", "31322E35", "13", "D"], ..]}

A row has text and HEX() before and after; `pairs` are the same values as events have them.
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from tests.recorded_tidb import recorded
from tidegate.expr.change import family_of
from tidegate.model.event import Value
from tidegate.model.mysql import STRINGS, Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import nearest_single
from tidegate.schema.columns import parse_type

MOMENT_TS = 1_795_680_000_000 << 18
"""When it ran: a moment of the evening of 2026-11-26 in UTC, of the next day in +08:00."""


class RecordedChange(NamedTuple):
    """A column of one type that became another one; the types as SQL has them and as ours."""

    old_sql: str
    new_sql: str
    old: ColumnType
    new: ColumnType
    zone: str
    pairs: list[tuple[Value, Value]]


def recorded_changes() -> Iterator[RecordedChange]:
    """All of them."""
    for line in recorded("modify"):
        old, new = type_of(line["from"]), type_of(line["to"])
        pairs = [(value_of(old, *row[:2]), value_of(new, *row[2:])) for row in line["rows"]]
        yield RecordedChange(line["from"], line["to"], old, new, line["zone"], pairs)


def type_of(sql: str) -> ColumnType:
    """The type of a column in a table of utf8mb4."""
    found = parse_type(sql.removesuffix(" null"))
    if found.code is T.BIT and found.flen < 0:
        return ColumnType(T.BIT, 1, charset="binary")
    return found


def value_of(kind: ColumnType, text: str | None, hexed: str | None) -> Value:
    """A value as events have it: HEX() is the truth for times, bits, bytes and documents."""
    if text is None or hexed is None:
        return None
    family = family_of(kind)
    if family is Family.BIT:
        return int(hexed, 16)
    if family in (Family.INT, Family.YEAR):
        return int(text)
    if family is Family.FLOAT:
        return nearest_single(float(text)) if kind.code is T.FLOAT else float(text)
    if family is Family.DECIMAL:
        return format(Decimal(text), "f")
    data = bytes.fromhex(hexed)
    if family is Family.BINARY:
        return data
    if family in (Family.MOMENT, Family.SPAN, Family.JSON):
        return data.decode()
    return bytes.fromhex(text[4:]).decode("utf-8", "replace") if text.startswith("hex:") else text


def alike(kind: ColumnType, one: Any, other: Any) -> bool:
    """Whether two values of a column are the same, documents by their meaning, a FLOAT(M,D) as it prints."""
    if kind.code is T.JSON and one is not None and other is not None:
        return bool(json.loads(one, parse_int=float) == json.loads(other, parse_int=float))
    if isinstance(one, float) and isinstance(other, float) and kind.decimal >= 0:
        return round(one, kind.decimal) == round(other, kind.decimal)
    return type(one) is type(other) and bool(one == other)


_NUMBERS = {Family.INT, Family.FLOAT, Family.DECIMAL}


def excused(change: RecordedChange, value: Value, due: Value) -> str:
    """Why a value may be another one; "" if it may not."""
    families = family_of(change.old), family_of(change.new)
    shown = str(value)
    if change.old.code is T.FLOAT and isinstance(value, float) and abs(value) > 1e15:
        return "the recording tells a large FLOAT by six digits"
    if change.new.code is T.FLOAT and isinstance(due, float) and abs(due) > 1e15:
        return "the recording tells a large FLOAT by six digits"
    if families[1] is Family.SPAN and due is None and families[0] in _NUMBERS:
        return "a number beyond TIME becomes NULL in a TiDB that is not strict"
    if families[1] is Family.SPAN and shown.startswith("184467440737095516"):
        return "a number of more than 64 bits as TIME"
    if change.new.code in STRINGS and (isinstance(due, bytes) or "\ufffd" in str(due) or due == "\0"):
        return "bytes that are no UTF-8 in a text"
    if families == (Family.BIT, Family.JSON) and "fffd" in str(due):
        return "bytes that are no UTF-8 in a document"
    if value == "0000-":
        return "a year 0000 with a rest that is none"
    if families == (Family.JSON, Family.INT) and value == '"2024-02-29"':
        return "TiDB stores 2024 in a TINYINT"
    if due == "10000-01-01 00:00:00.00":
        return "TiDB stores the year 10000"
    return ""
