r"""TiCDC's csv, reading: the lines of a file as records, and records as rows; the plain way, which says what is wrong.

    "I","t","s",445,false,1,"a ""b"" c",\N<CR><LF>
     op  table    commit_ts
              schema    is-update             [handle key: the classic architecture's output-handle-key]

A line ends where the terminator stands outside of quotes, so a text may hold line breaks; `records` counts both records
and lines.  A piece that is no record ends at the next terminator.  The last record of a file that was cut off has no
terminator, or an open quote: `whole_bytes` tells how much of a file stands before it.

NULL is the null text without quotes.  Without a quote character a backslash stands before CR, LF, itself and each
character of the delimiter; the null text is looked for first.  Names of ENUM and SET become numbers again by the
table's definition.

Source: TiCDC's storage sink document; codec/csv/encode.py, whose lines these are.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from tidegate.codec.csv.options import CsvOptions
from tidegate.codec.values import INT_RANGES, double, float32, integer_range
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import DecodeError
from tidegate.model.event import Value, Values
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.tso import MAX_TS

CODEC: Final = "csv"
OPS: Final = frozenset("IUD")
MARKS: Final = {"true": True, "false": False}
Read: TypeAlias = Callable[[str], Value]

_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{0,1200})?(?:[eE][-+]?[0-9]{1,4})?")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_BREAKS: Final = {"r": "\r", "n": "\n"}


class CsvField(NamedTuple):
    """The text of a field, and whether it stood in quotes."""

    text: str
    quoted: bool


class Record(NamedTuple):
    """One record: its number in the file and the line where it begins, both from 1; its fields, None for a piece that
    is no record; its bytes."""

    number: int
    line: int
    fields: list[CsvField] | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class CsvRow:
    """What a record tells. `is_update` marks the two halves of an UPDATE."""

    op: str
    commit_ts: int
    is_update: bool
    values: Values


def terminator_of(options: CsvOptions) -> str:
    """Return what ends a line; TiCDC takes CR LF for an empty one."""
    return options.terminator or "\r\n"


def whole_bytes(body: bytes, options: CsvOptions) -> int:
    """Return how many bytes of a file stand before a record that was cut off; all of them where none was."""
    end, quote = terminator_of(options).encode(), options.quote.encode()
    at = len(body)
    while at > 0:
        if body.endswith(end, 0, at) and (not quote or body.count(quote, 0, at) % 2 == 0):
            return at
        found = body.rfind(end, 0, at - 1)
        at = 0 if found < 0 else found + len(end)
    return 0


def records(body: bytes, options: CsvOptions) -> Iterator[Record]:
    """Return the records of a file, the header among them."""
    text = body.decode("utf-8", "surrogateescape")
    field, end = _field(options.delimiter, options.quote, terminator_of(options)), terminator_of(options)
    at, number, line = 0, 0, 1
    while at < len(text):
        begin, fields = at, list[CsvField]()
        while True:
            found = field.match(text, at)
            if found is None:
                fields.clear()
                stop = text.find(end, at)
                at = len(text) if stop < 0 else stop + len(end)
                break
            at = found.end()
            quoted = found[1] is not None
            told = found[1].replace(options.quote * 2, options.quote) if quoted else found[2]
            fields.append(CsvField(told, quoted))
            if found[3] == end:
                break
        number += 1
        whole = text[begin:at]
        yield Record(number, line, fields or None, whole.encode("utf-8", "surrogateescape"))
        line += whole.count("\n") or 1


@lru_cache(maxsize=64)
def _field(delimiter: str, quote: str, end: str) -> re.Pattern[str]:
    """A field (quoted, or not) and what stands behind it."""
    stop = f"{re.escape(end)}|{re.escape(delimiter)}"
    if not quote:
        return re.compile(rf"(\b\B)?((?:\\.|(?!{stop})[^\\])*+)({stop})", re.DOTALL)
    mark = re.escape(quote)
    return re.compile(rf"(?:{mark}((?:[^{mark}]|{mark}{mark})*+){mark}|((?:(?!{stop}|{mark}).)*+))({stop})", re.DOTALL)


class CsvDecoder:
    """Records of one table to rows; `handle_key` says that a field of the key stands before the columns."""

    def __init__(
        self, schema: str, name: str, table: WireTable, options: CsvOptions, *, handle_key: bool = False
    ) -> None:
        self._names, self._options, self._table = (name, schema), options, table
        self.head = 4 + options.output_old_value + handle_key
        self._reads = [reader_of(column, options) for column in table.columns]

    def row(self, record: Record) -> CsvRow:
        """Return what a record tells. DecodeError."""
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
        op, table, schema, ts = (self._plain(one.text) for one in fields[:4])
        if op not in OPS or (table, schema) != self._names:
            raise DecodeError(f"a row {op!a:.20} of {schema!a:.80}.{table!a:.80} in a file of another table", CODEC, 0)
        commit_ts = commit_ts_of(ts)
        if commit_ts is None:
            raise DecodeError(f"{ts!a:.60} is no commit_ts", CODEC, 0)
        mark = fields[4][0] if options.output_old_value else "false"
        if mark not in MARKS:
            raise DecodeError(f"{mark!a:.60} does not tell whether the row is an update", CODEC, 0)
        values = tuple(
            self._value(*one) for one in zip(self._table.columns, self._reads, fields[self.head :], strict=True)
        )
        return CsvRow(op, commit_ts, MARKS[mark], values)

    def _plain(self, text: str) -> str:
        """A text without the backslashes that stand for quotes."""
        if self._options.quote or "\\" not in text:
            return text
        return _ESCAPE.sub(lambda found: _BREAKS.get(found[1], found[1]), text)

    def _value(self, column: WireColumn, read: Read, field: CsvField) -> Value:
        text, quoted = field
        if text == self._options.null and not quoted:
            return None
        try:
            return read(self._plain(text))
        except DecodeError as error:
            raise DecodeError(f"column {column.name!r}: {error.what}", CODEC, 0) from error


def commit_ts_of(text: str) -> int | None:
    """Return the commit_ts that a field tells; None where it tells none."""
    return int(text) if _INTEGER.fullmatch(text) and 0 <= int(text) <= MAX_TS else None


def reader_of(column: WireColumn, options: CsvOptions) -> Read:
    """Return what makes a value of the text of a field."""
    code = column.type.code
    if code in {MysqlType.ENUM, MysqlType.SET} and column.type.elems is not None:
        return number_of(code, column.type.elems)
    if code in INT_RANGES:
        low, high = integer_range(code, unsigned=column.unsigned)
        return lambda text: _integer(text, low, high)
    if code == MysqlType.FLOAT:
        return lambda text: float32(_double(text), CODEC)
    if code == MysqlType.DOUBLE:
        return _double
    if code in STRINGS and column.binary:
        return _base64 if options.binary_encoding_method == "base64" else _hex
    return str


def number_of(code: MysqlType, elems: tuple[str, ...]) -> Read:
    """Return what makes the number of an ENUM or SET of its names. DecodeError for a name that it has not."""
    places = {name: len(elems) - 1 - back for back, name in enumerate(reversed(elems))}

    def place(name: str) -> int:
        if name not in places:
            raise DecodeError(f"{name!a:.60} is none of its names", CODEC, 0)
        return places[name]

    if code == MysqlType.ENUM:
        return lambda text: 0 if text == "" and text not in places else place(text) + 1
    return lambda text: sum(1 << place(name) for name in set(text.split(","))) if text else 0


def _integer(text: str, low: int, high: int) -> int:
    if _INTEGER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise DecodeError(f"{text!a:.60} is not an integer from {low} to {high}", CODEC, 0)


def _double(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return double(float(text), CODEC)
    raise DecodeError(f"{text!a:.60} is not a number", CODEC, 0)


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise DecodeError(f"{text!a:.60} is not base64", CODEC, 0) from error


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise DecodeError(f"{text!a:.60} is not hexadecimal", CODEC, 0) from error
