"""Errors of a changefeed: its filters and selectors, and where it keeps its progress; with TiCDC's codes.

    ConfigError
    +- EventTypeInvalid            ignore-event names no event
    +- ExpressionParseFailed       a value expression is no SQL expression
    +- ExpressionColumnNotFound    it names a column that a table does not have
    +- RowFilterFailed             it cannot be evaluated for a row
    +- ColumnSelectorFailed        a column selector takes away what identifies rows, or where they go
    +- PartitionNumInvalid         more partitions are asked for than there are, or none

    TidegateError
    +- StateUnwritable             the directory of its progress is full or away         LATER

The others do not pass by waiting: TiCDC fails a changefeed for most of them at once, and so do we.
"""

from tidegate.model.errors import ConfigError, KafkaConfigInvalid, Retry, TidegateError

__all__ = [
    "ColumnSelectorFailed",
    "EventTypeInvalid",
    "ExpressionColumnNotFound",
    "ExpressionParseFailed",
    "PartitionNumInvalid",
    "RowFilterFailed",
    "StateUnwritable",
]


class EventTypeInvalid(ConfigError):
    """A word of ignore-event that is no event; the message names it and the nearest one."""

    code = "CDC:ErrInvalidIgnoreEventType"


class ExpressionParseFailed(ConfigError):
    """A value expression of an event filter that is no SQL expression; the message shows it."""

    code = "CDC:ErrExpressionParseFailed"


class ExpressionColumnNotFound(ConfigError):
    """A value expression names a column that the table does not have; the message names expression and table."""

    code = "CDC:ErrExpressionColumnNotFound"


class RowFilterFailed(ConfigError):
    """A value expression has no value for a row, such as for a text that is no JSON; table and ts are named."""

    code = "CDC:ErrFailedToFilterDML"


class ColumnSelectorFailed(ConfigError):
    """A column selector leaves no key of a table, or takes a column by which rows are dispatched; both are named."""

    code = "CDC:ErrColumnSelectorFailed"


class PartitionNumInvalid(KafkaConfigInvalid):
    """partition-num is below 1, or above what the topic has; the message names both numbers."""

    code = "CDC:ErrKafkaInvalidPartitionNum"


class StateUnwritable(TidegateError):
    """The checkpoint cannot be written now; the message names the file and what the system says."""

    code = "CDC:ErrMetaOpFailed"
    retry = Retry.LATER
