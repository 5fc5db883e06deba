"""What a topic promises to whoever reads a partition of it, and what it holds once repetitions are taken out."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.codec.neutral import event_object
from tidegate.model.event import Ddl, Event, Resolved, RowChange

Place = tuple[str, int]


def told(event: RowChange | Ddl) -> str:
    """An event as text, by which equal ones are known."""
    line: dict[str, Any] = event_object(event)
    line.pop("build_ms", None)
    line.pop("ts", None)
    return json.dumps(line, sort_keys=True)


def rows(events: Iterable[Event]) -> list[RowChange]:
    """The row changes among events."""
    return [event for event in events if not isinstance(event, Ddl | Resolved)]


def ddls(events: Iterable[Event]) -> list[Ddl]:
    """The DDLs among events."""
    return [event for event in events if isinstance(event, Ddl)]


def resolved(events: Iterable[Event]) -> list[int]:
    """The resolved timestamps among events."""
    return [event.ts for event in events if isinstance(event, Resolved)]


def keep_promises(partitions: Mapping[Place, list[Event]], protocol: str) -> None:
    """Of a feed that ran once: commit order, rows of a DDL's ts before it, nothing late, DDLs where they belong."""
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
    """First occurrences, in order: what a consumer applies that knows its last commit_ts. Nothing new comes late: an
    event at or below a resolved ts that was told has been there before."""
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
