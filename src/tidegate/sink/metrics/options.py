"""What a metrics sink is asked to do, and where its numbers can be read: a value that travels to tasks."""

from dataclasses import dataclass, field

from tidegate.sink.metrics.rule import MetricRule
from tidegate.sink.webhook.options import WebhookOptions


@dataclass(frozen=True, slots=True)
class OtlpOptions:
    """A collector of OpenTelemetry, and how often it is told. Printing it shows no token."""

    url: str
    interval_s: float = 10.0
    timeout_s: float = 10.0
    ssl_ca: str = ""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Rules, and where their numbers go. `place` is the address of the page (None: no page of its own), `clocks` are
    those on which TIMESTAMPs come, `time_zone` those on which expressions see them."""

    feed: str
    home: str
    """Where the feed keeps what is its own: no other feed has it."""
    rules: tuple[MetricRule, ...]
    place: tuple[str, int] | None = None
    clocks: str = "UTC"
    time_zone: str = "UTC"
    otlp: OtlpOptions | None = None
    alerts: WebhookOptions | None = None
