"""Tables and events by chance, of every type that a column can have: what the encoders are to carry.

    Kind      a column type, and what makes a value of it
    maker     tables with a primary key, a unique key alone, or no handle; rows of them, DDLs, resolved timestamps

One `random.Random` makes all choices, so that a seed tells them.
"""

import json
import random
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidegate.codec import WireTable
from tidegate.codec.values import INT_RANGES
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, RowChange, Update, Value, Values
from tidegate.model.mysql import ColumnFlag, MysqlType
from tidegate.model.table import ColumnType

Chance = random.Random
ALPHABETS: Final = (
    "abcXYZ019 _",
    "<>&\"'\\/\b\f\n\r\t\x00\x1f\x7f",
    "é測\u00ad\u2028\u2029\ufdd0\ufdd1\ufffd\U0001f600\x85",
    "".join(map(chr, range(0xDC80, 0xDD00))),
)
"""Letters; what JSON, HTML and Go escape; characters of several bytes; bytes that are not UTF-8."""
ALWAYS_UNSIGNED: Final = (MysqlType.YEAR, MysqlType.BIT)
ELEMENTS: Final = ("a", "it's", "b,c", "測", "")
DDL_TYPES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 17, 47, 61, 75)
TS_MAX: Final = (1 << 63) - 1


class Kind(NamedTuple):
    """A type of columns and what makes a value of it."""

    type: ColumnType
    make: Callable[[Chance], Value]


def text(chance: Chance, alphabets: int = 4, longest: int = 12) -> str:
    """Some characters of the first alphabets; now and then many of them."""
    count = chance.randint(0, longest) if chance.random() < 0.95 else 40 * longest
    drawn = "".join(chance.choices(chance.choice(ALPHABETS[:alphabets]), k=count))
    return drawn.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def name(chance: Chance) -> str:
    """A name, which is UTF-8 and not empty."""
    return text(chance, 3, 6) or "n"


def _integer(low: int, high: int) -> Callable[[Chance], int]:
    edges = (low, high, 0, 1, (low + high) // 2 + 1)
    return lambda chance: chance.choice(edges) if chance.random() < 0.3 else chance.randint(low, high)


def _double(chance: Chance) -> float:
    if chance.random() < 0.5:
        return chance.choice((0.0, -0.0, 1e-7, 1e-6, 1e21, 1e20, 0.1, 1.5, 3e38, -1e308, 5e-324))
    return chance.uniform(-1, 1) * 10.0 ** chance.randint(-30, 30)


def _float(chance: Chance) -> float:
    return float(struct.unpack("<f", struct.pack("<f", chance.uniform(-1, 1) * 10.0 ** chance.randint(-30, 30)))[0])


def _decimal(chance: Chance) -> str:
    return f"{chance.choice(('', '-'))}{chance.randrange(10**18)}.{chance.randrange(100):02}"


def _moment(fraction: int) -> Callable[[Chance], str]:
    def make(chance: Chance) -> str:
        if chance.random() < 0.1:
            return "0000-00-00 00:00:00" + ("." + "0" * fraction if fraction else "")
        day = f"{chance.randint(1992, 2037)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        clock = ":".join(f"{chance.randrange(most):02}" for most in (24, 60, 60))
        return f"{day} {clock}" + (f".{chance.randrange(10**fraction):0{fraction}}" if fraction else "")

    return make


def _json(chance: Chance) -> str:
    return json.dumps({text(chance, 3): [chance.randrange(9), None, text(chance, 3)]}, ensure_ascii=False)


def _kinds() -> list[Kind]:
    found = []
    for code, (low, high) in INT_RANGES.items():
        kind = MysqlType(code)
        charset = "utf8mb4" if kind in {MysqlType.ENUM, MysqlType.SET} else "binary"
        signed = low < 0
        for unsigned in (False, True) if signed else (kind in ALWAYS_UNSIGNED,):
            bounds = (0, high) if unsigned or not signed else (low, high // 2)
            elems = ELEMENTS if charset == "utf8mb4" else None
            found.append(Kind(ColumnType(kind, unsigned=unsigned, charset=charset, elems=elems), _integer(*bounds)))
    for kind in (MysqlType.VARCHAR, MysqlType.STRING):
        found.append(Kind(ColumnType(kind, 20), text))
        found.append(
            Kind(ColumnType(kind, 20, charset="binary"), lambda chance: chance.randbytes(chance.randrange(20)))
        )
    for kind in (MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB):
        found.append(Kind(ColumnType(kind), text))
        found.append(Kind(ColumnType(kind, charset="binary"), lambda chance: chance.randbytes(chance.randrange(200))))
    printed: list[tuple[MysqlType, int, int, Callable[[Chance], Value]]] = [
        (MysqlType.FLOAT, -1, -1, _float),
        (MysqlType.DOUBLE, -1, -1, _double),
        (MysqlType.DECIMAL, 20, 2, _decimal),
        (MysqlType.DATE, 10, 0, lambda chance: _moment(0)(chance)[:10]),
        (MysqlType.TIME, 10, 3, lambda chance: f"{chance.randint(-838, 838):02}:59:00.{chance.randrange(1000):03}"),
        (MysqlType.DATETIME, 26, 6, _moment(6)),
        (MysqlType.TIMESTAMP, 19, 0, _moment(0)),
        (MysqlType.TIMESTAMP, 22, 2, _moment(2)),
        (MysqlType.JSON, -1, -1, _json),
        (MysqlType.VECTOR, 2, -1, lambda chance: f"[{chance.randrange(9)},2.5]"),
    ]
    return found + [Kind(ColumnType(code, *size, charset="binary"), make) for code, *size, make in printed]


KINDS: Final = tuple(_kinds())


class Made(NamedTuple):
    """A table by chance, and what its rows hold."""

    schema: str
    name: str
    table: WireTable
    kinds: tuple[Kind, ...]
    partitioned: bool


def table(chance: Chance) -> Made:
    """A table of up to eight columns."""
    names = list(dict.fromkeys(name(chance) for _ in range(chance.randint(1, 8))))
    kinds = tuple(chance.choices(KINDS, k=len(names)))
    key = set(chance.sample(range(len(names)), chance.randint(1, min(2, len(names)))))
    primary, handle = chance.choice(((True, True), (True, True), (False, True), (False, False)))
    columns = []
    for at, (column, kind) in enumerate(zip(names, kinds, strict=True)):
        flag = ColumnFlag.BINARY if kind.type.charset == "binary" else ColumnFlag(0)
        if kind.type.unsigned:
            flag |= ColumnFlag.UNSIGNED
        if at in key and handle:
            flag |= ColumnFlag.HANDLE_KEY | (ColumnFlag.PRIMARY_KEY if primary else ColumnFlag.UNIQUE_KEY)
        else:
            flag |= ColumnFlag.NULLABLE
        columns.append(WireColumn(column, kind.type, int(flag)))
    pk_names = tuple(names[at] for at in sorted(key)) if primary else ()
    return Made(name(chance), name(chance), WireTable(tuple(columns), pk_names), kinds, chance.random() < 0.2)


def _image(made: Made, chance: Chance, like: Values | None = None) -> Values:
    """A row; some of its values are those of another one."""
    found: list[Value] = []
    for at, (column, kind) in enumerate(zip(made.table.columns, made.kinds, strict=True)):
        if like is not None and chance.random() < 0.6:
            found.append(like[at])
        else:
            null = not column.handle and chance.random() < 0.15
            found.append(None if null else kind.make(chance))
    return tuple(found)


def row(made: Made, chance: Chance) -> RowChange:
    """A change of a row."""
    shared: dict[str, Any] = {
        "schema": made.schema,
        "table": made.name,
        "fields": made.table.fields,
        "commit_ts": chance.choice((0, TS_MAX, chance.randint(0, TS_MAX))),
        "row_id": chance.choice((None, 0, -(1 << 63), chance.randint(1, TS_MAX))),
        "partition_id": chance.randint(1, TS_MAX) if made.partitioned else None,
    }
    before = _image(made, chance)
    match chance.randrange(3):
        case 0:
            return Insert(after=before, **shared)
        case 1:
            return Update(before=before, after=_image(made, chance, before), **shared)
        case _:
            return Delete(before=before, **shared)


def other(chance: Chance) -> Event:
    """A DDL or a resolved timestamp."""
    ts = chance.randint(0, TS_MAX)
    if chance.random() < 0.5:
        return Resolved(ts)
    table_name = chance.choice(("", name(chance)))
    return Ddl(
        schema=name(chance), table=table_name, query=text(chance, 3), commit_ts=ts, type=chance.choice(DDL_TYPES)
    )
