"""The webhook sink: rows and DDLs as CloudEvents, posted to an HTTP address.

    table ─► task ─► events ─► lanes by key ─► batches ─► POST, one after the other within a lane

A row whose key changes waits until all lanes are empty, and the lanes wait for it.

Guarantee: at least once; events of one key in commit order, rows before a DDL ahead of it.  What follows the checkpoint
is sent again after a crash, under the same ids.

    {"specversion": "1.0", "id": "5f2c..", "source": "/tidegate/shop", "type": "tidegate.row.update",
     "subject": "shop.orders", "time": "2026-01-02T03:04:05.678Z", "committs": "463187..", "partitionkey": "7",
     "datacontenttype": "application/json", "data": {"kind": "row", ..}}

    type           tidegate.row.insert, .update, .delete; tidegate.ddl; tidegate.resolved
    data           the event as `tidegate decode` prints it (codec/neutral.py)
    id             the digest of source and data, so a repeated event has the same id; equal rows of a table without a
                   key within one commit are numbered
    partitionkey   the values of the key: events of one key arrive in order

    answer                             what follows
    2xx                                accepted
    408 425 429 5xx, no answer         retried with growing pauses, or after Retry-After; then SinkError: the feed waits
    401 403 404 405, 3xx               SinkError: the address or the account is wrong, no event is at fault
    other 4xx, of several events       each event is sent alone
    other 4xx, of one event            a dead letter: the feed halts, or the event is kept

With a secret a call is signed: `webhook-signature: v1,base64(HMAC-SHA256(secret, id.timestamp.body))`.

Source: CloudEvents 1.0.2, "JSON Event Format", "JSON Batch Format", its extension "Partitioning"; Standard Webhooks,
"Signature scheme"; RFC 9110, "Retry-After".
"""

import base64
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

import obstore

from tidegate.codec.batch import calls_of
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.neutral import event_object, render
from tidegate.engine.plan import PlannedDdl, Round, Rows, Segment
from tidegate.engine.ports import Changes, Checkpoints, Saved, SinkPosition, Tasks, Written
from tidegate.model.errors import SinkError, SinkRefused
from tidegate.model.event import Ddl, Event, Resolved, RowChange, Update, Values, images
from tidegate.model.name import all_digits
from tidegate.model.tso import to_datetime
from tidegate.objectstore.stores import storing, writable
from tidegate.objectstore.threads import ContextPool
from tidegate.sink.calls import CheckpointSink
from tidegate.sink.exchange import HttpClient, Reply, tls_context
from tidegate.sink.webhook_options import WebhookOptions

_TYPES: Final = {"Insert": "row.insert", "Update": "row.update", "Delete": "row.delete", "Ddl": "ddl"}
_DIGEST_BYTES: Final = 16
STRETCH_BYTES: Final = 64 << 20
"""Limit of the events that are buffered before a call, in bytes."""


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


class EventMaker:
    """Makes the events of one feed; rows in commit order, those of a table by one maker."""

    def __init__(self, feed: str) -> None:
        self._source = f"/tidegate/{feed}"
        self._ts = 0
        self._twins: Counter[bytes] = Counter()

    def rows(self, changes: Iterable[RowChange]) -> Iterator[CloudEvent]:
        for row in changes:
            ts = row.commit_ts or 0
            if ts != self._ts:
                self._ts = ts
                self._twins.clear()
            before, after = images(row)
            # Open Protocol tells the columns of a key by flags, in the order of the columns
            names = row.pk_names or [field.name for field in row.fields if field.handle]
            key = _key(row, names, after if after is not None else before)
            moves = isinstance(row, Update) and _key(row, names, before) != key
            event = self._event(row, ts, f"{row.schema}.{row.table}", key, numbered=not names)
            yield event._replace(moves=moves)

    def ddl(self, ddl: Ddl) -> CloudEvent:
        subject = f"{ddl.schema}.{ddl.table}" if ddl.table else ddl.schema
        return self._event(ddl, ddl.commit_ts or 0, subject)

    def resolved(self, ts: int) -> CloudEvent:
        return self._event(Resolved(ts), ts, "")

    def _event(self, event: Event, ts: int, subject: str, key: str = "", *, numbered: bool = False) -> CloudEvent:
        data = event_object(event)
        digest = blake2b(f"{self._source}\n{ts}\n".encode() + render(data), digest_size=_DIGEST_BYTES)
        if numbered:
            self._twins[digest.digest()] += 1
            digest.update(b"%d" % self._twins[digest.digest()])
        kind = _TYPES.get(type(event).__name__, "resolved")
        body = render(envelope(digest.hexdigest(), self._source, kind, ts, data, subject=subject, key=key))
        return CloudEvent(digest.hexdigest(), body, ts, subject, key)


def envelope(
    event_id: str, source: str, kind: str, ts: int, data: object, *, subject: str = "", key: str = ""
) -> dict[str, object]:
    """Return the JSON object of an event whose content is `data`."""
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


def _key(row: RowChange, names: Sequence[str], values: Values | None) -> str:
    if values is None or not names:
        return ""
    by_name = {field.name: value for field, value in zip(row.fields, values, strict=True)}
    return ",".join(value.hex() if isinstance(value, bytes) else str(value) for value in map(by_name.get, names))


def in_lanes(events: Iterable[CloudEvent], count: int) -> Iterator[list[list[CloudEvent]]]:
    """Return the events by lane, in consecutive ranges of about STRETCH_BYTES: an event that moves a row to another
    key is alone."""
    queues: list[list[CloudEvent]] = [[] for _ in range(count)]
    size = 0
    for event in events:
        if event.moves or size > STRETCH_BYTES:
            yield queues
            queues, size = [[] for _ in range(count)], 0
        if event.moves:
            yield [[event]]
        else:
            number = crc32(f"{event.table}\n{event.key}".encode("utf-8", "surrogatepass")) % count
            queues[number].append(event)
            size += len(event.body)
    yield queues


PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 30.0
_AGAIN: Final = frozenset({408, 425, 429})
_WRONG_URL: Final = {
    401: "authentication failed: check token-file and secret-file",
    403: "access denied: check token-file and secret-file",
    404: "no such URL",
    405: "the URL does not accept POST",
}
_ANSWER_BYTES: Final = 1 << 20


class WebhookSender:
    """A connection that is made when it is needed, and again when it broke; for one thread."""

    def __init__(self, options: WebhookOptions) -> None:
        self.options = options
        address = urlsplit(options.url)
        self._target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        self._client = HttpClient(
            address.hostname or "",
            address.port,
            None if address.scheme == "http" else partial(tls_context, options.ssl_ca),
            within_s=options.timeout_s,
            most_bytes=_ANSWER_BYTES,
            cut=True,
        )

    def send(self, events: Sequence[CloudEvent]) -> int:
        """Deliver events in one call, or each alone if that is refused; return how many became dead letters.

        SinkError for an address that does not take them now, SinkRefused for an event that it never takes."""
        answer = self._answered(events)
        if answer.is_ok:
            return 0
        if len(events) > 1:
            return sum(self.send([event]) for event in events)
        return self._dead(events[0], answer)

    def close(self) -> None:
        self._client.close()

    def _answered(self, events: Sequence[CloudEvent]) -> Reply:
        """The first answer that is final."""
        pause_s = PAUSE_S
        for left in range(self.options.retries, -1, -1):
            try:
                answer = self._call(events)
            except OSError as error:
                fault, again = f"no answer: {str(error) or type(error).__name__}", ""
            else:
                fault, again = f"{answer.status}: {answer.text}", answer.headers.get("retry-after", "")
                if answer.status in _WRONG_URL:
                    raise self._error(f"{answer.status}, {_WRONG_URL[answer.status]}: {answer.text}", events)
                if 300 <= answer.status < 400:
                    location = answer.headers.get("location") or "nowhere"
                    raise self._error(f"it redirects to {location}: use that URL", events)
                if answer.status < 500 and answer.status not in _AGAIN:
                    return answer
            if left:
                time.sleep(min(float(again) if again and all_digits(again) else pause_s, PAUSE_MAX_S))
                pause_s *= 2
        raise self._error(fault, events)

    def _call(self, events: Sequence[CloudEvent]) -> Reply:
        single = self.options.batch_events == 1
        body = events[0].body if single else b"[" + b",".join(event.body for event in events) + b"]"
        kind = "application/cloudevents+json" if single else "application/cloudevents-batch+json"
        headers = {"content-type": f"{kind}; charset=utf-8", **signed(self.options.secret, events[0].id, body)}
        if self.options.token:
            headers["authorization"] = f"Bearer {self.options.token}"
        return self._client.ask("POST", self._target, body, headers)

    def _dead(self, event: CloudEvent, answer: Reply) -> int:
        if self.options.dead_letter == "halt":
            raise SinkRefused(
                f"{self.options.address} rejects event {event.id}: {answer.status}: {answer.text}. Fix the receiver "
                f"and resume, or set dead-letter=keep, which stores such events and continues"
            ).at(table=event.table, commit_ts=event.ts)
        letter = b'{"status":%d,"answer":%s,"event":%s}\n' % (answer.status, render(answer.text), event.body)
        with storing(self.options.dead_letters):
            obstore.put(writable(self.options.dead_letters), f"{event.ts}-{event.id}.json", letter)
        return 1

    def _error(self, text: str, events: Sequence[CloudEvent]) -> SinkError:
        return SinkError(f"{self.options.address}: {text}").at(table=events[0].table, commit_ts=events[0].ts)


def signed(secret: bytes, event_id: str, body: bytes, now_s: int | None = None) -> dict[str, str]:
    """Return the headers that name a call, and sign it where there is a secret."""
    timestamp = str(int(time.time()) if now_s is None else now_s)
    headers = {"webhook-id": event_id, "webhook-timestamp": timestamp}
    if secret:
        mac = hmac.new(secret, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac.digest()).decode()}"
    return headers


LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Posted(Written):
    """The result of a task; `dead` counts the events that were kept as dead letters."""

    dead: int = 0


class WebhookSink(CheckpointSink[Posted]):
    """Posts to the address of `options`."""

    brings_again = "events"

    def __init__(self, options: WebhookOptions, checkpoints: Checkpoints) -> None:
        super().__init__(checkpoints)
        self._options = options
        self._events = EventMaker(options.feed)
        self._sender = WebhookSender(options)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> list[Posted]:
        steps = segment.steps
        side_by_side = max(1, min(tasks.slots, len(steps), self._options.concurrency))
        count = self._options.concurrency // side_by_side
        groups = [steps[number::side_by_side] for number in range(side_by_side)] if steps else []
        done = list(chain(*tasks.run(partial(_post, self._options, changes, count), groups)))
        if dead := sum(counts.dead for counts in done):
            LOGGER.warning("%d events were rejected; they are stored in %s", dead, self._options.dead_letters)
        return done

    def ddl(self, planned: PlannedDdl) -> None:
        self._sender.send([self._events.ddl(planned.ddl)])

    def advance(self, planned: Round, results: Sequence[Posted]) -> SinkPosition:  # noqa: ARG002  their rows are posted
        self._checkpoints.save(Saved(position := SinkPosition(planned.checkpoint, planned.state), {}))
        if self._options.resolved:
            self._sender.send([self._events.resolved(planned.resolved_ts)])
        return position

    def close(self) -> None:
        self._sender.close()


def _post(options: WebhookOptions, changes: Changes, count: int, steps: Sequence[Rows]) -> list[Posted]:
    senders = [WebhookSender(options) for _ in range(count)]
    try:
        with ContextPool(count, "webhook") as pool:
            return [_post_table(options, changes, senders, pool, step) for step in steps]
    finally:
        for sender in senders:
            sender.close()


def _post_table(
    options: WebhookOptions, changes: Changes, senders: Sequence[WebhookSender], pool: ContextPool, step: Rows
) -> Posted:
    done, maker = Posted(step.table.name), EventMaker(options.feed)

    def post(sender: WebhookSender, events: Sequence[CloudEvent]) -> int:
        sizes = {"most": options.batch_events, "most_bytes": options.batch_bytes + 1}  # an event and its comma
        return sum(sender.send(batch) for batch in calls_of(events, lambda event: len(event.body) + 1, **sizes))

    for chunk in done.coming(changes.batches(step.table.name, step.after, step.upto)):
        rows = chain.from_iterable(map(events_of, chunk.runs()))
        for queues in in_lanes(maker.rows(rows), len(senders)):
            done.dead += sum(pool.map(post, senders, queues))
            done.messages += sum(map(len, queues))
            done.size_bytes += sum(len(event.body) for queue in queues for event in queue)
        done.rows += len(chunk)
    return done
