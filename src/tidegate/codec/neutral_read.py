"""Event JSON lines to events: the inverse of `neutral`.

    {"kind":"table", "ref", "columns":[{"name","type","flag","charset","flen","decimal","elems","tidb_flag",
                                        "visible_to_cdc"}], …}            a definition; later rows name it
    {"kind":"row", "table_ref": its ref, "columns", "pre_columns", …}     → Insert | Update | Delete and its table
    {"kind":"ddl", …}, {"kind":"resolved", "ts"}                          → Ddl, Resolved
    any other kind                                                        → nothing

A row without `table_ref`, such as `tidegate decode` prints, is described by its own columns alone: type and flag.
`row_key` is made of the physical table id and `handle_hex`, where a row has them.

Values are checked as they are read: an integer within its type, base64, a kind that fits the column.

Source: the event lines of the recordings.
"""

import binascii
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.values import INT_RANGES, integer_range
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import EncodeError, redacted, redacted_value
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, Update, Value, Values
from tidegate.model.mysql import FLOATS, STRINGS, ColumnFlag, MysqlType
from tidegate.model.table import ColumnType

_UNSIGNED: Final = 32
_ZEROFILL: Final = 64
_MAX_FLAG: Final = 1 << 31
_CODES: Final = {int(code): code for code in MysqlType}


class _Value(msgspec.Struct, gc=False):
    """A value; one member is set."""

    i: int | None = None
    u: int | None = None
    f32: float | None = None
    f64: float | None = None
    s: str | None = None
    b: str | None = None
    vec: str | None = None


class _Column(msgspec.Struct, gc=False):
    """A column of a row, or of a table line, which has all but the value."""

    name: str
    type: int
    flag: int | None = None
    value: _Value | None = None
    charset: str = ""
    flen: int = -1
    decimal: int = -1
    elems: list[str] | None = None
    tidb_flag: int | None = None
    visible_to_cdc: bool = True


class _Line(msgspec.Struct, gc=False):
    """A line of any kind; members that a kind does not have keep their default."""

    kind: str
    ref: str = ""
    op: str = ""
    schema: str = ""
    table: str = ""
    table_ref: str = ""
    physical_table_id: int | None = None
    is_partition: bool | None = None
    commit_ts: int | None = None
    es_ms: int | None = None
    row_id: int | None = None
    handle_hex: str = ""
    pk_names: list[str] | None = None
    columns: list[_Column] | None = None
    pre_columns: list[_Column] | None = None
    only_handle_key: bool = False
    claim_check: str | None = None
    type: int | None = None
    canal_type: str = ""
    query: str = ""
    ts: int = 0


class EventLine(NamedTuple):
    """An event, and for an encoder the table of a row and its key in TiKV."""

    event: Event
    table: WireTable | None = None
    row_key: bytes | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


class EventReader:
    """Reads lines in order and keeps the tables among them."""

    def __init__(self) -> None:
        self._definitions: dict[str, dict[str, WireColumn]] = {}
        self._shapes = LayoutMemory[tuple[object, ...], tuple[WireTable, tuple[Field, ...]]](TABLES_MAX)

    def read(self, line: bytes | str) -> EventLine | None:
        """Return the event of a line; None for a table line and for kinds that are not events.

        EncodeError for a line that is neither."""
        try:
            decoded = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise EncodeError(f"not an event line: {error}") from error
        match decoded.kind:
            case "row":
                return self._row(decoded)
            case "table":
                columns = (_column(column) for column in decoded.columns or [] if column.visible_to_cdc)
                self._definitions[decoded.ref] = {column.name: column for column in columns}
                self._shapes.clear()
            case "ddl":
                return EventLine(_ddl(decoded))
            case "resolved":
                return EventLine(Resolved(decoded.ts))
        return None

    def _row(self, line: _Line) -> EventLine:
        image = line.pre_columns if line.op == "DELETE" else line.columns
        if image is None:
            raise EncodeError(f"the {line.op!a} of {line.schema}.{line.table} lacks an image")
        table, fields = self._shape(line, image)
        carried: dict[str, Any] = {
            "schema": line.schema,
            "table": line.table,
            "fields": fields,
            "commit_ts": line.commit_ts,
            "row_id": line.row_id,
            "partition_id": None if line.is_partition is False else line.physical_table_id,
            "pk_names": None if line.pk_names is None else tuple(line.pk_names),
            "handle_only": line.only_handle_key,
            "claim_check": line.claim_check,
            "es_ms": line.es_ms,
        }
        values = _values(line, table, image)
        match line.op:
            case "INSERT":
                event: Event = Insert(after=values, **carried)
            case "UPDATE":
                event = Update(before=_values(line, table, line.pre_columns), after=values, **carried)
            case "DELETE":
                event = Delete(before=values, **carried)
            case _:
                raise EncodeError(f"op {line.op!a} is not INSERT, UPDATE or DELETE")
        if line.physical_table_id is None or not line.handle_hex:
            return EventLine(event, table)
        try:
            number, handle = line.physical_table_id + (1 << 63), bytes.fromhex(line.handle_hex)
            return EventLine(event, table, b"t" + number.to_bytes(8, "big") + b"_r" + handle)
        except (ValueError, OverflowError) as error:
            raise EncodeError(
                f"no key of TiKV: table {line.physical_table_id}, handle {redacted_value(line.handle_hex, 40)}"
            ) from error

    def _shape(self, line: _Line, image: list[_Column]) -> tuple[WireTable, tuple[Field, ...]]:
        """The table that describes an image, in the image's order; the same object for rows alike."""
        described = tuple([(column.name, column.type, column.flag) for column in image])
        key = (line.table_ref, tuple(line.pk_names or ()), described)
        cached = self._shapes.get(key)
        if cached is None:
            definitions = self._definitions.get(line.table_ref, {})
            columns = tuple(definitions.get(column.name) or _column(column) for column in image)
            if len({column.name for column in columns}) != len(columns):
                raise EncodeError(f"a row of {line.schema}.{line.table} with two columns of one name")
            table = WireTable(columns, tuple(line.pk_names or ()))
            cached = self._shapes.keep(key, (table, table.fields))
        return cached


def _ddl(line: _Line) -> Ddl:
    return Ddl(
        schema=line.schema,
        table=line.table,
        query=line.query,
        commit_ts=line.commit_ts,
        type=line.type,
        canal_type=line.canal_type,
        es_ms=line.es_ms,
    )


def _column(line: _Column) -> WireColumn:
    """A column of a table line, or of a row when that is all there is."""
    flag = line.flag
    if flag is None:
        raise EncodeError(f"column {line.name!a} has no flag; encode rows of open-protocol, or give their table lines")
    if line.type not in _CODES or not 0 <= flag < _MAX_FLAG:
        raise EncodeError(f"column {line.name!a} has type {line.type} and flag {flag}, which are none")
    unsigned = bool(flag & ColumnFlag.UNSIGNED if line.tidb_flag is None else line.tidb_flag & _UNSIGNED)
    kind = ColumnType(
        _CODES[line.type],
        line.flen,
        line.decimal,
        unsigned=unsigned,
        zerofill=bool((line.tidb_flag or 0) & _ZEROFILL),
        charset=line.charset or ("binary" if flag & ColumnFlag.BINARY else "utf8mb4"),
        elems=tuple(line.elems) if line.elems else None,
    )
    return WireColumn(line.name, kind, flag)


def _values(line: _Line, table: WireTable, image: list[_Column] | None) -> Values:
    """The values of an image in the table's order; an image in another order is brought into it."""
    if image is None:
        raise EncodeError(f"the {line.op!a} of {line.schema}.{line.table} lacks an image")
    if [column.name for column in image] != [column.name for column in table.columns]:
        by_name = {column.name: column for column in image}
        if by_name.keys() != {column.name for column in table.columns}:
            raise EncodeError(f"the images of a row of {line.schema}.{line.table} have different columns")
        image = [by_name[column.name] for column in table.columns]
    return tuple([_value(column, value.value) for column, value in zip(table.columns, image, strict=True)])


def _value(column: WireColumn, value: _Value | None) -> Value:
    if value is None:
        return None
    parsed = _read(column, value)
    if parsed is None:
        raise EncodeError(f"column {column.name!r} (type {int(column.type.code)}) cannot be {redacted(_shown(value))}")
    return parsed


def _read(column: WireColumn, value: _Value) -> Value:
    """The value of a kind that the column's type has; None for any other."""
    code = column.type.code
    if code in INT_RANGES:
        number = value.u if value.i is None else value.i
        low, high = integer_range(code, unsigned=column.unsigned)
        return number if number is not None and low <= number <= high else None
    if code in FLOATS:
        return value.f64 if value.f32 is None else value.f32
    text = value.vec if value.s is None else value.s
    if text is not None:
        return text.encode() if code in STRINGS and column.binary else text
    return _bytes(column, value.b) if code in STRINGS and value.b is not None else None


def _bytes(column: WireColumn, text: str) -> Value:
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    return raw if column.binary else raw.decode("utf-8", "surrogateescape")


def _shown(value: _Value) -> str:
    """A value as its line has it, cut to a length that a log can bear."""
    return f"{ {name: part for name, part in msgspec.structs.asdict(value).items() if part is not None}!a:.60}"
