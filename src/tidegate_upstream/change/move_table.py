"""Moves of whole databases and tables, of table attributes and of partitions: the definitions after one step of a job.

Each move takes the draft of the definitions, the request, and the states before and after the step.

    create     none ──► public
    drop       public ──► write-only ──► delete-only ──► none: key, counters and rows are removed
    truncate   the table gets a new id, everything else is kept
    rename     version 1: the new name, under the key of the new database      version 2: all nodes have loaded it
    attribute  one step: the definition before, the definition after

The id counters of a table stay under the database in which it was created; after a RENAME into another database
`old_schema_id` names it.

The `ddl_action` and `ddl_state` of a partitioning record the running DDL:

    add           adding_definitions ──► definitions
    drop          definitions ──► dropping_definitions, done ──► removed, with the rows
    truncate      new_partition_ids ──► definitions have them, the old ones are dropping, done ──► removed
    reorganize    delete-only .. write-reorg     adding_definitions and dropping_definitions beside definitions
                  delete-reorg, public           the new ones are in definitions, the old ones still dropping
                  none                           only the new ones; PARTITION BY and REMOVE give the table a new id
    exchange      write-only                     the table accepts only rows that fit the partition
                  none                           ids are swapped; one version later the table accepts all rows again

A table without partitions is reorganized as one with the single partition pFullTable, whose id is the table's.

ADD, DROP and TRUNCATE PARTITION are done at the step from which rows lie where they lie at the end: a reader of
finished jobs then knows the ids of all rows that nodes of that version write.  Rows that a node one version behind
still writes into a partition being removed lie under an id which that reader no longer knows, and are removed with the
delete range.  TiDB's first step of DROP PARTITION only marks the partition and keeps it in definitions for one version
more, though nobody reads or writes it then.

Source: TiDB pkg/ddl/create_table.go, table.go, schema.go, index.go, column.go, ttl.go, sequence.go, partition.go.
"""

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.job import AffectedTable, SchemaDiff
from tidegate.schema.stored.arguments import (
    AlterSequenceArgs,
    CharsetArgs,
    CheckNameArgs,
    CreateSchemaArgs,
    CreateTableArgs,
    DropPartitionsArgs,
    ExchangeArgs,
    NewPartitionsArgs,
    NewTableArgs,
    RebaseArgs,
    RecoverArgs,
    RenameTableArgs,
    RenameTablesArgs,
    SetDefaultArgs,
    TruncatePartitionsArgs,
    TtlArgs,
)
from tidegate.schema.stored.definition import (
    NO_DEFAULT,
    ElementState,
    Name,
    StoredColumn,
    StoredForeignKey,
    StoredPartition,
    StoredPartitionDef,
    StoredTable,
)
from tidegate_upstream.change.draft import (
    CounterChange,
    DeleteRange,
    Draft,
    Move,
    States,
    column_of,
    known_index,
    move_column,
    with_index,
)
from tidegate_upstream.change.make_column import check_names, check_order
from tidegate_upstream.change.request import Request
from tidegate_upstream.errors import missing_name, missing_table

_NONE, _PUBLIC, _WRITE_ONLY, _DELETE_ONLY = (
    ElementState.NONE,
    ElementState.PUBLIC,
    ElementState.WRITE_ONLY,
    ElementState.DELETE_ONLY,
)

_AUTO_RANDOM: Final = 40


def counter_kind(table: StoredTable) -> str:
    """Return the counter of AUTO_INCREMENT: a separate one with AUTO_ID_CACHE 1, else that of row ids."""
    return "IID" if table.auto_id_cache == 1 else "TID"


def _charset(table: StoredTable, arguments: CharsetArgs) -> StoredTable:
    changed = msgspec.structs.replace(table, charset=arguments.to_charset, collate=arguments.to_collate)
    if not arguments.needs_overwrite_cols:
        return changed
    columns = [converted(column, arguments.to_charset, arguments.to_collate) for column in table.cols or ()]
    return msgspec.structs.replace(changed, cols=columns)


def converted(column: StoredColumn, charset: str, collate: str) -> StoredColumn:
    """Return `column` in another charset if it is a text column."""
    if column.type.charset in ("binary", ""):
        return column
    return msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, charset=charset, collate=collate))


def _set_default(table: StoredTable, arguments: SetDefaultArgs) -> StoredTable:
    new = arguments.column_info
    old = column_of(table, new.name.lower)
    if old is None:
        raise SqlRefused(1054, f"Unknown column '{new.name.original}' in '{table.name.original}'", "42S22")
    flag = (new.type.flag & NO_DEFAULT) | (old.type.flag & ~NO_DEFAULT)
    if msgspec.structs.replace(new.type, flag=0) != msgspec.structs.replace(old.type, flag=0):
        message = f"Unsupported alter column: '{old.name.original}' has another type now; repeat the statement"
        raise SqlRefused(8200, message, "HY000")
    column = msgspec.structs.replace(
        old,
        default=new.default,
        default_bit=new.default_bit,
        default_is_expr=new.default_is_expr,
        type=msgspec.structs.replace(old.type, flag=flag),
    )
    return move_column(table, column, old.offset)


def _enforced(table: StoredTable, arguments: CheckNameArgs) -> StoredTable:
    checks = table.constraint_info or ()
    if not any(check.constraint_name.lower == arguments.constraint_name.lower for check in checks):
        raise SqlRefused(3940, f"Constraint '{arguments.constraint_name.original}' does not exist.", "HY000")
    changed = [
        msgspec.structs.replace(check, enforced=arguments.enforced)
        if check.constraint_name.lower == arguments.constraint_name.lower
        else check
        for check in checks
    ]
    return msgspec.structs.replace(table, constraint_info=changed)


def _ttl(table: StoredTable, arguments: TtlArgs) -> StoredTable:
    current = table.ttl_info
    changed = arguments.ttl_info or current
    if changed is None:
        raise SqlRefused(8150, "Cannot set TTL_ENABLE on a table without TTL config", "HY000")
    if arguments.ttl_info is not None and current is not None and arguments.ttl_enable is None:
        changed = msgspec.structs.replace(changed, enable=current.enable)
    if arguments.ttl_info is not None and current is not None and arguments.ttl_cron_job_schedule is None:
        changed = msgspec.structs.replace(changed, job_interval=current.job_interval)
    if arguments.ttl_enable is not None:
        changed = msgspec.structs.replace(changed, enable=arguments.ttl_enable)
    if arguments.ttl_cron_job_schedule is not None:
        changed = msgspec.structs.replace(changed, job_interval=arguments.ttl_cron_job_schedule)
    return msgspec.structs.replace(table, ttl_info=changed)


_AFTER: Final[Mapping[int, Callable[[StoredTable, Any], StoredTable]]] = {
    13: lambda table, new: msgspec.structs.replace(table, auto_inc_id=new.new_base),
    15: _set_default,
    16: lambda table, new: msgspec.structs.replace(
        table,
        shard_row_id_bits=new.shard_row_id_bits,
        max_shard_row_id_bits=max(table.max_shard_row_id_bits, new.shard_row_id_bits),
    ),
    17: lambda table, new: msgspec.structs.replace(table, comment=new.comment),
    18: lambda table, new: with_index(
        table, msgspec.structs.replace(known_index(table, new.old_name.original), idx_name=new.new_name)
    ),
    22: _charset,
    35: lambda table, new: msgspec.structs.replace(table, sequence=new.sequence),
    39: lambda table, new: msgspec.structs.replace(table, auto_id_cache=new.new_cache),
    40: lambda table, new: msgspec.structs.replace(table, auto_rand_id=new.new_base),
    41: lambda table, new: with_index(
        table, msgspec.structs.replace(known_index(table, new.index_name.original), is_invisible=new.invisible)
    ),
    45: _enforced,
    65: _ttl,
    67: lambda table, _: msgspec.structs.replace(table, ttl_info=None),
}
"""Rules that change only the definition, by the action of the job: (table, arguments) -> table."""


def _change(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert new["definition"] is ElementState.PUBLIC
    table = draft.update(request, _AFTER[request.action](draft.table(request), request.arguments))
    match request.arguments:
        case RebaseArgs(base, force):
            kind = "TARID" if request.action == _AUTO_RANDOM else counter_kind(table)
            draft.counters.append(
                CounterChange(kind, table.old_schema_id or request.schema_id, table.id, base - 1, raise_only=not force)
            )
        case AlterSequenceArgs(restart=restart) if restart is not None:
            draft.counters.append(CounterChange("SID", request.schema_id, table.id, restart))


ATTRIBUTE_MOVES: Final[Mapping[int, Move]] = dict.fromkeys(_AFTER, _change)


def counter_home(schema_id: int, table: StoredTable) -> int:
    """Return the database below whose key the table's counters lie."""
    return schema_id if table.old_schema_id is UNSET else table.old_schema_id


def counters_deleted(schema_id: int, table: StoredTable) -> list[CounterChange]:
    """Return the deletion of every counter of a table."""
    kinds = ("SID",) if table.is_sequence else ("TID", "IID", "TARID")
    return [CounterChange(kind, counter_home(schema_id, table), table.id, None) for kind in kinds]


def _diff(request: Request, schema_id: int, table_id: int, **members: object) -> SchemaDiff:
    return SchemaDiff(0, request.action, schema_id, table_id, **members)  # type: ignore[arg-type]


def _create_schema(draft: Draft, request: Request, _old: States, _new: States) -> None:
    assert isinstance(request.arguments, CreateSchemaArgs)
    created = msgspec.structs.replace(request.arguments.db_info, state=_PUBLIC)
    if any(schema.name.lower == created.name.lower for schema in draft.definitions.schemas()):
        raise SqlRefused(1007, f"Can't create database '{created.name.original}'; database exists", "HY000")
    draft.schemas_put.append(created)
    draft.schema_result = created


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
    if table.is_view or table.is_sequence:
        return []
    ids = dict.fromkeys((*table.physical_ids, table.id))
    return [DeleteRange(physical) for physical in ids]


def _create_table(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, CreateTableArgs)
    draft.schema(request.schema_id, request.schema_name)
    if old["table"] is not _NONE:
        created = msgspec.structs.replace(draft.table(request), state=new["table"])
        draft.update(request, created)
        return
    created, replaced = request.arguments.table_info, request.arguments.old_view_tbl_id
    draft.free_name(request, request.schema_id, created.name.original, but=replaced)
    if replaced:
        draft.remove(request.schema_id, replaced)
        draft.diff = _diff(request, request.schema_id, created.id, old_table_id=replaced)
    draft.put(request.schema_id, msgspec.structs.replace(created, state=new["table"]), stamped=True)
    if created.is_sequence:
        draft.counters.append(CounterChange("SID", request.schema_id, created.id, 0))
    for kind, base in ((counter_kind(created), created.auto_inc_id), ("TARID", created.auto_rand_id)):
        if base > 1:
            draft.counters.append(CounterChange(kind, request.schema_id, created.id, base - 1))


def _drop_table(draft: Draft, request: Request, _old: States, new: States) -> None:
    table = draft.table(request)
    state = new["table"]
    draft.update(request, msgspec.structs.replace(table, state=state))
    if state is _NONE:
        draft.remove(request.schema_id, table.id)
        draft.counters += counters_deleted(request.schema_id, table)
        draft.ranges += _row_ranges(table)
        gone = [AffectedTable(table_id=physical_id, old_table_id=physical_id) for physical_id in table.physical_ids]
        options = None if table.partition is None else gone
        draft.diff = _diff(request, request.schema_id, table.id, affected_options=options)


def _truncate(draft: Draft, request: Request, _old: States, _new: States) -> None:
    arguments, table = request.arguments, draft.table(request)
    assert isinstance(arguments, NewTableArgs)
    fresh = msgspec.structs.replace(table, id=arguments.new_table_id, old_schema_id=UNSET)
    if table.partition is not None:
        ids = arguments.new_partition_ids or []
        if len(ids) != len(table.partition.definitions or ()):
            name = table.name.original
            raise SqlRefused(8200, f"Unsupported truncate table: the partitions of '{name}' have changed; retry")
        definitions: list[StoredPartitionDef] = [
            msgspec.structs.replace(definition, id=new_id)
            for definition, new_id in zip(table.partition.definitions or (), ids, strict=True)
        ]
        fresh = msgspec.structs.replace(
            fresh, partition=msgspec.structs.replace(table.partition, definitions=definitions)
        )
    draft.remove(request.schema_id, table.id)
    draft.put(request.schema_id, fresh)
    draft.counters += counters_deleted(request.schema_id, table)
    draft.ranges += _row_ranges(table)
    draft.diff = _diff(request, request.schema_id, fresh.id, old_table_id=table.id)


def _renamed(draft: Draft, rename: RenameTableArgs, table_id: int, request: Request) -> list[AffectedTable]:
    """Write the table under its new name and key; return the child tables, which change as well."""
    table = draft.find(rename.old_schema_id, table_id)
    if table is None:
        name = f"{rename.old_schema_name.original}.{rename.old_table_name.original or request.table_name}"
        raise missing_table(f"'{name}'")
    draft.free_name(request, rename.new_schema_id, rename.new_table_name.original, but=table_id)
    home = counter_home(rename.old_schema_id, table)
    old = draft.schema(rename.old_schema_id, rename.old_schema_name.original).name.lower, table.name.lower
    new = draft.schema(rename.new_schema_id, request.schema_name).name, rename.new_table_name
    children = _children_renamed(draft, table_id, old, new)
    if table.fk_info:
        table = msgspec.structs.replace(table, fk_info=_referring(table.fk_info, old, new))
    draft.remove(rename.old_schema_id, table_id)
    moved = msgspec.structs.replace(
        table, name=rename.new_table_name, old_schema_id=UNSET if home == rename.new_schema_id else home
    )
    draft.put(rename.new_schema_id, moved)
    return children


def _children_renamed(draft: Draft, table_id: int, old: tuple[str, str], new: tuple[Name, Name]) -> list[AffectedTable]:
    """Rename the parent in the foreign keys of its child tables; return these tables."""
    affected = []
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
            affected.append(AffectedTable(schema.id, child.id, child.id, schema.id))
    return affected


def _referring(keys: list[StoredForeignKey], old: tuple[str, str], new: tuple[Name, Name]) -> list[StoredForeignKey]:
    return [
        msgspec.structs.replace(key, ref_schema=new[0], ref_table=new[1])
        if (key.ref_schema.lower, key.ref_table.lower) == old
        else key
        for key in keys
    ]


def _rename(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, RenameTableArgs)
    rename = request.arguments
    first = old["new name"] is not new["new name"]
    children: list[AffectedTable] = []
    if first:
        children = _renamed(draft, rename, request.table_id, request)
    else:
        draft.result = draft.table(request)
    before = rename.old_schema_id if first else rename.new_schema_id
    draft.diff = _diff(
        request, rename.new_schema_id, request.table_id, old_schema_id=before, affected_options=children or None
    )


def _rename_all(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, RenameTablesArgs)
    first = old["new name"] is not new["new name"]
    affected, children = [], []
    results: dict[int, StoredTable] = {}
    for rename in request.arguments.rename_table_infos:
        if first:
            children += _renamed(draft, rename, rename.table_id, request)
        else:
            table = results.get(rename.table_id) or _final_table(draft, request.arguments, rename.table_id)
            results[rename.table_id] = table
            draft.results.append(table)
            draft.result = table
        before = rename.old_schema_id if first else rename.new_schema_id
        affected.append(AffectedTable(rename.new_schema_id, rename.table_id, rename.table_id, before))
    head = affected[0]
    draft.diff = _diff(
        request,
        head.schema_id,
        head.table_id,
        old_schema_id=head.old_schema_id,
        affected_options=[*affected[1:], *children] or None,
    )


def _final_table(draft: Draft, arguments: RenameTablesArgs, table_id: int) -> StoredTable:
    schema_id = [rename.new_schema_id for rename in arguments.rename_table_infos if rename.table_id == table_id][-1]
    table = draft.find(schema_id, table_id)
    if table is None:
        raise missing_table(str(table_id))
    return table


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
        affected_options=[AffectedTable(table_id=number, old_table_id=number) for number in table.physical_ids],
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


def partition_of(table: StoredTable) -> StoredPartition:
    """Return the partitioning of a table; SqlRefused 1505 if it has none."""
    if table.partition is None:
        raise SqlRefused(1505, "Partition management on a not partitioned table is not possible", "HY000")
    return table.partition


def definitions_named(table: StoredTable, names: list[str]) -> list[StoredPartitionDef]:
    """Return the partitions of those names (case-insensitive) in the table's order; SqlRefused 1735 for an unknown
    one."""
    definitions = partition_of(table).definitions or []
    keys = {lowered(name) for name in names}
    unknown = keys - {definition.name.lower for definition in definitions}
    if unknown:
        message = f"Unknown partition '{min(unknown)}' in table '{table.name.original}'"
        raise SqlRefused(1735, message, "HY000")
    return [definition for definition in definitions if definition.name.lower in keys]


def under_way(partition: StoredPartition, action: int, state: ElementState) -> StoredPartition:
    """Return `partition` with an action in that state."""
    return msgspec.structs.replace(partition, ddl_action=action, ddl_state=int(state))


def at_rest(partition: StoredPartition) -> StoredPartition:
    """Return `partition` without an action under way."""
    return msgspec.structs.replace(
        partition,
        adding_definitions=None,
        dropping_definitions=None,
        new_partition_ids=UNSET,
        original_partition_ids_order=UNSET,
        ddl_action=UNSET,
        ddl_state=0,
        new_table_id=UNSET,
    )


def affected(new: list[int], old: list[int]) -> list[AffectedTable]:
    """Return the affected tables of a diff: new and old ids in pairs, padded with 0."""
    return [AffectedTable(table_id=to, old_table_id=of) for to, of in zip_longest(new, old, fillvalue=0)]


def _write(draft: Draft, request: Request, table: StoredTable, partition: StoredPartition) -> None:
    draft.update(request, msgspec.structs.replace(table, partition=partition))


def _finish(draft: Draft, request: Request, new: list[int], old: list[int]) -> None:
    draft.ranges += [DeleteRange(physical_id) for physical_id in old]
    draft.diff = SchemaDiff(0, request.action, request.schema_id, request.table_id, affected_options=affected(new, old))


def _add(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, NewPartitionsArgs)
    table, state = draft.table(request), new["partition"]
    partition = partition_of(table)
    coming = list(request.arguments.part_info.definitions or ())
    present = list(partition.definitions or ())
    if state is _PUBLIC:
        changed = msgspec.structs.replace(at_rest(partition), definitions=[*present, *coming])
    elif state is _NONE:
        changed = at_rest(partition)
        draft.ranges += [DeleteRange(definition.id) for definition in coming]
    else:
        check_names([*present, *coming])
        check_order(partition, [*present, *coming])
        changed = under_way(msgspec.structs.replace(partition, adding_definitions=coming), request.action, state)
    _write(draft, request, table, changed)


def _drop(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, DropPartitionsArgs)
    table, state = draft.table(request), new["partition"]
    partition = partition_of(table)
    if state is _WRITE_ONLY:
        going = definitions_named(table, request.arguments.part_names)
        rest = [definition for definition in partition.definitions or () if definition not in going]
        partition = msgspec.structs.replace(partition, definitions=rest, dropping_definitions=going)
        _write(draft, request, table, under_way(partition, request.action, state))
        draft.result = _at_the_end(draft.table(request), steps_left=3)
        return
    if state is _NONE:
        old_ids = [definition.id for definition in partition.dropping_definitions or ()]
        _write(draft, request, table, at_rest(partition))
        _finish(draft, request, old_ids, old_ids)
        return
    _write(draft, request, table, under_way(partition, request.action, state))


def _partition_truncate(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, TruncatePartitionsArgs)
    table, state = draft.table(request), new["old partition"]
    partition = partition_of(table)
    if state is _WRITE_ONLY:
        gone = set(arguments.old_partition_ids) - {definition.id for definition in partition.definitions or ()}
        if gone:
            raise SqlRefused(1735, f"Unknown partition 'pid:{sorted(gone)}' in table '{table.name.original}'", "HY000")
        partition = msgspec.structs.replace(partition, new_partition_ids=arguments.new_partition_ids)
    elif state is _DELETE_ONLY:
        ids = dict(zip(arguments.old_partition_ids, arguments.new_partition_ids, strict=True))
        present = list(partition.definitions or ())
        partition = msgspec.structs.replace(
            partition,
            definitions=[msgspec.structs.replace(item, id=ids.get(item.id, item.id)) for item in present],
            dropping_definitions=[item for item in present if item.id in ids],
        )
        _write(draft, request, table, under_way(partition, request.action, state))
        draft.result = _at_the_end(draft.table(request), steps_left=2)
        return
    elif state is _NONE:
        _write(draft, request, table, at_rest(partition))
        _finish(draft, request, arguments.new_partition_ids, arguments.old_partition_ids)
        return
    _write(draft, request, table, under_way(partition, request.action, state))


def _at_the_end(table: StoredTable, *, steps_left: int) -> StoredTable:
    """Return the table with its final partitions, as the steps to come will leave it, but for their timestamps."""
    return msgspec.structs.replace(table, partition=at_rest(partition_of(table)), revision=table.revision + steps_left)


PARTITION_MOVES: Final[Mapping[int, Move]] = {19: _add, 20: _drop, 23: _partition_truncate}


FULL_TABLE: Final = Name("pFullTable", "pfulltable")
_WHOLE_COMMENT: Final = "Intermediate partition during ALTER TABLE ... PARTITION BY ..."
"""TiDB's own text in the definition."""
_REORGANIZE: Final = 64
_DELETE_REORG: Final = ElementState.DELETE_REORG


def _reorganize(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments, table = request.arguments, draft.table(request)
    assert isinstance(arguments, NewPartitionsArgs)
    if request.action != _REORGANIZE:
        draft.diff = SchemaDiff(0, request.action, request.schema_id, table.id, old_table_id=table.id)
    if new["new rows"] is _NONE:
        _give_up(draft, request, arguments, table)
    elif new["old rows"] is _NONE:
        _reorganize_finish(draft, request, table)
    else:
        state = new["new rows"]
        partition = partition_of(table) if request.action == _REORGANIZE else table.partition or _whole(table)
        if old["new rows"] is _NONE:
            partition = _prepared(request, arguments, table, partition)
        elif old["new rows"] is not _PUBLIC and new["new rows"] is _PUBLIC:
            partition, state = _switched(request, partition), _DELETE_REORG
        changed = msgspec.structs.replace(table, partition=under_way(partition, request.action, state))
        draft.update(request, changed)


def _whole(table: StoredTable) -> StoredPartition:
    """Return a table without partitions as one with a single partition."""
    whole = StoredPartitionDef(table.id, FULL_TABLE, comment=_WHOLE_COMMENT)
    return StoredPartition(0, definitions=[whole], num=1)


def _prepared(
    request: Request, arguments: NewPartitionsArgs, table: StoredTable, partition: StoredPartition
) -> StoredPartition:
    comes = arguments.part_info
    whole = msgspec.structs.replace(table, partition=partition)
    going = definitions_named(whole, arguments.part_names)
    kept = {definition.name.lower for definition in partition.definitions or ()} - {item.name.lower for item in going}
    if request.action == _REORGANIZE and (
        duplicates := kept & {definition.name.lower for definition in comes.definitions or ()}
    ):
        raise SqlRefused(1517, f"Duplicate partition name {min(duplicates)}")
    partition = msgspec.structs.replace(
        partition,
        adding_definitions=comes.definitions,
        dropping_definitions=going,
        ddl_type=comes.type or UNSET,
        ddl_expr=comes.expr or UNSET,
        ddl_columns=comes.columns or UNSET,
    )
    if request.action != _REORGANIZE:
        return msgspec.structs.replace(partition, new_table_id=comes.new_table_id)
    order = [definition.id for definition in partition.definitions or ()]
    return msgspec.structs.replace(partition, original_partition_ids_order=order)


def _switched(request: Request, partition: StoredPartition) -> StoredPartition:
    adding = list(partition.adding_definitions or ())
    going = {definition.id for definition in partition.dropping_definitions or ()}
    if request.action == _REORGANIZE:
        present = list(partition.definitions or ())
        position = next(index for index, item in enumerate(present) if item.id in going)
        kept = [[item for item in half if item.id not in going] for half in (present[:position], present[position:])]
        definitions = [*kept[0], *adding, *kept[1]]
        return msgspec.structs.replace(partition, definitions=definitions, num=len(definitions))
    columns = None if partition.ddl_columns is UNSET else partition.ddl_columns
    return msgspec.structs.replace(
        partition,
        type=0 if partition.ddl_type is UNSET else partition.ddl_type,
        expr="" if partition.ddl_expr is UNSET else partition.ddl_expr,
        columns=columns,
        ddl_type=partition.type or UNSET,
        ddl_expr=partition.expr or UNSET,
        ddl_columns=partition.columns or UNSET,
        definitions=adding,
        num=len(adding),
    )


def _reorganize_finish(draft: Draft, request: Request, table: StoredTable) -> None:
    """Keep only the new partitions; PARTITION BY and REMOVE PARTITIONING put them under a new table id."""
    partition = partition_of(table)
    come = [definition.id for definition in partition.adding_definitions or ()]
    gone = [definition.id for definition in partition.dropping_definitions or ()]
    if request.action == _REORGANIZE:
        draft.update(request, msgspec.structs.replace(table, partition=at_rest(partition)))
        draft.diff = SchemaDiff(0, request.action, request.schema_id, table.id, affected_options=affected(come, gone))
        draft.ranges += [DeleteRange(physical_id) for physical_id in gone]
        return
    assert partition.new_table_id is not UNSET
    new_id = partition.new_table_id
    rest = None
    if partition.type:
        rest = msgspec.structs.replace(at_rest(partition), ddl_type=UNSET, ddl_expr=UNSET, ddl_columns=UNSET)
    fresh = msgspec.structs.replace(table, id=new_id, partition=rest, revision=table.revision + 1, old_schema_id=UNSET)
    draft.remove(request.schema_id, table.id)
    draft.put(request.schema_id, fresh, stamped=True)
    gone += [table.id] if table.id not in gone else []
    draft.ranges += [DeleteRange(physical_id) for physical_id in gone]
    home = counter_home(request.schema_id, table), table.id
    draft.counters += [CounterChange(kind, request.schema_id, new_id, 0, like=home) for kind in ("TID", "IID", "TARID")]
    draft.counters += counters_deleted(request.schema_id, table)
    draft.diff = SchemaDiff(
        0,
        request.action,
        request.schema_id,
        new_id,
        old_table_id=table.id,
        affected_options=affected(come, gone),
    )


def _give_up(draft: Draft, request: Request, arguments: NewPartitionsArgs, table: StoredTable) -> None:
    partition, was = partition_of(table), arguments.part_info
    draft.ranges += [DeleteRange(definition.id) for definition in partition.adding_definitions or ()]
    rest = None
    if partition.type:
        rest = msgspec.structs.replace(
            at_rest(partition), ddl_type=was.ddl_type, ddl_expr=was.ddl_expr, ddl_columns=was.ddl_columns
        )
    draft.update(request, msgspec.structs.replace(table, partition=rest))


def exchange_shape(table: StoredTable) -> tuple[object, ...]:
    """Return the parts of a definition that two tables must share to exchange rows."""
    columns = [
        (column.id, column.name.lower, column.type, column.generated_expr_string, column.generated_stored)
        for column in table.cols or ()
    ]
    indexes = sorted(
        (
            index.id,
            index.idx_name.lower,
            index.is_unique,
            index.is_primary,
            tuple(part.name.lower for part in index.idx_cols),
        )
        for index in table.index_info or ()
    )
    return columns, indexes, table.pk_is_handle, table.is_common_handle, table.charset, table.collate


def _exchange(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, ExchangeArgs)
    swapped, fit = new["table swapped"] is _PUBLIC, new["rows fit"]
    own_id = arguments.partition_id if old["table swapped"] is _PUBLIC else request.table_id
    table = draft.find(request.schema_id, own_id)
    parent = draft.find(arguments.pt_schema_id, arguments.pt_table_id)
    if table is None or parent is None:
        raise missing_name(request.schema_name, request.table_name)
    if old["rows fit"] is _NONE and not swapped:
        if exchange_shape(parent) != exchange_shape(table):
            raise SqlRefused(1736, "Tables have different definitions", "HY000")
        (definition,) = definitions_named(parent, [arguments.partition_name])
        if definition.id != arguments.partition_id:
            message = f"Unknown partition 'pid:{arguments.partition_id}' in table '{parent.name.original}'"
            raise SqlRefused(1735, message, "HY000")
    new_id = own_id
    if swapped and old["table swapped"] is not _PUBLIC:
        new_id = arguments.partition_id
        draft.remove(request.schema_id, own_id)
        # both tables go on from the greater of their counters, so that no row meets another's id
        own, of_parent = (request.schema_id, table.id), (arguments.pt_schema_id, arguments.pt_table_id)
        fresh = request.schema_id, arguments.partition_id
        for kind in dict.fromkeys((counter_kind(table), counter_kind(parent), "TARID")):
            pairs = ((of_parent, own), (fresh, own), (fresh, of_parent))
            draft.counters += [CounterChange(kind, *ids, 0, raise_only=True, like=like) for ids, like in pairs]
    info = Raw(b"null")
    if fit is _WRITE_ONLY:
        facts = {
            "exchange_partition_id": arguments.pt_table_id,
            "exchange_partition_def_id": own_id if swapped else arguments.partition_id,
            "exchange_partition_flag": False,
        }
        info = Raw(msgspec.json.encode(facts))
    draft.put(
        request.schema_id,
        msgspec.structs.replace(table, id=new_id, exchange_partition_info=info, revision=table.revision + 1),
    )
    if new_id != own_id:
        _swap_parent(draft, arguments, parent, own_id)
    draft.diff = SchemaDiff(
        0,
        request.action,
        request.schema_id,
        new_id,
        old_table_id=own_id,
        old_schema_id=request.schema_id,
        affected_options=[AffectedTable(arguments.pt_schema_id, arguments.pt_table_id)],
    )


def _swap_parent(draft: Draft, arguments: ExchangeArgs, parent: StoredTable, new_id: int) -> None:
    partition = partition_of(parent)
    definitions = [
        msgspec.structs.replace(definition, id=new_id) if definition.id == arguments.partition_id else definition
        for definition in partition.definitions or ()
    ]
    changed = msgspec.structs.replace(partition, definitions=definitions)
    draft.put(
        arguments.pt_schema_id,
        msgspec.structs.replace(parent, partition=changed, revision=parent.revision + 1),
    )


REORGANIZE_MOVES: Final[Mapping[int, Move]] = {**dict.fromkeys((64, 71, 72), _reorganize), 42: _exchange}
