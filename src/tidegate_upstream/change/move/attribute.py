"""Changes of one step: the definition before, the definition after.

    AFTER[action](table, arguments) -> table

Source: TiDB pkg/ddl/table.go, index.go, column.go, ttl.go, sequence.go.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.arguments import (
    AlterSequenceArgs,
    CharsetArgs,
    CheckNameArgs,
    CommentArgs,
    NewCacheArgs,
    RebaseArgs,
    RenameIndexArgs,
    SetDefaultArgs,
    ShardBitsArgs,
    TtlArgs,
    VisibilityArgs,
)
from tidegate.schema.stored.definition import StoredColumn, StoredTable
from tidegate.schema.stored.flags import NO_DEFAULT
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import Draft, Move, States, column_of, known_index, move_column, with_index
from tidegate_upstream.change.outcome import CounterChange
from tidegate_upstream.change.request import Request

_AUTO_RANDOM: Final = 40


def counter_kind(table: StoredTable) -> str:
    """Return the counter of AUTO_INCREMENT: one of its own with AUTO_ID_CACHE 1, else that of row ids."""
    return "IID" if table.auto_id_cache == 1 else "TID"


def _charset(table: StoredTable, arguments: CharsetArgs) -> StoredTable:
    changed = msgspec.structs.replace(table, charset=arguments.to_charset, collate=arguments.to_collate)
    if not arguments.needs_overwrite_cols:
        return changed
    columns = [converted(column, arguments.to_charset, arguments.to_collate) for column in table.cols or ()]
    return msgspec.structs.replace(changed, cols=columns)


def converted(column: StoredColumn, charset: str, collate: str) -> StoredColumn:
    """`column` in another charset, if it holds text."""
    if column.type.charset in ("binary", ""):
        return column
    return msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, charset=charset, collate=collate))


def _rename_index(table: StoredTable, arguments: RenameIndexArgs) -> StoredTable:
    found = known_index(table, arguments.old_name.original)
    return with_index(table, msgspec.structs.replace(found, idx_name=arguments.new_name))


def _visibility(table: StoredTable, arguments: VisibilityArgs) -> StoredTable:
    found = known_index(table, arguments.index_name.original)
    return with_index(table, msgspec.structs.replace(found, is_invisible=arguments.invisible))


def _set_default(table: StoredTable, arguments: SetDefaultArgs) -> StoredTable:
    new = arguments.column_info
    found = column_of(table, new.name.lower)
    if found is None:
        raise SqlRefused(1054, f"Unknown column '{new.name.original}' in '{table.name.original}'", "42S22")
    flag = (new.type.flag & NO_DEFAULT) | (found.type.flag & ~NO_DEFAULT)
    if msgspec.structs.replace(new.type, flag=0) != msgspec.structs.replace(found.type, flag=0):
        message = f"Unsupported alter column: '{found.name.original}' has another type meanwhile; ask again"
        raise SqlRefused(8200, message, "HY000")
    column = msgspec.structs.replace(
        found,
        default=new.default,
        default_bit=new.default_bit,
        default_is_expr=new.default_is_expr,
        type=msgspec.structs.replace(found.type, flag=flag),
    )
    return move_column(table, column, found.offset)


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
    now = table.ttl_info
    changed = arguments.ttl_info or now
    if changed is None:
        raise SqlRefused(8150, "Cannot set TTL_ENABLE on a table without TTL config", "HY000")
    if arguments.ttl_info is not None and now is not None and arguments.ttl_enable is None:
        changed = msgspec.structs.replace(changed, enable=now.enable)
    if arguments.ttl_info is not None and now is not None and arguments.ttl_cron_job_schedule is None:
        changed = msgspec.structs.replace(changed, job_interval=now.job_interval)
    if arguments.ttl_enable is not None:
        changed = msgspec.structs.replace(changed, enable=arguments.ttl_enable)
    if arguments.ttl_cron_job_schedule is not None:
        changed = msgspec.structs.replace(changed, job_interval=arguments.ttl_cron_job_schedule)
    return msgspec.structs.replace(table, ttl_info=changed)


def _shard_bits(table: StoredTable, arguments: ShardBitsArgs) -> StoredTable:
    most = max(table.max_shard_row_id_bits, arguments.shard_row_id_bits)
    return msgspec.structs.replace(table, shard_row_id_bits=arguments.shard_row_id_bits, max_shard_row_id_bits=most)


def _rebase(table: StoredTable, arguments: RebaseArgs) -> StoredTable:
    return msgspec.structs.replace(table, auto_inc_id=arguments.new_base)


def _rebase_random(table: StoredTable, arguments: RebaseArgs) -> StoredTable:
    return msgspec.structs.replace(table, auto_rand_id=arguments.new_base)


def _comment(table: StoredTable, arguments: CommentArgs) -> StoredTable:
    return msgspec.structs.replace(table, comment=arguments.comment)


def _cache(table: StoredTable, arguments: NewCacheArgs) -> StoredTable:
    return msgspec.structs.replace(table, auto_id_cache=arguments.new_cache)


def _no_ttl(table: StoredTable, _arguments: TtlArgs) -> StoredTable:
    return msgspec.structs.replace(table, ttl_info=None)


def _sequence(table: StoredTable, arguments: AlterSequenceArgs) -> StoredTable:
    return msgspec.structs.replace(table, sequence=arguments.sequence)


_AFTER: Final[Mapping[int, Callable[[StoredTable, Any], StoredTable]]] = {
    13: _rebase,
    15: _set_default,
    16: _shard_bits,
    17: _comment,
    18: _rename_index,
    22: _charset,
    35: _sequence,
    39: _cache,
    40: _rebase_random,
    41: _visibility,
    45: _enforced,
    65: _ttl,
    67: _no_ttl,
}


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
