"""OpenTelemetry gets what Prometheus and the log have: the metrics over OTLP, and a trace for each round."""

import gzip
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry import trace as api
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from tests.server.kit import ServerHome, until
from tidegate.engine import loop
from tidegate.engine.log_fields import context
from tidegate.server.otlp import MetricsExport, exporters
from tidegate.server.record import FeedId
from tidegate.server.server import Server

ONE = FeedId("default", "one")


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, ExportMetricsServiceRequest]]]]:
    """A receiver of OTLP over HTTP: its address, and the paths and bodies that came."""
    got: list[tuple[str, ExportMetricsServiceRequest]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            got.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=receiver.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{receiver.server_port}", got
    finally:
        receiver.shutdown()
        receiver.server_close()
        thread.join()


def run(server: Server, place: ServerHome) -> None:
    """Let a changefeed follow all that its upstream did."""
    until(lambda: server.changefeeds.is_owner)
    server.changefeeds.create(place.wish("one"), "")
    end = place.work()
    until(lambda: server.changefeeds.get(ONE).checkpoint_ts >= end)
    server.changefeeds.tick()


def test_metrics_over_otlp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment asks for is exported as the server ends: every sample of /metrics under its name with its
    labels and its value, counters as sums, histograms with the counts of their buckets."""
    place = ServerHome(tmp_path)
    with collector() as (address, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=data")
        server = place.server()
        try:
            run(server, place)
            server.changefeeds.pause(ONE, "")
            families = list(text_string_to_metric_families(server.changefeeds.watch.text().decode()))
            data = server._export._data()
            monkeypatch.setattr(server._export, "_data", lambda: data)  # before it gives its changefeeds up
        finally:
            server.stop()

    [(path, request)] = got
    [resource] = request.resource_metrics
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    [scope] = resource.scope_metrics
    metrics = {each.name: each for each in scope.metrics}
    assert path == "/v1/metrics"
    assert about.items() >= {"service.name": "tidegate", "service.instance.id": server.id, "team": "data"}.items()

    def labels(point: object) -> dict[str, str]:
        return {each.key: each.value.string_value for each in point.attributes}

    compared = 0
    for family in families:
        for sample in family.samples:
            if sample.name.endswith("_created") or not sample.name.startswith(("ticdc_", "tidegate_")):
                continue
            if family.type == "histogram":
                points = metrics[family.name].histogram.data_points
                own = {name: value for name, value in sample.labels.items() if name != "le"}
                [point] = [each for each in points if labels(each) == own]
                kind = sample.name.removeprefix(f"{family.name}_")
                bound = sample.labels.get("le", "")
                within = sum(
                    count
                    for upper, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True)
                    if kind == "bucket" and upper <= float(bound)
                )
                assert {"bucket": within, "count": point.count, "sum": point.sum}[kind] == sample.value
                assert not point.HasField("min")
            else:
                metric = metrics[sample.name]
                shown = metric.sum if family.type == "counter" else metric.gauge
                assert metric.WhichOneof("data") == ("sum" if family.type == "counter" else "gauge")
                [point] = [each for each in shown.data_points if labels(each) == sample.labels]
                if "lag" not in sample.name and sample.name != "ticdc_owner_current_pd_ts":
                    assert getattr(point, point.WhichOneof("value")) == pytest.approx(sample.value, abs=1)
            compared += 1
    assert compared > 100
    assert metrics["tidegate_changefeed_rounds_total"].sum.is_monotonic


@pytest.mark.parametrize(
    ("environment", "kinds"),
    [
        ({}, []),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}, []),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "otlp"}, []),
        ({"OTEL_METRICS_EXPORTER": "prometheus, console"}, ["ConsoleMetricExporter"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h"}, ["OTLPMetricExporter"]),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, []),
    ],
)
def test_what_the_environment_asks_for(
    environment: dict[str, str], kinds: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Exporters are those of the environment; one that is not installed is told with the package that has it."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert [type(each).__name__ for each in exporters()] == kinds
    lacks = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc"
    assert ("pip install opentelemetry-exporter-otlp" in caplog.text) == lacks


@pytest.mark.parametrize("setting", ["abc", "0", "-1", "1" * 400])
def test_a_wrong_interval_is_ignored(
    setting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics are exported at the usual interval, and the log says so."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", setting)
    halt = threading.Event()
    halt.set()
    MetricsExport(lambda: (), "id", halt)._run()
    assert f"OTEL_METRIC_EXPORT_INTERVAL = {setting} is no number of ms above 0: it is 60000" in caplog.text


def test_a_trace_has_the_rounds_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of a server's changefeed is one trace, from reading to publishing, whose spans carry the round and the
    changefeed that stand in the log."""
    seen, logged = InMemorySpanExporter(), []
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    monkeypatch.setattr(api, "get_tracer", provider.get_tracer)
    handler = logging.Handler()
    handler.emit = lambda _: logged.append(context())
    log = logging.getLogger(loop.__name__)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    loop._opener.cache_clear()
    place = ServerHome(tmp_path)
    server = place.server()
    try:
        run(server, place)
    finally:
        server.stop()
        loop._opener.cache_clear()
        log.removeHandler(handler)
        log.setLevel(level)

    spans = seen.get_finished_spans()
    traces: dict[int, dict[str, object]] = {}
    for one in spans:
        traces.setdefault(one.context.trace_id, {})[one.name] = one
    rounds = {(str(one["changefeed"]), one["round"]) for one in logged if "round" in one}
    assert {(one.attributes["tidegate.changefeed"], one.attributes["tidegate.round"]) for one in spans} == rounds
    assert {name for name, _ in rounds} == {"default/one"}
    for trace in traces.values():
        assert trace.keys() - {"tidegate.ddl"} == {f"tidegate.{name}" for name in ("round", "read", "write", "publish")}
        whole, read, write = (trace[f"tidegate.{name}"] for name in ("round", "read", "write"))
        assert whole.start_time == read.start_time <= read.end_time <= write.start_time
