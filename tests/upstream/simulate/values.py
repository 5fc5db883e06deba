"""Small numbers in many clothes: 3 as INT, '3' as VARCHAR, 2020-01-04 as DATETIME, 'v3' as ENUM.

Whatever type a column has and is changed to, a value stays its number, so a model needs to know no conversions, and a
column whose change of type lost or mixed up something shows another number.
"""

from decimal import Decimal

from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.datum import JsonDatum
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import Named, SqlValue
from tidegate.schema.stored.definition import StoredColumn

NUMBERS = range(9)
NUMERIC = (
    "int",
    "bigint",
    "bigint unsigned",
    "smallint",
    "decimal(10,0)",
    "decimal(12,0)",
    "double",
    "varchar(20)",
    "varchar(40)",
    "char(12)",
    "varbinary(16)",
)
MOMENTS = ("datetime", "date", "timestamp", "datetime(3)")
LABELS = tuple(f"enum({','.join(repr(f'v{n}') for n in range(count))})" for count in (9, 10, 11))
TYPES = (*NUMERIC, *MOMENTS, *LABELS, "json")
FAMILIES = (NUMERIC, MOMENTS, LABELS)
_TEXTS = {T.VARCHAR, T.VAR_STRING, T.STRING, T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.JSON}
_DAYS = {T.DATETIME, T.DATE, T.TIMESTAMP}


def kind_of(column: StoredColumn) -> str:
    """text, moment, label or number."""
    code = T(column.type.tp)
    if code in _TEXTS:
        return "text"
    return "moment" if code in _DAYS else "label" if code is T.ENUM else "number"


def family_of(column: StoredColumn) -> tuple[str, ...]:
    """The types that the column can be changed to and keep its numbers."""
    if T(column.type.tp) is T.JSON:
        return ("json",)
    return {"moment": MOMENTS, "label": LABELS}.get(kind_of(column), NUMERIC)


def literal(kind: str, number: int | None) -> str:
    """How SQL writes a number for a column of that kind."""
    if number is None:
        return "NULL"
    forms = {"text": f"'{number}'", "moment": f"'2020-01-{number + 1:02}'", "label": f"'v{number}'"}
    return forms.get(kind, str(number))


def kind_of_type(name: str) -> str:
    """The same by the type as SQL writes it."""
    if name in MOMENTS:
        return "moment"
    return "label" if name in LABELS else "text" if "char" in name or "binary" in name or name == "json" else "number"


def number_of(value: SqlValue) -> int | None:
    """The number that a value of SELECT, or the text of a default, means."""
    match value:
        case None:
            return None
        case Named():
            return value.number - 1
        case Time():
            return value.day - 1
        case JsonDatum():
            return number_of(value.document)  # type: ignore[arg-type]
        case bytes():
            return number_of(value.decode())
        case str():
            return _of_text(value)
        case _:
            assert int(value) == value, value
            return int(value)


def _of_text(text: str) -> int:
    if text.startswith("v"):
        return int(text[1:])
    if "-" in text:
        return int(text[8:10]) - 1
    assert Decimal(text or "0") == int(Decimal(text or "0")), text
    return int(Decimal(text or "0"))


def number_of_event(column: StoredColumn, value: object) -> int | None:
    """The number that a value of a row event means; ENUMs are indexes there."""
    if value is None:
        return None
    assert isinstance(value, int | float | str | bytes), value
    return int(value) - 1 if T(column.type.tp) is T.ENUM else number_of(value)


def missing_of(column: StoredColumn) -> int | None:
    """What a row without the column shows."""
    if column.origin_default is not None:
        return number_of(column.origin_default)
    if not column.type.flag & 1:
        return None
    return -1 if kind_of(column) == "moment" else 0
