"""Errors of a changefeed: its filters and selectors, and where it keeps its progress; with TiCDC's codes.

    ConfigError
    +- EventTypeInvalid            ignore-event names no event
    +- DdlEventUnknown             which event a DDL is cannot be told
    +- ExpressionParseFailed       a value expression is no SQL expression
    +- ExpressionColumnNotFound    it names a column that a table does not have
    +- RowFilterFailed             it cannot be evaluated for a row
    +- ColumnSelectorFailed        a column selector takes away what identifies rows, or where they go
    +- PartitionNumInvalid         more partitions are asked for than there are, or none
    +- SameUpstream                a database is to be written whose own log is the source

    InputError
    +- DdlForbidden                a DDL's text is not the feed's to run at its target
    +- StateTooNew                 a newer release wrote what is kept

    TidegateError
    +- StateUnwritable             the directory of its progress is full or away         LATER
    +- Overtaken                   a run that this one has fenced published once more: go on behind it
    +- SchemaError
       +- RowsLackDdl              rows are made by a DDL that event filters left out
    +- SourceError
       +- SourceBehind             the source does not reach the feed's checkpoint yet: waited for, without end
       +- ChangelogBroken          somebody else wrote into the changelog                 NEVER
       +- HistoryLost
          +- MadeAnew              what bears the name of what was read is another                NEVER

The others do not pass by waiting: TiCDC fails a changefeed for most of them at once, and so do we.
"""

from tidegate.model.errors import (
    ConfigError,
    EnvironmentFault,
    HistoryLost,
    InputError,
    KafkaConfigInvalid,
    Retry,
    SchemaError,
    SourceError,
    TidegateError,
)


class DdlForbidden(InputError):
    """A DDL whose text nobody here reads, or which says what is not the feed's to say; the message tells what, and the
    ways out. Where it came by a message, the source's policy for those that cannot be read holds for it."""

    code = "CDC:ErrDDLForbidden"


class StateTooNew(EnvironmentFault):
    """Stored state of a version that this release does not know; the message names the file or row, both versions, and
    what to do."""

    code = "CDC:ErrStateTooNew"


class EventTypeInvalid(ConfigError):
    """A word of ignore-event that is no event; the message names it and the nearest one."""

    code = "CDC:ErrInvalidIgnoreEventType"


class DdlEventUnknown(ConfigError):
    """A DDL came without its action and by a text that does not tell it, so no rule of ignore-event can be asked; the
    message names table, ts and text."""

    code = "CDC:ErrConvertDDLToEventTypeFailed"


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


class RowsLackDdl(SchemaError):
    """Rows of a table do not fit a lake that lacks a DDL; the message names table, ts and DDL. Rows up to `ts` fit."""

    def __init__(self, what: str, ts: int, /) -> None:
        super().__init__(what, ts)
        self.what, self.ts = what, ts

    def __str__(self) -> str:
        return self.what


class StateUnwritable(TidegateError):
    """The checkpoint cannot be written now; the message names the file and what the system says."""

    code = "CDC:ErrMetaOpFailed"
    retry = Retry.LATER


class Overtaken(TidegateError):
    """A run that this one has taken over from published before it noticed; the feed goes on from what stands there."""

    code = "CDC:ErrWriterOvertaken"
    retry = Retry.NEVER


class SourceBehind(SourceError):
    """The source is empty, or does not reach the ts where the feed goes on; whoever writes it may be late."""


class MadeAnew(HistoryLost):
    """A topic or a directory was deleted and made again, so positions in the one before mean nothing in it; or a target
    lost the progress that its source has released. The message names both and the ways out."""

    code = "CDC:ErrSourceMadeAnew"


class ChangelogBroken(SourceError):
    """A commit of the changelog says no positions, so it is not ours; the message names the place."""

    retry = Retry.NEVER


class SameUpstream(ConfigError):
    """A database is to be written whose own log is the source; the message names both."""

    code = "CDC:ErrSameUpstreamDownstream"
