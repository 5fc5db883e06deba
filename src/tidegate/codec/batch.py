"""Events to messages: batching, and the handling of rows that are too large.

    append(row) ─→ encode ─→ compress ─→ too large? ─no──────────────→ the open message, or a new one
                                            │ handle-key-only ─→ handle columns alone ─┤
                                            │ claim-check ─→ file + its location ──────┤
                                            └ none, or still too large ─→ MessageTooLarge

A Kafka record costs 36 bytes besides key and value.  Sizes are those of TiCDC:

    one event alone     open    len(key JSON) + len(value) + 16 + 8 + 36      canal    len(value) + 36
    a message so far    open    len(key) + len(value) + 36                    one event a message

A new message starts when none is open, when the open one has max-batch-size rows, or when it would be larger than
the limit with the event's key JSON, value and 16 bytes of lengths.  DDLs and resolved timestamps are messages of
their own, not measured, and close the open one before them, so that messages are in the order of the events.

`BatchEncoder` does no I/O: the clock of canal-json and the storage of claim checks are functions that it is given.

Source: TiCDC's encoders; recordings.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from tidegate.codec.canal_encode import CanalEncoder
from tidegate.codec.claim import HANDLES, WHOLE, Cut, claim, claim_location, cut_of, pack_claim
from tidegate.codec.compression import compress
from tidegate.codec.encoding import EncodeOptions, check_marks
from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.open_encode import EVENT_OVERHEAD, VERSION_BYTES, OpenEncoder, Pair, pack
from tidegate.codec.values import MAX_RESOLVED_TS, MAX_ROW_TS
from tidegate.codec.wire_table import WireTable, table_of_row
from tidegate.model.errors import EncodeError, MessageTooLarge, redacted_value
from tidegate.model.event import Ddl, Event, Field, Resolved, RowChange, images

RECORD_OVERHEAD: Final = 36
"""The largest overhead of a Kafka record: five 32-bit varints, one of 64 bits, and a byte."""

Entry = TypeVar("Entry")
_MAX_KEY_SHOWN: Final = 200


class MessageKind(IntEnum):
    """The type of a message, by TiCDC's numbers."""

    ROW = 1
    DDL = 2
    RESOLVED = 3


class Message(NamedTuple):
    """One message: its key (None for canal-json), its value, and its number of rows.

    >>> from tidegate.model.event import Resolved
    >>> BatchEncoder(encode_options({}, "open-protocol")).append(Resolved(7))[0]
    Message(key=b'...{"ts":7,"t":3}', value=..., rows=0, kind=<MessageKind.RESOLVED: 3>)"""

    key: bytes | None
    value: bytes
    rows: int
    kind: MessageKind

    @property
    def size(self) -> int:
        """Bytes that count against max-message-bytes."""
        return len(self.key or b"") + len(self.value) + RECORD_OVERHEAD


class ClaimStore(Protocol):
    """The storage of claim check files (claim-check-storage-uri)."""

    def new_name(self) -> str:
        """Return a new file name; TiCDC's are a random UUID and `.json`."""

    def put(self, name: str, body: bytes) -> None:
        """Stores `body` under `name`."""


class BatchEncoder:
    """Events in, messages out.

    Parameters:
        options: the protocol, and what TiCDC's changefeed would have
        now_ms: the clock of canal-json
        claims: where large rows are stored, for claim-check only

    Raises ConfigError: a handling of large rows that the protocol does not support

    >>> from tidegate.model.event import Resolved
    >>> encoder = BatchEncoder(encode_options({"enable-tidb-extension": True}, "canal-json"))
    >>> encoder.append(Resolved(7))[0].value
    b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,...,"_tidb":{"watermarkTs":7}}'
    """

    def __init__(
        self,
        options: EncodeOptions,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        claims: ClaimStore | None = None,
    ) -> None:
        check_marks(options)
        if options.large_message_handle == "claim-check" and claims is None:
            raise EncodeError("large-message-handle-option=claim-check needs a storage for the files: give `claims`")
        self.options = options
        self._claims = claims
        self._open = OpenEncoder(options)
        self._canal = CanalEncoder(options, now_ms)
        self._is_open = options.protocol == "open-protocol"
        self._pairs: list[Pair] = []
        self._size = 0
        self._tables = LayoutMemory[tuple[int, tuple[str, ...] | None], tuple[tuple[Field, ...], WireTable]](TABLES_MAX)

    def append(self, event: Event, table: WireTable | None = None, row_key: bytes | None = None) -> tuple[Message, ...]:
        """Return the messages that `event` completes; it may itself stay in an open one until `flush`.

        `table` describes the values of a row; without it, the row's own fields do.  A row that is refused (EncodeError)
        leaves the encoder as it was."""
        match event:
            case Ddl():
                done = self._ddl(event)
            case Resolved():
                done = self._resolved(event)
            case _:
                return self._row(event, table or self._table_of(event), row_key)
        return (*self.flush(), *done)

    def flush(self) -> tuple[Message, ...]:
        """Return the open message, if there is one."""
        if not self._pairs:
            return ()
        key, value = pack(self._pairs)
        done = Message(key, value, len(self._pairs), MessageKind.ROW)
        self._pairs, self._size = [], 0
        return (done,)

    def pair(self, row: RowChange, table: WireTable, row_key: bytes | None = None) -> Pair:
        """Return key JSON and value of a row before they are framed and batched, cut down if the row is too large.

        Raises what `append` raises."""
        _check(row, table)
        cut = cut_of(row)
        if cut is not WHOLE and not (self._is_open or self.options.enable_tidb_extension):
            raise EncodeError(
                f"a row of {row.schema}.{row.table} with its handle columns alone needs "
                "enable-tidb-extension=true, where the mark of such rows stands"
            )
        pair = self._encoded(row, table, cut, row_key)
        if self._alone(pair) > self.options.max_message_bytes:
            pair = self._degraded(row, table, pair, row_key)
        return pair

    def _row(self, row: RowChange, table: WireTable, row_key: bytes | None) -> tuple[Message, ...]:
        pair = self.pair(row, table, row_key)
        if not self._is_open:
            return (Message(None, pair.value, 1, MessageKind.ROW),)
        grown = len(pair.key) + len(pair.value) + EVENT_OVERHEAD
        full = len(self._pairs) >= self.options.max_batch_size or self._size + grown > self.options.batch_limit
        done = self.flush() if full else ()
        if not self._pairs:
            self._size = VERSION_BYTES + RECORD_OVERHEAD
        self._pairs.append(pair)
        self._size += grown
        return done

    def _degraded(self, row: RowChange, table: WireTable, whole: Pair, row_key: bytes | None) -> Pair:
        handling = self.options.large_message_handle
        if handling == "none":
            raise self._too_large(row, table, whole)
        if handling == "handle-key-only":
            pair = self._encoded(row, table, HANDLES, row_key)
            if self._alone(pair) > self.options.max_message_bytes:
                raise self._too_large(row, table, pair)
            return pair
        return self._claimed(row, table, whole, row_key)

    def _claimed(self, row: RowChange, table: WireTable, whole: Pair, row_key: bytes | None) -> Pair:
        """A claim check; its file is written only if the message fits, so that none is left over."""
        assert self._claims is not None
        name = self._claims.new_name()
        location = claim_location(self.options.claim_check_storage_uri, name)
        pair = self._encoded(row, table, claim(location), row_key)
        if self._alone(pair) > self.options.max_message_bytes:
            raise self._too_large(row, table, pair)
        key, value = pack([whole]) if self._is_open else (None, whole.value)
        self._claims.put(name, pack_claim(key, value, raw_value=self.options.claim_check_raw_value))
        return pair

    def _encoded(self, row: RowChange, table: WireTable, cut: Cut, row_key: bytes | None) -> Pair:
        if self._is_open:
            key, value = self._open.row(row, table, cut)
        else:
            key, value = b"", self._canal.row(row, table, cut, row_key)
        return Pair(key, compress(value, self.options.compression) if self.options.compression != "none" else value)

    def _alone(self, pair: Pair) -> int:
        """The size of a message with this event alone."""
        extra = EVENT_OVERHEAD + VERSION_BYTES if self._is_open else 0
        return len(pair.key) + len(pair.value) + RECORD_OVERHEAD + extra

    def _ddl(self, ddl: Ddl) -> tuple[Message, ...]:
        if ddl.commit_ts is not None and not 0 <= ddl.commit_ts <= MAX_ROW_TS:
            raise EncodeError(f"a DDL has commit_ts {ddl.commit_ts}, which is not between 0 and {MAX_ROW_TS}")
        compression = self.options.compression
        if not self._is_open:
            return (Message(None, compress(self._canal.ddl(ddl), compression), 0, MessageKind.DDL),)
        key, value = self._open.ddl(ddl)
        return (Message(*pack([Pair(key, compress(value, compression))]), 0, MessageKind.DDL),)

    def _resolved(self, event: Resolved) -> tuple[Message, ...]:
        if not 0 <= event.ts <= MAX_RESOLVED_TS:
            raise EncodeError(f"resolved timestamp {event.ts} is not between 0 and {MAX_RESOLVED_TS}")
        if self._is_open:
            return (Message(*pack([self._open.resolved(event.ts)]), 0, MessageKind.RESOLVED),)
        value = self._canal.resolved(event.ts)
        if value is None:
            return ()
        return (Message(None, compress(value, self.options.compression), 0, MessageKind.RESOLVED),)

    def _table_of(self, row: RowChange) -> WireTable:
        """The table of a decoded row; rows of one layout share their fields, so those are known by identity."""
        key = (id(row.fields), row.pk_names)
        cached = self._tables.get(key)
        if cached is None:
            cached = self._tables.keep(key, (row.fields, table_of_row(row)))
        return cached[1]

    def _too_large(self, row: RowChange, table: WireTable, pair: Pair) -> MessageTooLarge:
        options = self.options
        settings = f"max-message-bytes={options.max_message_bytes}, "
        settings += f"large-message-handle-option={options.large_message_handle}, "
        settings += f"large-message-handle-compression={options.compression}"
        where = f"{row.schema}.{row.table}"
        return MessageTooLarge(where, _key_text(row, table), self._alone(pair), options.max_message_bytes, settings)


def _check(row: RowChange, table: WireTable) -> None:
    where, width = f"{row.schema}.{row.table}", len(table.columns)
    before, after = images(row)
    if not row.schema or not row.table:
        raise EncodeError(f"a row of {where!a} names no table")
    if not width or {width} != {width if values is None else len(values) for values in (before, after)}:
        raise EncodeError(f"a row of {where} has not as many values as its table has columns ({width})")
    if row.commit_ts is not None and not 0 <= row.commit_ts <= MAX_ROW_TS:
        raise EncodeError(f"a row of {where} has commit_ts {row.commit_ts}, which is not between 0 and {MAX_ROW_TS}")
    for number in (row.row_id, row.partition_id):
        if number is not None and not -MAX_ROW_TS <= number + 1 <= MAX_ROW_TS + 1:
            raise EncodeError(f"a row of {where} has a row or partition id of more than 64 bits: {number}")


def _key_text(row: RowChange, table: WireTable) -> str:
    """The handle key of a row as text, cut to a length for logs."""
    before, after = images(row)
    values = before if after is None else after
    assert values is not None
    named = [f"{c.name}={redacted_value(v)}" for c, v in zip(table.columns, values, strict=True) if c.handle]
    return f"({', '.join(named) or 'no handle key'})"[:_MAX_KEY_SHOWN]


def join_for_storage(messages: list[Message], terminator: str) -> bytes:
    """Return the file of a storage sink: values, each with `terminator` after it. It has no keys."""
    end = terminator.encode()
    return b"".join(part for message in messages for part in (message.value, end))


def calls_of(
    entries: Iterable[Entry], size_of: Callable[[Entry], int], *, most_bytes: int, most: int | None = None
) -> Iterator[list[Entry]]:
    """Return the entries of each call, in order: at most `most`, and at most `most_bytes` unless there is only one."""
    call, size = list[Entry](), 0
    for entry in entries:
        more = size_of(entry)
        if call and (len(call) == most or size + more > most_bytes):
            yield call
            call, size = [], 0
        call.append(entry)
        size += more
    if call:
        yield call
