"""Why rows of a chunk were decoded a slow way: told of what the decoder has noted, once somebody asks.

    why_structs    batches that no template read       by table: how many rows it has, what became of its samples
    why_plain      a message that fits no structs      by its first row, and by what its layout taught

Nothing here is called for each row but of those that the plain decoder has read anyway.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np

from tidegate.codec.columnar import swept
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import WIDTH_MAX
from tidegate.model.compiled import AVAILABLE
from tidegate.model.event import Event, RowChange
from tidegate.model.roads import Reason, Why, counted


class _Rest(Protocol):
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def why(self) -> Why | None: ...


class _Chunk(Protocol):
    @property
    def batches(self) -> tuple[Batch, ...]: ...
    @property
    def rest(self) -> Sequence[_Rest]: ...
    @property
    def by_template(self) -> int: ...
    @property
    def notes(self) -> swept.SweepNotes: ...


_Names: TypeAlias = set[tuple[str, str]]
_TAUGHT: Final = {
    Reason.NEW_LAYOUT: Why(Reason.NEW_LAYOUT, "the first row of a layout"),
    Reason.NO_LAYOUT: Why(Reason.NO_LAYOUT, "columns that no structs are made for"),
    Reason.OTHER_TEXT: Why(Reason.OTHER_TEXT, "a message or values of another form than its layout's"),
}
_HANDLE_ONLY: Final = Why(Reason.HANDLE_ONLY, "only the handle key came")
_NO_COMMIT_TS: Final = Why(Reason.NO_COMMIT_TS, "a row without commit_ts")


def why_plain(events: Sequence[Event], taught: Reason) -> Why | None:
    """Return why the plain decoder read a message, by its first row; None for a message without rows."""
    for row in events:
        if isinstance(row, RowChange):
            break
    else:
        return None
    if row.handle_only:
        return _HANDLE_ONLY
    if row.commit_ts is None:
        return _NO_COMMIT_TS
    if len(row.fields) > WIDTH_MAX:
        return Why(Reason.NO_LAYOUT, f"{len(row.fields)} columns > {WIDTH_MAX}")
    return _TAUGHT[taught]


def why_structs(chunk: _Chunk) -> list[Why | None]:
    """Return for each batch that no template read why that is."""
    rows = Counter[tuple[str, str]]()
    for batch in chunk.batches:
        rows[batch.schema, batch.table] += batch.rows
    read = {(batch.schema, batch.table) for batch in chunk.batches[: chunk.by_template]}
    learned = set[tuple[str, str]]()
    for one in chunk.rest:
        names = [(row.schema, row.table) for row in _rows(one.events)]
        rows.update(names)
        if one.why is not None and one.why.reason is Reason.NEW_LAYOUT:
            learned.update(names)
    return [_why(batch, rows, chunk.notes, read, learned) for batch in chunk.batches[chunk.by_template :]]


def _why(batch: Batch, counts: Counter[tuple[str, str]], notes: swept.SweepNotes, read: _Names, learned: _Names) -> Why:
    name = batch.schema, batch.table
    rows, all_rows = counts[name], counts.total()
    if not AVAILABLE:
        return Why(Reason.SWITCHED_OFF, "there is no numba, which compiles what templates need")
    if swept.too_few(all_rows):
        return Why(Reason.FEW_ROWS, f"{counted(all_rows)} in a chunk, templates need {swept.ROWS_MIN}")
    if notes.refused:
        return Why(Reason.OTHER_TEXT, notes.refused)
    if name in notes.misfits:
        return Why(Reason.VALUE, "a value that templates do not read")
    if name in learned:
        return Why(Reason.NEW_LAYOUT, "its layout was not known before the chunk")
    if name in read:
        return Why(Reason.OTHER_TEXT, f"{batch.rows} of {rows} rows are of another text than the template's")
    if rows < swept.ROWS_TO_LEARN:
        return Why(Reason.FEW_ROWS, f"{counted(rows)} in a chunk, a template is learned from {swept.ROWS_TO_LEARN}")
    if notes.gave_up and not np.isin(notes.samples, batch.message.to_numpy()).any():
        return Why(Reason.MANY_TABLES, f"{swept.MISSES_MAX} rows of other tables in the chunk led to no template")
    return Why(Reason.OTHER_TEXT, "texts that no template is made of, such as JSON with spaces")


def _rows(events: Sequence[Event]) -> Iterator[RowChange]:
    return (event for event in events if isinstance(event, RowChange))
