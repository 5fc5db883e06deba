"""Every error of Tidegate, with its code and whether trying again can help.

    TidegateError            code: "CDC:Err..."   retry: NEVER | LATER      (both class attributes)
    +- InputError            the user's
    |  +- ConfigError        a key, a value or a URI
    |  |  +- FilterRuleInvalid, UriInvalid, ProtocolUnknown, KafkaConfigInvalid, ChangefeedIdInvalid
    |  |  +- CodecConfigInvalid, SinkConfigInvalid, MysqlConfigInvalid
    |  +- SqlError           a statement that we cannot read
    |  +- UnsupportedError   readable, but not something we do
    |  +- EnvironmentFault   Java, jars, ports, disks of this machine
    |  +- TableParked        the rows of a table that stands still are asked for at a later ts
    +- ProtocolError
    |  +- DecodeError        foreign bytes break the format: (what, codec, offset)
    |  |  +- KvDecodeError   a key or value of TiKV: (what, codec, offset, key)
    |  +- EncodeError        ours to say, the format cannot
    |     +- MessageTooLarge  beyond max-message-bytes: (table, key, size, limit, options)
    |     +- HandleKeyMissing, CsvEncodeFailed   handle columns of a table without; a value that no csv field can hold
    +- SchemaError           event and schema history disagree (table, ts)
    |  +- TableNotFound      a row of a table id that the schema does not have
    |  +- RenameRefused      a RENAME brings a table into the filter whose rows were left out until then
    +- UpstreamError         the embedded TiDB refuses; `mysql_code` is TiDB's number   LATER
    |  +- WriteConflict, KeyLocked, TransactionGone, SchemaOutdated, SchemaChanged    begin the transaction anew
    |  +- SqlRefused, HistoryCollected, SnapshotTooOld, EntryTooLarge, TransactionTooLarge   NEVER
    |  +- StoreUnavailable   its directory cannot be read or written
    +- SourceError           the upstream topic or log                       LATER
    |  +- HistoryLost        what we need next is gone                       NEVER
    |  +- ClaimCheckUnavailable, UpstreamRowMissing   a row cannot be made whole   NEVER
    |  +- PoisonMessage      the feed halts at a dead letter                 NEVER
    |  +- PrewriteNotMatch   a commit in TiKV's change log without its prewrite
    |  +- CorruptedRow       a row whose checksum contradicts its values            NEVER
    +- SinkError             the target refused or is away                   LATER
       +- LoginRefused       brokers do not let the client in: account or certificate
       |  +- AccountRefused   a database does not let the account in, or not do what it has to
       +- SinkRefused, Fenced   the target will always refuse; another writer took over   NEVER

Arguments are positional, so that errors pickle.  Only feed loops, `app/` and `spark/` catch TidegateError, and they
decide by `retry` alone.  Codes reuse TiCDC's where it has one.
"""

from typing import ClassVar

from tidegate.model.root_error import Retry, TidegateError, Where

__all__ = [
    "AccountRefused",
    "ChangefeedIdInvalid",
    "ClaimCheckUnavailable",
    "CodecConfigInvalid",
    "ConfigError",
    "CorruptedRow",
    "CsvEncodeFailed",
    "DecodeError",
    "DispatcherFailed",
    "EncodeError",
    "EntryTooLarge",
    "EnvironmentFault",
    "Fenced",
    "FilterRuleInvalid",
    "HandleKeyMissing",
    "HistoryCollected",
    "HistoryLost",
    "InputError",
    "KafkaConfigInvalid",
    "KeyLocked",
    "KvDecodeError",
    "LoginRefused",
    "MessageTooLarge",
    "MysqlConfigInvalid",
    "PoisonMessage",
    "PrewriteNotMatch",
    "ProtocolError",
    "ProtocolUnknown",
    "RenameRefused",
    "Retry",
    "SchemaChanged",
    "SchemaError",
    "SchemaOutdated",
    "SinkConfigInvalid",
    "SinkError",
    "SinkRefused",
    "SnapshotTooOld",
    "SourceError",
    "SqlError",
    "SqlRefused",
    "StoreUnavailable",
    "TableNotFound",
    "TableParked",
    "TidegateError",
    "TopicExpressionInvalid",
    "TransactionGone",
    "TransactionTooLarge",
    "UnsupportedError",
    "UpstreamError",
    "UpstreamRowMissing",
    "UriInvalid",
    "Where",
    "WriteConflict",
]


class InputError(TidegateError):
    """What the user gave cannot be used."""

    code = "CDC:ErrInvalidInput"


class ConfigError(InputError):
    """A configuration key, value or URI is wrong; the message names it and the nearest right one."""

    code = "CDC:ErrInvalidReplicaConfig"


class FilterRuleInvalid(ConfigError):
    """A table filter rule does not parse; the message shows the rule and the place."""

    code = "CDC:ErrFilterRuleInvalid"


class UriInvalid(ConfigError):
    """A source or sink URI, or a parameter of it, is wrong."""

    code = "CDC:ErrSinkURIInvalid"


class ProtocolUnknown(ConfigError):
    """`protocol` is missing or not one that we read."""

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
    """The `topic` of a dispatcher is no topic expression; the message shows it and the form of one."""

    code = "CDC:ErrKafkaInvalidTopicExpression"


class ChangefeedIdInvalid(ConfigError):
    """A changefeed id with other characters than letters, digits and single hyphens."""

    code = "CDC:ErrInvalidChangefeedID"


class SqlError(InputError):
    """A statement that we cannot read; `offset` is where in its text."""

    code = "CDC:ErrParseDDL"
    offset: int = 0


class UnsupportedError(InputError):
    """Readable, but not something that we do; the message names the ways out."""

    code = "CDC:ErrUnsupported"


class EnvironmentFault(InputError):
    """Something on this machine is missing or in the way (Java, jars, a port); the message says what to do."""

    code = "CDC:ErrEnvironment"


class TableParked(InputError):
    """A table of a lake stands still since a step of it was refused; the message says at which ts, why, and what to
    do."""

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
    """A key or value of TiKV that breaks its form; `key` is the raw key, `offset` counts inside `codec`'s part."""

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
    """A row that no message can hold; `key` is its handle as text, `options` what the limit was met with."""

    code = "CDC:ErrMessageTooLarge"

    def __init__(self, table: str, key: str, size: int, limit: int, options: str, /) -> None:
        super().__init__(table, key, size, limit, options)
        self.table, self.key, self.size, self.limit, self.options = table, key, size, limit, options

    def __str__(self) -> str:
        return (
            f"the row {self.key} of {self.table} takes {self.size} bytes, and {self.limit} are allowed "
            f"({self.options}); raise max-message-bytes and the topic's max.message.bytes, or set "
            "large-message-handle-option to handle-key-only or claim-check, or large-message-handle-compression to lz4"
        )


class HandleKeyMissing(EncodeError):
    """Only handle key columns were to be sent of a row whose table has none; the message names the table."""

    code = "CDC:ErrOpenProtocolCodecInvalidData"


class CsvEncodeFailed(EncodeError):
    """A value that a csv field cannot say, such as an ENUM index without a name."""

    code = "CDC:ErrCSVEncodeFailed"


class SchemaError(TidegateError):
    """Event and schema history disagree; the message names the table and the timestamp."""

    code = "CDC:ErrSchemaStorage"


class TableNotFound(SchemaError):
    """A row of a table that the schema of its moment does not have; the message names id and timestamp."""

    code = "CDC:ErrSnapshotTableNotFound"


class RenameRefused(SchemaError):
    """A RENAME gives a table that the filter leaves out a name that it takes; the message names both."""

    code = "CDC:ErrSyncRenameTableFailed"


class SourceError(TidegateError):
    """The upstream topic or log did not answer as it should."""

    code = "CDC:ErrSource"
    retry = Retry.LATER


class HistoryLost(SourceError):
    """What comes next was removed upstream (retention, GC)."""

    code = "CDC:ErrSnapshotLostByGC"
    retry = Retry.NEVER


class ClaimCheckUnavailable(SourceError):
    """The file of a claim check is away, too large or another row's; the message names file, table and ts."""

    code = "CDC:ErrClaimCheckUnavailable"
    retry = Retry.NEVER


class UpstreamRowMissing(SourceError):
    """The upstream does not have, at a snapshot, a row whose key was sent; the message names table, key and ts."""

    code = "CDC:ErrUpstreamRowMissing"
    retry = Retry.NEVER


class PoisonMessage(SourceError):
    """The feed stops at a message that it cannot read; the message names topic, partition, offset and ways out."""

    code = "CDC:ErrPoisonMessage"
    retry = Retry.NEVER


class PrewriteNotMatch(SourceError):
    """A commit came whose prewrite did not, after all prewrites had; the message names key, start_ts, commit_ts."""

    code = "CDC:ErrPrewriteNotMatch"


class CorruptedRow(SourceError):
    """A row whose checksum contradicts its values (integrity-check-level); the message names table, ts and key."""

    code = "CDC:ErrCorruptedDataMutation"
    retry = Retry.NEVER


class SinkError(TidegateError):
    """The target is away or busy."""

    code = "CDC:ErrSink"
    retry = Retry.LATER


class SinkRefused(SinkError):
    """The target will refuse this always."""

    code = "CDC:ErrSinkRefused"
    retry = Retry.NEVER


class LoginRefused(SinkError):
    """The brokers do not let the client in: its account, its certificate or theirs; both sides may put that right."""

    code = "CDC:ErrKafkaNewProducer"


class AccountRefused(LoginRefused):
    """The database does not let the account in, or does not let it do what a feed does; a GRANT may put that right."""

    code = "CDC:ErrMySQLConnectionError"


class Fenced(SinkError):
    """Another writer has moved the target on; this one must stop or start afresh."""

    code = "CDC:ErrWriterFenced"
    retry = Retry.NEVER


class UpstreamError(TidegateError):
    """The embedded TiDB could not do it; `mysql_code` is the number that a MySQL client of TiDB sees."""

    code = "tidb:1105"
    retry = Retry.LATER
    mysql_code: int = 1105


class WriteConflict(UpstreamError):
    """Another transaction committed `key` after this one began: (start_ts, its start_ts, its commit_ts, key)."""

    code = "kv:9007"
    mysql_code = 9007

    def __init__(self, start_ts: int, conflict_start_ts: int, conflict_commit_ts: int, key: bytes, /) -> None:
        super().__init__(start_ts, conflict_start_ts, conflict_commit_ts, key)
        self.start_ts, self.key = start_ts, key
        self.conflict_start_ts, self.conflict_commit_ts = conflict_start_ts, conflict_commit_ts

    def __str__(self) -> str:
        return (
            f"write conflict: the transaction of start_ts {self.start_ts} writes key {self.key.hex()}, which start_ts "
            f"{self.conflict_start_ts} committed at {self.conflict_commit_ts}; begin anew"
        )


class KeyLocked(UpstreamError):
    """A transaction that may still commit holds `key`: (key, primary, its start_ts, its time to live in ms)."""

    code = "tikv:9004"
    mysql_code = 9004

    def __init__(self, key: bytes, primary: bytes, lock_ts: int, ttl_ms: int, /) -> None:
        super().__init__(key, primary, lock_ts, ttl_ms)
        self.key, self.primary, self.lock_ts, self.ttl_ms = key, primary, lock_ts, ttl_ms

    def __str__(self) -> str:
        return (
            f"key {self.key.hex()} is locked by the transaction of start_ts {self.lock_ts} (primary "
            f"{self.primary.hex()}) for {self.ttl_ms} ms from its start; wait until it ends, or try again after that"
        )


class TransactionGone(UpstreamError):
    """The transaction's lock is away, since somebody rolled it back: (start_ts, key)."""

    code = "kv:8022"
    mysql_code = 8022

    def __init__(self, start_ts: int, key: bytes, /) -> None:
        super().__init__(start_ts, key)
        self.start_ts, self.key = start_ts, key

    def __str__(self) -> str:
        return f"the transaction of start_ts {self.start_ts} was rolled back at key {self.key.hex()}; begin anew"


class SchemaOutdated(UpstreamError):
    """A node cannot tell whether its schema still holds; the message names schema version and start_ts."""

    code = "domain:8027"
    mysql_code = 8027


class SchemaChanged(UpstreamError):
    """A table that a transaction wrote has a newer definition; the message names table and versions."""

    code = "domain:8028"
    mysql_code = 8028


class SqlRefused(UpstreamError):
    """A statement that TiDB refuses: (its number, its message, SQLSTATE), as a MySQL client sees them."""

    code = "tidb:sql"
    retry = Retry.NEVER

    def __init__(self, mysql_code: int, message: str, sqlstate: str = "HY000", /) -> None:
        super().__init__(mysql_code, message, sqlstate)
        self.mysql_code, self.message, self.sqlstate = mysql_code, message, sqlstate

    def __str__(self) -> str:
        return f"{self.mysql_code} ({self.sqlstate}): {self.message}"


class HistoryCollected(UpstreamError):
    """A transaction began before the GC safe point: (start_ts, safe_point)."""

    code = "tikv:9006"
    retry = Retry.NEVER
    mysql_code = 9006

    def __init__(self, start_ts: int, safe_point: int, /) -> None:
        super().__init__(start_ts, safe_point)
        self.start_ts, self.safe_point = start_ts, safe_point

    def __str__(self) -> str:
        return (
            f"GC life time is shorter than transaction duration: start_ts {self.start_ts}, "
            f"GC safe point {self.safe_point}; begin anew"
        )


class SnapshotTooOld(HistoryCollected):
    """A historical read was asked for below the GC safe point: (ts, safe_point)."""

    code = "variable:8055"
    mysql_code = 8055

    def __str__(self) -> str:
        return f"snapshot {self.start_ts} is older than the GC safe point {self.safe_point}; read at or above it"


class EntryTooLarge(UpstreamError):
    """One key with its value exceeds the limit; the message names key, bytes and limit."""

    code = "kv:8025"
    retry = Retry.NEVER
    mysql_code = 8025


class TransactionTooLarge(UpstreamError):
    """What a transaction wrote exceeds the limit; the message names start_ts, bytes and limit."""

    code = "kv:8004"
    retry = Retry.NEVER
    mysql_code = 8004


class StoreUnavailable(UpstreamError):
    """The directory of a store cannot be read or written, or another process has it; the message names it."""

    code = "tidb:ErrStoreUnavailable"
