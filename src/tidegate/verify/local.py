"""Readers of local rows: a lake at one timestamp, or a recorded state.

    lake at ts         the snapshot of exactly that ts, else a live view: the previous snapshot and changes up to ts
    truth/7.json.gz    every table of the source at one timestamp: key, columns, rows of tagged values

    MySQL type                       recording           lake                        compared as
    integers, BIT, YEAR              {"i"} or {"u"}      int or decimal of scale 0   int
    DECIMAL                          {"s"}               decimal or string           text with its scale
    FLOAT, DOUBLE                    {"f32"}, {"f64"}    float, double               the exact number
    DATE, DATETIME, TIMESTAMP        {"s"}               date, timestamp or string   text with fsp digits, UTC
    ENUM, SET                        {"u","s"}           string                      names, in definition order
    TIME, JSON, CHAR, TEXT           {"s"}               string                      text
    BINARY, BLOB                     {"b"}               binary                      bytes

A lake of mode changelog or history is read as its state at the ts: its changes folded, its versions valid then.  A zero
date cannot be a DATE; in a column of type date or timestamp it must be NULL.  Recordings have no views.  A lake is read
file by file; only of mode changelog all changes of a table are in memory, since they are folded.

Source: the recordings' README.
"""

import base64
import bisect
import gzip
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.lakes.read import NOTHING, LakeRows, rows_in_parts, stored_table
from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered, parts_of
from tidegate.model.table import TableName
from tidegate.objectstore.deltalog import TableSnapshot
from tidegate.verify.compare import (
    BatchReader,
    Columns,
    ComparedTable,
    Key,
    Part,
    Passes,
    Plain,
    RowReader,
    RowsAt,
    TableReport,
    TruthColumn,
    Watch,
    compare_sides,
    shape_of_table,
)
from tidegate.verify.sums import ChunkPlan, ChunkSums, plain_column

if TYPE_CHECKING:
    from tidegate.lakes.lake import Lake
    from tidegate.lakes.live import Live
    from tidegate.sink.delta.columns import LakeColumn
    from tidegate.sink.delta.options import DeltaOptions

Cell = dict[str, int | float | str] | None
ReadTable = Callable[[str], pa.Table]
ReadRows = Callable[[str], LakeRows]


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


def load_truth(recording: str | Path) -> list[Truth]:
    """Return all moments of a recording, by time. `recording` holds truth/N.json.gz, or is that directory itself."""
    base = Path(recording)
    where = base / "truth" if (base / "truth").is_dir() else base
    paths = sorted((*where.glob("[0-9]*.json.gz"), *where.glob("[0-9]*.json")))
    if not paths:
        raise ConfigError(f"{base} has no truth/N.json.gz: it is not a recording")
    truths = []
    for path in paths:
        try:
            data = path.read_bytes()
            truths.append(msgspec.json.decode(gzip.decompress(data) if path.suffix == ".gz" else data, type=Truth))
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            raise ConfigError(f"{path} cannot be read as a truth: {error}") from error
    return sorted(truths, key=lambda truth: truth.ts)


def choose_truth(truths: Sequence[Truth], moment: str, checkpoint_ts: int) -> Truth:
    """Return the moment that `moment` names (`latest`, its number, its timestamp); latest is the last one that the lake
    has reached."""
    if moment == "latest":
        reached = bisect.bisect_right([truth.ts for truth in truths], checkpoint_ts)
        if not reached:
            raise ConfigError(
                f"the lake is complete up to {checkpoint_ts}, before the recording's first moment {truths[0].ts}"
            )
        return truths[reached - 1]
    matches = [truth for truth in truths if moment in {str(truth.n), str(truth.ts)}]
    if not matches:
        points = ", ".join(f"{truth.n} ({truth.ts})" for truth in truths)
        raise ConfigError(f"the recording knows no moment {moment!r}; it has {points}")
    if matches[0].ts > checkpoint_ts:
        raise ConfigError(f"the lake is complete only up to {checkpoint_ts}, before moment {moment} ({matches[0].ts})")
    return matches[0]


# Readers.


class RecordingReader(RowReader):
    """The tables of a recorded moment that pass."""

    verbatim = True

    def __init__(self, label: str, truth: Truth, passes: Passes = lambda *_: True) -> None:
        self.label = label
        self._truths = {lowered(name): table for name, table in truth.tables.items() if passes(*parts_of(name))}
        self.tables = {
            lowered(name): ComparedTable(name, table.key, table.columns, has_key=bool(table.key))
            for name, table in truth.tables.items()
            if lowered(name) in self._truths
        }

    def shape_of(self, name: str) -> ComparedTable | None:
        """Return a table; None for one that was not recorded."""
        return self.tables.get(lowered(name))

    def count(self, shape: ComparedTable) -> int:
        return len(self._truths[lowered(shape.name)].rows)

    def all_rows(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Key]:
        table = self._truths[lowered(shape.name)]
        indices = [table.columns.index(column) for column in shape.chosen(plan.columns)]
        return (tuple(truth_value(row[index]) for index in indices) for row in table.rows)


class LakeReader(BatchReader):
    """Tables read as Arrow, as of `ts`, or for None as stored.

    `shape_of` returns the key and types of a table, None if it is not compared; `keeps` tells if a column of a table is
    stored. `stored` returns the version of a table that holds just these rows, if there is one."""

    verbatim = True

    def __init__(
        self,
        label: str,
        ts: int | None,
        names: Iterable[str],
        read: ReadRows,
        *,
        shape_of: Callable[[str], ComparedTable | None],
        keeps: Callable[[TableName, str], bool] = lambda *_: True,
        stored: Callable[[str], TableSnapshot] | None = None,
    ) -> None:
        self.label = label
        self._stored, self.whole = stored, "" if stored else "landed changes are put over its snapshot in one process"
        self._ts, self._read, self._shape_of, self._keeps = ts, lru_cache(1)(read), shape_of, keeps
        self.tables = _LazyTables({lowered(name): name for name in names}, self._shape)

    def aligned(self, expected: ComparedTable) -> ComparedTable:
        keeps = partial(self._keeps, TableName(*parts_of(expected.name)))
        columns = tuple(column for column in expected.columns if keeps(column.name))
        return replace(expected, columns=columns) if columns != expected.columns else expected

    def count(self, shape: ComparedTable) -> int:
        return self._read(shape.name).stored

    def calendar(self, shape: ComparedTable) -> frozenset[str]:
        schema = self._read(shape.name).schema
        return frozenset(
            lowered(field.name) for field in schema if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)
        )

    def parts(self, shape: ComparedTable, count: int) -> Sequence[Part]:
        if self._stored is None or self._is_folded(shape):
            return ()
        table = self._stored(shape.name)
        paths = [file.path for file in table.files()]
        shares = (frozenset(paths[first::count]) for first in range(min(count, len(paths))))
        return [_SomeFiles(table.uri, table.version, share, self._ts) for share in shares]

    def batches(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[tuple[Columns, RowsAt]]:
        columns = shape.chosen(plan.columns)
        for part in self._parts(shape):
            by_name = {lowered(name): name for name in part.column_names}
            chosen = part.select([by_name[lowered(column.name)] for column in columns])
            for batch in chosen.to_batches(max_chunksize=BATCH_ROWS):
                texts = [lake_texts(*both) for both in zip(columns, batch.columns, strict=True)]
                yield texts, partial(lake_rows, columns, batch)

    def _shape(self, name: str) -> ComparedTable:
        shape = self._shape_of(name)
        if shape is None:
            return ComparedTable(name, (), ())
        stored = self._state(shape, self._read(name).schema.empty_table())
        names = {lowered(name) for name in stored.column_names}
        virtual = [
            column for column in shape.columns if column.generated == "virtual" and lowered(column.name) not in names
        ]
        by_name = {lowered(column.name): column for column in shape.columns}
        columns = [by_name.get(lowered(name), TruthColumn(name, "")) for name in stored.column_names]
        return ComparedTable(name, shape.key, (*columns, *virtual), shape.is_whole, shape.has_key)

    def _is_folded(self, shape: ComparedTable) -> bool:
        from tidegate.sink.delta.options import CHANGE_TYPE, OP

        return self._ts is not None and not {CHANGE_TYPE, OP}.isdisjoint(self._read(shape.name).schema.names)

    def _parts(self, shape: ComparedTable) -> Iterator[pa.Table]:
        rows = self._read(shape.name)
        parts = rows.parts()
        if self._is_folded(shape):
            parts = [pa.concat_tables([rows.schema.empty_table(), *parts])]
        return (self._state(shape, part) for part in parts)

    def _state(self, shape: ComparedTable, part: pa.Table) -> pa.Table:
        return part if self._ts is None else table_at(shape.key, self._ts, part, self._read(shape.name).columns)


@dataclass(frozen=True, slots=True)
class _SomeFiles:
    """The data files at some paths of a stored table."""

    uri: str
    version: int
    paths: Collection[str]
    ts: int | None

    def __call__(self, shape: ComparedTable, plan: ChunkPlan, watch: Watch) -> ChunkSums:
        rows = rows_in_parts(stored_table(self.uri, self.version, shape.name), NOTHING, only=self.paths)
        reader = LakeReader(self.uri, self.ts, [shape.name], lambda _: rows, shape_of=lambda _: shape)
        return reader.sums(shape, plan, watch)


def lake_rows(columns: Sequence[TruthColumn], batch: pa.RecordBatch, indices: Any) -> Iterator[Key]:
    """Return the rows of a batch of the lake at some indices."""
    values = batch.take(pa.array(indices)).columns
    return zip(*(lake_values(*both) for both in zip(columns, values, strict=True)), strict=True)


class _LazyTables(Mapping[str, ComparedTable]):
    """Tables whose columns are read on access."""

    def __init__(self, names: Mapping[str, str], read: Callable[[str], ComparedTable]) -> None:
        self._names, self._read = names, read

    def __getitem__(self, name: str) -> ComparedTable:
        return self._read(self._names[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def table_at(key: Sequence[str], ts: int, lake: "pa.Table", columns: "Sequence[LakeColumn]" = ()) -> "pa.Table":
    """Return the rows of a lake's table with this key at `ts`, whatever the lake's mode."""
    from tidegate.sink.delta.apply import state_at

    folded = {lowered(name) for name in key}
    return state_at(lake, [name for name in lake.column_names if lowered(name) in folded], ts, columns)


class Recording(NamedTuple):
    """The moments of a recording, by time."""

    label: str
    truths: Sequence[Truth]

    def named(self, moment: str) -> str:
        """Return the timestamp, as text, of the moment with this number; other text is returned unchanged."""
        return next((str(truth.ts) for truth in self.truths if str(truth.n) == moment), moment)

    def at(self, ts: int, passes: Passes) -> RecordingReader:
        """Return the tables at `ts`. Raises ConfigError if there is no such moment."""
        truth = next((truth for truth in self.truths if truth.ts == ts), None)
        if truth is None:
            points = ", ".join(f"{truth.ts}" for truth in self.truths)
            raise ConfigError(f"the recording {self.label} has no moment {ts}; it has {points}")
        return RecordingReader(self.label, truth, passes)


@contextmanager
def lake_at(root: str, ts: int | None, passes: Passes) -> Iterator[tuple[LakeReader, int]]:
    """Open the tables of a lake at exactly `ts`, or at its newest snapshot; yield them and the timestamp. Raises
    ConfigError or HistoryLost if the lake cannot show that moment."""
    from tidegate.lakes.lake import Lake

    lake = Lake(root) if ts is None else Lake(root).at(ts)
    if ts is None or lake.checkpoint_ts == ts:
        options = lake.snapshot.options or lake.options
        yield _lake_reader(root, lake, options, passes, _rows_in(lake), stored=lake.stored), lake.checkpoint_ts
        return
    with lake.live() as view:
        read = lambda name: rows_in_parts(*view.pieces(name))  # noqa: E731
        yield _lake_reader(root, view, view.options, passes, read), ts


def _rows_in(lake: "Lake") -> ReadRows:
    return lambda name: rows_in_parts(lake.stored(name), NOTHING)


def _lake_reader(
    root: str,
    view: "Lake | Live",
    options: "DeltaOptions",
    passes: Passes,
    read: ReadRows,
    *,
    stored: Callable[[str], TableSnapshot] | None = None,
) -> LakeReader:
    from tidegate.sink.delta.options import stored_definition

    names = [name for name in view.tables() if passes(*parts_of(name))]

    def shape_of(name: str) -> ComparedTable:
        table = view.definition(name)
        kept = stored_definition(table, options).columns
        return replace(shape_of_table(table, kept), is_whole=len(kept) == len(table.columns))

    keeps = _keeps(options)
    return LakeReader(root, view.checkpoint_ts, names, read, shape_of=shape_of, keeps=keeps, stored=stored)


def _keeps(options: "DeltaOptions") -> Callable[[TableName, str], bool]:
    from tidegate.sink.delta.options import selectors_of

    return selectors_of(options).keeps


def lake_beside(
    root: str, truths: Sequence[Truth], moment: str, passes: Passes = lambda *_: True
) -> tuple[Truth, RecordingReader, LakeReader]:
    """Return a recorded moment, its tables and those of the lake then: at the snapshot of that timestamp, or at the
    newest one for the last moment, after which nothing is recorded. Raises ConfigError if there is no such snapshot."""
    from tidegate.lakes.lake import Lake

    lake = Lake(root)
    truth = choose_truth(truths, moment, lake.checkpoint_ts)
    newest = truth is truths[-1]
    snapshot = lake if newest else lake.at(truth.ts)
    if not newest and snapshot.checkpoint_ts != truth.ts:
        raise ConfigError(
            f"the lake has no snapshot at moment {truth.n} ({truth.ts}), the nearest before it is at "
            f"{snapshot.checkpoint_ts}: run the feed with --until {truth.ts}, or verify the last moment"
        )
    recorded = RecordingReader("the recording", truth, passes)
    names = [name for name in snapshot.tables() if passes(*parts_of(name))]
    keeps = _keeps(snapshot.snapshot.options or snapshot.options)
    read, shape_of = _rows_in(snapshot), recorded.shape_of
    reader = LakeReader(root, truth.ts, names, read, shape_of=shape_of, keeps=keeps, stored=snapshot.stored)
    return truth, recorded, reader


def compare_tables(truth: Truth, names: Iterable[str], read_table: ReadTable) -> Iterator[TableReport]:
    """Return a report for each table of the truth, then for each of `names` that only the lake has."""
    recorded = RecordingReader("the recording", truth)
    stored = LakeReader("the lake", truth.ts, names, in_memory(read_table), shape_of=recorded.shape_of)
    return compare_sides(recorded, stored)


def in_memory(read_table: ReadTable) -> ReadRows:
    """Return what reads the rows of whole tables."""

    def read(name: str) -> LakeRows:
        table = read_table(name)
        return LakeRows(table.schema, table.num_rows, lambda: [table])

    return read


# Values.


def truth_value(cell: Cell) -> Plain:
    """Return a cell as a plain value."""
    match cell:
        case None:
            return None
        case {"b": str(text)}:
            return base64.b64decode(text)
        case {"f32": float() | int() as number} | {"f64": float() | int() as number}:
            return float(number)
        case {"s": str(text)}:
            return text
        case {"i": int(number)} | {"u": int(number)}:
            return number
        case _:
            raise ConfigError(f"the truth holds a value of unknown form: {cell!r}")


DECIMALS: Final = ("decimal", "numeric")
BATCH_ROWS: Final = 65_536
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""From year 1 to 9999."""
_FSP: Final = re.compile(r"(?:datetime|timestamp)\((\d)\)", re.IGNORECASE)


def lake_texts(column: TruthColumn, values: pa.Array) -> pa.Array:
    """Return a column of the lake as texts, bytes or floats: `lake_values` without a Python object per value."""
    from tidegate.sink.delta.columns import time_texts

    kind = values.type
    if pa.types.is_timestamp(kind):
        fsp = _fsp(column)
        microseconds = pc.cast(pc.cast(values, pa.timestamp("us", kind.tz)), pa.int64()).fill_null(0).to_numpy()
        years = len(microseconds) and (microseconds.min() < _FIRST_US or microseconds.max() > _LAST_US)
        if years or (microseconds % 10 ** (6 - fsp)).any():
            return plain_column(lake_values(column, values))
        return time_texts(values, fsp=fsp)
    if pa.types.is_decimal(kind) and kind.scale:
        is_decimal = column.type.lower().startswith(DECIMALS)
        return _decimal_texts(values) if is_decimal else plain_column(lake_values(column, values))
    is_text = pa.types.is_floating(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return values if is_text else pc.cast(values, pa.string())


def _decimal_texts(values: pa.Array) -> pa.Array:
    """Decimals with all their digits: Arrow writes small ones with an exponent."""
    scale = values.type.scale
    if scale <= 6:
        return pc.cast(values, pa.string())
    whole = pa.decimal128(values.type.precision, 0)
    digits = pc.cast(pa.Array.from_buffers(whole, len(values), values.buffers(), offset=values.offset), pa.string())
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    units, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(sign, pc.binary_join_element_wise(units, fraction, "."), "")


def lake_values(column: TruthColumn, values: pa.Array) -> list[Plain]:
    """Return a column of the lake as plain values."""
    from tidegate.sink.delta.columns import time_texts

    kind = values.type
    if pa.types.is_timestamp(kind):
        fsp = _fsp(column)
        return [None if text is None else _moment(text, fsp) for text in time_texts(values).to_pylist()]
    if pa.types.is_decimal(kind):
        whole = not column.type.lower().startswith(DECIMALS)
        return [None if number is None else _decimal(number, whole=whole) for number in values.to_pylist()]
    plain: list[Plain] = time_texts(values).to_pylist()
    return plain


def _fsp(column: TruthColumn) -> int:
    match = _FSP.match(column.type)
    return int(match[1]) if match else 0


def _moment(text: str, fsp: int) -> str:
    """Return a timestamp as text with `fsp` digits; with all six if it has more than the type can hold."""
    if text.startswith("<"):  # <value out of range: N>, as Arrow writes years of more than five digits
        return f"{text.rpartition(' ')[2][:-1]} us from 1970"
    whole, _, digits = text.partition(".")
    fraction = digits if digits[fsp:].strip("0") else digits[:fsp]
    return f"{whole}.{fraction}" if fraction else whole


def _decimal(number: Decimal, *, whole: bool) -> Plain:
    if whole and number == number.to_integral_value():
        return int(number)
    return f"{number:f}"
