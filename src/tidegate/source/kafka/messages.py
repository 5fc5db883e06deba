"""Messages of one Kafka partition to row changes in columns: the heart of landing, without Kafka and without Spark.

    (offset, key, value) ...  ->  Landed
        tables     table name -> Arrow table of ROWS_SCHEMA, rows in arrival order
        ddls       every one, whichever tables the feed carries
        letters    messages that cannot be read, under policy "skip" or by resolution
        resolved   the largest resolved ts
        position   the offset after the last message that is dealt with
        halt       why it stops before the end, with the letter that stands there

A message lands whole or not at all: one bad event makes all of it a dead letter.  What is bad:

    undecodable bytes; a row of which only the handle key came, unless it is a DELETE (there the key says all);
    a claim check whose file is away; a commit_ts that BIGINT cannot hold; text that is no Unicode

A resolved ts that BIGINT cannot hold (TiCDC sends 2^64-1 for "nothing is to come") is passed over: waiting is safe.

A row without commit_ts (canal-json without the TiDB extension) is not bad but cannot be ordered: order "ts" halts and
says so.  Order "offset" makes every timestamp up: `max(es << 18, last + 1)`, growing in each partition from the
largest one of the previous batch, so that nothing lands late; across partitions it means nothing.

`land_messages` takes a chunk and knows nothing of the chunk before, but for the clock; a decoder that goes from bytes
to columns at once can stand in its place.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from tidegate.codec import decode
from tidegate.codec.claim import open_claim
from tidegate.codec.options import DecodeOptions
from tidegate.feed.change import DeadLetter, Place, PlacedDdl
from tidegate.feed.frontier import larger
from tidegate.model.errors import DecodeError, SourceError
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, RowChange, Update
from tidegate.model.table import TableName
from tidegate.model.tso import LOGICAL_BITS, MAX_TS
from tidegate.source.kafka.claim import fetch
from tidegate.source.kafka.columns import Encoded, Encoder, RowColumns
from tidegate.source.kafka.report import Halt
from tidegate.source.kafka.resolution import Resolution, with_options

__all__ = ["LandPlan", "Landed", "Message", "land_messages"]

Accept: TypeAlias = Callable[[str, str], bool]

HANDLE_ONLY: Final = "CDC:ErrHandleKeyOnly"
CLAIM_CHECK: Final = "CDC:ErrClaimCheckUnavailable"
BAD_TS: Final = "CDC:ErrTimestampOutOfRange"
BAD_TEXT: Final = "CDC:ErrTextNotUnicode"
SKIPPED: Final = "CDC:ErrSkippedByResolution"
NO_ORDER: Final = "CDC:ErrNoCommitTs"

NO_COMMIT_TS: Final = (
    "its rows carry no commit_ts, so they cannot be ordered: the changefeed writes canal-json without the TiDB "
    "extension. Set enable-tidb-extension=true on the changefeed and start from a fresh topic, or accept order=offset "
    "(each partition in its own order, no consistency across partitions)"
)


class Message(NamedTuple):
    """One Kafka message."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LandPlan:
    """How to land one partition. `accept` says which tables the feed carries (None: all)."""

    topic: str
    partition: int
    options: DecodeOptions = field(repr=False)
    accept: Accept | None = None
    resolutions: Mapping[int, Resolution] = field(default_factory=dict)
    skip_dead: bool = False
    order_by_offset: bool = False

    def place(self, offset: int, seq: int = 0) -> Place:
        """Where in the topic an event stands."""
        return Place(self.topic, self.partition, offset, seq)


@dataclass(slots=True)
class Landed:
    """What a run of messages turned into; see the module's drawing. `clock` is the last made-up timestamp."""

    position: int
    clock: int = 0
    tables: dict[TableName, pa.Table] = field(default_factory=dict)
    ddls: list[PlacedDdl] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    resolved: int | None = None
    messages: int = 0
    filtered: int = 0
    halt: Halt | None = None
    halted_at: DeadLetter | None = None

    def then(self, later: "Landed") -> "Landed":
        """Both runs as one, without their rows, DDLs and letters."""
        return Landed(
            position=later.position,
            clock=later.clock,
            resolved=larger(self.resolved, later.resolved),
            messages=self.messages + later.messages,
            filtered=self.filtered + later.filtered,
            halt=later.halt,
            halted_at=later.halted_at,
        )


class _Bad(NamedTuple):
    """Why a message cannot be landed."""

    code: str
    reason: str
    at: int = 0


@dataclass(slots=True)
class _Draft:
    """What one message adds, as far as it has been read."""

    clock: int
    rows: list[Encoded] = field(default_factory=list)
    ddls: list[PlacedDdl] = field(default_factory=list)
    resolved: int | None = None
    filtered: int = 0


def land_messages(
    messages: Iterable[Message], plan: LandPlan, encoder: Encoder | None = None, *, start: int = 0, clock: int = 0
) -> Landed:
    """Land `messages`, which begin at offset `start`; stop before the first that must not be passed."""
    landed = Landed(start, clock)
    encoder = encoder or Encoder()
    columns: dict[TableName, RowColumns] = {}
    for message in messages:
        found = _resolve(message, plan, encoder, landed.clock)
        if isinstance(found, _Bad):
            letter = _letter(plan, message, found)
            if found.code == NO_ORDER or not _may_skip(plan, message):
                landed.halt = Halt(
                    plan.topic, plan.partition, message.offset, found.code, found.reason, found.code == NO_ORDER
                )
                landed.halted_at = letter
                break
            landed.letters.append(letter)
        else:
            for row in found.rows:
                name = row.name
                into = columns.get(name)
                if into is None:
                    into = columns[name] = RowColumns(plan.topic, plan.partition, name)
                into.add(message.offset, row)
            landed.ddls += found.ddls
            landed.resolved = larger(landed.resolved, found.resolved)
            landed.clock = found.clock
            landed.filtered += found.filtered
        landed.messages += 1
        landed.position = message.offset + 1
    landed.tables = {name: into.table() for name, into in columns.items()}
    return landed


def _may_skip(plan: LandPlan, message: Message) -> bool:
    resolution = plan.resolutions.get(message.offset)
    return plan.skip_dead or (resolution is not None and resolution.action == "skip")


def _letter(plan: LandPlan, message: Message, bad: _Bad) -> DeadLetter:
    return DeadLetter(plan.place(message.offset), bad.code, bad.reason, bad.at, message.key, message.value)


def _resolve(message: Message, plan: LandPlan, encoder: Encoder, clock: int) -> _Draft | _Bad:
    """What a message says once the resolution about it, if there is one, has been heeded."""
    resolution = plan.resolutions.get(message.offset)
    if resolution is None:
        return _read(message, plan, encoder, clock)
    if resolution.action == "skip":
        found = _read(message, plan, encoder, clock)
        return found if isinstance(found, _Bad) else _Bad(SKIPPED, "readable, but a resolution says to skip it")
    changed = replace(plan, options=with_options(plan.options, resolution.options))
    return _read(Message(message.offset, *resolution.message(message.key, message.value)), changed, encoder, clock)


def _read(message: Message, plan: LandPlan, encoder: Encoder, clock: int) -> _Draft | _Bad:
    try:
        events = decode(message.key, message.value, plan.options)
    except DecodeError as broken:
        return _Bad(broken.code, str(broken), broken.offset)
    draft = _Draft(clock)
    for event in events:
        bad = _add(event, draft, message.offset, plan, encoder)
        if bad is not None:
            return bad
    return draft


def _add(event: Event, draft: _Draft, offset: int, plan: LandPlan, encoder: Encoder) -> _Bad | None:
    """Add one event to its message's draft; say why it cannot be added."""
    if isinstance(event, Resolved):
        if not plan.order_by_offset and 0 <= event.ts <= MAX_TS:
            draft.resolved = larger(draft.resolved, event.ts)
        return None
    if not isinstance(event, Ddl) and plan.accept is not None and not plan.accept(event.schema, event.table):
        draft.filtered += 1
        return None
    if not isinstance(event, Ddl | Delete) and (event.handle_only or event.claim_check is not None):
        whole = _whole(event, plan.options) if event.claim_check is not None else _handle_only(event)
        if isinstance(whole, _Bad):
            return whole
        event = whole
    if plan.order_by_offset:
        draft.clock = _tick(event, draft.clock)
        event = msgspec.structs.replace(event, commit_ts=draft.clock)
    bad = _check_ts(event)
    if bad is not None:
        return bad
    seq = len(draft.rows) + len(draft.ddls)
    try:
        if isinstance(event, Ddl):
            f"{event.schema}{event.table}{event.query}".encode()
            draft.ddls.append(PlacedDdl(plan.place(offset, seq), event))
        else:
            draft.rows.append(encoder.encode(event, seq))
    except UnicodeEncodeError as broken:
        return _Bad(BAD_TEXT, f"{_name(event)} at ts {event.commit_ts}: {broken.reason}: {broken.object[:60]!a}")
    return None


def _check_ts(event: RowChange | Ddl) -> _Bad | None:
    ts = event.commit_ts
    if ts is None:
        return _Bad(NO_ORDER, NO_COMMIT_TS)
    if 0 <= ts <= MAX_TS:
        return None
    return _Bad(BAD_TS, f"{_name(event)}: ts {ts} is not between 0 and {MAX_TS}, the largest that the lake can store")


def _tick(event: RowChange | Ddl, clock: int) -> int:
    """The next made-up timestamp: as late as the event says it happened, and later than the one before."""
    ms = event.es_ms if event.es_ms is not None else (event.commit_ts or 0) >> LOGICAL_BITS
    return max(ms << LOGICAL_BITS, clock + 1)


def _whole(row: RowChange, options: DecodeOptions) -> RowChange | _Bad:
    """The row that a claim check stands for."""
    assert row.claim_check is not None
    try:
        events = decode(*open_claim(fetch(row.claim_check, options.claim_check_storage_uri), options), options)
    except SourceError as away:
        return _Bad(CLAIM_CHECK, f"{_name(row)} at ts {row.commit_ts}: {away}")
    except DecodeError as broken:
        return _Bad(broken.code, f"{_name(row)} at ts {row.commit_ts}: in its claim check: {broken}", broken.offset)
    match events:
        case (Insert() | Update() as found,) if _same(found, row):
            return found
    return _Bad(CLAIM_CHECK, f"{_name(row)} at ts {row.commit_ts}: its claim check holds something else")


def _same(one: RowChange, other: RowChange) -> bool:
    return type(one) is type(other) and _name(one) == _name(other) and one.commit_ts == other.commit_ts


def _handle_only(row: RowChange) -> _Bad:
    return _Bad(
        HANDLE_ONLY,
        f"{_name(row)} at ts {row.commit_ts}: only the handle key was sent, as the row was too large for the topic. "
        "Set large-message-handle-option to claim-check, or max-message-bytes higher, on the changefeed, then update "
        "the row upstream and skip this message; or replay it with the whole row (dlq replay --value-file)",
    )


def _name(event: RowChange | Ddl) -> str:
    return f"{event.schema}.{event.table}"
