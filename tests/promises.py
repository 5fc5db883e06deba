"""What a topic promises to a reader of it, asserted of events that a feed delivered."""

from collections.abc import Iterable, Mapping

from tidegate.model.event import Ddl, Event, Resolved
from tidegate.testing.validators import Partition, event_text


def resolved(events: Iterable[Event]) -> list[int]:
    """Return the resolved timestamps among events."""
    return [event.ts for event in events if isinstance(event, Resolved)]


def keep_promises(partitions: Mapping[Partition, list[Event]], protocol: str) -> None:
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
        assert event.commit_ts > mark or event_text(event) in seen
        seen[event_text(event)] = None
    return list(seen)
