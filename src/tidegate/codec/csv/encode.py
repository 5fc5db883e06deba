r"""TiCDC's csv, writing: rows of one table to the lines of a file of the storage sink.

    "I","t","s"[,commit_ts][,is-update],column,column,…CRLF          I insert, U update, D delete

    integers, YEAR, BIT                   digits
    FLOAT, DOUBLE                         as Go's %v prints them: 1e+06, 0.0001, 1e-05
    ENUM, SET                             their names, those of a SET with commas between
    BINARY, VARBINARY, BLOB family        base64 or hex
    all others                            text as TiDB prints it
    NULL                                  \N, never quoted

Numbers and the two marks stand bare, all else in quotes with quotes doubled; without a quote character CR, LF, the
backslash and the delimiter get a backslash (CR and LF become \r and \n).  With output-old-value an UPDATE is two lines,
D and I, both with is-update true.  Virtual generated columns are left out.  DDLs and watermarks have no lines.

The names of ENUM and SET come from the table's definition.  An ENUM of index 0, which TiCDC fails on, is an empty text.

Source: TiCDC's storage sink document; its csv codec.  No recording holds csv.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegate.codec.csv.options import CsvOptions
from tidegate.codec.go.float import general32, general64
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.codec.zone import zone_shift
from tidegate.model.errors import CsvEncodeFailed
from tidegate.model.event import Delete, Insert, RowChange, Update, Values, images
from tidegate.model.mysql import STRINGS, MysqlType

Write: TypeAlias = Callable[[Any], str]

_HEADER: Final = ("operation", "table", "schema")
_MAX_TABLES: Final = 4096
_WORDS: Final[dict[type, str]] = {Insert: "I", Update: "U", Delete: "D"}


class CsvEncoder:
    """Rows to lines; tables are made ready once."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._quote = _quoting(options)
        self._ready: dict[int, tuple[WireTable, list[Write]]] = {}

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
        for column, write, value in zip(table.columns, self._writers(table), values, strict=True):
            try:
                fields.append(options.null if value is None else write(value))
            except (TypeError, AttributeError, IndexError) as error:
                raise CsvEncodeFailed(
                    f"column {column.name!r} (type {int(column.type.code)}) cannot hold {value!a:.60}"
                ) from error
        return options.delimiter.join(fields) + options.terminator

    def _writers(self, table: WireTable) -> list[Write]:
        found = self._ready.get(id(table))
        if found is None:
            if len(self._ready) >= _MAX_TABLES:
                self._ready.clear()
            found = self._ready[id(table)] = table, [self.writer(column) for column in table.columns]
        return found[1]

    def quoted(self, text: str) -> str:
        """Return a text as it stands in a line."""
        return self._quote(text)

    def writer(self, column: WireColumn) -> Write:
        """Return what makes the field of a value that is not NULL. CsvEncodeFailed for names that are not known."""
        code, quote = column.type.code, self._quote
        if code in _NUMBERS:
            return _NUMBERS[code]
        if code in {MysqlType.ENUM, MysqlType.SET}:
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
    """How texts stand in a line."""
    mark = options.quote
    if mark:
        return lambda text: mark + text.replace(mark, mark + mark) + mark
    delimiter = options.delimiter
    special = re.compile(rf"{re.escape(delimiter)}|[\r\n\\]")
    escaped = {"\r": "\\r", "\n": "\\n", "\\": "\\\\", delimiter: "".join("\\" + one for one in delimiter)}
    return lambda text: special.sub(lambda found: escaped[found[0]], text)


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
_NUMBERS: Final[dict[MysqlType, Write]] = {
    **dict.fromkeys(
        (
            MysqlType.TINY,
            MysqlType.SHORT,
            MysqlType.LONG,
            MysqlType.LONGLONG,
            MysqlType.INT24,
            MysqlType.YEAR,
            MysqlType.BIT,
        ),
        int.__repr__,
    ),
    **FLOAT_TEXTS,
}
