"""Stored generated columns, which Dumpling leaves out of its files, computed from the others by their expressions.

file     price   count        each different (price, count) once                  batch
         2.50    4       ──►  price * count, as the column total stores it   ──►  price, count, total

A value that does not fit its column is stored as a session stores it that is not strict: a strict one has no such row.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidegate.expr.cast import Target, assign
from tidegate.expr.change import event_value
from tidegate.expr.compiler import compile_scalar
from tidegate.expr.parse import parse_expression
from tidegate.expr.scope import RelationColumn, Scope
from tidegate.model.errors import SchemaError
from tidegate.model.mysql import FLOATS, NAMED, STRINGS, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo
from tidegate.mysql.column_value import parse_value
from tidegate.mysql.values import DEFAULT_COLLATION, Context, SqlValue, from_column


class Generated:
    """The stored generated columns of a table. Raises a TidegateError for one that cannot be computed."""

    def __init__(self, info: TableInfo) -> None:
        columns, used, computed = info.columns, set[str](), []
        named = [Target(column.name, column.type, column.collation or DEFAULT_COLLATION) for column in columns]
        scope = Scope.of_columns(RelationColumn(each.name, each.type, collation=each.collation) for each in named)
        for index, column in reversed([*enumerate(columns)]):  # one names generated columns before it alone
            if column.generated is not None and (column.stored or lowered(column.name) in used):
                node = parse_expression(column.generated)
                used |= {lowered(column.name), *(lowered(other.name) for other in node.find_all(exp.Column))}
                computed.append((index, compile_scalar(node, scope), named[index]))
        needed = [index for index, column in enumerate(columns) if lowered(column.name) in used]
        if zoned := [columns[index].name for index in needed if columns[index].type.code == MysqlType.TIMESTAMP]:
            raise SchemaError(f"{', '.join(zoned)} depends on the time zone of the session that wrote it")
        self._columns, self._computed = columns, computed[::-1]
        self._inputs = [index for index in needed if columns[index].generated is None]

    def completed(self, written: Sequence[Any]) -> Sequence[Any]:
        """Return the columns of rows, all that are kept, from those that files have, as a server prints them with ENUM
        and SET as numbers. Raises a TidegateError for a value that no column has."""
        if not self._computed:
            return written
        plain = (index for index, column in enumerate(self._columns) if column.generated is None)
        every = dict(zip(plain, written, strict=True))
        rows = [*zip(*(every[index].to_pylist() for index in self._inputs), strict=True)] or [()] * len(written[0])
        stored = {row: self._stored(row) for row in dict.fromkeys(rows)}
        kept = (index for index, *_ in self._computed if self._columns[index].stored)
        for index, column in zip(kept, zip(*map(stored.__getitem__, rows), strict=True), strict=True):
            every[index] = pa.array(column, pa.binary())
        return [every[index] for index in sorted(every)]

    def _stored(self, texts: Sequence[bytes | None]) -> list[bytes | None]:
        values: list[SqlValue] = [None] * len(self._columns)
        for index, text in zip(self._inputs, texts, strict=True):
            values[index] = _value(self._columns[index].type, text)
        written, context = [], Context(datetime.now(UTC))
        for index, compiled, target in self._computed:
            stored = assign(compiled(values, context), target, context)
            values[index] = from_column(target.type, stored, UTC)
            if self._columns[index].stored:
                written.append(_text(stored if target.type.code in NAMED else event_value(target.type, stored)))
        return written


def _value(kind: ColumnType, text: bytes | None) -> SqlValue:
    if text is None or (kind.charset == "binary" and kind.code in STRINGS):
        return text
    value = float(np.float32(text) if kind.code == MysqlType.FLOAT else text) if kind.code in FLOATS else text.decode()
    return from_column(kind, parse_value(kind, value, UTC), UTC)


def _text(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()
