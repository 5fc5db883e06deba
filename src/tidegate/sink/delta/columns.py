"""Stored columns of a lake table and how a schema change moves them.

    upstream column id ──► stored column: name (what readers see) + id and name inside Parquet files + Delta type

    rename, move, drop     names change, files stay (without column mapping: rewritten)
    add                    files stay; rewritten only when old rows hold a value other than NULL
    change of type         a new column, rewritten through the rules of expr/change.py

Every stored column carries its upstream column id in the schema's field metadata, so the mapping survives renames
and needs no second place.  Columns of ours stand behind the upstream's (modes.py); a DDL treats old changes and old
versions as it treats rows.  What columns are called inside files: lake_schema.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.expr.change import converter
from tidegate.model.errors import ColumnSelectorFailed, SinkRefused
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.objectstore.deltalog import TableSnapshot
from tidegate.schema.literal import stored_value
from tidegate.sink.delta.lake_schema import (
    LakeColumn,
    LakeSchema,
    free_above,
    next_schema,
    stored_columns,
    stored_schema,
)
from tidegate.sink.delta.modes import BEFORE, CHANGE_TS, COMMIT_TS, OP, VALID_FROM, VALID_TO, own_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection import chosen_ids, stored_definition
from tidegate.sink.delta.types import delta_type

__all__ = [
    "COMMIT_TS",
    "OP",
    "Convert",
    "Evolution",
    "Fill",
    "LakeColumn",
    "bounded",
    "evolve",
    "first_schema",
    "logical_key",
    "stored_columns",
]


@dataclass(frozen=True, slots=True)
class Fill:
    """A new column whose stored rows hold the value of its default."""

    target: LakeColumn
    column: ColumnInfo


@dataclass(frozen=True, slots=True)
class Convert:
    """A column whose stored values become those of another type."""

    source: LakeColumn
    target: LakeColumn
    old: ColumnInfo
    new: ColumnInfo


@dataclass(frozen=True, slots=True)
class Evolution:
    """The columns after a change, and what has to be done to stored rows (nothing: metadata only).

    The names of new columns inside files are for `next_schema` to tell."""

    columns: tuple[LakeColumn, ...]
    max_id: int
    fills: tuple[Fill, ...] = ()
    conversions: tuple[Convert, ...] = ()

    @property
    def rewrites(self) -> bool:
        """True when data files change."""
        return bool(self.fills or self.conversions)


def first_schema(table: TableInfo, options: DeltaOptions) -> LakeSchema:
    """Return the columns of a table that is just being made; raises SinkRefused for a name that it cannot have."""
    columns = [
        LakeColumn(name, delta, at, upstream, name)
        for at, (name, delta, upstream, _) in enumerate(_wanted(table, options), 1)
    ]
    return next_schema(LakeSchema(), columns, len(columns), options.column_mapping, rewritten=True)


def logical_key(table: TableInfo, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the stored names of the columns that identify a row."""
    ids = {column.id for name in table.handle_key if (column := table.column(name)) is not None}
    return [column.name for column in columns if column.upstream_id in ids]


def bounded(table: TableInfo, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the stored names of the columns by which files are ordered and found."""
    own = {column.name for column in columns if column.upstream_id < 0}
    if {VALID_FROM, VALID_TO} <= own:
        return [*logical_key(table, columns), VALID_FROM, VALID_TO]
    return [CHANGE_TS] if CHANGE_TS in own else logical_key(table, columns)


def evolve(
    snapshot: TableSnapshot, old: TableInfo, new: TableInfo, options: DeltaOptions, session: str = ""
) -> Evolution:
    """Return the columns that `new` asks for, given the stored ones; `session` is the time zone of the DDL's session.

    Raises SinkRefused under schema-change=exception, ColumnSelectorFailed for a choice that cannot be followed."""
    before = stored_schema(snapshot)
    current = {column.upstream_id: column for column in before.columns}
    old_by_id = {column.id: column for column in old.columns}
    max_id = free_above(before.columns, before.max_id)
    columns: list[LakeColumn] = []
    fills: list[Fill] = []
    conversions: list[Convert] = []
    for name, delta, upstream, column in _wanted(new, options):
        have = current.get(upstream)
        if have is None:
            max_id += 1
            have = LakeColumn(name, delta, max_id, upstream, name)
            unknown = upstream in old_by_id and _check_late_choice(old, new, name, upstream, options)
            if column is not None and not unknown and stored_value(column, time_zone=options.time_zone) is not None:
                fills.append(Fill(have, column))
        elif (
            column is not None
            and (was := old_by_id.get(upstream)) is not None
            and (delta != have.delta or _differs(was, column, options, session))
        ):
            max_id += 1
            target = LakeColumn(name, delta, max_id, upstream, name)
            conversions.append(Convert(have, target, was, column))
            have = target
        columns.append(replace(have, name=name))
    return _by_policy(Evolution(tuple(columns), max_id, tuple(fills), tuple(conversions)), current, new, options)


def _check_late_choice(old: TableInfo, new: TableInfo, name: str, upstream: int, options: DeltaOptions) -> bool:
    """Whether column selectors choose a column under its new name only, so that its stored values are not known.

    ColumnSelectorFailed where the policy has no way to go on without them."""
    before = next(column for column in old.columns if column.id == upstream)
    if before.virtual or upstream in chosen_ids(old, options):
        return False
    if options.schema_change in ("try_evolve", "ignore"):
        return True
    raise ColumnSelectorFailed(
        f"column {before.name} of {new.name} becomes {name} at ts {new.version}: column selectors choose the new name "
        "and not the old one, so the lake lacks its values of before; let them leave out the new name, too, or choose "
        "both and begin a fresh lake"
    )


def _differs(old: ColumnInfo, new: ColumnInfo, options: DeltaOptions, session: str) -> bool:
    if old.type == new.type:
        return False
    return converter(old.type, new.type, time_zone=options.time_zone, session=session) is not None


def _wanted(table: TableInfo, options: DeltaOptions) -> list[tuple[str, str, int, ColumnInfo | None]]:
    table = stored_definition(table, options)
    wanted: list[tuple[str, str, int, ColumnInfo | None]] = [
        (
            column.name,
            delta_type(column.type, inferred=table.inferred, zero_date=options.zero_date),
            column.id,
            column,
        )
        for column in table.columns
        if not column.virtual
    ]
    return wanted + [(name, delta, upstream, None) for name, delta, upstream in own_columns(table, options.mode)]


def _by_policy(
    change: Evolution, current: Mapping[int, LakeColumn], new: TableInfo, options: DeltaOptions
) -> Evolution:
    if options.schema_change in ("evolve", "try_evolve"):
        return change
    if options.schema_change == "exception":
        wanted = {column.upstream_id: column for column in change.columns}
        late = {column.upstream_id for column in change.columns if column.name == BEFORE} - current.keys()
        if {id_: column for id_, column in wanted.items() if id_ not in late} != current:
            raise SinkRefused(
                f"table {new.name} changes its columns at ts {new.version} and schema-change=exception forbids it; "
                "run with schema-change=evolve to follow it, or lenient to only add columns",
            )
        return change
    if options.schema_change == "ignore":
        own = tuple(column for column in change.columns if column.upstream_id < 0)
        return Evolution((*(column for id_, column in current.items() if id_ >= 0), *own), change.max_id)
    kept = {column.upstream_id for column in change.columns}
    names = {lowered(column.name) for column in change.columns}
    leftovers = tuple(
        column for id_, column in current.items() if id_ >= 0 and id_ not in kept and lowered(column.name) not in names
    )
    return Evolution(change.columns + leftovers, change.max_id, change.fills, change.conversions)
