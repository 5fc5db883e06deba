"""What the template path decoded of a chunk and why it left rows over; the limits from which it pays off (sweep.py)."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.codec.columnar.rows import Batch
from tidegate.model.compiled import AVAILABLE

ROWS_MIN = 24
"""Rows of a chunk that are worth templates: calls cost as much as so many rows that structs read one by one."""

ROWS_TO_LEARN = 4
"""Rows of a table that are left and that a new template is made for."""

MISSES_MAX: Final = 8
"""Rows of a chunk that teach nothing; then nothing more is learned from it."""


@dataclass(slots=True)
class SweepNotes:
    """What stood in the way of templates.

    `misfits` are the tables of values that did not convert, `samples` the messages of samples that led to nothing,
    `refused` says why no message of the chunk was read so."""

    misfits: set[tuple[str, str]] = field(default_factory=set)
    samples: list[int] = field(default_factory=list)
    refused: str = ""

    @property
    def gave_up(self) -> bool:
        """Whether nothing more was learned from the chunk."""
        return len(self.samples) == MISSES_MAX


class SweptChunk(NamedTuple):
    """The batches that were read by template, which messages they hold, and notes about the others."""

    batches: list[Batch]
    whole: Any
    notes: SweepNotes


def too_few(rows: int) -> bool:
    """Return whether so many rows are not worth templates; none are without compiled loops."""
    return rows < ROWS_MIN or not AVAILABLE


def nothing_swept(messages: int) -> SweptChunk:
    """Return what a chunk of few rows gives."""
    return SweptChunk([], np.zeros(messages, np.bool_), SweepNotes())
