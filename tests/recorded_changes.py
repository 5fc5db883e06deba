"""What a real TiDB made of stored values when columns changed their types (tests/data/sql/modify.jsonl.gz).

    {"from": "varchar(40)", "to": "int", "zone": "+00:00", "rows": [["12.5", "31322E35", "13", "D"], ..]}

A row has text and HEX() before and after; `pairs` are the same values as events have them.
"""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.expr.cast.family import Family, family_of
from tidegate.expr.convert.number import nearest_single
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.schema.columns import parse_type

PATH = Path(__file__).parent / "data" / "sql" / "modify.jsonl.gz"
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
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
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
    """Whether two values of a column are the same, documents by their meaning."""
    if kind.code is T.JSON and one is not None and other is not None:
        return bool(json.loads(one) == json.loads(other))
    return type(one) is type(other) and bool(one == other)
