"""A column is written as its values are one by one: every kind of column, every edge of its values."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.codec.columnar_rows import array_of
from tidegate.codec import EncodeOptions, canal_encode, open_encode
from tidegate.codec.columnar.encode.cells import canal_cell, open_cell
from tidegate.codec.columnar.encode.compose import CellStep, Composer
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Value
from tidegate.model.mysql import ColumnFlag, MysqlType
from tidegate.model.table import ColumnType

MARKS = "測試驗證編碼鑿鑑"
TEXTS = [
    *("", "x", "plain text", 'quo"te', "back\\slash", "<a>&</a>", "\n\r\t\b\f\v\a\0\x1f\x7f", "\u2028\u2029 \u2027"),
    *(
        "é",
        "测试",
        "😀",
        "\u2018\u2019\u201c\u201d\u2014\u2026",
        "\ufffd",
        "\ufdd0\b\ufdd1\f",
        MARKS[0],
        f"a{MARKS[1]}b",
        "\\u003c",
        '\\"',
        "null",
        None,
    ),
]
NOT_UTF8 = ["\udce6", "a\udcb8\udcac", "ok", "\udce6\udcb8", "<\udcff>", None, "測"]
RAW = [
    *[None if text is None else text.encode() for text in TEXTS],
    *(bytes(range(256)), b"\xff\xfe", b"\xe6\xb8", b"\xb8\xac\xe6", b"\xe6\xb8\xac", b"\x80", b"\xc2\xad", b"\xc3\xa9"),
]
INTEGERS = [0, 1, -1, 127, -(1 << 63), (1 << 63) - 1, None]
LARGE = [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, None]
DOUBLES = [
    *(
        0.0,
        -0.0,
        1.0,
        -1.5,
        1e-5,
        9.999e-6,
        1e-6,
        9.9e-7,
        1e-7,
        5e-324,
        0.1,
        1 / 3,
        1e9,
        9999999999.5,
        1e10,
        123456789012.25,
    ),
    *(1e15, 1e16, 1e20, 1e21, 1.7976931348623157e308, -2.5e-10, None),
]
SINGLES = [
    0.0,
    -0.0,
    1.5,
    153.12300109863281,
    1.401298464324817e-45,
    3.4028234663852886e38,
    16777216.0,
    2.0**-20,
    0.1,
    None,
]
TIMES = [
    *(
        "2024-01-01 00:00:00",
        "2024-03-31 00:59:59.123456",
        "2024-03-31 01:00:00",
        "2024-10-27 00:59:59",
        "0000-00-00 00:00:00",
    ),
    *(
        "1970-01-01 00:00:01",
        "2038-01-19 03:14:07.999999",
        "1972-01-07 00:44:29",
        "1972-01-07 00:44:30.5",
        "0000-00-00 00:00:00.00",
        None,
    ),
]
PLAIN = [EncodeOptions(protocol="open-protocol"), EncodeOptions(protocol="canal-json")]
STYLES = [
    *PLAIN,
    EncodeOptions(protocol="open-protocol", dialect="newarch"),
    EncodeOptions(protocol="open-protocol", dialect="newarch", faults=frozenset({"raw-bytes"})),
]
ZONES = ("Asia/Shanghai", "Europe/Berlin", "America/St_Johns", "Africa/Monrovia", "Asia/Kathmandu")


def column(code: MysqlType, *, binary: bool = False, unsigned: bool = False) -> WireColumn:
    """A nullable column."""
    flag = ColumnFlag.NULLABLE | (ColumnFlag.BINARY if binary else ColumnFlag(0))
    if unsigned:
        flag |= ColumnFlag.UNSIGNED
    return WireColumn("c", ColumnType(code, unsigned=unsigned, charset="binary" if binary else "utf8mb4"), int(flag))


CELLS: list[tuple[WireColumn, list[Any]]] = [
    *[(column(code, binary=True), INTEGERS) for code in (MysqlType.LONGLONG, MysqlType.TINY, MysqlType.YEAR)],
    *[(column(code, binary=True, unsigned=True), LARGE) for code in (MysqlType.LONGLONG, MysqlType.BIT, MysqlType.SET)],
    (column(MysqlType.DOUBLE, binary=True), DOUBLES),
    (column(MysqlType.FLOAT, binary=True), SINGLES),
    *[(column(code), TEXTS) for code in (MysqlType.VARCHAR, MysqlType.STRING, MysqlType.BLOB, MysqlType.JSON)],
    *[(column(code), NOT_UTF8) for code in (MysqlType.VARCHAR, MysqlType.LONG_BLOB)],
    *[(column(code, binary=True), RAW) for code in (MysqlType.VARCHAR, MysqlType.STRING, MysqlType.BLOB)],
    (column(MysqlType.DECIMAL, binary=True), ["1.50", "-0.1", None, "0"]),
    (column(MysqlType.DATETIME, binary=True), [*TIMES, 'odd\n"time"']),
]


@pytest.mark.parametrize("style", STYLES, ids=["open", "canal", "newarch", "raw"])
@pytest.mark.parametrize("case", CELLS, ids=lambda case: f"{case[0].type.code.name}-{case[0].flag}")
@pytest.mark.parametrize("times", [1, 40], ids=["dense", "sparse"])
def test_cells(case: tuple[WireColumn, list[Any]], style: EncodeOptions, times: int) -> None:
    """A column is written as its values are one by one, be the odd ones many or few, in a slice too."""
    of, values = case
    padding = [values[1]] * (len(values) * (times - 1))
    check_cell(of, [*values, *padding], style)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("style", PLAIN, ids=["open", "canal"])
def test_time_zones(zone: str, style: EncodeOptions) -> None:
    """TIMESTAMPs move as one by one: fractions, summer time, changes within an hour, zero dates."""
    moved = EncodeOptions(protocol=style.protocol, time_zone=zone)
    check_cell(column(MysqlType.TIMESTAMP, binary=True), TIMES, moved)


def check_cell(of: WireColumn, values: list[Value], style: EncodeOptions) -> None:
    """Both forms of a column give the same JSON."""
    canal = style.protocol == "canal-json"
    cell = (canal_cell if canal else open_cell)(of, style)
    write: Callable[[Any], str]
    write = (
        canal_encode.writer(of, style.time_zone)
        if canal
        else open_encode.writer(of, open_encode.style_of(style), style.time_zone)
    )
    expected = [b"null" if value is None else write(value).encode("utf-8", "surrogateescape") for value in values]
    array = array_of(values, of)
    for start in (0, 2):
        texts = Composer([]).texts([CellStep(cell, array.slice(start))], len(values) - start)
        assert texts.to_pylist() == expected[start:]
