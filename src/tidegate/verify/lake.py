"""Is a lake what the source database was? A recording's truth against the lake's tables, by meaning.

    truth/7.json.gz   every table of the source at one timestamp: key, columns, rows of tagged values
    the lake at ts    Arrow tables
                      -> both sides become plain values -> rows meet by key -> differences

    MySQL type                       truth               lake                        compared as
    integers, BIT, YEAR              {"i"} or {"u"}      int or decimal of scale 0   int
    DECIMAL                          {"s"}               decimal or string           text with its scale
    FLOAT, DOUBLE                    {"f32"}, {"f64"}    float, double               the exact number
    DATE, DATETIME, TIMESTAMP        {"s"}               date, timestamp or string   text with fsp digits, UTC
    ENUM, SET                        {"u","s"}           string                      names, in definition order
    TIME, JSON, CHAR, TEXT           {"s"}               string                      text
    BINARY, BLOB                     {"b"}               binary                      bytes

A lake of mode changelog or history is asked for the state at the truth's ts: its changes folded, its versions of then.

Left out: views, VIRTUAL generated columns (no message carries them).  A zero date cannot be a DATE; in a column of type
date or timestamp it must be NULL.  Names of tables and columns compare without case.  Pure but for `load_truth`.

Source: the recordings' README.
"""

import base64
import calendar
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered

if TYPE_CHECKING:
    import pyarrow as pa

ReadTable = Callable[[str], "pa.Table"]
Cell = dict[str, int | float | str] | None
Plain = int | float | str | bytes | None
Key = tuple[Plain, ...]


class TruthColumn(msgspec.Struct, frozen=True):
    """A column as information_schema tells it."""

    name: str
    type: str
    nullable: bool = True
    generated: str = ""


class TruthTable(msgspec.Struct, frozen=True):
    """A table at one moment. `key` is empty for a table without a primary key or unique NOT NULL key."""

    key: tuple[str, ...]
    columns: tuple[TruthColumn, ...]
    rows: list[tuple[Cell, ...]]
    partitioned: bool = False


class Truth(msgspec.Struct, frozen=True):
    """The source database at `ts`."""

    n: int
    ts: int
    tables: dict[str, TruthTable]
    after: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where lake and truth disagree. `key` is empty for a difference of whole tables or columns."""

    kind: str
    key: Key = ()
    column: str = ""
    expected: object = None
    found: object = None

    def __str__(self) -> str:
        """One line for people."""
        key = ", ".join(map(repr, self.key))
        match self.kind:
            case "value":
                return f"row ({key}) column {self.column}: expected {self.expected!r}, found {self.found!r}"
            case "missing row" | "extra row" | "repeated row":
                return f"{self.kind} ({key})"
            case "missing column" | "extra column":
                return f"{self.kind} {self.column}"
            case _:
                return self.kind


@dataclass(frozen=True, slots=True)
class TableReport:
    """The comparison of one table."""

    name: str
    rows: int
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """True when nothing differs."""
        return not self.differences


def load_truth(recording: str | Path) -> list[Truth]:
    """Return all moments of a recording, by time. `recording` holds truth/N.json.gz, or is that directory itself."""
    base = Path(recording)
    where = base / "truth" if (base / "truth").is_dir() else base
    paths = sorted((*where.glob("[0-9]*.json.gz"), *where.glob("[0-9]*.json")))
    if not paths:
        raise ConfigError(f"{base} has no truth/N.json.gz: it is not a recording")
    return sorted((_read_truth(path) for path in paths), key=lambda truth: truth.ts)


def _read_truth(path: Path) -> Truth:
    try:
        data = path.read_bytes()
        return msgspec.json.decode(gzip.decompress(data) if path.suffix == ".gz" else data, type=Truth)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a truth: {error}") from error


def compare_tables(truth: Truth, names: Sequence[str], read_table: ReadTable) -> Iterator[TableReport]:
    """Return a report for each table of the truth, then for each table that only the lake has."""
    in_lake = {lowered(name): name for name in names}
    for name in sorted(truth.tables):
        expected = truth.tables[name]
        found = in_lake.pop(lowered(name), None)
        differences = [Difference("missing table")]
        if found is not None:
            differences = compare(expected, table_at(expected.key, truth.ts, read_table(found)))
        yield TableReport(name, len(expected.rows), tuple(differences))
    for name in sorted(in_lake.values()):
        yield TableReport(name, 0, (Difference("extra table"),))


def table_at(key: Sequence[str], ts: int, lake: "pa.Table") -> "pa.Table":
    """Return the rows of a lake's table with this key at `ts`, whatever the lake's mode."""
    from tidegate.sink.delta.mode_steps import state_at

    folded = {lowered(name) for name in key}
    return state_at(lake, [name for name in lake.column_names if lowered(name) in folded], ts)


def compare(truth: TruthTable, lake: "pa.Table") -> list[Difference]:
    """Return everything in which the lake's table differs from the truth, columns first, then rows in the truth's
    order."""
    virtual = {lowered(column.name) for column in truth.columns if column.generated == "virtual"}
    columns = [column for column in truth.columns if lowered(column.name) not in virtual]
    at = {lowered(name): place for place, name in enumerate(lake.column_names)}
    wanted = {lowered(column.name) for column in columns}
    out = [Difference("missing column", column=column.name) for column in columns if lowered(column.name) not in at]
    out += [
        Difference("extra column", column=name)
        for name in lake.column_names
        if lowered(name) not in wanted and lowered(name) not in virtual
    ]
    shared = [column for column in columns if lowered(column.name) in at]
    expected = _truth_rows(truth, shared, lake, at)
    found = zip(*(lake_values(column, lake.column(at[lowered(column.name)])) for column in shared), strict=True)
    return out + compare_rows(shared, truth.key, expected, found)


def compare_rows(
    columns: Sequence[TruthColumn], key: Sequence[str], expected: Iterable[Key], found: Iterable[Key]
) -> list[Difference]:
    """Return in which rows of these columns two sides differ; nothing where a column of the key is not among them."""
    in_key = {lowered(name) for name in key}
    places = [place for place, column in enumerate(columns) if lowered(column.name) in in_key]
    if len(places) < len(key):
        return []
    return _by_key(columns, places, expected, found) if places else _as_bags(expected, found)


def _by_key(
    columns: Sequence[TruthColumn], key: Sequence[int], expected: Iterable[Key], found: Iterable[Key]
) -> list[Difference]:
    out: list[Difference] = []
    lake: dict[Key, Key] = {}
    for row in found:
        mine = tuple(row[place] for place in key)
        if mine in lake:
            out.append(Difference("repeated row", mine))
        lake[mine] = row
    for want in expected:
        mine = tuple(want[place] for place in key)
        have = lake.pop(mine, None)
        if have is None:
            out.append(Difference("missing row", mine))
        elif have != want:
            out += [
                Difference("value", mine, column.name, a, b)
                for column, a, b in zip(columns, want, have, strict=True)
                if a != b
            ]
    return out + [Difference("extra row", mine) for mine in lake]


def _as_bags(expected: Iterable[Key], found: Iterable[Key]) -> list[Difference]:
    """Rows of a table without a key: each as often as the other side has it."""
    want, have = Counter(expected), Counter(found)
    missing = [Difference("missing row", row) for row in (want - have).elements()]
    return missing + [Difference("extra row", row) for row in (have - want).elements()]


# Values of the truth.


def _truth_rows(
    truth: TruthTable, columns: Sequence[TruthColumn], lake: "pa.Table", at: dict[str, int]
) -> Iterator[Key]:
    import pyarrow as pa

    places = [truth.columns.index(column) for column in columns]
    types = [lake.schema.types[at[lowered(column.name)]] for column in columns]
    dates = [pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in types]
    for row in truth.rows:
        yield tuple(truth_value(row[place], as_date=as_date) for place, as_date in zip(places, dates, strict=True))


def truth_value(cell: Cell, *, as_date: bool) -> Plain:
    """Return a cell as a plain value; with `as_date` a day that no calendar has as None."""
    match cell:
        case None:
            return None
        case {"b": str(text)}:
            return base64.b64decode(text)
        case {"f32": float() | int() as number} | {"f64": float() | int() as number}:
            return float(number)
        case {"s": str(text)}:
            return None if as_date and not is_date(text) else text
        case {"i": int(number)} | {"u": int(number)}:
            return number
        case _:
            raise ConfigError(f"the truth holds a value of unknown form: {cell!r}")


_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def is_date(text: str) -> bool:
    """Return whether the day stands in the calendar: zero dates, zero parts and February 30 do not."""
    found = _DATE.match(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    return year > 0 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]


# Values of the lake.

_FSP: Final = re.compile(r"(?:datetime|timestamp)\((\d)\)", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def lake_values(column: TruthColumn, values: "pa.ChunkedArray") -> list[Plain]:
    """Return one column of the lake as plain values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_timestamp(kind):
        found = _FSP.match(column.type)
        fsp = int(found[1]) if found else 0
        micros = pc.cast(values, pa.timestamp("us", kind.tz)).cast(pa.int64())
        return [None if us is None else _moment(us, fsp) for us in micros.to_pylist()]
    if pa.types.is_date(kind):
        return [None if days is None else _day(days) for days in values.cast(pa.date32()).cast(pa.int32()).to_pylist()]
    if pa.types.is_decimal(kind):
        whole = not column.type.lower().startswith(("decimal", "numeric"))
        return [None if number is None else _decimal(number, whole=whole) for number in values.to_pylist()]
    plain: list[Plain] = values.to_pylist()
    return plain


def _moment(us: int, fsp: int) -> str:
    """A timestamp as text with `fsp` digits; with all six when there is more than the type can hold."""
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return f"{us} us from 1970"
    digits = f"{moment.microsecond:06d}"
    if digits[fsp:].strip("0"):
        fsp = 6
    fraction = f".{digits[:fsp]}" if fsp else ""
    return f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}{fraction}"


def _day(days: int) -> str:
    try:
        return date.fromordinal(_EPOCH.toordinal() + days).isoformat()
    except (OverflowError, ValueError):
        return f"{days} days from 1970"


def _decimal(number: Decimal, *, whole: bool) -> Plain:
    if whole and number == number.to_integral_value():
        return int(number)
    return f"{number:f}"
