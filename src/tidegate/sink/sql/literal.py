r"""Columns of values as SQL literals, many at once. Pure.

    int64, uint64, float64    -5   18446744073709551615   0.10000000149011612     digits; BIT, ENUM, SET and YEAR too
    string                    'it\'s'                  times and JSON are texts as TiDB prints them
    DECIMAL                   12.50                    as a text it would be compared as a DOUBLE, by 16 digits
    binary                    x'00ff'                  no character set is applied to it
    null                      NULL

A quote and a backslash are all that has to be escaped: sessions have neither NO_BACKSLASH_ESCAPES nor a character set
other than utf8mb4, in which no byte of a longer character looks like one of the two.

Source: MySQL reference manual, "String Literals".
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL: Final = pa.scalar(b"NULL", pa.binary())
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?\z"
_EMPTY: Final = pa.scalar(b"", pa.binary())


def literals(column: Any) -> Any:
    """Return the values of an Arrow array as literals, in a binary array without nulls."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = quoted(column.cast(pa.binary()))
    elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        found = around(b"x'", digits(column.cast(pa.binary())), b"'")
    else:
        found = column.cast(pa.string()).cast(pa.binary())
    return pc.fill_null(found, _NULL)


def numerals(column: Any) -> Any:
    """Return the texts of DECIMALs as literals; a text that is no number is quoted, for the server to refuse."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return literals(column)
    is_number = pc.match_substring_regex(column, _NUMBER)
    return pc.fill_null(pc.if_else(is_number, column.cast(pa.binary()), literals(column)), _NULL)


def quoted(texts: Any) -> Any:
    """Return texts between quotes, with what has to be escaped escaped."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "\\'")
    return around(b"'", escaped, b"'")


def digits(column: Any) -> Any:
    """Return bytes as hexadecimal digits, all values of a binary array at once; null stays null."""
    if not len(column):
        return column
    _, offsets, values = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    text = values.slice(first, last - first).to_pybytes().hex().encode() if values is not None else b""
    both = pa.py_buffer(((ends - first) * 2).astype(np.int32))
    found = pa.Array.from_buffers(pa.binary(), len(column), [None, both, pa.py_buffer(text)])
    return pc.if_else(column.is_null(), pa.scalar(None, pa.binary()), found)


def around(opening: bytes, texts: Any, closing: bytes) -> Any:
    """Return each of `texts` between two constants; null stays null."""
    return pc.binary_join_element_wise(pa.scalar(opening, pa.binary()), texts, pa.scalar(closing, pa.binary()), _EMPTY)


def joined(columns: list[Any], between: bytes) -> Any:
    """Return, for each row, the texts of `columns` with a constant between them."""
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(between, pa.binary()))


def tuples(columns: list[Any]) -> Any:
    """Return, for each row, its literals as a row of VALUES: (1,'a')."""
    return around(b"(", joined(columns, b","), b")")
