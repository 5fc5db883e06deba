"""All errors of Tidegate: their codes, retry policy and messages.

Arguments are positional, so that errors pickle.  Only loops that run a changefeed catch TidegateError, and they decide
by `retry` alone.  Codes are TiCDC's where it has one.  The docstring of each class lists what its message names.

Values and keys of rows stand in messages as the process allows (`redacted`), in tasks of Spark as the driver does:

    off       as they are
    marker    between U+2039 and U+203A, which are doubled inside, as TiDB's tools read them
    on        as a question mark

What was said in an earlier mode stays.  Source: TiDB's and TiCDC's redact-info-log.
"""

from enum import Enum
from typing import Any, ClassVar, Final, Self

import msgspec


class Redaction(Enum):
    """The modes, from the least strict on."""

    OFF = "off"
    MARKER = "marker"
    ON = "on"


_MODE: Final = [Redaction.OFF]
_OPEN, _CLOSE = "\u2039", "\u203a"


def redaction() -> Redaction:
    """Return the mode of this process."""
    return _MODE[0]


def set_redaction(mode: Redaction) -> None:
    """Set the mode of this process."""
    _MODE[0] = mode


def redacted(text: str) -> str:
    """Return a text from a row as an error may show it."""
    match _MODE[0]:
        case Redaction.OFF:
            return text
        case Redaction.MARKER:
            return f"{_OPEN}{text.replace(_OPEN, 2 * _OPEN).replace(_CLOSE, 2 * _CLOSE)}{_CLOSE}"
        case Redaction.ON:
            return "?"


def redacted_value(value: object, most: int = 60) -> str:
    """Return a value of a row as an error may show it, in ASCII, at most so many characters of it."""
    return redacted(ascii(value)[:most])


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
    meanwhile: ClassVar[str] = ""
    """What is safe until the error is mended; empty if `retry` tells it."""
    remedy: ClassVar[str] = ""
    """What to do, for docs/runbook.md."""

    def at(self, **location: Any) -> Self:
        """Return this error with the fields of `Where` that are given; fields that are set stay."""
        nothing = msgspec.structs.asdict(Where())
        own = {name: value for name, value in msgspec.structs.asdict(self.where).items() if value != nothing[name]}
        self.where = Where(**{**location, **own})
        return self


class InputError(TidegateError):
    """The input of the user cannot be used."""

    code = "CDC:ErrInvalidInput"
    meanwhile = "A command changes nothing. A changefeed is `failed`, its target complete up to its checkpoint."
    remedy = "Correct what the message names, and run the command again."


class ConfigError(InputError):
    """A configuration key, value or URI is wrong; the message names it and the nearest right one."""

    code = "CDC:ErrInvalidReplicaConfig"
    remedy = (
        "Correct the key or value that the message names; docs/configuration.md lists all of them with their ranges."
    )


class FilterRuleInvalid(ConfigError):
    """A table filter rule does not parse; the message shows the rule and the position."""

    code = "CDC:ErrFilterRuleInvalid"
    remedy = (
        "Correct the rule at the position shown: `db.table` with `*`, `?`, `[..]`, `!` in front to leave out; quote "
        "a name with other characters."
    )


class UriInvalid(ConfigError):
    """A source or sink URI, or a parameter of it, is wrong."""

    code = "CDC:ErrSinkURIInvalid"
    remedy = (
        "Correct the URI; percent-encode special characters of passwords. docs/commands.md lists the schemes and "
        "docs/configuration.md the parameters of each."
    )


class ProtocolUnknown(ConfigError):
    """`protocol` is missing or unknown."""

    code = "CDC:ErrSinkUnknownProtocol"
    remedy = "Set `protocol=open-protocol` or `protocol=canal-json` in the URI or under `[sink]`."


class KafkaConfigInvalid(ConfigError):
    """A Kafka option has a value out of its range, or contradicts another one."""

    code = "CDC:ErrKafkaInvalidConfig"
    remedy = "Correct the Kafka option that the message names; its range is in docs/configuration.md."


class CodecConfigInvalid(ConfigError):
    """An option of an encoder has a value out of its range, or contradicts another one."""

    code = "CDC:ErrCodecInvalidConfig"
    remedy = "Correct the encoder's option that the message names; its range is in docs/configuration.md."


class SinkConfigInvalid(ConfigError):
    """An option of a storage sink is wrong, such as a csv delimiter that holds the quote."""

    code = "CDC:ErrSinkInvalidConfig"
    remedy = "Correct the option of the storage sink that the message names."


class MysqlConfigInvalid(ConfigError):
    """An option of a database sink has a value out of its range, or contradicts another one."""

    code = "CDC:ErrMySQLInvalidConfig"
    remedy = "Correct the option of the database sink that the message names; its range is in docs/databases.md."


class DispatcherFailed(ConfigError):
    """A dispatcher names an index or a column that a table does not have; the message names both."""

    code = "CDC:ErrDispatcherFailed"
    remedy = "Name an index or column in the dispatcher that every table of its matcher has, or split the matcher."


class TopicExpressionInvalid(ConfigError):
    """The `topic` of a dispatcher is not a topic expression; the message shows it and the expected form."""

    code = "CDC:ErrKafkaInvalidTopicExpression"
    remedy = "Write the topic as `prefix_{schema}_{table}_suffix`, in which each part may be missing."


class ChangefeedIdInvalid(ConfigError):
    """A changefeed id with other characters than letters, digits and single hyphens."""

    code = "CDC:ErrInvalidChangefeedID"
    remedy = "Choose a name of letters, digits and single hyphens, of at most 128 characters."


class SqlError(InputError):
    """A statement that does not parse; `offset` is the position in its text."""

    code = "CDC:ErrParseDDL"
    remedy = (
        "Correct the statement at the position shown. A DDL of a topic or log is put aside by `dead-letter` "
        "(docs/bad-input.md)."
    )
    offset: int = 0


class UnsupportedError(InputError):
    """Valid, but not supported; the message names the ways out."""

    code = "CDC:ErrUnsupported"
    remedy = "Take one of the ways out that the message names, or leave the table out by the filter."


class EnvironmentFault(TidegateError):
    """Something on this machine is missing or in the way (Java, jars, a port); the message has the next step."""

    code = "CDC:ErrEnvironment"
    meanwhile = InputError.meanwhile
    remedy = "Do the step that the message names, and run `tidegate doctor`, which checks the whole machine."


class TableParked(InputError):
    """A table of a lake is parked since one of its steps was refused; the message has the ts, the reason and the ways
    out."""

    code = "CDC:ErrTableParked"
    meanwhile = "The other tables go on. The parked one keeps its rows as of the timestamp shown."
    remedy = (
        "`tidegate table list LAKE` shows reason and timestamp. Mend the cause, then `tidegate table resume LAKE "
        "DB.TABLE`; or `tidegate table reload` brings its rows from the upstream."
    )


class ProtocolError(TidegateError):
    """Bytes and format disagree."""

    code = "CDC:ErrProtocol"
    remedy = (
        "Check that source and settings belong together (`protocol`, an address of the right service). If they do, "
        "this is a fault of Tidegate or of the peer."
    )


class DecodeError(ProtocolError):
    """Foreign bytes break the format. `offset` counts bytes from the start of `codec`'s input."""

    code: ClassVar[str] = "CDC:ErrDecodeFailed"
    remedy = (
        "`tidegate decode` with the same options shows what a message holds. With a wrong `protocol` or charset, "
        "correct that; a single bad message is skipped or replayed by `tidegate dlq`."
    )

    def __init__(self, what: str, codec: str, offset: int, /) -> None:
        super().__init__(what, codec, offset)
        self.what, self.codec, self.offset = what, codec, offset

    def __str__(self) -> str:
        return f"{self.codec}: {self.what} at byte {self.offset}"


class KvDecodeError(DecodeError):
    """A malformed key or value of TiKV; `key` is the raw key, `offset` counts inside `codec`'s part."""

    code = "CDC:ErrDecodeRowToDatum"
    remedy = (
        "Check whether TiDB is newer than docs/tidb-cluster.md lists. The key's table can be left out by the filter "
        "meanwhile."
    )

    def __init__(self, what: str, codec: str, offset: int, key: bytes, /) -> None:
        Exception.__init__(self, what, codec, offset, key)
        self.what, self.codec, self.offset, self.key = what, codec, offset, key

    def __str__(self) -> str:
        return f"{super().__str__()}, key {redacted(self.key.hex() or 'empty')}"


class EncodeError(ProtocolError):
    """An event that the format cannot carry."""

    code = "CDC:ErrEncodeFailed"
    remedy = "Leave the column or table out (`column-selectors`, filter), or choose a protocol that carries the value."


class MessageTooLarge(EncodeError):
    """A row that is too large for a message; `key` is its handle as text, `options` are the large-message options in
    force."""

    code = "CDC:ErrMessageTooLarge"
    remedy = (
        "Raise `max-message-bytes` and the topic's `max.message.bytes`, or set `large-message-handle-option` or "
        "`large-message-handle-compression`; then resume."
    )

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
    remedy = "Give the table a primary key, leave it out by the filter, or do not send handle keys only."


class CsvEncodeFailed(EncodeError):
    """A value that a csv field cannot express, such as an ENUM index without a name."""

    code = "CDC:ErrCSVEncodeFailed"
    remedy = "Correct the value upstream, leave the column out by `column-selectors`, or write canal-json."


class SchemaError(TidegateError):
    """Event and schema history disagree; the message names the table and the timestamp."""

    code = "CDC:ErrSchemaStorage"
    remedy = (
        "Compare the table upstream with `tidegate lake show`. A start in the middle of a DDL is avoided by an "
        "earlier start-ts; `tidegate table reload` loads a table anew."
    )


class TableNotFound(SchemaError):
    """A row of a table that is not in the schema at its commit_ts; the message names id and timestamp."""

    code = "CDC:ErrSnapshotTableNotFound"
    remedy = "Start below the table's CREATE TABLE, or load it: `tidegate table reload`, `--load initial`."


class RenameRefused(SchemaError):
    """A RENAME moves a table from outside the table filter into it; the message names both names."""

    code = "CDC:ErrSyncRenameTableFailed"
    remedy = (
        "Let the filter match the old name, too; or leave the new name out, and load the table by `tidegate table "
        "add` later."
    )


class SourceError(TidegateError):
    """The upstream topic or log did not answer, or answered wrongly."""

    code = "CDC:ErrSource"
    retry = Retry.LATER
    remedy = "Check that the brokers, the database or the directory answer from the host of Tidegate, and their logs."


class HistoryLost(SourceError):
    """The next changes were removed upstream (retention, GC)."""

    code = "CDC:ErrSnapshotLostByGC"
    retry = Retry.NEVER
    remedy = (
        "The changes in between exist nowhere any more. Load anew with `--load initial` into the same target, and "
        "raise the retention of the topic or the GC life time of the cluster."
    )


class StartBeforeGc(HistoryLost):
    """A changefeed would start at or below the GC safe point of its cluster; the message has both."""

    code = "CDC:ErrStartTsBeforeGC"
    remedy = "Start above the safe point that the message names, or with `--load initial`, which needs no history."


class GcTtlExceeded(HistoryLost):
    """A changefeed has not run for longer than gc-ttl, and its cluster has collected what it needs."""

    code = "CDC:ErrGCTTLExceeded"
    remedy = "Load anew (`--load initial`); let changefeeds pause for less than `gc-ttl`, or raise it."


class ClusterUnavailable(SourceError):
    """PD or a store of a cluster cannot be reached, or has no leader; the message has its address and the way out."""

    code = "CDC:ErrGRPCDialFailed"
    remedy = (
        "`tidegate doctor --pd URL` tells which PD or store does not answer. Where stores advertise addresses that "
        "are not reachable from here, map them by `host-mapping`."
    )


class ClusterMismatch(SourceError):
    """PD or TiKV belongs to another cluster; the message has both ids."""

    code = "CDC:ErrClusterIDMismatch"
    retry = Retry.NEVER
    remedy = (
        "Give the addresses of the cluster that the changefeed was created for; another cluster needs a changefeed "
        "of its own."
    )


class PdRefused(SourceError):
    """PD does not do what it was asked for; the message has its words."""

    code = "CDC:ErrPDRefused"
    retry = Retry.NEVER
    remedy = "Read PD's words in the message; a PD that is too old or a user without rights are the common causes."


class TsoFellBack(SourceError):
    """PD gave a timestamp at or below an earlier one; the message has both."""

    code = "CDC:ErrTsoFellBack"
    retry = Retry.NEVER
    remedy = (
        "Check the clocks and the last restore of PD. Do not resume before PD's timestamps are above the checkpoint "
        "again."
    )


class VersionIncompatible(EnvironmentFault):
    """A component of a cluster has a version that is not accepted; the message names both."""

    code = "CDC:ErrVersionIncompatible"
    remedy = (
        "Upgrade the component that the message names, or one that is refused only for being untried is accepted as "
        "docs/tidb-cluster.md tells."
    )


class KeyIsLocked(SourceError):
    """A read met the lock of a transaction that has not ended; the message names key, start_ts and the read's ts."""

    code = "CDC:ErrKeyIsLocked"
    remedy = (
        "It is tried again. If it lasts, end the transaction whose start_ts the message names "
        "(`information_schema.cluster_tidb_trx` in TiDB)."
    )


class LoadCancelled(SourceError):
    """A user has ended the full load of a feed before it was done."""

    code = "CDC:ErrLoadCancelled"
    retry = Retry.NEVER
    meanwhile = "Tables that were loaded stay; the others are not complete."
    remedy = "Resume the changefeed to load again, or set `load-from` anew."


class ClaimCheckUnavailable(SourceError):
    """The file of a claim check is missing, too large or another row's; the message names file, table and ts."""

    code = "CDC:ErrClaimCheckUnavailable"
    retry = Retry.NEVER
    remedy = (
        "Restore the file that the message names, or give `large-message-upstream-uri`, or skip the message by "
        "`tidegate dlq skip`."
    )


class UpstreamRowMissing(SourceError):
    """The upstream does not have, at a snapshot, a row whose key was sent; the message names table, key and ts."""

    code = "CDC:ErrUpstreamRowMissing"
    retry = Retry.NEVER
    remedy = (
        "If garbage collection took it, load the table again by `tidegate table reload`; or skip the message by "
        "`tidegate dlq skip`."
    )


class PoisonMessage(SourceError):
    """The feed stops at a message that cannot be decoded; the error names topic, partition, offset and ways out."""

    code = "CDC:ErrPoisonMessage"
    retry = Retry.NEVER
    remedy = (
        "`tidegate dlq list` and `dlq show` tell why it cannot be read. `dlq replay` decodes it with other bytes or "
        "options, `dlq skip` leaves it out; then resume."
    )


class PrewriteNotMatch(SourceError):
    """A commit came whose prewrite did not, after all prewrites had; the message names key, start_ts, commit_ts."""

    code = "CDC:ErrPrewriteNotMatch"
    meanwhile = "Other regions go on; the checkpoint waits for this one."
    remedy = (
        "The region is read again from its last resolved ts. If it comes again and again, a proxy or TiKV loses "
        "messages."
    )


class ResolvedTsBroken(SourceError):
    """A row was committed at or below a resolved ts; the message names key, start_ts, commit_ts, resolved_ts."""

    code = "CDC:ErrResolvedTsBroken"
    retry = Retry.NEVER
    meanwhile = "The changefeed stops at its checkpoint. What it wrote before may lack the row that came late."
    remedy = (
        "Do not resume into a target that counts: verify it first (`tidegate verify`), and repair or reload what "
        "differs."
    )


class CorruptedRow(SourceError):
    """A row whose checksum contradicts its values (integrity-check-level); the message names table, ts and key."""

    code = "CDC:ErrCorruptedDataMutation"
    retry = Retry.NEVER
    remedy = (
        "Compare the row upstream (`ADMIN CHECK TABLE` in TiDB). If it is right there, set `corruption-handle-level "
        '= "warn"` until the cause is found.'
    )


class SinkError(TidegateError):
    """The target is unreachable or busy."""

    code = "CDC:ErrSink"
    retry = Retry.LATER
    remedy = (
        "Check the target: reachable, not full, not read-only. It is tried again until "
        "`changefeed-error-stuck-duration`."
    )


class SinkRefused(SinkError):
    """The target refuses this permanently."""

    code = "CDC:ErrSinkRefused"
    retry = Retry.NEVER
    remedy = "Take one of the ways out that the message names, then resume."


class LoginRefused(SinkError):
    """The brokers refuse the client's account or certificate, or it refuses theirs; either side may be corrected."""

    code = "CDC:ErrKafkaNewProducer"
    remedy = "Correct account, password, SASL or certificate on either side, then resume."


class AccountRefused(LoginRefused):
    """The database refuses the account, or lacks a privilege that a feed needs; a GRANT may correct that."""

    code = "CDC:ErrMySQLConnectionError"
    remedy = "Correct the account, or GRANT the privileges that the message names (docs/databases.md), then resume."


class Fenced(SinkError):
    """Another writer has advanced the target; this one must stop or restart."""

    code = "CDC:ErrWriterFenced"
    retry = Retry.NEVER
    meanwhile = "The other writer goes on; this one writes nothing more."
    remedy = (
        "Nothing, if another run of the changefeed was started on purpose: that one goes on. Otherwise stop one of "
        "the two."
    )


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
    remedy = (
        "Apply or skip it by hand: `tidegate dlq` for a message, `tidegate sink` for a database; docs/security.md "
        "tells which texts are never executed."
    )


class StateTooNew(EnvironmentFault):
    """Stored state of a version that this release does not know; the message names the file or row, both versions, and
    what to do."""

    code = "CDC:ErrStateTooNew"
    remedy = (
        "Run the release that wrote the state, or a newer one; the message names it. Restore a backup if the older "
        "release must run."
    )


class EventTypeInvalid(ConfigError):
    """An unknown word of ignore-event; the message names it and the nearest known one."""

    code = "CDC:ErrInvalidIgnoreEventType"
    remedy = "Correct the word in `ignore-event`; docs/configuration.md lists them."


class DdlEventUnknown(ConfigError):
    """A DDL without an action, which its text does not determine either, so that ignore-event cannot be applied; the
    message names table, ts and text."""

    code = "CDC:ErrConvertDDLToEventTypeFailed"
    remedy = "Remove `ignore-event` from the rule for this table, or start behind the DDL."


class ExpressionParseFailed(ConfigError):
    """A value expression of an event filter is not SQL; the message shows it."""

    code = "CDC:ErrExpressionParseFailed"
    remedy = "Correct the expression; it is a condition as in WHERE, over the columns of one table."


class ExpressionColumnNotFound(ConfigError):
    """A value expression names a column that the table does not have; the message names expression and table."""

    code = "CDC:ErrExpressionColumnNotFound"
    remedy = "Correct the column's name, or let the rule's matcher name only tables that have it."


class RowFilterFailed(ConfigError):
    """A value expression has no value for a row, such as for a text that is no JSON; table and ts are named."""

    code = "CDC:ErrFailedToFilterDML"
    remedy = "Correct the expression so that it has a value for such rows, for example by IFNULL or JSON_VALID."


class ColumnSelectorFailed(ConfigError):
    """A column selector leaves no key of a table, or removes a column by which rows are dispatched; both are named."""

    code = "CDC:ErrColumnSelectorFailed"
    remedy = "Let the selector keep the columns of a key, and those by which rows are dispatched."


class PartitionNumInvalid(KafkaConfigInvalid):
    """partition-num is below 1, or above the topic's number; the message names both numbers."""

    code = "CDC:ErrKafkaInvalidPartitionNum"
    remedy = "Set `partition-num` between 1 and the number of the topic's partitions."


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
    remedy = "Make space, or correct the rights, where the message names a file; it is tried again."


class Overtaken(TidegateError):
    """The run that this one has taken over from published once more; the feed continues from the new position."""

    code = "CDC:ErrWriterOvertaken"
    retry = Retry.NEVER
    meanwhile = "The target is whole; no change is applied twice."
    remedy = "Nothing: the feed starts again at the new position by itself."


class SourceBehind(SourceError):
    """The source is empty, or does not reach the ts at which the feed continues; its writer may be late."""


class MadeAnew(HistoryLost):
    """A topic or a directory was deleted and created again, so that old positions are meaningless; or a target lost
    progress that its source has released. The message names both and the ways out."""

    code = "CDC:ErrSourceMadeAnew"
    remedy = "Take one of the ways out that the message names; mostly a fresh target or `--load initial`."


class ChangelogBroken(SourceError):
    """A commit of the changelog has no positions, so it is not Tidegate's; the message names the table."""

    retry = Retry.NEVER


class SameUpstream(ConfigError):
    """The target database is the one whose log is the source; the message names both."""

    code = "CDC:ErrSameUpstreamDownstream"
    remedy = "Name another target: a changefeed into its own source would follow itself for ever."
