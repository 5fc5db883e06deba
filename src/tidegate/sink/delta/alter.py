"""What a change of columns does to a stored table.

columns only renamed, moved, dropped, added with NULL      one metaData action, files stay; it may begin column mapping
a default, a conversion                                    every file read, changed and written anew
a rename, a drop with column-mapping=never                 likewise
a table gets its first key                                 its log of changes becomes the rows that it tells of

Old changes and old versions move with the table: they have its columns of today.  A value of theirs that the new type
has no place for, and that upstream did not have to convert any more, becomes NULL.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.plan import Alter
from tidegate.expr.change import Rule, converter
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.event import Value
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.schema.literal import stored_value
from tidegate.sink.delta.changelog_rows import COMES, counted
from tidegate.sink.delta.columns import (
    COMMIT_TS,
    OP,
    Convert,
    Evolution,
    LakeColumn,
    bounded,
    evolve,
    logical_key,
    stored_columns,
)
from tidegate.sink.delta.files import read
from tidegate.sink.delta.history_files import by_kind, changes_of, news_of
from tidegate.sink.delta.keyless_rows import NUMBER, numbered
from tidegate.sink.delta.keys import distinct
from tidegate.sink.delta.lake_schema import next_schema, stored_schema, told_by_names
from tidegate.sink.delta.merge import rewrite
from tidegate.sink.delta.modes import BEFORE, CHANGE_SEQ, CHANGE_TS, CHANGE_TYPE, OWN_COLUMNS, VALID_TO, Form, form_of
from tidegate.sink.delta.old_images import OLD, unfolded, unpacked, with_old_images
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection import chosen_ids
from tidegate.sink.delta.types import DATES, arrow_type, from_neutral, is_number, map_neutral


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
    if not rewrites and (schema.mapped or told_by_names(before, schema.columns)):
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
    dates = [column for column in before if types.get(column.upstream_id) in DATES]
    if options.zero_date != "string" or all(column.delta == "string" for column in dates):
        return []
    options = msgspec.structs.replace(options, schema_change="evolve")
    change = evolve(snapshot, table, table, options)
    turns = tuple(turn for turn in change.conversions if turn.source.delta != "string" and turn.new.type.code in DATES)
    texts = {turn.source.upstream_id: turn.target for turn in turns}
    columns = tuple(replace(texts.get(one.upstream_id, one), name=one.name) for one in before)
    return _evolved(
        replace(change, columns=columns, fills=(), conversions=turns),
        Alter(table, table, table.version, 0),
        snapshot,
        options,
    )


def seen_since(snapshot: TableSnapshot, table: TableInfo, options: DeltaOptions) -> list[Action]:
    """Return the actions that add what `table`, which messages made, lacks; none where it lacks nothing.

    A round that a crash cut off may be planned anew with a later end: its Create is done, with fewer columns."""
    if not table.inferred or options.schema_change == "ignore":
        return []
    have = {column.upstream_id for column in stored_columns(snapshot)}
    late = chosen_ids(table, options) - have
    if not late:
        return []
    columns = tuple(msgspec.structs.replace(one, nullable=one.nullable or one.id in late) for one in table.columns)
    return alter(Alter(table, msgspec.structs.replace(table, columns=columns), table.version, 0), snapshot, options)


def _makes_key(change: Evolution, step: Alter) -> bool:
    """Whether a change gives the table a key, or values of its key."""
    if step.old == step.new or not step.new.handle_key:
        return False
    came = {fill.column.name for fill in change.fills} | {turn.new.name for turn in change.conversions}
    return step.old.handle_key != step.new.handle_key or not came.isdisjoint(step.new.handle_key)


def _new_key(
    snapshot: TableSnapshot, stored: Sequence[LakeColumn], step: Alter, options: DeltaOptions
) -> Iterator[pa.Table]:
    """The dates that a table's next key is of, and its last was not, where its files stay as they are."""
    if form_of(step.new, options.mode) != "ROWS":
        return
    fresh = [step.new.column(name) for name in step.new.handle_key if name not in step.old.handle_key]
    ids = {column.id for column in fresh if column is not None and column.type.code in DATES}
    columns = [column for column in stored if column.upstream_id in ids]
    for file in snapshot.files() if columns else ():
        yield read(snapshot.uri, file, columns)


def _check_key(rows: pa.Table, step: Alter) -> pa.Table:
    """Return rows that have their key. SinkRefused where a column of it is NULL, which upstream it cannot be."""
    for name in step.new.handle_key if not _is_past(rows) else ():
        if name in rows.column_names and rows.column(name).null_count:
            raise SinkRefused(
                f"column {name} of the key holds NULL, which stands for zero dates here: rows could not be told apart; "
                "begin a fresh lake with zero-date=string, or leave the table out by a filter"
            )
    return rows


def _rewritten(snapshot: TableSnapshot, change: Evolution, step: Alter, options: DeltaOptions) -> list[Action]:
    files = snapshot.files()
    before = stored_columns(snapshot)
    stored: Iterable[pa.Table] = (read(snapshot.uri, file, before) for file in files)
    reshape = RESHAPES.get(_forms(step, options))
    if reshape is not None and files:
        stored = [reshape(unfolded(pa.concat_tables(stored), before), logical_key(step.new, before))]
    rows = (_with_old_images(part, before, change, step, options) for part in _by_kind(stored))
    if _makes_key(change, step):
        rows = (_check_key(part, step) for part in rows)
    return rewrite(snapshot.uri, files, rows, change.columns, bounded(step.new, change.columns))


def _forms(step: Alter, options: DeltaOptions) -> tuple[Form, Form]:
    return form_of(step.old, options.mode), form_of(step.new, options.mode)


def _by_kind(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The parts, versions that are valid apart from those that have ended."""
    for part in parts:
        if VALID_TO in part.column_names:
            yield from by_kind(part)
        else:
            yield part


def _collapsed(log: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that an unfolded log of changes tells of, for the key that the table has from now on.

    Rows of a time when the table had a key have no op; they came before all others.  A log that lacks the old image of
    an UPDATE does not say which row was changed: it is folded by the new key."""
    if OP not in log.column_names:
        return log
    op, ts = pc.fill_null(log.column(OP), "I"), pc.fill_null(log.column(COMMIT_TS), 0)
    comes = pc.invert(pc.is_in(op, pa.array(["D", OLD])))
    updates, old_images = (pc.sum(pc.equal(op, one)).as_py() for one in ("U", OLD))
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


def _versions(log: pa.Table, key: Sequence[str]) -> pa.Table:
    """The versions that a log of changes tells of; of a log that leaves old images out, by the key that the table has
    from now on."""
    own = {column.name for column in OWN_COLUMNS["CHANGES"]}
    image = [name for name in log.column_names if name not in own]
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    told = news_of(numbered(log, image, comes, [CHANGE_TS, CHANGE_SEQ]), [*image, NUMBER]).versions
    versions = told.drop_columns([NUMBER])
    if distinct(versions.filter(versions.column(VALID_TO).is_null()).select(list(key))):
        return versions
    return news_of(log, key).versions


RESHAPES: Final[Mapping[tuple[Form, Form], Callable[[pa.Table, Sequence[str]], pa.Table]]] = {
    ("LOG", "ROWS"): _collapsed,
    ("CHANGES", "VERSIONS"): _versions,
    ("VERSIONS", "CHANGES"): lambda versions, _key: changes_of(versions),
}
"""What becomes of stored rows when a table gets its first key or loses its last."""


def _with_old_images(
    rows: pa.Table, before: Sequence[LakeColumn], change: Evolution, step: Alter, options: DeltaOptions
) -> pa.Table:
    """Stored rows after a change of columns, and the old images in a log likewise."""
    changed = _changed(rows, before, change, step, options, past=_is_past(rows))
    if BEFORE not in rows.column_names or BEFORE not in changed.column_names:
        return changed
    known = rows.column(BEFORE).is_valid()
    if not pc.any(known).as_py():
        return changed
    images = unpacked(rows.column(BEFORE).filter(known), before)
    return with_old_images(changed, _changed(images, before, change, step, options, past=True), known, change.columns)


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
        one = from_neutral(value, fill.column.type, fill.target.delta, time_zone=zone, zero_date=zero_date)
        have[fill.target.mapping_id] = pa.repeat(one[0], rows.num_rows)
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
    """A stored column after its change of type; plain widening of numbers is one cast."""
    zone = options.time_zone
    rule = converter(turn.old.type, turn.new.type, time_zone=zone, commit_ts=step.ts, session=step.session.zone)
    numbers = all(is_number(arrow_type(side.delta)) for side in (turn.source, turn.target))
    if rule is None and numbers:
        return stored.cast(arrow_type(turn.target.delta))
    return map_neutral(
        stored,
        turn.old.type,
        turn.new.type,
        turn.target.delta,
        _or_null(rule or _same) if past else rule or _same,
        time_zone=zone,
        zero_date=options.zero_date,
    )


def _same(value: Value) -> Value:
    return value


def _or_null(rule: Rule) -> Rule:
    """The rule, NULL where it has no answer."""

    def convert(value: Value) -> Value:
        try:
            return rule(value)
        except TidegateError:
            return None

    return convert
