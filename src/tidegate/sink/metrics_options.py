"""Options of the metrics sink, and its rules as a file has them: values that are sent to tasks."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.sink.webhook_options import WebhookOptions

if TYPE_CHECKING:
    from tidegate.sink.metrics_rule import MetricRule


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
    when: Annotated[str, Option("when", "SQL: what counts, by old and new values", default="none")] = ""
    value: Annotated[str, Option("value", "SQL: what is added or observed; none: 1", default="none")] = ""
    labels: Annotated[tuple[str, ...], Option("labels", "columns, or `NAME=SQL`", "texts", "[]")] = ()
    buckets: Annotated[tuple[int | float, ...], Option("buckets", "upper bounds of a histogram", "numbers", "[]")] = ()
    help: Annotated[str, Option("help", "what the metric is, for people", default="none")] = ""
    max_series: Annotated[int, Option("max-series", "most series; what is beyond has the labels `_other`")] = 1000
    alert_above: Annotated[
        int | float | None,
        Option(
            "alert-above",
            "alert above it: the rise within alert-window, or the value of a gauge",
            "number",
            "none",
        ),
    ] = None
    alert_below: Annotated[int | float | None, Option("alert-below", "alert below it", "number", "none")] = None
    alert_window: Annotated[str, Option("alert-window", "how far an alert looks back, in commit time")] = "5m"


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Rules, and where their numbers can be read; times in seconds. Printing it shows neither secret nor token.

    `page` is the address of the page (None: no page of its own), `clocks` are those on which TIMESTAMPs come,
    `time_zone` those on which expressions see them."""

    feed: str
    home: str
    """Where the feed keeps what is its own: no other feed has it."""
    rules: "tuple[MetricRule, ...]"
    page: tuple[str, int] | None = None
    name: str = ""
    clocks: str = "UTC"
    time_zone: str = "UTC"
    otlp_url: Annotated[str, Option("otlp-endpoint", "a collector that gets OTLP: http://HOST:4318/v1/metrics")] = ""
    otlp_interval_s: Annotated[float, Option("otlp-interval", "how often it does", low=10, high=TIME_MAX_MS)] = 10.0
    otlp_token_file: Annotated[
        str, Option("otlp-token-file", "file with the bearer token of these calls", local=Local.TOKEN)
    ] = ""
    alert_url: Annotated[
        str, Option("alert-url", "where alerts are posted, as CloudEvents one a call", called=True)
    ] = ""
    alert_secret_file: Annotated[
        str, Option("alert-secret-file", "file with the secret that they are signed with", local=Local.TOKEN)
    ] = ""
    alert_token_file: Annotated[
        str, Option("alert-token-file", "file with the bearer token of these calls", local=Local.TOKEN)
    ] = ""
    timeout_s: Annotated[float, Option("timeout", "time for an answer", low=1, high=TIME_MAX_MS)] = 10.0
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate of https://, where the system has it not", local=Local.FILE)
    ] = ""
    otlp_token: str = field(default="", repr=False)
    alert_secret: bytes = field(default=b"", repr=False)
    alert_token: str = field(default="", repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return f"metrics/{self.name}" if self.name else "metrics"

    @property
    def places(self) -> frozenset[str]:
        return frozenset()

    @property
    def alerts(self) -> WebhookOptions:
        """The calls of alerts: one event a call, which waits in the checkpoint until it is accepted or refused."""
        return WebhookOptions(
            feed=self.feed,
            url=self.alert_url,
            batch_events=1,
            timeout_s=self.timeout_s,
            retries=0,
            dead_letter="keep",
            dead_letters=f"{self.home}/dead-letters",
            ssl_ca=self.ssl_ca,
            secret=self.alert_secret,
            token=self.alert_token,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of rules that work, but perhaps not as meant."""
        notes = []
        if self.page is not None and self.page[0] not in {"127.0.0.1", "::1", "localhost"}:
            notes.append("sink-uri: the page of metrics:// has no login: labels hold what rows hold")
        if not self.alert_url and any(rule.is_watched for rule in self.rules):
            notes.append("sink.metrics-config: rules have alerts, and no alert-url is there to post them to")
        if self.alert_url.startswith("http://") and (self.alert_secret_file or self.alert_token_file):
            notes.append("alert-url: http:// shows alerts and token to whoever is on the way; https:// does not")
        return tuple(notes)
