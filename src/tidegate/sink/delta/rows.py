"""Row changes of one table as Arrow tables to merge or append, by the table's form.

**ROWS**: one change per key.  Changes are ordered by commit_ts, within a transaction all old rows before all new rows,
and the last change of a key wins; so replays and duplicates disappear.

**LOG**, for a table without a key: every change, with its operation, commit_ts and old image.

    id   v   _tidegate_op   _tidegate_commit_ts   _tidegate_before
    5    a   I              20                    NULL
    5    b   U              30                    {"c1":"5","c2":"a"}         5, a became 5, b
    6    b   U              40                    NULL                        the source sent no old image

`_tidegate_before` is a JSON object of physical column names and values as text, bytes as hexadecimal digits, without
the NULLs.  Physical names survive renames and are never reused, so a DDL that leaves data files alone leaves these
texts alone, too.  Separate rows for old images would be counted by readers that count changes.  `unfolded` gives the
log with a row of operation OLD for each old image; DDLs use it to remove rows.

**CHANGES**: one row per image, typed like the table.

    change                      rows of the log
    INSERT                      insert
    UPDATE                      update_preimage, update_postimage
    UPDATE without old value    update_postimage                         (a topic without old values)
    DELETE                      delete                                   (perhaps only the key, as the topic has it)
    a DDL removes a row         delete at (ts of the DDL, its number)    TRUNCATE, DROP or EXCHANGE PARTITION
    a DDL adds a row            insert at (ts of the DDL, its number)    EXCHANGE PARTITION
    a DDL brings its value      update at (ts of the DDL, 1)             MODIFY that rewrites rows

Within a ts a key is removed at most once and added at most once, so repeats are recognised by (ts, key, removed or
added); without a key, in a batch that may have repeats, all columns take its place.  If a repeat is split
differently (an UPDATE in one copy, DELETE and INSERT in the other), the UPDATE is kept.  `folded` gives the rows that
the upstream holds.

Columns of images are found by name regardless of case; texts and typed values give the same result (columns.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import as_texts
from tidegate.codec.columnar.encode.arrays import seen_content
from tidegate.codec.columnar.rows import Batch, RowTexts
from tidegate.engine.change import Chunk, Layout
from tidegate.engine.plan import Position
from tidegate.engine.ports import refused_rows
from tidegate.model.errors import SchemaError, SinkRefused, TidegateError
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.model.tso import LOGICAL_BITS
from tidegate.sink.delta.columns import LakeColumn, arrow_type, from_image, logical_key
from tidegate.sink.delta.files import distinct, key_order, logical_schema
from tidegate.sink.delta.options import (
    BEFORE,
    CHANGE_SEQ,
    CHANGE_TIME,
    CHANGE_TS,
    CHANGE_TYPE,
    COMMIT_TS,
    OP,
    OWN_COLUMNS,
    DeltaOptions,
)

Side: TypeAlias = Literal["before", "after"]

PIECE_BYTES: Final = 32 << 20
"""SideImages are converted so many bytes at a time: the steps in between take several times as much."""
LACKING: Final = {"before": "I", "after": "D"}
"""The operation whose rows have no such image."""
PERMISSIVE: Final = frozenset({"ignore", "try_evolve"})
"""Policies under which a column may keep a type that later values do not fit."""


class SideImages(NamedTuple):
    """Old or new images of a batch: those at the ascending `indexes` (numpy) of `values`, which are RowTexts
    or a record batch."""

    values: Any
    indexes: Any

    def column(self, index: int) -> Any:
        """Return the values of the field with that index: texts (binary), or typed."""
        if isinstance(self.values, RowTexts):
            return self.values.values.take(pa.array(self.indexes * self.values.width + index))
        column = self.values.column(index)
        return column if len(column) == len(self.indexes) else column.take(pa.array(self.indexes))

    def pieces(self) -> Iterator["SideImages"]:
        """Return the images in pieces of about PIECE_BYTES."""
        texts = isinstance(self.values, RowTexts)
        count = len(self.values.values) // self.values.width if texts else self.values.num_rows
        size_bytes = self.values.values.nbytes if texts else self.values.nbytes
        step = max(1, count * PIECE_BYTES // max(1, size_bytes))
        if len(self.indexes) <= step:
            yield self
            return
        for start in range(0, len(self.indexes), step):
            indexes = self.indexes[start : start + step]
            first, last = int(indexes[0]), int(indexes[-1]) + 1
            yield SideImages(_slice(self.values, first, last), indexes - first)


def _slice(values: Any, first: int, last: int) -> Any:
    if isinstance(values, RowTexts):
        return RowTexts(values.values.slice(first * values.width, (last - first) * values.width), values.width)
    return values.slice(first, last - first)


@dataclass(frozen=True)
class ImageReader:
    """Reads images of a batch as columns of a stored table; `table` is its definition at the time of the batch."""

    batch: Batch
    table: TableInfo
    options: DeltaOptions

    def __post_init__(self) -> None:
        """Raise SchemaError for a batch with a column that the definition does not have, or without the key: rows may
        lack columns (selectors, handle-only deletes) but not bring unknown ones."""
        unknown = next((field.name for field in self.batch.fields if self.table.column(field.name) is None), None)
        if unknown is not None:
            where = self._where(0)
            way_out = "a DDL is missing before it: start a new changefeed"
            if "topic" in where:
                way_out = "a DDL did not reach the topic: start a new changefeed from a topic that has it"
            raise refused_rows(
                self.batch,
                range(self.batch.rows),
                f"table {self.table.name}: column {unknown} is in a row at ts {where['commit_ts']}",
                f" but not in the definition of ts {self.table.version}; {way_out}",
            )
        for name in self.table.handle_key:
            if self.position(name) is None:
                raise self._keyless(name, range(self.batch.rows))

    def _keyless(self, column: str, rows: Iterable[int]) -> TidegateError:
        what = f"table {self.table.name}: a row has no value in column {column} of the key"
        return refused_rows(self.batch, rows, what)

    def _where(self, row: int) -> dict[str, Any]:
        where = {} if self.batch.positions is None else self.batch.positions.slice(row, 1).to_pylist()[0]
        return {"table": str(self.table.name), "commit_ts": self.batch.commit_ts[row].as_py(), **where}

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {lowered(field.name): index for index, field in reversed(list(enumerate(self.batch.fields)))}

    def position(self, name: str) -> int | None:
        """Return the index of a column in the batch, regardless of case; None where the batch lacks it."""
        return self._positions.get(lowered(name))

    def rows(self, *ops: str) -> Any:
        """Return a mask of the rows of the batch that are one of these changes."""
        mask = np.zeros(self.batch.rows, np.bool_)
        for op in ops:
            mask |= self._ops == ord(op)
        return mask

    @cached_property
    def _ops(self) -> Any:
        return np.frombuffer(seen_content(self.batch.op)[1], np.uint8)

    def images(self, side: Side, rows: Any) -> SideImages:
        """Return the old or new images of the rows in the mask `rows`, all of which have one."""
        return SideImages(getattr(self.batch, side), np.flatnonzero(rows[self._ops != ord(LACKING[side])]))

    def read(self, side: Side, rows: Any, columns: Sequence[LakeColumn]) -> pa.Table:
        """Return the old or new images of the rows in the mask `rows` as stored columns, one row each.

        Columns that the batch or the table lacks are NULL. Raises SchemaError when a value does not fit and the feed is
        strict.
        """
        schema = logical_schema(columns)
        by_id = {column.id: column for column in self.table.columns}
        pieces, read, numbers = [schema.empty_table()], 0, np.flatnonzero(rows)
        for images in self.images(side, rows).pieces():
            read, begin = read + len(images.indexes), numbers[read:]
            arrays = [self._array(images, begin, stored, by_id.get(stored.upstream_id)) for stored in columns]
            pieces.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(pieces)

    def commit_ts(self, rows: Any) -> Any:
        """Return the commit_ts of the rows in the mask `rows`, that of the DDL for those that a DDL brings."""
        return self._commit_ts if rows.all() else self._commit_ts.filter(pa.array(rows))

    def commit_seq(self, rows: Any) -> Any:
        """Return the CHANGE_SEQ of the rows in the mask `rows`."""
        return self._of_ddl.filter(pa.array(rows))

    @cached_property
    def _commit_ts(self) -> Any:
        return pc.subtract(self.batch.commit_ts, self._of_ddl.cast(pa.int64()))

    @cached_property
    def _of_ddl(self) -> Any:
        return pc.less(self.batch.seq, 0).cast(pa.int32())

    def _array(self, images: SideImages, rows: Any, stored: LakeColumn, column: ColumnInfo | None) -> Any:
        """The images of one column; `rows` says which row of the batch each is of."""
        index = self.position(column.name) if column is not None else None
        if column is None or index is None:
            return pa.nulls(len(images.indexes), arrow_type(stored.delta))
        values = images.column(index)
        if values.null_count and column.name in self.table.handle_key:
            raise self._keyless(column.name, rows[pc.is_null(values).to_numpy(zero_copy_only=False)])
        zone, zero_date = self.options.time_zone, self.options.zero_date
        exact = self.options.exact_keys and column.name in self.table.handle_key
        convert = partial(
            from_image, column=column.type, delta=stored.delta, time_zone=zone, zero_date=zero_date, exact=exact
        )
        try:
            return convert(values)
        except pa.ArrowInvalid as broken:
            fitting = _fitting(convert, values)
            if self.options.schema_change in PERMISSIVE and not exact:
                return pa.array(
                    [None if scalar is None else scalar.as_py() for scalar in fitting], arrow_type(stored.delta)
                )
            raise refused_rows(
                self.batch,
                _unfit(rows, fitting, values),
                f"table {self.table.name} column {column.name}: a value does not fit the definition of ts "
                f"{self.table.version} ({stored.delta}): {broken}",
            ) from broken
        except SinkRefused as refused:
            raise refused.at(**self._where(_unfit(rows, _fitting(convert, values), values)[0])) from None


def _fitting(convert: Callable[[Any], Any], values: Any) -> list[Any]:
    fitting = []
    for start in range(len(values)):
        try:
            fitting.append(convert(values[start : start + 1])[0])
        except (pa.ArrowInvalid, SinkRefused):
            fitting.append(None)
    return fitting


def _unfit(rows: Any, fitting: list[Any], values: Any) -> list[int]:
    """The `rows` whose value does not fit; all of them if that is unknown."""
    unfit = [
        int(row) for row, scalar, value in zip(rows, fitting, values, strict=False) if scalar is None and value.is_valid
    ]
    return unfit or rows.tolist()


OLD: Final = "B"
"""The operation of an old image in an unfolded log; no stored row has it."""

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(dict[str, str]).decode


def packed(images: pa.Table, columns: Sequence[LakeColumn]) -> pa.Array:
    """Return images as texts, one per row, with the upstream's columns among `columns`."""
    data = row_columns(columns)
    names = [column.physical for column in data]
    rows = zip(*(_texts(images.column(column.name)) for column in data), strict=True)
    texts = [{name: text for name, text in zip(names, row, strict=True) if text is not None} for row in rows]
    return pa.array([_ENCODE(text).decode() for text in texts], pa.string())


def unpacked(texts: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the images in texts, one each, with the upstream's columns among `columns`."""
    images = [_DECODE(text) for text in texts.to_pylist()]
    data = row_columns(columns)
    arrays = [_values([image.get(column.physical) for image in images], column) for column in data]
    return pa.Table.from_arrays(arrays, names=[column.name for column in data])


def renamed(texts: Any, names: Mapping[str, str]) -> pa.Array:
    """Return the texts, which may be NULL, with other physical names; values of columns that `names` lacks are
    dropped."""
    images = [None if text is None else _DECODE(text) for text in texts.to_pylist()]
    moved = [image and {names[name]: text for name, text in image.items() if name in names} for image in images]
    return pa.array([None if image is None else _ENCODE(image).decode() for image in moved], pa.string())


def with_old_images(log: pa.Table, images: pa.Table, has_old: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the log with `images` as the old images of the rows in the mask `known`; other rows have none."""
    texts = np.full(log.num_rows, None, object)
    texts[np.asarray(has_old)] = packed(images, columns).to_pylist()
    index = log.schema.get_field_index(BEFORE)
    return log.set_column(index, log.schema.field(index), pa.array(texts, pa.string()))


def unfolded(log: pa.Table, columns: Sequence[LakeColumn]) -> pa.Table:
    """Return the log with a row of operation OLD for each old image, without the column of their texts."""
    if BEFORE not in log.column_names:
        return log
    updates = log.filter(log.column(BEFORE).is_valid())
    log = log.drop_columns([BEFORE])
    return pa.concat_tables([log, _as_rows(updates, columns, OLD).select(log.column_names)])


def logged(log: pa.Table, columns: Sequence[LakeColumn], upto: int) -> pa.Table:
    """Return the rows that exist after the changes of a LOG up to `upto`. Raises SchemaError where the source sent
    UPDATEs without their old images."""
    log = unfolded(log.filter(pc.less_equal(pc.fill_null(log.column(COMMIT_TS), 0), upto)), columns)
    op = pc.fill_null(log.column(OP), "I")
    updates, old_images = (pc.sum(pc.equal(op, kind)).as_py() or 0 for kind in ("U", OLD))
    if updates != old_images:
        raise SchemaError(
            f"{updates - old_images} UPDATEs of a table without a key came without their old rows, so its log "
            "in the lake does not tell which rows remain"
        )
    rows = log.drop_columns([OP, COMMIT_TS])
    return rows.take(pa.array(counted(rows, pc.invert(pc.is_in(op, pa.array(["D", OLD]))))))


def parted(rows: pa.Table, columns: Sequence[LakeColumn], leaves: Callable[[pa.Table], Any]) -> list[pa.Table]:
    """Return the stored rows of a table that stay and those that are removed, by a mask for images.

    An UPDATE whose old and new image fall on different sides is a DELETE on the side of the old one and an INSERT on
    that of the new one.
    """
    leaving = np.asarray(leaves(rows))
    if BEFORE not in rows.column_names or rows.column(BEFORE).null_count == rows.num_rows:
        return [rows.filter(pa.array(leaving == side)) for side in (False, True)]
    has_before = np.asarray(rows.column(BEFORE).is_valid())
    old_leaving = leaving.copy()
    old_leaving[has_before] = np.asarray(leaves(unpacked(rows.column(BEFORE).filter(pa.array(has_before)), columns)))
    across = leaving != old_leaving
    sides = []
    for side in (False, True):
        comes = _without_old_image(rows.filter(pa.array(across & (leaving == side))), "I")
        goes = _as_rows(rows.filter(pa.array(across & (old_leaving == side))), columns, "D")
        sides.append(pa.concat_tables([rows.filter(pa.array(~across & (leaving == side))), goes, comes]))
    return sides


def _as_rows(updates: pa.Table, columns: Sequence[LakeColumn], op: str) -> pa.Table:
    images = unpacked(updates.column(BEFORE), columns)
    for name in (OP, COMMIT_TS, BEFORE):
        images = images.append_column(name, updates.column(name))
    return _without_old_image(images.select(updates.column_names), op)


def _without_old_image(log: pa.Table, op: str) -> pa.Table:
    values = {OP: pa.repeat(op, log.num_rows), BEFORE: pa.nulls(log.num_rows, pa.string())}
    for name, array in values.items():
        index = log.schema.get_field_index(name)
        log = log.set_column(index, log.schema.field(index), array)
    return log


def _texts(values: Any) -> list[str | None]:
    if pa.types.is_binary(values.type):
        return [None if value is None else value.hex() for value in values.to_pylist()]
    texts: list[str | None] = pc.cast(values, pa.string()).to_pylist()
    return texts


def _values(texts: Sequence[str | None], column: LakeColumn) -> Any:
    kind = arrow_type(column.delta)
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts], kind)
    return pc.cast(pa.array(texts, pa.string()), kind)


COMES: Final = ("insert", "update_postimage")
NUMBER: Final = "_tidegate_number"
_ROW: Final = "_tidegate_row"
IMAGES: Final[Mapping[str, tuple[str, Side]]] = {
    "update_preimage": ("U", "before"),
    "update_postimage": ("U", "after"),
    "delete": ("D", "before"),
    "insert": ("I", "after"),
}
"""The operation and side of each type of change.  Of repeats of one change the first named here is kept."""


def row_columns(columns: Sequence[LakeColumn]) -> tuple[LakeColumn, ...]:
    """Return the upstream's columns, without those that Tidegate adds."""
    return tuple(column for column in columns if column.upstream_id >= 0)


def change_columns(columns: Sequence[LakeColumn]) -> tuple[LakeColumn, ...]:
    """Return the columns of a log of changes of these rows."""
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
    """Return the images of row changes in commit order, without repeats.

    Of deleted rows only the columns `leaving` are read, the others are NULL. With `numbered` a column NUMBER says which
    images belong to one change.
    """
    data = row_columns(columns)
    key = logical_key(table, data)
    has_key = bool(key) and len(key) == len(table.handle_key)
    images: dict[str, list[pa.Table]] = {kind: [] for kind in IMAGES}
    before = 0
    for chunk in chunks:
        for batch, _ in chunk.parts:
            reader = ImageReader(batch, table, options)
            numbers = pa.array(before + np.arange(batch.rows), mask=np.full(batch.rows, batch.repeats))
            for kind, (op, side) in IMAGES.items():
                some = reader.rows(op)
                if some.any():
                    rows = reader.read(side, some, data if kind in COMES or leaving is None else leaving)
                    rows = stamped(_widened(rows, data), kind, reader.commit_ts(some), reader.commit_seq(some))
                    rows = rows if has_key else rows.append_column(_ROW, numbers.filter(pa.array(some)))
                    images[kind].append(_numbered(rows, before + np.flatnonzero(some)) if numbered else rows)
            before += batch.rows
    nothing = logical_schema(change_columns(columns)).empty_table()
    nothing = nothing if has_key else nothing.append_column(_ROW, pa.array([], pa.int64()))
    nothing = _numbered(nothing, np.empty(0, np.int64)) if numbered else nothing
    every = pa.concat_tables([nothing, *(image for kind in IMAGES for image in images[kind])])
    if has_key:
        return _unique_images(every, key)
    return _unique_images(every, [*(column.name for column in data), _ROW]).drop_columns([_ROW])


def _numbered(images: pa.Table, numbers: Any) -> pa.Table:
    return images.append_column(NUMBER, pa.array(numbers))


def moved_rows(rows: pa.Table, kind: str, position: Position) -> pa.Table:
    """Return rows that a DDL added (`insert`) or removed (`delete`), as images of the log."""
    return stamped(rows, kind, pa.repeat(pa.scalar(position[0], pa.int64()), rows.num_rows), position[1])


def stamped(rows: pa.Table, kind: str, commit_ts: Any, seq: Any = 0) -> pa.Table:
    """Return rows as images of a log, followed by the additional columns; `seq` is of all rows, or one value a row."""
    ms = pc.shift_right(commit_ts, LOGICAL_BITS)
    values = {
        CHANGE_TYPE: pa.repeat(kind, rows.num_rows),
        CHANGE_TS: commit_ts,
        CHANGE_SEQ: pa.repeat(pa.scalar(seq, pa.int32()), rows.num_rows) if isinstance(seq, int) else seq,
        CHANGE_TIME: ms.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    }
    for name, array in values.items():
        rows = rows.append_column(name, array)
    return rows


def folded(log: pa.Table, key: Sequence[str], upto: int | None = None) -> pa.Table:
    """Return the rows that exist after the changes of a log up to `upto`, without the additional columns.

    Without a key, a row exists as often as it was inserted more than deleted.
    """
    if upto is not None:
        log = log.filter(pc.less_equal(log.column(CHANGE_TS), upto))
    return log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]]).take(pa.array(current_rows(log, key)))


def current_rows(log: pa.Table, key: Sequence[str]) -> Any:
    """Return the ascending indexes of the images that are the current rows; of a log with a key only the key and the
    additional columns are needed."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    if not key:
        return counted(log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]]), comes)
    order = _order(log, comes)
    rank = np.empty(log.num_rows, np.int64)
    rank[order] = np.arange(log.num_rows)
    ranked = log.select(list(key)).append_column("_nth", pa.array(rank))
    last = ranked.group_by(list(key)).aggregate([("_nth", "max")]).column("_nth_max").to_numpy()
    winners = np.sort(order[last])
    return winners[comes.to_numpy()[winners]]


def _order(log: pa.Table, comes: Any) -> Any:
    """The numbers of the images in order of time, old images before new ones."""
    ordered = log.select([CHANGE_TS, CHANGE_SEQ]).append_column("_comes", pc.cast(comes, pa.int8()))
    keys = [(CHANGE_TS, "ascending"), (CHANGE_SEQ, "ascending"), ("_comes", "ascending")]
    return pc.sort_indices(ordered, sort_keys=keys).to_numpy().astype(np.int64)


def counted(rows: pa.Table, comes: Any) -> Any:
    """Return the ascending indexes of rows that were inserted more often than deleted, one per remaining row."""
    signed = rows.append_column("_sign", pc.if_else(comes, 1, -1))
    signed = signed.append_column("_at", pa.array(np.arange(rows.num_rows)))
    counts = signed.group_by(rows.column_names).aggregate([("_sign", "sum"), ("_at", "min")])
    times = np.maximum(counts.column("_sign_sum").to_numpy(), 0)
    return np.sort(np.repeat(counts.column("_at_min").to_numpy(), times))


def _widened(rows: pa.Table, columns: Sequence[LakeColumn]) -> pa.Table:
    have = dict(zip(rows.column_names, rows.columns, strict=True))
    schema = logical_schema(columns)
    return pa.table([have.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in schema], schema=schema)


def _unique_images(log: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The images in order of time, of those with one identity that leave or come at one ts the first."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    marked = log.select([CHANGE_TS, *identity]).append_column("_comes", comes)
    marked = marked.append_column("_at", pa.array(np.arange(log.num_rows)))
    first = marked.group_by([CHANGE_TS, *identity, "_comes"]).aggregate([("_at", "min")]).column("_at_min")
    kept = np.sort(first.to_numpy())
    narrow = log.select([CHANGE_TS, CHANGE_SEQ]).take(pa.array(kept))
    return log.take(pa.array(kept[_order(narrow, comes.take(pa.array(kept)))]))


ORDER = "_tidegate_order"
GONE, COME = 0, 1
SIDES: Final[Mapping[str, tuple[Side, ...]]] = {"I": ("after",), "U": ("before", "after"), "D": ("before",)}
"""The images that each operation has."""


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The net changes of a table.

    `keys`: every touched key, once; `rows`: the whole rows that exist afterwards; `count`: changes read. The first keys
    are those of `rows`, in the same order; the others are of deleted rows.
    """

    keys: pa.Table
    rows: pa.Table
    count: int


def if_any(chunks: Iterable[Chunk]) -> Iterator[Chunk] | None:
    """Return the chunks; None if there is none."""
    chunks = iter(chunks)
    first = next(chunks, None)
    return None if first is None else chain((first,), chunks)


def net_changes(
    chunks: Iterable[Chunk], table: TableInfo, columns: Sequence[LakeColumn], options: DeltaOptions
) -> NetChanges:
    """Return the net changes of a keyed table's row changes (at least one)."""
    keyed = [_stored(name, table, columns) for name in table.handle_key]
    gone: list[pa.Table] = []
    come: list[pa.Table] = []
    count = 0
    for chunk in chunks:
        count += len(chunk)
        for batch, _ in chunk.parts:
            reader = ImageReader(batch, table, options)
            old, new = _leaving(reader), reader.rows("I", "U")
            gone.append(reader.read("before", old, keyed).append_column(ORDER, _rank(reader, old, GONE)))
            come.append(reader.read("after", new, columns).append_column(ORDER, _rank(reader, new, COME)))
    return _last_per_key(gone, come, [column.name for column in keyed], count)


def _leaving(reader: ImageReader) -> Any:
    """Which changes free the old row's key: DELETEs, and UPDATEs that do not keep the key."""
    deletes, updates = reader.rows("D"), reader.rows("U")
    positions = [reader.position(name) for name in reader.table.handle_key]
    key = [index for index in positions if index is not None]
    if len(key) < len(positions) or not updates.any():
        return deletes | updates
    stays = np.ones(int(updates.sum()), np.bool_)
    for index in key:
        before, after = (reader.images(side, updates).column(index) for side in SIDES["U"])
        if before.type != after.type or pa.types.is_floating(before.type):  # 0 and -0 are equal, and two keys here
            before, after = as_texts(before), as_texts(after)
        stays &= pc.fill_null(pc.equal(before, after), fill_value=False).to_numpy(zero_copy_only=False)
    updates[updates] = ~stays
    return deletes | updates


def log_rows(
    chunks: Iterable[Chunk], table: TableInfo, columns: Sequence[LakeColumn], options: DeltaOptions
) -> pa.Table:
    """Return every change of a table without a key, duplicates (same position, same images) removed."""
    parts = [logical_schema(columns).empty_table()]
    for chunk in chunks:
        readers = [ImageReader(batch, table, options) for batch, _ in chunk.parts]
        for reader, firsts in zip(readers, _once(readers), strict=True):
            parts.append(_with_old_images(reader, firsts & reader.rows("I", "U"), columns))
            parts.append(_stamped(reader, "before", firsts & reader.rows("D"), columns))
    return pa.concat_tables(parts)


def _stamped(reader: ImageReader, side: Side, some: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    rows = reader.read(side, some, columns)
    for name, values in ((OP, reader.batch.op.filter(pa.array(some))), (COMMIT_TS, reader.commit_ts(some))):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), values.cast(rows.schema.field(index).type))
    return rows


def _with_old_images(reader: ImageReader, some: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    rows = _stamped(reader, "after", some, columns)
    updates = some & reader.rows("U")
    if BEFORE not in rows.column_names or not updates.any():
        return rows
    images = reader.read("before", updates, row_columns(columns))
    return with_old_images(rows, images, pa.array(updates[some]), columns)


def _once(readers: Sequence[ImageReader]) -> list[Any]:
    """For the batch of each reader, which changes are the first of their kind in the chunk: commit_ts, operation,
    layout and images."""
    begins = np.cumsum([0, *(reader.batch.rows for reader in readers)])
    alike: defaultdict[tuple[str, Layout], list[pa.Table]] = defaultdict(list)
    first = np.zeros(begins[-1], np.bool_)
    for begin, reader in zip(begins, readers, strict=False):
        if not reader.batch.repeats:
            first[begin : begin + reader.batch.rows] = True
            continue
        layout = Layout(reader.batch.fields, reader.batch.pk_names)
        for op, sides in SIDES.items():
            rows = reader.rows(op)
            images = [reader.images(side, rows) for side in sides]
            values = [as_texts(image.column(index)) for image in images for index in range(len(layout.fields))]
            columns = [pa.array(begin + np.flatnonzero(rows)), reader.commit_ts(rows), *values]
            alike[op, layout].append(pa.table(columns, names=[str(index) for index in range(len(columns))]))
    for tables in alike.values():
        every = pa.concat_tables(tables)
        groups = every.group_by(every.column_names[1:]).aggregate([("0", "min")])
        first[groups.column("0_min").to_numpy()] = True
    return np.split(first, begins[1:-1])


def _stored(name: str, table: TableInfo, columns: Sequence[LakeColumn]) -> LakeColumn:
    column = table.column(name)
    stored = next(
        (candidate for candidate in columns if column is not None and candidate.upstream_id == column.id), None
    )
    if stored is None:
        raise SchemaError(f"table {table.name} at ts {table.version}: key column {name} is not stored in the lake")
    return stored


def _rank(reader: ImageReader, rows: Any, rank: int) -> Any:
    """A number that grows with (commit_ts, rank): commit_ts is below 2**63, so it is doubled as unsigned."""
    ts = reader.commit_ts(rows).to_numpy().astype(np.uint64)
    ts *= 2
    ts += rank
    return pa.array(ts)


def _last_per_key(gone: list[pa.Table], come: list[pa.Table], key: list[str], count: int) -> NetChanges:
    """One change per key; there is nothing to choose among inserts of different keys."""
    rows = pa.concat_tables(come)
    deletes = pa.concat_tables(gone)
    if not deletes.num_rows and distinct(rows.select(key)):
        return NetChanges(rows.select(key), rows.drop_columns([ORDER]), count)
    events = pa.concat_tables([deletes, rows.select([*key, ORDER])])
    order = key_order(events.select([ORDER]))
    events = (events if order is None else events.take(order)).drop_columns([ORDER])
    numbered = events.append_column("_nth", pa.array(np.arange(events.num_rows)))
    indexes = np.sort(numbered.group_by(key).aggregate([("_nth", "max")]).column("_nth_max").to_numpy())
    newest = indexes if order is None else order.take(pa.array(indexes)).to_numpy()
    alive = newest >= deletes.num_rows
    keys = events.take(pa.array(np.concatenate([indexes[alive], indexes[~alive]])))
    return NetChanges(keys, rows.drop_columns([ORDER]).take(pa.array(newest[alive] - deletes.num_rows)), count)
