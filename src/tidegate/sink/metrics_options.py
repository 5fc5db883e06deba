"""Options of the metrics sink: a value that is sent to tasks."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.sink.webhook_options import WebhookOptions

if TYPE_CHECKING:
    from tidegate.sink.metrics_rule import MetricRule


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Rules, and where their metrics are published; times in seconds. Printing it shows neither secret nor token.

    `page` is the address of the page (None: no page of its own), `clocks` the time zone of incoming TIMESTAMPs,
    `time_zone` that of expressions."""

    feed: str
    home: str
    """The directory or store of this feed alone."""
    rules: "tuple[MetricRule, ...]"
    page: tuple[str, int] | None = None
    name: str = ""
    clocks: str = "UTC"
    time_zone: str = "UTC"
    otlp_url: Annotated[str, Option("otlp-endpoint", "OTLP collector: http://HOST:4318/v1/metrics")] = ""
    otlp_interval_s: Annotated[
        float, Option("otlp-interval", "export interval to that collector", low=10, high=TIME_MAX_MS)
    ] = 10.0
    otlp_token_file: Annotated[
        str, Option("otlp-token-file", "file with the bearer token of these calls", local=Local.TOKEN)
    ] = ""
    alert_url: Annotated[str, Option("alert-url", "URL for alerts, posted as single CloudEvents", masked=True)] = ""
    alert_secret_file: Annotated[
        str, Option("alert-secret-file", "file with the secret that signs alerts", local=Local.TOKEN)
    ] = ""
    alert_token_file: Annotated[
        str, Option("alert-token-file", "file with the bearer token of these calls", local=Local.TOKEN)
    ] = ""
    timeout_s: Annotated[float, Option("timeout", "timeout of a response", low=1, high=TIME_MAX_MS)] = 10.0
    ssl_ca: Annotated[
        str,
        Option("ssl-ca", "path of the CA certificate of https://, if the system does not have it", local=Local.FILE),
    ] = ""
    otlp_token: str = field(default="", repr=False)
    alert_secret: bytes = field(default=b"", repr=False)
    alert_token: str = field(default="", repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return f"metrics/{self.name}" if self.name else "metrics"

    @property
    def addresses(self) -> frozenset[str]:
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
        """Return warnings about rules that work, but perhaps not as intended."""
        notes = []
        if self.page is not None and self.page[0] not in {"127.0.0.1", "::1", "localhost"}:
            notes.append("sink-uri: the metrics:// endpoint has no authentication, and labels contain row data")
        if not self.alert_url and any(rule.is_watched for rule in self.rules):
            notes.append("sink.metrics-config: rules have alerts, but alert-url is not set")
        if self.alert_url.startswith("http://") and (self.alert_secret_file or self.alert_token_file):
            notes.append("alert-url: http:// sends alerts and token in clear; use https://")
        return tuple(notes)
