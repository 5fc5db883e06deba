"""Single events that a changefeed leaves out, of the tables that it carries (event_rule.py: what a file says).

    DDL ── sent?  no: left out downstream, but the schema follows it, so later rows are read right
    row ── by its event ── by its values ──► kept        before updates are split            (row_filter.py)

    RENAME              judged by the name that it takes away
    DDL of a database   by whether the matcher could take a table of it
    ignore-txn-start-ts whole transactions, rows and DDLs, where the source tells their start

Expressions are SQL of one table; `Expressions` compiles them, once for each version of a table.  What happens
downstream behind a DDL that was left out is the sink's: a lake, feed/skipped_ddl.py.

Source: TiCDC documentation, "Event Filter Rules"; tiflow, pkg/filter.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from tidegate.feed.ddl_event import action_of_text
from tidegate.feed.event_kind import DDL_EVENTS, ROW_EVENTS, single_events
from tidegate.feed.event_rule import EventRule, Expressions, Test, event_rules
from tidegate.feed.filter import TableFilter
from tidegate.feed.mount import Mounted
from tidegate.feed.row_filter import MessageFilter, RowFilter, RowRule
from tidegate.model.errors import FilterRuleInvalid
from tidegate.model.event import Ddl, RowChange
from tidegate.model.feed_errors import DdlEventUnknown
from tidegate.model.mysql import ActionType
from tidegate.model.table import TableName
from tidegate.schema.stored.snapshot import TableVersion

__all__ = ["EventFilter", "EventRule", "Expressions", "RowFilter", "Test", "event_rules"]

_UNKNOWN: Final = -1
_EVERY_DDL: Final = frozenset[int]().union(*DDL_EVENTS.values())


class _Parsed(NamedTuple):
    """A rule ready to be asked."""

    takes: Callable[[str, str], bool]
    takes_schema: Callable[[str], bool]
    rows: frozenset[type[RowChange]]
    actions: frozenset[int]
    sql: tuple[re.Pattern[str], ...]
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
        name = previous if renamed and previous is not None else TableName(ddl.schema, ddl.table)
        rules = [rule for rule in self._rules if (rule.takes(*name) if name.table else rule.takes_schema(name.schema))]
        if any(action in rule.actions or any(found.search(ddl.query) for found in rule.sql) for rule in rules):
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


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise FilterRuleInvalid(f"filter.event-filters: ignore-sql {text!r} is no expression: {error}") from error


def _of_rows(rule: _Parsed) -> bool:
    return bool(rule.rows or rule.rule.expressions or rule.rule.ignore_update_only_columns)
