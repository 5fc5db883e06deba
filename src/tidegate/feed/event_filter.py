"""Single events that a changefeed leaves out, of the tables that it carries.

    [filter]
    ignore-txn-start-ts = [434871063429316617]        whole transactions, rows and DDLs
    [[filter.event-filters]]
    matcher = ["shop.orders_*"]                       table filter rules; every filter that takes a table is asked
    ignore-event = ["delete", "drop table"]           EVENTS; "all dml", "all ddl", "alter table" mean several
    ignore-sql = ["^drop", "add column"]              DDLs in whose text one of them is found, whatever the case
    ignore-insert-value-expr = "price < 1"            rows for which the expression is the integer 1:
    ignore-update-old-value-expr = "state = 'new'"        of an UPDATE the old row
    ignore-update-new-value-expr = "state = 'gone'"       or the new one
    ignore-delete-value-expr = "name = 'x'"
    ignore-update-only-columns = ["seen_at"]          UPDATEs that change nothing else, and no key

    DDL ── sent?  no: left out of the topic, but the schema follows it, so later rows are read right
    row ── by its event ── by its values ──► kept        before updates are split

A RENAME is judged by the name that it takes away, a DDL of a database by whether the matcher could take a table of it.
Expressions are SQL of one table; `Expressions` compiles them, once for each version of a table.

Source: TiCDC documentation, "Event Filter Rules"; tiflow, pkg/filter.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from tidegate.feed.event_kind import DDL_EVENTS, ROW_EVENTS, single_events
from tidegate.feed.filter import TableFilter
from tidegate.feed.mount import Mounted, MountTable
from tidegate.model.errors import ConfigError, FilterRuleInvalid
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update, Values, images
from tidegate.model.feed_errors import RowFilterFailed
from tidegate.model.mysql import ActionType, ColumnFlag
from tidegate.model.table import TableName
from tidegate.schema.stored_snapshot import TableVersion

__all__ = ["EventFilter", "EventRule", "Expressions", "RowFilter", "Test", "event_rules"]

Test: TypeAlias = Callable[[Values], bool]
"""Whether an image of a row is left out."""

_KEYS: Final = ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY


class EventRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """One entry of `filter.event-filters`, as the file has it."""

    matcher: tuple[str, ...] = ()
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()
    ignore_insert_value_expr: str = ""
    ignore_update_new_value_expr: str = ""
    ignore_update_old_value_expr: str = ""
    ignore_delete_value_expr: str = ""
    ignore_update_only_columns: tuple[str, ...] = ()


class Expressions(Protocol):
    """What understands value expressions. It travels into tasks."""

    def check(self, text: str) -> None:
        """ExpressionParseFailed for a text that is no expression."""

    def test(self, text: str, version: TableVersion) -> Test:
        """The test of an image of this table's rows. ExpressionParseFailed, ExpressionColumnNotFound."""


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

    @classmethod
    def of(
        cls,
        rules: Sequence[EventRule],
        expressions: Expressions,
        *,
        start_ts: Iterable[int] = (),
        case_sensitive: bool = False,
    ) -> "EventFilter":
        """The filter of these rules. EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed."""
        parsed = tuple(_parsed(rule, case_sensitive=case_sensitive) for rule in rules)
        for rule in rules:
            for text in filter(None, _expressions(rule)):
                expressions.check(text)
        return cls(frozenset(start_ts), parsed, expressions)

    def drops_ddl(self, ddl: Ddl, previous: TableName | None, start_ts: int) -> bool:
        """Whether a DDL is left out; `previous` is the name that its table had before."""
        if start_ts in self.start_ts:
            return True
        renamed = previous is not None and ddl.type == ActionType.RENAME_TABLE
        name = previous if renamed and previous is not None else TableName(ddl.schema, ddl.table)
        return any(
            (rule.takes(*name) if name.table else rule.takes_schema(name.schema))
            and (ddl.type in rule.actions or any(pattern.search(ddl.query) for pattern in rule.sql))
            for rule in self._rules
        )

    def rows(self, tables: Iterable[TableName]) -> "RowFilter | None":
        """What leaves rows of these tables out, for one task; None when no rule speaks of any."""
        judged = any(_of_rows(rule) for name in tables for rule in self.matching(name))
        return RowFilter(self) if judged else None

    def verify(self, tables: Iterable[TableVersion]) -> None:
        """Raises ExpressionColumnNotFound and ExpressionParseFailed for expressions that do not fit a table."""
        for version in tables:
            for rule in self.matching(TableName(version.schema, version.stored.name.original)):
                for text in filter(None, _expressions(rule.rule)):
                    self.test(text, version)

    def matching(self, name: TableName) -> Iterator[_Parsed]:
        """The rules that take a table."""
        return (rule for rule in self._rules if rule.takes(*name))

    def test(self, text: str, version: TableVersion) -> Test | None:
        """The test of an expression; None for an empty text, which leaves nothing out."""
        assert self._expressions is not None
        return self._expressions.test(text, version) if text else None


class RowFilter:
    """Leaves rows out; tests are compiled once a table version."""

    def __init__(self, filters: EventFilter) -> None:
        self._filters = filters
        self._tables: dict[int, tuple[MountTable, _TableTests | None]] = {}

    def kept(self, rows: Sequence[Mounted]) -> Sequence[Mounted]:
        """The rows of a transaction that are not left out. Raises RowFilterFailed for a row that cannot be judged."""
        try:
            return [row for row in rows if not self._drops(row)]
        except RowFilterFailed as error:
            raise RowFilterFailed(f"{error} at commit_ts {rows[0].row.commit_ts}") from error

    def _drops(self, mounted: Mounted) -> bool:
        found = self._tables.get(id(mounted.table))
        if found is None:
            tests = _TableTests.of(self._filters, mounted.table)
            found = self._tables[id(mounted.table)] = mounted.table, tests
        return found[1] is not None and found[1].drop(mounted.row)


class _TableTests(NamedTuple):
    """What is asked of a table's rows: their kind, (test of the old image, of the new one), and columns by place."""

    kinds: frozenset[type[RowChange]]
    tests: Mapping[type[RowChange], tuple[tuple[Test | None, Test | None], ...]]
    unmoved: tuple[tuple[int, ...], ...]
    """For each rule with ignore-update-only-columns: the places that must not change."""

    @classmethod
    def of(cls, filters: EventFilter, table: MountTable) -> "_TableTests | None":
        """The tests of a table; None when no rule takes it."""
        rules = [rule for rule in filters.matching(table.info.name) if _of_rows(rule)]
        if not rules:
            return None
        version, tests = table.version, dict[type[RowChange], list[tuple[Test | None, Test | None]]]()
        for _, _, _, _, _, rule in rules:
            insert = None, filters.test(rule.ignore_insert_value_expr, version)
            delete = filters.test(rule.ignore_delete_value_expr, version), None
            old, new = rule.ignore_update_old_value_expr, rule.ignore_update_new_value_expr
            update = filters.test(old, version), filters.test(new, version)
            for kind, pair in ((Insert, insert), (Delete, delete), (Update, update)):
                if any(pair):
                    tests.setdefault(kind, []).append(pair)
        unmoved = (_unmoved(rule.rule.ignore_update_only_columns, table) for rule in rules)
        return cls(
            frozenset[type[RowChange]]().union(*(rule.rows for rule in rules)),
            {kind: tuple(pairs) for kind, pairs in tests.items()},
            tuple(places for places in unmoved if places is not None),
        )

    def drop(self, row: RowChange) -> bool:
        """Whether the row is left out."""
        kind = type(row)
        if kind in self.kinds:
            return True
        if isinstance(row, Update) and any(
            all(row.before[at] == row.after[at] for at in places) for places in self.unmoved
        ):
            return True
        before, after = images(row)
        return any(
            (old is not None and before is not None and old(before))
            or (new is not None and after is not None and new(after))
            for old, new in self.tests.get(kind, ())
        )


def event_rules(entries: object) -> tuple[EventRule, ...]:
    """The rules in the value of `filter.event-filters`; ConfigError for another shape or an unknown key."""
    try:
        return msgspec.convert(entries, tuple[EventRule, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"filter.event-filters: {error}") from error


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


def _expressions(rule: EventRule) -> tuple[str, ...]:
    return (
        rule.ignore_insert_value_expr,
        rule.ignore_update_new_value_expr,
        rule.ignore_update_old_value_expr,
        rule.ignore_delete_value_expr,
    )


def _of_rows(rule: _Parsed) -> bool:
    return bool(rule.rows or any(_expressions(rule.rule)) or rule.rule.ignore_update_only_columns)


def _unmoved(names: Sequence[str], table: MountTable) -> tuple[int, ...] | None:
    """The places that an UPDATE may not change to be left out; None for a rule that leaves none out."""
    folded = {name.lower() for name in names}
    free = {
        at for at, field in enumerate(table.fields) if field.name.lower() in folded and not (field.flag or 0) & _KEYS
    }
    named = any(field.name.lower() in folded for field in table.fields)
    return tuple(at for at in range(len(table.fields)) if at not in free) if named else None
