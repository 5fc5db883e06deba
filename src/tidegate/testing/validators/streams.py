"""Order in a stream of events: a partition of a topic, the calls of a callback, the lines of a file.

    in_order        first sendings go up in time; rows of a DDL's ts stand before it
    promised        behind a resolved ts nothing new comes at or below it
    around_ddls     every DDL stands behind all rows up to its ts and before all above it
    chained         the image before a change of a key is the image after the change before it

What is sent again after a crash is left out: of equal events the first one counts.  A validator yields complaints.
`exact=False` is for streams that tell milliseconds alone: a row and a DDL of one time may stand on either side.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Value, Values, images
from tidegate.testing.validators.events import first_sendings, told

Time: TypeAlias = Callable[[RowChange | Ddl], int]
"""Returns by what an event is ordered: its commit_ts, or milliseconds where a stream tells no more."""
_KINDS: Final[Mapping[type, int]] = {Delete: 0, Update: 1, Insert: 2}


def commit_time(event: RowChange | Ddl) -> int:
    """Return the event's commit_ts."""
    assert event.commit_ts is not None, event
    return event.commit_ts


def in_order(
    events: Sequence[Event], time: Time = commit_time, *, exact: bool = True, kinds: bool = False
) -> Iterator[str]:
    """Complain of a first sending that comes behind a later one; with `kinds` also of one of its own transaction,
    in which DELETEs come first, then UPDATEs, then INSERTs."""
    last, kind = -1, (-1, -1)
    for _, event in first_sendings(events):
        at = 2 * time(event) + (isinstance(event, Ddl) and exact)
        if at < last:
            yield f"{told(event)[:200]} comes behind {last // 2}"
        now = (at, _KINDS.get(type(event), 3))
        if kinds and exact and now < kind and at == last:
            yield f"{told(event)[:200]} stands behind later kinds of its transaction"
        last, kind = max(last, at), now


def promised(events: Sequence[Event], time: Time = commit_time, *, late_ddls: bool = False) -> Iterator[str]:
    """Complain of an event that is new behind a resolved ts at or above its own; with `late_ddls` a DDL may be new
    behind the resolved ts that equals its own."""
    first = dict(first_sendings(events))
    mark = -1
    for at, event in enumerate(events):
        if isinstance(event, Resolved):
            mark = max(mark, event.ts)
        elif at in first and time(event) <= mark - (late_ddls and isinstance(event, Ddl)):
            yield f"{told(event)[:200]} is new behind resolved {mark}"


def around_ddls(events: Sequence[Event], time: Time = commit_time, *, exact: bool = True) -> Iterator[str]:
    """Complain of a DDL that stands before a row up to its ts, or behind one above it."""
    first = list(first_sendings(events))
    rows = [(time(event), at) for at, event in first if not isinstance(event, Ddl)]
    for at, ddl in first:
        if isinstance(ddl, Ddl):
            ts = time(ddl)
            if any(when < ts + exact and where > at for when, where in rows):
                yield f"{ddl.query!r} at {ts} comes before a row up to it"
            if any(when > ts and where < at for when, where in rows):
                yield f"{ddl.query!r} at {ts} comes behind a row above it"


def chained(events: Sequence[Event]) -> Iterator[str]:
    """Complain of an image before a change that is not the image after the change before it, by table and key.

    A DDL may change stored values, so every chain begins anew behind it, and where columns are others. Rows without a
    key have no chain."""
    last: dict[tuple[str, str, Values], tuple[Sequence[Field], Values | None]] = {}
    for _, event in first_sendings(events):
        if isinstance(event, Ddl):
            last.clear()
            continue
        for before, after in _moves(event):
            key = _key(event, after if before is None else before)
            if not key:
                continue
            place = event.schema, event.table, key
            fields, image = last.get(place, (event.fields, before))
            if fields == event.fields and image != before:
                yield f"{told(event)[:200]} follows {image}"
            last[place] = event.fields, after


def _moves(event: RowChange) -> list[tuple[Values | None, Values | None]]:
    """The images by key: an UPDATE of the key itself is a DELETE of one and an INSERT of the other."""
    before, after = images(event)
    if before is not None and after is not None and _key(event, before) != _key(event, after):
        return [(before, None), (None, after)]
    return [(before, after)]


def _key(event: RowChange, values: Values | None) -> tuple[Value, ...] | None:
    if values is None:
        return None
    return tuple(value for field, value in zip(event.fields, values, strict=True) if field.handle)
