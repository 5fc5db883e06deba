"""Decode a chunk of messages: templates first, then structs, then the plain decoder.

    messages ─┬─ text of a known template ──→ positions of values ──→ columns ─→ Batch …   compiled loops (sweep.py)
              ├─ fits a known layout ───────→ structs ──────────────→ columns ─→ Batch …   few rows, new texts, no numba
              │                                 │ Misfit
              └─ anything else ──→ plain decoder ←┘  ──→ Rest …                             shows layouts for later rows

A message takes one decode path, with all of its rows.  What fits neither of the first two: DDLs, watermarks and
damaged messages; rows with their handle key alone; tables for which no structs can be generated; values that the
type of their column cannot hold; compressed values.  The events are the same on every path (see the package's
docstring).

When a column of structs does not convert, the rows are halved until the bad one is found, so that one odd value
costs at most PIECE rows the fast path.  Calls cost little from about 1,000 messages a chunk.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from tidegate.codec.columnar import canal
from tidegate.codec.columnar import open as open_protocol
from tidegate.codec.columnar.rows import Batch, PlacedRows, batch_of, batches_of
from tidegate.codec.columnar.swept import SweepNotes, SweptChunk
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.columnar.why import why_plain, why_structs
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.codec.stream import DECODERS
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event, RowChange
from tidegate.model.roads import Reason, Why

PIECE: Final = 8
"""Rows that go to the plain decoder together when one of them does not fit."""

Messages: TypeAlias = Sequence[tuple[bytes | None, bytes | None]]


class Pairs(NamedTuple):
    """Keys and values of some messages, as columns."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


class Rest(NamedTuple):
    """What the plain decoder said of one message: its events, or why it has none."""

    message: int
    events: tuple[Event, ...]
    error: DecodeError | None = None
    why: Why | None = None
    """Why its rows, if it has any, are no columns."""


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """All events of some messages. `rest` is in message order; the first `by_template` of the batches were read so."""

    batches: tuple[Batch, ...]
    rest: tuple[Rest, ...]
    by_template: int = 0
    notes: SweepNotes = field(default_factory=SweepNotes)

    @property
    def roads(self) -> dict[str, int]:
        """How many rows took each decode path: "template", "structs", "plain"."""
        rows = [batch.rows for batch in self.batches]
        plain = sum(isinstance(event, RowChange) for one in self.rest for event in one.events)
        found = {"template": sum(rows[: self.by_template]), "structs": sum(rows[self.by_template :]), "plain": plain}
        return {road: count for road, count in found.items() if count}

    def whys(self) -> list[Why | None]:
        """Return for each batch why its rows were not read by template; None for those that were."""
        return [None] * self.by_template + why_structs(self)


class Lanes(Protocol):
    """The struct decoder of one protocol."""

    def take(self, numbers: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], at: int, /) -> int:
        """Take messages in from index `at` on; return the index of the first that does not fit."""

    def learn(self, value: bytes, events: Sequence[Event], /) -> Reason:
        """Remember layouts; return why the message did not fit them before."""

    def rows(self) -> list[PlacedRows]:
        """Return what was taken in."""


class _MakeLanes(Protocol):
    def __call__(self, *, legacy: bool) -> Lanes: ...


class _ByTemplate(Protocol):
    def __call__(
        self, keys: Sequence[bytes], values: Sequence[bytes], /, *, legacy: bool, as_texts: bool
    ) -> SweptChunk: ...


LANES: Final[Mapping[str, _MakeLanes]] = {"open-protocol": open_protocol.OpenLanes, "canal-json": canal.CanalLanes}


_HANDLE_ONLY: Final[Mapping[str, bytes]] = {"open-protocol": b'"ohk":true', "canal-json": b'"onlyHandleKey":true'}
"""What says in a message that only the handle key came; there is no layout of it to be tried or learned."""


def _loaded(module: str) -> _ByTemplate:
    """The reader of a module, which loads when rows are there to be read: it brings what is compiled."""

    def by_template(keys: Sequence[bytes], values: Sequence[bytes], /, *, legacy: bool, as_texts: bool) -> SweptChunk:
        read: _ByTemplate = import_module(f"tidegate.codec.columnar.{module}").by_template
        return read(keys, values, legacy=legacy, as_texts=as_texts)

    return by_template


TEMPLATES: Final[Mapping[str, _ByTemplate]] = {
    "open-protocol": _loaded("open_template"),
    "canal-json": _loaded("canal_template"),
}


def decode_chunk(messages: Messages | Pairs, options: DecodeOptions, *, as_texts: bool = False) -> MessageChunk:
    """Return the events of some messages (key, value), rows as columns wherever that is possible.

    `as_texts`: images may come as RowTexts, for who would make texts of typed values."""
    collecting = gc.isenabled()
    gc.disable()  # a chunk makes many objects and no cycles
    try:
        return _decode_chunk(_pairs(messages), options, as_texts=as_texts)
    finally:
        if collecting:
            gc.enable()


def _pairs(messages: Messages | Pairs) -> Pairs:
    if isinstance(messages, Pairs):
        return messages
    return Pairs([key for key, _ in messages], [value for _, value in messages])


def _decode_chunk(messages: Pairs, options: DecodeOptions, *, as_texts: bool) -> MessageChunk:
    if options.compression != "none":
        why = Why(Reason.COMPRESSED, f"values are compressed with {options.compression}")
        plain = _Plain(messages, options)
        return MessageChunk((), tuple([plain.read(index, why) for index in range(len(messages.values))]))
    read, numbers, notes = _by_template(messages, options, as_texts=as_texts)
    plain, rest = _Plain(messages, options), dict[int, Rest]()
    while True:
        gathered = _gather(plain, [number for number in numbers if number not in rest], rest)
        try:
            batches = batches_of(gathered, texts=as_texts)
        except Misfit:
            misfits = {index: text for rows in gathered for index, text in _misfits(rows).items()}
            for index, text in misfits.items():
                rest[index] = plain.read(index, Why(Reason.VALUE, text))
        else:
            return MessageChunk((*read, *batches), tuple([rest[index] for index in sorted(rest)]), len(read), notes)


def _by_template(
    messages: Pairs, options: DecodeOptions, *, as_texts: bool
) -> tuple[list[Batch], list[int], SweepNotes]:
    """The rows of texts of known looks, the messages that have others, and what is to be said of those."""
    try:
        read = TEMPLATES[protocol_name(options.protocol)]
        batches, whole, notes = read(
            _filled(messages.keys), _filled(messages.values), legacy=options.legacy, as_texts=as_texts
        )
    except Misfit as misfit:
        return [], list(range(len(messages.values))), SweepNotes(refused=str(misfit))
    return batches, np.flatnonzero(~whole).tolist(), notes


def _filled(texts: Sequence[bytes | None]) -> Sequence[bytes]:
    """The texts, empty where there is none."""
    return texts if all(texts) else [text or b"" for text in texts]  # type: ignore[return-value]


class _Plain:
    """The plain decoder, for messages of one chunk."""

    def __init__(self, messages: Pairs, options: DecodeOptions) -> None:
        self.keys, self.values = messages
        self.options, self.protocol = options, protocol_name(options.protocol)
        self._decode = DECODERS[self.protocol]

    def read(self, index: int, why: Why | Reason) -> Rest:
        """Return what a message holds; a reason is looked at more closely."""
        try:
            events = self._decode(self.keys[index], self.values[index], self.options)
        except DecodeError as error:
            return Rest(index, (), _light(error))
        return Rest(index, events, None, why if isinstance(why, Why) else why_plain(events, why))

    def taught(self, index: int, learn: Callable[[bytes, tuple[Event, ...]], Reason]) -> Rest:
        """Return what a message holds, of which `learn` takes what it teaches."""
        found = self.read(index, Reason.OTHER_TEXT)
        return found._replace(why=why_plain(found.events, learn(self.values[index] or b"", found.events)))


def _gather(plain: _Plain, numbers: list[int], rest: dict[int, Rest]) -> list[PlacedRows]:
    """The rows of the messages `numbers`; `rest` grows by those that do not fit."""
    lanes, mark = LANES[plain.protocol](legacy=plain.options.legacy), _HANDLE_ONLY[plain.protocol]
    left = []
    for number in numbers:
        if mark in (plain.values[number] or b"") or mark in (plain.keys[number] or b""):
            rest[number] = plain.read(number, Reason.OTHER_TEXT)
        else:
            left.append(number)
    keys = [plain.keys[number] or b"" for number in left]
    values = [plain.values[number] or b"" for number in left]
    at = lanes.take(left, keys, values, 0)
    while at < len(left):
        rest[left[at]] = plain.taught(left[at], lanes.learn)
        at = lanes.take(left, keys, values, at + 1)
    return lanes.rows()


def _light(error: DecodeError) -> DecodeError:
    """`error` without the frames that it passed, which would hold many times what a small message has."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


def _misfits(rows: PlacedRows) -> dict[int, str]:
    """The messages of the rows that do not become columns, and of a few around them, with what is wrong there."""
    try:
        batch_of(rows)
    except Misfit as misfit:
        count = len(rows.structs)
        if count <= PIECE:
            return dict.fromkeys(rows.message, str(misfit))
        return _misfits(rows.part(0, count // 2)) | _misfits(rows.part(count // 2, count))
    return {}
