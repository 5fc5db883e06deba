"""The rows of a chunk, table by table to columns, as far as templates fit.

    left: all rows ─→ the first one tells a template ─→ it reads what it fits ─→ left: the others ─→ …
                                                            │
                           messages of which every row was read, and whose values convert ─→ Batch …

A message goes one way, whole: rows of a message that a template did not read to the end are left to others.
"""

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tidegate.codec.columnar.rows import Batch, StructLayout
from tidegate.codec.columnar.template import ChunkTexts, TemplateRows, batch_from
from tidegate.codec.columnar.values import Misfit

ROWS_MIN = 100
"""Rows of a table that are worth a template: a walk is some hundred calls of numpy, whatever their number."""

NOT_WHOLE: Final = -1
"""The count of a message that holds other things than rows."""

MISSES_MAX: Final = 4
"""Samples that led to fewer rows than that; then the chunk is of too many tables to go on."""


class Events(NamedTuple):
    """Message and number within it of each row, and how many rows each message has."""

    message: Any
    seq: Any
    counts: Any


class SweptRows(NamedTuple):
    """Rows that are of a template's table, and those that it read to the end."""

    seen: Any
    layout: StructLayout
    parts: list[TemplateRows]


class Templates(ChunkTexts, Protocol):
    """What one protocol's rows look like."""

    def known(self, row: int, left: Any, /) -> SweptRows | None:
        """Return what the template of the row's table reads."""

    def learned(self, row: int, left: Any, /) -> SweptRows | None:
        """Return what a template made of the row reads."""


def too_few(rows: int) -> bool:
    """Return whether so many rows are not worth a template."""
    return rows < ROWS_MIN


def sweep(events: Events, templates: Templates) -> tuple[list[Batch], Any]:
    """Batches, and which messages they hold."""
    found, taken = _read(len(events.message), templates)
    whole = np.bincount(events.message[taken], minlength=len(events.counts)) == events.counts
    groups: dict[tuple[object, ...], tuple[StructLayout, list[TemplateRows]]] = {}
    for layout, part in ((one.layout, part) for one in found for part in one.parts):
        name = layout.schema, layout.table, layout.fields, part.partition_id is not None
        groups.setdefault(name, (layout, []))[1].append(part)
    while True:
        batches = []
        for layout, parts in groups.values():
            chosen = [part for part in (_whole(part, events, whole) for part in parts) if len(part.rows)]
            if not chosen:
                continue
            try:
                batches.append(batch_from(layout, templates, chosen, events.message, events.seq))
            except Misfit:
                for part in chosen:
                    whole[events.message[part.rows]] = False
                break
        else:
            return batches, whole


def _read(count: int, templates: Templates) -> tuple[list[SweptRows], Any]:
    """What the templates read, and which rows that is."""
    left, misses = np.arange(count), 0
    taken, found = np.zeros(count, np.bool_), []
    while not too_few(len(left)) and misses < MISSES_MAX:
        row = int(left[0])
        few = left[:1]
        for look in (templates.known, templates.learned):
            one = look(row, left[~taken[left]])
            if one is None:
                continue
            found.append(one)
            for part in one.parts:
                taken[part.rows] = True
            if taken[row]:
                break
            if len(one.seen) and one.seen[0] == row and not one.parts:
                few = one.seen
                break
        if not taken[row]:
            misses += 1
        passed = taken.copy()
        passed[few] = True
        left = left[~passed[left]]
    return found, taken


def _whole(part: TemplateRows, events: Events, whole: Any) -> TemplateRows:
    """The rows of a part whose messages come whole."""
    mask = whole[events.message[part.rows]]
    return part if mask.all() else part.of(mask)
