"""The JSON of answers: changefeeds as TiCDC's API shows them, and for the page; and checks of addresses from clients.

    info        create, get, update      state as it is, `pending` too; "" left out
    item        list                     state for users: "" is normal, `pending` is warning
    status      .../status               timestamps and the error alone

Timestamps (TSOs) are JSON numbers of 64 bits; a reader limited to 53 bits takes those in `tidegate`, which are texts.
`tidegate` holds what TiCDC's shape has no field for.  No address, message or setting is shown with a secret.

For the page `overview_line` gives a line of the overview, `details` the rest.  Long lists are cut, with a count
beside them.

    state    failed, warning, normal, stopped, finished: the worst first
    lag      seconds between now and a ts; none for a changefeed that does not run, none before there is a ts
    laggard  the table, partition or region that holds the checkpoint back, and the reason

An address from a client is more restricted than one in an operator's file:

    xxxxx in it                masked, as it was shown: the kept address is used, or it is refused
    @FILE, env:NAME            refused: they would read the server's files and environment for a client
    callback://MODULE/NAME     refused, but for the functions that the server's file allows: any function of Python
                               could be called

`config_schema` is the JSON schema of `replica_config` for /openapi.json, from the table of replica_config.py.

Source: TiCDC's OpenAPI v2: ChangeFeedInfo, ChangefeedCommonInfo, SyncedStatus.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import msgspec

from tidegate.config.callback import parse_callback
from tidegate.config.entry import Document
from tidegate.config.load import KEYS
from tidegate.config.option import duration_ns
from tidegate.config.uri import mask_text, mask_uri, scheme_of
from tidegate.engine.progress import FeedError, PartitionProgress, Progress, load_words, reload_words, slow_words
from tidegate.model.errors import UriInvalid
from tidegate.model.option import MASK
from tidegate.model.tso import compose, physical_ms, to_datetime
from tidegate.server.parameters import SETTING_KINDS, human, leaves, mend_of, sink_parameters
from tidegate.server.record import FeedId, FeedView, wall_ms
from tidegate.server.replica_config import TABLE, Leaf, Section, masked, render, spelled
from tidegate.sink.sql.connection import SyncPoints

TICDC_VERSION: Final = "v8.5.4"
"""TiCDC release whose API is served; TiCDC's command line refuses a server without a known version."""
SHOWN: Final = {"": "normal", "pending": "warning"}
UNHAPPY: Final = frozenset({"warning", "pending", "failed"})
"""States in which TiCDC shows an error."""
LISTED: Final = frozenset({"normal", "stopped", "failed", "warning"})
"""States that a list without a state includes."""
_OWN_FIELDS: Final = ("phase", "since", "load", "reload", "rows_loaded", "undecodable", "rows_landed", "rows",
                      "rows_per_s", "bytes_written", "bytes_per_s",
                      "messages", "messages_written", "ddls", "watermarks", "dead_letters", "left_out",
                      "rows_left_out", "ddls_left_out", "capture", "corrupt",
                      "roads", "slow_roads", "spent_s", "partitions",
                      "tables", "parked", "ddl", "warnings", "elapsed_s", "resumed")  # fmt: skip


def version_text(own: str) -> str:
    """Return a version that TiCDC's tools can parse, followed by Tidegate's own."""
    return f"{TICDC_VERSION}-tidegate-{own}"


def json_time(ts: int, zone: tzinfo | None) -> str:
    """Return the time of a TSO as TiCDC shows it: local, to the millisecond, without its zone."""
    ms = physical_ms(ts)
    local = datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def shown_state(view: FeedView) -> str:
    """Return the state as users see it."""
    return SHOWN.get(view.state, view.state)


def selected(views: Iterable[FeedView], state: str | None) -> list[FeedView]:
    """Return the changefeeds in `state`: in one state, in `all`, or for None in LISTED."""
    states = {state} if state else LISTED
    return [view for view in views if state == "all" or shown_state(view) in states]


def running_error(view: FeedView, addr: str) -> dict[str, Any] | None:
    """Return the error of a changefeed, if its state shows one."""
    error = view.error
    if error is None or view.state not in UNHAPPY:
        return None
    return {"time": error.since, "addr": addr, "code": error.code, "message": mask_text(error.message)}


def spaces(feed: FeedId) -> dict[str, str]:
    """Return the namespace of a changefeed, under the words of both of TiCDC's architectures."""
    return {"namespace": feed.namespace, "keyspace": feed.namespace}


def item(view: FeedView, addr: str, zone: tzinfo | None) -> dict[str, Any]:
    """Return a changefeed as a list shows it."""
    return {
        "upstream_id": view.upstream_id,
        **spaces(view.id),
        "id": view.id.name,
        "state": shown_state(view),
        "checkpoint_tso": view.checkpoint_ts,
        "checkpoint_time": json_time(view.checkpoint_ts, zone),
        "error": running_error(view, addr),
    }


def info(view: FeedView, addr: str, zone: tzinfo | None, capture: str) -> dict[str, Any]:
    """Return a changefeed as TiCDC shows one."""
    record = view.record
    task = {"capture_id": capture, "table_ids": view.table_ids, "table_operations": {}}
    fields = {
        "upstream_id": view.upstream_id or None,
        **spaces(view.id),
        "id": view.id.name,
        "sink_uri": mask_uri(record.sink_uri),
        "create_time": record.create_time,
        "start_ts": record.start_ts or None,
        "target_ts": record.target_ts or None,
        "config": render(record.config),
        "state": view.state or None,
        "error": running_error(view, addr),
        "creator_version": version_text(record.creator_version),
        "resolved_ts": view.resolved_ts,
        "checkpoint_ts": view.checkpoint_ts,
        "checkpoint_time": json_time(view.checkpoint_ts, zone),
        "task_status": [task] if view.state == "normal" else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def status(view: FeedView, addr: str) -> dict[str, Any]:
    """Return the state, timestamps and error of a changefeed."""
    kind = "last_error" if view.state == "failed" else "last_warning"
    fields = {
        "state": view.state or None,
        "resolved_ts": view.resolved_ts,
        "checkpoint_ts": view.checkpoint_ts,
        kind: running_error(view, addr),
    }
    return {name: value for name, value in fields.items() if value is not None}


QUIET: Final = "Data syncing is finished"
BEHIND: Final = (
    "Nothing new was written for a while, but the checkpoint does not move: see whether the upstream and the way to it "
    "are healthy. If they are, data is still on its way; ask again"
)
BUSY: Final = "The data syncing is not finished, please wait"


def synced(view: FeedView, now_ts: int, zone: tzinfo | None) -> dict[str, Any]:
    """Return whether everything written upstream is in the sink, as far as a quiet pipeline shows."""
    times = {"synced-check-interval": 300, "checkpoint-interval": 15, **view.record.config.get("synced-status", {})}
    quiet_ms, fresh_ms = times["synced-check-interval"] * 1000, times["checkpoint-interval"] * 1000
    now_ms, checkpoint_ms = physical_ms(now_ts), physical_ms(view.checkpoint_ts)
    quiet = now_ms - physical_ms(view.record.last_synced_ts) > quiet_ms
    done = quiet and now_ms - checkpoint_ms < fresh_ms
    near = quiet and physical_ms(view.resolved_ts) - checkpoint_ms < fresh_ms
    return {
        "synced": done,
        "sink_checkpoint_ts": json_time(view.checkpoint_ts, zone),
        "puller_resolved_ts": json_time(view.resolved_ts, zone),
        "last_synced_ts": json_time(view.record.last_synced_ts, zone),
        "now_ts": json_time(now_ts, zone),
        "info": QUIET if done else BEHIND if near else BUSY,
    }


def extension(view: FeedView) -> dict[str, Any]:
    """Return the fields that TiCDC's API does not have; timestamps are text."""
    record, progress = view.record, view.progress
    if progress is not None and view.running:
        progress = progress.at(wall_ms())
    reported = {} if progress is None else {name: getattr(progress, name) for name in _OWN_FIELDS}
    shown = {
        "source_uri": record.source_uri,
        "running": view.running,
        "start_ts": record.start_ts,
        "target_ts": record.target_ts,
        "checkpoint_ts": view.checkpoint_ts,
        "resolved_ts": view.resolved_ts,
        "last_synced_ts": record.last_synced_ts,
        "lag_ms": progress and progress.lag_ms,
        "behind": progress and progress.behind,
        "slow": progress and slow_words(progress.seen),
        "loading": progress and load_words(progress.load),
        "reloading": progress and reload_words(progress.reload),
        "error": _error(record.error),
        "moments": record.moments,
        "progress": reported,
    }
    fields = safe(msgspec.to_builtins(shown))
    assert isinstance(fields, dict)
    return fields


def _error(error: FeedError | None) -> dict[str, Any] | None:
    return None if error is None else {name: getattr(error, name) for name in FeedError.__struct_fields__}


def safe(value: Any, name: str = "") -> Any:
    """Return a value with secrets masked and timestamps as text."""
    match value:
        case Mapping():
            return {key: safe(each, key) for key, each in value.items()}
        case list() | tuple():
            return [safe(each, name) for each in value]
        case str():
            return mask_text(mask_uri(value) if name.endswith("_uri") else value)
        case int() if name.endswith("_ts"):
            return str(value)
    return value


AT_REST: Final = frozenset({"stopped", "finished"})
"""States in which no lag is reported."""
FIRST_MS: Final = 1_420_070_400_000
"""2015-01-01: TiDB has issued no earlier timestamp, so no lag is computed from one."""
POINTS: Final = 240
TABLES: Final = 2000
BEHIND_MS: Final = 10_000
"""Lag behind the fastest partition at which a partition is reported as the laggard."""


def lag_s(ts: int, now_ms: int, state: str) -> float | None:
    """Return the seconds between `ts` and now; None if no lag applies."""
    if state in AT_REST or physical_ms(ts) < FIRST_MS:
        return None
    return max(0, now_ms - physical_ms(ts)) / 1000


def short_name(uri: str) -> str:
    """Return the scheme of an address and its end: a topic, the last parts of a path, a host and its database.

    kafka shop, delta+s3 lakes/shop, mysql db-1:3306/shop"""
    scheme, _, rest = mask_uri(uri).partition("://")
    host, *path = re.split(r"[?#]", rest)[0].split("/")
    parts = [part for part in (host.rpartition("@")[2], *path) if part and part != MASK]
    return " ".join([scheme, "/".join(parts[-1 if scheme == "kafka" else -2 :])]).strip()


def overview_line(view: FeedView, now_ms: int) -> dict[str, Any]:
    """Return a changefeed's line in the overview."""
    record, progress, state = view.record, view.progress or Progress("starting"), shown_state(view)
    error = view.error
    has_checkpoint = physical_ms(view.checkpoint_ts) >= FIRST_MS
    line = {
        "namespace": view.id.namespace,
        "id": view.id.name,
        "state": state,
        "running": view.running,
        "error": error and {"code": error.code, "message": error.message, "since": error.since, "table": error.table},
        "checkpoint_ts": view.checkpoint_ts,
        "checkpoint_age_s": max(0, now_ms - physical_ms(view.checkpoint_ts)) / 1000 if has_checkpoint else None,
        "lag_s": lag_s(view.checkpoint_ts, now_ms, state),
        "resolved_lag_s": lag_s(view.resolved_ts, now_ms, state),
        "rows_per_s": progress.rows_per_s if view.running else 0.0,
        "source": short_name(record.source_uri),
        "sink": short_name(record.sink_uri),
        "tables": len(progress.tables),
        "parked": len(progress.parked),
        "dead_letters": progress.dead_letters,
        "left_out": len(progress.left_out),
        "warnings": len(progress.warnings),
        "ddl": bool(progress.ddl),
    }
    fields = safe(line)
    assert isinstance(fields, dict)
    return fields


def details(view: FeedView, now_ms: int) -> dict[str, Any]:
    """Return everything known about a changefeed except its history, with at most POINTS samples, evenly chosen."""
    samples, state = view.samples, shown_state(view)
    step = -(-len(samples) // POINTS) if samples else 1
    chosen = samples[(len(samples) - 1) % step :: step] if samples else ()
    more = extension(view)
    progress = more["progress"]
    tables = progress.pop("tables", ())
    return {
        **overview_line(view, now_ms),
        **{name: more[name] for name in ("source_uri", "start_ts", "target_ts", "resolved_ts", "last_synced_ts")},
        "sink_uri": mask_uri(view.record.sink_uri),
        "create_time": view.record.create_time,
        "creator_version": view.record.creator_version,
        "error": more["error"],
        "moments": list(reversed(more["moments"])),
        "progress": progress,
        "sync_point": sync_point(view),
        "behind": more["behind"],
        "slow": more["slow"],
        "loading": more["loading"],
        "reloading": more["reloading"],
        "tables": len(tables),
        "table_rows": sorted(tables, key=_applied)[:TABLES],
        "laggard": _laggard(view, now_ms),
        "samples": {
            "time_ms": [sample.time_ms for sample in chosen],
            "checkpoint_lag_s": [lag_s(sample.checkpoint_ts, sample.time_ms, sample.state) for sample in chosen],
            "resolved_lag_s": [lag_s(sample.resolved_ts, sample.time_ms, sample.state) for sample in chosen],
            "rows_per_s": [None if sample.state in AT_REST else round(sample.rows_per_s, 1) for sample in chosen],
            "behind": [sample.behind for sample in chosen],
        },
        "config": settings(view.record.config),
        "parameters": sink_parameters(view.record),
        "edited": msgspec.json.format(msgspec.json.encode(spelled(masked(view.record.config)))).decode(),
        "mend": mend_of(view.record) if state == "failed" else None,
    }


def sync_point(view: FeedView) -> dict[str, Any] | None:
    """Return the last sync point that a changefeed has passed, and their interval in seconds; None without any."""
    config = view.record.config
    if not config.get("enable-sync-point"):
        return None
    interval_ns = duration_ns(config["sync-point-interval"]) if "sync-point-interval" in config else None
    points = SyncPoints() if interval_ns is None else SyncPoints(interval_ns // 1_000_000)
    last_ms = physical_ms(points.after(view.checkpoint_ts)) - points.interval_ms
    return {"last_ts": str(compose(last_ms)), "interval_s": points.interval_ms / 1000}


def _applied(table: Mapping[str, Any]) -> int:
    return int(table["applied_ts"] or 0)


def _laggard(view: FeedView, now_ms: int) -> str:
    """Return a sentence about the table, partition or region that holds the checkpoint back; "" if none is known."""
    progress = view.progress
    if progress is None or not view.running:
        return ""
    if progress.parked:
        return f"table {progress.parked[0].table} is parked; the other tables continue"
    if progress.ddl:
        return "a DDL is being done; all tables wait for it"
    if progress.capture is not None and progress.capture.held_by:
        return progress.capture.held_by
    return slowest_partition(progress.partitions, now_ms)


def slowest_partition(partitions: Sequence[PartitionProgress], now_ms: int) -> str:
    """Return a sentence about the partition that all tables wait for; "" if none lags behind."""
    if len(partitions) < 2:
        return ""
    slowest = min(partitions, key=lambda partition: partition.resolved_ts or 0)
    fastest = max(partition.resolved_ts or 0 for partition in partitions)
    name = f"topic {slowest.topic} partition {slowest.partition}"
    if physical_ms(fastest) - physical_ms(slowest.resolved_ts or 0) < BEHIND_MS:
        return ""
    if slowest.high is not None and slowest.offset < slowest.high:
        return f"{name} has {slowest.high - slowest.offset:,} messages to read; all tables wait for it"
    if slowest.resolved_ts is None:
        return f"{name} has brought no resolved ts yet; all tables wait for it"
    ago_s = max(0, now_ms - physical_ms(slowest.resolved_ts)) // 1000
    since = f"{to_datetime(slowest.resolved_ts):%Y-%m-%d %H:%M:%S} UTC"
    return f"{name} has brought no resolved ts since {since} ({ago_s:,} s); all tables wait for it"


def settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the effective settings, those that differ from the defaults first."""
    usual, own = dict(leaves(render({}))), dict(leaves(render(config)))
    rows = [
        {
            "key": key,
            "shown": human(*SETTING_KINDS.get(key, ("", "")), value),
            "value": value,
            "default": usual.get(key),
            "changed": key not in usual or usual[key] != value,
        }
        for key, value in own.items()
    ]
    return sorted(rows, key=lambda row: (not row["changed"], row["key"]))


def address(name: str, uri: str, stored: str, modules: Collection[str] = ()) -> str:
    """Return the address to store; "" for the stored one, masked or not. Raises UriInvalid."""
    if uri in {stored, mask_uri(stored)}:
        return ""
    if uri.startswith(("@", "env:")):
        raise UriInvalid(f"{name}: @FILE and env:NAME are for command lines; send the address itself")
    if MASK in uri and mask_uri(uri) == uri:
        raise UriInvalid(f"{name}: it contains {MASK} instead of a secret: {uri}")
    if scheme_of(uri).partition("+")[0] == "callback":
        parse_callback(uri, Document()).check_allowed(modules)
    return uri


_KINDS: Final[dict[str, dict[str, Any]]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 64) - 1},
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "number": {"type": "number"},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "ints": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}},
    "duration": {
        "anyOf": [{"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}, {"type": "string"}],
        "description": 'nanoseconds, or a text such as "10m"',
    },
    "param": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]},
}


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of `replica_config`."""
    return _schema(TABLE)


def _schema(entry: Leaf | Section) -> dict[str, Any]:
    if isinstance(entry, Section):
        schema = {"type": "object", "properties": {each.json: _schema(each) for each in entry.fields.values()}}
        return {"type": "array", "items": schema} if entry.many else schema
    about = {"description": KEYS[entry.path].about, **_KINDS[entry.kind]}
    return about if entry.default is None else {**about, "default": entry.default}
