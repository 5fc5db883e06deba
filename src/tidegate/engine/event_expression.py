"""Value expressions of event filters, run by the SQL expressions of the embedded TiDB.

    "price > 10 AND name LIKE 'x%'" ──parse──► node ──compile, columns of one table version──► test(image) ──► drop?

    image of an event   (7, "12.50", 2, ..)      ──the referenced columns──►       (7, Decimal, 'new', ..)

A row is filtered out if the value is the integer 1, the result of a comparison; NULL, 0, 2, 1.0 and '1' keep it.
Numbers, times and texts compare as in MySQL, texts by their column's collation, TIMESTAMPs in the feed's time zone.
Virtual columns are not in rows, so they cannot be referenced; subqueries have nothing to read.

    columns of            name   type                      texts compare by    ENUM, SET
    the upstream's table  yes    yes                       their collation     by member or number
    a message             yes    if the message has it     utf8mb4_bin         refused if the members are unknown

Source: tiflow, pkg/filter (dmlExprFilterRule).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from sqlglot import exp

from tidegate.engine.event_filter import EventFilter, Test, event_rules
from tidegate.expr.compiler import assumed_collation, compile_scalar, condition_node, value_reader, wide_bit
from tidegate.expr.dialect import Node
from tidegate.expr.scope import Compiled, Scope, Slot
from tidegate.model.errors import (
    EncodeError,
    ExpressionColumnNotFound,
    ExpressionParseFailed,
    RowFilterFailed,
    SqlRefused,
    UpstreamError,
)
from tidegate.model.event import Field, Values
from tidegate.model.mysql import NAMED
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.mysql.conversion import zone_of
from tidegate.mysql.values import Context, SqlValue
from tidegate.schema.infer import infer_table
from tidegate.schema.stored.definition import ElementState, target_of
from tidegate.schema.stored.snapshot import TableVersion

_UNKNOWN_COLUMN: Final = 1054


@dataclass(frozen=True, slots=True)
class SqlExpressions:
    """Expressions in a SQL mode and a time zone; a value that travels into tasks."""

    time_zone: str = "UTC"
    sql_mode: frozenset[str] = frozenset()

    def check(self, text: str) -> None:
        """Raise ExpressionParseFailed for a text that is not an expression."""
        condition_node(text, self.sql_mode)

    def test(self, text: str, version: TableVersion) -> Test:
        return self._tester(text, f"{version.schema}.{version.stored.name.original}", _slots(version), UTC)

    def test_of_fields(self, text: str, name: TableName, fields: tuple[Field, ...]) -> Test:
        """Return the test of an image of a message: values of its fields, TIMESTAMPs in the time zone.

        Raises SchemaError and SqlError for fields of no known type as well."""
        slots = tuple(
            Slot(index, column.name, wide_bit(column.type), assumed_collation(column.type), name.table, name.schema)
            for index, column in enumerate(infer_table(name, fields, None, 0).columns)
        )
        return self._tester(text, str(name), slots, self._zone())

    def _zone(self) -> tzinfo:
        return UTC if self.time_zone == "UTC" else zone_of(self.time_zone)

    def _tester(self, text: str, table: str, slots: tuple[Slot, ...], clocks: tzinfo) -> Test:
        """`clocks` is the time zone of TIMESTAMPs in images."""
        node = condition_node(text, self.sql_mode)
        compiled = _compiled(node, text, table, slots)
        named = {lowered(column.name) for column in node.find_all(exp.Column)}
        used = [(slot.index, slot.type) for slot in slots if lowered(slot.name) in named]
        for slot in slots:
            if lowered(slot.name) in named and slot.type.code in NAMED and slot.type.elems is None:
                raise ExpressionParseFailed(
                    f"{text!r} for {table}: column {slot.name} is {slot.type.code.name}, and the messages do not "
                    f"contain its members; exclude such rows where the topic is written, or write it as canal-json "
                    f"with content-compatible=true, which includes them"
                )
        zone = self._zone()
        readers = [(index, value_reader(kind, clocks, zone)) for index, kind in used]
        width = max((index for index, _ in readers), default=-1) + 1

        def drops(values: Values) -> bool:
            row: list[SqlValue] = [None] * width
            try:
                for index, read in readers:
                    row[index] = read(values[index])
                value = compiled(row, Context(datetime.now(UTC), zone, self.sql_mode))
            except (UpstreamError, EncodeError) as error:
                failed = RowFilterFailed(f"expression {text!r} has no value ({error}) for a row of {table}")
                raise failed.at(table=table) from error
            return isinstance(value, int) and value == 1

        return drops


def event_filter(
    settings: Mapping[str, Any], *, case_sensitive: bool, time_zone: str = "UTC", since: int = 0
) -> EventFilter:
    """Return the event filters of a changefeed file, whose keys have their types already; events up to `since` stay.

    Raises EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed."""
    section = settings.get("filter", {})
    mode = frozenset(word.strip().upper() for word in str(settings.get("sql-mode", "")).split(","))
    return EventFilter.of(
        event_rules(section.get("event-filters", ())),
        SqlExpressions(time_zone, mode - {""}),
        start_ts=section.get("ignore-txn-start-ts", ()),
        case_sensitive=case_sensitive,
        since=since,
    )


def _slots(version: TableVersion) -> tuple[Slot, ...]:
    carried = [
        column
        for column in version.stored.cols or []
        if not column.hidden and (column.generated_stored or not column.generated_expr_string)
    ]
    return tuple(
        Slot(index, target.name, target.type, target.collation, version.stored.name.original, version.schema)
        for index, column in enumerate(carried)
        if column.state == ElementState.PUBLIC
        for target in (target_of(column),)
    )


def _compiled(node: Node, text: str, table: str, slots: tuple[Slot, ...]) -> Compiled:
    if node.find(exp.Query) is not None:
        raise ExpressionParseFailed(f"{text!r}: an expression of an event filter has no subqueries")
    try:
        return compile_scalar(node, Scope(slots, clause="expression"))
    except SqlRefused as refused:
        if refused.mysql_code == _UNKNOWN_COLUMN:
            named = ", ".join(slot.name for slot in slots)
            raise ExpressionColumnNotFound(
                f"{text!r} for {table}: {refused.message}; columns that rows of it carry: {named}"
            ) from refused
        raise ExpressionParseFailed(f"{text!r} for {table}: {refused.message}") from refused
