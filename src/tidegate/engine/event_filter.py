"""Single events that a changefeed leaves out, of the tables that it carries (event_rule.py: what a file says).

    DDL ── sent?  no: left out downstream, but the schema follows it, so later rows are read right
    row ── by its event ── by its values ──► kept        before updates are split            (row_filter.py)

    RENAME              judged by the name that it takes away
    EXCHANGE PARTITION  by the partitioned table
    DDL of a database   by whether the matcher could take a table of it
    ignore-txn-start-ts whole transactions, rows and DDLs, where the source tells their start

Expressions are SQL of one table; `Expressions` compiles them, once for each version of a table.  What happens
downstream behind a DDL that was left out is the sink's: a lake, engine/skipped_ddl.py.

Source: TiCDC documentation, "Event Filter Rules"; tiflow, pkg/filter.

The words of ignore-event: kinds of rows and of DDLs, as TiCDC names them.

    insert update delete          a row change                 all dml      all three
    create table .. add column    a DDL, by its ActionType     all ddl      every one
                                                               alter table  what ALTER TABLE does to a table that stays

Source: tiflow, pkg/filter (ddlWhiteListMap, alterTableSubType) and pkg/binlog-filter.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from msgspec import UNSET

from tidegate.engine.ddl_event import action_of_text
from tidegate.engine.event_rule import EventRule, Expressions, Test, event_rules
from tidegate.engine.filter import TableFilter
from tidegate.engine.mount import Mounted
from tidegate.engine.row_filter import MessageFilter, RowFilter, RowRule
from tidegate.model.errors import FilterRuleInvalid, InputError
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update
from tidegate.model.feed_errors import DdlEventUnknown, EventTypeInvalid
from tidegate.model.mysql import ActionType
from tidegate.model.pattern import RegularExpression, expression
from tidegate.model.table import TableName
from tidegate.schema.meant import about
from tidegate.schema.stored.snapshot import TableVersion

__all__ = ["EVENTS", "EventFilter", "EventRule", "Expressions", "RowFilter", "Test", "event_rules"]

ROW_EVENTS: Final[Mapping[str, type[RowChange]]] = {"insert": Insert, "update": Update, "delete": Delete}
_A: Final = ActionType
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
"""What "alter table" does not mean, though some of it is written so."""
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
    """Return the events that a word of ignore-event means. EventTypeInvalid for a word that is none."""
    if word not in EVENTS:
        near = difflib.get_close_matches(word.lower(), EVENTS, n=1, cutoff=0.0)
        raise EventTypeInvalid(f"filter.event-filters: ignore-event {word!r} is no event; did you mean {near[0]!r}?")
    return _SEVERAL.get(word, frozenset({word}))


_UNKNOWN: Final = -1
_EVERY_DDL: Final = frozenset[int]().union(*DDL_EVENTS.values())


class _Parsed(NamedTuple):
    """A rule ready to be asked."""

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
    """Transactions that are left out."""
    _rules: tuple[_Parsed, ...] = ()
    _expressions: Expressions | None = None
    since: int = 0
    """Rules leave out nothing with a commit_ts up to here."""

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
        """Return the filter of these rules. EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed.

        Without `expressions` it is for DDLs alone."""
        parsed = tuple(_parsed(rule, case_sensitive=case_sensitive) for rule in rules)
        if expressions is not None:
            for text in (text for rule in rules for text in rule.expressions):
                expressions.check(text)
        return cls(frozenset(start_ts), parsed, expressions, since)

    def drops_ddl(self, ddl: Ddl, previous: TableName | None, start_ts: int) -> bool:
        """Return whether a DDL is left out; `previous` is the name that its table had before.

        DdlEventUnknown where it came without its action and its text does not tell which event of a rule it is."""
        if start_ts in self.start_ts:
            return True
        if (ddl.commit_ts or 0) <= self.since:
            return False
        action = ddl.type if ddl.type is not None or not self._rules else action_of_text(ddl.query, ddl.schema)
        renamed = previous is not None and action in (ActionType.RENAME_TABLE, ActionType.RENAME_TABLES)
        name = previous if renamed and previous is not None else about(ddl)
        rules = [rule for rule in self._rules if (rule.takes(*name) if name.table else rule.takes_schema(name.schema))]
        text = ddl.query if ddl.written is UNSET else ddl.written
        if any(action in rule.actions or any(found.is_in(text) for found in rule.sql) for rule in rules):
            return True
        actions = frozenset[int]().union(*(rule.actions for rule in rules))
        if action is None and actions and not actions >= _EVERY_DDL:
            raise DdlEventUnknown(
                f"{name} at ts {ddl.commit_ts}: neither message nor text tell which event of ignore-event this DDL is: "
                f"{ddl.query[:500]!r}. Name it by ignore-sql, or leave its table out of the matcher"
            )
        return action is None and bool(actions)

    def ddls(self) -> Callable[[Ddl, TableName | None], bool] | None:
        """`drops_ddl` for DDLs of transactions whose start is not known; None when no rule speaks of any."""
        return self._drops_told if any(rule.actions or rule.sql for rule in self._rules) else None

    def _drops_told(self, ddl: Ddl, previous: TableName | None) -> bool:
        return self.drops_ddl(ddl, previous, _UNKNOWN)

    def rows(self, tables: Iterable[TableName]) -> RowFilter | None:
        """Return what leaves mounted rows of these tables out, for one task; None when no rule speaks of any."""
        if not any(self._row_rules(name) for name in tables):
            return None
        return RowFilter(self._row_rules, lambda row: partial(self._compiled, row), since=self.since)

    def messages(self) -> MessageFilter | None:
        """Return what leaves rows of messages out, for one task; None when no rule speaks of rows."""
        if not any(map(_of_rows, self._rules)):
            return None
        return MessageFilter(self._row_rules, lambda row: partial(self._compiled_of_fields, row))

    def verify(self, tables: Iterable[TableVersion]) -> None:
        """Raise ExpressionColumnNotFound and ExpressionParseFailed for expressions that do not fit a table."""
        for version in tables:
            for rule in self.matching(TableName(version.schema, version.stored.name.original)):
                for text in rule.rule.expressions:
                    self._made().test(text, version)

    def matching(self, name: TableName) -> Iterator[_Parsed]:
        """Return the rules that take a table."""
        return (rule for rule in self._rules if rule.takes(*name))

    def _row_rules(self, name: TableName) -> tuple[RowRule, ...]:
        return tuple(RowRule(rule.rows, rule.rule) for rule in self.matching(name) if _of_rows(rule))

    def _made(self) -> Expressions:
        assert self._expressions is not None, "a filter for DDLs alone"
        return self._expressions

    def _compiled(self, row: Mounted, text: str) -> Test:
        return self._made().test(text, row.table.version)

    def _compiled_of_fields(self, row: RowChange, text: str) -> Test:
        return self._made().test_of_fields(text, TableName(row.schema, row.table), row.fields)


def _parsed(rule: EventRule, *, case_sensitive: bool) -> _Parsed:
    tables = TableFilter.parse(rule.matcher, case_sensitive=case_sensitive) if rule.matcher else None
    words = [word for each in rule.ignore_event for word in single_events(each)]
    return _Parsed(
        takes=_nothing if tables is None else tables.matches,
        takes_schema=_no_schema if tables is None else tables.matches_schema,
        rows=frozenset(ROW_EVENTS[word] for word in words if word in ROW_EVENTS),
        actions=frozenset(action for word in words for action in DDL_EVENTS.get(word, ())),
        sql=tuple(map(_pattern, rule.ignore_sql)),
        rule=rule,
    )


def _nothing(_schema: str, _table: str) -> bool:
    return False


def _no_schema(_schema: str) -> bool:
    return False


def _pattern(text: str) -> RegularExpression:
    try:
        return expression(text, "i")
    except InputError as error:
        what = f"filter.event-filters: ignore-sql {text!r} is no expression of Go's syntax (RE2): {error}"
        raise FilterRuleInvalid(what) from error


def _of_rows(rule: _Parsed) -> bool:
    return bool(rule.rows or rule.rule.expressions or rule.rule.ignore_update_only_columns)
