"""Decode a chunk of messages: by template, or by the plain decoder.

    messages ─┬─ rows of a text that a template reads ─→ offsets of values ──→ columns ─→ Batch …    sweep.py
              └─ anything else ─────────────────────────→ plain decoder ────→ events ──→ PlainMessage …

A message takes one decode path, with all of its rows.  The plain decoder handles DDLs, watermarks and damaged
messages; rows with only their handle key; chunks of few rows; values that the type of their column cannot hold;
compressed values.  The events are the same on both paths (see the package's docstring).

Call overhead is negligible from about 1,000 messages per chunk.
"""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from tidegate.codec.columnar import swept
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.sweep import PackedTexts
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.codec.stream import DECODERS, explained
from tidegate.model.compiled import AVAILABLE
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event, RowChange
from tidegate.model.path_counts import Reason, SlowReason, counted

Messages: TypeAlias = Sequence[tuple[bytes | None, bytes | None]]

_Counts: TypeAlias = Counter[tuple[str, str]]
_HANDLE_ONLY: Final = SlowReason(Reason.HANDLE_ONLY, "only the handle key came")
_NO_COMMIT_TS: Final = SlowReason(Reason.NO_COMMIT_TS, "a row without commit_ts")
_SEVERAL: Final = SlowReason(Reason.OTHER_TEXT, "several rows in a message, which is another form than templates have")
_BAD_VALUE: Final = SlowReason(Reason.VALUE, "a value that templates do not read")


class Pairs(NamedTuple):
    """Keys and values of some messages, as columns."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


class PlainMessage(NamedTuple):
    """A message from the plain decoder: its events, or the error."""

    message: int
    events: tuple[Event, ...]
    error: DecodeError | None = None
    slow_reason: SlowReason | None = None
    """Why its rows were not decoded by template; None for a message without rows."""


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """All events of some messages. `rest` is in message order."""

    batches: tuple[Batch, ...]
    rest: tuple[PlainMessage, ...]

    @property
    def by_path(self) -> dict[str, int]:
        """Rows per decode path: "template", "plain"."""
        plain = sum(isinstance(event, RowChange) for message in self.rest for event in message.events)
        rows = {"template": sum(batch.rows for batch in self.batches), "plain": plain}
        return {path: count for path, count in rows.items() if count}


class _ByTemplate(Protocol):
    def __call__(
        self, keys: Sequence[bytes], values: Sequence[bytes], /, *, legacy: bool, as_texts: bool
    ) -> swept.SweptChunk: ...


def _loaded(module: str) -> _ByTemplate:
    """A lazy reader: its module, which compiles loops, is imported at the first call."""

    def by_template(
        keys: Sequence[bytes], values: Sequence[bytes], /, *, legacy: bool, as_texts: bool
    ) -> swept.SweptChunk:
        read: _ByTemplate = import_module(f"tidegate.codec.columnar.{module}").by_template
        return read(keys, values, legacy=legacy, as_texts=as_texts)

    return by_template


TEMPLATES: Final[Mapping[str, _ByTemplate]] = {
    "open-protocol": _loaded("open_template"),
    "canal-json": _loaded("canal_template"),
}


def decode_chunk(messages: Messages | Pairs, options: DecodeOptions, *, as_texts: bool = False) -> MessageChunk:
    """Return the events of messages (key, value), with rows as columns where possible.

    `as_texts`: images come as RowTexts instead of columns of typed values."""
    collecting = gc.isenabled()
    gc.disable()  # a chunk makes many objects and no cycles
    try:
        if not isinstance(messages, Pairs):
            messages = Pairs([key for key, _ in messages], [value for _, value in messages])
        return _decode_chunk(messages, options, as_texts=as_texts)
    finally:
        if collecting:
            gc.enable()


def _decode_chunk(messages: Pairs, options: DecodeOptions, *, as_texts: bool) -> MessageChunk:
    if options.compression != "none":
        compressed = SlowReason(Reason.COMPRESSED, f"values are compressed with {options.compression}")
        every = _plain(messages, options, range(len(messages.values)))
        return MessageChunk((), tuple([message._replace(slow_reason=compressed) for message in every]))
    try:
        batches, whole, notes = TEMPLATES[protocol_name(options.protocol)](
            *map(_filled, messages), legacy=options.legacy, as_texts=as_texts
        )
    except Mismatch as mismatch:
        whole = np.zeros(len(messages.values), np.bool_)
        batches, notes = [], swept.SweepNotes(refused=str(mismatch))
    rest = list(_plain(messages, options, np.flatnonzero(~whole).tolist()))
    return MessageChunk(tuple(batches), tuple(_with_reasons(rest, batches, notes, options)))


def _filled(texts: Sequence[bytes | None]) -> Sequence[bytes]:
    if isinstance(texts, PackedTexts):
        return PackedTexts(texts.array, texts.starts, texts.ends, np.zeros(len(texts), np.bool_))  # type: ignore[return-value]
    return texts if all(texts) else [text or b"" for text in texts]  # type: ignore[return-value]


def _plain(messages: Pairs, options: DecodeOptions, numbers: Iterable[int]) -> Iterator[PlainMessage]:
    decode = DECODERS[protocol_name(options.protocol)]
    for number in numbers:
        try:
            events = decode(messages.keys[number], messages.values[number], options)
        except DecodeError as failed:
            error = explained(failed, messages.keys[number], messages.values[number], options)
            yield PlainMessage(number, (), error)
        else:
            yield PlainMessage(number, events)


def _with_reasons(
    rest: Sequence[PlainMessage], batches: Iterable[Batch], notes: swept.SweepNotes, options: DecodeOptions
) -> Iterator[PlainMessage]:
    """Add to each message with rows the reason why no template read it, by its first row."""
    with_rows = [(message, [event for event in message.events if isinstance(event, RowChange)]) for message in rest]
    read, plain, samples = _Counts(), _Counts(), dict[tuple[str, str], SlowReason]()
    for batch in batches:
        read[batch.schema, batch.table] += batch.rows
    for message, rows in with_rows:
        plain.update((row.schema, row.table) for row in rows)
        if rows and message.message in notes.samples:
            samples[rows[0].schema, rows[0].table] = notes.samples[message.message]
    every, chunk_reason = read.total() + plain.total(), None
    if not AVAILABLE:
        chunk_reason = SlowReason(Reason.SWITCHED_OFF, "there is no numba, which compiles what templates need")
    elif swept.too_few(every):
        chunk_reason = SlowReason(Reason.FEW_ROWS, f"{counted(every)} in a chunk, templates need {swept.ROWS_MIN}")
    elif notes.refused:
        chunk_reason = SlowReason(Reason.OTHER_TEXT, notes.refused)
    tables = {
        name: chunk_reason or _table_reason(rows, read[name], samples.get(name), notes) for name, rows in plain.items()
    }
    several = _SEVERAL if protocol_name(options.protocol) == "canal-json" else None
    for message, rows in with_rows:
        if not rows:
            yield message
            continue
        reason = _row_reason(rows[0]) or (several if len(message.events) > 1 else None)
        reason = reason or (
            _BAD_VALUE if message.message in notes.mismatches else tables[rows[0].schema, rows[0].table]
        )
        yield PlainMessage(message.message, message.events, None, reason)


def _row_reason(row: RowChange) -> SlowReason | None:
    if row.handle_only:
        return _HANDLE_ONLY
    if row.commit_ts is None:
        return _NO_COMMIT_TS
    if len(row.fields) > swept.WIDTH_MAX:
        return SlowReason(Reason.NO_LAYOUT, f"{len(row.fields)} columns > {swept.WIDTH_MAX}")
    return None


def _table_reason(rows: int, read: int, sample: SlowReason | None, notes: swept.SweepNotes) -> SlowReason:
    if read:
        return SlowReason(Reason.OTHER_TEXT, f"{rows} of {rows + read} rows are of another text than the template's")
    if rows < swept.ROWS_TO_LEARN:
        return SlowReason(
            Reason.FEW_ROWS, f"{counted(rows)} in a chunk, a template is learned from {swept.ROWS_TO_LEARN}"
        )
    if sample is None and notes.gave_up:
        return SlowReason(
            Reason.MANY_TABLES, f"{swept.MISSES_MAX} rows of other tables in the chunk led to no template"
        )
    return sample or swept.OTHER_TEXT
