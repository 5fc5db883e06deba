"""Events that a sink delivered, as text by which equal ones are known; what a topic promises to a reader of it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from tidegate.codec.neutral import event_object
from tidegate.model.event import Ddl, Event, Resolved, RowChange

Place: TypeAlias = tuple[str, int]
"""A partition: topic and number."""


def told(event: RowChange | Ddl) -> str:
    """Return the event as text, without the time at which its message was made."""
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
    """Return each row change and DDL where it came first, with its place among `events`."""
    seen: set[str] = set()
    for at, event in enumerate(events):
        if not isinstance(event, Resolved) and (text := told(event)) not in seen:
            seen.add(text)
            yield at, event
