r"""TiCDC's csv: its options, rows to lines of a file, lines to rows.

Options, `[sink.csv]` of a changefeed:

    delimiter                ,        1 to 3 characters, no CR or LF, not with the quote in it
    quote                    "        one character, or none: then texts are escaped with backslashes
    null                     \N
    include-commit-ts        false
    output-old-value         false    an UPDATE is a deleted and an inserted row
    binary-encoding-method   base64   or hex
    output-field-header      false    newarch
    output-handle-key                 refused: newarch has given it up
    terminator               CR LF    of [sink]

A line:

    "I","t","s",445,false,1,"a ""b"" c",\N<CR><LF>
     op  table    commit_ts       columns              op: I insert, U update, D delete
              schema    is-update                      before the columns in classic: the handle key, output-handle-key

    integers, YEAR, BIT                   digits
    FLOAT, DOUBLE                         as Go's %v prints them: 1e+06, 0.0001, 1e-05
    ENUM, SET                             their names, those of a SET with commas between
    BINARY, VARBINARY, BLOB family        base64 or hex
    all others                            text as TiDB prints it
    NULL                                  the null text, never quoted

Numbers, commit_ts and is-update are unquoted, all else is quoted with quotes doubled.  Without a quote character CR,
LF, the backslash and the delimiter get a backslash (CR and LF become \r and \n), and a reader compares with the null
text first.  With output-old-value an UPDATE is two lines, D and I, both with is-update true.  Virtual generated
columns are left out; DDLs and watermarks have no lines.  Names of ENUM and SET are written and read by the table's
definition; an ENUM of index 0, on which TiCDC fails, is an empty text.

Lines are read record by record here; columnar/csv.py reads whole files.

Source: TiCDC's storage sink document; its csv configuration and codec.  No recording holds csv.
"""

import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tidegate.codec.go import general32, general64
from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.options import from_config
from tidegate.codec.values import INT_RANGES, double, float32, integer_range
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.codec.zone import zone_shift
from tidegate.model.errors import CsvEncodeFailed, DecodeError, SinkConfigInvalid, redacted, redacted_value
from tidegate.model.event import Delete, Insert, RowChange, Update, Value, Values, images
from tidegate.model.mysql import NAMED, NUMBERS, STRINGS, MysqlType
from tidegate.model.tso import MAX_TS

_MAX_DELIMITER: Final = 3
_METHODS: Final = ("base64", "hex")
_SECTIONS: Final = ("", "csv", "sink.csv", "uri")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


class CsvOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a csv encoder; TIMESTAMPs of events are UTC and are written in `time_zone`."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    output_old_value: bool = False
    binary_encoding_method: str = "base64"
    output_field_header: bool = False
    terminator: str = "\r\n"
    time_zone: str = "UTC"


def csv_options(config: Mapping[str, object]) -> CsvOptions:
    """Return the csv options of a changefeed. Raises SinkConfigInvalid for values that TiCDC refuses."""
    keys = {key: value for key, value in config.items() if key.rpartition(".")[2] != "protocol"}
    from_config(keys, "canal-json")  # refuses unknown keys, which are the same for all protocols
    values: dict[str, object] = {}
    for key, value in keys.items():
        section, _, name = key.rpartition(".")
        field = name.replace("-", "_")
        if name == "terminator" or (section in _SECTIONS and field in CsvOptions.__struct_fields__):
            values[field] = _read(key, field, value)
        elif name == "output-handle-key" and _flag(key, value):
            raise SinkConfigInvalid(f"{key}=true is not written here; the key columns stand in every row")
        elif name == "delete-only-output-handle-key-columns" and _flag(key, value):
            raise SinkConfigInvalid(f"{key}=true does not go with csv, whose rows always have all columns")
    return _checked(msgspec.convert(values, CsvOptions))


def _read(key: str, field: str, value: object) -> object:
    if isinstance(getattr(CsvOptions(), field), bool):
        return _flag(key, value)
    if isinstance(value, str):
        return value
    raise SinkConfigInvalid(f"{key} is {value!r}; it must be a string")


def _flag(key: str, value: object) -> bool:
    text = str(value)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise SinkConfigInvalid(f"{key} is {value!r}; it must be true or false")


def _checked(options: CsvOptions) -> CsvOptions:
    delimiter, quote = options.delimiter, options.quote
    if len(quote) > 1 or quote in {"\r", "\n"}:
        raise SinkConfigInvalid(f"the csv quote {quote!r} must be one character, and no line break")
    if not 1 <= len(delimiter) <= _MAX_DELIMITER or set(delimiter) & {"\r", "\n"}:
        raise SinkConfigInvalid(f"the csv delimiter {delimiter!r} must be 1 to 3 characters without line breaks")
    if quote and quote in delimiter:
        raise SinkConfigInvalid(f"the csv delimiter {delimiter!r} and quote {quote!r} must not be the same")
    if options.binary_encoding_method not in _METHODS:
        raise SinkConfigInvalid(
            f"binary-encoding-method is {options.binary_encoding_method!r}; it is one of {', '.join(_METHODS)}"
        )
    return options


Write: TypeAlias = Callable[[Any], str]

_HEADER: Final = ("operation", "table", "schema")
_WORDS: Final[dict[type, str]] = {Insert: "I", Update: "U", Delete: "D"}


class CsvEncoder:
    """Encodes rows as lines; tables are prepared once."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._quote = _quoting(options)
        self._ready = LayoutMemory[int, tuple[WireTable, list[Write]]](TABLES_MAX)

    def header(self, table: WireTable) -> bytes:
        """Return the first line of a file with output-field-header; b"" without it."""
        options = self._options
        if not options.output_field_header:
            return b""
        names = [f"ticdc-meta${name}" for name in _HEADER]
        names += ["ticdc-meta$commit-ts"] * options.include_commit_ts + [
            "ticdc-meta$is-update"
        ] * options.output_old_value
        names += [column.name for column in table.columns]
        return (options.delimiter.join(names) + options.terminator).encode("utf-8", "surrogateescape")

    def row(self, row: RowChange, table: WireTable) -> bytes:
        """Return the line of a row; the two lines of an UPDATE with old values."""
        before, after = images(row)
        if self._options.output_old_value and isinstance(row, Update):
            text = self._line("D", row, table, row.before) + self._line("I", row, table, row.after)
        else:
            values = before if after is None else after
            assert values is not None
            text = self._line(_WORDS[type(row)], row, table, values)
        return text.encode("utf-8", "surrogateescape")

    def _line(self, word: str, row: RowChange, table: WireTable, values: Values) -> str:
        options, quote = self._options, self._quote
        fields = [quote(word), quote(row.table), quote(row.schema)]
        if options.include_commit_ts:
            if row.commit_ts is None:
                raise CsvEncodeFailed(
                    f"a row of {row.schema}.{row.table} has no commit_ts, which include-commit-ts asks for"
                )
            fields.append(str(row.commit_ts))
        if options.output_old_value:
            fields.append("true" if isinstance(row, Update) else "false")
        prepared = self._ready.get(id(table))
        if prepared is None:
            prepared = self._ready.keep(id(table), (table, [self.writer(column) for column in table.columns]))
        for column, write, value in zip(table.columns, prepared[1], values, strict=True):
            try:
                fields.append(options.null if value is None else write(value))
            except (TypeError, AttributeError, IndexError) as error:
                raise CsvEncodeFailed(
                    f"column {column.name!r} (type {int(column.type.code)}) cannot hold {redacted_value(value)}"
                ) from error
        return options.delimiter.join(fields) + options.terminator

    def quoted(self, text: str) -> str:
        """Return a text in the form of a line."""
        return self._quote(text)

    def writer(self, column: WireColumn) -> Write:
        """Return the function that writes a column's values other than NULL. CsvEncodeFailed if the names of an ENUM or
        SET are unknown."""
        code, quote = column.type.code, self._quote
        if code in _NUMBER_TEXTS:
            return _NUMBER_TEXTS[code]
        if code in NAMED:
            names = _enum if code == MysqlType.ENUM else _set
            elements = column.type.elems
            if elements is None:
                raise CsvEncodeFailed(f"the names of column {column.name!r} are not known: give its table's definition")
            return lambda value: quote(names(elements, value))
        if code in STRINGS and column.binary:
            method = _base64 if self._options.binary_encoding_method == "base64" else bytes.hex
            return lambda value: quote(method(value))
        if code == MysqlType.TIMESTAMP and self._options.time_zone != "UTC":
            shift = zone_shift(self._options.time_zone)
            return lambda value: quote(shift(value))
        return quote


def _quoting(options: CsvOptions) -> Callable[[str], str]:
    mark = options.quote
    if mark:
        return lambda text: mark + text.replace(mark, mark + mark) + mark
    delimiter = options.delimiter
    special = re.compile(rf"{re.escape(delimiter)}|[\r\n\\]")
    escaped = {"\r": "\\r", "\n": "\\n", "\\": "\\\\", delimiter: "".join("\\" + sign for sign in delimiter)}
    return lambda text: special.sub(lambda match: escaped[match[0]], text)


def _enum(elements: tuple[str, ...], index: int) -> str:
    if index < 0:
        raise IndexError(index)
    return elements[index - 1] if index else ""


def _set(elements: tuple[str, ...], mask: int) -> str:
    if mask >> len(elements):
        raise IndexError(mask)
    return ",".join(element for bit, element in enumerate(elements) if mask >> bit & 1)


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


FLOAT_TEXTS: Final = {MysqlType.FLOAT: general32, MysqlType.DOUBLE: general64}
_NUMBER_TEXTS: Final[dict[MysqlType, Write]] = {
    **dict.fromkeys(NUMBERS - NAMED, int.__repr__),
    **FLOAT_TEXTS,
}


CODEC: Final = "csv"
OPS: Final = frozenset("IUD")
MARKS: Final = {"true": True, "false": False}
Read: TypeAlias = Callable[[str], Value]

_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{0,1200})?(?:[eE][-+]?[0-9]{1,4})?")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_BREAKS: Final = {"r": "\r", "n": "\n"}


class CsvField(NamedTuple):
    """The text of a field, and True if it was quoted."""

    text: str
    quoted: bool


class Record(NamedTuple):
    """One record: its number in the file and its first line, both from 1; its fields, None for an invalid piece; its
    bytes."""

    number: int
    line: int
    fields: list[CsvField] | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class CsvRow:
    """The values of one record. `is_update` marks the two halves of an UPDATE."""

    op: str
    commit_ts: int
    is_update: bool
    values: Values


def terminator_of(options: CsvOptions) -> str:
    """Return the line terminator; TiCDC uses CR LF for an empty one."""
    return options.terminator or "\r\n"


def whole_bytes(body: bytes, options: CsvOptions) -> int:
    """Return the number of bytes before a truncated record, or of all if there is none. A truncated record has no
    terminator, or an open quote."""
    end, quote = terminator_of(options).encode(), options.quote.encode()
    offset = len(body)
    while offset > 0:
        if body.endswith(end, 0, offset) and (not quote or body.count(quote, 0, offset) % 2 == 0):
            return offset
        last_end = body.rfind(end, 0, offset - 1)
        offset = 0 if last_end < 0 else last_end + len(end)
    return 0


def records(body: bytes, options: CsvOptions) -> Iterator[Record]:
    """Return the records of a file, the header among them.

    A record ends at a terminator outside of quotes, so a text may have line breaks: records and lines are counted
    separately. An invalid piece ends at the next terminator."""
    text = body.decode("utf-8", "surrogateescape")
    field, end = _field(options.delimiter, options.quote, terminator_of(options)), terminator_of(options)
    offset, number, line = 0, 0, 1
    while offset < len(text):
        begin, fields = offset, list[CsvField]()
        while True:
            match = field.match(text, offset)
            if match is None:
                fields.clear()
                stop = text.find(end, offset)
                offset = len(text) if stop < 0 else stop + len(end)
                break
            offset = match.end()
            quoted = match[1] is not None
            content = match[1].replace(options.quote * 2, options.quote) if quoted else match[2]
            fields.append(CsvField(content, quoted))
            if match[3] == end:
                break
        number += 1
        whole = text[begin:offset]
        yield Record(number, line, fields or None, whole.encode("utf-8", "surrogateescape"))
        line += whole.count("\n") or 1


@lru_cache(maxsize=64)
def _field(delimiter: str, quote: str, end: str) -> re.Pattern[str]:
    """A field (quoted, or not) and the text behind it."""
    stop = f"{re.escape(end)}|{re.escape(delimiter)}"
    if not quote:
        return re.compile(rf"(\b\B)?((?:\\.|(?!{stop})[^\\])*+)({stop})", re.DOTALL)
    mark = re.escape(quote)
    return re.compile(rf"(?:{mark}((?:[^{mark}]|{mark}{mark})*+){mark}|((?:(?!{stop}|{mark}).)*+))({stop})", re.DOTALL)


class CsvDecoder:
    """Decodes records of one table as rows; with `handle_key` a field of the key precedes the columns."""

    def __init__(
        self, schema: str, name: str, table: WireTable, options: CsvOptions, *, handle_key: bool = False
    ) -> None:
        self._names, self._options, self._table = (name, schema), options, table
        self.head = 4 + options.output_old_value + handle_key
        self._reads = [reader_of(column, options) for column in table.columns]

    def row(self, record: Record) -> CsvRow:
        """Return the row of a record. Raises DecodeError."""
        fields, options = record.fields, self._options
        if fields is None:
            raise DecodeError("no record: a quote stands where none may", CODEC, 0)
        if len(fields) != self.head + len(self._reads):
            raise DecodeError(
                f"a line of {len(fields)} fields, where {self.head} and {len(self._reads)} columns are told "
                f"({', '.join(column.name for column in self._table.columns)})",
                CODEC,
                0,
            )
        op, table, schema, ts = (self._plain(field.text) for field in fields[:4])
        if op not in OPS or (table, schema) != self._names:
            words = redacted(f"{op!a:.20} of {schema!a:.80}.{table!a:.80}")
            raise DecodeError(f"a row {words} in a file of another table", CODEC, 0)
        commit_ts = commit_ts_of(ts)
        if commit_ts is None:
            raise DecodeError(f"{redacted_value(ts)} is no commit_ts", CODEC, 0)
        mark = fields[4][0] if options.output_old_value else "false"
        if mark not in MARKS:
            raise DecodeError(f"{redacted_value(mark)} does not tell whether the row is an update", CODEC, 0)
        values = tuple(
            self._value(*cell) for cell in zip(self._table.columns, self._reads, fields[self.head :], strict=True)
        )
        return CsvRow(op, commit_ts, MARKS[mark], values)

    def _plain(self, text: str) -> str:
        """A text without the backslashes that stand for quotes."""
        if self._options.quote or "\\" not in text:
            return text
        return _ESCAPE.sub(lambda match: _BREAKS.get(match[1], match[1]), text)

    def _value(self, column: WireColumn, read: Read, field: CsvField) -> Value:
        text, quoted = field
        if text == self._options.null and not quoted:
            return None
        try:
            return read(self._plain(text))
        except DecodeError as error:
            raise DecodeError(f"column {column.name!r}: {error.what}", CODEC, 0) from error


def commit_ts_of(text: str) -> int | None:
    """Return the commit_ts in a field; None for another text."""
    return int(text) if _INTEGER.fullmatch(text) and 0 <= int(text) <= MAX_TS else None


def reader_of(column: WireColumn, options: CsvOptions) -> Read:
    """Return the function that parses the text of a field."""
    code = column.type.code
    if code in NAMED and column.type.elems is not None:
        return number_of(code, column.type.elems)
    if code in INT_RANGES:
        low, high = integer_range(code, unsigned=column.unsigned)
        return lambda text: _integer(text, low, high)
    if code == MysqlType.FLOAT:
        return lambda text: float32(_double(text), CODEC)
    if code == MysqlType.DOUBLE:
        return _double
    if code in STRINGS and column.binary:
        if options.binary_encoding_method == "base64":
            return partial(_bytes, partial(b64decode, validate=True), "base64")
        return partial(_bytes, bytes.fromhex, "hexadecimal")
    return str


def number_of(code: MysqlType, elems: tuple[str, ...]) -> Read:
    """Return the function that maps names of an ENUM or SET to its number. It raises DecodeError for an unknown
    name."""
    bits = {name: len(elems) - 1 - back for back, name in enumerate(reversed(elems))}

    def bit_of(name: str) -> int:
        if name not in bits:
            raise DecodeError(f"{redacted_value(name)} is none of its names", CODEC, 0)
        return bits[name]

    if code == MysqlType.ENUM:
        return lambda text: 0 if text == "" and text not in bits else bit_of(text) + 1
    return lambda text: sum(1 << bit_of(name) for name in set(text.split(","))) if text else 0


def _integer(text: str, low: int, high: int) -> int:
    if _INTEGER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise DecodeError(f"{redacted_value(text)} is not an integer from {low} to {high}", CODEC, 0)


def _bytes(decode: Callable[[str], bytes], form: str, text: str) -> bytes:
    try:
        return decode(text)
    except ValueError as error:
        raise DecodeError(f"{redacted_value(text)} is not {form}", CODEC, 0) from error


def _double(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return double(float(text), CODEC)
    raise DecodeError(f"{redacted_value(text)} is not a number", CODEC, 0)
