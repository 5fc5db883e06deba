"""Validators of delivered changes, for any sequence of faults: order within a stream, and contents of tables.

    in_order        first deliveries ascend in time; rows of a DDL's ts come before it
    promised        after a resolved ts, no new event is at or below it
    around_ddls     every DDL comes after all rows up to its ts and before all above it
    chained         the old image of a change is the new image of the previous change of its key

    untold          every image of the upstream was delivered               (no loss)
    invented        every delivered image is one of the upstream            (true images)
    repeated        no image was delivered more often than it occurred      (exactly once)
    unlike          tables hold the same rows, each as often                (fingerprint)
    merged          first deliveries of all streams in commit order
    rebuilt         the tables that result from a stream of events          (input of `unlike`)

A stream is a partition of a topic, the calls of a callback or the lines of a file.  Repeats after a crash do not count
for the order: of equal events the first one counts.  A validator yields complaints.  `exact=False` is for streams with
times in milliseconds: a row and a DDL of one time may come in either order.  An UPDATE counts as its old image removed
and its new image added, since a sink may send a DELETE and an INSERT for it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.codec.neutral import event_object
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Value, Values, images
from tidegate.model.name import lowered, qualified
from tidegate.testing.script import Row, ScriptedTables, commit_time

Partition: TypeAlias = tuple[str, int]
"""A partition: topic and number."""


def event_text(event: RowChange | Ddl) -> str:
    """Return the event as text, without the time at which its message was encoded."""
    line: dict[str, Any] = event_object(event)
    line.pop("build_ms", None)
    line.pop("ts", None)
    return json.dumps(line, sort_keys=True)


def rows(events: Iterable[Event]) -> list[RowChange]:
    """Return the row changes among events."""
    return [event for event in events if not isinstance(event, Ddl | Resolved)]


def ddls(events: Iterable[Event]) -> list[Ddl]:
    """Return the DDLs among events."""
    return [event for event in events if isinstance(event, Ddl)]


def first_sendings(events: Iterable[Event]) -> Iterator[tuple[int, RowChange | Ddl]]:
    """Yield each row change and DDL where it came first, with its index in `events`."""
    seen: set[str] = set()
    for index, event in enumerate(events):
        if not isinstance(event, Resolved) and (text := event_text(event)) not in seen:
            seen.add(text)
            yield index, event


Time: TypeAlias = Callable[[RowChange | Ddl], int]
"""Returns the time by which events are ordered: the commit_ts, or milliseconds in a stream without it."""
_KINDS: Final[Mapping[type, int]] = {Delete: 0, Update: 1, Insert: 2}


def in_order(
    events: Sequence[Event], time: Time = commit_time, *, exact: bool = True, kinds: bool = False
) -> Iterator[str]:
    """Complain about a first delivery that comes after a later one; with `kinds`, also within a transaction, in which
    DELETEs come first, then UPDATEs, then INSERTs."""
    last, kind = -1, (-1, -1)
    for _, event in first_sendings(events):
        rank = 2 * time(event) + (isinstance(event, Ddl) and exact)
        if rank < last:
            yield f"{event_text(event)[:200]} comes behind {last // 2}"
        now = (rank, _KINDS.get(type(event), 3))
        if kinds and exact and now < kind and rank == last:
            yield f"{event_text(event)[:200]} stands behind later kinds of its transaction"
        last, kind = max(last, rank), now


def promised(events: Sequence[Event], time: Time = commit_time, *, late_ddls: bool = False) -> Iterator[str]:
    """Complain about a new event after a resolved ts at or above its own; with `late_ddls`, a DDL may come after the
    resolved ts that equals its own."""
    first = dict(first_sendings(events))
    mark = -1
    for index, event in enumerate(events):
        if isinstance(event, Resolved):
            mark = max(mark, event.ts)
        elif index in first and time(event) <= mark - (late_ddls and isinstance(event, Ddl)):
            yield f"{event_text(event)[:200]} is new behind resolved {mark}"


def around_ddls(events: Sequence[Event], time: Time = commit_time, *, exact: bool = True) -> Iterator[str]:
    """Complain about a DDL that comes before a row up to its timestamp, or after one above it."""
    first = list(first_sendings(events))
    rows = [(time(event), index) for index, event in first if not isinstance(event, Ddl)]
    for index, ddl in first:
        if isinstance(ddl, Ddl):
            ts = time(ddl)
            if any(when < ts + exact and where > index for when, where in rows):
                yield f"{ddl.query!r} at {ts} comes before a row up to it"
            if any(when > ts and where < index for when, where in rows):
                yield f"{ddl.query!r} at {ts} comes behind a row above it"


def chained(events: Sequence[Event]) -> Iterator[str]:
    """Complain about an image before a change that is not the image after the change before it, by table and key.

    A DDL may change stored values, so every chain starts anew after it, and where the columns differ. Rows without a
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
            key_of_row = event.schema, event.table, key
            fields, image = last.get(key_of_row, (event.fields, before))
            if fields == event.fields and image != before:
                yield f"{event_text(event)[:200]} follows {image}"
            last[key_of_row] = event.fields, after


def _moves(event: RowChange) -> list[tuple[Values | None, Values | None]]:
    """Yield the images by key: an UPDATE of the key itself is a DELETE of one and an INSERT of the other."""
    before, after = images(event)
    if before is not None and after is not None and _key(event, before) != _key(event, after):
        return [(before, None), (None, after)]
    return [(before, after)]


def _key(event: RowChange, values: Values | None) -> tuple[Value, ...] | None:
    if values is None:
        return None
    return tuple(value for field, value in zip(event.fields, values, strict=True) if field.handle)


Frozen: TypeAlias = tuple[tuple[str, Value], ...]


class SeenRow(NamedTuple):
    """A row of `table` that came or left at `commit_ts`."""

    commit_ts: int
    table: str
    comes: bool
    values: Frozen


def images_of(rows: Iterable[RowChange]) -> Counter[SeenRow]:
    """Return the images of row changes, and the number of each."""
    counts: Counter[SeenRow] = Counter()
    for row in rows:
        for comes, values in zip((False, True), images(row), strict=True):
            if values is not None:
                named = {field.name: value for field, value in zip(row.fields, values, strict=True)}
                table = lowered(qualified(row.schema, row.table))
                counts[SeenRow(commit_time(row), table, comes, frozen(named))] += 1
    return counts


def frozen(row: Row) -> Frozen:
    """Return a row as a hashable value."""
    return tuple(sorted(row.items()))


def untold(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain about images that happened more often than they arrived."""
    return (f"{image} is missing, {count} times" for image, count in (happened - arrived).items())


def invented(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain about images that arrived and never happened."""
    return (f"{image} never happened" for image in arrived if image not in happened)


def repeated(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain about images that arrived more often than they happened."""
    return (f"{image} arrived {count} times too often" for image, count in (arrived - happened).items())


def unlike(expected: Mapping[str, Sequence[Row]], actual: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Complain about tables that are missing, too many, or hold other rows, in any order."""
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            yield f"table {name} is missing"
        elif name not in expected:
            yield f"table {name} does not exist upstream"
        else:
            found_rows, expected_rows = (Counter(map(frozen, rows)) for rows in (actual[name], expected[name]))
            yield from (f"table {name} lacks {dict(row)}" for row in expected_rows - found_rows)
            yield from (f"table {name} has {dict(row)}" for row in found_rows - expected_rows)


def merged(streams: Iterable[Sequence[Event]]) -> list[RowChange | Ddl]:
    """Return the first sendings of all streams together in commit order, rows of a DDL's timestamp before it."""
    events = [event for stream in streams for event in stream if not isinstance(event, Resolved)]
    once = [event for _, event in first_sendings(events)]
    return sorted(once, key=lambda event: (commit_time(event), isinstance(event, Ddl)))


def rebuilt(streams: Iterable[Sequence[Event]]) -> dict[str, list[Row]]:
    """Return the tables that result from the first sendings of all streams."""
    tables = ScriptedTables()
    for event in merged(streams):
        tables.apply(event)
    return tables.rows()
