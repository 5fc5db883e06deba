"""Chunks of messages to Arrow columns: two fast paths, with the plain decoder behind them.

    messages ─┬─ text of a known look ──→ places of values ──→ columns ──→ Batch …    many rows of a table
              ├─ fits a known layout ───→ structs ───────────→ columns ──→ Batch …    few of them, other looks
              │                             │ Misfit
              └─ anything else ──→ plain decoder ←┘  ──→ Rest …                       one per message, teaches layouts

A message goes one way, whole.  What does not fit is everything but rows: DDL, watermarks, damage; and rows that came
in part, tables of a shape that cannot be generated, values that their column's type cannot hold.  Either way the
events are the same: a fast path takes nothing that the plain decoder would refuse or read otherwise.

A column of structs that does not convert is looked for by halves, so that one odd value costs a few rows their speed
and not the chunk.  Compressed values take the plain way.

    chunk of 1,000 messages or more: calls per column cost little then
"""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from tidegate.codec.columnar import canal, canal_template, open_template
from tidegate.codec.columnar import open as open_protocol
from tidegate.codec.columnar.rows import Batch, PlacedRows, batch_of
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.codec.table import decode
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event

PIECE: Final = 8
"""Rows that go to the plain decoder together when one of them does not fit."""

Messages: TypeAlias = Sequence[tuple[bytes | None, bytes | None]]


class Pairs(NamedTuple):
    """Keys and values of some messages, as columns."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Rest:
    """What the plain decoder said of one message: its events, or why it has none."""

    message: int
    events: tuple[Event, ...]
    error: DecodeError | None = None


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """All events of some messages. `rest` is in message order."""

    batches: tuple[Batch, ...]
    rest: tuple[Rest, ...]


class Lanes(Protocol):
    """Rows of one protocol on their way to columns."""

    def take(self, numbers: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], at: int, /) -> int:
        """Take messages in from index `at` on; return the index of the first that does not fit."""

    def learn(self, value: bytes, events: Sequence[Event], /) -> None:
        """Remember layouts."""

    def rows(self) -> list[PlacedRows]:
        """Return what was taken in."""


class _MakeLanes(Protocol):
    def __call__(self, *, legacy: bool) -> Lanes: ...


class _ByTemplate(Protocol):
    def __call__(
        self, keys: Sequence[bytes], values: Sequence[bytes], /, *, legacy: bool, as_texts: bool
    ) -> tuple[list[Batch], Any]: ...


LANES: Final[Mapping[str, _MakeLanes]] = {"open-protocol": open_protocol.OpenLanes, "canal-json": canal.CanalLanes}
TEMPLATES: Final[Mapping[str, _ByTemplate]] = {
    "open-protocol": open_template.by_template,
    "canal-json": canal_template.by_template,
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
        return MessageChunk((), tuple([_plain(index, messages, options) for index in range(len(messages.values))]))
    read, numbers = _by_template(messages, options, as_texts=as_texts)
    rest: dict[int, Rest] = {}
    while True:
        gathered = _gather(messages, [number for number in numbers if number not in rest], options, rest)
        try:
            batches = [batch_of(rows) for rows in gathered]
        except Misfit:
            for index in {index for rows in gathered for index in _misfits(rows)}:
                rest[index] = _plain(index, messages, options)
        else:
            return MessageChunk((*read, *batches), tuple([rest[index] for index in sorted(rest)]))


def _by_template(messages: Pairs, options: DecodeOptions, *, as_texts: bool) -> tuple[list[Batch], list[int]]:
    """The rows of texts of known looks, and the messages that have others."""
    try:
        read = TEMPLATES[protocol_name(options.protocol)]
        batches, whole = read(
            _filled(messages.keys), _filled(messages.values), legacy=options.legacy, as_texts=as_texts
        )
    except Misfit:
        return [], list(range(len(messages.values)))
    return batches, np.flatnonzero(~whole).tolist()


def _filled(texts: Sequence[bytes | None]) -> Sequence[bytes]:
    """The texts, empty where there is none."""
    return texts if all(texts) else [text or b"" for text in texts]  # type: ignore[return-value]


def _gather(messages: Pairs, numbers: list[int], options: DecodeOptions, rest: dict[int, Rest]) -> list[PlacedRows]:
    """The rows of the messages `numbers`; `rest` grows by those that do not fit."""
    lanes = LANES[protocol_name(options.protocol)](legacy=options.legacy)
    keys = [messages.keys[number] or b"" for number in numbers]
    values = [messages.values[number] or b"" for number in numbers]
    at = lanes.take(numbers, keys, values, 0)
    while at < len(numbers):
        found = rest[numbers[at]] = _plain(numbers[at], messages, options)
        lanes.learn(values[at], found.events)
        at = lanes.take(numbers, keys, values, at + 1)
    return lanes.rows()


def _plain(index: int, messages: Pairs, options: DecodeOptions) -> Rest:
    try:
        return Rest(index, decode(messages.keys[index], messages.values[index], options))
    except DecodeError as error:
        return Rest(index, (), _light(error))


def _light(error: DecodeError) -> DecodeError:
    """`error` without the frames that it passed, which would hold many times what a small message has."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


def _misfits(rows: PlacedRows) -> set[int]:
    """The messages of the rows that do not become columns, and of a few around them."""
    try:
        batch_of(rows)
    except Misfit:
        count = len(rows.structs)
        if count <= PIECE:
            return set(rows.message)
        return _misfits(rows.part(0, count // 2)) | _misfits(rows.part(count // 2, count))
    return set()
