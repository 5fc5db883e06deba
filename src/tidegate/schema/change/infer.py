"""The type of the hidden column behind an expression in an index.

    a + 1                   bigint(20)                     cast(.. as signed)     bigint(22)
    lower(b), concat(..)    var_string of its arguments    cast(.. as char(9))    var_string(9)
    a / 2                   decimal                        anything else          double for reals, else var_string

Far from all that TiDB infers: what is not of these kinds is kept as text.

Source: TiDB pkg/ddl/index.go (buildHiddenColumnInfo); pkg/expression/builtin_arithmetic.go, builtin_cast.go.
"""

import re
from typing import Final

from tidegate.model.mysql import MysqlType as T
from tidegate.schema.change.flags import BINARY, UNSIGNED
from tidegate.schema.stored.definition import StoredColumn, StoredType

__all__ = ["infer_type"]

_CAST: Final = re.compile(r"^cast\(.* as (?P<word>[a-z]+)(?:\((?P<size>\d+)(?:,\s*(?P<scale>\d+))?\))?", re.IGNORECASE)
_TEXT_CALL: Final = re.compile(
    r"^(lower|upper|lcase|ucase|trim|ltrim|rtrim|left|right|substr|substring|substring_index|reverse|concat|concat_ws|"
    r"replace|lpad|rpad|md5|sha1|sha2|hex|json_unquote|repeat|insert)\(",
    re.IGNORECASE,
)
_NUMBER_CALL: Final = re.compile(
    r"^(length|char_length|abs|year|month|day|dayofmonth|dayofweek|dayofyear|hour|minute|second|quarter|week|crc32|"
    r"floor|ceil|ceiling|mod|unix_timestamp|to_days|locate|instr|strcmp|ascii|ord|sign|bit_count)\(",
    re.IGNORECASE,
)
_NUMBERS: Final = frozenset({T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.YEAR, T.BIT})
_REALS: Final = frozenset({T.FLOAT, T.DOUBLE})
_CASTS: Final = {
    "signed": (T.LONGLONG, 22, 0, BINARY),
    "unsigned": (T.LONGLONG, 22, 0, BINARY | UNSIGNED),
    "date": (T.DATE, 10, 0, BINARY),
    "datetime": (T.DATETIME, 19, 0, BINARY),
    "time": (T.TIME, 10, 0, BINARY),
    "year": (T.YEAR, 4, 0, BINARY | UNSIGNED),
    "double": (T.DOUBLE, 22, -1, BINARY),
    "float": (T.FLOAT, 12, -1, BINARY),
    "json": (T.JSON, 4294967295, 0, BINARY),
}


def _bytes_type(code: T, flen: int, decimal: int, flag: int) -> StoredType:
    return StoredType(code, flag, flen, decimal, "binary", "binary")


def infer_type(text: str, columns: list[StoredColumn], charset: str, collate: str) -> StoredType:
    """Return the type of a restored expression over `columns`; texts that come of none have `charset` and `collate`."""
    cast = _CAST.match(text)
    if cast is not None:
        return _cast_type(cast, charset, collate)
    codes = {column.type.tp for column in columns}
    texts = [column.type for column in columns if column.type.charset != "binary"]
    if _TEXT_CALL.match(text):
        flen = sum(kind.flen for kind in texts) if texts else -1
        kind = texts[0] if texts else StoredType(T.VAR_STRING, charset=charset, collate=collate)
        return StoredType(T.VAR_STRING, 0, flen, -1, kind.charset, kind.collate)
    if _NUMBER_CALL.match(text) or (codes <= _NUMBERS and " / " not in text):
        unsigned = any(column.type.flag & UNSIGNED for column in columns)
        return _bytes_type(T.LONGLONG, 20, 0, BINARY | (UNSIGNED if unsigned else 0))
    if codes & _REALS:
        return _bytes_type(T.DOUBLE, 23, -1, BINARY)
    if codes <= _NUMBERS | {T.DECIMAL}:
        return _bytes_type(T.DECIMAL, 65, 4, BINARY)
    if texts:
        return StoredType(T.VAR_STRING, 0, texts[0].flen, -1, texts[0].charset, texts[0].collate)
    return StoredType(T.VAR_STRING, 0, -1, -1, charset, collate)


def _cast_type(cast: re.Match[str], charset: str, collate: str) -> StoredType:
    word, size = cast["word"].lower(), int(cast["size"] or -1)
    if word == "decimal":
        return _bytes_type(T.DECIMAL, size if size > 0 else 10, int(cast["scale"] or 0), BINARY)
    if word == "binary":
        return _bytes_type(T.VAR_STRING, size, -1, BINARY)
    if word in _CASTS:
        code, flen, decimal, flag = _CASTS[word]
        if word in ("datetime", "time") and size > 0:
            flen, decimal = flen + 1 + size, size
        return _bytes_type(code, flen, decimal, flag)
    return StoredType(T.VAR_STRING, 0, size, -1, charset, collate)
