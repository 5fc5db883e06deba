r"""TiCDC Canal-JSON, writing: one event to the value of one message; the key is null.

    row        {"id":0,"database":…,"table":…,"pkNames":[…],"isDdl":false,"type":…,"es":ms,"ts":ms,"sql":"",
                "sqlType":{…}|null,"mysqlType":{…},"old":[{…}]|null,"data":[{…}],"_tidb":{…}}
    DDL        {"id":0,"database":…,"table":…,"pkNames":null,"isDdl":true,"type":…,"es":ms,"ts":ms,"sql":…,
                "sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"commitTs":…}}
    watermark  as a DDL, with "isDdl":false, "type":"TIDB_WATERMARK", empty names, "_tidb":{"watermarkTs":…}

    es         the commit time
    ts         the time of encoding, from the clock: the only member that does not depend on the event
    old        UPDATE only; with only-output-updated-columns just what changed, which may be [{}]
    data       the new row, or the deleted one; [{}] when only handle columns are asked for and there is none
    _tidb      the TiDB extension: commitTs, then onlyHandleKey or claimCheckLocation, then rowkey (newarch); without
               the extension there are no watermarks
    sqlType    codes of `sql_type`; mysqlType: names of `mysql_type`; a DDL's type: the word of `ddl_type`

Columns are in table order, in `mysqlType` too, where TiCDC's order is random.  With no column, `mysqlType` is {}
in the classic dialect and null in newarch, `sqlType` null in both.  Changed columns are found by value in classic and
by text in newarch; the two differ only for 0.0 and -0.0.

Column values are texts.

    integers, YEAR, BIT, ENUM (index), SET (mask)   decimal digits
    FLOAT, DOUBLE                                   the shortest digits, never with an exponent
    BINARY, VARBINARY, BLOB family                  each byte as the code point of its number: 0xE9 is é
    CHAR, VARCHAR, TEXT family                      the text
    DECIMAL, times, JSON, VECTOR                    as TiDB prints them

Every text is then a JSON string as easyjson escapes it (codec/go.py, EASY), so that 0x3C, `<`, arrives as \u003c.
Numbers and times have nothing to escape and skip that.

Source: Canal-JSON document; TiCDC's canal encoder; recordings of both emitters.
"""

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.codec.claim import Cut
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go import EASY, PRINTED, positional32, positional64
from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.codec.zone import shifted_text
from tidegate.model.errors import EncodeError, redacted_value
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update, Value, Values
from tidegate.model.mysql import BLOBS, NUMBERS, PRINTED_TYPES, STRINGS, TYPES, MysqlType, Size, sql_name
from tidegate.model.table import ColumnType

_BINARY: Final = 2004
"""sqlType of strings as bytes."""

PROMOTIONS: Final[dict[MysqlType, tuple[int, int]]] = {
    MysqlType.TINY: ((1 << 7) - 1, 5),
    MysqlType.SHORT: ((1 << 15) - 1, 4),
    MysqlType.LONG: ((1 << 31) - 1, -5),
    MysqlType.LONGLONG: ((1 << 63) - 1, 3),
}
"""The largest value of an unsigned integer that keeps its sqlType, and the sqlType of larger ones."""

_VARCHAR_LENGTH: Final = 5
"""The length written for a VARCHAR of unknown length."""
_ESCAPES: Final = str.maketrans({"\0": "\\0", "'": "''", "\n": "\\n", "\r": "\\r"})


def sql_type(column: WireColumn) -> int:
    """Return the sqlType of a column, by java.sql.Types: the one of NULL and of all values that are not promoted.

    An unsigned integer that does not fit the signed type of its width has the sqlType of the next: TINYINT above 127
    is 5, SMALLINT above 32767 is 4, INT above 2147483647 is -5, BIGINT above 2^63-1 is 3; MEDIUMINT stays.  A NULL
    does not."""
    code = column.type.code
    return _BINARY if column.binary and code in STRINGS else TYPES[code].sql_type


_INCOMPLETE: Final = frozenset({"char", "varchar", "binary", "varbinary", "enum", "set", "bit", "decimal", "int"})
"""Types that official Canal never writes without parameters."""


def check_parameters(column: WireColumn) -> None:
    """Raise EncodeError for a column whose type came without its parameters."""
    if column.mysql_type in _INCOMPLETE:
        raise EncodeError(
            f"column {column.name}: content-compatible needs the parameters of types, such as the 50 of varchar(50), "
            f"and {column.mysql_type} came without; read messages that were written with it"
        )


def mysql_type(column: WireColumn, *, full: bool) -> str:
    """Return the mysqlType of a column, with the parameters of its definition when `full` (content-compatible).

        type                 sqlType             short               full
        BIT, SET             -7 BIT              bit, set            bit(8), set('x','y')
        TINYINT              -6 TINYINT          tinyint             tinyint(4)
        SMALLINT              5 SMALLINT         smallint            smallint(6)
        MEDIUMINT, INT        4 INTEGER          mediumint, int      mediumint(9), int(11)
        BIGINT               -5 BIGINT           bigint              bigint(20)
        FLOAT, DOUBLE         7 REAL, 8 DOUBLE   float, double       float, float(10,3)
        DECIMAL               3 DECIMAL          decimal             decimal(10,2)
        CHAR                  1 CHAR             char                char(20)
        VARCHAR              12 VARCHAR          varchar             varchar(50)
        TEXT family        2005 CLOB             text                text
        BINARY, VARBINARY  2004 BLOB             binary, varbinary   binary(8)
        BLOB family        2004 BLOB             blob                blob
        DATE, TIME           91 DATE, 92 TIME    date, time          date, time(3)
        DATETIME, TIMESTAMP  93 TIMESTAMP        datetime            datetime(6)
        YEAR                 12 VARCHAR          year                year(4)
        ENUM                  4 INTEGER          enum                enum('a','b')
        JSON, VECTOR         12 VARCHAR          json, vector        json, vector(3)

    " unsigned" and " zerofill" follow the name, except for BIT (unsigned) and YEAR (both).

    Source: Canal-JSON document, "SQL Type field" and "MySQL Type field"; TiDB's FieldType.CompactStr."""
    if column.mysql_type:
        return column.mysql_type
    kind = column.type
    name = sql_name(kind.code, binary=kind.charset == "binary")
    if full and kind.code not in BLOBS and (parameters := _PARAMETERS.get(TYPES[kind.code].size)):
        name += parameters(kind)
    if (kind.unsigned or kind.zerofill) and kind.code not in {MysqlType.BIT, MysqlType.YEAR}:
        name += " unsigned"
    return name + (" zerofill" if kind.zerofill and kind.code != MysqlType.YEAR else "")


def _width(kind: ColumnType) -> str:
    return f"({_flen(kind)})" if _flen(kind) >= 0 else ""


def _float(kind: ColumnType) -> str:
    return f"({_flen(kind)},{kind.decimal})" if kind.decimal > 0 else ""


def _elements(kind: ColumnType) -> str:
    return "('" + "','".join(element.translate(_ESCAPES) for element in kind.elems or ()) + "')"


def _flen(kind: ColumnType) -> int:
    return kind.flen if kind.flen >= 0 else TYPES[kind.code].length


_PARAMETERS: Final[Mapping[Size, Callable[[ColumnType], str]]] = {
    Size.WIDTH: _width,
    Size.LENGTH: lambda kind: _width(kind) or f"({_VARCHAR_LENGTH})",
    Size.FSP: lambda kind: f"({kind.decimal})" if kind.decimal > 0 else "",
    Size.FLOAT: _float,
    Size.EXACT: lambda kind: f"({_flen(kind)},{max(kind.decimal, 0)})",
    Size.LIST: _elements,
}


QUERY: Final = "QUERY"

_WORDS: Final[Mapping[str, tuple[int, ...]]] = {
    "CREATE": (3,),
    "RENAME": (14, 47),
    "ERASE": (4,),
    "TRUNCATE": (11,),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
_BY_ACTION: Final = {action: word for word, actions in _WORDS.items() for action in actions}


def ddl_type(action: int) -> str:
    """Return Canal's word for a TiDB action code.

        CREATE    create table                     RENAME    rename table, rename tables
        ERASE     drop table                       TRUNCATE  truncate table
        CINDEX    add index, foreign key, primary key        DINDEX    drop of those
        ALTER     columns, defaults, comments, charsets of tables, partitions, index names, index visibility,
                  several changes at once
        QUERY     everything else: databases, views, recover table, exchange partition, TTL, sequences, …

    CREATE TABLES, which TiDB's tools send for many tables at once, becomes one event a table but keeps its action,
    and so arrives as QUERY."""
    return _BY_ACTION.get(action, QUERY)


Write: TypeAlias = Callable[[Any], str]
"""Writes a value that is not NULL as a JSON string. Raises TypeError or AttributeError for a value of another type."""


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


def _double(value: float) -> str:
    return f'"{positional64(value)}"'


def _latin1(value: bytes) -> str:
    return EASY(value.decode("latin-1"))


_WRITERS: Final[dict[MysqlType, Write]] = {
    **dict.fromkeys(NUMBERS, _integer),
    **dict.fromkeys(PRINTED_TYPES, PRINTED),
    MysqlType.FLOAT: lambda value: f'"{positional32(value)}"',
    MysqlType.DOUBLE: _double,
}


class CanalField(NamedTuple):
    """One column: the index of its value, its name and colon, and the writer of its values."""

    column: int
    head: str
    write: Write


class Columns(NamedTuple):
    """Prepared columns of a table."""

    parts: list[CanalField]
    sql_types: list[tuple[str, int]]
    sql_type: str
    mysql_type: str
    promoted: list[tuple[int, int, int, int]]
    """(index in `sql_types`, index of the value, largest value that is not promoted, sqlType of larger ones)"""


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
        indexes = range(len(table.columns))
        self.all = self._prepared(indexes, options)
        handles = [index for index in indexes if table.columns[index].handle]
        self.handles = self._prepared(handles if handles or table.names_handle else indexes, options)
        self._options = options

    def _prepared(self, indexes: Iterable[int], options: EncodeOptions) -> Columns:
        chosen = [(index, self._columns[index]) for index in indexes]
        parts = [CanalField(index, f"{EASY(c.name)}:", writer(c, options.time_zone)) for index, c in chosen]
        sql_types = [(f"{EASY(c.name)}:", sql_type(c)) for _, c in chosen]
        types = ",".join(f"{EASY(c.name)}:{EASY(mysql_type(c, full=options.content_compatible))}" for _, c in chosen)
        empty = "null" if options.newarch else "{}"
        promoted = [
            (position, index, *PROMOTIONS[c.type.code])
            for position, (index, c) in enumerate(chosen)
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
        promoted = {
            position: larger
            for position, index, most, larger in columns.promoted
            if (value := new[index]) is not None and value > most  # type: ignore[operator] # an integer was just written
        }
        body = f'"sqlType":{sql_types_of(columns, promoted)},"mysqlType":{columns.mysql_type},"old":{old},"data":{data}'
        return self.heads[type(row)], body

    def _changed(self, row: Update, parts: list[CanalField]) -> list[CanalField]:
        if not self._options.only_output_updated_columns:
            return parts
        before, after = row.before, row.after
        return [part for part in parts if self._differs(part, before[part.column], after[part.column])]

    def _differs(self, part: CanalField, old: Value, new: Value) -> bool:
        if self._options.newarch and isinstance(old, float) and isinstance(new, float):
            return part.write(old) != part.write(new)
        return old != new

    def _image(self, values: Values, parts: list[CanalField]) -> str:
        if not self._columns:
            return "null"
        try:
            members = [
                head + ("null" if (value := values[index]) is None else write(value)) for index, head, write in parts
            ]
        except (TypeError, AttributeError) as error:
            _blame(self._columns, values, parts)
            raise EncodeError(f"a value that canal-json cannot carry: {error}") from error
        return f"[{{{','.join(members)}}}]"


def sql_types_of(columns: Columns, promoted: Mapping[int, int]) -> str:
    """Return `sqlType`; `promoted` has the codes of columns whose value is too large for their signed type."""
    if not promoted:
        return columns.sql_type
    return sql_types_text([(head, promoted.get(index, code)) for index, (head, code) in enumerate(columns.sql_types)])


def sql_types_text(pairs: Sequence[tuple[str, int]]) -> str:
    """Return the member `sqlType` of the columns, each given as its JSON head and its code, as TiCDC writes it."""
    return f"{{{','.join(f'{head}{code}' for head, code in pairs)}}}" if pairs else "null"


def _blame(columns: tuple[WireColumn, ...], values: Values, parts: list[CanalField]) -> None:
    """Raises the error of the first value that cannot be written, with its column."""
    for index, _, write in parts:
        value = values[index]
        try:
            if value is not None:
                write(value)
        except (TypeError, AttributeError) as error:
            column = columns[index]
            raise EncodeError(
                f"column {column.name!r} (type {int(column.type.code)}) cannot hold {redacted_value(value)}"
            ) from error


_TYPES: dict[type, str] = {Insert: "INSERT", Update: "UPDATE", Delete: "DELETE"}


_TSO_LOGICAL_BITS: Final = 18
_NO_ROW: Final = '"sqlType":null,"mysqlType":null,"data":null,"old":null'


class CanalEncoder:
    """Encodes events as values, one by one; tables are prepared once."""

    def __init__(self, options: EncodeOptions, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._now_ms = now_ms
        self._ready = LayoutMemory[tuple[int, str, str], tuple[WireTable, CanalRow]](TABLES_MAX)

    def row(self, row: RowChange, table: WireTable, cut: Cut, row_key: bytes | None) -> bytes:
        """Return the value of a row; `cut` selects its columns and mark. `row_key` is for output-row-key."""
        es_ms = row.es_ms if row.commit_ts is None else row.commit_ts >> _TSO_LOGICAL_BITS
        if es_ms is None:
            raise EncodeError(f"a row of {row.schema}.{row.table} has no commit_ts, which canal-json must say")
        head, body = self._row_of(row, table).texts(row, handles=cut.handles)
        text = f'{head}"es":{es_ms},"ts":{self._now_ms()},"sql":"",{body}{self._extension(row, cut, row_key)}}}'
        return _encoded(text)

    def ddl(self, ddl: Ddl) -> bytes:
        """Return the value of a DDL; a decoded one's `canal_type` has priority."""
        es_ms = ddl.es_ms if ddl.commit_ts is None else ddl.commit_ts >> _TSO_LOGICAL_BITS
        word = ddl.canal_type or (None if ddl.type is None else ddl_type(ddl.type))
        if es_ms is None or word is None:
            raise EncodeError(f"the DDL {ddl.query!a:.60} has no commit_ts or type, which canal-json must say")
        extension = ""
        if self._options.enable_tidb_extension:
            extension = f',"_tidb":{{"commitTs":{self._commit_ts(ddl.commit_ts)}}}'
        names = (
            f'"database":{EASY(ddl.schema)},"table":{EASY(ddl.table)},"pkNames":null,"isDdl":true,"type":{EASY(word)}'
        )
        times = f'"es":{es_ms},"ts":{self._now_ms()},"sql":{EASY(ddl.query)}'
        return _encoded(f'{{"id":0,{names},{times},{_NO_ROW}{extension}}}')

    def resolved(self, ts: int) -> bytes | None:
        """Return a watermark; None without the TiDB extension, which alone has them."""
        if not self._options.enable_tidb_extension:
            return None
        names = '"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK"'
        times = f'"es":{ts >> _TSO_LOGICAL_BITS},"ts":{self._now_ms()},"sql":""'
        return f'{{"id":0,{names},{times},{_NO_ROW},"_tidb":{{"watermarkTs":{ts}}}}}'.encode()

    def _row_of(self, row: RowChange, table: WireTable) -> CanalRow:
        key = (id(table), row.schema, row.table)
        prepared = self._ready.get(key)
        if prepared is None:
            prepared = self._ready.keep(key, (table, CanalRow(row.schema, row.table, table, self._options)))
        return prepared[1]

    def _extension(self, row: RowChange, cut: Cut, row_key: bytes | None) -> str:
        if not self._options.enable_tidb_extension:
            return ""
        text = f',"_tidb":{{"commitTs":{self._commit_ts(row.commit_ts)}'
        if cut.only_handles:
            text += ',"onlyHandleKey":true'
        if cut.location:
            text += f',"claimCheckLocation":{EASY(cut.location)}'
        if self._options.output_row_key:
            if row_key is None:
                raise EncodeError(f"a row of {row.schema}.{row.table} without its key, which output-row-key asks for")
            text += f',"rowkey":"{b2a_base64(row_key, newline=False).decode()}"'
        return text + "}"

    @staticmethod
    def _commit_ts(commit_ts: int | None) -> int:
        if commit_ts is None:
            raise EncodeError("an event without commit_ts, which enable-tidb-extension must say")
        return commit_ts


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"a number or time with the character {text[error.start]!a}") from error
