"""Rows as JSON documents: values, the net change of each key, and what a DDL does to a stored row.

    column                             JSON
    integers, YEAR, BIT                number
    FLOAT, DOUBLE                      number, with the shortest digits
    DECIMAL                            string, as TiDB prints it: exact
    DATE, DATETIME, TIMESTAMP, TIME    string, as TiDB prints it
    ENUM, SET                          names; digits where the definition is not known
    CHAR, VARCHAR, TEXT, VECTOR        string
    BINARY, VARBINARY, BLOB            string, Base64
    JSON                               the document
    NULL                               null

Values are those of model/event.py, with the names of ENUM and SET; expr/change.py converts them when a DDL changes a
column.  Documents can be read back into rows.

Of several changes of a key in a batch only the last one counts; within a transaction a row that is put wins over one
that is removed.

    UPDATE (1,a) to (1,b)     put 1                     DELETE (2,a)     delete 2
    UPDATE (1,a) to (2,a)     delete 1, put 2           INSERT (3,c)     put 3

A DDL becomes functions of one stored row:

    ALTER                altered       a new column has its default, a column of another type is converted
    partitions           inside        whether the row lies in one of them
    EXCHANGE PARTITION   as_columns    the row under the other table's column names
"""

from base64 import b64decode
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch
from tidegate.expr.change import Rule, converter
from tidegate.model.errors import SinkRefused
from tidegate.model.event import NO_SESSION, DdlSession, Field, Value
from tidegate.model.mysql import FLOATS, NAMED, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo
from tidegate.mysql.conversion import enum_name, enum_number, nearest_single, set_names, set_number, shortest_single
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.sink.row_id import RawText, key_indexes

Row: TypeAlias = Mapping[str, Value]


def column_values(table: TableInfo, fields: Sequence[Field], image: Any) -> list[list[Value]]:
    """Return the values of each column of an image (an Arrow record batch)."""
    return [_values(table.column(field.name), field, image.column(index)) for index, field in enumerate(fields)]


def _values(column: ColumnInfo | None, field: Field, values: Any) -> list[Value]:
    if field.type == T.FLOAT:  # the shortest digits that tell a 32-bit number apart
        texts = values.cast(pa.float32(), safe=False).cast(pa.string()).to_pylist()
        return [None if text is None else float(text) for text in texts]
    if field.type in STRINGS and not field.binary and not pa.types.is_string(values.type):
        return [_text(value) for value in values.to_pylist()]
    if field.type in NAMED and column is not None and column.type.elems is not None:
        name = partial(_named, T(field.type), column.type.elems)
        encoded = pc.dictionary_encode(values)
        names = pa.array([name(value) for value in encoded.dictionary.to_pylist()], pa.string())
        values = names.take(encoded.indices)
    listed: list[Value] = values.to_pylist()
    return listed


def _text(value: str | bytes | None) -> Value:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return RawText(value)


def check_names(table: TableInfo, field: Field, values: Any) -> None:
    """Raise SinkRefused for a number of an ENUM or SET in a key whose name is that of another number, too."""
    column = table.column(field.name)
    if field.type not in NAMED or column is None or column.type.elems is None:
        return
    elems, kind = column.type.elems, T(field.type)
    number_of = enum_number if kind is T.ENUM else set_number
    for number in pc.unique(values).to_pylist():
        name = _named(kind, elems, number)
        if isinstance(number, int) and number_of(elems, name or "") != number:
            raise SinkRefused(
                f"table {table.name}: number {number} of the {kind.name} {column.name} in the key, whose name {name!r} "
                "is also that of another number, so rows would not be distinct; exclude the table by a filter rule"
            )


def _named(kind: T, elems: tuple[str, ...], value: Any) -> str | None:
    if not isinstance(value, int):
        return None if value is None else str(value)
    return enum_name(elems, value) if kind is T.ENUM else set_names(elems, value)


def json_objects(names: Sequence[str], fields: Sequence[Field], columns: Sequence[list[Any]]) -> list[bytes]:
    """Return a JSON object of each row, with these names for its fields."""
    typed = list(columns)
    for index, field in enumerate(fields):
        if field.type == T.JSON:
            typed[index] = [None if text is None else msgspec.Raw(text.encode()) for text in columns[index]]
        elif field.type in STRINGS and not field.binary:  # bytes here are a text that is no UTF-8
            typed[index] = [
                text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in columns[index]
            ]
    encode = msgspec.json.Encoder().encode
    return [encode(dict(zip(names, row, strict=True))) for row in zip(*typed, strict=True)]


def row_of_json(table: TableInfo, text: bytes, name: Callable[[str], str] = str) -> Row:
    """Return the row in a JSON object, whose columns are named by `name`."""
    values = msgspec.json.decode(text)
    return {column.name: _json_value(column, values.get(name(column.name))) for column in table.columns}


def _json_value(column: ColumnInfo, value: Any) -> Value:
    kind = column.type
    if value is None:
        return None
    if kind.code == T.JSON:
        return msgspec.json.encode(value).decode()
    if kind.code in STRINGS and kind.charset == "binary":
        return b64decode(value)
    result: Value = float(value) if kind.code in FLOATS else value
    return result


def fields_of(table: TableInfo) -> list[Field]:
    """Return the fields of a table's rows as they are stored."""
    return [
        Field(column.name, column.type.code, binary=column.type.charset == "binary")
        for column in table.columns
        if not column.virtual
    ]


Key = TypeVar("Key", bound=Hashable)


class LastChanges(NamedTuple, Generic[Key]):
    """Keys, the commit_ts of each (an Arrow array), and which row of `columns` each holds now; None: it is gone."""

    keys: list[Key]
    commit_ts: Any
    rows: list[int | None]
    columns: list[list[Value]]
    """The columns of all rows that come, by field of the batch."""


def last_changes(
    table: TableInfo, typed: Batch, key_of: Callable[[Sequence[Value]], Key], indexes: Sequence[int] | None = None
) -> LastChanges[Key]:
    """Return the last change of each key in a batch of typed columns, of the columns at `indexes`, else of the table's
    key. SinkRefused for rows without their key."""
    op = typed.op.to_numpy(zero_copy_only=False)
    gone, comes = np.flatnonzero(op != "I"), np.flatnonzero(op != "D")
    columns = column_values(table, typed.fields, typed.after)
    indexes = key_indexes(table, typed.fields) if indexes is None else indexes
    for index in indexes:
        for image in (typed.before, typed.after):
            check_names(table, typed.fields[index], image.column(index))
    old = column_values(table, [typed.fields[position] for position in indexes], typed.before.select(indexes))
    keys = [
        *(key_of(values) for values in zip(*old, strict=True)),
        *(key_of(values) for values in zip(*(columns[position] for position in indexes), strict=True)),
    ]
    row = np.concatenate([gone, comes])
    put = np.concatenate([np.zeros(len(gone), np.bool_), np.ones(len(comes), np.bool_)])
    ts = typed.commit_ts.take(pa.array(row))
    last: dict[Key, int] = {}
    for index in np.lexsort((put, ts.to_numpy())).tolist():
        last[keys[index]] = index
    chosen = list(last.values())
    return LastChanges(
        list(last),
        ts.take(pa.array(chosen, pa.int64())),
        [index - len(gone) if put[index] else None for index in chosen],
        columns,
    )


Change: TypeAlias = Callable[[Row], Row]


def altered(
    old: TableInfo,
    new: TableInfo,
    zone: str,
    commit_ts: int,
    session: DdlSession = NO_SESSION,
    *,
    keeps_null: bool,
) -> Change | None:
    """Return the function from rows of `old`, whose TIMESTAMPs are in `zone`, to rows of `new`, as a DDL of that
    session converts them; None where they look alike."""
    by_id = {column.id: column for column in old.columns if not column.virtual}
    makers: dict[str, Callable[[Row], Value]] = {}
    same = old.handle_key == new.handle_key
    for column in new.columns:
        if column.virtual:
            continue
        was = by_id.pop(column.id, None)
        if was is None:
            value = stored_value(column, time_zone=zone, commit_ts=commit_ts, session=session)
            same = same and value is None and not keeps_null
            makers[column.name] = partial(_fixed, value)
            continue
        convert = converter(was.type, column.type, time_zone=zone, commit_ts=commit_ts, session=session.zone)
        rule = _shown(was.type, column.type, convert)
        same = same and rule is None and was.name == column.name
        makers[column.name] = _value_of(was.name, rule)
    if same and not by_id:
        return None
    return lambda row: {name: make(row) for name, make in makers.items()}


def _fixed(value: Value, _: Row) -> Value:
    return value


def _shown(old: ColumnType, new: ColumnType, rule: Rule | None) -> Rule | None:
    """The rule for values of documents, which show a FLOAT by the shortest digits of its 32 bits."""
    if T.FLOAT not in (old.code, new.code) or (rule is None and old.code is new.code):
        return rule

    def change(value: Value) -> Value:
        meant = nearest_single(value) if old.code is T.FLOAT and isinstance(value, float) else value
        result = meant if rule is None else rule(meant)
        return float(shortest_single(result)) if new.code is T.FLOAT and isinstance(result, float) else result

    return change


def _value_of(name: str, rule: Callable[[Value], Value] | None) -> Callable[[Row], Value]:
    return (lambda row: row[name]) if rule is None else (lambda row: rule(row[name]))


def inside(table: TableInfo, names: Sequence[str], zone: str) -> Callable[[Row], bool]:
    """Return the condition that a row lies in one of the partitions."""
    if table.partition is None:
        raise SinkRefused(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    chosen = {lowered(name) for name in names}
    return lambda row: lowered(locate(row) or "") in chosen


def as_columns(old: TableInfo, new: TableInfo) -> Change:
    """Return the function that puts a row under the other table's column names, which an exchange demands to be equal
    but for their case."""
    pairs = [(column.name, same.name) for column in new.columns if (same := old.column(column.name)) is not None]
    return lambda row: {name: row[same] for name, same in pairs}
