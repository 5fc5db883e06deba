"""One connection to a webhook: calls, answers, and what is done about an answer that is no yes.

    answer                             what follows
    2xx                                taken
    408 425 429 5xx, none at all       again, later each time, or when Retry-After says; then SinkError: the feed waits
    401 403 404 405, 3xx               SinkError: the address or the account is wrong, no event is at fault
    other 4xx, of several events       each of them alone
    other 4xx, of one event            a dead letter: halt, or kept

A call is signed where there is a secret: `webhook-signature: v1,base64(HMAC-SHA256(secret, id.timestamp.body))`.

Source: Standard Webhooks, "Signature scheme"; RFC 9110, "Retry-After".
"""

import base64
import hashlib
import hmac
import http.client
import ssl
import time
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import obstore

from tidegate.codec.neutral import render
from tidegate.model.errors import ConfigError, SinkError, SinkRefused
from tidegate.model.name import all_digits
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.exchange import exchange
from tidegate.sink.webhook.cloud_event import CloudEvent
from tidegate.sink.webhook.options import WebhookOptions

PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 30.0
_AGAIN: Final = frozenset({408, 425, 429})
_WRONG_PLACE: Final = {
    401: "it does not know us: check token-file and secret-file",
    403: "it does not let us in: check token-file and secret-file",
    404: "there is no such address",
    405: "the address takes no POST",
}
_SHOWN: Final = 500
_ANSWER_BYTES: Final = 1 << 20


class HttpAnswer(NamedTuple):
    """What came back; status 0: nothing, and why."""

    status: int
    text: str
    again_s: float | None = None
    location: str = ""


class WebhookSender:
    """A connection that is made when it is needed, and again when it broke; for one thread."""

    def __init__(self, options: WebhookOptions) -> None:
        self.options = options
        self._address = urlsplit(options.url)
        self._connection: http.client.HTTPConnection | None = None

    def send(self, events: Sequence[CloudEvent]) -> int:
        """Deliver events in one call, or each alone if that is refused; return how many became dead letters.

        SinkError for an address that does not take them now, SinkRefused for an event that it never takes."""
        answer = self._answered(events)
        if 200 <= answer.status < 300:
            return 0
        if len(events) > 1:
            return sum(self.send([event]) for event in events)
        return self._dead(events[0], answer)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answered(self, events: Sequence[CloudEvent]) -> HttpAnswer:
        """The first answer that is final."""
        pause_s = PAUSE_S
        for left in range(self.options.tries - 1, -1, -1):
            answer = self._call(events)
            if answer.status in _WRONG_PLACE:
                raise self._error(f"{answer.status}, {_WRONG_PLACE[answer.status]}: {answer.text}", events)
            if 300 <= answer.status < 400:
                raise self._error(f"it sends us on to {answer.location or 'nowhere'}: give that address", events)
            if 0 < answer.status < 500 and answer.status not in _AGAIN:
                return answer
            if left:
                time.sleep(min(pause_s if answer.again_s is None else answer.again_s, PAUSE_MAX_S))
                pause_s *= 2
        raise self._error(f"{answer.status or 'no answer'}: {answer.text}", events)

    def _call(self, events: Sequence[CloudEvent]) -> HttpAnswer:
        single = self.options.batch_events == 1
        body = events[0].body if single else b"[" + b",".join(event.body for event in events) + b"]"
        kind = "application/cloudevents+json" if single else "application/cloudevents-batch+json"
        headers = {"content-type": f"{kind}; charset=utf-8", **signed(self.options.secret, events[0].id, body)}
        if self.options.token:
            headers["authorization"] = f"Bearer {self.options.token}"
        path = self._address.path or "/"
        try:
            if self._connection is None:
                self._connection = self._connected()
            path = f"{path}?{self._address.query}" if self._address.query else path
            found = exchange(
                self._connection,
                "POST",
                path,
                body,
                headers,
                within_s=self.options.timeout_s,
                most_bytes=_ANSWER_BYTES,
                cut=True,
            )
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return HttpAnswer(0, str(error) or type(error).__name__)
        if found.ends:
            self.close()
        text = found.body.decode("utf-8", "replace")[:_SHOWN]
        return HttpAnswer(
            found.status, text, _seconds(found.headers.get("retry-after")), found.headers.get("location", "")
        )

    def _connected(self) -> http.client.HTTPConnection:
        host, timeout_s = self._address.hostname or "", self.options.timeout_s
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, self._address.port, timeout=timeout_s)
        try:
            context = ssl.create_default_context(cafile=self.options.ssl_ca or None)
        except OSError as error:
            raise ConfigError(f"sink-uri: ssl-ca cannot be used: {error}") from error
        return http.client.HTTPSConnection(host, self._address.port, timeout=timeout_s, context=context)

    def _dead(self, event: CloudEvent, answer: HttpAnswer) -> int:
        what = f"{answer.status}: {answer.text}"
        if self.options.dead_letter == "halt":
            raise SinkRefused(
                f"{self.options.place} refuses event {event.id}: {what}. Mend the receiver and resume, or set "
                "dead-letter=keep, which keeps such events aside and goes on"
            ).at(table=event.table, commit_ts=event.ts)
        letter = b'{"status":%d,"answer":%s,"event":%s}\n' % (answer.status, render(answer.text), event.body)
        with storing(self.options.dead_letters):
            obstore.put(store(self.options.dead_letters), f"{event.ts}-{event.id}.json", letter)
        return 1

    def _error(self, text: str, events: Sequence[CloudEvent]) -> SinkError:
        return SinkError(f"{self.options.place}: {text}").at(table=events[0].table, commit_ts=events[0].ts)


def signed(secret: bytes, event_id: str, body: bytes, now_s: int | None = None) -> dict[str, str]:
    """Return the headers that name a call, and sign it where there is a secret."""
    at = str(int(time.time()) if now_s is None else now_s)
    headers = {"webhook-id": event_id, "webhook-timestamp": at}
    if secret:
        mac = hmac.new(secret, f"{event_id}.{at}.".encode() + body, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac.digest()).decode()}"
    return headers


def _seconds(text: str | None) -> float | None:
    """What Retry-After asks for, where it is a number; dates are not read."""
    return float(text) if text and all_digits(text) else None
