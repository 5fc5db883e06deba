"""Event filters as a changefeed file has them, and what has to be given for their expressions.

    [[filter.event-filters]]
    matcher = ["shop.orders_*"]                       table filter rules; every filter that takes a table is asked
    ignore-event = ["delete", "drop table"]           event_filter.py; "all dml", "all ddl", "alter table" mean several
    ignore-sql = ["^drop", "add column"]              DDLs in whose text one of them is found, whatever the case
    ignore-insert-value-expr = "price < 1"            rows for which the expression is the integer 1:
    ignore-update-old-value-expr = "state = 'new'"        of an UPDATE the old row
    ignore-update-new-value-expr = "state = 'gone'"       or the new one
    ignore-delete-value-expr = "name = 'x'"
    ignore-update-only-columns = ["seen_at"]          UPDATEs that change nothing else, and no key

Source: TiCDC documentation, "Event Filter Rules".
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from tidegate.model.errors import ConfigError
from tidegate.model.event import Field, Values
from tidegate.model.table import TableName
from tidegate.schema.stored.snapshot import TableVersion

Test: TypeAlias = Callable[[Values], bool]
"""Whether an image of a row is left out."""


class EventRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"):
    """One entry of `filter.event-filters`, as the file has it."""

    matcher: tuple[str, ...] = ()
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()
    ignore_insert_value_expr: str = ""
    ignore_update_new_value_expr: str = ""
    ignore_update_old_value_expr: str = ""
    ignore_delete_value_expr: str = ""
    ignore_update_only_columns: tuple[str, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The value expressions that are there."""
        every = (
            self.ignore_insert_value_expr,
            self.ignore_update_new_value_expr,
            self.ignore_update_old_value_expr,
            self.ignore_delete_value_expr,
        )
        return tuple(filter(None, every))


class Expressions(Protocol):
    """What understands value expressions. It travels into tasks."""

    def check(self, text: str) -> None:
        """ExpressionParseFailed for a text that is no expression."""

    def test(self, text: str, version: TableVersion) -> Test:
        """Return the test of an image of this table's rows. Raises ExpressionParseFailed, ExpressionColumnNotFound."""

    def test_of_fields(self, text: str, name: TableName, fields: tuple[Field, ...]) -> Test:
        """Return the test of an image that a message brings, columns as its fields tell them. Raises as `test` does."""


def event_rules(entries: object) -> tuple[EventRule, ...]:
    """Return the rules in the value of `filter.event-filters`; ConfigError for another shape or an unknown key."""
    try:
        return msgspec.convert(entries, tuple[EventRule, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"filter.event-filters: {error}") from error
