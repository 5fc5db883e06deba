"""All errors of Tidegate: their codes, retry policy and messages.

Arguments are positional, so that errors pickle.  Only loops that run a changefeed catch TidegateError, and they decide
by `retry` alone.  Codes are TiCDC's where it has one.  The docstring of each class lists what its message names.
"""

from enum import Enum
from typing import Any, ClassVar, Self

import msgspec


class Retry(Enum):
    """The retry policy of an error: whether the same call can succeed later."""

    NEVER = "never"
    LATER = "later"


class Where(msgspec.Struct, frozen=True):
    """The subject of an error as far as it is known: a row or DDL, and a message or a file."""

    table: str = ""
    commit_ts: int = 0
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    file: str = ""


class TidegateError(Exception):
    """The root; never raised itself. `where` and `messages` travel with the error, also by pickle.

    >>> from tidegate.codec import from_config
    >>> from tidegate.model.errors import TidegateError
    >>> try:
    ...     from_config({"protocol": "avro"})
    ... except TidegateError as error:
    ...     print(f"{error.code}, retry {error.retry.value}: {error}")
    CDC:ErrInvalidReplicaConfig, retry never: protocol 'avro' is not one of canal-json, open-protocol"""

    code: ClassVar[str] = "CDC:ErrTidegate"
    retry: ClassVar[Retry] = Retry.NEVER
    where: Where = Where()
    messages: tuple[tuple[str, int, int, int], ...] = ()
    """The refused messages: topic, partition, offset and commit_ts of each."""

    def at(self, **location: Any) -> Self:
        """Return this error with the fields of `Where` that are given; fields that are set stay."""
        nothing = msgspec.structs.asdict(Where())
        own = {name: value for name, value in msgspec.structs.asdict(self.where).items() if value != nothing[name]}
        self.where = Where(**{**location, **own})
        return self


class InputError(TidegateError):
    """The input of the user cannot be used."""

    code = "CDC:ErrInvalidInput"


class ConfigError(InputError):
    """A configuration key, value or URI is wrong; the message names it and the nearest right one."""

    code = "CDC:ErrInvalidReplicaConfig"


class FilterRuleInvalid(ConfigError):
    """A table filter rule does not parse; the message shows the rule and the position."""

    code = "CDC:ErrFilterRuleInvalid"


class UriInvalid(ConfigError):
    """A source or sink URI, or a parameter of it, is wrong."""

    code = "CDC:ErrSinkURIInvalid"


class ProtocolUnknown(ConfigError):
    """`protocol` is missing or unknown."""

    code = "CDC:ErrSinkUnknownProtocol"


class KafkaConfigInvalid(ConfigError):
    """A Kafka option has a value out of its range, or contradicts another one."""

    code = "CDC:ErrKafkaInvalidConfig"


class CodecConfigInvalid(ConfigError):
    """An option of an encoder has a value out of its range, or contradicts another one."""

    code = "CDC:ErrCodecInvalidConfig"


class SinkConfigInvalid(ConfigError):
    """An option of a storage sink is wrong, such as a csv delimiter that holds the quote."""

    code = "CDC:ErrSinkInvalidConfig"


class MysqlConfigInvalid(ConfigError):
    """An option of a database sink has a value out of its range, or contradicts another one."""

    code = "CDC:ErrMySQLInvalidConfig"


class DispatcherFailed(ConfigError):
    """A dispatcher names an index or a column that a table does not have; the message names both."""

    code = "CDC:ErrDispatcherFailed"


class TopicExpressionInvalid(ConfigError):
    """The `topic` of a dispatcher is not a topic expression; the message shows it and the expected form."""

    code = "CDC:ErrKafkaInvalidTopicExpression"


class ChangefeedIdInvalid(ConfigError):
    """A changefeed id with other characters than letters, digits and single hyphens."""

    code = "CDC:ErrInvalidChangefeedID"


class SqlError(InputError):
    """A statement that does not parse; `offset` is the position in its text."""

    code = "CDC:ErrParseDDL"
    offset: int = 0


class UnsupportedError(InputError):
    """Valid, but not supported; the message names the ways out."""

    code = "CDC:ErrUnsupported"


class EnvironmentFault(InputError):
    """Something on this machine is missing or in the way (Java, jars, a port); the message has the next step."""

    code = "CDC:ErrEnvironment"


class TableParked(InputError):
    """A table of a lake is parked since one of its steps was refused; the message has the ts, the reason and the ways
    out."""

    code = "CDC:ErrTableParked"


class ProtocolError(TidegateError):
    """Bytes and format disagree."""

    code = "CDC:ErrProtocol"


class DecodeError(ProtocolError):
    """Foreign bytes break the format. `offset` counts bytes from the start of `codec`'s input."""

    code: ClassVar[str] = "CDC:ErrDecodeFailed"

    def __init__(self, what: str, codec: str, offset: int, /) -> None:
        super().__init__(what, codec, offset)
        self.what, self.codec, self.offset = what, codec, offset

    def __str__(self) -> str:
        return f"{self.codec}: {self.what} at byte {self.offset}"


class KvDecodeError(DecodeError):
    """A malformed key or value of TiKV; `key` is the raw key, `offset` counts inside `codec`'s part."""

    code = "CDC:ErrDecodeRowToDatum"

    def __init__(self, what: str, codec: str, offset: int, key: bytes, /) -> None:
        Exception.__init__(self, what, codec, offset, key)
        self.what, self.codec, self.offset, self.key = what, codec, offset, key

    def __str__(self) -> str:
        return f"{super().__str__()}, key {self.key.hex() or 'empty'}"


class EncodeError(ProtocolError):
    """An event that the format cannot carry."""

    code = "CDC:ErrEncodeFailed"


class MessageTooLarge(EncodeError):
    """A row that is too large for a message; `key` is its handle as text, `options` are the large-message options in
    force."""

    code = "CDC:ErrMessageTooLarge"

    def __init__(self, table: str, key: str, size: int, limit: int, options: str, /) -> None:
        super().__init__(table, key, size, limit, options)
        self.table, self.key, self.size, self.limit, self.options = table, key, size, limit, options

    def __str__(self) -> str:
        return (
            f"the row {self.key} of {self.table} takes {self.size} bytes, but only {self.limit} are allowed "
            f"({self.options}); raise max-message-bytes and the topic's max.message.bytes, or set "
            "large-message-handle-option to handle-key-only or claim-check, or large-message-handle-compression to lz4"
        )


class HandleKeyMissing(EncodeError):
    """Only handle key columns were to be sent of a row whose table has none; the message names the table."""

    code = "CDC:ErrOpenProtocolCodecInvalidData"


class CsvEncodeFailed(EncodeError):
    """A value that a csv field cannot express, such as an ENUM index without a name."""

    code = "CDC:ErrCSVEncodeFailed"


class SchemaError(TidegateError):
    """Event and schema history disagree; the message names the table and the timestamp."""

    code = "CDC:ErrSchemaStorage"


class TableNotFound(SchemaError):
    """A row of a table that is not in the schema at its commit_ts; the message names id and timestamp."""

    code = "CDC:ErrSnapshotTableNotFound"


class RenameRefused(SchemaError):
    """A RENAME moves a table from outside the table filter into it; the message names both names."""

    code = "CDC:ErrSyncRenameTableFailed"


class SourceError(TidegateError):
    """The upstream topic or log did not answer, or answered wrongly."""

    code = "CDC:ErrSource"
    retry = Retry.LATER


class HistoryLost(SourceError):
    """The next changes were removed upstream (retention, GC)."""

    code = "CDC:ErrSnapshotLostByGC"
    retry = Retry.NEVER


class StartBeforeGc(HistoryLost):
    """A changefeed would start at or below the GC safe point of its cluster; the message has both."""

    code = "CDC:ErrStartTsBeforeGC"


class GcTtlExceeded(HistoryLost):
    """A changefeed has not run for longer than gc-ttl, and its cluster has collected what it needs."""

    code = "CDC:ErrGCTTLExceeded"


class ClusterUnavailable(SourceError):
    """PD or a store of a cluster cannot be reached, or has no leader; the message has its address and the way out."""

    code = "CDC:ErrGRPCDialFailed"


class ClusterMismatch(SourceError):
    """PD or TiKV belongs to another cluster; the message has both ids."""

    code = "CDC:ErrClusterIDMismatch"
    retry = Retry.NEVER


class PdRefused(SourceError):
    """PD does not do what it was asked for; the message has its words."""

    code = "CDC:ErrPDRefused"
    retry = Retry.NEVER


class TsoFellBack(SourceError):
    """PD gave a timestamp at or below an earlier one; the message has both."""

    code = "CDC:ErrTsoFellBack"
    retry = Retry.NEVER


class VersionIncompatible(EnvironmentFault):
    """A component of a cluster has a version that is not accepted; the message names both."""

    code = "CDC:ErrVersionIncompatible"


class KeyIsLocked(SourceError):
    """A read met the lock of a transaction that has not ended; the message names key, start_ts and the read's ts."""

    code = "CDC:ErrKeyIsLocked"


class LoadCancelled(SourceError):
    """A user has ended the full load of a feed before it was done."""

    code = "CDC:ErrLoadCancelled"
    retry = Retry.NEVER


class ClaimCheckUnavailable(SourceError):
    """The file of a claim check is missing, too large or another row's; the message names file, table and ts."""

    code = "CDC:ErrClaimCheckUnavailable"
    retry = Retry.NEVER


class UpstreamRowMissing(SourceError):
    """The upstream does not have, at a snapshot, a row whose key was sent; the message names table, key and ts."""

    code = "CDC:ErrUpstreamRowMissing"
    retry = Retry.NEVER


class PoisonMessage(SourceError):
    """The feed stops at a message that cannot be decoded; the error names topic, partition, offset and ways out."""

    code = "CDC:ErrPoisonMessage"
    retry = Retry.NEVER


class PrewriteNotMatch(SourceError):
    """A commit came whose prewrite did not, after all prewrites had; the message names key, start_ts, commit_ts."""

    code = "CDC:ErrPrewriteNotMatch"


class ResolvedTsBroken(SourceError):
    """A row was committed at or below a resolved ts; the message names key, start_ts, commit_ts, resolved_ts."""

    code = "CDC:ErrResolvedTsBroken"
    retry = Retry.NEVER


class CorruptedRow(SourceError):
    """A row whose checksum contradicts its values (integrity-check-level); the message names table, ts and key."""

    code = "CDC:ErrCorruptedDataMutation"
    retry = Retry.NEVER


class SinkError(TidegateError):
    """The target is unreachable or busy."""

    code = "CDC:ErrSink"
    retry = Retry.LATER


class SinkRefused(SinkError):
    """The target refuses this permanently."""

    code = "CDC:ErrSinkRefused"
    retry = Retry.NEVER


class LoginRefused(SinkError):
    """The brokers refuse the client's account or certificate, or it refuses theirs; either side may be corrected."""

    code = "CDC:ErrKafkaNewProducer"


class AccountRefused(LoginRefused):
    """The database refuses the account, or lacks a privilege that a feed needs; a GRANT may correct that."""

    code = "CDC:ErrMySQLConnectionError"


class Fenced(SinkError):
    """Another writer has advanced the target; this one must stop or restart."""

    code = "CDC:ErrWriterFenced"
    retry = Retry.NEVER


class UpstreamError(TidegateError):
    """The embedded TiDB failed; `mysql_code` is the error number that a MySQL client of TiDB sees."""

    code = "tidb:1105"
    retry = Retry.LATER
    mysql_code: int = 1105


class SqlRefused(UpstreamError):
    """A statement that TiDB refuses: (its number, its message, SQLSTATE), as a MySQL client sees them."""

    code = "tidb:sql"
    retry = Retry.NEVER

    def __init__(self, mysql_code: int, message: str, sqlstate: str = "HY000", /) -> None:
        super().__init__(mysql_code, message, sqlstate)
        self.mysql_code, self.message, self.sqlstate = mysql_code, message, sqlstate

    def __str__(self) -> str:
        return f"{self.mysql_code} ({self.sqlstate}): {self.message}"


class StoreUnavailable(UpstreamError):
    """The directory of a store cannot be read or written, or another process has it; the message names it."""

    code = "tidb:ErrStoreUnavailable"


class DdlForbidden(InputError):
    """A DDL that does not parse, or that a feed must not execute; the message has the reason and the ways out. If it
    came in a message, the source's dead-letter policy applies."""

    code = "CDC:ErrDDLForbidden"


class StateTooNew(EnvironmentFault):
    """Stored state of a version that this release does not know; the message names the file or row, both versions, and
    what to do."""

    code = "CDC:ErrStateTooNew"


class EventTypeInvalid(ConfigError):
    """An unknown word of ignore-event; the message names it and the nearest known one."""

    code = "CDC:ErrInvalidIgnoreEventType"


class DdlEventUnknown(ConfigError):
    """A DDL without an action, which its text does not determine either, so that ignore-event cannot be applied; the
    message names table, ts and text."""

    code = "CDC:ErrConvertDDLToEventTypeFailed"


class ExpressionParseFailed(ConfigError):
    """A value expression of an event filter is not SQL; the message shows it."""

    code = "CDC:ErrExpressionParseFailed"


class ExpressionColumnNotFound(ConfigError):
    """A value expression names a column that the table does not have; the message names expression and table."""

    code = "CDC:ErrExpressionColumnNotFound"


class RowFilterFailed(ConfigError):
    """A value expression has no value for a row, such as for a text that is no JSON; table and ts are named."""

    code = "CDC:ErrFailedToFilterDML"


class ColumnSelectorFailed(ConfigError):
    """A column selector leaves no key of a table, or removes a column by which rows are dispatched; both are named."""

    code = "CDC:ErrColumnSelectorFailed"


class PartitionNumInvalid(KafkaConfigInvalid):
    """partition-num is below 1, or above the topic's number; the message names both numbers."""

    code = "CDC:ErrKafkaInvalidPartitionNum"


class RowsLackDdl(SchemaError):
    """Rows of a table do not fit a lake that lacks a DDL; the message names table, ts and DDL. Rows up to `ts` fit."""

    def __init__(self, what: str, ts: int, /) -> None:
        super().__init__(what, ts)
        self.what, self.ts = what, ts

    def __str__(self) -> str:
        return self.what


class StateUnwritable(TidegateError):
    """The checkpoint cannot be written now; the message names the file and the system's error."""

    code = "CDC:ErrMetaOpFailed"
    retry = Retry.LATER


class Overtaken(TidegateError):
    """The run that this one has taken over from published once more; the feed continues from the new position."""

    code = "CDC:ErrWriterOvertaken"
    retry = Retry.NEVER


class SourceBehind(SourceError):
    """The source is empty, or does not reach the ts at which the feed continues; its writer may be late."""


class MadeAnew(HistoryLost):
    """A topic or a directory was deleted and created again, so that old positions are meaningless; or a target lost
    progress that its source has released. The message names both and the ways out."""

    code = "CDC:ErrSourceMadeAnew"


class ChangelogBroken(SourceError):
    """A commit of the changelog has no positions, so it is not Tidegate's; the message names the table."""

    retry = Retry.NEVER


class SameUpstream(ConfigError):
    """The target database is the one whose log is the source; the message names both."""

    code = "CDC:ErrSameUpstreamDownstream"
