"""Snapshots to a collector of OpenTelemetry: OTLP over HTTP, as JSON, in a thread beside the rounds.

    counter     sum, monotonic, cumulative since the rule began        gauge    the value now
    histogram   counts of buckets, cumulative since the rule began

Cumulative numbers need no memory of what was sent: a collector that was away gets them with the next call.

Source: OpenTelemetry, "OTLP Specification" (OTLP/HTTP, JSON), metrics.proto.
"""

import http.client
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tidegate.model.errors import ConfigError
from tidegate.model.tso import physical_ms
from tidegate.sink.exchange import exchange
from tidegate.sink.metrics.options import OtlpOptions
from tidegate.sink.metrics.shown import ShownNumbers, ShownRule

LOGGER: Final = logging.getLogger(__name__)
_CUMULATIVE: Final = 2
_MS_NS: Final = 1_000_000
_SHOWN: Final = 300


def request_body(snapshot: ShownNumbers) -> bytes:
    """Return the ExportMetricsServiceRequest of a snapshot."""
    metrics = [_metric(shown, int(physical_ms(snapshot.checkpoint_ts))) for shown in snapshot.rules]
    resource = {"attributes": [_attribute("service.name", "tidegate"), _attribute("changefeed", snapshot.feed)]}
    scope = {"scope": {"name": "tidegate.metrics"}, "metrics": metrics}
    return msgspec.json.encode({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


def _metric(shown: ShownRule, at_ms: int) -> dict[str, Any]:
    kind = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}[shown.rule.kind]
    told: dict[str, Any] = {"dataPoints": list(_points(shown, at_ms))}
    if kind != "gauge":
        told["aggregationTemporality"] = _CUMULATIVE
    if kind == "sum":
        told["isMonotonic"] = True
    return {"name": shown.rule.metric, "description": shown.rule.about, kind: told}


def _points(shown: ShownRule, at_ms: int) -> Iterator[dict[str, Any]]:
    for labels, amounts in sorted(shown.values.items()):
        point: dict[str, Any] = {
            "attributes": [_attribute(name, value) for name, value in zip(shown.rule.label_names, labels, strict=True)],
            "timeUnixNano": str(max(at_ms, shown.since_ms) * _MS_NS),
        }
        if shown.rule.kind != "gauge":
            point["startTimeUnixNano"] = str(shown.since_ms * _MS_NS)
        if shown.rule.kind == "histogram":
            point["count"] = str(int(sum(amounts[1:])))
            point["sum"] = float(amounts[0])
            point["bucketCounts"] = [str(int(count)) for count in amounts[1:]]
            point["explicitBounds"] = [float(bound) for bound in shown.rule.bounds]
        else:
            point["asDouble"] = float(amounts[0])
        yield point


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


class OtlpPush:
    """Sends the snapshot of now, every interval and once more when it is closed."""

    def __init__(self, options: OtlpOptions, snapshot: Callable[[], ShownNumbers | None]) -> None:
        self._options, self._snapshot = options, snapshot
        self._address = urlsplit(options.url)
        self._context = None if self._address.scheme == "http" else _context(options)
        self._end = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is there, and end."""
        self._end.set()
        self._thread.join(self._options.timeout_s + 1)

    def _run(self) -> None:
        while not self._end.wait(self._options.interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        """Send once; what goes wrong is told once, until it goes right."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        try:
            status, text = self._post(request_body(snapshot))
            fault = "" if 200 <= status < 300 else f"{status} {text}"
        except (OSError, http.client.HTTPException) as error:
            fault = str(error) or type(error).__name__
        if fault and fault != self._told:
            place = self._options.url.partition("?")[0]
            LOGGER.warning("otlp-endpoint %s: %s; trying again every %g s", place, fault, self._options.interval_s)
        self._told = fault

    def _post(self, body: bytes) -> tuple[int, str]:
        host, port, timeout_s = self._address.hostname or "", self._address.port, self._options.timeout_s
        connection = (
            http.client.HTTPConnection(host, port, timeout=timeout_s)
            if self._context is None
            else http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        )
        headers = {"content-type": "application/json"}
        if self._options.token:
            headers["authorization"] = f"Bearer {self._options.token}"
        path = self._address.path or "/v1/metrics"
        try:
            target = f"{path}?{self._address.query}" if self._address.query else path
            answer = exchange(
                connection, "POST", target, body, headers, within_s=timeout_s, most_bytes=1 << 16, cut=True
            )
            return answer.status, answer.body.decode("utf-8", "replace")[:_SHOWN]
        finally:
            connection.close()


def _context(options: OtlpOptions) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=options.ssl_ca or None)
    except OSError as error:
        raise ConfigError(f"sink-uri: ssl-ca cannot be used: {error}") from error
