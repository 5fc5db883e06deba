"""What a step does to a table, by the table's form: one table of functions for each kind of step.

    step              ROWS                   LOG             CHANGES             VERSIONS
    rows come         merged by key          appended        images appended     versions end and begin
    a DDL moves rows  files written anew     (as ROWS)       images appended     versions end and begin
    its rows now      all                    all changes     the log, folded     versions that have not ended

A log is folded once for each DDL that moves rows (of partitions, by an exchange): its keys are held in memory, its
rows one file at a time.

What a TRUNCATE TABLE leaves to the new incarnation of a table whose past is kept.

    old incarnation   ──rows──rows──┤ TRUNCATE                     retired as it stands, FLASHBACK TABLE brings it back
    new incarnation                 ├─ a copy of the old one's changes or versions, the rows of then removed ──rows──►

The copy goes into the commit that makes the table.  A replica begins empty.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.engine.change import Chunk
from tidegate.engine.plan import Position
from tidegate.model.errors import SchemaError
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.sink.delta.changelog_rows import change_rows, folded, moved_rows, row_columns, standing
from tidegate.sink.delta.columns import LakeColumn, bounded, logical_key, stored_columns
from tidegate.sink.delta.files import read, write
from tidegate.sink.delta.history_files import (
    News,
    as_of,
    by_kind,
    ended,
    ending_keys,
    ending_rows,
    merge_versions,
    news_of,
    open_files,
    opened,
)
from tidegate.sink.delta.lake_schema import LakeSchema, copied_schema
from tidegate.sink.delta.merge import append, merge, rewrite
from tidegate.sink.delta.modes import CHANGE_TS, CHANGE_TYPE, VALID_FROM, VALID_TO, Form, form_of
from tidegate.sink.delta.old_images import parted
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import NetChanges, log_rows, net_changes

Columns = Sequence[LakeColumn]
Leaves = Callable[[pa.Table], Any]
"""Which rows a DDL takes out of a table, as a mask."""


class RowSteps(NamedTuple):
    """How row changes come to a table: `read` from chunks, then `write`; two steps, for chunks are large."""

    read: Callable[[Iterable[Chunk], TableInfo, Columns, DeltaOptions], Any]
    write: Callable[[TableSnapshot, Columns, Any], list[Action]]
    operation: str


class Moving(NamedTuple):
    """What a DDL at a position does to a table: which of its rows leave, and which rows come."""

    at: Position
    leaves: Leaves
    coming: Iterable[pa.Table] = ()


class Moves(NamedTuple):
    """What a DDL needs that moves rows: those that the table has now, and the actions by which some leave or come."""

    now: Callable[[TableSnapshot, TableInfo, Columns], Iterator[pa.Table]]
    move: Callable[[TableSnapshot, TableInfo, Columns, Moving], list[Action]]


def _merge(snapshot: TableSnapshot, columns: Columns, changes: NetChanges) -> list[Action]:
    return merge(snapshot.uri, snapshot.files(), columns, changes)


def _append(snapshot: TableSnapshot, columns: Columns, rows: pa.Table) -> list[Action]:
    return append(snapshot.uri, rows, columns)


def _append_changes(snapshot: TableSnapshot, columns: Columns, log: pa.Table) -> list[Action]:
    return list(write(snapshot.uri, log.select([column.name for column in columns]), columns, [CHANGE_TS]))


def _read_news(chunks: Iterable[Chunk], table: TableInfo, columns: Columns, options: DeltaOptions) -> News:
    names = logical_key(table, columns)
    if len(names) < len(table.handle_key):
        raise SchemaError(
            f"table {table.name} at ts {table.version}: not every column of the key ({', '.join(table.handle_key)}) "
            "is stored in the lake"
        )
    keyed = [column for column in columns if column.name in names]
    return news_of(change_rows(chunks, table, columns, options, leaving=keyed), names)


def _merge_news(snapshot: TableSnapshot, columns: Columns, news: News) -> list[Action]:
    key = news.keys.column_names
    ending = ending_keys(snapshot.uri, columns, key, news)
    return merge_versions(snapshot, columns, [*key, VALID_FROM, VALID_TO], [news.versions], ending)


ROW_STEPS: Final[Mapping[Form, RowSteps]] = {
    "ROWS": RowSteps(net_changes, _merge, "MERGE"),
    "LOG": RowSteps(log_rows, _append, "WRITE"),
    "CHANGES": RowSteps(change_rows, _append_changes, "WRITE"),
    "VERSIONS": RowSteps(_read_news, _merge_news, "MERGE"),
}


def _all(snapshot: TableSnapshot, _table: TableInfo, columns: Columns) -> Iterator[pa.Table]:
    for file in snapshot.files():
        yield read(snapshot.uri, file, columns)


def _folded(snapshot: TableSnapshot, table: TableInfo, columns: Columns) -> Iterator[pa.Table]:
    """The log is read twice, first the columns that tell which images stand; without a key all of them do."""
    key = logical_key(table, columns)
    telling = [column for column in columns if column.upstream_id < 0 or column.name in key or not key]
    files = snapshot.files()
    if not files:
        return
    begins = np.cumsum([0, *(file.rows for file in files)])
    places = standing(pa.concat_tables([read(snapshot.uri, file, telling) for file in files]), key)
    cuts = np.searchsorted(places, begins)
    rows = row_columns(columns)
    for at, file in enumerate(files):
        here = places[cuts[at] : cuts[at + 1]] - begins[at]
        if len(here):
            yield read(snapshot.uri, file, rows).take(pa.array(here))


def _valid(snapshot: TableSnapshot, _table: TableInfo, columns: Columns) -> Iterator[pa.Table]:
    for file in open_files(snapshot, columns):
        versions = read(snapshot.uri, file, columns)
        still = versions.filter(versions.column(VALID_TO).is_null())
        yield still.drop_columns([VALID_FROM, VALID_TO])


def _rewrite(snapshot: TableSnapshot, table: TableInfo, columns: Columns, moving: Moving) -> list[Action]:
    stay = (parted(rows, columns, moving.leaves)[0] for rows in _all(snapshot, table, columns))
    return rewrite(snapshot.uri, snapshot.files(), chain(stay, moving.coming), columns, bounded(table, columns))


def _append_moves(snapshot: TableSnapshot, table: TableInfo, columns: Columns, moving: Moving) -> list[Action]:
    now = _folded(snapshot, table, columns)
    gone = (moved_rows(rows.filter(moving.leaves(rows)), "delete", moving.at) for rows in now)
    come = (moved_rows(rows, "insert", moving.at) for rows in moving.coming)
    return [action for log in chain(gone, come) for action in _append_changes(snapshot, columns, log)]


def _end_and_begin(snapshot: TableSnapshot, table: TableInfo, columns: Columns, moving: Moving) -> list[Action]:
    ts, _ = moving.at
    begin = (opened(rows, ts) for rows in moving.coming)
    ending = ending_rows(snapshot.uri, columns, moving.leaves, ts)
    return merge_versions(snapshot, columns, bounded(table, columns), begin, ending)


MOVES: Final[Mapping[Form, Moves]] = {
    "ROWS": Moves(_all, _rewrite),
    "LOG": Moves(_all, _rewrite),
    "CHANGES": Moves(_folded, _append_moves),
    "VERSIONS": Moves(_valid, _end_and_begin),
}


def state_at(rows: pa.Table, key: Sequence[str], ts: int) -> pa.Table:
    """Return the upstream's rows at `ts`, from the rows of a table of any form; of a replica the rows as they are."""
    if VALID_TO in rows.column_names:
        return as_of(rows, ts)
    if CHANGE_TYPE in rows.column_names:
        return folded(rows, key, ts)
    return rows


Inherit = Callable[[TableSnapshot, TableInfo, Sequence[LakeColumn], str, Position], Iterator[Action]]


def inherited(
    table: TableInfo, uri: str, at: Position, options: DeltaOptions
) -> tuple[LakeSchema, list[Action]] | None:
    """Return what `table`, emptied by a TRUNCATE at that position, leaves to its successor at `uri`: its stored
    columns, and the add actions of its past; None where nothing is kept."""
    inherit = INHERITS.get(form_of(table, options.mode))
    old = None if inherit is None else deltalog.load(options.table_uri(table.incarnation))
    if inherit is None or old is None:
        return None
    schema = copied_schema(stored_columns(old), options.column_mapping)
    return schema, list(inherit(old, table, schema.columns, uri, at))


def _changes(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, at: Position
) -> Iterator[Action]:
    names = [column.name for column in columns]
    for file in old.files():
        yield from write(uri, read(old.uri, file, columns), columns, bounded(table, columns))
    for rows in MOVES["CHANGES"].now(old, table, columns):
        yield from write(uri, moved_rows(rows, "delete", at).select(names), columns, bounded(table, columns))


def _versions(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, at: Position
) -> Iterator[Action]:
    for file in old.files():
        versions = read(old.uri, file, columns)
        still = versions.column(VALID_TO).is_null().to_numpy().nonzero()[0]
        for rows in by_kind(ended(versions, still, at[0])):
            yield from write(uri, rows, columns, bounded(table, columns))


INHERITS: Final[Mapping[Form, Inherit]] = {"CHANGES": _changes, "VERSIONS": _versions}
