"""Keys of a rule of the metrics sink."""

from typing import Annotated

import msgspec

from tidegate.model.option import Option


class RuleText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"):
    """One entry of `sink.metrics-config.rules`, as the file has it."""

    metric: Annotated[str, Option("metric", "name of the metric; a counter's ends in `_total`", default="required")] = (
        ""
    )
    type: Annotated[str, Option("type", "`counter`, `gauge` or `histogram`")] = "counter"
    matcher: Annotated[tuple[str, ...], Option("matcher", "tables of a rule", "texts", '["*.*"]')] = ()
    events: Annotated[
        tuple[str, ...],
        Option("events", "`insert`, `update`, `delete`: changes that count (not for gauges)", "texts", "[]"),
    ] = ()
    when: Annotated[str, Option("when", "SQL condition on old and new values: changes that count", default="none")] = ""
    value: Annotated[str, Option("value", "SQL: value to add or observe; none: 1", default="none")] = ""
    labels: Annotated[tuple[str, ...], Option("labels", "columns, or `NAME=SQL`", "texts", "[]")] = ()
    buckets: Annotated[tuple[int | float, ...], Option("buckets", "upper bounds of a histogram", "numbers", "[]")] = ()
    help: Annotated[str, Option("help", "description of the metric", default="none")] = ""
    max_series: Annotated[int, Option("max-series", "maximum series; beyond it, labels are `_other`")] = 1000
    alert_above: Annotated[
        int | float | None,
        Option(
            "alert-above",
            "alert above this rise within alert-window, or this value of a gauge",
            "number",
            "none",
        ),
    ] = None
    alert_below: Annotated[int | float | None, Option("alert-below", "alert below it", "number", "none")] = None
    alert_window: Annotated[str, Option("alert-window", "time window of an alert, in commit time")] = "5m"
