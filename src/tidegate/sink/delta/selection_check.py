"""Whether a lake's stored columns are still those that its column selectors choose; told before anything is done.

    the rules changed since the last run         each known table: are its stored columns those that are chosen now?
    a round makes or changes a table             does the key stay, do any columns stay?
    a round renames a table, or brings it back   are the same columns chosen under both names?

What a DDL does to chosen columns is followed where it is done (columns.py).  A table that changes its name keeps the
columns that it has, so another choice under the new name would go on with values missing, or with values that nobody
wants any more: both end the changefeed.
"""

from collections.abc import Iterable

import msgspec

from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import Alter, Create, Round
from tidegate.engine.retention import PURGED
from tidegate.model.errors import ColumnSelectorFailed
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection import chosen_ids, stored_definition
from tidegate.sink.delta.snapshots import Snapshot


def check_rules(snapshot: Snapshot, options: DeltaOptions) -> None:
    """Raise ColumnSelectorFailed when the rules are others than those of the snapshot, and the stored columns of some
    table are not those that are chosen now."""
    before = snapshot.options
    if before is None or _rules(before) == _rules(options):
        return
    for table in snapshot.state.tables.values():
        published = snapshot.tables.get(table.incarnation)
        if published is None or not accepted(table.name, options):
            continue
        was, now = chosen_ids(table, before), chosen_ids(stored_definition(table, options), options)
        if was != now:
            stored = _stored_ids(table, published.version, options)
            _refuse(table.name, [one for one in table.columns if one.id in (was ^ now) & (now ^ stored)], now)


def check_round(snapshot: Snapshot, planned: Round, options: DeltaOptions) -> None:
    """Raise ColumnSelectorFailed for a round behind the snapshot that a lake with these selectors cannot follow."""
    if not options.selectors:
        return
    names = {table.incarnation: table.name for table in (*snapshot.state.dropped, *snapshot.state.tables.values())}
    for unit in planned.units:
        for step in unit.steps:
            if isinstance(step, Create):
                stored_definition(step.table, options)
                names[step.table.incarnation] = step.table.name
            elif isinstance(step, Alter):
                stored_definition(step.new, options)
    for table in planned.state.tables.values():
        name = names.get(table.incarnation, table.name)
        if name != table.name and accepted(table.name, options):
            _check_renamed(table, name, options)
    if options.schema_change not in ("lenient", "ignore"):  # these keep other columns than those of the definition
        _check_recovered(snapshot, planned, options)


def _check_recovered(snapshot: Snapshot, planned: Round, options: DeltaOptions) -> None:
    there = {table.incarnation for table in planned.state.tables.values()}
    for table in snapshot.state.dropped:
        version = snapshot.retired.get(table.incarnation, PURGED)
        if version != PURGED and table.incarnation in there:
            chosen = chosen_ids(table, options)
            stored = _stored_ids(table, version, options)
            _refuse(table.name, [one for one in table.columns if one.id in chosen ^ stored and not one.virtual], chosen)


def _check_renamed(table: TableInfo, name: TableName, options: DeltaOptions) -> None:
    before, after = (chosen_ids(msgspec.structs.replace(table, name=one), options) for one in (name, table.name))
    differing = [column.name for column in table.columns if column.id in before ^ after]
    if differing:
        raise ColumnSelectorFailed(
            f"table {name} becomes {table.name} at ts {table.version}, and column selectors choose other columns of it "
            f"under its new name ({', '.join(differing)}); let them choose the same under both names"
        )


def _refuse(name: TableName, differing: Iterable[ColumnInfo], chosen: frozenset[int]) -> None:
    told = [f"{column.name} is {'not ' if column.id in chosen else ''}stored" for column in differing]
    if told:
        raise ColumnSelectorFailed(
            f"table {name}: column selectors choose other columns than the lake holds ({', '.join(told)}); go on with "
            "the selectors that it was written with, or begin a fresh lake"
        )


def _stored_ids(table: TableInfo, version: int, options: DeltaOptions) -> frozenset[int]:
    found = deltalog.load(options.table_uri(table.incarnation), version)
    return frozenset() if found is None else frozenset(column.upstream_id for column in stored_columns(found))


def accepted(name: TableName, options: DeltaOptions) -> bool:
    """Return whether the lake's filter rules take a table."""
    return TableFilter.parse(options.rules, case_sensitive=options.case_sensitive).matches(*name)


def _rules(options: DeltaOptions) -> tuple[object, ...]:
    return options.selectors, options.case_sensitive and bool(options.selectors)
