"""Tallies of the metrics sink: exact series per rule, and their publication to OpenTelemetry (metrics_page.py: to
Prometheus).

    task: orders   {(paid): 2}, {(open): -1}  ─┐
    task: orders   {(paid): 1}                ─┴─►  tally  {(paid): 17+2+1, (open): 4-1}  ──► stored in the checkpoint

    series    table, partition   for gauges: incarnation of the table whose rows are counted, and the partition
              labels             one text per label
              amounts            (value,)  or for a histogram (sum, count of each bucket, the last without bound)

Amounts are Decimals, so sums do not depend on the order of their parts, and a restart continues from what was stored.

Beyond max-series, rows are counted under the labels `_other`.  Which labels have a series of their own is decided once:
the smallest new ones of a round, as many as there is room for.  A task drops only labels that the driver would not
choose either, so both agree without communication.  What was added under `_other` is subtracted there.

A snapshot has one value per series, for gauges the sum over live tables.  `SHOWN` holds the snapshots of all feeds of
this process, for the page of a server.  Every publication shows the last checkpoint and never half a round.

OpenTelemetry collectors get OTLP over HTTP as JSON, from a thread of its own: counters as monotonic cumulative sums,
gauges as their current value, histograms as cumulative counts of buckets, all since the rule began.  Cumulative numbers
need no memory of what was sent: a collector that was away gets them with the next call.

Source: OpenTelemetry, "OTLP Specification" (OTLP/HTTP, JSON), metrics.proto.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from tidegate.model.tso import physical_ms
from tidegate.objectstore.threads import begin_thread
from tidegate.schema.state import SchemaState
from tidegate.sink.exchange import HttpClient, tls_context
from tidegate.sink.metrics_options import MetricsOptions
from tidegate.sink.metrics_rule import MetricRule, row_text

Labels: TypeAlias = tuple[str, ...]
Amounts: TypeAlias = tuple[Decimal, ...]
EXACT: Final = Context(prec=1000)
"""Wide enough for the sum of any doubles that a column holds."""
ZERO: Final = Decimal(0)


class SeriesKey(NamedTuple):
    """The owner of a series' numbers; those of counters belong to no table."""

    table: str
    partition: str
    labels: Labels


def added(first: Amounts, second: Amounts) -> Amounts:
    """Return the sums."""
    return tuple(EXACT.add(left, right) for left, right in zip(first, second, strict=True))


@dataclass(slots=True)
class TallyPart:
    """The counts of a task for a rule. `slots` are commit times, in slots of the rule, for alerts; `skipped` are rows
    whose value the rule does not accept."""

    series: dict[SeriesKey, Amounts] = field(default_factory=dict)
    slots: dict[tuple[Labels, int], Decimal] = field(default_factory=dict)
    skipped: int = 0
    overflowed: bool = False

    def add(self, key: SeriesKey, amounts: Amounts) -> None:
        before = self.series.get(key)
        self.series[key] = amounts if before is None else added(before, amounts)

    def add_slot(self, labels: Labels, slot: int, amount: Decimal) -> None:
        """Note how much came in a slot."""
        self.slots[labels, slot] = EXACT.add(self.slots.get((labels, slot), ZERO), amount)

    def merge(self, part: "TallyPart") -> None:
        for key, amounts in part.series.items():
            self.add(key, amounts)
        for (labels, slot), amount in part.slots.items():
            self.add_slot(labels, slot, amount)
        self.skipped += part.skipped

    def fold(self, counted: Collection[Labels], room: int, overflow: Labels) -> None:
        """Put new labels beyond the `room` smallest together."""
        new = sorted({key.labels for key in self.series} - set(counted) - {overflow})
        beyond = set(new[max(room, 0) :])
        if not beyond:
            return
        self.overflowed = True
        for key in [key for key in self.series if key.labels in beyond]:
            self.add(key._replace(labels=overflow), self.series.pop(key))
        for labels, slot in [each for each in self.slots if each[0] in beyond]:
            self.add_slot(overflow, slot, self.slots.pop((labels, slot)))


@dataclass(slots=True)
class Tally:
    """All that a rule has counted; `since_ms` is when it began, `firing` the labels of alerts, each with its begin."""

    rule: MetricRule
    since_ms: int
    labels: set[Labels] = field(default_factory=set)
    """Labels that have a series of their own."""
    series: dict[SeriesKey, Amounts] = field(default_factory=dict)
    slots: dict[tuple[Labels, int], Decimal] = field(default_factory=dict)
    firing: dict[Labels, int] = field(default_factory=dict)
    skipped: int = 0
    judged: int = 0
    """The slot up to which alerts are judged."""

    @property
    def room(self) -> int:
        """The number of labels that may still get a series of their own."""
        return self.rule.max_series - len(self.labels)

    @property
    def is_full(self) -> bool:
        return any(key.labels == self.rule.overflow for key in self.series) and bool(self.rule.labels)

    def with_parts(self, parts: Iterable[TallyPart]) -> "Tally":
        """Return the tally with the counts of tasks; this one is not changed."""
        whole, tally = TallyPart(), self.copy()
        for part in parts:
            whole.merge(part)
        whole.fold(self.labels, self.room, self.rule.overflow)
        TallyPart(tally.series, tally.slots).merge(whole)
        tally.labels |= {key.labels for key in whole.series} - {self.rule.overflow}
        tally.skipped += whole.skipped
        return tally

    def copy(self) -> "Tally":
        series, slots, firing = dict(self.series), dict(self.slots), dict(self.firing)
        return replace(self, labels=set(self.labels), series=series, slots=slots, firing=firing)

    def kept(self) -> dict[str, Any]:
        """Return the tally as plain values: numbers as texts, labels once."""
        every = sorted({*self.labels, *map(attrgetter("labels"), self.series), *self.firing})
        number = {labels: index for index, labels in enumerate(every)}
        return {
            "form": self.rule.form,
            "since": self.since_ms,
            "labels": [list(labels) for labels in every],
            "own": sorted(number[labels] for labels in self.labels),
            "series": [
                [number[key.labels], key.table, key.partition, *map(str, amounts)]
                for key, amounts in self.series.items()
            ],
            "slots": [[number[labels], slot, str(amount)] for (labels, slot), amount in self.slots.items()],
            "firing": [[number[labels], since] for labels, since in self.firing.items()],
            "skipped": self.skipped,
            "judged": self.judged,
        }


def tally_of(rule: MetricRule, kept: Mapping[str, Any] | None, now_ms: int) -> Tally:
    """Return the tally that was kept; a new one for None, or where the rule's form is another now."""
    if kept is None or kept["form"] != rule.form:
        return Tally(rule, now_ms)
    labels = [tuple(each) for each in kept["labels"]]
    return Tally(
        rule,
        kept["since"],
        {labels[index] for index in kept["own"]},
        {
            SeriesKey(table, partition, labels[index]): tuple(map(Decimal, amounts))
            for index, table, partition, *amounts in kept["series"]
        },
        {(labels[index], slot): Decimal(amount) for index, slot, amount in kept["slots"]},
        {labels[index]: since for index, since in kept["firing"]},
        kept["skipped"],
        kept["judged"],
    )


class Limit(msgspec.Struct, frozen=True):
    """The labels of a rule that have their own series, and how many more may; tasks fold others into `_other`."""

    labels: frozenset[Labels]
    room: int


@dataclass(frozen=True, slots=True)
class ShownRule:
    """The numbers of a rule by its labels."""

    rule: MetricRule
    since_ms: int
    values: Mapping[Labels, Amounts]
    skipped: int
    overflowed: bool
    firing: int


@dataclass(frozen=True, slots=True)
class ShownNumbers:
    """The numbers that a feed shows at a checkpoint."""

    feed: str
    checkpoint_ts: int
    rules: tuple[ShownRule, ...]


SHOWN: Final[dict[str, ShownNumbers]] = {}
"""The snapshots of the feeds of this process, by the home of each feed."""


def values_of(tally: Tally, state: SchemaState) -> dict[Labels, Amounts]:
    """Return the numbers of a tally; those of a gauge over the tables that live and that its rule takes."""
    if tally.rule.kind != "gauge":
        return {key.labels: amounts for key, amounts in tally.series.items()}
    names = {table.incarnation: table.name for table in state.tables.values() if tally.rule.takes(table.name)}
    singles = [row_text(text, tally.rule.sql_mode).single for _, text in tally.rule.labels]
    parts = [
        (index, ("table_schema", "table_name").index(single[1]))
        for index, single in enumerate(singles)
        if single is not None and single[0] == "event"
    ]
    values: dict[Labels, Amounts] = {}
    for key, amounts in tally.series.items():
        if (name := names.get(key.table)) is not None:
            labels = key.labels
            for index, part in parts:
                labels = (*labels[:index], labels[index] or name[part], *labels[index + 1 :])
            values[labels] = added(values[labels], amounts) if labels in values else amounts
    return values


def snapshot_of(feed: str, tallies: Sequence[Tally], state: SchemaState, checkpoint_ts: int) -> ShownNumbers:
    """Return the numbers that a feed shows of its tallies at a checkpoint."""
    rules = tuple(
        ShownRule(tally.rule, tally.since_ms, values_of(tally, state), tally.skipped, tally.is_full, len(tally.firing))
        for tally in tallies
    )
    return ShownNumbers(feed, checkpoint_ts, rules)


LOGGER: Final = logging.getLogger(__name__)
_CUMULATIVE: Final = 2
_MS_NS: Final = 1_000_000


def request_body(snapshot: ShownNumbers) -> bytes:
    """Return the ExportMetricsServiceRequest of a snapshot."""
    metrics = [_metric(shown, int(physical_ms(snapshot.checkpoint_ts))) for shown in snapshot.rules]
    resource = {"attributes": [_attribute("service.name", "tidegate"), _attribute("changefeed", snapshot.feed)]}
    scope = {"scope": {"name": "tidegate.metrics"}, "metrics": metrics}
    return msgspec.json.encode({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


def _metric(shown: ShownRule, at_ms: int) -> dict[str, Any]:
    kind = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}[shown.rule.kind]
    content: dict[str, Any] = {"dataPoints": list(_points(shown, at_ms))}
    if kind != "gauge":
        content["aggregationTemporality"] = _CUMULATIVE
    if kind == "sum":
        content["isMonotonic"] = True
    return {"name": shown.rule.metric, "description": shown.rule.about, kind: content}


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
    """Sends the current snapshot every interval, and once more when it is closed."""

    def __init__(self, options: MetricsOptions, snapshot: Callable[[], ShownNumbers | None]) -> None:
        self._options, self._snapshot = options, snapshot
        address = urlsplit(options.otlp_url)
        context = None if address.scheme == "http" else tls_context(options.ssl_ca)
        self._target = (address.path or "/v1/metrics") + (f"?{address.query}" if address.query else "")
        self._client = HttpClient(
            address.hostname or "",
            address.port,
            None if context is None else lambda: context,
            within_s=options.timeout_s,
            most_bytes=1 << 16,
            cut=True,
        )
        self._headers = {"content-type": "application/json"}
        if options.otlp_token:
            self._headers["authorization"] = f"Bearer {options.otlp_token}"
        self._end = threading.Event()
        self._fault = ""
        self._thread = begin_thread(self._run, "otlp")

    def close(self) -> None:
        self._end.set()
        self._thread.join(self._options.timeout_s + 1)

    def _run(self) -> None:
        while not self._end.wait(self._options.otlp_interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        """Send once; the same fault is logged once, until a call succeeds."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        try:
            reply = self._client.ask("POST", self._target, request_body(snapshot), self._headers)
            fault = "" if reply.is_ok else f"{reply.status} {reply.text}"
        except OSError as error:
            fault = str(error) or type(error).__name__
        finally:
            self._client.close()
        if fault and fault != self._fault:
            url = self._options.otlp_url.partition("?")[0]
            LOGGER.warning("otlp-endpoint %s: %s; retrying every %g s", url, fault, self._options.otlp_interval_s)
        self._fault = fault
