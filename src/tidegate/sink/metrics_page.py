"""The page of the metrics sink for Prometheus, and what it shows of tallies.

    orders_total{changefeed="shop",status="paid"} 20.0
    tidegate_metrics_checkpoint_ts{changefeed="shop"} 1767322984000       changes up to here are counted, ms
    tidegate_metrics_skipped_rows_total{changefeed, metric}               rows whose value does not count
    tidegate_metrics_overflowed{changefeed, metric}                       1 where some series are in _other
    tidegate_metrics_alerts_firing{changefeed, metric}

A page of its own is served in a thread beside the rounds.  A client holds a thread for at most CLIENT_S, whether it
sends nothing or trickles; beyond CLIENTS at a time, connections are closed at once.

Only this module needs prometheus-client: a changefeed that sends OTLP alone runs without it.

Source: Prometheus, "Exposition formats".
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from tidegate.model.errors import EnvironmentFault
from tidegate.model.tso import physical_ms
from tidegate.objectstore.threads import begin_thread
from tidegate.sink.exchange import shut_down_after
from tidegate.sink.metrics_tally import ShownNumbers, ShownRule

_FAMILIES: Final[Mapping[str, Callable[[str, str], Metric]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


LabelledNumbers: TypeAlias = tuple[Mapping[str, str], ShownNumbers]
"""The labels of a feed and its snapshot."""


class SnapshotCollector(Collector):
    """Collects the snapshot of one feed, if it has one."""

    def __init__(self, snapshot: Callable[[], ShownNumbers | None]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        return families([] if snapshot is None else [({"changefeed": snapshot.feed}, snapshot)])


def families(snapshots: Sequence[LabelledNumbers]) -> Iterator[Metric]:
    """Return the families of some snapshots, and those about the rules themselves. Of two rules of one name the type of
    the first holds; those of another type are left out."""
    if not snapshots:
        return
    by_name: dict[str, Metric] = {}
    for labels, snapshot in snapshots:
        for shown in snapshot.rules:
            family = by_name.setdefault(
                shown.rule.metric, _FAMILIES[shown.rule.kind](shown.rule.metric, shown.rule.about)
            )
            if family.type == shown.rule.kind:
                _fill(family, shown, labels)
    yield from by_name.values()
    reached = GaugeMetricFamily("tidegate_metrics_checkpoint_ts", "Changes are counted up to here, ms")
    skipped = CounterMetricFamily("tidegate_metrics_skipped_rows", "Rows whose value does not count")
    overflowed = GaugeMetricFamily("tidegate_metrics_overflowed", "1 where max-series is reached")
    firing = GaugeMetricFamily("tidegate_metrics_alerts_firing", "Series whose alert fires")
    for labels, snapshot in snapshots:
        reached.add_sample(reached.name, dict(labels), float(physical_ms(snapshot.checkpoint_ts)))
        for shown in snapshot.rules:
            own = {**labels, "metric": shown.rule.metric}
            skipped.add_sample(f"{skipped.name}_total", own, shown.skipped)
            overflowed.add_sample(overflowed.name, own, float(shown.overflowed))
            firing.add_sample(firing.name, own, shown.firing)
    yield from (reached, skipped, overflowed, firing)


def _fill(family: Metric, shown: ShownRule, of_feed: Mapping[str, str]) -> None:
    name = family.name
    for labels, amounts in sorted(shown.values.items()):
        own = {**of_feed, **dict(zip(shown.rule.label_names, labels, strict=True))}
        if shown.rule.kind == "histogram":
            bounds = [*(repr(float(bound)) for bound in shown.rule.bounds), "+Inf"]
            for bound, count in zip(bounds, accumulate(amounts[1:]), strict=True):
                family.add_sample(f"{name}_bucket", {**own, "le": bound}, float(count))
            family.add_sample(f"{name}_count", own, float(sum(amounts[1:])))
            family.add_sample(f"{name}_sum", own, float(amounts[0]))
        else:
            family.add_sample(f"{name}_total" if shown.rule.kind == "counter" else name, own, float(amounts[0]))


CLIENT_S: Final = 10.0
CLIENTS: Final = 32
POLL_S: Final = 0.1


class _Server(ThreadingWSGIServer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._room = threading.BoundedSemaphore(CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket, client_address: Any) -> None:  # type: ignore[override]
        try:
            with shut_down_after(CLIENT_S, request):
                super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, *_: object) -> None:
        """Log nothing: clients may disconnect at any time."""


class _SixServer(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_S

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class MetricsPage:
    """Serves the page at an address until it is closed. Raises EnvironmentFault if the address is in use."""

    def __init__(self, address: tuple[str, int], snapshot: Callable[[], ShownNumbers | None]) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SnapshotCollector(snapshot))
        page = make_wsgi_app(registry)

        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
            if environ.get("PATH_INFO") == "/metrics":
                return page(environ, start)
            start("404 Not Found", [("content-type", "text/plain")])
            return [b"see /metrics\n"]

        server = _SixServer if ":" in address[0] else _Server
        try:
            self._server = make_server(*address, answer, server, _Handler)
        except (OSError, OverflowError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            raise EnvironmentFault(f"metrics://{address[0]}:{address[1]}: {reason}; another port: sink-uri") from error
        self.port = self._server.server_port
        self._thread = begin_thread(lambda: self._server.serve_forever(POLL_S), "metrics")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(CLIENT_S)
