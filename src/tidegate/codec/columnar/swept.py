"""The result of decoding a chunk by template, and the row counts from which templates are faster (sweep.py)."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.codec.columnar.rows import Batch
from tidegate.model.compiled import AVAILABLE
from tidegate.model.path_counts import Reason, SlowReason

ROWS_MIN = 24
"""The fewest rows of a chunk for templates, whose calls cost as much as reading this many rows one by one."""

WIDTH_MAX: Final = 1024
"""The most columns of a template; TiDB allows 1017 by default."""

ROWS_TO_LEARN = 2
"""The fewest unread rows of a table for a new template."""

MISSES_MAX: Final = 8
"""The most rows of a chunk without a template; then no more are tried."""


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
    """The batches that were read by template, a mask of their messages, and notes about the others."""

    batches: list[Batch]
    whole: Any
    notes: SweepNotes


def too_few(rows: int) -> bool:
    """Return True for too few rows for templates, or without compiled loops."""
    return rows < ROWS_MIN or not AVAILABLE


def nothing_swept(messages: int) -> SweptChunk:
    """Return the result of a chunk with too few rows."""
    return SweptChunk([], np.zeros(messages, np.bool_), SweepNotes())
