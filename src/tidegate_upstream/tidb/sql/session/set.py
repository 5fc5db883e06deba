"""SET: what its list of assignments says, and doing it.

    SET x = 1, @@session.y = DEFAULT, GLOBAL z = ON, @u := 7      Assign(scope, name, value) one after the other
    SET NAMES utf8mb4 COLLATE utf8mb4_bin                         character_set_client, _results, collation_connection
    SET CHARACTER SET gbk
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY
    SET PASSWORD .., ROLE .., RESOURCE GROUP ..                   accepted: there are no accounts here

A bare word is a text (SET sql_mode = ANSI), anything else an expression.

Source: MySQL manual, "SET Syntax for Variable Assignment", "SET NAMES Statement", "SET TRANSACTION Statement".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits
from tidegate.model.tso import LOGICAL_BITS
from tidegate.mysql.packed_time import Time
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.charset import CHARSETS, charset_named, collation_named
from tidegate.schema.cursor import Cursor
from tidegate_upstream.tidb.sql.session.state import SessionState
from tidegate_upstream.tidb.sql.variable.variables import VARIABLES, find


class SetScope(Enum):
    """Where a value goes."""

    SESSION = "session"
    GLOBAL = "global"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Assign:
    """One assignment: `expression` is text to evaluate, else `word` is the value; both None for DEFAULT."""

    scope: SetScope
    name: str
    expression: str | None = None
    word: str | None = None


_SCOPES: Final = {
    "GLOBAL": SetScope.GLOBAL,
    "PERSIST": SetScope.GLOBAL,
    "SESSION": SetScope.SESSION,
    "LOCAL": SetScope.SESSION,
}
_IGNORED: Final = ("PASSWORD", "DEFAULT ROLE", "ROLE", "RESOURCE GROUP", "CONFIG")
_WRONG_MOMENT: Final = 1292
_TSO_MIN: Final = 1 << 40
"""Whole numbers from here on are TSOs: as a moment they would be no date."""
_LEVELS: Final = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def read_set(text: str, modes: frozenset[str] = frozenset()) -> tuple[Assign, ...]:
    """Return the assignments of a SET statement. Raises SqlError for what is none."""
    cursor = Cursor(text, modes)
    cursor.expect("SET")
    if cursor.accept(*_IGNORED):
        return ()
    found = list(_items(cursor))
    while cursor.sign(","):
        found += _items(cursor)
    if not cursor.done():
        raise cursor.error("unexpected text")
    return tuple(found)


def _items(cursor: Cursor) -> Iterator[Assign]:
    """The assignments of one item of the list."""
    scope = SetScope.SESSION
    if cursor.looking_at("NAMES"):
        yield from _names(cursor)
        return
    if cursor.accept("CHARACTER SET", "CHARSET"):
        charset = _charset(cursor)
        for name in ("character_set_client", "character_set_results"):
            yield Assign(scope, name, word=charset)
        yield Assign(scope, "collation_connection", expression="@@collation_database")
        return
    if word := cursor.accept(*_SCOPES):
        scope = _SCOPES[word]
    if cursor.accept("TRANSACTION"):
        yield from _characteristics(cursor, scope)
        return
    yield _assignment(cursor, scope)


def _names(cursor: Cursor) -> Iterator[Assign]:
    cursor.expect("NAMES")
    charset = _charset(cursor)
    collation = cursor.next().text if cursor.accept("COLLATE") else None
    for name in ("character_set_client", "character_set_connection", "character_set_results"):
        yield Assign(SetScope.SESSION, name, word=charset)
    if collation is not None:
        yield Assign(SetScope.SESSION, "collation_connection", word=collation)


def _charset(cursor: Cursor) -> str:
    return CHARSETS["utf8mb4"].name if cursor.accept("DEFAULT") else charset_named(cursor.next().text)


def _characteristics(cursor: Cursor, scope: SetScope) -> Iterator[Assign]:
    while True:
        if cursor.accept("ISOLATION LEVEL"):
            level = cursor.expect(*_LEVELS).replace(" ", "-")
            yield Assign(scope, "transaction_isolation", word=level)
        else:
            only = cursor.expect("READ ONLY", "READ WRITE") == "READ ONLY"
            yield Assign(scope, "transaction_read_only", word="ON" if only else "OFF")
        if not (cursor.is_sign(",") and cursor.looking_at("ISOLATION", 1)) and not cursor.looking_at("READ", 1):
            return
        cursor.expect_sign(",")


def _assignment(cursor: Cursor, scope: SetScope) -> Assign:
    signs = 0
    while cursor.sign("@"):
        signs += 1
    if cursor.sign("@@"):
        signs = 2
    if cursor.peek().kind is TokenKind.END:
        raise cursor.error("expected a variable")
    name = cursor.next().text
    while cursor.sign("."):
        scope = _SCOPES.get(name.upper(), scope)
        name = cursor.next().text
    if signs == 1:
        scope = SetScope.USER
    if not cursor.sign(":="):
        if cursor.sign(":"):
            cursor.expect_sign("=")
        else:
            cursor.expect_sign("=")
    if scope is not SetScope.USER and cursor.accept("DEFAULT"):
        return Assign(scope, name)
    here, after = cursor.peek(), cursor.peek(1)
    ends = after.kind is TokenKind.END or (after.kind is TokenKind.SIGN and after.text in ",;")
    if (
        here.kind is TokenKind.WORD
        and ends
        and here.word not in ("NULL", "TRUE", "FALSE")
        and scope is not SetScope.USER
    ):
        return Assign(scope, name, word=cursor.next().text)
    return Assign(scope, name, expression=_expression(cursor))


def _expression(cursor: Cursor) -> str:
    start = cursor.at
    cursor.skip_balanced(",")
    return cursor.slice(start)


def apply(
    assigns: tuple[Assign, ...],
    state: SessionState,
    evaluate: Callable[[str], SqlValue],
    warn: Callable[[int, str], None],
    hooks: Mapping[tuple[SetScope, str], Callable[[SqlValue], SqlValue]],
) -> None:
    """Do the assignments, the last of them not if one before it is refused. `hooks` read values of variables that the
    session itself knows best (tidb_snapshot), and return what the variable then holds."""
    for one in assigns:
        value: SqlValue = one.word if one.expression is None else evaluate(one.expression)
        if one.scope is SetScope.USER:
            state.user_variables[one.name.lower()] = value
            continue
        name = one.name.lower()
        if one.expression is None and one.word is None:
            value = _default(name, one.scope, state)
        if (one.scope, name) in hooks:
            value = hooks[one.scope, name](value)
        if one.scope is SetScope.GLOBAL:
            state.variables.shared.set(name, value, warn)
        else:
            state.variables.set(name, value, warn)


def _default(name: str, scope: SetScope, state: SessionState) -> SqlValue:
    """What DEFAULT stands for: the server's value for a session, the table's for the server."""
    variable = find(name)
    return VARIABLES[variable.name].default if scope is SetScope.GLOBAL else state.variables.shared[variable.name]


def set_names(state: SessionState, charset: str, collation: str | None = None) -> None:
    """SET NAMES, as a handshake does it; an unknown charset is taken for utf8mb4."""
    try:
        name = charset_named(charset)
    except SqlRefused:
        name = "utf8mb4"
    for variable in ("character_set_client", "character_set_connection", "character_set_results"):
        state.variables.set(variable, name)
    if collation is not None:
        state.variables.set("collation_connection", collation_named(collation))


# --- moments of the past, for tidb_snapshot ---


def moment_ts(value: SqlValue, zone: tzinfo, newest_ts: int) -> int:
    """Return the timestamp that a value means; SqlRefused 1292 for none, 8128 for one to come."""
    ts = _tso(value) or _moment(value, zone)
    if ts is None:
        raise SqlRefused(_WRONG_MOMENT, f"Incorrect datetime value: '{_shown(value)}'", "22007")
    if ts > newest_ts:
        raise SqlRefused(8128, f"cannot read at ts {ts}, a time to come: the newest is {newest_ts}", "HY000")
    return ts


def _shown(value: SqlValue) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _tso(value: SqlValue) -> int | None:
    if isinstance(value, int | Decimal) and value >= _TSO_MIN:
        return int(value)
    if isinstance(value, str) and all_digits(value) and int(value) >= _TSO_MIN:
        return int(value)
    return None


def _moment(value: SqlValue, zone: tzinfo) -> int | None:
    try:
        if isinstance(value, Time):
            moment = datetime(*value, tzinfo=zone)
        elif isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
            moment = found if found.tzinfo is not None else found.replace(tzinfo=zone)
        else:
            return None
    except ValueError:
        return None
    return round(moment.timestamp() * 1000) << LOGICAL_BITS
