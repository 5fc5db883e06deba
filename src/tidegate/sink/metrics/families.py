"""Snapshots in Prometheus's form: families of samples, each with the name of its changefeed.

    orders_total{changefeed="shop",status="paid"} 20.0
    tidegate_metrics_checkpoint_ts{changefeed="shop"} 1767322984000       up to which changes are counted, ms
    tidegate_metrics_skipped_rows_total{changefeed, metric}               rows whose value does not count
    tidegate_metrics_overflowed{changefeed, metric}                       1 where some series are in _other
    tidegate_metrics_alerts_firing{changefeed, metric}

Source: Prometheus, "Exposition formats".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.model.tso import physical_ms
from tidegate.sink.metrics.rule import MetricRule
from tidegate.sink.metrics.shown import ShownNumbers, ShownRule
from tidegate.sink.metrics.tally import Amounts

_FAMILIES: Final[Mapping[str, Callable[[str, str], Metric]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class LabelledNumbers(NamedTuple):
    """A snapshot and the labels of its feed."""

    labels: Mapping[str, str]
    snapshot: ShownNumbers


class NumbersCollector(Collector):
    """What `snapshots` gives when somebody asks."""

    def __init__(self, snapshots: Callable[[], Iterable[LabelledNumbers]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        return families(list(self._snapshots()))


def families(snapshots: Sequence[LabelledNumbers]) -> Iterator[Metric]:
    """Return the families of some snapshots. Of two rules of one name the type of the first holds; what is of another
    type is left out."""
    if not snapshots:
        return
    found: dict[str, Metric] = {}
    for labels, snapshot in snapshots:
        for shown in snapshot.rules:
            family = found.setdefault(shown.rule.metric, _family(shown.rule))
            if family.type == shown.rule.kind:
                _fill(family, shown, labels)
    yield from found.values()
    yield from _own(snapshots)


def _family(rule: MetricRule) -> Metric:
    return _FAMILIES[rule.kind](rule.metric, rule.about)


def _fill(family: Metric, shown: ShownRule, own: Mapping[str, str]) -> None:
    name = family.name
    for labels, amounts in sorted(shown.values.items()):
        told = {**own, **dict(zip(shown.rule.label_names, labels, strict=True))}
        if shown.rule.kind == "histogram":
            for bound, count in buckets(shown.rule, amounts):
                family.add_sample(f"{name}_bucket", {**told, "le": bound}, count)
            family.add_sample(f"{name}_count", told, float(sum(amounts[1:])))
            family.add_sample(f"{name}_sum", told, float(amounts[0]))
        else:
            family.add_sample(f"{name}_total" if shown.rule.kind == "counter" else name, told, float(amounts[0]))


def buckets(rule: MetricRule, amounts: Amounts) -> Iterator[tuple[str, float]]:
    """Return the bounds of a histogram and how many lie at or below each."""
    bounds = [*(repr(float(bound)) for bound in rule.bounds), "+Inf"]
    return zip(bounds, map(float, accumulate(amounts[1:])), strict=True)


def _own(snapshots: Sequence[LabelledNumbers]) -> Iterator[Metric]:
    """Numbers about the rules themselves."""
    reached = GaugeMetricFamily("tidegate_metrics_checkpoint_ts", "Changes are counted up to here, ms")
    skipped = CounterMetricFamily("tidegate_metrics_skipped_rows", "Rows whose value does not count")
    over = GaugeMetricFamily("tidegate_metrics_overflowed", "1 where max-series is reached")
    firing = GaugeMetricFamily("tidegate_metrics_alerts_firing", "Series whose alert fires")
    for labels, snapshot in snapshots:
        reached.add_sample(reached.name, dict(labels), float(physical_ms(snapshot.checkpoint_ts)))
        for shown in snapshot.rules:
            told = {**labels, "metric": shown.rule.metric}
            skipped.add_sample(f"{skipped.name}_total", told, shown.skipped)
            over.add_sample(over.name, told, float(shown.overflowed))
            firing.add_sample(firing.name, told, shown.firing)
    yield from (reached, skipped, over, firing)
