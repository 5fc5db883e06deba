"""The result of decoding a chunk by template, and the limits from which templates pay off (sweep.py)."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.codec.columnar.rows import Batch
from tidegate.model.compiled import AVAILABLE
from tidegate.model.path_counts import Reason, SlowReason

ROWS_MIN = 24
"""Rows of a chunk that are worth templates: calls cost as much as so many rows that are read one by one."""

WIDTH_MAX: Final = 1024
"""Columns of a row that templates are made for; TiDB allows 1017 unless it is told to allow more."""

ROWS_TO_LEARN = 2
"""Rows of a table that are left and that a new template is made for."""

MISSES_MAX: Final = 8
"""Rows of a chunk that teach nothing; then nothing more is learned from it."""


OTHER_TEXT: Final = SlowReason(Reason.OTHER_TEXT, "texts that no template is made of, such as JSON with spaces")


@dataclass(slots=True)
class SweepNotes:
    """Reasons for which messages were left to the plain decoder: `mismatches` hold values that did not convert, no
    template was made from `samples`, `refused` is the reason for all messages of the chunk."""

    mismatches: set[int] = field(default_factory=set)
    samples: dict[int, SlowReason] = field(default_factory=dict)
    refused: str = ""

    @property
    def gave_up(self) -> bool:
        """True once nothing more is learned from the chunk."""
        return len(self.samples) >= MISSES_MAX


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
