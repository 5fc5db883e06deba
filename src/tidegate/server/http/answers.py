"""The shapes of answers: a changefeed as TiCDC's API shows it, in each of the three ways that it does.

    info        create, get, update      state as it is, `pending` too; "" left out
    item        list                     state as people know it: "" is normal, `pending` is warning
    status      .../status               timestamps and the error alone

Timestamps (TSOs) are JSON numbers of 64 bits; a reader that keeps 53 bits of them takes those in `tidegate`, which are
texts.  `tidegate` is ours: what our changefeeds know more.  No address, message or setting leaves with a secret.

Source: TiCDC's OpenAPI v2: ChangeFeedInfo, ChangefeedCommonInfo, SyncedStatus.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import msgspec

from tidegate.config.uri import mask_text, mask_uri
from tidegate.engine.progress import FeedError, slow_words
from tidegate.model.tso import physical_ms
from tidegate.server.record import FeedView
from tidegate.server.replica_config import render

TICDC_VERSION: Final = "v8.5.4"
"""TiCDC's release whose API this is; its command line refuses servers of none."""
SHOWN: Final = {"": "normal", "pending": "warning"}
UNHAPPY: Final = frozenset({"warning", "pending", "failed"})
"""States in which TiCDC shows an error."""
LISTED: Final = frozenset({"normal", "stopped", "failed", "warning"})
"""States of a list that names none."""
_OWN_FIELDS: Final = ("phase", "since", "rows_landed", "rows", "rows_per_s", "messages", "messages_written", "ddls",
                      "watermarks", "dead_letters", "left_out", "rows_left_out", "ddls_left_out", "corrupt", "roads",
                      "slow_roads", "spent_s", "partitions", "tables", "parked", "ddl", "warnings", "elapsed_s",
                      "resumed")  # fmt: skip


def version_text(own: str) -> str:
    """Return a version that TiCDC's tools read: theirs, with ours behind it."""
    return f"{TICDC_VERSION}-tidegate-{own}"


def json_time(ts: int, zone: tzinfo | None) -> str:
    """Return the time of a TSO as TiCDC shows it: local, to the millisecond, without its zone."""
    ms = physical_ms(ts)
    local = datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def shown_state(view: FeedView) -> str:
    """Return the state as people know it."""
    return SHOWN.get(view.state, view.state)


def selected(views: Iterable[FeedView], state: str | None) -> list[FeedView]:
    """Return the changefeeds of a list: of one state, of `all`, or of those that may still run."""
    wanted = {state} if state else LISTED
    return [view for view in views if state == "all" or shown_state(view) in wanted]


def running_error(view: FeedView, addr: str) -> dict[str, Any] | None:
    """Return the error of a changefeed in a state that has one."""
    error = view.error
    if error is None or view.state not in UNHAPPY:
        return None
    return {"time": error.since, "addr": addr, "code": error.code, "message": mask_text(error.message)}


def item(view: FeedView, addr: str, zone: tzinfo | None) -> dict[str, Any]:
    """Return a changefeed as a list shows it."""
    return {
        "upstream_id": 0,
        "namespace": view.id.namespace,
        "id": view.id.name,
        "state": shown_state(view),
        "checkpoint_tso": view.checkpoint_ts,
        "checkpoint_time": json_time(view.checkpoint_ts, zone),
        "error": running_error(view, addr),
    }


def info(view: FeedView, addr: str, zone: tzinfo | None, capture: str) -> dict[str, Any]:
    """Return a changefeed as TiCDC shows one."""
    record = view.record
    task = {"capture_id": capture, "table_ids": [], "table_operations": {}}
    found = {
        "namespace": view.id.namespace,
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
    return {name: value for name, value in found.items() if value is not None}


def status(view: FeedView, addr: str) -> dict[str, Any]:
    """Return how far a changefeed is, and what ails it."""
    kind = "last_error" if view.state == "failed" else "last_warning"
    found = {
        "state": view.state or None,
        "resolved_ts": view.resolved_ts,
        "checkpoint_ts": view.checkpoint_ts,
        kind: running_error(view, addr),
    }
    return {name: value for name, value in found.items() if value is not None}


QUIET: Final = "Data syncing is finished"
BEHIND: Final = (
    "Nothing new was written for a while, but the checkpoint does not move: see whether the upstream and the way to it "
    "are healthy. If they are, data is still on its way; ask again"
)
BUSY: Final = "The data syncing is not finished, please wait"


def synced(view: FeedView, now_ts: int, zone: tzinfo | None) -> dict[str, Any]:
    """Return whether everything that was written upstream is in the sink, as far as a quiet pipeline can tell."""
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
    """Return what our changefeeds know more, with every timestamp as a text."""
    record, progress = view.record, view.progress
    known = {} if progress is None else {name: getattr(progress, name) for name in _OWN_FIELDS}
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
        "error": _error(record.error),
        "moments": record.moments,
        "progress": known,
    }
    found = safe(msgspec.to_builtins(shown))
    assert isinstance(found, dict)
    return found


def _error(error: FeedError | None) -> dict[str, Any] | None:
    return None if error is None else {name: getattr(error, name) for name in FeedError.__struct_fields__}


def safe(value: Any, name: str = "") -> Any:
    """Return a value without secrets, its timestamps as texts."""
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
