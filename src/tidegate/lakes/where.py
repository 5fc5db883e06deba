"""Rows by the values of their columns: a point read opens the files that can hold them, and nothing else.

{"id": 17}   {"id": [17, 18], "status": "paid"}   {"email": None}
    └──► each value as the column's type ──► bounds of a file miss all of them?  the file is not opened
                                        └──► the named columns of the others, then the rest where a row fits
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.objectstore.deltalog import DataFile
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.types import arrow_type

Where: TypeAlias = Mapping[str, Any]
"""Column -> the value that it has, or a list of such values; None is NULL."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that decide, each with its values."""

    columns: tuple[LakeColumn, ...] = ()
    values: tuple[pa.Array, ...] = ()

    @classmethod
    def of(cls, where: Where, stored: Sequence[LakeColumn], table: TableInfo) -> Self:
        """Return what `where` asks for. Raises ConfigError for unknown columns and for values that no row can have."""
        known = {lowered(column.name): column for column in stored}
        unknown = [name for name in where if lowered(name) not in known]
        if unknown:
            names = ", ".join(column.name for column in stored)
            raise ConfigError(f"table {table.name} has no column {unknown[0]}; it has: {names}")
        columns = tuple(known[lowered(name)] for name in where)
        return cls(
            columns, tuple(_values(column, asked) for column, asked in zip(columns, where.values(), strict=True))
        )

    def may_lie_in(self, file: DataFile) -> bool:
        """False if the bounds of a file exclude every row that is asked for."""
        return all(_within(file, column, values) for column, values in zip(self.columns, self.values, strict=True))

    def places(self, rows: pa.Table) -> pa.Array:
        """Return the numbers of the rows that are asked for; `rows` has at least the columns that decide."""
        fits = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
        for column, values in zip(self.columns, self.values, strict=True):
            fits = pc.and_(fits, pc.is_in(rows.column(column.name), value_set=values))
        return pc.indices_nonzero(fits)

    def among(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are asked for."""
        return rows.take(self.places(rows)) if self.columns else rows


EVERY: Final = Wanted()


def _values(column: LakeColumn, asked: Any) -> pa.Array:
    """Values as the column's type: numbers and texts are taken alike, so that 17, "17" and Decimal(17) are one key."""
    several = list(asked) if isinstance(asked, list | tuple | set | frozenset) else [asked]
    kind = arrow_type(column.delta)
    try:
        return pa.array([None if one is None else _value(one, kind) for one in several], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as wrong:
        raise ConfigError(f"column {column.name} is {column.delta}: {asked!r} is no value of it ({wrong})") from wrong


def _value(one: Any, kind: pa.DataType) -> Any:
    if isinstance(one, pa.Scalar):
        return one.cast(kind).as_py()
    return pa.scalar(one).cast(kind).as_py()


def _within(file: DataFile, column: LakeColumn, values: pa.Array) -> bool:
    low, high = file.lows.get(column.physical), file.highs.get(column.physical)
    if low is None or high is None:
        return True
    return any(type(one) is not type(low) or low <= one <= high for one in values.to_pylist())
