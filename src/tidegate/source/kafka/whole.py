"""Rows that came cut down, made whole while a chunk of messages is landed.

    chunk decoded ─→ its cut rows, in order ─→ WholeRows, some ahead of the message that is landed now ─→ row, error
    message decoded by itself (a resolution, too large for a chunk) ─→ WholeRows, one row

A reader and its connections live as long as the process, one for each set of options.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from tidegate.codec.options import DecodeOptions
from tidegate.model.errors import TidegateError
from tidegate.model.event import Ddl, Delete, Event, Resolved, RowChange, images
from tidegate.source.large.whole import WholeRows


@lru_cache(maxsize=4)
def _reader(options: DecodeOptions) -> WholeRows:
    return WholeRows(options)


def is_cut(event: Event) -> bool:
    """Return whether an event is a row that cannot land as it came; a DELETE says all with its key."""
    return not isinstance(event, Ddl | Resolved | Delete) and (event.handle_only or event.claim_check is not None)


def size_of(row: RowChange) -> int:
    """About how many bytes the values of a row take."""
    texts = (value for image in images(row) for value in image or () if isinstance(value, str | bytes))
    return sum(map(len, texts))


class CutRows:
    """The cut rows among the `events` of a chunk, those of tables that `accept` takes."""

    def __init__(
        self, events: Iterable[Event], options: DecodeOptions, accept: Callable[[str, str], bool] | None
    ) -> None:
        reader = _reader(options)
        rows = [event for event in events if is_cut(event) and reader.makes_whole(event)]
        mine = [row for row in rows if accept is None or accept(row.schema, row.table)]
        self._ahead: Iterator[tuple[RowChange, RowChange | TidegateError]] = zip(mine, reader.whole(mine), strict=True)
        self._known = {id(row) for row in mine}

    def whole(self, row: RowChange, options: DecodeOptions) -> RowChange | TidegateError | None:
        """Return the whole row, or why it cannot be had; None when nothing was given to read it from.

        Rows of the chunk are asked for in their order; what was not asked for is passed over."""
        if id(row) in self._known:
            return next(found for one, found in self._ahead if one is row)
        reader = _reader(options)
        return next(reader.whole([row])) if reader.makes_whole(row) else None
