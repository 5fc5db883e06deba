"""Bounds of partitions that are texts of moments, by the time zone of the session that wrote them. Pure.

    VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01 00:00:00'))    in +08:00     VALUES LESS THAN (1704038400)

TiDB keeps the number.  A text means that zone for the one statement alone: a later DDL may come in another.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from tidegate.model.errors import TidegateError
from tidegate.model.table import PartitionDef, PartitionInfo
from tidegate.schema.expression import compile_expression, integer_of
from tidegate.schema.spec import AddPartitions, PartitionBy, ReorganizePartitions, Spec
from tidegate.schema.statement import AlterTable, CreateTable, Statement

MOMENT: Final = re.compile(r"UNIX_TIMESTAMP\s*\(\s*['\"]", re.IGNORECASE)
"""A bound that means another number in another zone."""


def in_zone(statement: Statement, zone: str) -> Statement:
    """Return a statement whose bounds mean what they mean in a session of that zone; as it is where that is not
    known."""
    match statement:
        case _ if zone in {"", "UTC", "+00:00"}:
            return statement
        case CreateTable(partition=PartitionInfo() as partition):
            return replace(statement, partition=_partition(partition, zone))
        case AlterTable(specs=specs):
            return replace(statement, specs=tuple(_spec(spec, zone) for spec in specs))
    return statement


def number_of(text: str, zone: str) -> int | None:
    """Return the number that a bound means in a session of that zone; None for one that means none."""
    try:
        return integer_of(compile_expression(text, (), time_zone=zone)({}))
    except TidegateError:
        return None


def _spec(spec: Spec, zone: str) -> Spec:
    match spec:
        case AddPartitions(definitions=found) | ReorganizePartitions(definitions=found):
            return replace(spec, definitions=_definitions(found, zone))
        case PartitionBy(partition):
            return replace(spec, partition=_partition(partition, zone))
    return spec


def _partition(partition: PartitionInfo, zone: str) -> PartitionInfo:
    return msgspec.structs.replace(partition, definitions=_definitions(partition.definitions, zone))


def _definitions(definitions: Sequence[PartitionDef], zone: str) -> tuple[PartitionDef, ...]:
    return tuple(
        msgspec.structs.replace(
            one,
            less_than=_numbers(one.less_than, zone),
            in_values=tuple(_numbers(values, zone) for values in one.in_values),
        )
        for one in definitions
    )


def _numbers(texts: tuple[str, ...], zone: str) -> tuple[str, ...]:
    found = ((text, number_of(text, zone) if MOMENT.search(text) else None) for text in texts)
    return tuple(text if number is None else str(number) for text, number in found)
