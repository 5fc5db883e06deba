"""Rules as a file has them, and sinks that follow them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.config.load import document_of
from tidegate.config.metrics import parse_metrics
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.sink.metrics import MetricsSink
from tidegate.sink.metrics_options import MetricsOptions
from tidegate.sink.metrics_rule import MetricRule


def rules_of(*rules: Mapping[str, Any]) -> tuple[MetricRule, ...]:
    """Rules that are checked."""
    tree = {"sink": {"metrics-config": {"rules": list(rules)}}}
    return parse_metrics("metrics://", document_of(tree)).rules


def sink_of(home: Path, rules: tuple[MetricRule, ...], **more: Any) -> MetricsSink:
    """A sink that keeps its numbers and its checkpoint in `home`."""
    return MetricsSink(MetricsOptions("feed", str(home), rules, **more), DirectoryCheckpoints(home, "feed"))
