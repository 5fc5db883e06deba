"""ALTER TABLE: each spec asks for parts, and all parts together are one job.

    ALTER TABLE t ADD COLUMN a INT, DROP INDEX i       AddColumn, DropIndex      a multi-schema change (61)
    ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES q     AddIndex, AddForeignKey   the index that it needs comes first
    ALTER TABLE t COMMENT 'x'                          Comment                   one part: a job of its own action

All parts look at the table as it stood before, so none may touch a column or index that another one touches.

Source: TiDB pkg/ddl/executor.go (AlterTable), multi_schema_change.go (checkOperateSameColAndIdx).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.change.alteration import Alteration, AlterPart
from tidegate.schema.change.arguments import AddForeignKeyArgs
from tidegate.schema.change.catalog import Catalog
from tidegate.schema.change.multi_schema import check_multi_schema
from tidegate.schema.change.plan.column import (
    add_columns,
    drop_column,
    modify_column,
    rename_column,
    set_default,
)
from tidegate.schema.change.plan.index import (
    add_foreign_key,
    add_index,
    detailed,
    drop_index,
    drop_primary_key,
    rename_index,
    set_visibility,
)
from tidegate.schema.change.plan.option import convert_charset, set_options
from tidegate.schema.change.plan.partition import PARTITION_RULES
from tidegate.schema.change.plan.table import rename_pairs
from tidegate.schema.change.request import Involved, Request
from tidegate.schema.change.session import DdlSession, StatementPlan
from tidegate.schema.definition import TableOptions
from tidegate.schema.f1_multi import MULTI_SCHEMA_CHANGE
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

__all__ = ["plan_alter"]


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
    request = Request(
        MULTI_SCHEMA_CHANGE,
        found.schema_id,
        found.stored.id,
        found.schema.lower(),
        found.stored.name.lower,
        None,
        involved=_involved(found.schema.lower(), found.stored.name.lower, parts),
    )
    subs = tuple(
        msgspec.structs.replace(request, action=part.action, arguments=part.arguments, involved=()) for part in parts
    )
    if len(subs) == 1:
        only = parts[0]
        request = msgspec.structs.replace(subs[0], involved=request.involved or only.involved)
        if only.table is not None:
            request = msgspec.structs.replace(
                request,
                schema_id=only.table.schema_id,
                table_id=only.table.stored.id,
                schema_name=only.table.schema.lower(),
                table_name=only.table.stored.name.lower,
            )
        return StatementPlan((request,), tuple(alteration.notes))
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
