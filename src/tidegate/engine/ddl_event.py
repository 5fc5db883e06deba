"""TiDB's action of a DDL that came without it, read off its text.

    text ── parse ──► statement ──► action                  ALTER TABLE ──► its one change ──► action
                                                                        └─► several: MULTI_SCHEMA_CHANGE

Canal-JSON carries no action, and its word says less than the statement.  A text that cannot be read, and a change of
which we know no action, have none.  A foreign key is one to us, though TiDB makes several changes of it where it brings
an index along.

Source: tiflow, pkg/filter (ddlToEventType), which parses the text as well; TiDB pkg/ddl.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.codec.canal.ddl_types import QUERY, ddl_type
from tidegate.model.errors import InputError
from tidegate.model.event import Ddl
from tidegate.model.mysql import ActionType
from tidegate.schema import spec, statement
from tidegate.schema.definition import DropForeignKey, RemoveTtl, TableOptions
from tidegate.schema.parse.ddl import parse

_A: Final = ActionType
_ONLY: Final = {"CREATE": _A.CREATE_TABLE, "ERASE": _A.DROP_TABLE, "TRUNCATE": _A.TRUNCATE_TABLE}
"""Canal's words for one action."""
_ONE_OR_SEVERAL: Final = {_A.ADD_FOREIGN_KEY, _A.ADD_INDEX, _A.ADD_PRIMARY_KEY, _A.DROP_INDEX, _A.DROP_FOREIGN_KEY}
_EMPTIED: Final = re.compile(r"ALTER TABLE `(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)? ?")
"""What is left of an ALTER TABLE that sets TTL_ENABLE alone."""
_STATEMENTS: Final[Mapping[type, int]] = {
    statement.CreateDatabase: _A.CREATE_SCHEMA,
    statement.AlterDatabase: _A.MODIFY_SCHEMA_CHARSET,
    statement.DropDatabase: _A.DROP_SCHEMA,
    statement.RecoverDatabase: _A.RECOVER_SCHEMA,
    statement.CreateTable: _A.CREATE_TABLE,
    statement.CreateTableLike: _A.CREATE_TABLE,
    statement.DropTables: _A.DROP_TABLE,
    statement.TruncateTable: _A.TRUNCATE_TABLE,
    statement.RenameTables: _A.RENAME_TABLE,
    statement.RecoverTable: _A.RECOVER_TABLE,
    statement.CreateView: _A.CREATE_VIEW,
    statement.DropViews: _A.DROP_VIEW,
}
_SPECS: Final[Mapping[type, int]] = {
    spec.AddColumns: _A.ADD_COLUMN,
    spec.DropColumn: _A.DROP_COLUMN,
    spec.ModifyColumn: _A.MODIFY_COLUMN,
    spec.RenameColumn: _A.MODIFY_COLUMN,
    spec.SetDefault: _A.SET_DEFAULT_VALUE,
    spec.AddForeignKey: _A.ADD_FOREIGN_KEY,
    spec.DropIndex: _A.DROP_INDEX,
    spec.DropPrimaryKey: _A.DROP_PRIMARY_KEY,
    spec.RenameIndex: _A.RENAME_INDEX,
    spec.SetVisibility: _A.ALTER_INDEX_VISIBILITY,
    spec.RenameTo: _A.RENAME_TABLE,
    spec.ConvertCharset: _A.MODIFY_TABLE_CHARSET,
    spec.AddPartitions: _A.ADD_TABLE_PARTITION,
    spec.DropPartitions: _A.DROP_TABLE_PARTITION,
    spec.TruncatePartitions: _A.TRUNCATE_TABLE_PARTITION,
    spec.ReorganizePartitions: _A.REORGANIZE_PARTITION,
    spec.CoalescePartitions: _A.REORGANIZE_PARTITION,
    spec.ExchangePartition: _A.EXCHANGE_TABLE_PARTITION,
    spec.RemovePartitioning: _A.REMOVE_PARTITIONING,
    spec.PartitionBy: _A.ALTER_TABLE_PARTITIONING,
}


def acting(ddl: Ddl) -> Ddl:
    """Return the DDL with its action: as it came, else as its text and canal's word tell; None where they do not."""
    if ddl.type is not None:
        return ddl
    action = action_of_text(ddl.query, ddl.schema)
    return msgspec.structs.replace(ddl, type=_in_words(action, ddl) if ddl.canal_type else action)


def _in_words(action: int | None, ddl: Ddl) -> int | None:
    """The action of a text that came with canal's word, which decides between one change and several."""
    if ddl.canal_type in _ONLY or (action is not None and ddl_type(action) == ddl.canal_type):
        return _ONLY.get(ddl.canal_type, action)
    if action is None and ddl.canal_type == QUERY and _EMPTIED.fullmatch(ddl.query):
        return _A.ALTER_TTL_INFO
    if action in _ONE_OR_SEVERAL and ddl.canal_type == ddl_type(_A.MULTI_SCHEMA_CHANGE):
        return _A.MULTI_SCHEMA_CHANGE
    return None


def action_of_text(query: str, schema: str) -> int | None:
    """Return the action of a DDL's text; None where it cannot be told."""
    try:
        found = parse(query, schema)
    except InputError:
        return None
    if len(found) != 1:
        return None
    (one,) = found
    if isinstance(one, statement.RenameTables) and len(one.pairs) > 1:
        return _A.RENAME_TABLES
    if not isinstance(one, statement.AlterTable):
        return _STATEMENTS.get(type(one))
    if len(one.specs) != 1:
        return _A.MULTI_SCHEMA_CHANGE if one.specs else None
    return _action_of(one.specs[0])


def _action_of(change: spec.Spec) -> int | None:
    match change:
        case spec.AddColumns(columns, indexes) if len(columns) > 1 or indexes:
            return _A.MULTI_SCHEMA_CHANGE
        case spec.AddPartitions(count=count) if count:
            return _A.REORGANIZE_PARTITION
        case spec.AddIndex(index):
            return _A.ADD_PRIMARY_KEY if index.primary else _A.ADD_INDEX
        case TableOptions():
            return _option(change)
        case spec.NoChange(_, detail):
            return _of_detail(change.what, detail)
        case _:
            return _SPECS.get(type(change))


def _option(change: TableOptions) -> int | None:
    """TiDB makes one job of each option; of several written together the text does not say which job this is."""
    detail = change.detail
    given = [
        action
        for action, is_given in (
            (_A.MODIFY_TABLE_COMMENT, change.comment is not None),
            (_A.MODIFY_TABLE_CHARSET, change.charset is not None or detail.collate is not None),
            (_A.REBASE_AUTO_ID, detail.auto_increment is not None),
            (_A.SHARD_ROW_ID, detail.shard_row_id_bits is not None),
            (_A.ALTER_TTL_INFO, any((detail.ttl, detail.ttl_enable is not None, detail.ttl_job_interval))),
        )
        if is_given
    ]
    return given[0] if len(given) == 1 else None


def _of_detail(what: str, detail: object) -> int | None:
    if isinstance(detail, DropForeignKey):
        return _A.DROP_FOREIGN_KEY
    if isinstance(detail, RemoveTtl):
        return _A.ALTER_TTL_REMOVE
    return _A.REORGANIZE_PARTITION if what == "REORGANIZE PARTITION" else None
