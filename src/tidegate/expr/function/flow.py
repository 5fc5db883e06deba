"""Functions that choose, and those that ask the session.

    IF(a, b, c)   IFNULL(a, b)   NULLIF(a, b)   COALESCE(a, b, ..)   ISNULL(a)
    GET_LOCK(name, s)  RELEASE_LOCK(name)  RELEASE_ALL_LOCKS()  IS_USED_LOCK(name)  IS_FREE_LOCK(name)
    DATABASE()  USER()  VERSION()  CONNECTION_ID()  LAST_INSERT_ID([n])  ROW_COUNT()  FOUND_ROWS()
    UUID()  MD5  SHA1  TIDB_CURRENT_TSO()
    VALUES(c)   what INSERT .. ON DUPLICATE KEY UPDATE would have inserted

Source: MySQL manual, "Flow Control Functions", "Information Functions", "Locking Functions"; TiDB's tidb_* functions.
"""

import hashlib
import uuid
from collections.abc import Mapping
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.function.form import Function, arguments, define
from tidegate.expr.operator.logic import as_shared, chosen, truth
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, INT, TEXT, UINT, agreed
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.mysql.context import Context, UserLocks
from tidegate.mysql.value.compare import compare
from tidegate.mysql.value.kinds import SqlValue, Unsigned

SERVER_VERSION: Final = "8.0.11-TiDB-v8.5.0-tidegate"
_BAD_FIELD: Final = 1054
_NOT_HERE: Final = 1235


def _if(node: Node, scope: Scope) -> Compiled:
    condition, *values = arguments(node, scope, 3, 3)
    return chosen([truth(condition)], values, scope)


def _coalesce(node: Node, scope: Scope) -> Compiled:
    values = arguments(node, scope, 1)
    form, runs = as_shared(values, scope)

    def run(row: Row, context: Context) -> SqlValue:
        for evaluate in runs:
            value = evaluate(row, context)
            if value is not None:
                return value
        return None

    return Compiled(run, form.type, form.collation, form.rank)


def _ifnull(node: Node, scope: Scope) -> Compiled:
    arguments(node, scope, 2, 2)
    return _coalesce(node, scope)


def _nullif(node: Node, scope: Scope) -> Compiled:
    first, second = arguments(node, scope, 2, 2)
    collation, _ = agreed((first, second), scope)
    kinds = (first.type, second.type)

    def run(row: Row, context: Context) -> SqlValue:
        value = first.run(row, context)
        return None if compare(value, second.run(row, context), kinds, collation, context) == 0 else value

    return Compiled(run, first.type, first.collation, first.rank)


def _values(node: Node, scope: Scope) -> Compiled:
    name = node.expressions[0].name
    if scope.values is None:
        raise SqlRefused(_BAD_FIELD, f"Unknown column '{name}' in 'values function'", "42S22")
    return scope.values(name)


def _last_insert_id(context: Context, value: int | None = None) -> int:
    if value is not None:
        context.last_insert_id = value & (1 << 64) - 1
    return Unsigned(context.last_insert_id)


def _locks(context: Context) -> UserLocks:
    if context.locks is None:
        raise SqlRefused(_NOT_HERE, "locks belong to sessions", "42000")
    return context.locks


def _get_lock(context: Context, name: str | None, wait_s: int | None) -> int:
    return int(_locks(context).take(name or "", -1 if wait_s is None else wait_s))


def _release_lock(context: Context, name: str | None) -> int | None:
    released = _locks(context).release(name or "")
    return None if released is None else int(released)


def _is_used_lock(context: Context, name: str | None) -> int | None:
    return _locks(context).owner(name or "")


def _is_free_lock(context: Context, name: str | None) -> int:
    return int(_locks(context).owner(name or "") is None)


_DATABASE: Final = define("", TEXT, lambda context: context.database or None, session=True, nulls=True)
_USER: Final = define("", TEXT, lambda context: context.user, session=True)
_MD5: Final = define("o", TEXT, lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest())
_SHA1: Final = define("o", TEXT, lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest())

FLOW_FUNCTIONS: Final[Mapping[str, Function]] = {
    "COALESCE": _coalesce,
    "CONNECTION_ID": define("", UINT, lambda context: Unsigned(context.connection_id), session=True),
    "CURRENT_USER": _USER,
    "DATABASE": _DATABASE,
    "FOUND_ROWS": define("", INT, lambda context: context.found_rows, session=True),
    "GET_LOCK": define("si", INT, _get_lock, session=True, nulls=True),
    "IF": _if,
    "IFNULL": _ifnull,
    "ISNULL": define("v", BOOL, lambda value: int(value is None), nulls=True),
    "IS_FREE_LOCK": define("s", INT, _is_free_lock, session=True, nulls=True),
    "IS_USED_LOCK": define("s", INT, _is_used_lock, session=True, nulls=True),
    "LAST_INSERT_ID": define("i", UINT, _last_insert_id, least=0, session=True),
    "MD5": _MD5,
    "NULLIF": _nullif,
    "RELEASE_ALL_LOCKS": define("", INT, lambda context: _locks(context).release_all(), session=True),
    "RELEASE_LOCK": define("s", INT, _release_lock, session=True, nulls=True),
    "ROW_COUNT": define("", INT, lambda context: context.row_count, session=True),
    "SCHEMA": _DATABASE,
    "SHA": _SHA1,
    "SHA1": _SHA1,
    "TIDB_CURRENT_TSO": define("", INT, lambda context: context.start_ts, session=True),
    "TIDB_VERSION": define("", TEXT, lambda: f"Release Version: {SERVER_VERSION}"),
    "USER": _USER,
    "UUID": define("", TEXT, lambda: str(uuid.uuid1())),
    "VALUES": _values,
    "VERSION": define("", TEXT, lambda: SERVER_VERSION),
}
"""By name."""
