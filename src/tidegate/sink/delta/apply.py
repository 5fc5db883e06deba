"""The task that runs a unit of the plan: each step becomes one commit of its table.

    for each step:   position of the table >= position of the step ──► already done, skip
                     else read the rows, compute, write files, commit at version + 1
                          version taken ──► another attempt was faster: read the table again and decide again

The other attempt runs the same steps (a worker that outlived its driver, for example).  A step gives the same result
whoever runs it, so losing the race for a version loses nothing.

What a step does depends on the table's form (options.py); each kind of step has one function per form.

    step                 ROWS                LOG                CHANGES            VERSIONS
    rows                 merged by key       appended           images appended    versions ended and begun
    DDL that moves rows  files rewritten     files rewritten    images appended    versions ended and begun
    current rows         all rows            all changes        the log, folded    versions that have not ended

A CHANGES log is folded once per DDL that moves rows between partitions or tables: its keys are held in memory, its
rows one file at a time.

TRUNCATE TABLE begins a new incarnation.  The old one is retired as it is, so that FLASHBACK TABLE can bring it back.
In a mode that keeps the past, the commit that creates the new incarnation also copies the changes or versions of the
old one and records the removal of its rows; a replica begins empty.

DDL on partitions: the lake does not store partitions, so which rows a partition holds is computed from the table's
definition (schema/partition.py).

DDL on columns:

    columns renamed, moved, dropped, added with NULL     one metaData action, files stay; may begin column mapping
    a default other than NULL, a change of type          every file is read, converted and rewritten
    a rename or a drop with column-mapping=never         every file is read and rewritten
    a table gets its first key                           its log of changes is replaced by the rows that it yields

Stored changes and versions of the past are converted with the table: they have its current columns.  A past value
that does not fit the new type, and that upstream no longer had to convert, becomes NULL.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.batch import calls_of
from tidegate.engine.change import Chunk
from tidegate.engine.load import LoadChanges
from tidegate.engine.plan import Alter, Create, Exchange, Position, Rows, Step, Trim, Unit, position_of
from tidegate.engine.ports import Changes
from tidegate.expr.change import converter
from tidegate.model.errors import ColumnSelectorFailed, SchemaError, SinkError, SinkRefused, SourceError, TidegateError
from tidegate.model.event import Value
from tidegate.model.mysql import MOMENTS
from tidegate.model.name import lowered
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, CommitConflict, TableSnapshot
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.sink.delta.columns import (
    Convert,
    Evolution,
    LakeColumn,
    LakeSchema,
    arrow_type,
    bounded,
    copied_schema,
    evolve,
    first_schema,
    from_neutral,
    is_number,
    logical_key,
    map_neutral,
    matches_names,
    next_schema,
    stored_columns,
    stored_schema,
    to_neutral,
)
from tidegate.sink.delta.files import FILE_BYTES, distinct, logical_schema, read, write
from tidegate.sink.delta.iceberg_projection import project, read_ahead
from tidegate.sink.delta.merge import (
    News,
    append,
    as_of,
    by_kind,
    changes_of,
    ended,
    ending_keys,
    ending_rows,
    merge,
    merge_versions,
    news_of,
    numbered,
    open_files,
    opened,
    rewrite,
)
from tidegate.sink.delta.options import (
    BEFORE,
    CHANGE_SEQ,
    CHANGE_TS,
    CHANGE_TYPE,
    COMMIT_TS,
    MODE,
    OP,
    OWN_COLUMNS,
    VALID_FROM,
    VALID_TO,
    DeltaOptions,
    Form,
    check_mode,
    chosen_ids,
    form_of,
    selectors_of,
    stored_definition,
)
from tidegate.sink.delta.rows import (
    COMES,
    NUMBER,
    OLD,
    change_rows,
    counted,
    current_rows,
    folded,
    if_any,
    log_rows,
    logged,
    moved_rows,
    net_changes,
    parted,
    renamed,
    row_columns,
    unfolded,
    unpacked,
    with_old_images,
)
from tidegate.sink.delta.snapshots import no_rows, position, progress

Columns = Sequence[LakeColumn]
Leaves = Callable[[pa.Table], Any]
"""Returns a mask of the rows that a DDL removes from a table."""


class RowSteps(NamedTuple):
    """The two steps that apply row changes to a table: `read` from chunks, then `write`. Two steps, because chunks are
    large."""

    read: Callable[[Iterable[Chunk], TableInfo, Columns, DeltaOptions], Any]
    write: Callable[[TableSnapshot, Columns, Any], list[Action]]
    operation: str


class Moving(NamedTuple):
    """The effect of a DDL at a position on a table: the rows to remove, and the rows to add."""

    position: Position
    leaves: Leaves
    coming: Iterable[pa.Table] = ()


class Moves(NamedTuple):
    """Input of a DDL that moves rows: the table's current rows, and the actions by which rows are removed or added."""

    now: Callable[[TableSnapshot, TableInfo, Columns], Iterator[pa.Table]]
    move: Callable[[TableSnapshot, TableInfo, Columns, Moving], list[Action]]


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
    "ROWS": RowSteps(
        net_changes, lambda target, columns, changes: merge(target.uri, target.files(), columns, changes), "MERGE"
    ),
    "LOG": RowSteps(log_rows, lambda target, columns, rows: append(target.uri, rows, columns), "WRITE"),
    "CHANGES": RowSteps(
        change_rows, lambda target, columns, log: append(target.uri, log, columns, [CHANGE_TS]), "WRITE"
    ),
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
    indexes = current_rows(pa.concat_tables([read(snapshot.uri, file, telling) for file in files]), key)
    cuts = np.searchsorted(indexes, begins)
    rows = row_columns(columns)
    for index, file in enumerate(files):
        local = indexes[cuts[index] : cuts[index + 1]] - begins[index]
        if len(local):
            yield read(snapshot.uri, file, rows).take(pa.array(local))


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
    gone = (moved_rows(rows.filter(moving.leaves(rows)), "delete", moving.position) for rows in now)
    come = (moved_rows(rows, "insert", moving.position) for rows in moving.coming)
    return [action for log in chain(gone, come) for action in append(snapshot.uri, log, columns, [CHANGE_TS])]


def _end_and_begin(snapshot: TableSnapshot, table: TableInfo, columns: Columns, moving: Moving) -> list[Action]:
    ts, _ = moving.position
    begin = (opened(rows, ts) for rows in moving.coming)
    ending = ending_rows(snapshot.uri, columns, moving.leaves, ts)
    return merge_versions(snapshot, columns, bounded(table, columns), begin, ending)


MOVES: Final[Mapping[Form, Moves]] = {
    "ROWS": Moves(_all, _rewrite),
    "LOG": Moves(_all, _rewrite),
    "CHANGES": Moves(_folded, _append_moves),
    "VERSIONS": Moves(_valid, _end_and_begin),
}


def state_at(rows: pa.Table, key: Sequence[str], ts: int, columns: Sequence[LakeColumn] = ()) -> pa.Table:
    """Return the upstream's rows at `ts` from a table of any form, of a LOG by its `columns`; for a replica, its rows
    as they are. Raises SchemaError for a LOG without old images."""
    if OP in rows.column_names:
        return logged(rows, columns, ts)
    if VALID_TO in rows.column_names:
        return as_of(rows, ts)
    if CHANGE_TYPE in rows.column_names:
        return folded(rows, key, ts)
    return rows


Inherit = Callable[[TableSnapshot, TableInfo, Sequence[LakeColumn], str, Position], Iterator[Action]]


def inherited(
    table: TableInfo, uri: str, table_position: Position, options: DeltaOptions
) -> tuple[LakeSchema, list[Action]] | None:
    """Return the properties that `table`, emptied by a TRUNCATE at that position, passes on to its new incarnation at
    `uri`: its stored columns and the add actions of its past. None where no past is kept."""
    inherit = INHERITS.get(form_of(table, options.mode))
    old = None if inherit is None else deltalog.load(options.table_uri(table.incarnation))
    if inherit is None or old is None:
        return None
    schema = copied_schema(stored_columns(old), options.column_mapping)
    return schema, list(inherit(old, table, schema.columns, uri, table_position))


def _changes(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, table_position: Position
) -> Iterator[Action]:
    names = [column.name for column in columns]
    for file in old.files():
        yield from write(uri, read(old.uri, file, columns), columns, bounded(table, columns))
    for rows in MOVES["CHANGES"].now(old, table, columns):
        yield from write(
            uri, moved_rows(rows, "delete", table_position).select(names), columns, bounded(table, columns)
        )


def _versions(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, table_position: Position
) -> Iterator[Action]:
    for file in old.files():
        versions = read(old.uri, file, columns)
        still = versions.column(VALID_TO).is_null().to_numpy().nonzero()[0]
        for rows in by_kind(ended(versions, still, table_position[0])):
            yield from write(uri, rows, columns, bounded(table, columns))


INHERITS: Final[Mapping[Form, Inherit]] = {"CHANGES": _changes, "VERSIONS": _versions}


def trim(step: Trim, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    """Return the actions that remove the rows of the named partitions."""
    columns = stored_columns(snapshot)
    inside = _inside(columns, step.old, step.partitions, options)
    moves = MOVES[form_of(step.old, options.mode)]
    return moves.move(snapshot, step.old, columns, Moving(position_of(step), inside))


def exchange(step: Exchange, table: TableInfo, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    """Return the rows of `table` after EXCHANGE PARTITION; the partner is read as of just before its own half of
    the exchange."""
    own_columns = stored_columns(snapshot)
    gains_all = table.incarnation == step.partitioned.incarnation
    partner_info = step.other if gains_all else step.partitioned
    partner = _before(step, partner_info, options)
    partner_columns = stored_columns(partner)
    selectors, have = selectors_of(options), {lowered(column.name) for column in partner_columns}
    for column in own_columns:
        if column.upstream_id < 0 or lowered(column.name) in have:
            continue
        if partner_info.column(column.name) is not None and not selectors.keeps(partner_info.name, column.name):
            raise ColumnSelectorFailed(
                f"column selectors select {column.name} of {table.name} but not of {partner_info.name}, so the lake "
                f"lacks values of the exchanged rows; select the same columns of both tables"
            )
    now = MOVES[form_of(partner_info, options.mode)].now(partner, partner_info, partner_columns)
    leaves: Leaves | None = None
    if gains_all:
        leaves = _inside(own_columns, table, (step.partition,), options)
        coming = now
    else:
        inside = _inside(partner_columns, partner_info, (step.partition,), options)
        coming = (parted(rows, partner_columns, inside)[1] for rows in now)
    incoming = (_as_columns(rows, partner_columns, own_columns) for rows in coming)
    move = MOVES[form_of(table, options.mode)].move
    leaves = leaves or (lambda rows: pa.repeat(pa.scalar(value=True), rows.num_rows))
    return move(snapshot, table, own_columns, Moving(position_of(step), leaves, incoming))


def _before(step: Exchange, table: TableInfo, options: DeltaOptions) -> TableSnapshot:
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    while snapshot is not None and position(snapshot, options.feed) >= position_of(step):
        snapshot = deltalog.load(uri, snapshot.version - 1)
    if snapshot is None:
        raise no_rows(table, uri)
    return snapshot


def _as_columns(rows: pa.Table, partner: Sequence[LakeColumn], columns: Sequence[LakeColumn]) -> pa.Table:
    """Rows of the partner under our columns: an exchange demands equal names, a policy may have left us more.

    Columns of ours only where the partner's rows bring them: they belong to changes and versions, not to rows."""
    partner_names = {lowered(name): name for name in rows.column_names}
    columns = [column for column in columns if column.upstream_id >= 0 or column.name in partner_names]
    if BEFORE in rows.column_names:
        names = {lowered(column.name): column.physical for column in columns}
        physical = {column.physical: names[lowered(column.name)] for column in partner if lowered(column.name) in names}
        index = rows.schema.get_field_index(BEFORE)
        rows = rows.set_column(index, rows.schema.field(index), renamed(rows.column(BEFORE), physical))
    arrays = [
        rows.column(partner_names[lowered(column.name)])
        if lowered(column.name) in partner_names
        else pa.nulls(rows.num_rows, arrow_type(column.delta))
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=logical_schema(columns))


def _inside(
    columns: Sequence[LakeColumn], table: TableInfo, partitions: Iterable[str], options: DeltaOptions
) -> Callable[[pa.Table], Any]:
    if table.partition is None:
        raise SinkRefused(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    stored_definition(table, options)
    zone = options.time_zone
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    named = {lowered(name) for name in partitions}
    by_id = {column.upstream_id: column for column in columns}

    def inside(rows: pa.Table) -> Any:
        values = {
            column.name: to_neutral(rows.column(by_id[column.id].name), column.type, time_zone=zone)
            for column in table.columns
            if column.id in by_id
        }
        verdicts = [
            lowered(locate(dict(zip(values, row, strict=True))) or "") in named
            for row in zip(*values.values(), strict=True)
        ]
        return pa.array(verdicts, pa.bool_())

    return inside


def alter(step: Alter, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    """Return the actions that turn the table's columns and stored rows from `step.old` into `step.new`."""
    return _evolved(evolve(snapshot, step.old, step.new, options, step.session.zone), step, snapshot, options)


def _evolved(change: Evolution, step: Alter, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    before, files = stored_schema(snapshot), snapshot.files()
    rewrites = change.rewrites or _forms(step, options) in RESHAPES
    schema = next_schema(before, change.columns, change.max_id, options.column_mapping, rewritten=rewrites or not files)
    change = replace(change, columns=schema.columns)
    properties = schema.configuration(options, snapshot.configuration)
    described = [
        *([deltalog.protocol(properties)] if schema.mapped and not before.mapped else []),
        deltalog.describe(
            snapshot.table_id, schema.fields(), snapshot.partition_columns, properties, str(step.new.name)
        ),
    ]
    if not rewrites and (schema.mapped or matches_names(before, schema.columns)):
        for part in _new_key(snapshot, before.columns, step, options):
            _check_key(part, step)
        return described
    try:
        return [*described, *_rewritten(snapshot, change, step, options)]
    except TidegateError:
        in_key = any(turn.new.name in step.new.handle_key for turn in change.conversions)
        if in_key or options.schema_change != "try_evolve":
            raise
        return [*described, *_rewritten(snapshot, replace(change, conversions=()), step, options)]


def dates_as_text(snapshot: TableSnapshot, table: TableInfo, options: DeltaOptions) -> list[Action]:
    """Return the actions by which a table that was made without zero-date=string gets texts for its dates, where its
    key has some; else none. What the policy for schema changes has kept otherwise than upstream stays."""
    types = {column.id: column.type.code for name in table.handle_key if (column := table.column(name)) is not None}
    before = stored_schema(snapshot).columns
    dates = [column for column in before if types.get(column.upstream_id) in MOMENTS]
    if options.zero_date != "string" or all(column.delta == "string" for column in dates):
        return []
    options = msgspec.structs.replace(options, schema_change="evolve")
    change = evolve(snapshot, table, table, options)
    turns = tuple(
        turn for turn in change.conversions if turn.source.delta != "string" and turn.new.type.code in MOMENTS
    )
    texts = {turn.source.upstream_id: turn.target for turn in turns}
    columns = tuple(replace(texts.get(column.upstream_id, column), name=column.name) for column in before)
    return _evolved(
        replace(change, columns=columns, fills=(), conversions=turns),
        Alter(table, table, table.version, 0),
        snapshot,
        options,
    )


def seen_since(snapshot: TableSnapshot, table: TableInfo, options: DeltaOptions) -> list[Action]:
    """Return the actions that add columns missing from `table`, which was inferred from messages; none if it has all.

    A round that a crash cut off may be planned anew with a later end: its Create is done, with fewer columns."""
    if not table.inferred or options.schema_change == "ignore":
        return []
    have = {column.upstream_id for column in stored_columns(snapshot)}
    late = chosen_ids(table, options) - have
    if not late:
        return []
    columns = tuple(
        msgspec.structs.replace(column, nullable=column.nullable or column.id in late) for column in table.columns
    )
    return alter(Alter(table, msgspec.structs.replace(table, columns=columns), table.version, 0), snapshot, options)


def _new_key(
    snapshot: TableSnapshot, stored: Sequence[LakeColumn], step: Alter, options: DeltaOptions
) -> Iterator[pa.Table]:
    """The dates that a table's next key is of, and its last was not, where its files stay as they are."""
    if form_of(step.new, options.mode) != "ROWS":
        return
    fresh = [step.new.column(name) for name in step.new.handle_key if name not in step.old.handle_key]
    ids = {column.id for column in fresh if column is not None and column.type.code in MOMENTS}
    columns = [column for column in stored if column.upstream_id in ids]
    for file in snapshot.files() if columns else ():
        yield read(snapshot.uri, file, columns)


def _check_key(rows: pa.Table, step: Alter) -> pa.Table:
    for name in step.new.handle_key if not _is_past(rows) else ():
        if name in rows.column_names and rows.column(name).null_count:
            raise SinkRefused(
                f"column {name} of the key has NULL for zero dates, so rows would not be distinct; create a new lake "
                f"with zero-date=string, or exclude the table by a filter rule"
            )
    return rows


def _rewritten(snapshot: TableSnapshot, change: Evolution, step: Alter, options: DeltaOptions) -> list[Action]:
    files = snapshot.files()
    before = stored_columns(snapshot)
    stored: Iterable[pa.Table] = (read(snapshot.uri, file, before) for file in files)
    reshape = RESHAPES.get(_forms(step, options))
    if reshape is not None and files:
        stored = [reshape(unfolded(pa.concat_tables(stored), before), logical_key(step.new, before))]
    # Versions that are valid apart from those that have ended.
    stored = (kind for part in stored for kind in (by_kind(part) if VALID_TO in part.column_names else (part,)))
    rows = (_with_old_images(part, before, change, step, options) for part in stored)
    key, filled = step.new.handle_key, {fill.column.name for fill in change.fills}
    filled |= {turn.new.name for turn in change.conversions}
    if step.old != step.new and key and (step.old.handle_key != key or not filled.isdisjoint(key)):
        rows = (_check_key(part, step) for part in rows)
    return rewrite(snapshot.uri, files, rows, change.columns, bounded(step.new, change.columns))


def _forms(step: Alter, options: DeltaOptions) -> tuple[Form, Form]:
    return form_of(step.old, options.mode), form_of(step.new, options.mode)


def _collapsed(log: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that an unfolded log of changes tells of, for the key that the table has from now on.

    Rows of a time when the table had a key have no op; they came before all others.  A log that lacks the old image of
    an UPDATE does not say which row was changed: it is folded by the new key."""
    if OP not in log.column_names:
        return log
    op, ts = pc.fill_null(log.column(OP), "I"), pc.fill_null(log.column(COMMIT_TS), 0)
    comes = pc.invert(pc.is_in(op, pa.array(["D", OLD])))
    updates, old_images = (pc.sum(pc.equal(op, change_type)).as_py() for change_type in ("U", OLD))
    if updates == old_images:
        alive = log.take(pa.array(counted(log.drop_columns([OP, COMMIT_TS]), comes)))
        if distinct(alive.select(list(key))):
            return alive
    times = pa.table({"ts": ts, "comes": pc.cast(comes, pa.int8())})
    order = pc.sort_indices(times, sort_keys=[("ts", "ascending"), ("comes", "ascending")])
    ordered = log.append_column("_comes", comes).take(order).append_column("_nth", pa.array(range(log.num_rows)))
    last = ordered.group_by(list(key)).aggregate([("_nth", "max")]).column("_nth_max")
    alive = ordered.take(last)
    return alive.filter(alive.column("_comes"))


def _versions_of_log(log: pa.Table, key: Sequence[str]) -> pa.Table:
    """The versions that a log of changes tells of; of a log that leaves old images out, by the key that the table has
    from now on."""
    own = {column.name for column in OWN_COLUMNS["CHANGES"]}
    image = [name for name in log.column_names if name not in own]
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    news = news_of(numbered(log, image, comes, [CHANGE_TS, CHANGE_SEQ]), [*image, NUMBER]).versions
    versions = news.drop_columns([NUMBER])
    if distinct(versions.filter(versions.column(VALID_TO).is_null()).select(list(key))):
        return versions
    return news_of(log, key).versions


RESHAPES: Final[Mapping[tuple[Form, Form], Callable[[pa.Table, Sequence[str]], pa.Table]]] = {
    ("LOG", "ROWS"): _collapsed,
    ("CHANGES", "VERSIONS"): _versions_of_log,
    ("VERSIONS", "CHANGES"): lambda versions, _key: changes_of(versions),
}
"""The conversion of stored rows when a table gets its first key or loses its last."""


def _with_old_images(
    rows: pa.Table, before: Sequence[LakeColumn], change: Evolution, step: Alter, options: DeltaOptions
) -> pa.Table:
    changed = _changed(rows, before, change, step, options, past=_is_past(rows))
    if BEFORE not in rows.column_names or BEFORE not in changed.column_names:
        return changed
    has_before = rows.column(BEFORE).is_valid()
    if not pc.any(has_before).as_py():
        return changed
    images = unpacked(rows.column(BEFORE).filter(has_before), before)
    return with_old_images(
        changed, _changed(images, before, change, step, options, past=True), has_before, change.columns
    )


def _changed(
    rows: pa.Table,
    before: Sequence[LakeColumn],
    change: Evolution,
    step: Alter,
    options: DeltaOptions,
    *,
    past: bool,
) -> pa.Table:
    """Images after a change of columns; of `past` ones, values that the new type has no place for become NULL."""
    stored = [*before, *(column for column in change.columns if column.upstream_id < 0)]
    have = {column.mapping_id: rows.column(column.name) for column in stored if column.name in rows.column_names}
    zone, zero_date = options.time_zone, options.zero_date
    for fill in change.fills:
        value = [stored_value(fill.column, time_zone=zone, commit_ts=step.ts, session=step.session)]
        converted = from_neutral(value, fill.column.type, fill.target.delta, time_zone=zone, zero_date=zero_date)
        have[fill.target.mapping_id] = pa.repeat(converted[0], rows.num_rows)
    for turn in change.conversions:
        have[turn.target.mapping_id] = _converted(have[turn.source.mapping_id], turn, step, options, past=past)
    arrays = [
        have.get(column.mapping_id, pa.nulls(rows.num_rows, arrow_type(column.delta))) for column in change.columns
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in change.columns])


def _is_past(rows: pa.Table) -> bool:
    """True for old changes and versions that have ended: upstream had no such row to convert."""
    if VALID_TO in rows.column_names:
        return bool(rows.column(VALID_TO).null_count == 0)
    return CHANGE_TYPE in rows.column_names or OP in rows.column_names


def _converted(stored: Any, turn: Convert, step: Alter, options: DeltaOptions, *, past: bool) -> Any:
    zone = options.time_zone
    rule = converter(turn.old.type, turn.new.type, time_zone=zone, commit_ts=step.ts, session=step.session.zone)
    numbers = all(is_number(arrow_type(side.delta)) for side in (turn.source, turn.target))
    if rule is None and numbers:
        return stored.cast(arrow_type(turn.target.delta))

    def convert(value: Value) -> Value:
        try:
            return value if rule is None else rule(value)
        except TidegateError:
            if not past:
                raise
            return None

    return map_neutral(
        stored,
        turn.old.type,
        turn.new.type,
        turn.target.delta,
        convert,
        time_zone=zone,
        zero_date=options.zero_date,
    )


TRIES_MAX: Final = 5
READ_TRIES: Final = 3


@dataclass(slots=True)
class TableResult:
    """The outcome of a unit for one stored table; `version` is its Delta version afterwards."""

    incarnation: str
    name: TableName
    version: int
    rows: int = 0
    ahead: int = 0
    """The ts of a table whose step was done already; above the round's end if a longer one was cut off."""
    messages: int = 0
    corrupt: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)
    size_bytes: int = 0

    @property
    def by_table(self) -> Mapping[TableName, int]:
        return {self.name: self.rows}


def run_unit(unit: Unit, changes: Changes, options: DeltaOptions) -> list[TableResult]:
    """Apply the steps of a unit to its tables; the result has one entry per table."""
    results: dict[str, TableResult] = {}
    last: dict[str, TableInfo] = {}
    since: dict[str, int] = {}
    for step in unit.steps:
        if isinstance(step, Exchange):
            tables = [step.partitioned, step.other]
        else:
            tables = [step.new if isinstance(step, Alter | Trim) else step.table]
        for nth, table in enumerate(tables):
            done = _retrying(step, table, changes, options)
            if isinstance(step, Exchange) and nth == 0:
                failpoint("apply/exchange-half")
            result = results.setdefault(table.incarnation, TableResult(table.incarnation, table.name, 0))
            result.name, result.version = table.name, done.version
            result.rows += done.tally.rows
            result.corrupt += done.tally.corrupt
            result.path_counts.update(done.tally.path_counts)
            result.ahead = max(result.ahead, done.ahead)
            last[table.incarnation] = table
            since.setdefault(table.incarnation, done.before)
    if options.iceberg:
        for incarnation, result in results.items():
            project(options.table_uri(incarnation), result.version, last[incarnation], since[incarnation])
    return list(results.values())


def _retrying(step: Step, table: TableInfo, changes: Changes, options: DeltaOptions) -> "_Done":
    for _ in range(TRIES_MAX):
        try:
            return _run(step, table, changes, options)
        except CommitConflict as conflict:
            last = conflict
    raise SinkError(f"{last}: another run keeps committing to this table; run one changefeed per lake") from last


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    corrupt: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)

    def add(self, rows: int, corrupt: int, path_counts: PathCounts) -> None:
        self.rows += rows
        self.corrupt += corrupt
        self.path_counts.update(path_counts)

    def passing(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.add(len(chunk), chunk.corrupt, chunk.path_counts)
            yield chunk


class _Done(NamedTuple):
    before: int
    """The table's version before the step."""
    version: int
    tally: _Tally = _Tally()
    ahead: int = 0


def _run(step: Step, table: TableInfo, changes: Changes, options: DeltaOptions) -> _Done:
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    if snapshot is not None:
        check_mode(options.mode, snapshot.configuration.get(MODE, "replica"), f"table {table.name} in {options.root}")
    if isinstance(step, Create):
        return _create(step, snapshot, uri, options)
    if snapshot is None:
        raise no_rows(table, uri)
    table_position = position(snapshot, options.feed)
    if table_position >= position_of(step):
        return _Done(snapshot.version, snapshot.version, ahead=table_position[0])
    if isinstance(step, Rows):
        if options.iceberg:
            read_ahead(uri, snapshot.version)
        late = seen_since(snapshot, step.table, options)
        if actions := late or dates_as_text(snapshot, step.table, options):
            deltalog.commit(uri, snapshot.version + 1, actions, operation="ALTER", metadata={"feed": options.feed})
            return _run(step, table, changes, options)
        return _rows(step, table_position, snapshot, changes, options)
    try:
        match step:
            case Alter():
                failpoint("apply/before-alter")
                actions = alter(step, snapshot, options)
            case Trim():
                failpoint("apply/before-trim")
                actions = trim(step, snapshot, options)
            case Exchange():
                actions = exchange(step, table, snapshot, options)
    except TidegateError as error:
        ts, _ = position_of(step)
        located = type(error)(f"table {table.name} at ts {ts}: {error}. DDL: {getattr(step, 'query', '')}")
        raise located.at(table=str(table.name), commit_ts=ts) from error
    failpoint("apply/ddl-written")
    _commit(snapshot, actions, step, options, type(step).__name__.upper())
    failpoint("apply/ddl-committed")
    return _Done(snapshot.version, snapshot.version + 1)


def _commit(
    snapshot: TableSnapshot, actions: Sequence[Action], step: Step, options: DeltaOptions, operation: str
) -> None:
    step_position = position_of(step)
    metadata: Mapping[str, Any] = {
        "feed": options.feed,
        "ts": step_position[0],
        "seq": step_position[1],
        "ddl": getattr(step, "query", ""),
    }
    moved = progress(options.feed, step_position)
    deltalog.commit(snapshot.uri, snapshot.version + 1, [*actions, *moved], operation=operation, metadata=metadata)


def _create(step: Create, snapshot: TableSnapshot | None, uri: str, options: DeltaOptions) -> _Done:
    if snapshot is not None:
        return _Done(snapshot.version, snapshot.version, ahead=position(snapshot, options.feed)[0])
    failpoint("apply/before-create")
    past = inherited(step.old, uri, (step.ts, step.seq), options) if step.old is not None else None
    schema, kept = past or (first_schema(step.table, options), [])
    deltalog.create(
        uri,
        schema.fields(),
        [*progress(options.feed, (step.ts, step.seq)), *kept],
        metadata={"feed": options.feed, "ts": step.ts, "seq": step.seq, "table": str(step.table.name)},
        configuration=schema.configuration(options),
        name=str(step.table.name),
    )
    failpoint("apply/after-create")
    return _Done(-1, 0)


def _rows(
    step: Rows,
    table_position: Position,
    snapshot: TableSnapshot,
    changes: Changes,
    options: DeltaOptions,
) -> _Done:
    columns, tally = stored_columns(snapshot), _Tally()
    how = ROW_STEPS[form_of(step.table, options.mode)]
    if isinstance(changes, WrittenLoad):
        parts = changes.files_of(step.table, table_position, columns)
        actions = [action for part in parts for action in part.actions]
        for part in parts:
            tally.add(part.tally.rows, part.tally.corrupt, part.tally.path_counts)
        if not actions:
            return _Done(snapshot.version, snapshot.version, tally)
    else:
        chunks = if_any(changes.batches(step.table.name, max(step.after, table_position[0]), step.upto))
        if chunks is None:
            return _Done(snapshot.version, snapshot.version)
        failpoint("apply/rows-read")
        actions = how.write(snapshot, columns, how.read(tally.passing(chunks), step.table, columns, options))
        failpoint("apply/rows-written")
    _commit(snapshot, actions, step, options, how.operation)
    failpoint("apply/rows-committed")
    return _Done(snapshot.version, snapshot.version + 1, tally)


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Files with rows of a load that no commit names yet, of a table that was at `position` and had those columns."""

    table: TableInfo
    after: int
    position: Position
    columns: Columns
    actions: list[Action] = field(default_factory=list)
    tally: _Tally = field(default_factory=_Tally)


@dataclass(frozen=True, slots=True)
class WrittenLoad(LoadChanges):
    """A load whose rows are written: by incarnation, in order, the files of each table, or the error."""

    written: Mapping[str, Sequence[WrittenPart | TidegateError]] = field(default_factory=dict)

    def files_of(self, table: TableInfo, table_position: Position, columns: Columns) -> list[WrittenPart]:
        """Return the files of a table. Raises the error that stopped one, CommitConflict if the table has changed."""
        parts = []
        for part in self.written.get(table.incarnation, ()):
            if isinstance(part, TidegateError):
                raise part
            if (part.position, part.columns) != (table_position, columns):
                raise CommitConflict(f"table {table.name} changed while rows for it were written")
            parts.append(part)
        return parts


def write_part(unit: Unit, changes: Changes, options: DeltaOptions) -> list[WrittenPart]:
    """Write the rows of a step of a load as files, without a commit: no stored row has one of their keys. A read that
    fails is tried again here: an error of one part costs all parts of its table in the round."""
    for _ in range(READ_TRIES - 1):
        with suppress(SourceError):
            return _written_part(unit, changes, options)
    return _written_part(unit, changes, options)


def _written_part(unit: Unit, changes: Changes, options: DeltaOptions) -> list[WrittenPart]:
    (step,) = unit.row_steps
    uri = options.table_uri(step.table.incarnation)
    snapshot = deltalog.load(uri)
    if snapshot is None:
        raise no_rows(step.table, uri)
    table_position, how = position(snapshot, options.feed), ROW_STEPS[form_of(step.table, options.mode)]
    part = WrittenPart(step.table, step.after, table_position, stored_columns(snapshot))
    behind = changes.batches(step.table.name, max(step.after, table_position[0]), step.upto)
    for chunks in calls_of(
        behind, lambda chunk: sum(chunk_part.batch.after.nbytes for chunk_part in chunk.parts), most_bytes=FILE_BYTES
    ):
        failpoint("load/rows-read")
        rows = how.read(part.tally.passing(chunks), step.table, part.columns, options)
        part.actions.extend(how.write(snapshot.emptied(), part.columns, rows))
    failpoint("load/files-written")
    return [part]
