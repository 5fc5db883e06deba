"""ALTER TABLE: each spec asks for parts, and all parts together are one job.

    ALTER TABLE t ADD COLUMN a INT, DROP INDEX i       AddColumn, DropIndex      a multi-schema change (61)
    ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES q     AddIndex, AddForeignKey   the index that it needs comes first
    ALTER TABLE t COMMENT 'x'                          Comment                   one part: a job of its own action

All parts look at the table as it stood before, so none may touch a column or index that another one touches.

No two parts of one job may change the same thing, and none may use what another changes (`check_multi_schema`).

    part                  changes                              uses
    ADD COLUMN c AFTER b  c                                    b
    DROP COLUMN c         c, the indexes on c alone
    MODIFY COLUMN c       c; with new bytes, its indexes too   the column after which it goes
    ADD INDEX i (a, b)    i                                    a, b
    RENAME INDEX i TO j   i, j

Each table option is a part of its own, where it changes something.

Source: TiDB pkg/ddl/executor.go (AlterTable), multi_schema_change.go (checkOperateSameColAndIdx).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.definition import OptionsDetail, TableOptions
from tidegate.schema.modify_kind import KEPT_CHARSETS, ModifyKind
from tidegate.schema.spec import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    ConvertCharset,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    NoChange,
    NotSupported,
    RenameColumn,
    RenameIndex,
    RenameTo,
    SetDefault,
    SetVisibility,
    Spec,
)
from tidegate.schema.statement import AlterTable, RenamePair
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    AddForeignKeyArgs,
    AddIndexArgs,
    CharsetArgs,
    CommentArgs,
    DropColumnArgs,
    DropIndexArgs,
    ModifyColumnArgs,
    NewCacheArgs,
    PositionArgs,
    RebaseArgs,
    RenameIndexArgs,
    SetDefaultArgs,
    ShardBitsArgs,
    TtlArgs,
    VisibilityArgs,
)
from tidegate.schema.stored.definition import StoredTable
from tidegate_upstream.change.alteration import Alteration, AlterPart
from tidegate_upstream.change.catalog import Catalog
from tidegate_upstream.change.draft import column_of
from tidegate_upstream.change.make.table import make_ttl, with_charset
from tidegate_upstream.change.move.column import own_indexes
from tidegate_upstream.change.plan.column import (
    add_columns,
    drop_column,
    modify_column,
    rename_column,
    set_default,
)
from tidegate_upstream.change.plan.index import (
    add_foreign_key,
    add_index,
    detailed,
    drop_index,
    drop_primary_key,
    rename_index,
    set_visibility,
)
from tidegate_upstream.change.plan.partition import PARTITION_RULES
from tidegate_upstream.change.plan.table import rename_pairs
from tidegate_upstream.change.request import Involved, request_on
from tidegate_upstream.change.session import DdlSession, StatementPlan
from tidegate_upstream.f1 import MULTI_SCHEMA_CHANGE


def set_options(alteration: Alteration, spec: TableOptions) -> Iterator[AlterPart]:
    """Options of a table."""
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
    made = None
    if detail.ttl is not None:
        made = make_ttl(alteration.table, detail)
    elif alteration.table.ttl_info is None:
        raise SqlRefused(8150, "Cannot set TTL_ENABLE on a table without TTL config", "HY000")
    return AlterPart(65, TtlArgs(made, detail.ttl_enable, detail.ttl_job_interval))


def convert_charset(alteration: Alteration, spec: ConvertCharset) -> Iterator[AlterPart]:
    """CONVERT TO: the table's charset and that of its text columns."""
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
    """SqlRefused 8200 where parts of a change of `table` cannot be one job."""
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
    for place, part in enumerate(parts):
        others = {name for at, other in enumerate(parts) if at != place for name in _columns(other)}
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
                if any(one.name.lower == old.lower for one in index.idx_cols):
                    yield index.idx_name.lower


def _used(part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddIndexArgs(index=index, hidden=hidden):
            yield from (one.name.lower for one in index.idx_cols)
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
    """Return one job, or none where nothing changes; SqlRefused for what TiDB refuses."""
    if any(isinstance(spec, RenameTo) for spec in statement.specs):
        return _rename(statement, catalog)
    found = catalog.table(statement.table)
    alteration = Alteration(found, catalog, session)
    parts = [part for spec in statement.specs for part in _RULES[type(spec)](alteration, spec)]
    parts = _merged(parts)
    if not parts:
        return StatementPlan(warnings=tuple(alteration.notes))
    involved = _involved(lowered(found.schema), found.stored.name.lower, parts)
    if len(parts) == 1:
        (only,) = parts
        request = request_on(only.action, only.table or found, only.arguments, *(involved or only.involved))
        return StatementPlan((request,), tuple(alteration.notes))
    request = request_on(MULTI_SCHEMA_CHANGE, found, None, *involved)
    subs = tuple(request_on(part.action, found, part.arguments) for part in parts)
    check_multi_schema(alteration.table, parts)
    return StatementPlan((msgspec.structs.replace(request, parts=subs),), tuple(alteration.notes))


def _merged(parts: list[AlterPart]) -> list[AlterPart]:
    """`parts` where of options that were written twice the last one counts."""
    last = {part.action: part for part in parts if part.action in (13, 17)}
    return [part for part in parts if last.get(part.action, part) is part]


def _involved(schema: str, table: str, parts: Sequence[AlterPart]) -> tuple[Involved, ...]:
    """The tables that foreign keys refer to, shared, and the table itself; nothing where there are none."""
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
