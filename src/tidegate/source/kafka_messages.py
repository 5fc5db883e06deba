"""Messages of one Kafka partition decoded to row changes in columns: landing without Kafka and without Spark.

    (offset, key, value) ...  ->  LandedMessages
        tables     table name -> Arrow table of ROWS_SCHEMA, rows in arrival order
        ddls       all of them, whichever tables the feed replicates
        letters    messages that cannot be read, under policy "skip" or by resolution
        resolved   the largest resolved ts
        position   the offset after the last message that is processed
        halt       why it stops before the end, with the message there

A chunk of messages (`TopicMessages`) is columns of offsets, keys and values.  `decode_chunk` decodes most rows of it by
columns; the remainder goes event by event, as do messages with rows of a table that an event filter names.  A halt at
message i drops what the batches have of i and later.  A row's `seq` is its number among the events of its message.

A message lands completely or not at all.  These make it a dead letter: undecodable bytes; a message above the limit; a
row with only its handle key, unless it is a DELETE or the upstream can be asked and has the row; a claim check whose
file is missing or too large; a commit_ts beyond BIGINT; text that is not Unicode; a resolved ts in the future.  A
resolved ts beyond BIGINT (TiCDC sends 2^64-1 for "nothing is to come") is ignored: waiting is safe.

A row without commit_ts (canal-json without the TiDB extension) cannot be ordered: order "ts" halts, unless the topic
has had timestamps; then it is one bad message.  Order "offset" assigns `max(es << 18, last + 1)`, increasing in each
partition from the largest one of the previous batch, so that nothing lands late; across partitions it means nothing.

A claim check of a hundred bytes may stand for a row of megabytes, so `land_messages` ends early after the message with
which WHOLE_BYTES of such rows are held; `land_chunk` continues at `position`.  `CutRows` completes cut rows in order;
its reader and connections are kept for the life of the process, one per set of options.

A resolution is a user's decision about a message that the feed could not read, one JSON file each:

    LAKE/_tidegate/resolutions/<topic>-<partition>-<offset>.json

    {"topic": "shop", "partition": 2, "offset": 7041, "action": "skip"}
    {..., "action": "replace", "key_b64": ..., "value_b64": ..., "options": {"compression": "lz4"}}

A landing reads them when it starts.  `skip` makes the message a dead letter; `replace` decodes the given bytes, or
those of the topic if none are given, with the given options.  The files are kept as a record.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, overload

import msgspec
import obstore
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog.files import Encoded, Encoder, Halt, RowColumns, landed_batch
from tidegate.codec import decode
from tidegate.codec.columnar import Batch, Pairs, PlainMessage, decode_chunk
from tidegate.codec.columnar.sweep import PackedTexts
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import DeadLetter, EventPosition, SourceDdl
from tidegate.engine.event_filter import MessageFilter
from tidegate.engine.frontier import larger
from tidegate.model.errors import ConfigError, DecodeError, InputError, SchemaError, TidegateError, redacted_value
from tidegate.model.event import Ddl, Delete, Event, Resolved, RowChange, images
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.name import all_digits, qualified
from tidegate.model.path_counts import PathCounts, Reason, SlowReason
from tidegate.model.table import TableName
from tidegate.model.tso import LOGICAL_BITS, MAX_TS
from tidegate.objectstore.stores import listed, store, writable
from tidegate.source.large import WholeRows


class TopicMessage(NamedTuple):
    """One Kafka message."""

    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class TopicMessages(Sequence[TopicMessage]):
    """Some messages of one partition, by ascending offset."""

    __slots__ = ("keys", "offsets", "size_bytes", "values")

    def __init__(self, offsets: list[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        self.offsets, self.keys, self.values = offsets, keys, values
        self.size_bytes = _size_bytes(keys) + _size_bytes(values)

    @classmethod
    def of(cls, messages: Iterable[TopicMessage]) -> "TopicMessages":
        """Return these messages as columns."""
        if isinstance(messages, TopicMessages):
            return messages
        some = list(messages)
        return cls(*map(list, zip(*some, strict=True))) if some else cls([], [], [])

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> TopicMessage: ...
    @overload
    def __getitem__(self, index: slice) -> "TopicMessages": ...
    def __getitem__(self, index: int | slice) -> "TopicMessage | TopicMessages":
        if isinstance(index, slice):
            return TopicMessages(self.offsets[index], self.keys[index], self.values[index])
        return TopicMessage(self.offsets[index], self.keys[index], self.values[index])

    def __iter__(self) -> Iterator[TopicMessage]:
        return map(TopicMessage, self.offsets, self.keys, self.values)

    def pieces(self, limit_bytes: int) -> Iterator["TopicMessages"]:
        """Return the messages in order, in runs of at most `limit_bytes` or one message, and drop each run
        afterwards."""
        self.keys, self.values = keys, values = list(self.keys), list(self.values)
        for column in (self.offsets, keys, values):
            column.reverse()
        while self.offsets:
            size_bytes = count = 0
            for key, value in zip(reversed(keys), reversed(values), strict=True):
                size_bytes += len(key or b"") + len(value or b"")
                if count and size_bytes > limit_bytes:
                    break
                count += 1
            piece = TopicMessages(self.offsets[: -count - 1 : -1], keys[: -count - 1 : -1], values[: -count - 1 : -1])
            for column in (self.offsets, keys, values):
                del column[-count:]
            yield piece


def _size_bytes(texts: Sequence[bytes | None]) -> int:
    return texts.size_bytes if isinstance(texts, PackedTexts) else sum(map(len, filter(None, texts)))


FOLDER: Final = "_tidegate/resolutions"
ACTIONS: Final = ("skip", "replace")
SAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class Resolution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about the message at one position."""

    topic: str
    partition: int
    offset: int
    action: str
    key_b64: str | None = None
    value_b64: str | None = None
    options: dict[str, str] = {}
    topic_id: str = ""
    """The id of the message's topic, if known: in another topic the offset means another message."""

    @property
    def position(self) -> EventPosition:
        return EventPosition(self.topic, self.partition, self.offset)

    def message(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Return the bytes to decode instead of (key, value)."""
        return _instead(self.key_b64, key), _instead(self.value_b64, value)


def _instead(text: str | None, original: bytes | None) -> bytes | None:
    return original if text is None else base64.b64decode(text)


def record(lake: str, resolution: Resolution) -> str:
    """Write a resolution into the lake, replacing an earlier one of the same position; return its path."""
    assert resolution.action in ACTIONS, resolution.action
    topic = SAFE.sub("_", resolution.topic)
    path = f"{FOLDER}/{topic}-{resolution.partition}-{resolution.offset}.json"
    obstore.put(writable(lake), path, encode_state(StateKind.RESOLUTION, resolution))
    return path


def recorded(lake: str, identities: Mapping[str, str] = MappingProxyType({})) -> dict[EventPosition, Resolution]:
    """Return every resolution of a lake by position, without those of topics that were recreated since. Raises
    ConfigError for an invalid file."""
    resolutions = {}
    for entry in listed(lake, FOLDER):
        path = str(entry["path"])
        if not path.endswith(".json"):
            continue
        resolution = _parse(f"{lake}/{path}", obstore.get(store(lake), path).bytes().to_bytes())
        if resolution.topic_id in {"", identities.get(resolution.topic, resolution.topic_id)}:
            resolutions[resolution.position] = resolution
    return resolutions


def bind(lake: str, topic: str, topic_id: str) -> None:
    """Add the topic id to resolutions that an earlier release recorded without it."""
    for resolution in recorded(lake).values():
        if resolution.topic == topic and not resolution.topic_id:
            record(lake, msgspec.structs.replace(resolution, topic_id=topic_id))


def _parse(path: str, body: bytes) -> Resolution:
    try:
        resolution = decode_state(StateKind.RESOLUTION, body, Resolution, path)
        resolution.message(None, None)
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError) as broken:
        raise ConfigError(f"{path}: {broken}; delete the file or record the resolution again") from broken
    if resolution.action not in ACTIONS:
        raise ConfigError(f"{path}: action {resolution.action!r} is not one of {', '.join(ACTIONS)}")
    with_options(DecodeOptions(protocol="open-protocol"), resolution.options)
    return resolution


def with_options(options: DecodeOptions, changes: Mapping[str, str]) -> DecodeOptions:
    """Return `options` with `changes` (field names, `-` for `_` allowed). Raises ConfigError that names the valid
    ones."""
    renamed = {name.replace("-", "_"): value for name, value in changes.items()}
    types = {field: type(getattr(options, field)) for field in DecodeOptions.__struct_fields__}
    unknown = sorted(set(renamed) - set(types))
    if unknown:
        raise ConfigError(f"decode option {unknown[0]!r} is not one of {', '.join(types)}")
    try:
        return msgspec.convert({**msgspec.to_builtins(options), **renamed}, DecodeOptions, strict=False)
    except msgspec.ValidationError as broken:
        raise ConfigError(f"decode options: {broken}") from broken


def parse_position(text: str) -> EventPosition:
    """Return the position that TOPIC/PARTITION/OFFSET names; the topic of files is their directory."""
    rest, _, offset = text.rpartition("/")
    topic, _, partition = rest.rpartition("/")
    if not topic or not (all_digits(partition) and all_digits(offset)):
        raise ConfigError(f"{text!r} is not a position: write TOPIC/PARTITION/OFFSET, such as shop/2/7041")
    return EventPosition(topic, int(partition), int(offset))


@lru_cache(maxsize=4)
def _reader(options: DecodeOptions) -> WholeRows:
    return WholeRows(options)


def is_cut(event: Event) -> bool:
    """Return whether an event is an incomplete row that cannot land; for a DELETE the key is enough."""
    return not isinstance(event, Ddl | Resolved | Delete) and (event.handle_only or event.claim_check is not None)


class CutRows:
    """The incomplete rows among the `events` of a chunk, of tables that `accept` takes."""

    def __init__(
        self, events: Iterable[Event], options: DecodeOptions, accept: Callable[[str, str], bool] | None
    ) -> None:
        reader = _reader(options)
        rows = [event for event in events if is_cut(event) and reader.makes_whole(event)]
        mine = [row for row in rows if accept is None or accept(row.schema, row.table)]
        self._ahead: Iterator[tuple[RowChange, RowChange | TidegateError]] = zip(mine, reader.whole(mine), strict=True)
        self._row_ids = {id(row) for row in mine}

    def whole(self, row: RowChange, options: DecodeOptions) -> RowChange | TidegateError | None:
        """Return the complete row, or the error; None when no storage or upstream is configured.

        Rows of the chunk are requested in order; rows that were not requested are skipped."""
        if id(row) in self._row_ids:
            return next(row_cut for known_row, row_cut in self._ahead if known_row is row)
        reader = _reader(options)
        return next(reader.whole([row])) if reader.makes_whole(row) else None


Accept: TypeAlias = Callable[[str, str], bool]

HANDLE_ONLY: Final = "CDC:ErrHandleKeyOnly"
CLAIM_CHECK: Final = "CDC:ErrClaimCheckUnavailable"
WHOLE_BYTES: Final = 64 << 20
"""Bytes of completed rows to hold before a run ends."""
TOO_LARGE: Final = "CDC:ErrMessageTooLarge"
BAD_TS: Final = "CDC:ErrTimestampOutOfRange"
BAD_TEXT: Final = "CDC:ErrTextNotUnicode"
SKIPPED: Final = "CDC:ErrSkippedByResolution"
NO_ORDER: Final = "CDC:ErrNoCommitTs"

_BY_OFFSET: Final = SlowReason(Reason.BY_OFFSET, "order=offset makes up each row's timestamp")
_RESOLVED: Final = SlowReason(Reason.RESOLUTION, "a message with a resolution")
_JUDGED: Final = SlowReason(Reason.EVENT_FILTER, "an event filter looks at each row")

NO_COMMIT_TS: Final = (
    "its rows have no commit_ts, so they cannot be ordered: TiCDC's changefeed writes canal-json without the TiDB "
    "extension. Set enable-tidb-extension=true on it and start from a new topic, or accept order=offset (order within "
    "each partition only, no consistency across partitions)"
)


@dataclass(frozen=True, slots=True)
class LandPlan:
    """The plan for landing one partition. `accept` decides whether the feed carries a table (None: all)."""

    topic: str
    partition: int
    options: DecodeOptions = field(repr=False)
    accept: Accept | None = None
    resolutions: Mapping[int, Resolution] = field(default_factory=dict)
    skip_dead: bool = False
    order_by_offset: bool = False
    message_bytes: int | None = None
    """The limit for decoding a message (None: no limit)."""
    judge: MessageFilter | None = None
    """The event filters for rows."""
    latest_ts: int = MAX_TS
    """The largest plausible resolved ts: a larger one would hide all later rows below it."""

    def position_of(self, offset: int, seq: int = 0) -> EventPosition:
        """Return the position of an event."""
        return EventPosition(self.topic, self.partition, offset, seq)


@dataclass(slots=True)
class LandedMessages:
    """The result of a run of messages; see the module's drawing. `clock` is the last generated timestamp."""

    position: int
    clock: int = 0
    tables: dict[TableName, pa.Table] = field(default_factory=dict)
    ddls: list[SourceDdl] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    resolved: int | None = None
    since: int | None = None
    """The first resolved ts."""
    messages: int = 0
    filtered: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts, compare=False)
    """Rows by decode path, without those of tables that the feed does not carry."""
    halt: Halt | None = None
    halted_at: DeadLetter | None = None

    def then(self, later: "LandedMessages") -> "LandedMessages":
        """Return both runs as one, without their rows, DDLs and letters."""
        return LandedMessages(
            position=later.position,
            clock=later.clock,
            resolved=larger(self.resolved, later.resolved),
            since=later.since if self.since is None else self.since,
            messages=self.messages + later.messages,
            filtered=self.filtered + later.filtered,
            path_counts=self.path_counts + later.path_counts,
            halt=later.halt,
            halted_at=later.halted_at,
        )


class _Bad(NamedTuple):
    code: str
    reason: str
    offset: int = 0


@dataclass(slots=True)
class _Draft:
    """The rows and DDLs of one message, as far as it has been read."""

    clock: int
    rows: list[Encoded] = field(default_factory=list)
    ddls: list[SourceDdl] = field(default_factory=list)
    resolved: int | None = None
    filtered: int = 0
    whole_bytes: int = 0
    """Bytes of completed rows, which may be much larger than their message."""


def land_messages(
    messages: Iterable[TopicMessage], plan: LandPlan, encoder: Encoder | None = None, *, start: int = 0, clock: int = 0
) -> LandedMessages:
    """Land `messages`, which begin at offset `start`; stop before the first that halts the feed. Raises SourceError
    when incomplete rows cannot be fetched now."""
    landed = LandedMessages(start, clock)
    encoder = encoder or Encoder()
    chunk = TopicMessages.of(messages)
    batches, rest, judged = _decoded(chunk, plan)
    events = [event for _, message in rest if message is not None and message.error is None for event in message.events]
    cut = CutRows(events, plan.options, plan.accept)
    columns: dict[TableName, RowColumns] = {}
    stop, whole_bytes = len(chunk), 0
    for index, outcome in rest:
        message = chunk[index]
        draft = _resolve(message, outcome, plan, encoder, cut, landed.clock)
        if isinstance(draft, _Bad):
            position = plan.position_of(message.offset)
            letter = DeadLetter(position, draft.code, draft.reason, draft.offset, message.key, message.value)
            no_order = draft.code == NO_ORDER and not (
                clock or batches or any(isinstance(event, Resolved) or event.commit_ts is not None for event in events)
            )
            resolution = plan.resolutions.get(message.offset)
            skips = plan.skip_dead or (resolution is not None and resolution.action == "skip")
            if no_order or not skips:
                landed.halt = Halt(plan.topic, plan.partition, message.offset, draft.code, draft.reason, no_order)
                landed.halted_at = letter
                stop = index
                break
            landed.letters.append(letter)
        else:
            _take(draft, message.offset, plan, landed, columns)
            if draft.rows:
                landed.path_counts.add(
                    "land/rows", len(draft.rows), _slow_reason(outcome, message, plan), draft.rows[0].name
                )
            whole_bytes += draft.whole_bytes
            if whole_bytes >= WHOLE_BYTES:
                stop = index + 1
                break
    landed.messages = stop
    landed.position = chunk.offsets[stop - 1] + 1 if stop else start
    parts = {name: [into.table()] for name, into in columns.items()}
    offsets = pa.array(chunk.offsets, pa.int64())
    for batch in batches:
        landed.path_counts.add("land/template", _take_batch(batch, offsets, stop, plan, landed, parts, judged))
    landed.tables = {name: _joined(some) for name, some in parts.items()}
    return landed


def land_chunk(
    chunk: TopicMessages, plan: LandPlan, encoder: Encoder, *, start: int, clock: int
) -> Iterator[LandedMessages]:
    """Land `chunk` in runs that the bytes of completed rows limit; the last one ends before a message that halts the
    feed."""
    done, size = 0, len(chunk)
    while done < len(chunk):
        piece = chunk[done : done + size]
        landed = land_messages(piece, plan, encoder, start=start, clock=clock)
        yield landed
        if landed.halt is not None:
            return
        done, start, clock = done + landed.messages, landed.position, landed.clock
        if landed.messages < len(piece):
            size = 2 * landed.messages


def _slow_reason(outcome: PlainMessage | None, message: TopicMessage, plan: LandPlan) -> SlowReason | None:
    if outcome is not None:
        return outcome.slow_reason
    if plan.order_by_offset:
        return _BY_OFFSET
    return _RESOLVED if message.offset in plan.resolutions else _JUDGED


def _decoded(
    chunk: TopicMessages, plan: LandPlan
) -> tuple[Sequence[Batch], list[tuple[int, PlainMessage | None]], pa.Array]:
    """Rows as columns, the messages to handle event by event (with the result of the plain decoder, if it ran), and
    those of them that may have rows among the columns as well.

    Messages with a resolution are decoded with its options, and generated timestamps follow the order of events."""
    nothing = pa.array((), pa.int32())
    if plan.order_by_offset:
        return (), [(index, None) for index in range(len(chunk))], nothing
    aside = _aside(chunk, plan)
    usual = [index for index in range(len(chunk)) if index not in aside] if aside else range(len(chunk))
    some = TopicMessages.of(chunk[index] for index in usual) if aside else chunk
    decoded = decode_chunk(Pairs(some.keys, some.values), plan.options, as_texts=True)
    batches: Sequence[Batch] = decoded.batches
    if aside:
        numbers = pa.array(usual, pa.int32())
        batches = [replace(batch, message=numbers.take(batch.message)) for batch in batches]
    rest: list[tuple[int, PlainMessage | None]] = [(usual[message.message], message) for message in decoded.rest]
    judged = _judged(batches, plan) or nothing
    alone = aside.union(judged.to_pylist())
    rest = [pair for pair in rest if pair[0] not in alone]
    rest = sorted([*rest, *((index, None) for index in alone)], key=lambda pair: pair[0])
    return batches, rest, judged


def _judged(batches: Sequence[Batch], plan: LandPlan) -> "pa.Array | None":
    """The messages with rows for an event filter, or without commit_ts (`_kept`)."""
    judged = [batch.message.filter(pc.less(batch.commit_ts, 1)) for batch in batches]
    if plan.judge is not None:
        judged += [batch.message for batch in batches if plan.judge.judges(batch.schema, batch.table)]
    judged = [rows for rows in judged if len(rows)]
    return pc.unique(pa.concat_arrays([rows.cast(pa.int32()) for rows in judged])) if judged else None


def _aside(chunk: TopicMessages, plan: LandPlan) -> set[int]:
    """The messages that have a resolution or are too large; checking a chunk without any is cheap."""
    limit = plan.message_bytes
    aside = set()
    if plan.resolutions:
        aside = {index for index, offset in enumerate(chunk.offsets) if offset in plan.resolutions}
    if limit is not None and chunk.size_bytes > limit:
        aside |= {index for index, message in enumerate(chunk) if _too_large(message, plan) is not None}
    return aside


def _take(
    draft: _Draft, offset: int, plan: LandPlan, landed: LandedMessages, columns: dict[TableName, RowColumns]
) -> None:
    for row in draft.rows:
        into = columns.get(row.name)
        if into is None:
            into = columns[row.name] = RowColumns(plan.topic, plan.partition, row.name)
        into.add(offset, row)
    landed.ddls += draft.ddls
    landed.resolved = larger(landed.resolved, draft.resolved)
    landed.since = draft.resolved if landed.since is None else landed.since
    landed.clock = draft.clock
    landed.filtered += draft.filtered


def _take_batch(  # noqa: PLR0917 - one step of land_messages
    batch: Batch,
    offsets: pa.Array,
    stop: int,
    plan: LandPlan,
    landed: LandedMessages,
    parts: dict[TableName, list[pa.Table]],
    judged: pa.Array,
) -> int:
    """Add the rows of a batch before message `stop`, except those of messages `judged` event by event, if the feed
    carries their table. Return their number."""
    before = pc.less(batch.message, stop)
    if len(judged):
        before = pc.and_(before, pc.invert(pc.is_in(batch.message, judged.cast(batch.message.type))))
    if plan.accept is not None and not plan.accept(batch.schema, batch.table):
        landed.filtered += pc.sum(before).as_py() or 0
        return 0
    rows = landed_batch(plan.topic, plan.partition, offsets, batch)
    if stop < len(offsets) or len(judged):
        rows = rows.filter(before)
    if rows.num_rows:
        parts.setdefault(TableName(batch.schema, batch.table), []).append(rows)
    return int(rows.num_rows)


def _joined(parts: list[pa.Table]) -> pa.Table:
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    return rows.take(pc.sort_indices(rows, sort_keys=[("offset", "ascending"), ("seq", "ascending")]))


def _resolve(  # noqa: PLR0917 - one step of land_messages
    message: TopicMessage, outcome: PlainMessage | None, plan: LandPlan, encoder: Encoder, cut: CutRows, clock: int
) -> _Draft | _Bad:
    resolution = plan.resolutions.get(message.offset)
    if resolution is None:
        return _read(message, plan, encoder, cut, clock, outcome)
    if resolution.action == "skip":
        draft = _read(message, plan, encoder, cut, clock)
        return draft if isinstance(draft, _Bad) else _Bad(SKIPPED, "readable, but a resolution skips it")
    changed = replace(plan, options=with_options(plan.options, resolution.options))
    replaced = TopicMessage(message.offset, *resolution.message(message.key, message.value))
    return _read(replaced, changed, encoder, cut, clock)


def _too_large(message: TopicMessage, plan: LandPlan) -> int | None:
    limit = plan.message_bytes
    return message.size_bytes if limit is not None and message.size_bytes > limit else None


def _read(  # noqa: PLR0917 - one step of land_messages
    message: TopicMessage,
    plan: LandPlan,
    encoder: Encoder,
    cut: CutRows,
    clock: int,
    outcome: PlainMessage | None = None,
) -> _Draft | _Bad:
    if (size_bytes := _too_large(message, plan)) is not None:
        return _Bad(
            TOO_LARGE,
            f"{size_bytes} bytes, above the limit of {plan.message_bytes}: raise max-message-bytes of the source (the "
            f"worker needs some eight times as much memory), or let TiCDC's changefeed send large rows by claim-check "
            f"or as their handle key",
        )
    try:
        if outcome is None:
            events = decode(message.key, message.value, plan.options)
        elif outcome.error is not None:
            raise outcome.error
        else:
            events = outcome.events
    except DecodeError as broken:
        return _Bad(broken.code, str(broken), broken.offset)
    draft = _Draft(clock)
    for seq, event in enumerate(events):
        bad = _add(event, draft, plan.position_of(message.offset, seq), plan, encoder, cut)
        if bad is not None:
            return bad
    return draft


def _add(  # noqa: PLR0917 - one step of land_messages
    event: Event, draft: _Draft, position: EventPosition, plan: LandPlan, encoder: Encoder, cut: CutRows
) -> _Bad | None:
    if isinstance(event, Resolved):
        if plan.order_by_offset or not 0 <= event.ts <= MAX_TS:
            return None
        if event.ts > plan.latest_ts:
            return _Bad(
                BAD_TS,
                f"resolved ts {event.ts} lies more than a day ahead of this machine's clock: not sent by a "
                f"changefeed, or one of the clocks is wrong",
            )
        draft.resolved = larger(draft.resolved, event.ts)
        return None
    if not isinstance(event, Ddl) and plan.accept is not None and not plan.accept(event.schema, event.table):
        draft.filtered += 1
        return None
    if not isinstance(event, Ddl) and is_cut(event):
        whole = cut.whole(event, plan.options)
        if whole is None or isinstance(whole, TidegateError):
            return _still_cut(event, whole)
        event = whole
        values = (value for image in images(event) for value in image or () if isinstance(value, str | bytes))
        draft.whole_bytes += sum(map(len, values))
    try:
        if not isinstance(event, Ddl) and plan.judge is not None and plan.judge.drops(event):
            draft.filtered += 1
            return None
    except (InputError, SchemaError) as error:
        return _Bad(error.code, str(error))
    return _kept(event, draft, position, plan, encoder)


def _kept(
    event: RowChange | Ddl, draft: _Draft, position: EventPosition, plan: LandPlan, encoder: Encoder
) -> _Bad | None:
    if plan.order_by_offset:
        # as late as the event says it happened, and later than the one before
        ms = event.es_ms if event.es_ms is not None else (event.commit_ts or 0) >> LOGICAL_BITS
        draft.clock = max(ms << LOGICAL_BITS, draft.clock + 1)
        event = msgspec.structs.replace(event, commit_ts=draft.clock)
    ts = event.commit_ts
    if ts is None:
        return _Bad(NO_ORDER, NO_COMMIT_TS)
    if not 0 < ts <= MAX_TS:
        what = f"ts {ts} is not between 1 and {MAX_TS}, the largest that the lake can store"
        return _Bad(BAD_TS, f"{_name(event)}: {what}")
    try:
        if isinstance(event, Ddl):
            f"{event.schema}{event.table}{event.query}".encode()
            draft.ddls.append(SourceDdl(position, event))
        else:
            draft.rows.append(encoder.encode(event, position.seq))
    except UnicodeEncodeError as broken:
        return _Bad(
            BAD_TEXT,
            f"{_name(event)} at ts {event.commit_ts}: {broken.reason}: {redacted_value(broken.object[:60], 400)}",
        )
    return None


def _still_cut(row: RowChange, error: TidegateError | None) -> _Bad:
    """The error for an incomplete row: `error`, or that no storage or upstream is configured to complete it."""
    if isinstance(error, DecodeError):
        return _Bad(error.code, str(error), error.offset)
    if error is not None:
        return _Bad(error.code, str(error))
    where = f"{_name(row)} at ts {row.commit_ts}"
    if row.claim_check is not None:
        return _Bad(CLAIM_CHECK, f"{where}: claim-check-storage-uri is not set, so the whole row cannot be fetched")
    return _Bad(
        HANDLE_ONLY,
        f"{where}: only the handle key was sent, as the row was too large for the topic. Set "
        f"large-message-upstream-uri to read such rows from the upstream; or set "
        f"large-message-handle-option=claim-check, or a higher max-message-bytes, on TiCDC's changefeed, then update "
        f"the row upstream and skip this message; or replay it with the whole row (dlq replay --value-file)",
    )


def _name(event: RowChange | Ddl) -> str:
    return qualified(event.schema, event.table)
