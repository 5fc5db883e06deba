"""Decode the rows of a chunk to columns by template, all tables at once.

    rows ──→ groups of one key ──→ known template of each, or one learned from a row ──→ scan ──→ read: cells
                  ▲                                                                       │
                  └────────────────── rows that do not match, with another template ◄─────┘

    messages whose rows were all read ─────→ cells by form, across tables ───────────────→ arrays ──→ Batch …
                  ▲                                                                          │
                  └────────────── without the messages of values that do not convert ◄───────┘

A message takes one path as a whole: if a template did not match one of its rows, the plain decoder reads them all.  A
key is a hash that only selects the templates to try; the template then verifies the text.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, overload

import numpy as np

from tidegate.codec.columnar import scan, swept
from tidegate.codec.columnar.arrange import ChunkRows, ReadRows, batches_from
from tidegate.codec.columnar.program import Template, programs_of
from tidegate.codec.columnar.swept import SweepNotes, SweptChunk
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.kept import LayoutMemory, width
from tidegate.model.compiled import windows
from tidegate.model.errors import DecodeError
from tidegate.model.path_counts import SlowReason

TEMPLATES_MAX: Final = 8
"""The most templates of a key: for DELETEs, and for rows before and after a DDL."""

SAMPLES_MAX: Final = 8
"""The most rows of a key to try as samples, since some may have only their handle key."""

UNLEARNED: Final = (DecodeError, ValueError, IndexError, RecursionError)
"""Errors of samples that lead to no template."""

NOT_WHOLE: Final = -1
"""The row count of a message with other events than rows."""


PAD: Final = bytes(1 << 12)
"""Padding after the last text, so that reading ahead needs no check."""

TEXT_MAX: Final = 1 << 30
"""Bytes of a text: positions in it are offsets of Arrow arrays, which have 31 bits."""


class Events(NamedTuple):
    """The message of each row, its index there, and the number of rows of each message."""

    message: Any
    seq: Any
    counts: Any


class PackedTexts(Sequence[bytes | None]):
    """Texts one behind the other in one array of bytes, from `starts` to `ends`, with PAD behind the last; None is one
    without bytes that `missing` tells apart."""

    __slots__ = ("array", "ends", "missing", "starts")

    def __init__(self, array: Any, starts: Any, ends: Any, missing: Any) -> None:
        self.array, self.starts, self.ends, self.missing = array, starts, ends, missing

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> "PackedTexts":
        """Join texts, unless they are. Raises Mismatch beyond TEXT_MAX."""
        if isinstance(parts, PackedTexts):
            return parts
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        if sizes.sum() > TEXT_MAX:
            raise Mismatch("a text whose offsets are no 32-bit numbers")
        ends = np.cumsum(sizes)
        array = np.frombuffer(b"".join((*parts, PAD)), np.uint8)
        return cls(array, ends - sizes, ends, np.zeros(len(parts), np.bool_))

    @property
    def size_bytes(self) -> int:
        return int(self.ends[-1] - self.starts[0]) if len(self.ends) else 0

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> "PackedTexts": ...
    def __getitem__(self, index: int | slice) -> "bytes | PackedTexts | None":
        if isinstance(index, int):
            return None if self.missing[index] else bytes(self.array[self.starts[index] : self.ends[index]])
        starts, ends = self.starts[index], self.ends[index]
        first, end = (int(starts[0]), int(ends[-1])) if len(ends) else (0, 0)
        return PackedTexts(self.array[first : end + len(PAD)], starts - first, ends - first, self.missing[index])


class RowsText(NamedTuple):
    """One text per row."""

    array: Any
    starts: Any
    ends: Any


class MessageShape(Protocol):
    """The message shape of one protocol: the texts of its rows, and their templates."""

    @property
    def texts(self) -> tuple[RowsText, ...]:
        """The texts of rows; values are in the last one."""

    @property
    def keys(self) -> Any:
        """A key for each row; rows of one table share one, or a few."""

    @property
    def quotes(self) -> int:
        """The quotes at either end of a number."""

    @property
    def templates(self) -> LayoutMemory[int, tuple[Template, ...]]:
        """Templates by key, ordered by the rows that they matched in the last chunk."""

    def learn(self, row: int, /) -> Template | None:
        """Return a template of a row's text, whose layout is that of its event; None for an incomplete row. Raises
        UNLEARNED."""


def sweep(events: Events, shape: MessageShape, *, as_texts: bool) -> SweptChunk:
    """Read the rows of a chunk by templates, as far as they fit."""
    count = len(events.message)
    rows = ChunkRows(np.zeros(count, np.uint8), np.zeros((count, 2), np.int64), events.message, events.seq)
    notes = SweepNotes()
    reading = _read(shape, rows, notes)
    read = np.zeros(count, np.bool_)
    for chosen_template in reading:
        read[chosen_template.rows] = True
    whole = np.bincount(events.message[read], minlength=len(events.counts)) == events.counts
    while True:
        batches, bad = batches_from(reading, whole[events.message], rows, shape.quotes, as_texts=as_texts)
        if not len(bad):
            return SweptChunk(batches, whole, notes)
        notes.mismatches.update(events.message[bad].tolist())
        whole[events.message[bad]] = False


def _read(shape: MessageShape, chunk: ChunkRows, notes: SweepNotes) -> list[ReadRows]:
    """Read rows by templates, up to a few templates per key."""
    keys, group = np.unique(shape.keys, return_inverse=True)
    candidates = _Candidates(shape, keys.tolist(), chunk.message, notes)
    left, done = np.arange(len(group)), list[ReadRows]()
    for _ in range(TEMPLATES_MAX + 1):
        if not len(left):
            break
        by_key = left[np.argsort(group[left], kind="stable")]
        present, first = np.unique(group[by_key], return_index=True)
        chosen: list[Template | None] = [None] * len(keys)
        for number, rows in zip(present.tolist(), np.split(by_key, first[1:]), strict=True):
            chosen[number] = candidates.template(number, rows)
        templates = tuple(dict.fromkeys(template for template in chosen if template is not None))
        if not templates:
            break
        numbers = {template: index for index, template in enumerate(templates)}
        program = np.array([-1 if template is None else numbers[template] for template in chosen], np.int64)[group]
        rows_read = _scanned(shape, templates, program, left[program[left] >= 0], chunk)
        done.append(rows_read)
        left = np.setdiff1d(left, rows_read.rows, assume_unique=True)
    if len(done) > 1:
        candidates.put_first(np.argmax([np.bincount(group[part.rows], minlength=len(keys)) for part in done], axis=0))
    return done


class _Candidates:
    """The templates of each key: the known ones, then one learned from a row that none of them reads."""

    def __init__(self, shape: MessageShape, keys: list[int], message: Any, notes: SweepNotes) -> None:
        self._shape, self._keys, self._message, self.notes = shape, keys, message, notes
        self._templates = [shape.templates.get(key, ()) for key in keys]
        self._next = [0] * len(keys)

    def template(self, number: int, rows: Any) -> Template | None:
        """Return the next template for rows of a key; None if there is none."""
        templates_of, index = self._templates[number], self._next[number]
        self._next[number] = index + 1
        if index < len(templates_of):
            return templates_of[index]
        if index > TEMPLATES_MAX:
            return None
        learned = self._learned(rows[:SAMPLES_MAX].tolist()) if len(rows) >= swept.ROWS_TO_LEARN else None
        if learned is None:
            self._next[number] = TEMPLATES_MAX + 1  # the next try would have the same samples
            return None
        kept = (learned, *self._shape.templates.get(self._keys[number], ()))[:TEMPLATES_MAX]
        size = sum(width(field.name for field in row_set.layout.fields) for row_set in kept)
        self._shape.templates.keep(self._keys[number], kept, size)
        return learned

    def _learned(self, rows: list[int]) -> Template | None:
        """A template of the first whole row; None if there is none, or its text cannot be a template."""
        for row in rows if not self.notes.gave_up else ():
            try:
                learned = self._shape.learn(row)
            except UNLEARNED as error:
                reason = SlowReason(error.reason, str(error)) if isinstance(error, Mismatch) else swept.OTHER_TEXT
                self.notes.samples[int(self._message[row])] = reason
                return None
            if learned is not None:
                return learned
        return None

    def put_first(self, most: Any) -> None:
        """Begin the next chunk with the template that read most rows of each key."""
        for number in np.flatnonzero(most).tolist():
            templates_of, index = self._templates[number], most[number]
            if index < len(templates_of):
                key, first = self._keys[number], templates_of[index]
                kept = self._shape.templates.get(key, templates_of)  # a full memory has forgotten it meanwhile
                self._shape.templates[key] = (first, *(other for other in kept if other is not first))


def _scanned(
    shape: MessageShape, templates: tuple[Template, ...], program: Any, rows: Any, chunk: ChunkRows
) -> ReadRows:
    columns = np.array([len(layout_template.layout.columns) for layout_template in templates], np.int64)
    sizes = 2 * columns[program[rows]]
    cells, room = np.zeros(len(program), np.int64), int(sizes.sum())
    cells[rows] = np.cumsum(sizes) - sizes
    start, end, marks = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint8)
    stopped = np.zeros(len(program), np.int64)
    for number, text in enumerate(shape.texts):
        of = programs_of(templates, number)
        seen = np.full(len(of.members), -1, np.int64)
        scan.scan(
            text.array, windows(text.array), rows, text.starts, text.ends, program, *of, seen, cells,
            start, end, marks, chunk.ops, chunk.numbers, stopped,
        )  # fmt: skip
        rows = rows[stopped[rows] == scan.READ]
    text = shape.texts[-1]
    most = 2 * int((text.ends[rows] - text.starts[rows]).sum())
    return ReadRows(templates, program, rows, text.array, cells, start, end, marks, most)
