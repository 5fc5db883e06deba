"""Columns of a lake table and bounds of its files as Iceberg has them. Pure.

    byte, short, integer     int             4 bytes, little endian
    long                     long            8 bytes, little endian
    decimal(p,s)             decimal(p, s)   the unscaled number, big endian, as few bytes as hold it
    date                     date            days since 1970-01-01, 4 bytes, little endian
    string                   string          UTF-8
    timestamp                timestamptz     no bounds, as of every other type
    timestamp_ntz            timestamp

A field's id is the column's mapping id, which the Parquet files carry too: names and their changes are of no concern
to a reader.  Source: the Iceberg table specification, "Schemas and Data Types", "Single-value serialization".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from tidegate.model.table import TableInfo
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.types import DECIMAL_TYPE

TYPES: Final[Mapping[str, str]] = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
ICEBERG_DECIMAL: Final = re.compile(r"decimal\(\d+, (\d+)\)")
EPOCH: Final = date(1970, 1, 1).toordinal()


def iceberg_type(delta: str) -> str:
    """Return the Iceberg type of a Delta type."""
    if match := DECIMAL_TYPE.fullmatch(delta):
        return f"decimal({match[1]}, {match[2]})"
    return TYPES[delta]


def iceberg_fields(columns: Sequence[LakeColumn], table: TableInfo) -> list[dict[str, Any]]:
    """Return the fields of a schema; comments of the upstream's columns stand as their `doc`."""
    comments = {column.id: column.comment for column in table.columns if column.comment}
    return [
        {"id": column.mapping_id, "name": column.name, "required": False, "type": iceberg_type(column.delta)}
        | ({"doc": comments[column.upstream_id]} if column.upstream_id in comments else {})
        for column in columns
    ]


Kinds = Mapping[str, tuple[int, str]]
"""Field id and Iceberg type of each column by its name in Parquet files."""


def kinds_of(fields: Sequence[Mapping[str, Any]], names: Mapping[str, int]) -> Kinds:
    """Return the fields of a schema by their names in Parquet files."""
    types = {field["id"]: field["type"] for field in fields}
    return {name: (number, types[number]) for name, number in names.items()}


def iceberg_bounds(bounds: Mapping[str, Any], kinds: Kinds) -> dict[int, bytes]:
    """Return bounds by names in Parquet files, as the log has them, as bytes by field ids; of types that are bounded
    alone."""
    known = ((*kinds[name], value) for name, value in bounds.items() if name in kinds and value is not None)
    told = ((number, _packed(kind, value)) for number, kind, value in known)
    return {number: value for number, value in told if value is not None}


def _packed(kind: str, value: Any) -> bytes | None:
    if match := ICEBERG_DECIMAL.fullmatch(kind):
        return _decimal(Decimal(str(value)), int(match[1]))
    return PACKED[kind](value) if kind in PACKED else None


def _decimal(value: Decimal, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a bound is a number"
    unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)


def _days(value: Any) -> bytes:
    day = value if isinstance(value, date) else date.fromisoformat(value)
    return (day.toordinal() - EPOCH).to_bytes(4, "little", signed=True)


PACKED: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "int": lambda value: int(value).to_bytes(4, "little", signed=True),
    "long": lambda value: int(value).to_bytes(8, "little", signed=True),
    "date": _days,
    "string": lambda value: str(value).encode(),
}
