"""Parameters of a metrics:// address, and the keys of its rules in a changefeed file."""

from collections.abc import Mapping
from typing import Final

from tidegate.config.local_name import Local
from tidegate.config.param import TIME_MAX_MS, Param
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.model.errors import ConfigError, UnsupportedError

METRICS_SECTION: Final = "sink.metrics-config."
RULES: Final = f"{METRICS_SECTION}rules[]."
METRICS_SINK: Final[Mapping[str, Param]] = {
    "otlp-endpoint": Param("text", "otlp_url", "", "a collector that gets OTLP: http://HOST:4318/v1/metrics"),
    "otlp-interval": Param("duration", "otlp_interval_ms", "10s", "how often it does", low=10, high=TIME_MAX_MS),
    "otlp-token-file": Param(
        "text", "otlp_token_file", "", "file with the bearer token of these calls", local=Local.TOKEN
    ),
    "alert-url": Param("text", "alert_url", "", "where alerts are posted, as CloudEvents one a call", called=True),
    "alert-secret-file": Param(
        "text", "alert_secret_file", "", "file with the secret that they are signed with", local=Local.TOKEN
    ),
    "alert-token-file": Param(
        "text", "alert_token_file", "", "file with the bearer token of these calls", local=Local.TOKEN
    ),
    "timeout": Param("duration", "timeout_ms", "10s", "time for an answer", low=1, high=TIME_MAX_MS),
    "ssl-ca": Param(
        "text", "ssl_ca", "", "path of the CA certificate of https://, where the system has it not", local=Local.FILE
    ),
}
RULE_KEYS: Final[Mapping[str, tuple[str, str, str]]] = {
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
METRICS_KEYS: Final = frozenset(
    {*(f"{METRICS_SECTION}{name}" for name in METRICS_SINK), *(f"{RULES}{name}" for name in RULE_KEYS)}
)
"""Keys of a changefeed file that act where numbers are made."""
METRICS_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "rules say which columns they look at"),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "numbers have no topics and no partitions"),
}
"""Keys that numbers have no place for."""
