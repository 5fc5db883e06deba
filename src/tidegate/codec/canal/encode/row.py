r"""A canal-json row: what is the same in all rows of a table, and the images of one.

    head   {"id":0,"database":…,"table":…,"pkNames":[…],"isDdl":false,"type":…,
    body   "sqlType":{…}|null,"mysqlType":{…},"old":[{…}]|null,"data":[{…}]

`sqlType` is the same text in every row, save for unsigned integers beyond their signed type (types.py).

Column values as canal-json's texts, before they are quoted.

    integers, YEAR, BIT, ENUM (index), SET (mask)   decimal digits
    FLOAT, DOUBLE                                   the shortest digits, never with an exponent (gofloat)
    BINARY, VARBINARY, BLOB family                  each byte as the code point of its number: 0xE9 is é
    CHAR, VARCHAR, TEXT family                      the text
    DECIMAL, times, JSON, VECTOR                    as TiDB prints them

Every text is then a JSON string as easyjson escapes it (gojson.EASY), so that 0x3C, `<`, arrives as \u003c.
Numbers and times have nothing to escape and skip that.

Source: Canal-JSON document; recordings.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.codec.canal.encode.types import PROMOTIONS, check_parameters, mysql_type, sql_type
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go.float import positional32, positional64
from tidegate.codec.go.json import EASY, PRINTED
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.codec.zone import shifted_text
from tidegate.model.errors import EncodeError
from tidegate.model.event import Delete, Insert, RowChange, Update, Value, Values
from tidegate.model.mysql import NUMBERS, PRINTED_TYPES, STRINGS, MysqlType

Write: TypeAlias = Callable[[Any], str]
"""A value that is not NULL as a JSON string; TypeError or AttributeError for a value of another type."""


def writer(column: WireColumn, time_zone: str) -> Write:
    """Return the function that writes values of the column."""
    code = column.type.code
    if code in STRINGS:
        return _latin1 if column.binary else EASY
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        return shifted_text(time_zone)
    return _WRITERS.get(code, EASY)


def _integer(value: int) -> str:
    return f'"{int.__repr__(value)}"'


def _float(value: float) -> str:
    return f'"{positional32(value)}"'


def _double(value: float) -> str:
    return f'"{positional64(value)}"'


def _latin1(value: bytes) -> str:
    return EASY(value.decode("latin-1"))


_WRITERS: Final[dict[MysqlType, Write]] = {
    **dict.fromkeys(NUMBERS, _integer),
    **dict.fromkeys(PRINTED_TYPES, PRINTED),
    MysqlType.FLOAT: _float,
    MysqlType.DOUBLE: _double,
}


class CanalField(NamedTuple):
    """One column: where its value stands, its name and colon, and how values are written."""

    place: int
    head: str
    write: Write


class Columns(NamedTuple):
    """Some columns of a table made ready."""

    parts: list[CanalField]
    sql_types: list[tuple[str, int]]
    sql_type: str
    mysql_type: str
    promoted: list[tuple[int, int, int, int]]
    """(place in `sql_types`, place of the value, largest value that is not promoted, sqlType of larger ones)"""


class CanalRow:
    """The rows of one table."""

    def __init__(self, schema: str, name: str, table: WireTable, options: EncodeOptions) -> None:
        keys = ",".join(map(EASY, table.pk_names))
        head = f'{{"id":0,"database":{EASY(schema)},"table":{EASY(name)},"pkNames":[{keys}],"isDdl":false,"type":'
        self.heads = {kind: f'{head}"{word}",' for kind, word in _TYPES.items()}
        self._columns = table.columns
        if options.content_compatible:
            for column in table.columns:
                check_parameters(column)
        places = range(len(table.columns))
        self.all = self._prepared(places, options)
        handles = [place for place in places if table.columns[place].handle]
        self.handles = self._prepared(handles if handles or table.names_handle else places, options)
        self._options = options

    def _prepared(self, places: Iterable[int], options: EncodeOptions) -> Columns:
        chosen = [(place, self._columns[place]) for place in places]
        parts = [CanalField(place, f"{EASY(c.name)}:", writer(c, options.time_zone)) for place, c in chosen]
        sql_types = [(f"{EASY(c.name)}:", sql_type(c)) for _, c in chosen]
        types = ",".join(f"{EASY(c.name)}:{EASY(mysql_type(c, full=options.content_compatible))}" for _, c in chosen)
        empty = "null" if options.newarch else "{}"
        promoted = [
            (position, place, *PROMOTIONS[c.type.code])
            for position, (place, c) in enumerate(chosen)
            if c.unsigned and c.type.code in PROMOTIONS
        ]
        return Columns(parts, sql_types, sql_types_text(sql_types), f"{{{types}}}" if types else empty, promoted)

    def texts(self, row: RowChange, *, handles: bool) -> tuple[str, str]:
        """Head and body of a row, of its handle key columns alone when `handles`."""
        old = "null"
        match row:
            case Insert():
                new = row.after
            case Delete():
                new = row.before
                handles = handles or self._options.delete_only_output_handle_key_columns
            case Update():
                new = row.after
        columns = self.handles if handles else self.all
        data = self._image(new, columns.parts)
        if isinstance(row, Update):
            old = self._image(row.before, self._changed(row, columns.parts))
        body = f'"sqlType":{_row_sql_types(columns, new)},"mysqlType":{columns.mysql_type},"old":{old},"data":{data}'
        return self.heads[type(row)], body

    def _changed(self, row: Update, parts: list[CanalField]) -> list[CanalField]:
        """The columns that `old` has."""
        if not self._options.only_output_updated_columns:
            return parts
        before, after = row.before, row.after
        return [part for part in parts if self._differs(part, before[part.place], after[part.place])]

    def _differs(self, part: CanalField, old: Value, new: Value) -> bool:
        if self._options.newarch and isinstance(old, float) and isinstance(new, float):
            return part.write(old) != part.write(new)
        return old != new

    def _image(self, values: Values, parts: list[CanalField]) -> str:
        if not self._columns:
            return "null"
        try:
            members = [
                head + ("null" if (value := values[place]) is None else write(value)) for place, head, write in parts
            ]
        except (TypeError, AttributeError) as error:
            _blame(self._columns, values, parts)
            raise EncodeError(f"a value that canal-json cannot carry: {error}") from error
        return f"[{{{','.join(members)}}}]"


def _row_sql_types(columns: Columns, values: Values) -> str:
    """`sqlType` of a row: the table's, unless a value is promoted."""
    over = {
        position: larger
        for position, place, most, larger in columns.promoted
        if (value := values[place]) is not None and value > most  # type: ignore[operator] # an integer was just written
    }
    if not over:
        return columns.sql_type
    return sql_types_text([(head, over.get(at, code)) for at, (head, code) in enumerate(columns.sql_types)])


def sql_types_text(pairs: Sequence[tuple[str, int]]) -> str:
    """Return the member `sqlType` of the columns, each given as its JSON head and its code, as TiCDC writes it."""
    return f"{{{','.join(f'{head}{code}' for head, code in pairs)}}}" if pairs else "null"


def _blame(columns: tuple[WireColumn, ...], values: Values, parts: list[CanalField]) -> None:
    """Raises the error of the first value that cannot be written, with its column."""
    for place, _, write in parts:
        value = values[place]
        try:
            if value is not None:
                write(value)
        except (TypeError, AttributeError) as error:
            column = columns[place]
            raise EncodeError(
                f"column {column.name!r} (type {int(column.type.code)}) cannot hold {value!a:.60}"
            ) from error


_TYPES: dict[type, str] = {Insert: "INSERT", Update: "UPDATE", Delete: "DELETE"}
