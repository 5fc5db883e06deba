"""Planning of a DDL statement: the job requests that it asks for.

    plan(statement, snapshot, session) -> StatementPlan: requests, and the notes of IF [NOT] EXISTS

A rule per class of statement checks what can be checked against the snapshot and refuses with MySQL's error numbers, as
a TiDB session does before it submits jobs; the job checks again against the definitions that it finds.  A statement
that changes nothing has no requests.  Pure: the same statement, snapshot and session give the same plan.  This module
has the rules of databases, of ALTER TABLE as a whole, and of its partition specs and table options.

ALTER TABLE is one job of all the parts that its specs ask for; each table option that changes something is a part.

    ALTER TABLE t ADD COLUMN a INT, DROP INDEX i       AddColumn, DropIndex      a multi-schema change (61)
    ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES q     AddIndex, AddForeignKey   the index that it needs comes first
    ALTER TABLE t COMMENT 'x'                          Comment                   one part: a job of its own action

All parts are planned against the table before the statement.  So no two parts may change the same column or index, and
none may use what another changes (`check_multi_schema`):

    part                  changes                              uses
    ADD COLUMN c AFTER b  c                                    b
    DROP COLUMN c         c, the indexes on c alone
    MODIFY COLUMN c       c; with new bytes, its indexes too   the column after which it is placed
    ADD INDEX i (a, b)    i                                    a, b
    RENAME INDEX i TO j   i, j

Partition specs:

    ADD PARTITION (..)               range, list: add            ADD PARTITION PARTITIONS 2    hash, key: reorganize all
    REORGANIZE p1, p2 INTO (..)      reorganize                  COALESCE PARTITION 1          hash, key: reorganize all
    PARTITION BY ..                  reorganize, new table id    REMOVE PARTITIONING           into the single partition
                                                                                              CollapsedPartitions

Source: TiDB pkg/ddl/executor.go (AlterTable, AddTablePartitions, ReorganizePartitions, ExchangeTablePartition, ..),
multi_schema_change.go (checkOperateSameColAndIdx), partition.go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import PartitionDef
from tidegate.schema.modify_kind import KEPT_CHARSETS, ModifyKind
from tidegate.schema.statement import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    AddPartitions,
    AlterDatabase,
    AlterTable,
    CoalescePartitions,
    ConvertCharset,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPartitions,
    DropPrimaryKey,
    DropTables,
    DropViews,
    ExchangePartition,
    Ignored,
    ModifyColumn,
    NoChange,
    NotSupported,
    OptionsDetail,
    PartitionBy,
    RecoverDatabase,
    RecoverTable,
    RemovePartitioning,
    RenameColumn,
    RenameIndex,
    RenamePair,
    RenameTables,
    RenameTo,
    ReorganizePartitions,
    SetDefault,
    SetVisibility,
    Spec,
    Statement,
    TableOptions,
    TruncatePartitions,
    TruncateTable,
)
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    AddForeignKeyArgs,
    AddIndexArgs,
    CharsetArgs,
    CommentArgs,
    CreateSchemaArgs,
    DropColumnArgs,
    DropIndexArgs,
    DropObjectArgs,
    DropPartitionsArgs,
    ExchangeArgs,
    ModifyColumnArgs,
    NewCacheArgs,
    NewPartitionsArgs,
    PositionArgs,
    RebaseArgs,
    RenameIndexArgs,
    SetDefaultArgs,
    ShardBitsArgs,
    TruncatePartitionsArgs,
    TtlArgs,
    VisibilityArgs,
)
from tidegate.schema.stored.definition import (
    ElementState,
    Name,
    StoredPartition,
    StoredPartitionDef,
    StoredSchema,
    StoredTable,
)
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate_upstream.change.draft import Catalog, column_of
from tidegate_upstream.change.make_column import check_names, check_order, make_definitions, make_partition
from tidegate_upstream.change.make_table import check_name, make_ttl, with_charset
from tidegate_upstream.change.move_column import own_indexes
from tidegate_upstream.change.move_table import FULL_TABLE, definitions_named, exchange_shape, partition_of
from tidegate_upstream.change.plan_column import (
    Alteration,
    AlterPart,
    add_columns,
    add_foreign_key,
    add_index,
    detailed,
    drop_column,
    drop_index,
    drop_primary_key,
    modify_column,
    rename_column,
    rename_index,
    set_default,
    set_visibility,
)
from tidegate_upstream.change.plan_table import (
    create_table,
    create_table_like,
    create_view,
    drop_tables,
    drop_views,
    plan_ignored,
    recover_table,
    rename_pairs,
    rename_tables,
    truncate_table,
)
from tidegate_upstream.change.request import Involved, Request, request_on
from tidegate_upstream.change.session import DdlSession, StatementPlan, passed_over
from tidegate_upstream.f1 import MULTI_SCHEMA_CHANGE

_COUNTED: Final = frozenset({2, 4})
"""HASH and KEY."""
_COLLAPSED: Final = "CollapsedPartitions"


def _coming(partition: StoredPartition, definitions: list[StoredPartitionDef]) -> StoredPartition:
    """Return `part_info` of a job that adds partitions under the table's own partitioning.

    The `ddl_` members are left over from an earlier REORGANIZE; a rollback needs them."""
    return StoredPartition(
        partition.type,
        partition.expr,
        partition.columns,
        is_empty_columns=partition.is_empty_columns,
        definitions=definitions,
        num=len(definitions),
        ddl_type=partition.ddl_type,
        ddl_expr=partition.ddl_expr,
        ddl_columns=partition.ddl_columns,
    )


def _definitions(partition: StoredPartition, written: Sequence[PartitionDef]) -> list[StoredPartitionDef]:
    return make_definitions(written, by_columns=not partition.expr)


def add_partitions(alteration: Alteration, spec: AddPartitions) -> Iterator[AlterPart]:
    """ADD PARTITION."""
    partition = partition_of(alteration.table)
    present = list(partition.definitions or ())
    if partition.type in _COUNTED:
        if any(definition.less_than or definition.in_values for definition in spec.definitions):
            kind = "RANGE" if spec.definitions[0].less_than else "LIST"
            values = "LESS THAN" if kind == "RANGE" else "IN"
            message = f"Only {kind} PARTITIONING can use VALUES {values} in partition definition"
            raise SqlRefused(1480, message, "HY000")
        named = [definition.name for definition in spec.definitions]
        named = named or [f"p{len(present) + number}" for number in range(spec.count)]
        yield _resized(partition, [definition.name.original for definition in present] + named)
        return
    if not spec.definitions:
        kind = "RANGE" if partition.type == 1 else "LIST"
        raise SqlRefused(1492, f"For {kind} partitions each partition must be defined", "HY000")
    added = _definitions(partition, spec.definitions)
    names = {definition.name.lower for definition in present}
    twice = next((definition for definition in added if definition.name.lower in names), None)
    if twice is not None and spec.if_not_exists:
        alteration.pass_over(1517, f"Duplicate partition name {twice.name.original}", "HY000", accepted=True)
        return
    check_names([*present, *added])
    check_order(partition, [*present, *added])
    yield AlterPart(19, NewPartitionsArgs(_coming(partition, added)))


def _resized(partition: StoredPartition, coming: list[str]) -> AlterPart:
    names = [definition.name.lower for definition in partition.definitions or ()]
    definitions = [StoredPartitionDef(0, Name.of(name)) for name in coming]
    check_names(definitions)
    return AlterPart(64, NewPartitionsArgs(_coming(partition, definitions), names))


def coalesce(alteration: Alteration, spec: CoalescePartitions) -> Iterator[AlterPart]:
    """COALESCE PARTITION."""
    partition = partition_of(alteration.table)
    present = partition.definitions or []
    if partition.type not in _COUNTED:
        raise SqlRefused(1509, "COALESCE PARTITION can only be used on HASH/KEY partitions", "HY000")
    if spec.count < 1:
        raise SqlRefused(1515, "At least one partition must be coalesced", "HY000")
    if spec.count >= len(present):
        raise SqlRefused(1508, "Cannot remove all partitions, use DROP TABLE instead", "HY000")
    yield _resized(partition, [definition.name.original for definition in present[: len(present) - spec.count]])


def drop_partitions(alteration: Alteration, spec: DropPartitions) -> Iterator[AlterPart]:
    """DROP PARTITION."""
    partition = partition_of(alteration.table)
    if partition.type in _COUNTED:
        raise SqlRefused(1512, "DROP PARTITION can only be used on RANGE/LIST partitions", "HY000")
    present = {definition.name.lower for definition in partition.definitions or ()}
    names = [lowered(name) for name in spec.names]
    if not present >= set(names):
        alteration.pass_over(1507, "Error in list of partitions to DROP", "HY000", accepted=spec.if_exists)
        return
    if present == set(names):
        raise SqlRefused(1508, "Cannot remove all partitions, use DROP TABLE instead", "HY000")
    yield AlterPart(20, DropPartitionsArgs(names))


def truncate_partitions(alteration: Alteration, spec: TruncatePartitions) -> Iterator[AlterPart]:
    """TRUNCATE PARTITION; no names mean ALL."""
    table = alteration.table
    names = list(spec.names) or [definition.name.lower for definition in partition_of(table).definitions or ()]
    chosen = definitions_named(table, names)
    yield AlterPart(23, TruncatePartitionsArgs([definition.id for definition in chosen]))


def reorganize(alteration: Alteration, spec: ReorganizePartitions) -> Iterator[AlterPart]:
    """REORGANIZE PARTITION .. INTO; of ranges only adjacent ones, whose upper end stays."""
    partition = partition_of(alteration.table)
    if partition.type in _COUNTED:
        message = "REORGANIZE PARTITION can only be used to reorganize partitions not to change their numbers"
        raise SqlRefused(1510, message, "HY000")
    going = definitions_named(alteration.table, list(spec.names))
    added = _definitions(partition, spec.definitions)
    present = list(partition.definitions or ())
    index = present.index(going[0])
    if partition.type == 1 and present[index : index + len(going)] != going:
        raise SqlRefused(1519, "When reorganizing a set of partitions they must be in consecutive order", "HY000")
    rest = [definition for definition in present if definition not in going]
    after = [*rest[:index], *added, *rest[index:]]
    check_names(after)
    check_order(partition, after)
    if partition.type == 1 and going[-1].less_than != added[-1].less_than and going[-1] is not present[-1]:
        message = (
            "Reorganize of range partitions cannot change total ranges except for last partition where it can "
            "extend the range"
        )
        raise SqlRefused(1520, message, "HY000")
    yield AlterPart(64, NewPartitionsArgs(_coming(partition, added), [definition.name.lower for definition in going]))


def partition_by(alteration: Alteration, spec: PartitionBy) -> Iterator[AlterPart]:
    """PARTITION BY on a table with or without partitions."""
    table = alteration.table
    partition = make_partition(spec.partition, table)
    current = table.partition or partition
    partition = msgspec.structs.replace(
        partition, new_table_id=0, ddl_type=current.ddl_type, ddl_expr=current.ddl_expr, ddl_columns=current.ddl_columns
    )
    yield AlterPart(71, NewPartitionsArgs(partition, _all_names(table)))


def _all_names(table: StoredTable) -> list[str]:
    if table.partition is None:
        return [FULL_TABLE.lower]
    return [definition.name.lower for definition in table.partition.definitions or ()]


def remove_partitioning(alteration: Alteration, _spec: RemovePartitioning) -> Iterator[AlterPart]:
    """REMOVE PARTITIONING."""
    partition = partition_of(alteration.table)
    whole = msgspec.structs.replace(
        _coming(partition, [StoredPartitionDef(0, Name.of(_COLLAPSED))]), type=0, is_empty_columns=False, new_table_id=0
    )
    yield AlterPart(72, NewPartitionsArgs(whole, _all_names(alteration.table)))


def exchange(alteration: Alteration, spec: ExchangePartition) -> Iterator[AlterPart]:
    """EXCHANGE PARTITION; the job belongs to the other table."""
    parent = alteration.version
    partition_of(parent.stored)
    (definition,) = definitions_named(parent.stored, [spec.name])
    other = alteration.catalog.table(spec.table)
    if other.stored.partition is not None:
        raise SqlRefused(1732, f"Table to exchange with partition is partitioned: '{spec.table.table}'", "HY000")
    if other.stored.temp_table_type:
        raise SqlRefused(1733, f"Table to exchange with partition is temporary: '{spec.table.table}'", "HY000")
    if exchange_shape(parent.stored) != exchange_shape(other.stored):
        raise SqlRefused(1736, "Tables have different definitions", "HY000")
    involved = tuple(Involved(lowered(table.schema), table.stored.name.lower) for table in (parent, other))
    arguments = ExchangeArgs(
        definition.id, parent.schema_id, parent.stored.id, definition.name.lower, spec.with_validation
    )
    yield AlterPart(42, arguments, other, involved)


PARTITION_RULES: Final[Mapping[type[Spec], Callable[[Alteration, Any], Iterator[AlterPart]]]] = {
    AddPartitions: add_partitions,
    CoalescePartitions: coalesce,
    DropPartitions: drop_partitions,
    TruncatePartitions: truncate_partitions,
    ReorganizePartitions: reorganize,
    PartitionBy: partition_by,
    RemovePartitioning: remove_partitioning,
    ExchangePartition: exchange,
}


def set_options(alteration: Alteration, spec: TableOptions) -> Iterator[AlterPart]:
    """ALTER TABLE with table options."""
    table, detail = alteration.table, spec.detail
    if spec.charset is not None or detail.collate is not None:
        charset, collate = with_charset(spec.charset, detail.collate, (table.charset, table.collate))
        if (charset, collate) != (table.charset, table.collate):
            yield AlterPart(22, CharsetArgs(charset, collate))
    if spec.comment is not None:
        yield AlterPart(17, CommentArgs(spec.comment))
    yield from _counters(alteration, detail)
    if detail.ttl is not None or detail.ttl_enable is not None or detail.ttl_job_interval is not None:
        yield _ttl(alteration, detail)


def _counters(alteration: Alteration, detail: OptionsDetail) -> Iterator[AlterPart]:
    table = alteration.table
    if detail.auto_increment is not None:
        yield AlterPart(13, RebaseArgs(max(detail.auto_increment, 1), detail.forced))
    if detail.auto_id_cache is not None:
        yield AlterPart(39, NewCacheArgs(detail.auto_id_cache))
    if detail.auto_random_base is not None:
        if not table.auto_random_bits:
            raise SqlRefused(8216, "Invalid auto random: alter auto_random_base of a non auto_random table", "HY000")
        yield AlterPart(40, RebaseArgs(detail.auto_random_base))
    if detail.shard_row_id_bits is not None:
        if detail.shard_row_id_bits and (table.pk_is_handle or table.is_common_handle):
            raise SqlRefused(8200, "Unsupported shard_row_id_bits for table with primary key as row id", "HY000")
        yield AlterPart(16, ShardBitsArgs(detail.shard_row_id_bits))


def _ttl(alteration: Alteration, detail: OptionsDetail) -> AlterPart:
    ttl = None
    if detail.ttl is not None:
        ttl = make_ttl(alteration.table, detail)
    elif alteration.table.ttl_info is None:
        raise SqlRefused(8150, "Cannot set TTL_ENABLE on a table without TTL config", "HY000")
    return AlterPart(65, TtlArgs(ttl, detail.ttl_enable, detail.ttl_job_interval))


def convert_charset(alteration: Alteration, spec: ConvertCharset) -> Iterator[AlterPart]:
    """CONVERT TO CHARACTER SET: of the table and its text columns."""
    table, schema = alteration.table, alteration.schema
    charset, collate = with_charset(spec.charset, spec.collate, (schema.charset, schema.collate))
    columns = [column.type for column in table.cols or () if column.type.charset not in ("binary", "")]
    same = all((kind.charset, kind.collate) == (charset, collate) for kind in columns)
    if same and (table.charset, table.collate) == (charset, collate):
        return
    if any(kind.charset != charset and (kind.charset, charset) not in KEPT_CHARSETS for kind in columns):
        raise SqlRefused(8200, f"Unsupported converting text columns to charset {charset}", "HY000")
    yield AlterPart(22, CharsetArgs(charset, collate, needs_overwrite_cols=True))


_TOGETHER: Final = frozenset({5, 6, 7, 8, 9, 12, 13, 15, 17, 18, 22, 32, 33, 41})
"""Actions that may be parts of a multi-schema change."""


def check_multi_schema(table: StoredTable, parts: Sequence[AlterPart]) -> None:
    """Raise SqlRefused 8200 if parts of a change of `table` cannot be one job."""
    alone = next((part for part in parts if part.action not in _TOGETHER), None)
    if alone is not None:
        raise SqlRefused(8200, f"Unsupported multi schema change for action {alone.action}", "HY000")
    changed: set[str] = set()
    indexes: set[str] = set()
    for part in parts:
        columns, own = set(_columns(part)), set(_indexes(table, part))
        _refuse_same("column", columns & changed)
        _refuse_same("index", own & indexes)
        changed |= columns
        indexes |= own
    for index, part in enumerate(parts):
        others = {name for position, other in enumerate(parts) if position != index for name in _columns(other)}
        _refuse_same("column", others & set(_used(part)))


def _refuse_same(what: str, names: set[str]) -> None:
    if names:
        raise SqlRefused(8200, f"Unsupported operate same {what} '{min(names)}'", "HY000")


def _columns(part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddColumnArgs(column_info=column) | SetDefaultArgs(column):
            yield column.name.lower
        case DropColumnArgs(column_name=name):
            yield name.lower
        case ModifyColumnArgs(column=column, old_column_name=old):
            yield from {column.name.lower, old.lower}


def _indexes(table: StoredTable, part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddIndexArgs(index=index):
            yield index.idx_name.lower
        case DropIndexArgs(name) | VisibilityArgs(name):
            yield name.lower
        case RenameIndexArgs(old, new):
            yield from {old.lower, new.lower}
        case DropColumnArgs(name):
            column = column_of(table, name.lower)
            yield from (index.idx_name.lower for index in own_indexes(table, column)) if column is not None else ()
        case ModifyColumnArgs(old_column_name=old, kind=ModifyKind.LOSSY):
            for index in table.index_info or ():
                if any(key_part.name.lower == old.lower for key_part in index.idx_cols):
                    yield index.idx_name.lower


def _used(part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddIndexArgs(index=index, hidden=hidden):
            yield from (key_part.name.lower for key_part in index.idx_cols)
            yield from (name for column in hidden for name in column.dependences or ())
        case AddColumnArgs(position=PositionArgs(relative_column=after), column_info=column):
            yield from column.dependences or ()
            if after is not None:
                yield after.lower
        case ModifyColumnArgs(position=PositionArgs(relative_column=after)) if after is not None:
            yield after.lower


def _refuse(_alteration: Alteration, spec: NotSupported) -> Iterator[AlterPart]:
    raise SqlRefused(8200, f"Unsupported {spec.what}", "HY000")


_RULES: Final[Mapping[type[Spec], Callable[[Alteration, Any], Iterator[AlterPart]]]] = {
    AddColumns: add_columns,
    DropColumn: drop_column,
    ModifyColumn: modify_column,
    RenameColumn: rename_column,
    SetDefault: set_default,
    AddIndex: add_index,
    AddForeignKey: add_foreign_key,
    DropIndex: drop_index,
    DropPrimaryKey: drop_primary_key,
    RenameIndex: rename_index,
    SetVisibility: set_visibility,
    TableOptions: set_options,
    ConvertCharset: convert_charset,
    NoChange: detailed,
    NotSupported: _refuse,
    **PARTITION_RULES,
}


def plan_alter(statement: AlterTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or none if nothing changes; SqlRefused as TiDB refuses."""
    if any(isinstance(spec, RenameTo) for spec in statement.specs):
        return _rename(statement, catalog)
    table = catalog.table(statement.table)
    alteration = Alteration(table, catalog, session)
    parts = [part for spec in statement.specs for part in _RULES[type(spec)](alteration, spec)]
    parts = _merged(parts)
    if not parts:
        return StatementPlan(warnings=tuple(alteration.notes))
    involved = _involved(lowered(table.schema), table.stored.name.lower, parts)
    if len(parts) == 1:
        (only,) = parts
        request = request_on(only.action, only.table or table, only.arguments, *(involved or only.involved))
        return StatementPlan((request,), tuple(alteration.notes))
    request = request_on(MULTI_SCHEMA_CHANGE, table, None, *involved)
    subs = tuple(request_on(part.action, table, part.arguments) for part in parts)
    check_multi_schema(alteration.table, parts)
    return StatementPlan((msgspec.structs.replace(request, parts=subs),), tuple(alteration.notes))


def _merged(parts: list[AlterPart]) -> list[AlterPart]:
    last = {part.action: part for part in parts if part.action in (13, 17)}
    return [part for part in parts if last.get(part.action, part) is part]


def _involved(schema: str, table: str, parts: Sequence[AlterPart]) -> tuple[Involved, ...]:
    parents = [
        Involved(part.arguments.fk_info.ref_schema.lower, part.arguments.fk_info.ref_table.lower, 1)
        for part in parts
        if isinstance(part.arguments, AddForeignKeyArgs)
    ]
    return (*parents, Involved(schema, table)) if parents else ()


def _rename(statement: AlterTable, catalog: Catalog) -> StatementPlan:
    if len(statement.specs) > 1:
        raise SqlRefused(8200, "Unsupported multi schema change for RENAME TABLE", "HY000")
    (spec,) = statement.specs
    assert isinstance(spec, RenameTo)
    if spec.table.key == statement.table.key and spec.table.table == statement.table.table:
        return StatementPlan()
    return rename_pairs([RenamePair(statement.table, spec.table, doubtful=False)], catalog)


def _whole(name: str) -> tuple[Involved, ...]:
    return (Involved(name, "*"),)


def create_database(statement: CreateDatabase, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note with IF NOT EXISTS."""
    check_name(statement.name, "database")
    if catalog.find_schema(statement.name) is not None:
        message = f"Can't create database '{statement.name}'; database exists"
        return passed_over(1007, message, "HY000", accepted=statement.if_not_exists)
    charset, collate = with_charset(statement.charset, statement.collate, (session.charset, session.collate))
    name = Name.of(statement.name)
    schema = StoredSchema(0, name, charset, collate, state=ElementState.NONE)
    return StatementPlan((Request(1, 0, 0, name.lower, "", CreateSchemaArgs(schema), involved=_whole(name.lower)),))


def alter_database(statement: AlterDatabase, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or none if nothing changes."""
    schema = catalog.schema(statement.name or session.database)
    charset, collate = with_charset(statement.charset, statement.collate, (schema.charset, schema.collate))
    if (charset, collate) == (schema.charset, schema.collate):
        return StatementPlan()
    name = schema.name.lower
    return StatementPlan((Request(26, schema.id, 0, name, "", CharsetArgs(charset, collate), involved=_whole(name)),))


def drop_database(statement: DropDatabase, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job, or a note with IF EXISTS."""
    schema = catalog.find_schema(statement.name)
    if schema is None:
        message = f"Can't drop database '{statement.name}'; database doesn't exist"
        return passed_over(1008, message, "HY000", accepted=statement.if_exists)
    name = schema.name.lower
    return StatementPlan((Request(2, schema.id, 0, name, "", DropObjectArgs(), involved=_whole(name)),))


def recover_database(statement: RecoverDatabase, _catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Raise SqlRefused 8200: not supported."""
    raise SqlRefused(8200, f"Unsupported FLASHBACK DATABASE {statement.name}", "HY000")


_STATEMENT_RULES: Final[Mapping[type[Statement], Callable[[Any, Catalog, DdlSession], StatementPlan]]] = {
    CreateDatabase: create_database,
    AlterDatabase: alter_database,
    DropDatabase: drop_database,
    RecoverDatabase: recover_database,
    CreateTable: create_table,
    CreateTableLike: create_table_like,
    DropTables: drop_tables,
    TruncateTable: truncate_table,
    RenameTables: rename_tables,
    RecoverTable: recover_table,
    AlterTable: plan_alter,
    CreateView: create_view,
    DropViews: drop_views,
    Ignored: plan_ignored,
}


def plan(statement: Statement, snapshot: StoredSnapshot, session: DdlSession) -> StatementPlan:
    """Return the jobs of `statement` in the order of their submission, without ids (request.number assigns them).

    Raises SqlRefused, with MySQL's number and message, for a statement that TiDB would not accept."""
    planned = _STATEMENT_RULES[type(statement)](statement, Catalog(snapshot), session)
    requests = tuple(msgspec.structs.replace(request, query=session.query) for request in planned.requests)
    return StatementPlan(requests, planned.warnings)
