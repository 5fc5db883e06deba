"""Metrics for Prometheus: TiCDC's names, units and labels for what applies, ours beside them.

    ticdc_owner_checkpoint_ts{namespace,changefeed}       ms, the physical part of the TSO
    ticdc_owner_checkpoint_ts_lag                         s
    tidegate_changefeed_…                                 metrics without a counterpart in TiCDC

Gauges are computed at each scrape, so they are always current: the lag of a waiting or failed changefeed keeps
growing; a stopped, finished or removed one has none.  Counters of a run restart with it.  TiCDC's counters lack the
`_total` suffix that Prometheus's libraries require, so they are exported as untyped.

No label is a table's name; an error's message is cut.  The metrics of metrics:// changefeeds are exported here, too.

Source: TiCDC, metrics.go of its packages; state numbers of `ticdc_owner_status`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from tidegate.config.uri import mask_text, scheme_of
from tidegate.engine.progress import Progress
from tidegate.engine.reading import CaptureProgress, LoadProgress
from tidegate.model.errors import LoadCancelled
from tidegate.model.tso import physical_ms
from tidegate.server.record import FeedId, FeedView, wall_ms
from tidegate.sink.metrics_page import families
from tidegate.sink.metrics_tally import ShownNumbers

F: Final = ("namespace", "changefeed")
STATES: Final = {"normal": 0, "pending": 1, "failed": 2, "stopped": 3, "finished": 4, "removed": 5, "warning": 6, "": 7}
LAGGING: Final = frozenset({"", "normal", "pending", "warning", "failed"})
MESSAGE_MAX: Final = 200
LAG_BUCKETS: Final = (
    *(half / 2 for half in range(1, 21)),
    *range(11, 21),
    *range(21, 592, 30),
    *range(900, 3601, 300),
    *(4000, 8000, 16000, 32000),
)
ROW_BUCKETS: Final = tuple(2**power for power in range(18))
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value = Callable[[FeedView, int], float | None]


class Gauge(NamedTuple):
    """A number per changefeed; `value` returns None while it has none."""

    name: str
    about: str
    value: Value


def _lag_s(ts: int, now_ms: int) -> float:
    return max(now_ms - physical_ms(ts), 0) / 1000


def _slowest(view: FeedView, _: int) -> float | None:
    if view.progress is None or not view.progress.tables:
        return None
    return physical_ms(
        min((view.checkpoint_ts, *(table.commit_ts for table in view.progress.parked if table.commit_ts)))
    )


def _lagging(value: Value) -> Value:
    return lambda view, now_ms: value(view, now_ms) if view.state in LAGGING else None


def _of_run(value: Callable[[Progress], float]) -> Value:
    """Return a value of the run's last report."""
    return lambda view, _: float(value(view.progress)) if view.progress else None


def _history_left_s(view: FeedView, _: int) -> float | None:
    left_ms = view.progress.history_left_ms if view.progress and view.running else None
    return None if left_ms is None else left_ms / 1000


def _snapshot(name: str, about: str, value: Callable[[LoadProgress], float]) -> Gauge:
    """Return a value of the full load; changefeeds that began without one have none."""
    return Gauge(
        f"tidegate_snapshot_{name}",
        about,
        lambda view, _: float(value(view.progress.load)) if view.progress and view.progress.load else None,
    )


def _capture(name: str, about: str, value: Callable[[CaptureProgress], float]) -> Gauge:
    """Return a value of the capture of a cluster; changefeeds without one have none."""
    return Gauge(
        f"tidegate_capture_{name}",
        about,
        lambda view, _: float(value(view.progress.capture)) if view.progress and view.progress.capture else None,
    )


def _snapshot_is(word: str, about: str) -> Gauge:
    """Return whether Debezium calls the full load running, paused, aborted or completed."""

    def value(view: FeedView, _: int) -> float | None:
        load = view.progress.load if view.progress else None
        if view.error is not None and view.error.code == LoadCancelled.code:
            return word == "aborted"
        ends = {"stopped": "paused", "failed": "aborted"}
        return None if load is None else word == ("completed" if load.is_done else ends.get(view.state, "running"))

    return Gauge(f"tidegate_snapshot_{word}", about, value)


def _when(ts: Callable[[FeedView], int]) -> Value:
    """Return a timestamp in ms, while the changefeed should advance."""
    return _lagging(lambda view, _: physical_ms(ts(view)))


def _behind(ts: Callable[[FeedView], int]) -> Value:
    """Return the lag of a timestamp in s, while the changefeed should advance."""
    return _lagging(lambda view, now_ms: _lag_s(ts(view), now_ms))


GAUGES: Final = (
    Gauge("ticdc_owner_status", "0 normal, 2 failed, 3 stopped, 4 finished, 6 warning", lambda v, _: STATES[v.state]),
    Gauge(
        "ticdc_owner_checkpoint_ts", "Everything up to it is in the sink, ms", _when(lambda view: view.checkpoint_ts)
    ),
    Gauge("ticdc_owner_checkpoint_ts_lag", "Now less the checkpoint, s", _behind(lambda view: view.checkpoint_ts)),
    Gauge("ticdc_owner_resolved_ts", "Everything up to it has been read, ms", _when(lambda view: view.resolved_ts)),
    Gauge("ticdc_owner_resolved_ts_lag", "Now less the resolved ts, s", _behind(lambda view: view.resolved_ts)),
    Gauge("ticdc_scheduler_table_count", "Tables with rows in this run", _of_run(lambda run: len(run.tables))),
    Gauge("ticdc_scheduler_slow_table_checkpoint_ts", "Checkpoint of the slowest table, ms", _lagging(_slowest)),
    Gauge("ticdc_mounter_total_rows_count", "Row changes read", _of_run(lambda run: run.rows_landed)),
    Gauge("tidegate_changefeed_running", "1 while it runs on this server", lambda v, _: v.running),
    Gauge("tidegate_changefeed_rows_per_second", "Rows a second, mean of 10 s", _of_run(lambda run: run.rows_per_s)),
    Gauge("tidegate_changefeed_behind_messages", "Messages that have not landed yet", _of_run(lambda run: run.behind)),
    Gauge(
        "tidegate_changefeed_history_left_seconds",
        "Time until the retention of its topics passes what it has read, s",
        _history_left_s,
    ),
    Gauge("tidegate_changefeed_parked_tables", "Tables that are parked", _of_run(lambda run: len(run.parked))),
    Gauge(
        "tidegate_changefeed_left_out_tables", "Tables that are not replicated", _of_run(lambda run: len(run.left_out))
    ),
    Gauge("tidegate_changefeed_ddl_running", "1 while a DDL is applied", _of_run(lambda run: run.ddl is not None)),
    _capture("held", "1 while a region or transaction holds it", lambda capture: bool(capture.held_by)),
    _capture("waiting_bytes", "Rows above the resolved ts in memory", lambda capture: capture.waiting_bytes),
    _capture("spilled_bytes", "Those in files", lambda capture: capture.spilled_bytes),
    _capture("uncommitted_bytes", "Rows of open transactions", lambda capture: capture.uncommitted_bytes),
    _capture("log_bytes", "The change log, which is trimmed behind the slowest", lambda capture: capture.log_bytes),
    _snapshot_is("running", "1 while the full load runs"),
    _snapshot_is("paused", "1 while the changefeed is stopped amid its full load"),
    _snapshot_is("aborted", "1 once the full load has failed, or was cancelled"),
    _snapshot_is("completed", "1 once the full load is done"),
    _snapshot("duration_seconds", "Time of this run that the full load took so far, s", lambda load: load.duration_s),
    _snapshot("ts", "S of the full load, ms", lambda load: physical_ms(load.ts)),
    _snapshot("total_table_count", "Tables of the full load", lambda load: load.tables),
    _snapshot("remaining_table_count", "Tables of it that are not whole", lambda load: load.tables - load.tables_done),
    _snapshot("total_chunk_count", "Chunks of the full load", lambda load: load.chunks),
    _snapshot("remaining_chunk_count", "Chunks of it to come", lambda load: load.chunks - load.chunks_done),
    _snapshot("bytes", "Bytes of the full load, estimated", lambda load: load.size_bytes),
    _snapshot("remaining_bytes", "Bytes of it to come, estimated", lambda load: load.size_bytes - load.bytes_done),
    _snapshot("bytes_per_second", "Bytes of it a second", lambda load: load.bytes_per_s),
    _snapshot("remaining_seconds", "Time that it still takes, s", lambda load: load.left_s),
    _snapshot(
        "gc_deadline",
        "The time until which its snapshot is kept from garbage collection, ms",
        lambda load: load.guarded_until_ms,
    ),
)
UNTYPED: Final = (
    Gauge("ticdc_sink_dml_event_count", "Row changes written to the sink", _of_run(lambda run: run.rows)),
    Gauge("ticdc_sink_table_sink_total_rows_count", "Row changes written to the sink", _of_run(lambda run: run.rows)),
    Gauge("ticdc_sink_ddl_exec_count", "DDLs applied", _of_run(lambda run: run.ddls)),
)
"""TiCDC's counters, whose names lack `_total`."""
COUNTERS: Final = (
    Gauge("tidegate_changefeed_messages_read", "Messages read", _of_run(lambda run: run.messages)),
    Gauge("tidegate_changefeed_messages_written", "Messages written", _of_run(lambda run: run.messages_written)),
    Gauge("tidegate_changefeed_dead_letters", "Messages that could not be read", _of_run(lambda run: run.dead_letters)),
    Gauge("tidegate_changefeed_rows_left_out", "Rows left out by filters", _of_run(lambda run: run.rows_left_out)),
    Gauge("tidegate_changefeed_ddls_left_out", "DDLs left out by filters", _of_run(lambda run: run.ddls_left_out)),
    Gauge("tidegate_changefeed_corrupt_rows", "Rows whose checksum contradicts them", _of_run(lambda run: run.corrupt)),
    Gauge("tidegate_snapshot_rows_scanned", "Rows of the full load, written", _of_run(lambda run: run.rows_loaded)),
    Gauge("tidegate_changefeed_rounds", "Rounds published", _of_run(lambda run: run.watermarks)),
)


class Metrics(Collector):
    """The metrics of a server.

    `views` returns its changefeeds, none on a server that is not the owner; `facts` returns numbers of the server
    itself by name, `made` those that a changefeed computes from rows."""

    def __init__(
        self,
        views: Callable[[], Iterable[FeedView]],
        facts: Callable[[], Mapping[str, float]],
        computed: Callable[[FeedId], ShownNumbers | None] = lambda _: None,
    ) -> None:
        self._views, self._facts, self._computed = views, facts, computed
        self._registry = registry = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._checkpoint_lag, self._resolved_lag = (
            Histogram(name, "Samples of the lag, s", F, buckets=LAG_BUCKETS, registry=registry)
            for name in ("ticdc_owner_checkpoint_lag_histogram", "ticdc_owner_resolved_ts_lag_histogram")
        )
        self._batch = Histogram(
            "ticdc_sink_batch_row_count", "Rows of a round", (*F, "type"), buckets=ROW_BUCKETS, registry=registry
        )
        registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterable[Metric]:
        """Return all metrics, for readers of other formats."""
        return self._registry.collect()

    def sampled(self, view: FeedView) -> None:
        """Observe the lags of a changefeed; called every few seconds."""
        if view.state not in LAGGING:
            return
        now_ms = wall_ms()
        self._checkpoint_lag.labels(*_labels(view.id)).observe(_lag_s(view.checkpoint_ts, now_ms))
        self._resolved_lag.labels(*_labels(view.id)).observe(_lag_s(view.resolved_ts, now_ms))

    def wrote(self, feed: FeedId, rows: int) -> None:
        """Observe the rows of a round."""
        self._batch.labels(*_labels(feed), "row").observe(rows)

    def collect(self) -> Iterator[Metric]:
        """Read the changefeeds."""
        now_ms, views = wall_ms(), list(self._views())
        for name, value in self._facts().items():
            yield GaugeMetricFamily(name, "Of the server", value)
        yield GaugeMetricFamily("ticdc_owner_current_pd_ts", "The clock that lags are measured with, ms", now_ms)
        kinds = ((GAUGES, GaugeMetricFamily), (UNTYPED, UntypedMetricFamily), (COUNTERS, CounterMetricFamily))
        for table, kind in kinds:
            for row in table:
                family = kind(row.name, row.about, labels=F)
                for view in views:
                    shown = row.value(view, now_ms)
                    if shown is not None:
                        family.add_metric(_labels(view.id), float(shown))
                yield family
        yield from _labelled(views)
        computed = [(view.id, snapshot) for view in views if (snapshot := self._computed(view.id)) is not None]
        yield from families([(dict(zip(F, _labels(each), strict=True)), number) for each, number in computed])


def _labelled(views: "list[FeedView]") -> Iterator[Metric]:
    errors = GaugeMetricFamily(
        "ticdc_owner_changefeed_error_info", "1 while it lasts", labels=(*F, "state", "error_time", "code", "message")
    )
    sinks = GaugeMetricFamily("ticdc_owner_changefeed_downstream_info", "1", labels=(*F, "downstream_type"))
    failures = UntypedMetricFamily("ticdc_processor_exit_with_error_count", "Errors", labels=F)
    path_rows = CounterMetricFamily(
        "tidegate_changefeed_road_rows",
        "Rows by path, and the reason where it is a slow one",
        labels=(*F, "road", "reason"),
    )
    lags = GaugeMetricFamily(
        "tidegate_partition_resolved_ts_lag", "Now less its resolved ts, s", labels=(*F, "topic", "partition")
    )
    for view in views:
        labels = _labels(view.id)
        sinks.add_metric([*labels, scheme_of(view.record.sink_uri)], 1)
        failures.add_metric(labels, view.failures)
        if (error := view.error) is not None:
            message = " ".join(mask_text(error.message).split())[:MESSAGE_MAX]
            errors.add_metric([*labels, view.state, error.since, error.code, message], 1)
        progress = view.progress
        for path, reason, rows in _rows_by_path(progress):
            path_rows.add_metric([*labels, path, reason], rows)
        for part in progress.partitions if progress and view.running else ():
            if part.resolved_ts is not None:
                lags.add_metric([*labels, part.topic, str(part.partition)], _lag_s(part.resolved_ts, wall_ms()))
    yield from (errors, sinks, failures, path_rows, lags)


def _rows_by_path(progress: Progress | None) -> Iterator[tuple[str, str, int]]:
    """Yield path, reason ("" for the fast one) and rows."""
    if progress is None:
        return
    slow = Counter[str]()
    for count in progress.slow_roads:
        slow[count.path] += count.rows
        yield count.path, count.reason, count.rows
    yield from ((path, "", rows - slow[path]) for path, rows in progress.roads.items() if rows > slow[path])


def _labels(feed: FeedId) -> list[str]:
    return [feed.namespace, feed.name]
