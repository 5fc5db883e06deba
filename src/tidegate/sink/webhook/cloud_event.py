"""Events of CloudEvents 1.0, one JSON object each. Pure.

    {"specversion": "1.0", "id": "5f2c..", "source": "/tidegate/shop", "type": "tidegate.row.update",
     "subject": "shop.orders", "time": "2026-01-02T03:04:05.678Z", "committs": "463187..", "partitionkey": "7",
     "datacontenttype": "application/json", "data": {"kind": "row", ..}}

    type           tidegate.row.insert, .update, .delete; tidegate.ddl; tidegate.resolved
    data           the event as `tidegate decode` prints it (codec/neutral.py)
    id             the digest of source and data: an event that comes again has the id that it had.  Twins of a table
                   without a key, alike in one commit, are numbered
    partitionkey   the values of the key: events of one key come in their order

Source: CloudEvents 1.0.2, "JSON Event Format", "JSON Batch Format"; its extension "Partitioning".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from tidegate.codec.neutral import event_object, render
from tidegate.model.event import Ddl, Event, Resolved, RowChange, Update, Values, images
from tidegate.model.tso import to_datetime
from tidegate.sink.calls import calls_of

_TYPES: Final = {"Insert": "row.insert", "Update": "row.update", "Delete": "row.delete", "Ddl": "ddl"}
_DIGEST_BYTES: Final = 16
STRETCH_BYTES: Final = 64 << 20
"""So many bytes of events wait for a call."""


class CloudEvent(NamedTuple):
    """An event's id, its JSON, the commit_ts of its change, its table and the text of its key (of an Update the new
    one)."""

    id: str
    body: bytes
    ts: int
    table: str = ""
    key: str = ""
    moves: bool = False
    """The change gave its row another key, so that it belongs to two."""

    def lane(self, lanes: int) -> int:
        """Return which of some lanes the events of its key take."""
        return crc32(f"{self.table}\n{self.key}".encode("utf-8", "surrogatepass")) % lanes


class EventMaker:
    """Makes the events of one feed; rows in commit order, those of a table by one maker."""

    def __init__(self, feed: str) -> None:
        self._source = f"/tidegate/{feed}"
        self._ts = 0
        self._twins: Counter[bytes] = Counter()

    def rows(self, changes: Iterable[RowChange]) -> Iterator[CloudEvent]:
        """Return the events of rows."""
        for row in changes:
            ts = row.commit_ts or 0
            if ts != self._ts:
                self._ts = ts
                self._twins.clear()
            before, after = images(row)
            names = _key_names(row)
            key = _key(row, names, after if after is not None else before)
            moves = isinstance(row, Update) and _key(row, names, before) != key
            found = self._made(row, ts, f"{row.schema}.{row.table}", key, numbered=not names)
            yield found._replace(moves=moves)

    def ddl(self, ddl: Ddl) -> CloudEvent:
        """Return the event of a DDL."""
        subject = f"{ddl.schema}.{ddl.table}" if ddl.table else ddl.schema
        return self._made(ddl, ddl.commit_ts or 0, subject)

    def resolved(self, ts: int) -> CloudEvent:
        """Return the event that says that nothing at or below a ts is still to come."""
        return self._made(Resolved(ts), ts, "")

    def _made(self, event: Event, ts: int, subject: str, key: str = "", *, numbered: bool = False) -> CloudEvent:
        data = event_object(event)
        digest = blake2b(f"{self._source}\n{ts}\n".encode() + render(data), digest_size=_DIGEST_BYTES)
        if numbered:
            self._twins[digest.digest()] += 1
            digest.update(b"%d" % self._twins[digest.digest()])
        kind = _TYPES.get(type(event).__name__, "resolved")
        found = envelope(digest.hexdigest(), self._source, kind, ts, data, subject=subject, key=key)
        return CloudEvent(digest.hexdigest(), render(found), ts, subject, key)


def envelope(
    event_id: str, source: str, kind: str, ts: int, data: object, *, subject: str = "", key: str = ""
) -> dict[str, object]:
    """Return an event with what it says."""
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": f"tidegate.{kind}",
        "time": f"{to_datetime(ts):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "committs": str(ts),
        "datacontenttype": "application/json",
        **({"subject": subject} if subject else {}),
        **({"partitionkey": key} if key else {}),
        "data": data,
    }


def _key_names(row: RowChange) -> Sequence[str]:
    """The columns of a row's key: Open Protocol tells them by flags, in the order of the columns."""
    return row.pk_names or [field.name for field in row.fields if field.handle]


def _key(row: RowChange, names: Sequence[str], values: Values | None) -> str:
    if values is None or not names:
        return ""
    by_name = {field.name: value for field, value in zip(row.fields, values, strict=True)}
    return ",".join(_shown(by_name.get(name)) for name in names)


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def in_lanes(events: Iterable[CloudEvent], lanes: int) -> Iterator[list[list[CloudEvent]]]:
    """Return the events by lane, in stretches of about STRETCH_BYTES that follow each other: an event that moves a row
    to another key stands alone."""
    found: list[list[CloudEvent]] = [[] for _ in range(lanes)]
    size = 0
    for event in events:
        if event.moves or size > STRETCH_BYTES:
            yield found
            found, size = [[] for _ in range(lanes)], 0
        if event.moves:
            yield [[event]]
        else:
            found[event.lane(lanes)].append(event)
            size += len(event.body)
    yield found


def batches(events: Sequence[CloudEvent], most: int, most_bytes: int) -> Iterator[list[CloudEvent]]:
    """Return the events in calls of at most so many and, but for a single one, so many bytes."""
    return calls_of(events, lambda event: len(event.body) + 1, most=most, most_bytes=most_bytes + 1)  # a comma
