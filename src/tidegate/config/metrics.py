"""metrics:// addresses and their rules: where metrics of changes are published.

metrics://127.0.0.1:9464           its own page /metrics
metrics://                         no page: that of `tidegate server`, or a collector (otlp-endpoint)
metrics://0.0.0.0:9464/orders      a name, if one source has several such changefeeds

The rules are read from a file; the default is a single rule that counts changes by table and kind.
"""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of, key_of, state_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.uri import RawValue, host_of, parameters, read_token, split
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Option
from tidegate.sink.metrics_keys import RuleText
from tidegate.sink.metrics_options import MetricsOptions

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.metrics_rule import MetricRule

SECTION: Final = "sink.metrics-config."
RULES: Final = f"{SECTION}rules[]."
_ADDRESS: Final = re.compile(r"(?P<host>[^\s:\[\]@/]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})")
_WINDOW: Final = by_name([Option("alert-window", "see SINK", "duration", low=30, high=TIME_MAX_MS, field="window")])


OPTIONS: Final = options_of(MetricsOptions)


def parse_metrics(uri: str, document: Document) -> MetricsOptions:
    """Return the address in `uri` with the rules of a file. ConfigError, UriInvalid, FilterRuleInvalid,
    ExpressionParseFailed."""
    parts = split(uri, "sink-uri", ("metrics",))
    values = {**document.section(SECTION, OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, values, ConfigError)
    match = _ADDRESS.fullmatch(parts.netloc)
    port = int(match["port"]) if match is not None else 0
    if parts.netloc and (match is None or port >= 1 << 16):
        raise UriInvalid(
            f"sink-uri: expected metrics://HOST:PORT, or metrics:// for no endpoint of its own, found {parts.shown}"
        )
    for name in ("otlp_url", "alert_url"):
        url = str(fields.get(name, ""))
        if url and not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", url):
            key = "otlp-endpoint" if name == "otlp_url" else "alert-url"
            raise UriInvalid(f"{key}: expected http://HOST/PATH or https://HOST/PATH; put tokens into a file")
    return MetricsOptions(
        feed="",
        home="",
        rules=_rules(document),
        page=None if match is None else (match["host"].strip("[]"), port),
        name=parts.path.strip("/"),
        ignored=ignored,
        **fields,
    )


def _rules(document: Document) -> "tuple[MetricRule, ...]":
    from tidegate.sink.metrics_rule import metric_rules, rule_texts

    entries = document.tree.get("sink", {}).get("metrics-config", {}).get("rules", ())
    windows = []
    for number, rule in enumerate(rule_texts(entries)):
        values = {"alert-window": RawValue(f"{RULES[:-3]}[{number}].alert-window", rule.alert_window)}
        windows.append(int(str(read_all(_WINDOW, values, ConfigError)[0]["window"])))
    mode = frozenset(word.strip().upper() for word in str(document.flat.get("sql-mode", "")).split(","))
    return metric_rules(entries, windows, case_sensitive=document.case_sensitive, sql_mode=mode - {""})


def _open(config: FeedConfig, source: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.metrics import MetricsSink

    assert isinstance(config.sink, MetricsOptions)
    options = replace(
        config.sink,
        feed=config.name,
        home=state_of(config),
        clocks="UTC" if source.moments else config.time_zone,
        time_zone=config.time_zone,
        otlp_token=read_token(config.sink.otlp_token_file, "otlp-token-file"),
        alert_secret=read_token(config.sink.alert_secret_file, "alert-secret-file").encode(),
        alert_token=read_token(config.sink.alert_token_file, "alert-token-file"),
    )
    return MetricsSink(options, checkpoints_of(config))


def _tokens_go_to(sink: MetricsOptions) -> frozenset[str]:
    """HOST:PORT that get a token, or calls signed with the secret."""
    sent = ((sink.otlp_url, sink.otlp_token_file), (sink.alert_url, sink.alert_token_file or sink.alert_secret_file))
    return frozenset(host_of(url) for url, file in sent if url and file)


SINK: Final = SinkEntry(
    scheme="metrics",
    about="counters, gauges and histograms of changes",
    example="metrics://127.0.0.1:9464",
    params=OPTIONS,
    section=SECTION,
    own_keys={f"{RULES}{name}": key_of(option) for name, option in options_of(RuleText).items()},
    parse=parse_metrics,
    address=MetricsOptions,
    open=_open,
    tokens_go_to=_tokens_go_to,
    warnings=MetricsOptions.warnings,
)
