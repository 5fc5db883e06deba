"""Row changes as rows of a CHANGES table: one row an image, typed like the table.

    change                      rows of the log
    INSERT                      insert
    UPDATE                      update_preimage, update_postimage
    UPDATE without old value    update_postimage                         (a topic without old values)
    DELETE                      delete                                   (perhaps only the key, as the topic has it)
    a DDL removes a row         delete at (ts of the DDL, its number)    TRUNCATE, DROP or EXCHANGE PARTITION
    a DDL brings a row          insert at (ts of the DDL, its number)    EXCHANGE PARTITION

    key 7    ts 20 insert ──► ts 31 update_preimage │ update_postimage ──► ts 40 delete

Within a ts a key leaves once and comes once, so repeats of the topic are told by (ts, key, leaves or comes).  A repeat
may be split otherwise (UPDATE here, DELETE and INSERT there): then the UPDATE is kept.  Without a key all columns
together take its place.  What `folded` gives is what upstream holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.change import Chunk
from tidegate.engine.plan import Position
from tidegate.model.table import TableInfo
from tidegate.model.tso import LOGICAL_BITS
from tidegate.sink.delta.columns import LakeColumn, logical_key
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.images import ImageReader, Side
from tidegate.sink.delta.modes import CHANGE_SEQ, CHANGE_TIME, CHANGE_TS, CHANGE_TYPE, OWN_COLUMNS
from tidegate.sink.delta.options import DeltaOptions

COMES: Final = ("insert", "update_postimage")
NUMBER: Final = "_tidegate_number"
IMAGES: Final[Mapping[str, tuple[str, Side]]] = {
    "update_preimage": ("U", "before"),
    "update_postimage": ("U", "after"),
    "delete": ("D", "before"),
    "insert": ("I", "after"),
}
"""What each type of change is an image of.  Of repeats of one change the first named here is kept."""


def row_columns(columns: Sequence[LakeColumn]) -> tuple[LakeColumn, ...]:
    """Return the columns that the upstream has, without ours."""
    return tuple(column for column in columns if column.upstream_id >= 0)


def change_columns(columns: Sequence[LakeColumn]) -> tuple[LakeColumn, ...]:
    """Return the columns that a log of changes of these rows has."""
    own = (LakeColumn(name, delta, 0, upstream, name) for name, delta, upstream in OWN_COLUMNS["CHANGES"])
    return (*row_columns(columns), *own)


def change_rows(
    chunks: Iterable[Chunk],
    table: TableInfo,
    columns: Sequence[LakeColumn],
    options: DeltaOptions,
    *,
    leaving: Sequence[LakeColumn] | None = None,
    numbered: bool = False,
) -> pa.Table:
    """Return the images of row changes in order of time, each once.

    Of rows that leave only the columns `leaving` are read, the others are NULL. With `numbered` a column NUMBER tells
    which images are of one change."""
    data = row_columns(columns)
    found: dict[str, list[pa.Table]] = {kind: [] for kind in IMAGES}
    before = 0
    for chunk in chunks:
        for batch, _ in chunk.parts:
            reader = ImageReader(batch, table, options)
            for kind, (op, side) in IMAGES.items():
                some = reader.rows(op)
                if some.any():
                    rows = reader.read(side, some, data if kind in COMES or leaving is None else leaving)
                    rows = stamped(_widened(rows, data), kind, reader.commit_ts(some))
                    found[kind].append(_numbered(rows, before + np.flatnonzero(some)) if numbered else rows)
            before += batch.rows
    nothing = logical_schema(change_columns(columns)).empty_table()
    nothing = _numbered(nothing, np.empty(0, np.int64)) if numbered else nothing
    parts = [nothing, *(one for kind in IMAGES for one in found[kind])]
    key = logical_key(table, data)
    told = bool(key) and len(key) == len(table.handle_key)
    return _once(pa.concat_tables(parts), key if told else [column.name for column in data])


def _numbered(images: pa.Table, numbers: Any) -> pa.Table:
    return images.append_column(NUMBER, pa.array(numbers))


def moved_rows(rows: pa.Table, kind: str, at: Position) -> pa.Table:
    """Return rows that a DDL brought (`insert`) or removed (`delete`), as images of the log."""
    return stamped(rows, kind, pa.repeat(pa.scalar(at[0], pa.int64()), rows.num_rows), at[1])


def stamped(rows: pa.Table, kind: str, commit_ts: Any, seq: int = 0) -> pa.Table:
    """Return rows as images of a log: with the columns of ours behind them."""
    ms = pc.shift_right(commit_ts, LOGICAL_BITS)
    values = {
        CHANGE_TYPE: pa.repeat(kind, rows.num_rows),
        CHANGE_TS: commit_ts,
        CHANGE_SEQ: pa.repeat(pa.scalar(seq, pa.int32()), rows.num_rows),
        CHANGE_TIME: ms.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    }
    for name, array in values.items():
        rows = rows.append_column(name, array)
    return rows


def folded(log: pa.Table, key: Sequence[str], upto: int | None = None) -> pa.Table:
    """Return the rows that exist after the changes of a log, those above `upto` left out; without the columns of ours.

    Without a key, a row exists as often as it came more than it left."""
    if upto is not None:
        log = log.filter(pc.less_equal(log.column(CHANGE_TS), upto))
    return log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]]).take(pa.array(standing(log, key)))


def standing(log: pa.Table, key: Sequence[str]) -> Any:
    """Return the numbers, ascending, of the images that are the rows of now; of a log with a key the columns of the
    key and those of ours are enough."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    if not key:
        return counted(log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]]), comes)
    place = _order(log, comes)
    rank = np.empty(log.num_rows, np.int64)
    rank[place] = np.arange(log.num_rows)
    ranked = log.select(list(key)).append_column("_nth", pa.array(rank))
    last = ranked.group_by(list(key)).aggregate([("_nth", "max")]).column("_nth_max").to_numpy()
    winners = np.sort(place[last])
    return winners[comes.to_numpy()[winners]]


def _order(log: pa.Table, comes: Any) -> Any:
    """The numbers of the images in order of time, old images before new ones."""
    ordered = log.select([CHANGE_TS, CHANGE_SEQ]).append_column("_comes", pc.cast(comes, pa.int8()))
    keys = [(CHANGE_TS, "ascending"), (CHANGE_SEQ, "ascending"), ("_comes", "ascending")]
    return pc.sort_indices(ordered, sort_keys=keys).to_numpy().astype(np.int64)


def counted(rows: pa.Table, comes: Any) -> Any:
    """Return the numbers, ascending, of rows that came more often than they left, one for each time more."""
    signed = rows.append_column("_sign", pc.if_else(comes, 1, -1))
    signed = signed.append_column("_at", pa.array(np.arange(rows.num_rows)))
    counts = signed.group_by(rows.column_names).aggregate([("_sign", "sum"), ("_at", "min")])
    times = np.maximum(counts.column("_sign_sum").to_numpy(), 0)
    return np.sort(np.repeat(counts.column("_at_min").to_numpy(), times))


def _widened(rows: pa.Table, columns: Sequence[LakeColumn]) -> pa.Table:
    """The rows with all `columns`, NULL where they have none."""
    have = dict(zip(rows.column_names, rows.columns, strict=True))
    schema = logical_schema(columns)
    return pa.table([have.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in schema], schema=schema)


def _once(log: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The images in order of time, of those with one identity that leave or come at one ts the first."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    marked = log.select([CHANGE_TS, *identity]).append_column("_comes", comes)
    marked = marked.append_column("_at", pa.array(np.arange(log.num_rows)))
    first = marked.group_by([CHANGE_TS, *identity, "_comes"]).aggregate([("_at", "min")]).column("_at_min")
    kept = np.sort(first.to_numpy())
    narrow = log.select([CHANGE_TS, CHANGE_SEQ]).take(pa.array(kept))
    return log.take(pa.array(kept[_order(narrow, comes.take(pa.array(kept)))]))
