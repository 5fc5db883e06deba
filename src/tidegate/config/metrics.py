"""A metrics:// address and its rules: where numbers about changes can be read.

metrics://127.0.0.1:9464           a page /metrics of its own
metrics://                         none: the page of `tidegate server`, or a collector (otlp-endpoint)
metrics://0.0.0.0:9464/orders      a name, where one source has several such changefeeds

The rules stand in a file; without any there is one, which counts changes by table and kind.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, Key, SinkEntry, SourceEntry, checkpoints_of, state_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.uri import Given, host_of, parameters, read_token, split
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Local, Option

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.metrics_rule import MetricRule, MetricsOptions

SECTION: Final = "sink.metrics-config."
RULES: Final = f"{SECTION}rules[]."
_PLACE: Final = re.compile(r"(?P<host>[^\s:\[\]@/]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})")
_WINDOW: Final = by_name([Option("alert-window", "see SINK", "duration", low=30, high=TIME_MAX_MS, field="window")])


class MetricsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Rules, and where their numbers can be read; times in ms."""

    rules: "tuple[MetricRule, ...]"
    place: tuple[str, int] | None = None
    name: str = ""
    otlp_url: Annotated[str, Option("otlp-endpoint", "a collector that gets OTLP: http://HOST:4318/v1/metrics")] = ""
    otlp_interval_ms: Annotated[
        int, Option("otlp-interval", "how often it does", "duration", low=10, high=TIME_MAX_MS)
    ] = 10_000
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
    timeout_ms: Annotated[int, Option("timeout", "time for an answer", "duration", low=1, high=TIME_MAX_MS)] = 10_000
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate of https://, where the system has it not", local=Local.FILE)
    ] = ""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return f"metrics/{self.name}" if self.name else "metrics"

    @property
    def places(self) -> frozenset[str]:
        return frozenset()

    @property
    def tokens_go_to(self) -> frozenset[str]:
        """HOST:PORT that get a token, or calls signed with the secret."""
        alerted = self.alert_token_file or self.alert_secret_file
        sent = ((self.otlp_url, self.otlp_token_file), (self.alert_url, alerted))
        return frozenset(host_of(url) for url, file in sent if url and file)

    def options(self, feed: str, home: str, clocks: str, time_zone: str) -> "MetricsOptions":
        """Return what the sink of a feed is asked to do. ConfigError for a file that cannot be read."""
        from tidegate.sink.metrics_rule import MetricsOptions, OtlpOptions
        from tidegate.sink.webhook_options import WebhookOptions

        timeout_s = self.timeout_ms / 1000
        return MetricsOptions(
            feed=feed,
            home=home,
            rules=self.rules,
            place=self.place,
            clocks=clocks,
            time_zone=time_zone,
            otlp=OtlpOptions(
                url=self.otlp_url,
                interval_s=self.otlp_interval_ms / 1000,
                timeout_s=timeout_s,
                ssl_ca=self.ssl_ca,
                token=read_token(self.otlp_token_file, "otlp-token-file"),
            )
            if self.otlp_url
            else None,
            alerts=WebhookOptions(
                feed=feed,
                url=self.alert_url,
                batch_events=1,
                timeout_s=timeout_s,
                retries=0,
                dead_letter="keep",
                dead_letters=f"{home}/dead-letters",
                ssl_ca=self.ssl_ca,
                secret=read_token(self.alert_secret_file, "alert-secret-file").encode(),
                token=read_token(self.alert_token_file, "alert-token-file"),
            )
            if self.alert_url
            else None,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of rules that work, but perhaps not as meant."""
        notes = []
        if self.place is not None and self.place[0] not in {"127.0.0.1", "::1", "localhost"}:
            notes.append("sink-uri: the page of metrics:// has no login: labels hold what rows hold")
        if not self.alert_url and any(rule.is_watched for rule in self.rules):
            notes.append("sink.metrics-config: rules have alerts, and no alert-url is there to post them to")
        if self.alert_url.startswith("http://") and (self.alert_secret_file or self.alert_token_file):
            notes.append("alert-url: http:// shows alerts and token to whoever is on the way; https:// does not")
        return tuple(notes)


OPTIONS: Final = options_of(MetricsTarget)


def parse_metrics(uri: str, document: Document) -> MetricsTarget:
    """Return the address behind `uri` with the rules of a file. ConfigError, UriInvalid, FilterRuleInvalid,
    ExpressionParseFailed."""
    parts = split(uri, "sink-uri", ("metrics",))
    given = {**document.section(SECTION, OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, given, ConfigError)
    place = _PLACE.fullmatch(parts.netloc)
    port = int(place["port"]) if place is not None else 0
    if parts.netloc and (place is None or port >= 1 << 16):
        raise UriInvalid(f"sink-uri: write metrics://HOST:PORT, or metrics:// for no page of its own: {parts.shown}")
    for name in ("otlp_url", "alert_url"):
        found = str(fields.get(name, ""))
        if found and not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", found):
            key = "otlp-endpoint" if name == "otlp_url" else "alert-url"
            raise UriInvalid(f"{key}: write http://HOST/PATH or https://HOST/PATH; a token goes into a file")
    return MetricsTarget(
        rules=_rules(document),
        place=None if place is None else (place["host"].strip("[]"), port),
        name=parts.path.strip("/"),
        ignored=ignored,
        **fields,
    )


def _rules(document: Document) -> "tuple[MetricRule, ...]":
    from tidegate.sink.metrics_rule import metric_rules, rule_texts

    entries = document.tree.get("sink", {}).get("metrics-config", {}).get("rules", ())
    windows = []
    for number, rule in enumerate(rule_texts(entries)):
        given = {"alert-window": Given(f"{RULES[:-3]}[{number}].alert-window", rule.alert_window)}
        windows.append(int(str(read_all(_WINDOW, given, ConfigError)[0]["window"])))
    mode = frozenset(word.strip().upper() for word in str(document.flat.get("sql-mode", "")).split(","))
    return metric_rules(entries, windows, case_sensitive=document.case_sensitive, sql_mode=mode - {""})


def _open(config: FeedConfig, source: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.metrics import MetricsSink

    assert isinstance(config.sink, MetricsTarget)
    clocks = "UTC" if source.moments else config.time_zone
    options = config.sink.options(config.name, state_of(config), clocks, config.time_zone)
    return MetricsSink(options, checkpoints_of(config))


_RULE_KEYS: Final[Mapping[str, tuple[str, str, str]]] = {
    "metric": ("text", "name of the metric; a counter's ends in `_total`", "required"),
    "type": ("text", "`counter`, `gauge` or `histogram`", "counter"),
    "matcher": ("texts", "tables of a rule", '["*.*"]'),
    "events": ("texts", "`insert`, `update`, `delete`: changes that count (not for gauges)", "[]"),
    "when": ("text", "SQL: what counts, by old and new values", "none"),
    "value": ("text", "SQL: what is added or observed; none: 1", "none"),
    "labels": ("texts", "columns, or `NAME=SQL`", "[]"),
    "buckets": ("numbers", "upper bounds of a histogram", "[]"),
    "help": ("text", "what the metric is, for people", "none"),
    "max-series": ("int", "most series; what is beyond has the labels `_other`", "1000"),
    "alert-above": ("number", "alert above it: the rise within alert-window, or the value of a gauge", "none"),
    "alert-below": ("number", "alert below it", "none"),
    "alert-window": ("text", "how far an alert looks back, in commit time", "5m"),
}
SINK: Final = SinkEntry(
    scheme="metrics",
    about="counters, gauges and histograms of changes",
    example="metrics://127.0.0.1:9464",
    params=OPTIONS,
    section=SECTION,
    own_keys={
        f"{RULES}{name}": Key(kind, about, default=default) for name, (kind, about, default) in _RULE_KEYS.items()
    },
    parse=parse_metrics,
    address=MetricsTarget,
    open=_open,
    no_selectors="rules say which columns they look at",
    no_topics="numbers have no topics and no partitions",
    tokens_go_to=lambda sink: sink.tokens_go_to,
    warnings=MetricsTarget.warnings,
)
