"""The role of a TiDB in replication in both directions (BDR), and which DDLs of its users it refuses.

    role         a user's DDL                                         its job
    primary      runs if the others can follow it, else 8263          is replicated
    secondary    8263: DDLs come from the primary                     is not
    none         runs                                                 is not

    SAFE    what others can follow while their rows still have the old shape, with conditions for three of them:
            ADD COLUMN that may be NULL or has a default │ ADD INDEX that is not unique │ MODIFY COLUMN of a default or
            a comment alone

A DDL run by a replication (tidb_cdc_write_source) is never refused.  The conditions are those of the documentation;
TiDB checks the words of the statement, and so refuses `INT NULL DEFAULT 1` as well.

Source: TiDB documentation, "Bidirectional Replication" and "ADMIN [SET|SHOW|UNSET] BDR ROLE"; error 8263.
"""

from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import ActionType
from tidegate.schema.job import PRIMARY
from tidegate.schema.stored.arguments import AddColumnArgs, AddIndexArgs, ModifyColumnArgs
from tidegate.schema.stored.definition import NO_DEFAULT, NOT_NULL, StoredColumn, StoredTable, StoredType
from tidegate_upstream.change.request import Request

SECONDARY: Final = "secondary"
_REFUSED: Final = 8263
_SAFE: Final = frozenset(
    {
        *(ActionType.CREATE_SCHEMA, ActionType.CREATE_TABLE, ActionType.CREATE_TABLES, ActionType.CREATE_VIEW),
        *(ActionType.DROP_VIEW, ActionType.ADD_COLUMN, ActionType.MODIFY_COLUMN, ActionType.SET_DEFAULT_VALUE),
        *(ActionType.ADD_INDEX, ActionType.DROP_INDEX, ActionType.RENAME_INDEX, ActionType.ALTER_INDEX_VISIBILITY),
        *(ActionType.DROP_PRIMARY_KEY, ActionType.ADD_TABLE_PARTITION, ActionType.MODIFY_TABLE_COMMENT),
        *(ActionType.ALTER_TTL_INFO, ActionType.ALTER_TTL_REMOVE),
    }
)


def check_role(role: str, request: Request, table: StoredTable | None) -> None:
    """Raise SqlRefused 8263 for a DDL that the cluster's BDR role forbids users; `table` is the current definition."""
    if role == SECONDARY or (
        role == PRIMARY and not all(_is_safe(part, table) for part in request.parts or (request,))
    ):
        message = f"The operation is not allowed while the bdr role of this cluster is set to {role}."
        raise SqlRefused(_REFUSED, message, "HY000")


def _is_safe(part: Request, table: StoredTable | None) -> bool:
    match part.arguments:
        case AddColumnArgs(column):
            return not column.type.flag & NOT_NULL or column.default is not None or column.default_bit is not None
        case AddIndexArgs(index):
            return part.action in _SAFE and not index.is_unique
        case ModifyColumnArgs(new, name, position):
            columns = {column.name.lower: column for column in (table and table.cols) or ()}
            return position.tp == 0 and name.lower in columns and _kept(columns[name.lower]) == _kept(new)
        case _:
            return part.action in _SAFE


def _kept(column: StoredColumn) -> tuple[str, StoredType, str, bool]:
    """Return the properties that a change of default or comment must not touch."""
    kind = msgspec.structs.replace(column.type, flag=column.type.flag & ~NO_DEFAULT)
    return column.name.original, kind, column.generated_expr_string, column.generated_stored
