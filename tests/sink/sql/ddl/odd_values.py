"""Types, and odd values of them as events have them."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tidegate.expr.change import family_of
from tidegate.model.event import Value
from tidegate.model.mysql import Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import integer_bounds, nearest_single
from tidegate.schema.columns import parse_type

_SQL: Final = (
    *("tinyint(4)", "smallint(5) unsigned", "int(11)", "bigint(20)", "bigint(20) unsigned", "bit(9)", "bit(64)"),
    *("year(4)", "float", "float(7,3)", "double", "double(10,2)", "decimal(5,0)", "decimal(10,2)", "decimal(40,20)"),
    *("char(20)", "varchar(5)", "varchar(60)", "text", "longtext", "binary(4)", "varbinary(60)", "blob"),
    *("date", "datetime", "datetime(3)", "datetime(6)", "timestamp(2)", "timestamp", "time", "time(3)", "time(6)"),
    *("json", "enum('a','B','12.5','2024-01-01')", "set('a','b','c')"),
)
_CHARSETS: Final = {"binary(4)": "binary", "varbinary(60)": "binary", "blob": "binary"}
TYPES: Final[Mapping[str, ColumnType]] = {sql: parse_type(sql, _CHARSETS.get(sql, "utf8mb4")) for sql in _SQL}
_TEXTS: Final = (
    *("", "0", "12.5", "-12.5", "2.5", "1e3", " 7 x", "abc", "a", "b,a", "2024-01-31", "2024-01-31 10:20:30.567"),
    *("10:20:30.5", "-1 02:03", "99", "é€", '{"a": [1, 2.50]}', "true", '"x"', "18446744073709551616", "-0.49"),
)
_DOCUMENTS: Final = ("1", "1.5", "-2.5", '"12.5"', '"a"', "true", "null", '{"a": [1, null]}', '"2024-01-31"', "1e300")


def odd_value(random: Random, kind: ColumnType) -> Value:
    """A value of a type."""
    return None if random.random() < 0.05 else _MADE[family_of(kind)](random, kind)


def _whole(random: Random, kind: ColumnType) -> Value:
    least, most = (0, (1 << kind.flen) - 1) if kind.code is T.BIT else integer_bounds(kind)
    return min(most, max(least, random.choice((-1, 1)) * (random.getrandbits(random.randint(0, 64)))))


def _real(random: Random, kind: ColumnType) -> Value:
    if kind.decimal >= 0:
        found = round(
            random.uniform(-(10 ** (kind.flen - kind.decimal)), 10 ** (kind.flen - kind.decimal)), kind.decimal
        )
    else:
        found = random.choice((random.randint(-999, 999) / 2, random.uniform(-9, 9) * 10 ** random.randint(-9, 20)))
    return nearest_single(found) if kind.code is T.FLOAT else found


def _exact(random: Random, kind: ColumnType) -> Value:
    digits = str(random.getrandbits(random.randint(0, 120)))[: random.randint(1, kind.flen)].rjust(
        kind.decimal + 1, "0"
    )
    at = len(digits) - kind.decimal
    sign = random.choice(("", "-")) if digits.strip("0") else ""
    whole = digits[:at].lstrip("0") or "0"
    return f"{sign}{whole[: kind.flen - kind.decimal]}" + (f".{digits[at:]}" if kind.decimal else "")


def _text(random: Random, kind: ColumnType) -> Value:
    text = random.choice((*_TEXTS, str(random.randint(-(10**9), 10**9) / 1000)))
    text = text[: kind.flen] if kind.flen >= 0 else text
    return text.rstrip(" ") if kind.code is T.STRING else text


def _bytes(random: Random, kind: ColumnType) -> Value:
    text = random.choice([one for one in _TEXTS if one.isascii()]).encode()
    return text[:4].ljust(4, b"\0") if kind.code is T.STRING else text


def _fraction(random: Random, kind: ColumnType) -> str:
    digits = max(kind.decimal, 0)
    return (
        "." + str(random.choice((0, 5 * 10 ** (digits - 1), random.randrange(10**digits)))).zfill(digits)
        if digits
        else ""
    )


def _moment(random: Random, kind: ColumnType) -> Value:
    years = (1971, 2037) if kind.code is T.TIMESTAMP else (1000, 9998)
    date = f"{random.randint(*years):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    if kind.code is not T.TIMESTAMP and random.random() < 0.2:
        date = random.choice(("0000-00-00", date[:4] + "-00-00", date[:7] + "-00"))
    if kind.code is T.DATE:
        return date
    clock = (
        f"{random.randint(0, 23):02}:{random.choice((0, 59)):02}:{random.choice((0, 59)):02}{_fraction(random, kind)}"
    )
    return f"{date} {clock}"


def _span(random: Random, kind: ColumnType) -> Value:
    hours = random.choice((0, 10, 99, 837))
    found = f"{hours:02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}{_fraction(random, kind)}"
    return random.choice(("", "-")) + found if found.strip("0:.") else found


_MADE: Final[Mapping[Family, Callable[[Random, ColumnType], Value]]] = {
    Family.INT: _whole,
    Family.BIT: _whole,
    Family.YEAR: lambda random, _: random.choice((0, 1901, 1970, 2024, 2155)),
    Family.FLOAT: _real,
    Family.DECIMAL: _exact,
    Family.TEXT: _text,
    Family.BINARY: _bytes,
    Family.MOMENT: _moment,
    Family.SPAN: _span,
    Family.JSON: lambda random, _: random.choice(_DOCUMENTS),
    Family.ENUM: lambda random, kind: random.choice(("", *(kind.elems or ()))),
    Family.SET: lambda random, kind: ",".join(name for name in kind.elems or () if random.random() < 0.5),
}
