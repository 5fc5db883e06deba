"""Event filters: single DDLs and rows that a changefeed excludes from the tables that it replicates.

    [[filter.event-filters]]
    matcher = ["shop.orders_*"]                       table filter rules; every filter that matches a table applies
    ignore-event = ["delete", "drop table"]           EVENTS; "all dml", "all ddl", "alter table" mean several
    ignore-sql = ["^drop", "add column"]              DDLs whose text contains a match, in any case
    ignore-insert-value-expr = "price < 1"            rows for which the expression is the integer 1:
    ignore-update-old-value-expr = "state = 'new'"        of an UPDATE the old row
    ignore-update-new-value-expr = "state = 'gone'"       or the new one
    ignore-delete-value-expr = "name = 'x'"
    ignore-update-only-columns = ["seen_at"]          UPDATEs that change nothing else, and no key

A filtered DDL is not sent, but the schema follows it, so that later rows are read correctly.  It is matched by

    RENAME              the old name
    EXCHANGE PARTITION  the partitioned table
    DDL of a database   whether the matcher could match a table of it

and by its action.  Canal-JSON has no action, and its DDL type is less precise than the statement, so the action is
derived from the text (`acting`): one change of an ALTER TABLE has its own action, several are MULTI_SCHEMA_CHANGE.

Rows are tested before updates are split: by kind, by changed columns, then by expression.  Tests are compiled once per
table version and kind of row (RowFilter, rows of a change log), or per layout and kind of row (MessageFilter: texts
have no collation there, ENUM and SET no members).  ignore-txn-start-ts filters out whole transactions if the source
has start_ts.

Source: TiCDC documentation, "Event Filter Rules"; tiflow, pkg/filter (ddlWhiteListMap, alterTableSubType,
ddlToEventType) and pkg/binlog-filter; TiDB pkg/ddl.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET

from tidegate.codec.canal_encode import QUERY, ddl_type
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.mount import Mounted
from tidegate.model.errors import (
    ConfigError,
    DdlEventUnknown,
    EventTypeInvalid,
    FilterRuleInvalid,
    InputError,
    RowFilterFailed,
    SchemaError,
)
from tidegate.model.event import Ddl, Delete, Field, Insert, RowChange, Update, Values, images
from tidegate.model.mysql import ActionType, ColumnFlag
from tidegate.model.name import lowered
from tidegate.model.pattern import RegularExpression, expression
from tidegate.model.table import TableName
from tidegate.schema import statement
from tidegate.schema.ddl_tables import subject_table
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.statement import DropForeignKey, RemoveTtl, TableOptions
from tidegate.schema.stored.snapshot import TableVersion

Test: TypeAlias = Callable[[Values], bool]
"""Returns True for an image of a row that is left out."""


class Expressions(Protocol):
    """A parser of value expressions; pickled into tasks."""

    def check(self, text: str) -> None:
        """Raise ExpressionParseFailed for a text that is not an expression."""

    def test(self, text: str, version: TableVersion) -> Test:
        """Return the test of an image of this table's rows. Raises ExpressionParseFailed, ExpressionColumnNotFound."""

    def test_of_fields(self, text: str, name: TableName, fields: tuple[Field, ...]) -> Test:
        """Return the test of an image of a message with these fields. Raises as `test` does."""


def event_rules(entries: object) -> tuple[EventRule, ...]:
    """Return the rules in the value of `filter.event-filters`; ConfigError for another shape or an unknown key."""
    try:
        return msgspec.convert(entries, tuple[EventRule, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"filter.event-filters: {error}") from error


_KEYS: Final = ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY
_MOST: Final = 10_000
"""Layouts of messages to remember at most, since a decoder that does not share them between rows would fill memory."""


class RowRule(NamedTuple):
    """A rule that filters rows out; it filters out all rows of the operations `kinds`."""

    kinds: frozenset[type[RowChange]]
    rule: EventRule


Compile = Callable[[str], Test]


class _Tests(NamedTuple):
    """The tests for rows of one kind and table: pairs of a test of the old image and one of the new, and for each rule
    with ignore-update-only-columns the indexes of the columns that must not change."""

    every: bool
    pairs: tuple[tuple[Test | None, Test | None], ...]
    unmoved: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, kind: type[RowChange], rules: Sequence[RowRule], fields: tuple[Field, ...], compiled: Compile
    ) -> "_Tests":
        if any(kind in rule.kinds for rule in rules):
            return cls(every=True, pairs=(), unmoved=())
        texts = [_texts(kind, rule.rule) for rule in rules]
        pairs = [tuple(compiled(text) if text else None for text in pair) for pair in texts if any(pair)]
        unmoved = [_unmoved(rule.rule.ignore_update_only_columns, fields) for rule in rules] if kind is Update else []
        return cls(
            every=False,
            pairs=tuple((old, new) for old, new in pairs),
            unmoved=tuple(indexes for indexes in unmoved if indexes is not None),
        )

    def drop(self, row: RowChange) -> bool:
        if self.every:
            return True
        before, after = images(row)
        if before is not None and after is not None:
            for indexes in self.unmoved:
                if all(before[index] == after[index] for index in indexes):
                    return True
        return any(
            (old is not None and before is not None and old(before))
            or (new is not None and after is not None and new(after))
            for old, new in self.pairs
        )


class RowFilter:
    """Filters mounted rows."""

    def __init__(
        self,
        rules: Callable[[TableName], Sequence[RowRule]],
        compiled: Callable[[Mounted], Compile],
        *,
        since: int = 0,
    ) -> None:
        self._rules, self._compiled, self._since = rules, compiled, since
        self._tests: dict[tuple[int, type[RowChange]], tuple[object, _Tests | None]] = {}

    def kept(self, rows: Sequence[Mounted]) -> Sequence[Mounted]:
        """Return the rows of a transaction that pass the filter. Raises RowFilterFailed for a row that a rule cannot
        evaluate."""
        commit_ts = rows[0].row.commit_ts or 0
        if commit_ts <= self._since:
            return rows
        try:
            return [row for row in rows if not self._drops(row)]
        except RowFilterFailed as error:
            failure = RowFilterFailed(f"{error} at commit_ts {commit_ts}")
            raise failure.at(table=error.where.table, commit_ts=commit_ts) from error

    def _drops(self, mounted: Mounted) -> bool:
        cache_key = id(mounted.table), type(mounted.row)
        cached = self._tests.get(cache_key)
        if cached is None:
            rules = self._rules(mounted.table.info.name)
            tests = _Tests.of(cache_key[1], rules, mounted.table.fields, self._compiled(mounted)) if rules else None
            cached = self._tests[cache_key] = mounted.table, tests
        return cached[1] is not None and cached[1].drop(mounted.row)


class MessageFilter:
    """Filters rows of messages."""

    def __init__(
        self, rules: Callable[[TableName], Sequence[RowRule]], compiled: Callable[[RowChange], Compile]
    ) -> None:
        self._rules, self._compiled = rules, compiled
        self._judged: dict[tuple[str, str], Sequence[RowRule]] = {}
        self._tests: dict[tuple[object, ...], tuple[object, _Tests]] = {}

    def judges(self, schema: str, table: str) -> bool:
        """Return whether rows of the table must be filtered one by one."""
        return bool(self._of(schema, table))

    def kept(self, rows: Iterable[RowChange]) -> list[RowChange]:
        """Return the rows that pass the filter. Raises as `drops` does."""
        return [row for row in rows if not self.drops(row)]

    def drops(self, row: RowChange) -> bool:
        """Return whether the row is filtered out. Raises the rule's error for such a row, with table and commit_ts."""
        rules = self._of(row.schema, row.table)
        if not rules:
            return False
        try:
            return self._tests_of(row, rules).drop(row)
        except (InputError, SchemaError) as error:
            where = "" if isinstance(error, RowFilterFailed) else f" for a row of {row.schema}.{row.table}"
            located = type(error)(f"{error}{where} at commit_ts {row.commit_ts}")
            raise located.at(table=f"{row.schema}.{row.table}", commit_ts=row.commit_ts) from error

    def _of(self, schema: str, table: str) -> Sequence[RowRule]:
        rules = self._judged.get((schema, table))
        if rules is None:
            rules = self._judged[schema, table] = self._rules(TableName(schema, table))
        return rules

    def _tests_of(self, row: RowChange, rules: Sequence[RowRule]) -> _Tests:
        cache_key = row.schema, row.table, id(row.fields), type(row)
        cached = self._tests.get(cache_key)
        if cached is None:
            if len(self._tests) >= _MOST:
                self._tests.clear()
            tests = _Tests.of(type(row), rules, row.fields, self._compiled(row))
            cached = self._tests[cache_key] = row.fields, tests
        return cached[1]


def _texts(kind: type[RowChange], rule: EventRule) -> tuple[str, str]:
    if kind is Insert:
        return "", rule.ignore_insert_value_expr
    if kind is Delete:
        return rule.ignore_delete_value_expr, ""
    return rule.ignore_update_old_value_expr, rule.ignore_update_new_value_expr


def _unmoved(names: Sequence[str], fields: tuple[Field, ...]) -> tuple[int, ...] | None:
    """The indexes of columns that an UPDATE must leave alone to be filtered out; None for a rule that keeps all."""
    folded = {lowered(name) for name in names}
    named = [index for index, field in enumerate(fields) if lowered(field.name) in folded]
    free = {index for index in named if not fields[index].handle and not (fields[index].flag or 0) & _KEYS}
    return tuple(index for index in range(len(fields)) if index not in free) if named else None


_A: Final = ActionType
_ONLY: Final = {
    "CREATE": _A.CREATE_TABLE,
    "ERASE": _A.DROP_TABLE,
    "TRUNCATE": _A.TRUNCATE_TABLE,
}
"""Canal's words for one action."""
_ONE_OR_SEVERAL: Final = {
    _A.ADD_FOREIGN_KEY,
    _A.ADD_INDEX,
    _A.ADD_PRIMARY_KEY,
    _A.DROP_INDEX,
    _A.DROP_FOREIGN_KEY,
}
_EMPTIED: Final = re.compile(r"ALTER TABLE `(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)? ?")
"""Canal's text of an ALTER TABLE that sets TTL_ENABLE alone."""
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
    statement.AddColumns: _A.ADD_COLUMN,
    statement.DropColumn: _A.DROP_COLUMN,
    statement.ModifyColumn: _A.MODIFY_COLUMN,
    statement.RenameColumn: _A.MODIFY_COLUMN,
    statement.SetDefault: _A.SET_DEFAULT_VALUE,
    statement.AddForeignKey: _A.ADD_FOREIGN_KEY,
    statement.DropIndex: _A.DROP_INDEX,
    statement.DropPrimaryKey: _A.DROP_PRIMARY_KEY,
    statement.RenameIndex: _A.RENAME_INDEX,
    statement.SetVisibility: _A.ALTER_INDEX_VISIBILITY,
    statement.RenameTo: _A.RENAME_TABLE,
    statement.ConvertCharset: _A.MODIFY_TABLE_CHARSET,
    statement.AddPartitions: _A.ADD_TABLE_PARTITION,
    statement.DropPartitions: _A.DROP_TABLE_PARTITION,
    statement.TruncatePartitions: _A.TRUNCATE_TABLE_PARTITION,
    statement.ReorganizePartitions: _A.REORGANIZE_PARTITION,
    statement.CoalescePartitions: _A.REORGANIZE_PARTITION,
    statement.ExchangePartition: _A.EXCHANGE_TABLE_PARTITION,
    statement.RemovePartitioning: _A.REMOVE_PARTITIONING,
    statement.PartitionBy: _A.ALTER_TABLE_PARTITIONING,
}


def acting(ddl: Ddl) -> Ddl:
    """Return the DDL with its action, which comes with it or follows from its text and canal's type; None if
    unknown."""
    if ddl.type is not None:
        return ddl
    action = action_of_text(ddl.query, ddl.schema)
    return msgspec.structs.replace(ddl, type=_in_words(action, ddl) if ddl.canal_type else action)


def _in_words(action: int | None, ddl: Ddl) -> int | None:
    """The action of a DDL text with canal's type, which distinguishes one change from several."""
    if ddl.canal_type in _ONLY or (action is not None and ddl_type(action) == ddl.canal_type):
        return _ONLY.get(ddl.canal_type, action)
    if action is None and ddl.canal_type == QUERY and _EMPTIED.fullmatch(ddl.query):
        return _A.ALTER_TTL_INFO
    if action in _ONE_OR_SEVERAL and ddl.canal_type == ddl_type(_A.MULTI_SCHEMA_CHANGE):
        return _A.MULTI_SCHEMA_CHANGE
    return None


def action_of_text(query: str, schema: str) -> int | None:
    """Return the action of a DDL's text; None if it is ambiguous."""
    try:
        parsed = parse_ddl(query, schema)
    except InputError:
        return None
    if len(parsed) != 1:
        return None
    (statement_node,) = parsed
    if isinstance(statement_node, statement.RenameTables) and len(statement_node.pairs) > 1:
        return _A.RENAME_TABLES
    if not isinstance(statement_node, statement.AlterTable):
        return _STATEMENTS.get(type(statement_node))
    if len(statement_node.specs) != 1:
        return _A.MULTI_SCHEMA_CHANGE if statement_node.specs else None
    match change := statement_node.specs[0]:
        case statement.AddColumns(columns, indexes) if len(columns) > 1 or indexes:
            return _A.MULTI_SCHEMA_CHANGE
        case statement.AddPartitions(count=count) if count:
            return _A.REORGANIZE_PARTITION
        case statement.AddIndex(index):
            return _A.ADD_PRIMARY_KEY if index.primary else _A.ADD_INDEX
        case TableOptions():
            return _option(change)
        case statement.NoChange(_, detail):
            kinds = {DropForeignKey: _A.DROP_FOREIGN_KEY, RemoveTtl: _A.ALTER_TTL_REMOVE}
            return kinds.get(type(detail), _A.REORGANIZE_PARTITION if change.what == "REORGANIZE PARTITION" else None)
        case _:
            return _SPECS.get(type(change))


def _option(change: TableOptions) -> int | None:
    """TiDB makes one job of each option; for several in one statement the text does not identify the job."""
    detail = change.detail
    actions = [
        action
        for action, is_set in (
            (_A.MODIFY_TABLE_COMMENT, change.comment is not None),
            (_A.MODIFY_TABLE_CHARSET, change.charset is not None or detail.collate is not None),
            (_A.REBASE_AUTO_ID, detail.auto_increment is not None),
            (_A.SHARD_ROW_ID, detail.shard_row_id_bits is not None),
            (_A.ALTER_TTL_INFO, any((detail.ttl, detail.ttl_enable is not None, detail.ttl_job_interval))),
        )
        if is_set
    ]
    return actions[0] if len(actions) == 1 else None


ROW_EVENTS: Final[Mapping[str, type[RowChange]]] = {"insert": Insert, "update": Update, "delete": Delete}
DDL_EVENTS: Final[Mapping[str, frozenset[int]]] = {
    "create database": frozenset({_A.CREATE_SCHEMA}),
    "drop database": frozenset({_A.DROP_SCHEMA}),
    "modify schema charset and collate": frozenset({_A.MODIFY_SCHEMA_CHARSET}),
    "create table": frozenset({_A.CREATE_TABLE, _A.CREATE_TABLES}),
    "drop table": frozenset({_A.DROP_TABLE}),
    "truncate table": frozenset({_A.TRUNCATE_TABLE}),
    "rename table": frozenset({_A.RENAME_TABLE, _A.RENAME_TABLES}),
    "recover table": frozenset({_A.RECOVER_TABLE}),
    "modify table comment": frozenset({_A.MODIFY_TABLE_COMMENT}),
    "modify table charset and collate": frozenset({_A.MODIFY_TABLE_CHARSET}),
    "create view": frozenset({_A.CREATE_VIEW}),
    "drop view": frozenset({_A.DROP_VIEW}),
    "add table partition": frozenset({_A.ADD_TABLE_PARTITION}),
    "drop table partition": frozenset({_A.DROP_TABLE_PARTITION}),
    "truncate table partition": frozenset({_A.TRUNCATE_TABLE_PARTITION}),
    "exchange table partition": frozenset({_A.EXCHANGE_TABLE_PARTITION}),
    "reorganize table partition": frozenset({_A.REORGANIZE_PARTITION}),
    "alter table partitioning": frozenset({_A.ALTER_TABLE_PARTITIONING}),
    "remove table partitioning": frozenset({_A.REMOVE_PARTITIONING}),
    "add column": frozenset({_A.ADD_COLUMN, 37}),
    "drop column": frozenset({_A.DROP_COLUMN, 38}),
    "modify column": frozenset({_A.MODIFY_COLUMN}),
    "set default value": frozenset({_A.SET_DEFAULT_VALUE}),
    "rebase auto id": frozenset({_A.REBASE_AUTO_ID}),
    "add primary key": frozenset({_A.ADD_PRIMARY_KEY}),
    "drop primary key": frozenset({_A.DROP_PRIMARY_KEY}),
    "create index": frozenset({_A.ADD_INDEX}),
    "drop index": frozenset({_A.DROP_INDEX}),
    "rename index": frozenset({_A.RENAME_INDEX}),
    "alter index visibility": frozenset({_A.ALTER_INDEX_VISIBILITY}),
    "alter ttl info": frozenset({_A.ALTER_TTL_INFO}),
    "alter ttl remove": frozenset({_A.ALTER_TTL_REMOVE}),
    "multi schema change": frozenset({_A.MULTI_SCHEMA_CHANGE}),
    "add foreign key": frozenset({_A.ADD_FOREIGN_KEY}),
    "drop foreign key": frozenset({_A.DROP_FOREIGN_KEY}),
}
"""Each DDL event and its actions; 37 and 38 are ADD and DROP COLUMN of several columns, before TiDB 6.2."""
_NO_ALTER: Final = frozenset(
    {"create database", "drop database", "modify schema charset and collate", "create table", "drop table"}
    | {"truncate table", "recover table", "create view", "drop view", "add foreign key", "drop foreign key"}
)
"""Actions that the event type "alter table" does not cover."""
_SEVERAL: Final[Mapping[str, frozenset[str]]] = {
    "all dml": frozenset(ROW_EVENTS),
    "all ddl": frozenset(DDL_EVENTS),
    "alter table": frozenset(DDL_EVENTS.keys() - _NO_ALTER),
    "create schema": frozenset({"create database"}),
    "drop schema": frozenset({"drop database"}),
}
EVENTS: Final = (*_SEVERAL, *ROW_EVENTS, *DDL_EVENTS)
"""Every word of ignore-event."""


def single_events(word: str) -> frozenset[str]:
    """Return the events that a word of ignore-event covers. Raises EventTypeInvalid for an unknown word."""
    if word not in EVENTS:
        near = difflib.get_close_matches(word.lower(), EVENTS, n=1, cutoff=0.0)
        raise EventTypeInvalid(
            f"filter.event-filters: ignore-event {word!r} is not an event; did you mean {near[0]!r}?"
        )
    return _SEVERAL.get(word, frozenset({word}))


_UNKNOWN: Final = -1
_EVERY_DDL: Final = frozenset[int]().union(*DDL_EVENTS.values())


class _Parsed(NamedTuple):
    takes: Callable[[str, str], bool]
    takes_schema: Callable[[str], bool]
    rows: frozenset[type[RowChange]]
    actions: frozenset[int]
    sql: tuple[RegularExpression, ...]
    rule: EventRule


@dataclass(frozen=True)
class EventFilter:
    """The event filters of a changefeed. Build it with `of`; without rules it leaves nothing out."""

    start_ts: frozenset[int] = frozenset()
    """Start timestamps of transactions to filter out."""
    _rules: tuple[_Parsed, ...] = ()
    _expressions: Expressions | None = None
    since: int = 0
    """Rules keep everything with a commit_ts up to this one."""

    @classmethod
    def of(
        cls,
        rules: Sequence[EventRule],
        expressions: Expressions | None,
        *,
        start_ts: Iterable[int] = (),
        case_sensitive: bool = False,
        since: int = 0,
    ) -> "EventFilter":
        """Return the filter of these rules; without `expressions` it is for DDLs alone. Raises EventTypeInvalid,
        FilterRuleInvalid and ExpressionParseFailed."""
        parsed = tuple(_parsed(rule, case_sensitive=case_sensitive) for rule in rules)
        if expressions is not None:
            for text in (text for rule in rules for text in rule.expressions):
                expressions.check(text)
        return cls(frozenset(start_ts), parsed, expressions, since)

    def drops_ddl(self, ddl: Ddl, previous: TableName | None, start_ts: int) -> bool:
        """Return whether a DDL is filtered out; `previous` is its table's earlier name. Raises DdlEventUnknown for a
        DDL without an action whose text does not identify an event of a rule."""
        if start_ts in self.start_ts:
            return True
        if (ddl.commit_ts or 0) <= self.since:
            return False
        action = ddl.type if ddl.type is not None or not self._rules else action_of_text(ddl.query, ddl.schema)
        renamed = previous is not None and action in (ActionType.RENAME_TABLE, ActionType.RENAME_TABLES)
        name = previous if renamed and previous is not None else subject_table(ddl)
        rules = [rule for rule in self._rules if (rule.takes(*name) if name.table else rule.takes_schema(name.schema))]
        text = ddl.query if ddl.written is UNSET else ddl.written
        if any(action in rule.actions or any(pattern.is_in(text) for pattern in rule.sql) for rule in rules):
            return True
        actions = frozenset[int]().union(*(rule.actions for rule in rules))
        if action is None and actions and not actions >= _EVERY_DDL:
            raise DdlEventUnknown(
                f"{name} at ts {ddl.commit_ts}: neither message nor text shows which event of ignore-event this DDL "
                f"is: {ddl.query[:500]!r}. Use ignore-sql, or exclude its table from the matcher"
            )
        return action is None and bool(actions)

    def ddls(self) -> Callable[[Ddl, TableName | None], bool] | None:
        """`drops_ddl` for DDLs of transactions whose start is not known; None if no rule concerns DDLs."""
        if not any(rule.actions or rule.sql for rule in self._rules):
            return None
        return partial(self.drops_ddl, start_ts=_UNKNOWN)

    def rows(self, tables: Iterable[TableName]) -> RowFilter | None:
        """Return the filter of mounted rows of these tables, for one task; None if no rule applies to them."""
        if not any(self._row_rules(name) for name in tables):
            return None
        return RowFilter(
            self._row_rules,
            lambda row: lambda text: self._expressions_of_rows().test(text, row.table.version),
            since=self.since,
        )

    def messages(self) -> MessageFilter | None:
        """Return the filter of rows in messages, for one task; None if no rule applies to rows."""
        if not any(map(_of_rows, self._rules)):
            return None
        return MessageFilter(
            self._row_rules,
            lambda row: (
                lambda text: self._expressions_of_rows().test_of_fields(
                    text, TableName(row.schema, row.table), row.fields
                )
            ),
        )

    def verify(self, tables: Iterable[TableVersion]) -> None:
        """Raise ExpressionColumnNotFound and ExpressionParseFailed for expressions that do not fit a table."""
        for version in tables:
            for rule in self.matching(TableName(version.schema, version.stored.name.original)):
                for text in rule.rule.expressions:
                    self._expressions_of_rows().test(text, version)

    def matching(self, name: TableName) -> Iterator[_Parsed]:
        """Return the rules whose matcher matches a table."""
        return (rule for rule in self._rules if rule.takes(*name))

    def _row_rules(self, name: TableName) -> tuple[RowRule, ...]:
        return tuple(RowRule(rule.rows, rule.rule) for rule in self.matching(name) if _of_rows(rule))

    def _expressions_of_rows(self) -> Expressions:
        assert self._expressions is not None, "a filter for DDLs alone"
        return self._expressions


def _parsed(rule: EventRule, *, case_sensitive: bool) -> _Parsed:
    tables = TableFilter.parse(rule.matcher, case_sensitive=case_sensitive) if rule.matcher else None
    words = [word for each in rule.ignore_event for word in single_events(each)]
    sql = []
    for text in rule.ignore_sql:
        try:
            sql.append(expression(text, "i"))
        except InputError as error:
            what = f"filter.event-filters: ignore-sql {text!r} is not a Go regular expression (RE2): {error}"
            raise FilterRuleInvalid(what) from error
    return _Parsed(
        takes=(lambda _schema, _table: False) if tables is None else tables.matches,
        takes_schema=(lambda _schema: False) if tables is None else tables.matches_schema,
        rows=frozenset(ROW_EVENTS[word] for word in words if word in ROW_EVENTS),
        actions=frozenset(action for word in words for action in DDL_EVENTS.get(word, ())),
        sql=tuple(sql),
        rule=rule,
    )


def _of_rows(rule: _Parsed) -> bool:
    return bool(rule.rows or rule.rule.expressions or rule.rule.ignore_update_only_columns)
