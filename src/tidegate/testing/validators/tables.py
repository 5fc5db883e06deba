"""What arrived beside what happened: images of rows one by one, and whole tables.

    untold      every image that happened arrived                       (no loss)
    invented    every image that arrived happened                       (true images)
    repeated    none arrived more often than it happened                (exactly once)
    unlike      tables hold the same rows, each as often                (fingerprint)
    merged      first sendings of all streams in commit order
    rebuilt     the tables that a stream of events makes                (what `unlike` compares)

An UPDATE is the image that leaves and the image that comes, since a sink may send a DELETE and an INSERT for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidegate.model.event import Ddl, Event, Resolved, RowChange, Value, images
from tidegate.model.name import lowered, qualified
from tidegate.testing.script import Row, ScriptedTables
from tidegate.testing.validators.events import first_sendings
from tidegate.testing.validators.streams import commit_time

Frozen: TypeAlias = tuple[tuple[str, Value], ...]


class SeenRow(NamedTuple):
    """A row of `table` that came or left at `commit_ts`."""

    commit_ts: int
    table: str
    comes: bool
    values: Frozen


def images_of(rows: Iterable[RowChange]) -> Counter[SeenRow]:
    """Return the images of row changes, and how often each is there."""
    found: Counter[SeenRow] = Counter()
    for row in rows:
        for comes, values in zip((False, True), images(row), strict=True):
            if values is not None:
                named = {field.name: value for field, value in zip(row.fields, values, strict=True)}
                table = lowered(qualified(row.schema, row.table))
                found[SeenRow(commit_time(row), table, comes, frozen(named))] += 1
    return found


def frozen(row: Row) -> Frozen:
    """Return a row as a value that hashes."""
    return tuple(sorted(row.items()))


def untold(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain of images that happened more often than they arrived."""
    return (f"{image} happened {count} times too often" for image, count in (happened - arrived).items())


def invented(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain of images that arrived and never happened."""
    return (f"{image} never happened" for image in arrived if image not in happened)


def repeated(happened: Counter[SeenRow], arrived: Counter[SeenRow]) -> Iterator[str]:
    """Complain of images that arrived more often than they happened."""
    return (f"{image} arrived {count} times too often" for image, count in (arrived - happened).items())


def unlike(wanted: Mapping[str, Sequence[Row]], found: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Complain of tables that are missing, too many, or hold other rows; the order of rows is nothing."""
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            yield f"table {name} is missing"
        elif name not in wanted:
            yield f"table {name} does not exist upstream"
        else:
            here, there = (Counter(map(frozen, rows)) for rows in (found[name], wanted[name]))
            yield from (f"table {name} lacks {dict(row)}" for row in there - here)
            yield from (f"table {name} has {dict(row)}" for row in here - there)


def merged(streams: Iterable[Sequence[Event]]) -> list[RowChange | Ddl]:
    """Return the first sendings of all streams together, in commit order, rows of a DDL's ts before it."""
    events = [event for stream in streams for event in stream if not isinstance(event, Resolved)]
    once = [event for _, event in first_sendings(events)]
    return sorted(once, key=lambda one: (commit_time(one), isinstance(one, Ddl)))


def rebuilt(streams: Iterable[Sequence[Event]]) -> dict[str, list[Row]]:
    """Return the tables that the first sendings of all streams make together."""
    tables = ScriptedTables()
    for event in merged(streams):
        tables.apply(event)
    return tables.rows()
