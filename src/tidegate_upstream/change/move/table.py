"""Tables and databases as wholes: create, drop, truncate, rename, recover.

    create     none ──► public                           truncate   the id changes, the rest stays
    drop       public ──► write-only ──► delete-only ──► none: key, counters and rows go
    rename     version 1: the new name, below the new database's key      version 2: all nodes have seen it

Counters of ids lie below the database that a table was made in: after a move to another one `old_schema_id` names it.

Source: TiDB pkg/ddl/create_table.go, table.go, schema.go.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET

from tidegate.model.errors import SqlRefused
from tidegate.schema.job import AffectedTable, SchemaDiff
from tidegate.schema.stored.arguments import (
    CharsetArgs,
    CreateSchemaArgs,
    CreateTableArgs,
    NewTableArgs,
    RecoverArgs,
    RenameTableArgs,
    RenameTablesArgs,
)
from tidegate.schema.stored.definition import Name, StoredForeignKey, StoredPartitionDef, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import Draft, Move, States
from tidegate_upstream.change.move.attribute import counter_kind
from tidegate_upstream.change.outcome import CounterChange, DeleteRange
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC = ElementState.NONE, ElementState.PUBLIC


def counter_home(schema_id: int, table: StoredTable) -> int:
    """Return the database below whose key the table's counters lie."""
    return schema_id if table.old_schema_id is UNSET else table.old_schema_id


def counters_deleted(schema_id: int, table: StoredTable) -> list[CounterChange]:
    """Return all counters of a table, to be deleted."""
    kinds = ("SID",) if table.is_sequence else ("TID", "IID", "TARID")
    return [CounterChange(kind, counter_home(schema_id, table), table.id, None) for kind in kinds]


def _diff(request: Request, schema_id: int, table_id: int, **members: object) -> SchemaDiff:
    return SchemaDiff(0, request.action, schema_id, table_id, **members)  # type: ignore[arg-type]


def _gone_partitions(table: StoredTable) -> list[AffectedTable] | None:
    """The affected tables of a diff that takes partitions away."""
    if table.partition is None:
        return None
    return [AffectedTable(table_id=one, old_table_id=one) for one in table.physical_ids]


def _create_schema(draft: Draft, request: Request, _old: States, _new: States) -> None:
    assert isinstance(request.arguments, CreateSchemaArgs)
    made = msgspec.structs.replace(request.arguments.db_info, state=_PUBLIC)
    if any(schema.name.lower == made.name.lower for schema in draft.definitions.schemas()):
        raise SqlRefused(1007, f"Can't create database '{made.name.original}'; database exists", "HY000")
    draft.schemas_put.append(made)
    draft.schema_result = made


def _alter_schema(draft: Draft, request: Request, _old: States, _new: States) -> None:
    assert isinstance(request.arguments, CharsetArgs)
    changed = msgspec.structs.replace(
        draft.schema(request.schema_id, request.schema_name),
        charset=request.arguments.to_charset,
        collate=request.arguments.to_collate,
    )
    draft.schemas_put.append(changed)
    draft.schema_result = changed


def _drop_schema(draft: Draft, request: Request, _old: States, new: States) -> None:
    state = new["table"]
    changed = msgspec.structs.replace(draft.schema(request.schema_id, request.schema_name), state=state)
    draft.schema_result = changed
    if state is not _NONE:
        draft.schemas_put.append(changed)
        return
    for table in draft.definitions.tables(request.schema_id):
        draft.remove(request.schema_id, table.id)
        draft.counters += counters_deleted(request.schema_id, table)
        draft.ranges += _row_ranges(table)
    draft.schemas_removed.append(request.schema_id)


def _row_ranges(table: StoredTable) -> list[DeleteRange]:
    """The keys of a table's rows and entries: its own id's, and its partitions'."""
    if table.is_view or table.is_sequence:
        return []
    ids = dict.fromkeys((*table.physical_ids, table.id))
    return [DeleteRange(physical) for physical in ids]


def _create_table(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, CreateTableArgs)
    draft.schema(request.schema_id, request.schema_name)
    if old["table"] is not _NONE:
        made = msgspec.structs.replace(draft.table(request), state=new["table"])
        draft.update(request, made)
        return
    made, replaced = request.arguments.table_info, request.arguments.old_view_tbl_id
    draft.free_name(request, request.schema_id, made.name.original, but=replaced)
    if replaced:
        draft.remove(request.schema_id, replaced)
        draft.diff = _diff(request, request.schema_id, made.id, old_table_id=replaced)
    draft.put(request.schema_id, msgspec.structs.replace(made, state=new["table"]), stamped=True)
    if made.is_sequence:
        draft.counters.append(CounterChange("SID", request.schema_id, made.id, 0))
    for kind, base in ((counter_kind(made), made.auto_inc_id), ("TARID", made.auto_rand_id)):
        if base > 1:
            draft.counters.append(CounterChange(kind, request.schema_id, made.id, base - 1))


def _drop_table(draft: Draft, request: Request, _old: States, new: States) -> None:
    table = draft.table(request)
    state = new["table"]
    draft.update(request, msgspec.structs.replace(table, state=state))
    if state is _NONE:
        draft.remove(request.schema_id, table.id)
        draft.counters += counters_deleted(request.schema_id, table)
        draft.ranges += _row_ranges(table)
        draft.diff = _diff(request, request.schema_id, table.id, affected_options=_gone_partitions(table))


def _truncate(draft: Draft, request: Request, _old: States, _new: States) -> None:
    arguments, table = request.arguments, draft.table(request)
    assert isinstance(arguments, NewTableArgs)
    fresh = msgspec.structs.replace(table, id=arguments.new_table_id, old_schema_id=UNSET)
    if table.partition is not None:
        ids = arguments.new_partition_ids or []
        if len(ids) != len(table.partition.definitions or ()):
            name = table.name.original
            raise SqlRefused(8200, f"Unsupported truncate table: the partitions of '{name}' have changed; ask again")
        definitions: list[StoredPartitionDef] = [
            msgspec.structs.replace(one, id=new_id)
            for one, new_id in zip(table.partition.definitions or (), ids, strict=True)
        ]
        fresh = msgspec.structs.replace(
            fresh, partition=msgspec.structs.replace(table.partition, definitions=definitions)
        )
    draft.remove(request.schema_id, table.id)
    draft.put(request.schema_id, fresh)
    draft.counters += counters_deleted(request.schema_id, table)
    draft.ranges += _row_ranges(table)
    draft.diff = _diff(request, request.schema_id, fresh.id, old_table_id=table.id)


def _renamed(draft: Draft, one: RenameTableArgs, table_id: int, request: Request) -> list[AffectedTable]:
    """Write the table under its new name and key; the tables that refer to it, which change as well."""
    table = draft.find(one.old_schema_id, table_id)
    if table is None:
        name = f"{one.old_schema_name.original}.{one.old_table_name.original or request.table_name}"
        raise SqlRefused(1146, f"Table '{name}' doesn't exist", "42S02")
    draft.free_name(request, one.new_schema_id, one.new_table_name.original, but=table_id)
    home = counter_home(one.old_schema_id, table)
    old = draft.schema(one.old_schema_id, one.old_schema_name.original).name.lower, table.name.lower
    new = draft.schema(one.new_schema_id, request.schema_name).name, one.new_table_name
    children = _children_renamed(draft, table_id, old, new)
    if table.fk_info:
        table = msgspec.structs.replace(table, fk_info=_referring(table.fk_info, old, new))
    draft.remove(one.old_schema_id, table_id)
    moved = msgspec.structs.replace(
        table, name=one.new_table_name, old_schema_id=UNSET if home == one.new_schema_id else home
    )
    draft.put(one.new_schema_id, moved)
    return children


def _children_renamed(draft: Draft, table_id: int, old: tuple[str, str], new: tuple[Name, Name]) -> list[AffectedTable]:
    """The tables whose foreign keys refer to the table, which now do so by its new name; written."""
    found = []
    for schema in draft.definitions.schemas():
        for stored in draft.definitions.tables(schema.id):
            child = draft.find(schema.id, stored.id)
            if child is None or child.id == table_id or not child.fk_info:
                continue
            keys = child.fk_info
            if all((key.ref_schema.lower, key.ref_table.lower) != old for key in keys):
                continue
            renamed = _referring(keys, old, new)
            child = msgspec.structs.replace(child, fk_info=renamed, revision=child.revision + 1)
            draft.put(schema.id, child, stamped=True)
            found.append(AffectedTable(schema.id, child.id, child.id, schema.id))
    return found


def _referring(keys: list[StoredForeignKey], old: tuple[str, str], new: tuple[Name, Name]) -> list[StoredForeignKey]:
    """`keys` where those that refer to the table `old` refer to `new`."""
    return [
        msgspec.structs.replace(key, ref_schema=new[0], ref_table=new[1])
        if (key.ref_schema.lower, key.ref_table.lower) == old
        else key
        for key in keys
    ]


def _rename(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, RenameTableArgs)
    one = request.arguments
    first = old["new name"] is not new["new name"]
    children: list[AffectedTable] = []
    if first:
        children = _renamed(draft, one, request.table_id, request)
    else:
        draft.result = draft.table(request)
    before = one.old_schema_id if first else one.new_schema_id
    draft.diff = _diff(
        request, one.new_schema_id, request.table_id, old_schema_id=before, affected_options=children or None
    )


def _rename_all(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, RenameTablesArgs)
    first = old["new name"] is not new["new name"]
    affected, children = [], []
    results: dict[int, StoredTable] = {}
    for one in request.arguments.rename_table_infos:
        if first:
            children += _renamed(draft, one, one.table_id, request)
        else:
            found = results.get(one.table_id) or _last_place(draft, request.arguments, one.table_id)
            results[one.table_id] = found
            draft.results.append(found)
            draft.result = found
        before = one.old_schema_id if first else one.new_schema_id
        affected.append(AffectedTable(one.new_schema_id, one.table_id, one.table_id, before))
    head = affected[0]
    draft.diff = _diff(
        request,
        head.schema_id,
        head.table_id,
        old_schema_id=head.old_schema_id,
        affected_options=[*affected[1:], *children] or None,
    )


def _last_place(draft: Draft, arguments: RenameTablesArgs, table_id: int) -> StoredTable:
    schema_id = [one.new_schema_id for one in arguments.rename_table_infos if one.table_id == table_id][-1]
    found = draft.find(schema_id, table_id)
    if found is None:
        raise SqlRefused(1146, f"Table {table_id} doesn't exist", "42S02")
    return found


def _recover(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, RecoverArgs)
    table = request.arguments.table_info
    draft.free_name(request, request.schema_id, table.name.original)
    if new["table"] is not _PUBLIC:
        return
    table = draft.put(request.schema_id, msgspec.structs.replace(table, state=_PUBLIC), stamped=True)
    again = msgspec.structs.replace(table, index_info=table.index_info or [], revision=table.revision + 1)
    draft.put(request.schema_id, again)
    draft.result = table
    for kind in ("SID",) if table.is_sequence else ("TID", "IID", "TARID"):
        home = counter_home(request.schema_id, table)
        draft.counters.append(CounterChange(kind, home, table.id, 0, at_ts=request.arguments.snapshot_ts))
    draft.diff = _diff(
        request,
        request.schema_id,
        table.id,
        affected_options=[AffectedTable(table_id=one, old_table_id=one) for one in table.physical_ids],
    )


TABLE_MOVES: Final[Mapping[int, Move]] = {
    1: _create_schema,
    2: _drop_schema,
    3: _create_table,
    4: _drop_table,
    11: _truncate,
    14: _rename,
    21: _create_table,
    24: _drop_table,
    25: _recover,
    26: _alter_schema,
    34: _create_table,
    36: _drop_table,
    47: _rename_all,
}
