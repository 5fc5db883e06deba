"""The metrics of /metrics for OpenTelemetry, where its environment asks for them.

    OTEL_METRICS_EXPORTER, or an endpoint of OTLP ──► exporters, as the packages of OpenTelemetry register them
    collectors of Metrics ──► families ──► MetricsData ──► every OTEL_METRIC_EXPORT_INTERVAL, and at the end

Names, labels and values are those of /metrics: counters are cumulative sums, histograms have the counts of each bucket,
all others are gauges.  Endpoint, headers, certificates and timeouts are the exporter's own settings.

Source: OpenTelemetry, "Environment Variable Specification"; metrics.proto.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points, version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import Metric

from tidegate.model.errors import TidegateError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export

LOG: Final = logging.getLogger(__name__)
GROUP: Final = "opentelemetry_metrics_exporter"
PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
INTERVAL_MS: Final = "60000"
_POSITIVE: Final = re.compile("[1-9][0-9]{0,8}")
EXPORT_S: Final = 10.0
"""Time for an export."""


def _setting(name: str) -> str:
    """Return OTEL_EXPORTER_OTLP_METRICS_`name`, else the setting of all signals."""
    return next(filter(None, (os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}{name}") for kind in ("METRICS_", ""))), "")


def exporters() -> "list[export.MetricExporter]":
    """Return the exporters that the environment asks for; one whose package is missing is named in the log."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    names = os.environ.get("OTEL_METRICS_EXPORTER") or ("otlp" if _setting("ENDPOINT") else "")
    chosen = []
    for name in {word.strip() for word in names.split(",")} - {"", "none", "prometheus"}:
        protocol = _setting("PROTOCOL") or "http/protobuf"
        entry = PROTOCOLS.get(protocol, protocol) if name == "otlp" else name
        for point in (points := entry_points(group=GROUP, name=entry)):
            chosen.append(point.load()())
        if not points:
            LOG.warning("metrics are not exported to %s (%s): pip install opentelemetry-exporter-otlp", name, entry)
    return chosen


class MetricsExport:
    """Exports the metrics that `families` returns until `halt` is set, in a thread."""

    def __init__(self, families: Callable[[], Iterable[Metric]], server: str, halt: threading.Event) -> None:
        self._families, self._server, self._halt, self._begun_ns = families, server, halt, time.time_ns()
        self._exporters = exporters()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Start, if there is an exporter."""
        if self._exporters:
            self._thread.start()

    def join(self, timeout_s: float = EXPORT_S) -> None:
        """Wait for the last export."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        interval = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL_MS
        if not _POSITIVE.fullmatch(interval):  # the specification asks for a warning
            LOG.warning("OTEL_METRIC_EXPORT_INTERVAL = %s is no number of ms above 0: it is %s", interval, INTERVAL_MS)
            interval = INTERVAL_MS
        ends = False
        while not ends:
            ends = self._halt.wait(int(interval) / 1000)
            try:
                metrics = self._data()
            except TidegateError as error:  # the changefeeds are being taken over
                LOG.debug("no metrics are exported: %s", error)
                continue
            for each in self._exporters:
                each.export(metrics, EXPORT_S * 1000)
        for each in self._exporters:
            each.shutdown()

    def _data(self) -> "export.MetricsData":
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        own = {"service.name": "tidegate", "service.version": version("tidegate"), "service.instance.id": self._server}
        resource = Resource(own).merge(OTELResourceDetector().detect())
        metrics = list(otel_metrics(self._families(), self._begun_ns, time.time_ns()))
        scope = ScopeMetrics(InstrumentationScope("tidegate"), metrics, "")
        return MetricsData([ResourceMetrics(resource, [scope], "")])


def otel_metrics(families: Iterable[Metric], begun_ns: int, now_ns: int) -> "Iterator[export.Metric]":
    """Yield families of Prometheus that have samples as OpenTelemetry's metrics, under the names of their samples;
    times are in ns of Unix time."""
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        Sum,
    )

    always = AggregationTemporality.CUMULATIVE
    for family in families:
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        if not samples:
            continue
        data: Any
        if family.type == "histogram":
            data = Histogram(
                [HistogramDataPoint(*each) for each in histogram_points(samples, begun_ns, now_ns)], always
            )
            yield Metric(family.name, family.documentation, "", data)
            continue
        points = [NumberDataPoint(each.labels, begun_ns, now_ns, each.value) for each in samples]
        data = Sum(points, always, is_monotonic=True) if family.type == "counter" else Gauge(points)
        yield Metric(samples[0].name, family.documentation, "", data)


def histogram_points(samples: Iterable[Any], begun_ns: int, now_ns: int) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of a point for each set of labels; there is neither a least nor a greatest value."""
    parts: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in samples:
        labels = {**sample.labels}
        part = labels.pop("le", sample.name.rpartition("_")[2])
        parts.setdefault(tuple(labels.items()), {})[part] = sample.value
    for key, values in parts.items():
        total, count = values.pop("sum"), values.pop("count")
        counts = [int(upto - below) for below, upto in pairwise((0.0, *values.values()))]
        bounds = [float(bound) for bound in values if bound != "+Inf"]
        yield dict(key), begun_ns, now_ns, int(count), total, counts, bounds, None, None
