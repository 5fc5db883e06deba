"""Commands of a session that are neither queries nor changes nor DDL, and the relations that its queries read.

`run_command` finds the rule by the first word of the statement:

    BEGIN, START TRANSACTION, COMMIT, ROLLBACK [TO s], SAVEPOINT s, RELEASE SAVEPOINT s
    SET, USE, SHOW, DESC, DESCRIBE, EXPLAIN t, KILL
    ADMIN SHOW DDL JOBS [n] [WHERE ..]        running jobs, then the newest n (10) of the history
    ADMIN CANCEL DDL JOBS 118, 119            one line each: successful, or error: ..
    ADMIN SET BDR ROLE PRIMARY, SECONDARY     role in bidirectional replication; ADMIN UNSET, SHOW BDR ROLE
    ADMIN CHECK TABLE t, u                    no rows when rows and index entries agree, else 8223
    accepted without effect: LOCK TABLES, FLUSH, ANALYZE, GRANT, CREATE USER ..

SET is read into assignments that apply one after the other.  A bare word is a text (SET sql_mode = ANSI), anything else
an expression.

    SET x = 1, @@session.y = DEFAULT, GLOBAL z = ON, @u := 7      Assign(scope, name, value) each
    SET NAMES utf8mb4 COLLATE utf8mb4_bin                         character_set_client, _results, collation_connection
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY
    SET PASSWORD .., ROLE .., RESOURCE GROUP ..                   accepted without effect: there are no accounts

`StatementShapes` parses statements that differ in their literals alone only once.  A shape is parsed with a distinct
number at each literal, to find its node; a literal that the grammar consumes otherwise (the length in a CAST, adjacent
strings) is not found, and such statements are parsed each time.  The node is reused, so a statement must be over before
the next one of its shape is parsed; each session has its own StatementShapes.

`SystemRelations` resolves names to information_schema or to views, by the definitions of the historical ts that the
session reads at, of its open transaction, or of now.  A view is its SELECT, run in the database it was created in.

`NodeTools` is shared by all sessions of a node; named locks are the cluster's, since its nodes share a store.

Source: MySQL manual, "SQL Statements", "SET Syntax for Variable Assignment", "SET NAMES Statement", "SET TRANSACTION
Statement"; TiDB documentation, "SQL Statement Overview" and the pages of ADMIN; TiDB pkg/planner (view expansion),
pkg/executor (show.go, infoschema_reader.go).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from decimal import Decimal
from enum import Enum
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from sqlglot import exp

from tidegate.expr.dialect import Node as Syntax
from tidegate.expr.parse import Command, Dml, Parsed, parse_statements, statements_of, tokens_of
from tidegate.expr.scope import FixedRelation, Relation, RelationColumn, Relations, ResultColumn, ResultSet
from tidegate.expr.tokens import RESERVED, Token, TokenKind
from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits
from tidegate.model.tso import LOGICAL_BITS
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import Context, SqlValue
from tidegate.schema.columns import CHARSETS, charset_named, collation_named
from tidegate.schema.cursor import Cursor
from tidegate.schema.job import PRIMARY
from tidegate.schema.stored.create import NextIds
from tidegate.schema.stored.definition import AUTO_INCREMENT
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.change.role import SECONDARY
from tidegate_upstream.errors import missing_name
from tidegate_upstream.tidb.check_table import check_table, refusal
from tidegate_upstream.tidb.dml import Outcome, Shapes, find_table
from tidegate_upstream.tidb.information_schema import (
    Facts,
    InformationSchema,
    is_information,
    job_row,
    relation_columns,
)
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.select import select
from tidegate_upstream.tidb.session_state import NamedLocks, SessionState, SessionTransaction
from tidegate_upstream.tidb.show import View, describe, show
from tidegate_upstream.tidb.store_mvcc import Store
from tidegate_upstream.tidb.table_access import StoredAutoIds
from tidegate_upstream.tidb.variables import EXTERNAL_TS, VARIABLES, find


class Peers(Protocol):
    """The other clients of a server."""

    def kill(self, connection_id: int, *, query_only: bool) -> None:
        """End a client's connection, or only its statement. Raises SqlRefused 1094."""
        ...

    def sessions(self) -> Sequence[object]:
        """Return the sessions of all clients."""
        ...


@dataclass(frozen=True, slots=True)
class NodeTools:
    """Objects that the sessions of a node share."""

    auto_ids: StoredAutoIds
    locks: NamedLocks
    shapes: Shapes = field(default_factory=Shapes)


_tools: WeakKeyDictionary[Node, NodeTools] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Store, NamedLocks] = WeakKeyDictionary()
_guard: Final = Lock()


def tools_of(node: Node) -> NodeTools:
    """Return the tools of a node, created on first use."""
    with _guard:
        if node not in _tools:
            locks = _locks.setdefault(node.storage.store, NamedLocks())
            _tools[node] = NodeTools(StoredAutoIds(node.storage), locks)
        return _tools[node]


class SessionClient(Protocol):
    """The part of a session that commands and views use."""

    node: Node
    state: SessionState
    transaction: SessionTransaction
    tools: NodeTools
    peers: Peers | None
    running: str
    snapshot_ts: int | None

    @property
    def past_ts(self) -> int | None:
        """The moment that is read, None for now."""
        ...

    @property
    def connection_id(self) -> int:
        """The number of the client."""
        ...

    def use(self, database: str) -> None:
        """USE. Raises SqlRefused 1049."""
        ...

    def evaluate(self, text: str) -> SqlValue:
        """Return the value of an expression in SQL."""
        ...

    def moment(self, value: SqlValue) -> int:
        """Return the timestamp of a value."""
        ...

    def view(self, context: Context | None = None) -> View:
        """Return the data of SHOW."""
        ...


class SetScope(Enum):
    """The scope of an assignment in SET."""

    SESSION = "session"
    GLOBAL = "global"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Assign:
    """One assignment: `expression` is text to evaluate, else `word` is the value; both are None for DEFAULT."""

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
"""Integers from here on are TSOs, since they are no valid dates."""
_LEVELS: Final = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def read_set(text: str, modes: frozenset[str] = frozenset()) -> tuple[Assign, ...]:
    """Return the assignments of a SET statement. Raises SqlError."""
    cursor = Cursor(text, modes)
    cursor.expect("SET")
    if cursor.accept(*_IGNORED):
        return ()
    assignments = list(_items(cursor))
    while cursor.sign(","):
        assignments += _items(cursor)
    if not cursor.done():
        raise cursor.error("unexpected text")
    return tuple(assignments)


def _items(cursor: Cursor) -> Iterator[Assign]:
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
    if not cursor.accept("TRANSACTION"):
        yield _assignment(cursor, scope)
        return
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
    token, after = cursor.peek(), cursor.peek(1)
    ends = after.kind is TokenKind.END or (after.kind is TokenKind.SIGN and after.text in ",;")
    if (
        token.kind is TokenKind.WORD
        and ends
        and token.word not in ("NULL", "TRUE", "FALSE")
        and scope is not SetScope.USER
    ):
        return Assign(scope, name, word=cursor.next().text)
    start = cursor.position
    cursor.skip_balanced(",")
    return Assign(scope, name, expression=cursor.slice(start))


def apply(
    assigns: tuple[Assign, ...],
    state: SessionState,
    evaluate: Callable[[str], SqlValue],
    warn: Callable[[int, str], None],
    hooks: Mapping[tuple[SetScope, str], Callable[[SqlValue], SqlValue]],
) -> None:
    """Do the assignments in order up to the first that is refused. `hooks` convert values of variables that the session
    interprets itself (tidb_snapshot)."""
    for assignment in assigns:
        value: SqlValue = assignment.word if assignment.expression is None else evaluate(assignment.expression)
        if assignment.scope is SetScope.USER:
            state.user_variables[assignment.name.lower()] = value
            continue
        name = assignment.name.lower()
        if assignment.expression is None and assignment.word is None:
            value = _default(name, assignment.scope, state)
        if (assignment.scope, name) in hooks:
            value = hooks[assignment.scope, name](value)
        if assignment.scope is SetScope.GLOBAL:
            state.variables.shared.set(name, value, warn)
        else:
            state.variables.set(name, value, warn)


def _default(name: str, scope: SetScope, state: SessionState) -> SqlValue:
    variable = find(name)
    return VARIABLES[variable.name].default if scope is SetScope.GLOBAL else state.variables.shared[variable.name]


def set_names(state: SessionState, charset: str, collation: str | None = None) -> None:
    """SET NAMES, as a handshake does it; an unknown charset counts as utf8mb4."""
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
    """Return the timestamp of a value; SqlRefused 1292 for an invalid one, 8128 for one in the future."""
    is_number = isinstance(value, int | Decimal) or (isinstance(value, str) and all_digits(value))
    tso = int(value) if is_number else 0  # type: ignore[arg-type]
    ts = tso if tso >= _TSO_MIN else _moment(value, zone)
    if ts is None:
        raise SqlRefused(_WRONG_MOMENT, f"Incorrect datetime value: '{_shown(value)}'", "22007")
    if ts > newest_ts:
        raise SqlRefused(
            8128, f"cannot set read timestamp to a future time, readTS: {ts}, currentTS: {newest_ts}", "HY000"
        )
    return ts


def _shown(value: SqlValue) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _moment(value: SqlValue, zone: tzinfo) -> int | None:
    try:
        if isinstance(value, Time):
            moment = datetime(*value, tzinfo=zone)
        elif isinstance(value, str):
            parsed = datetime.fromisoformat(value.strip())
            moment = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=zone)
        else:
            return None
    except ValueError:
        return None
    return round(moment.timestamp() * 1000) << LOGICAL_BITS


_LITERALS: Final = frozenset({TokenKind.NUMBER, TokenKind.STRING})
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE"})
_QUERIES: Final = frozenset({"SELECT", "WITH", ";"})
_TOKENS_MAX: Final = 64
_SHAPES_MAX: Final = 256
_FIRST: Final = 7_300_000_000_000_000_000
"""Placeholders for literals start here: numbers that hardly occur in a statement."""

_Key: TypeAlias = tuple[object, ...]


class _Shape(NamedTuple):
    node: Any
    literals: Sequence[Any]


class StatementShapes:
    """A cache of parsed statements by their shape, for one session; the least recently used are dropped."""

    def __init__(self) -> None:
        self._shapes: OrderedDict[_Key, _Shape | None] = OrderedDict()

    def parse(self, sql: str, sql_mode: frozenset[str]) -> list[Parsed]:
        """Return the statements of `sql`, as `parse` gives them. Raises SqlRefused 1064."""
        tokens = tokens_of(sql, sql_mode)
        if not 0 < len(tokens) <= _TOKENS_MAX or tokens[0].word not in _CHANGES:
            return statements_of(sql, tokens, RESERVED)
        key = tuple((token.kind, None if token.kind in _LITERALS else token.text) for token in tokens)
        if key not in self._shapes:
            parsed = statements_of(sql, tokens, RESERVED)
            self._shapes[key] = _shape(sql, tokens)
            if len(self._shapes) > _SHAPES_MAX:
                self._shapes.popitem(last=False)
            return parsed
        shape = self._shapes[key]
        self._shapes.move_to_end(key)
        if shape is None:
            return statements_of(sql, tokens, RESERVED)
        texts = [token.text for token in tokens if token.kind in _LITERALS]
        for literal, text in zip(shape.literals, texts, strict=True):
            literal.set("this", text)
        return [Dml(shape.node, sql[tokens[0].start : tokens[-1].end])]


def _shape(sql: str, tokens: Sequence[Token]) -> _Shape | None:
    """Return the shape of a statement that parses; None if a literal cannot be located again."""
    if any((token.word or token.text) in _QUERIES for token in tokens):
        return None
    numbered = [
        token._replace(text=str(_FIRST + number)) if token.kind in _LITERALS else token
        for number, token in enumerate(tokens)
    ]
    [parsed] = statements_of(sql, numbered, RESERVED)
    if not isinstance(parsed, Dml):
        return None
    by_text = {literal.this: literal for literal in parsed.node.find_all(exp.Literal)}
    literals = [token.text for token in numbered if token.kind in _LITERALS]
    if len(by_text) != len(literals) or not by_text.keys() >= set(literals):
        return None
    return _Shape(parsed.node, [by_text[text] for text in literals])


_DEPTH: Final = 32
"""Maximal nesting of views; deeper is a cycle."""


@dataclass(frozen=True, slots=True)
class _OneRelation:
    only: Relation

    def relation(self, _schema: str, _name: str) -> Relation:
        """Return the relation."""
        return self.only


def _choose(relation: FixedRelation, condition: str, context: Context) -> ResultSet:
    """Return the rows of a relation that fulfil a condition, by the rules of SELECT. Raises SqlRefused."""
    if condition == "TRUE":
        columns = tuple(ResultColumn(column.name, column.type, column.collation) for column in relation.columns)
        return ResultSet(columns, list(relation.stored_rows))
    text = f"SELECT * FROM `shown` WHERE {condition}"  # noqa: S608  the condition is the user's own SQL
    [statement] = parse_statements(text, context.sql_mode - {"ANSI_QUOTES"})
    assert isinstance(statement, Dml), condition
    return select(statement.node, _OneRelation(relation), context)


@dataclass(frozen=True, slots=True)
class SystemRelations:
    """Relations that are no stored tables. `within` gives the relations of a view's SELECT, in the view's database."""

    information: Callable[[], InformationSchema]
    snapshot: StoredSnapshot
    context: Context
    within: Callable[[Context, int], Relations]
    depth: int = 0

    def relation(self, schema: str, name: str) -> Relation:
        """Return a table of information_schema, or a view; SqlRefused 1146, 1046."""
        if is_information(schema):
            return self.information().relation(schema, name)
        table = find_table(self.snapshot, schema, name)
        if table is None or not table.stored.is_view:
            if not schema:
                raise SqlRefused(1046, "No database selected", "3D000")
            raise missing_name(schema, name)
        if self.depth > _DEPTH:
            raise SqlRefused(1462, f"`{schema}`.`{name}` contains view recursion", "HY000")
        return self._view(table)

    def _view(self, view: TableVersion) -> Relation:
        assert view.stored.view is not None
        context = self.context
        outside, context.database = context.database, view.schema
        try:
            node = _select(view.stored.view.view_select)
            answer = select(node, self.within(context, self.depth + 1), context)
        finally:
            context.database = outside
        names = [column.name.original for column in view.stored.cols or []]
        if len(names) != len(answer.columns):
            qualified = f"{view.schema}.{view.stored.name.original}"
            raise SqlRefused(1356, f"View '{qualified}' references invalid table(s) or column(s)", "HY000")
        columns = tuple(
            RelationColumn(name, column.type, collation=column.collation)
            for name, column in zip(names, answer.columns, strict=True)
        )
        return FixedRelation(view.stored.name.original, columns, answer.rows)


def _select(text: str) -> Syntax:
    [statement] = parse_statements(text)
    assert isinstance(statement, Dml), text
    return statement.node


# --- what SHOW and information_schema see ---


_SEPARATE_IDS: Final = 1
"""AUTO_ID_CACHE 1: AUTO_INCREMENT has a counter of its own."""


def view_of(session: SessionClient, context: Context) -> View:
    """Return the data of SHOW."""
    schema = _definitions(session)
    return View(
        session.state,
        schema,
        information_of(session, schema),
        lambda relation, condition: _choose(relation, condition, context),
        lambda table: _ids(session, table),
        session.node.storage.oracle.next,
    )


def information_of(session: SessionClient, schema: StoredSnapshot | None = None) -> InformationSchema:
    """Return information_schema of a snapshot, by default the current one."""
    ddl_client = session.node.ddl_client
    return InformationSchema(
        Facts(
            schema or _fresh(session),
            jobs=lambda: [*ddl_client.jobs(), *ddl_client.history()],
            processes=lambda: _processes(session),
            zone=session.state.zone,
            next_id=lambda schema_id, table_id: _next(session, schema_id, table_id, "TID"),
        )
    )


def _definitions(session: SessionClient) -> StoredSnapshot:
    if session.past_ts is not None:
        return session.node.schema_at(session.past_ts)
    opened = session.transaction.open
    return opened.schema if opened else _fresh(session)


def _fresh(session: SessionClient) -> StoredSnapshot:
    if not session.node.has_lease(session.state.now_ms()):
        session.node.reload()
    return session.node.schema


def _next(session: SessionClient, schema_id: int, table_id: int, kind: str) -> int:
    return (Meta(session.node.storage.snapshot()).counter(kind, schema_id, table_id) or 0) + 1


def _ids(session: SessionClient, table: TableVersion) -> NextIds:
    stored, schema_id = table.stored, table.schema_id
    kind = "IID" if stored.auto_id_cache == _SEPARATE_IDS else "TID"
    numbered = any(column.type.flag & AUTO_INCREMENT for column in stored.cols or [])
    increment = _next(session, schema_id, stored.id, kind) if numbered else 0
    return NextIds(increment, _next(session, schema_id, stored.id, "TARID") if stored.auto_random_bits else 0)


def _processes(session: SessionClient) -> Iterator[tuple[SqlValue, ...]]:
    listed = [peer for peer in session.peers.sessions() if isinstance(peer, type(session))] if session.peers else []
    for peer in listed if session in listed else [*listed, session]:
        command = "Query" if peer.running else "Sleep"
        state = "autocommit" if peer.state.variables["autocommit"] else ""
        head = (peer.connection_id, peer.state.user.partition("@")[0], "127.0.0.1", peer.state.database or None)
        yield (*head, command, 0, state, peer.running or None)


_Answer: TypeAlias = ResultSet | Outcome
_Rule: TypeAlias = Callable[[SessionClient, Cursor, Context], _Answer | None]
"""Outcome of a command; None if it returns nothing."""
_HISTORY: Final = 10
_JOBS: Final = (
    "JOB_ID# DB_NAME TABLE_NAME JOB_TYPE SCHEMA_STATE SCHEMA_ID# TABLE_ID# ROW_COUNT# CREATE_TIME@ START_TIME@ "
    "END_TIME@ STATE COMMENTS"
)
_COMMAND_IGNORED: Final = frozenset(
    {"LOCK", "UNLOCK", "FLUSH", "ANALYZE", "GRANT", "REVOKE", "CREATE", "ALTER", "DROP", "RENAME"}
    | {"OPTIMIZE", "SPLIT", "CHECKSUM", "BACKUP", "RESTORE"}
)


def run_command(session: SessionClient, command: Command, context: Context) -> _Answer:
    """Run a command and return its answer. Raises SqlError, SqlRefused."""
    if command.kind in _COMMAND_IGNORED:
        if command.kind != "UNLOCK":  # commits only what LOCK TABLES began, and that is nothing
            session.transaction.commit()
        return Outcome()
    rule = _RULES.get(command.kind)
    cursor = Cursor(command.text, session.state.sql_mode - {"ANSI_QUOTES"}, reserved=RESERVED)
    if rule is None:
        raise cursor.error("not a statement that is known here")
    if rule is not _set:
        cursor.next()
    answer = rule(session, cursor, context)
    return Outcome() if answer is None else answer


# --- transactions ---


def _begin(session: SessionClient, cursor: Cursor, _context: Context) -> None:
    cursor.accept("PESSIMISTIC", "OPTIMISTIC")
    _end(cursor)
    session.transaction.begin(read_only=bool(session.state.variables["transaction_read_only"]))


def _start(session: SessionClient, cursor: Cursor, _context: Context) -> None:
    cursor.expect("TRANSACTION")
    read_only = bool(session.state.variables["transaction_read_only"])
    while not cursor.done():
        if cursor.accept("WITH CONSISTENT SNAPSHOT", "READ WRITE", "WITH CAUSAL CONSISTENCY ONLY"):
            pass
        elif cursor.accept("READ ONLY"):
            read_only = True
        else:
            raise cursor.error("unexpected text")
        cursor.sign(",")
    session.transaction.begin(read_only=read_only)


def _commit(session: SessionClient, _cursor: Cursor, _context: Context) -> None:
    session.transaction.commit()


def _rollback(session: SessionClient, cursor: Cursor, _context: Context) -> None:
    cursor.accept("WORK")
    if cursor.accept("TO"):
        cursor.accept("SAVEPOINT")
        session.transaction.rollback_to(cursor.name("a savepoint"))
    else:
        session.transaction.rollback()


def _release(session: SessionClient, cursor: Cursor, _context: Context) -> None:
    cursor.expect("SAVEPOINT")
    session.transaction.release(cursor.name("a savepoint"))


def _end(cursor: Cursor) -> None:
    if not cursor.done():
        raise cursor.error("unexpected text")


# --- settings ---


def _set(session: SessionClient, cursor: Cursor, context: Context) -> None:
    state = session.state
    was = state.variables["autocommit"]

    def snapshot(value: SqlValue) -> str:
        moment = None if value in ("", None) else session.moment(value)
        session.snapshot_ts = None if moment is None else session.node.storage.snapshot(moment).ts
        return "" if moment is None else str(value)

    def external(value: SqlValue) -> SqlValue:
        text = str(value)
        if all_digits(text) and int(text) > session.node.storage.oracle.newest:
            raise SqlRefused(1105, "external timestamp is greater than global tso", "HY000")
        return value

    hooks = {(SetScope.SESSION, "tidb_snapshot"): snapshot, (SetScope.GLOBAL, EXTERNAL_TS): external}
    assigns = read_set(cursor.text, state.sql_mode - {"ANSI_QUOTES"})
    apply(assigns, state, session.evaluate, context.warn, hooks)
    state.sql_mode, state.zone  # noqa: B018  refuse what they cannot read
    if state.variables["autocommit"] and not was:
        session.transaction.commit()


# --- looking and acting ---


def _describe(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    if cursor.accept("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "ANALYZE", "FORMAT"):
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support 'EXPLAIN of statements'", "42000")
    return describe(cursor, session.view(context))


def _kill(session: SessionClient, cursor: Cursor, _context: Context) -> None:
    cursor.accept("TIDB")
    query_only = cursor.accept("CONNECTION", "QUERY") == "QUERY"
    number = cursor.integer("a connection's number")
    if session.peers is None:
        raise SqlRefused(1094, f"Unknown thread id: {number}", "HY000")
    session.peers.kill(number, query_only=query_only)


# --- ADMIN ---


def _admin(session: SessionClient, cursor: Cursor, context: Context) -> _Answer | None:
    for words, rule in _ADMIN.items():
        if cursor.accept(words):
            return rule(session, cursor, context)
    raise cursor.error("ADMIN of something that is not known")


def _show_jobs(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    count = cursor.integer("a number of jobs") if not (cursor.done() or cursor.looking_at("WHERE")) else _HISTORY
    condition = "TRUE"
    if cursor.accept("WHERE"):
        condition = cursor.rest()
    client = session.node.ddl_client
    jobs = [*client.jobs(), *client.history()[:count]]
    return _rows(session, context, _JOBS, [(*job_row(job, session.state.zone), "") for job in jobs], condition)


def _cancel(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    rows: list[tuple[SqlValue, ...]] = []
    for number in cursor.several(lambda inner: inner.integer("a job's number")):
        try:
            session.node.ddl_client.cancel(number)
        except SqlRefused as refused:
            rows.append((str(number), f"error: [ddl:{refused.mysql_code}]{refused.message}"))
        else:
            rows.append((str(number), "successful"))
    return _rows(session, context, "JOB_ID RESULT", rows)


def _check(session: SessionClient, cursor: Cursor, context: Context) -> None:
    view, more = session.view(context), True
    while more:
        named = cursor.qualified()
        shape = session.tools.shapes.of(view.table(named.schema or session.state.database, named.table).stored)
        faults = session.transaction.read(partial(check_table, shape=shape, context=context), passing=True)
        if faults:
            raise refusal(shape, faults[0])
        more = cursor.sign(",")


def _set_role(session: SessionClient, cursor: Cursor, role: str) -> None:
    _end(cursor)
    session.node.ddl_client.set_bdr_role(role)


def _show_role(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    _end(cursor)
    return _rows(session, context, "BDR_ROLE", [(session.node.ddl_client.bdr_role(),)])


def _rows(
    session: SessionClient, context: Context, columns: str, rows: list[tuple[SqlValue, ...]], condition: str = "TRUE"
) -> ResultSet:
    return session.view(context).choose(FixedRelation("shown", relation_columns(columns), rows), condition)


_ADMIN: Final[Mapping[str, _Rule]] = {
    "SHOW DDL JOBS": _show_jobs,
    "CANCEL DDL JOBS": _cancel,
    "CHECK TABLE": _check,
    "SET BDR ROLE": lambda session, cursor, _: _set_role(
        session, cursor, cursor.expect(PRIMARY.upper(), SECONDARY.upper()).lower()
    ),
    "UNSET BDR ROLE": lambda session, cursor, _: _set_role(session, cursor, ""),
    "SHOW BDR ROLE": _show_role,
}
_RULES: Final[Mapping[str, _Rule]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
    "SAVEPOINT": lambda session, cursor, _: session.transaction.savepoint(cursor.name("a savepoint")),
    "RELEASE": _release,
    "SET": _set,
    "USE": lambda session, cursor, _: session.use(cursor.name("a database")),
    "SHOW": lambda session, cursor, context: show(cursor, session.view(context)),
    "DESC": _describe,
    "DESCRIBE": _describe,
    "EXPLAIN": _describe,
    "ADMIN": _admin,
    "KILL": _kill,
}
