"""The stored columns of a lake table: their Delta types, conversion of values, and names inside Parquet files.

A stored column has the name that readers see, a field id and a name inside Parquet files, and a Delta type.  The
schema's field metadata carries its upstream column id, so the mapping survives renames and is stored nowhere else.
The columns that Tidegate adds (options.py) follow those of the upstream.

    TINYINT .. BIGINT            byte, short, int, int (MEDIUMINT), long
    the same UNSIGNED            short, int, int, long, decimal(20,0)
    DECIMAL(p<=38, s)            decimal(p,s); wider, or of unknown precision: string
    FLOAT, DOUBLE                float, double
    DATE, DATETIME, TIMESTAMP    date, timestamp_ntz, timestamp (UTC)       with zero-date=string: string
    TIME, JSON, VECTOR           string as TiDB prints it (TIME exceeds a day and may be negative)
    YEAR, BIT(n<64), BIT(64)     short, long, decimal(20,0)
    ENUM, SET                    string: names when the definition is known, else the number as text
    CHAR, VARCHAR, TEXT          string
    BINARY, VARBINARY, BLOB      binary

Values arrive as texts (engine/change.py) or typed, and Arrow casts them a column at a time; both give the same result.
Delta has no value for zero dates ("0000-00-00", a zero year, month or day): NULL, an error or text, by policy.  In key
columns two values must stay two, so `exact` refuses what several values would become: NULL from zero dates, U+FFFD
from invalid UTF-8, '' from ENUM 0 beside a name '' or from numbers without a name.

                plain                                    mapped (delta.columnMapping.mode = name)
    file        column "total", field id 3               column "total" or "c3", field id 3
    schema      name "total", tidegate.fieldId 3         name "sum", delta.columnMapping.id 3 and physicalName "total"

    column-mapping   renamed, dropped, files stay   a name that Delta refuses in plain tables   a new table
    auto             mapped from then on            mapped from then on                         plain
    always           mapped                         mapped                                      mapped
    never            all files rewritten            refused                                     plain

Invariants: a column's id never changes and is never reused.  In a plain table every file holds each column under its
current name or not at all.  In a mapped table an existing column keeps its name inside files and a new one is `c<id>`;
ids skip every `c<number>` that is the name of a column, so no file has another column of that name.
Source: the Delta protocol document, "Column Mapping", "Writer Requirements for Column Mapping".
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import as_texts
from tidegate.engine.change import encode_value
from tidegate.expr.change import converter
from tidegate.model.errors import ColumnSelectorFailed, SinkRefused
from tidegate.model.event import Value
from tidegate.model.mysql import MOMENTS, NAMED, TYPES, Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo
from tidegate.mysql.conversion import enum_number, set_number
from tidegate.objectstore.deltalog import COLUMN_MAPPING, TableDescription, TableSnapshot, schema_field
from tidegate.schema.literal import stored_value
from tidegate.sink.delta.options import (
    BEFORE,
    CHANGE_TS,
    MODE,
    VALID_FROM,
    VALID_TO,
    ColumnMapping,
    DeltaOptions,
    chosen_ids,
    own_columns,
    stored_definition,
)

DECIMAL_DIGITS_MAX: Final = 38
WIDE_DIGITS_MAX: Final = 76
"""Digits of Arrow's wide decimals."""
UINT64: Final = TYPES[T.LONGLONG].delta_unsigned
ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
ZERO_PART: Final = r"^(0000|[0-9]{4}-(00|[0-9]{2}-00))"
"""A year, month or day 0; of those Delta has not even the year."""
NUMBER: Final = re.compile(r"[0-9]{1,20}")
DECIMAL_TYPE: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def delta_type(column: ColumnType, *, inferred: bool = False, zero_date: str = "null") -> str:
    """Return the Delta type of a column, as spelled in the schema."""
    code = column.code
    record = TYPES[code]
    match record.family:
        case Family.MOMENT if zero_date == "string":
            return "string"
        case Family.DECIMAL:
            if column.flen <= 0:
                return "string" if inferred else "decimal(10,0)"
            exact = column.decimal <= column.flen <= DECIMAL_DIGITS_MAX
            return f"decimal({column.flen},{max(column.decimal, 0)})" if exact else "string"
        case Family.BIT if 0 < column.flen < 64 or (column.flen < 0 and not inferred):
            return "long"
        case Family.TEXT | Family.GEOMETRY if column.charset == "binary":
            return "binary"
    return record.delta_unsigned if column.unsigned and record.delta_unsigned else record.delta


def arrow_type(delta: str) -> pa.DataType:
    """Return the Arrow type in which a Delta type is read and written."""
    if match := DECIMAL_TYPE.fullmatch(delta):
        return pa.decimal128(int(match[1]), int(match[2]))
    return ARROW_TYPES[delta]


def is_number(kind: pa.DataType) -> bool:
    """Return True for the types that Arrow casts among each other by value."""
    return any(fits(kind) for fits in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def from_image(
    values: Any, column: ColumnType, delta: str, *, time_zone: str, zero_date: str, exact: bool = False
) -> Any:
    """Return a column of an image, texts or typed (codec/columnar/rows.py), as its Delta type.

    Raises pa.ArrowInvalid for a value that the type cannot hold, or not `exact`ly; SinkRefused for a zero date where
    that is an error."""
    target = arrow_type(delta)
    if pa.types.is_integer(values.type) and column.code not in NAMED:
        if pa.types.is_integer(target) or delta == UINT64:
            return pc.cast(values, target)
    elif pa.types.is_floating(values.type) and pa.types.is_floating(target):
        return pc.cast(values, target)
    elif pa.types.is_temporal(values.type) or pa.types.is_decimal(values.type):
        if values.type == target:
            return values
        if delta == "timestamp":
            return _zoned(values, time_zone)
        values = pa.array(to_neutral(values, column, time_zone=time_zone), pa.string())
    if not pa.types.is_string(values.type):
        values = as_texts(values)
    return from_text(values, column, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)


def from_text(
    texts: pa.Array,
    column: ColumnType,
    delta: str,
    *,
    time_zone: str = "UTC",
    zero_date: str = "null",
    exact: bool = False,
) -> Any:
    """Return a column of texts (binary or UTF-8, null for NULL) as its Delta type. Raises pa.ArrowInvalid for a value
    that the type cannot hold, or not `exact`ly."""
    if delta == "binary":
        return pc.cast(texts, pa.binary())
    strings = _strings(texts, exact=exact)
    if column.code in NAMED and column.elems is not None:
        return _named(strings, column, exact=exact)
    if delta == "string":
        return strings
    if column.code in MOMENTS:
        if delta != "timestamp":
            return _moments(strings, arrow_type(delta), zero_date, exact=exact)
        return _zoned(_moments(strings, pa.timestamp("us"), zero_date, exact=exact), time_zone)
    if delta in {"float", "double"}:
        numbers = pc.cast(strings, pa.float64())
        if not pc.all(pc.is_finite(numbers)).as_py() and pc.count(numbers).as_py():
            raise pa.ArrowInvalid("a number that MySQL does not have")
        return pc.cast(numbers, arrow_type(delta))
    target = arrow_type(delta)
    return _exact(strings, target) if pa.types.is_decimal(target) else pc.cast(strings, target)


def _zoned(moments: pa.Array, time_zone: str) -> pa.Array:
    """Times of a zone as instants."""
    zoned = pc.assume_timezone(moments, time_zone, ambiguous="earliest", nonexistent="latest")
    return pc.cast(zoned, arrow_type("timestamp"))


def _exact(strings: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Texts as exact numbers. Arrow reads one of more digits than its type has as another number."""
    longest = pc.max(pc.binary_length(strings)).as_py() or 0
    if longest > WIDE_DIGITS_MAX:
        raise pa.ArrowInvalid(f"a number of {longest} characters")
    if longest > DECIMAL_DIGITS_MAX:
        strings = pc.cast(strings, pa.decimal256(WIDE_DIGITS_MAX, target.scale))
    return pc.cast(strings, target)


def _strings(texts: pa.Array, *, exact: bool = False) -> pa.Array:
    """UTF-8 text; bytes that are none (newer emitters send them raw) become U+FFFD."""
    try:
        return pc.cast(texts, pa.string())
    except pa.ArrowInvalid:
        if exact:
            raise
        return pa.array(
            [None if text is None else text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string()
        )


def _moments(strings: pa.Array, kind: pa.DataType, zero_date: str, *, exact: bool) -> pa.Array:
    """Texts as dates or times without a zone: only if one is neither, or of the year 0, zero dates are looked for."""
    with suppress(pa.ArrowInvalid):
        moments = pc.cast(strings, kind)
        if pc.less(pc.min(moments), pa.scalar("0001-01-01").cast(kind)).as_py() is not True:
            return moments
    zero = pc.match_substring_regex(strings, ZERO_PART)
    if not pc.any(zero).as_py():
        return pc.cast(strings, kind)
    if zero_date == "error":
        raise SinkRefused(f"zero date {pc.filter(strings, zero)[0].as_py()!r}: set zero-date=null or zero-date=string")
    if exact:
        raise pa.ArrowInvalid(
            f"zero date {pc.filter(strings, zero)[0].as_py()!r} in the key, where NULL would merge rows; set "
            f"zero-date=string, which keeps dates as text"
        )
    return pc.cast(pc.if_else(zero, pa.scalar(None, pa.string()), strings), kind)


def _named(strings: pa.Array, column: ColumnType, *, exact: bool) -> pa.Array:
    """ENUM indexes and SET masks as names; texts that are no number (official Canal) pass as they are."""
    render, number_of = (enum_name, enum_number) if column.code is T.ENUM else (set_names, set_number)
    elems = column.elems or ()

    def named(text: str) -> str:
        if not NUMBER.fullmatch(text):
            return text
        name = render(int(text), elems)
        if exact and number_of(elems, name) != int(text):
            raise pa.ArrowInvalid(
                f"number {text} of an {column.code.name} in the key, whose name {name!r} is that of another number, too"
            )
        return name

    return _by_distinct(strings, named, pa.string())


def _by_distinct(array: pa.Array, function: Callable[[Any], Any], result: pa.DataType) -> pa.Array:
    encoded = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    encoded = pc.dictionary_encode(encoded)
    values = pa.array([function(value) for value in encoded.dictionary.to_pylist()], result)
    return pc.take(values, encoded.indices)


def enum_name(index: int, elems: Sequence[str]) -> str:
    """Return the name of a 1-based index; 0 (an invalid value) is ''."""
    return elems[index - 1] if 0 < index <= len(elems) else ""


def set_names(mask: int, elems: Sequence[str]) -> str:
    """Return the names of a bit mask in definition order, joined by commas."""
    return ",".join(name for bit, name in enumerate(elems) if mask >> bit & 1)


def from_neutral(
    values: Sequence[Value], column: ColumnType, delta: str, *, time_zone: str, zero_date: str, exact: bool = False
) -> Any:
    """Return a column of neutral values (ENUM and SET as names) as its Delta type."""
    texts = pa.array([encode_value(value) for value in values], pa.binary())
    if column.code in NAMED:
        return _strings(texts)
    return from_text(texts, column, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)


def to_neutral(array: Any, column: ColumnType, *, time_zone: str) -> list[Value]:
    """Return a Delta column as neutral values."""
    values = time_texts(array, time_zone, max(column.decimal, 0)).to_pylist()
    if pa.types.is_decimal(array.type):
        write: Callable[[Decimal], Value] = int if column.code in (T.LONGLONG, T.BIT) else "{:f}".format
        values = [None if value is None else write(value) for value in values]
    result: list[Value] = values
    return result


def time_texts(values: Any, time_zone: str = "UTC", fsp: int = 6) -> Any:
    """Return dates and times as text, instants as they are in a zone; other values as they are.

    Arrow writes them: Python's dates begin with the year 1 and end with 9999."""
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.string())
    if not pa.types.is_timestamp(kind):
        return values
    timestamps = values.cast(pa.timestamp("us", kind.tz and time_zone))
    texts = (pc.local_timestamp(timestamps) if kind.tz else timestamps).cast(pa.string())
    return texts if fsp >= 6 else pc.utf8_slice_codeunits(texts, 0, fsp - 6 if fsp else -7)


def map_neutral(
    array: Any,
    old: ColumnType,
    new: ColumnType,
    delta: str,
    convert: Callable[[Value], Value],
    *,
    time_zone: str,
    zero_date: str,
    exact: bool = False,
) -> Any:
    """Return a stored column after `convert`, called once per distinct value."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    encoded = pc.dictionary_encode(whole)
    converted = [convert(value) for value in to_neutral(encoded.dictionary, old, time_zone=time_zone)]
    values = from_neutral(converted, new, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)
    nulls = from_neutral([convert(None)], new, delta, time_zone=time_zone, zero_date=zero_date)
    return pc.if_else(pc.is_null(encoded.indices), nulls[0], pc.take(values, encoded.indices))


MAPPING_ID: Final = "delta.columnMapping.id"
MAPPING_NAME: Final = "delta.columnMapping.physicalName"
MAPPING_MAX: Final = "delta.columnMapping.maxColumnId"
PLAIN_ID: Final = "tidegate.fieldId"
PLAIN_MAX: Final = "tidegate.maxColumnId"
UPSTREAM_ID: Final = "tidegate.columnId"

UNFIT: Final = frozenset(" ,;{}()\n\t=")
"""Characters that Delta refuses in the column names of plain tables."""
NUMBERED: Final = re.compile(r"c([1-9][0-9]*)", re.ASCII | re.IGNORECASE)
IDS_TO_COME: Final = 1 << 20
"""More ids than a table ever gets: a name `c<number>` that is further above needs no thought."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column of a lake table. `upstream_id`: the ColumnInfo.id, negative for columns that Tidegate adds;
    `physical`: its name inside Parquet files; `mapping_id`: its field id there."""

    name: str
    delta: str
    mapping_id: int
    upstream_id: int
    physical: str


@dataclass(frozen=True, slots=True)
class LakeSchema:
    """All columns of a table; `max_id` is the largest id ever assigned to a column or skipped."""

    columns: tuple[LakeColumn, ...] = ()
    max_id: int = 0
    mapped: bool = False

    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as fields of the Delta schema."""
        fields = []
        for column in self.columns:
            mapping = {MAPPING_ID: column.mapping_id, MAPPING_NAME: column.physical}
            ids = mapping if self.mapped else {PLAIN_ID: column.mapping_id}
            fields.append(schema_field(column.name, column.delta, {**ids, UPSTREAM_ID: column.upstream_id}))
        return fields

    def configuration(self, options: DeltaOptions, before: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the table properties, for an existing table together with those that it has `before`."""
        properties = {key: value for key, value in (before or {}).items() if key != PLAIN_MAX}
        mapping = {COLUMN_MAPPING: "name", MAPPING_MAX: str(self.max_id)}
        return {**properties, **(mapping if self.mapped else {PLAIN_MAX: str(self.max_id)}), MODE: options.mode}


def stored_schema(snapshot: TableSnapshot | TableDescription) -> LakeSchema:
    """Return the columns of a table as its log records them."""
    mapped = COLUMN_MAPPING in snapshot.configuration
    max_id = int(snapshot.configuration.get(MAPPING_MAX if mapped else PLAIN_MAX, "0"))
    columns = (
        LakeColumn(
            name=field["name"],
            delta=field["type"],
            mapping_id=int(field["metadata"][MAPPING_ID if mapped else PLAIN_ID]),
            upstream_id=int(field["metadata"].get(UPSTREAM_ID, 0)),
            physical=field["metadata"][MAPPING_NAME] if mapped else field["name"],
        )
        for field in snapshot.fields
    )
    return LakeSchema(tuple(columns), max_id, mapped)


def stored_columns(snapshot: TableSnapshot | TableDescription) -> tuple[LakeColumn, ...]:
    """Return the columns of a table without the other metadata in its log."""
    return stored_schema(snapshot).columns


def next_schema(
    before: LakeSchema, columns: Sequence[LakeColumn], max_id: int, option: ColumnMapping, *, rewritten: bool
) -> LakeSchema:
    """Return `columns` with their names inside files, after a commit that keeps the files or, if `rewritten`, writes
    all of them anew.

    For a new table `before` has no columns. Raises SinkRefused for a name that a plain table cannot have where `option`
    forbids a mapped table.
    """
    mapped = before.mapped or _asks_for_mapping(before, columns, option, rewritten=rewritten)
    physical_names = {column.mapping_id: column.physical for column in before.columns}
    named = (
        replace(
            column, physical=physical_names.get(column.mapping_id, f"c{column.mapping_id}") if mapped else column.name
        )
        for column in columns
    )
    return LakeSchema(tuple(named), max_id, mapped)


def _asks_for_mapping(
    before: LakeSchema, columns: Sequence[LakeColumn], option: ColumnMapping, *, rewritten: bool
) -> bool:
    unfit = next((column.name for column in columns if UNFIT.intersection(column.name)), None)
    if option == "never" and unfit is not None:
        raise SinkRefused(
            f"column-mapping=never, and Delta has no column {unfit!r} in tables without column mapping: rename it "
            f"upstream, exclude it by column selectors, or run with column-mapping=auto"
        )
    needed = unfit is not None or not (rewritten or matches_names(before, columns))
    return option == "always" or (option == "auto" and needed)


def matches_names(before: LakeSchema, columns: Iterable[LakeColumn]) -> bool:
    """Return True if files written by `before` hold each of `columns` under its current name or not at all, and no
    other column."""
    names = {column.mapping_id: column.name for column in columns}
    return all(names.get(column.mapping_id) == column.physical for column in before.columns)


def copied_schema(columns: Sequence[LakeColumn], option: ColumnMapping) -> LakeSchema:
    """Return the schema of a new table that takes over another table's columns with their names inside files."""
    origin = LakeSchema(tuple(columns), mapped=any(column.physical != column.name for column in columns))
    return next_schema(origin, columns, free_above(columns), option, rewritten=True)


def free_above(columns: Sequence[LakeColumn], max_id: int = 0) -> int:
    """Return the smallest id above `max_id` that is no id of `columns` and whose `c<id>` is none of their names."""
    max_id = max([max_id, *(column.mapping_id for column in columns)])
    numbers = (int(match[1]) for column in columns if (match := NUMBERED.fullmatch(column.physical)))
    for number in sorted(numbers):
        if number <= max_id + IDS_TO_COME:
            max_id = max(max_id, number)
    return max_id


@dataclass(frozen=True, slots=True)
class Fill:
    """A new column whose existing rows get the value of its default."""

    target: LakeColumn
    column: ColumnInfo


@dataclass(frozen=True, slots=True)
class Convert:
    """A column whose stored values are converted to another type."""

    source: LakeColumn
    target: LakeColumn
    old: ColumnInfo
    new: ColumnInfo


@dataclass(frozen=True, slots=True)
class Evolution:
    """The columns after a change, and what to do with stored rows (nothing: only metadata changes).

    Names of new columns inside files are chosen by `next_schema`.
    """

    columns: tuple[LakeColumn, ...]
    max_id: int
    fills: tuple[Fill, ...] = ()
    conversions: tuple[Convert, ...] = ()

    @property
    def rewrites(self) -> bool:
        """True when data files change."""
        return bool(self.fills or self.conversions)


def first_schema(table: TableInfo, options: DeltaOptions) -> LakeSchema:
    """Return the columns of a table that is being created. Raises SinkRefused for a name that it cannot have."""
    columns = [
        LakeColumn(name, delta, index, upstream, name)
        for index, (name, delta, upstream, _) in enumerate(_layout(table, options), 1)
    ]
    return next_schema(LakeSchema(), columns, len(columns), options.column_mapping, rewritten=True)


def logical_key(table: TableInfo, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the stored names of the columns that identify a row."""
    ids = {column.id for name in table.handle_key if (column := table.column(name)) is not None}
    return [column.name for column in columns if column.upstream_id in ids]


def bounded(table: TableInfo, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the stored names of the columns by which files are ordered and pruned."""
    own = {column.name for column in columns if column.upstream_id < 0}
    if {VALID_FROM, VALID_TO} <= own:
        return [*logical_key(table, columns), VALID_FROM, VALID_TO]
    return [CHANGE_TS] if CHANGE_TS in own else logical_key(table, columns)


def evolve(
    snapshot: TableSnapshot, old: TableInfo, new: TableInfo, options: DeltaOptions, session: str = ""
) -> Evolution:
    """Return the columns that `new` requires, given the stored ones; `session` is the time zone of the DDL's session.

    Raises SinkRefused under schema-change=exception, ColumnSelectorFailed for an impossible choice.
    """
    before = stored_schema(snapshot)
    current = {column.upstream_id: column for column in before.columns}
    old_by_id = {column.id: column for column in old.columns}
    max_id = free_above(before.columns, before.max_id)
    columns: list[LakeColumn] = []
    fills: list[Fill] = []
    conversions: list[Convert] = []
    for name, delta, upstream, column in _layout(new, options):
        have = current.get(upstream)
        if have is None:
            max_id += 1
            have = LakeColumn(name, delta, max_id, upstream, name)
            unknown = upstream in old_by_id and _check_late_choice(old, new, name, upstream, options)
            if column is not None and not unknown and stored_value(column, time_zone=options.time_zone) is not None:
                fills.append(Fill(have, column))
        elif (
            column is not None
            and (was := old_by_id.get(upstream)) is not None
            and (delta != have.delta or _differs(was, column, options, session))
        ):
            max_id += 1
            target = LakeColumn(name, delta, max_id, upstream, name)
            conversions.append(Convert(have, target, was, column))
            have = target
        columns.append(replace(have, name=name))
    return _by_policy(Evolution(tuple(columns), max_id, tuple(fills), tuple(conversions)), current, new, options)


def _check_late_choice(old: TableInfo, new: TableInfo, name: str, upstream: int, options: DeltaOptions) -> bool:
    """True if column selectors choose a column under its new name only, so that its stored values are not known.

    ColumnSelectorFailed where the policy has no way to go on without them."""
    before = next(column for column in old.columns if column.id == upstream)
    if before.virtual or upstream in chosen_ids(old, options):
        return False
    if options.schema_change in ("try_evolve", "ignore"):
        return True
    raise ColumnSelectorFailed(
        f"column {before.name} of {new.name} becomes {name} at ts {new.version}: column selectors select the new name "
        f"but not the old one, so the lake lacks its earlier values; exclude the new name, too, or select both and "
        f"create a new lake"
    )


def _differs(old: ColumnInfo, new: ColumnInfo, options: DeltaOptions, session: str) -> bool:
    if old.type == new.type:
        return False
    return converter(old.type, new.type, time_zone=options.time_zone, session=session) is not None


def _layout(table: TableInfo, options: DeltaOptions) -> list[tuple[str, str, int, ColumnInfo | None]]:
    table = stored_definition(table, options)
    layout: list[tuple[str, str, int, ColumnInfo | None]] = [
        (
            column.name,
            delta_type(column.type, inferred=table.inferred, zero_date=options.zero_date),
            column.id,
            column,
        )
        for column in table.columns
        if not column.virtual
    ]
    return layout + [(name, delta, upstream, None) for name, delta, upstream in own_columns(table, options.mode)]


def _by_policy(
    change: Evolution, current: Mapping[int, LakeColumn], new: TableInfo, options: DeltaOptions
) -> Evolution:
    if options.schema_change in ("evolve", "try_evolve"):
        return change
    if options.schema_change == "exception":
        columns = {column.upstream_id: column for column in change.columns}
        late = {column.upstream_id for column in change.columns if column.name == BEFORE} - current.keys()
        if {id_: column for id_, column in columns.items() if id_ not in late} != current:
            raise SinkRefused(
                f"table {new.name} changes its columns at ts {new.version} and schema-change=exception forbids it; "
                "run with schema-change=evolve to follow it, or lenient to only add columns",
            )
        return change
    if options.schema_change == "ignore":
        own = tuple(column for column in change.columns if column.upstream_id < 0)
        return Evolution((*(column for id_, column in current.items() if id_ >= 0), *own), change.max_id)
    kept = {column.upstream_id for column in change.columns}
    names = {lowered(column.name) for column in change.columns}
    leftovers = tuple(
        column for id_, column in current.items() if id_ >= 0 and id_ not in kept and lowered(column.name) not in names
    )
    return Evolution(change.columns + leftovers, change.max_id, change.fills, change.conversions)
