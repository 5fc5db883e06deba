"""Events that a sink delivered, as text by which equal ones are known; what a topic promises to a reader of it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tidegate.codec.columnar import typed_batch
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.neutral import event_object
from tidegate.codec.wire_table import table_of_fields
from tidegate.feed.change import Batch
from tidegate.model.event import Ddl, Event, Resolved, RowChange

__all__ = [
    "Place",
    "ddls",
    "events_of",
    "first_sendings",
    "keep_promises",
    "resolved",
    "rows",
    "told",
    "without_repeats",
]

Place: TypeAlias = tuple[str, int]
"""A partition: topic and number."""


def told(event: RowChange | Ddl) -> str:
    """Return the event as text, without the time at which its message was made."""
    line: dict[str, Any] = event_object(event)
    line.pop("build_ms", None)
    line.pop("ts", None)
    return json.dumps(line, sort_keys=True)


def events_of(batch: Batch) -> list[RowChange]:
    """Return the rows of a batch, one event each."""
    table = table_of_fields(batch.fields, batch.pk_names)
    return list(rows_of(typed_batch(batch), range(batch.rows), table, batch.row_ids))


def rows(events: Iterable[Event]) -> list[RowChange]:
    """Return the row changes among events."""
    return [event for event in events if not isinstance(event, Ddl | Resolved)]


def ddls(events: Iterable[Event]) -> list[Ddl]:
    """Return the DDLs among events."""
    return [event for event in events if isinstance(event, Ddl)]


def resolved(events: Iterable[Event]) -> list[int]:
    """Return the resolved timestamps among events."""
    return [event.ts for event in events if isinstance(event, Resolved)]


def first_sendings(events: Iterable[Event]) -> Iterator[tuple[int, RowChange | Ddl]]:
    """Return each row change and DDL where it came first, with its place among `events`."""
    seen: set[str] = set()
    for at, event in enumerate(events):
        if not isinstance(event, Resolved) and (text := told(event)) not in seen:
            seen.add(text)
            yield at, event


def keep_promises(partitions: Mapping[Place, list[Event]], protocol: str) -> None:
    """Assert of a feed that ran once: commit order, rows of a DDL's ts before it, nothing at or below a resolved ts
    behind it, DDLs where `protocol` sends them."""
    for (_, number), events in partitions.items():
        mark = last = -1
        for event in events:
            if isinstance(event, Resolved):
                assert event.ts > mark
                mark = event.ts
                continue
            assert event.commit_ts is not None
            assert event.commit_ts > mark
            assert 2 * event.commit_ts + isinstance(event, Ddl) >= last
            last = 2 * event.commit_ts + isinstance(event, Ddl)
            assert number == 0 or protocol == "open-protocol" or not isinstance(event, Ddl)


def without_repeats(events: Iterable[Event]) -> list[str]:
    """Return first sendings in order, as text: what a consumer applies that knows its last commit_ts.

    Asserts that nothing new comes late: an event at or below a resolved ts that was told has been there before."""
    seen: dict[str, None] = {}
    mark = -1
    for event in events:
        if isinstance(event, Resolved):
            mark = max(mark, event.ts)
            continue
        assert event.commit_ts is not None
        assert event.commit_ts > mark or told(event) in seen
        seen[told(event)] = None
    return list(seen)
