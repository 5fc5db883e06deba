"""The shapes of a changefeed for people: a line of the overview, and all of one.

    state    failed, warning, normal, stopped, finished: the worst first
    lag      seconds between now and a ts; none of a changefeed that rests, none before there is a ts
    laggard  the table or partition that holds the checkpoint back, with what it waits for

Lists that could grow without end are cut, with a count beside them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.config.uri import mask_uri, scheme_of
from tidegate.engine.progress import PartitionProgress, Progress
from tidegate.model.tso import physical_ms, to_datetime
from tidegate.server.http.answers import extension, safe, shown_state
from tidegate.server.record import FeedView, Sample
from tidegate.server.replica_config import render

AT_REST: Final = frozenset({"stopped", "finished"})
"""States without a lag."""
FIRST_MS: Final = 1_420_070_400_000
"""TiDB is younger than 2015: an earlier ts is none that it gave, and no lag is told by it."""
POINTS: Final = 240
TABLES: Final = 2000
BEHIND_MS: Final = 10_000
"""A partition so far behind the others holds them back."""


def lag_s(ts: int, now_ms: int, state: str) -> float | None:
    """Return the seconds between `ts` and now; None where they say nothing."""
    if state in AT_REST or physical_ms(ts) < FIRST_MS:
        return None
    return max(0, now_ms - physical_ms(ts)) / 1000


def glance(view: FeedView, now_ms: int) -> dict[str, Any]:
    """Return a line of the overview."""
    record, progress, state = view.record, view.progress or Progress("starting"), shown_state(view)
    error = view.error
    known = physical_ms(view.checkpoint_ts) >= FIRST_MS
    found = {
        "namespace": view.id.namespace,
        "id": view.id.name,
        "state": state,
        "running": view.running,
        "error": error and {"code": error.code, "message": error.message, "since": error.since, "table": error.table},
        "checkpoint_ts": view.checkpoint_ts,
        "checkpoint_age_s": max(0, now_ms - physical_ms(view.checkpoint_ts)) / 1000 if known else None,
        "lag_s": lag_s(view.checkpoint_ts, now_ms, state),
        "resolved_lag_s": lag_s(view.resolved_ts, now_ms, state),
        "rows_per_s": progress.rows_per_s if view.running else 0.0,
        "source": scheme_of(record.source_uri),
        "sink": scheme_of(record.sink_uri),
        "tables": len(progress.tables),
        "parked": len(progress.parked),
        "dead_letters": progress.dead_letters,
        "left_out": len(progress.left_out),
        "warnings": len(progress.warnings),
        "ddl": bool(progress.ddl),
    }
    shown = safe(found)
    assert isinstance(shown, dict)
    return shown


def whole(view: FeedView, now_ms: int) -> dict[str, Any]:
    """Return all that is known of a changefeed, apart from its past."""
    more = extension(view)
    progress = more["progress"]
    tables = progress.pop("tables", ())
    return {
        **glance(view, now_ms),
        **{name: more[name] for name in ("source_uri", "start_ts", "target_ts", "resolved_ts", "last_synced_ts")},
        "sink_uri": mask_uri(view.record.sink_uri),
        "create_time": view.record.create_time,
        "creator_version": view.record.creator_version,
        "error": more["error"],
        "moments": list(reversed(more["moments"])),
        "progress": progress,
        "behind": more["behind"],
        "slow": more["slow"],
        "tables": len(tables),
        "table_rows": sorted(tables, key=_applied)[:TABLES],
        "laggard": _laggard(view, now_ms),
        "samples": _samples(view.samples),
        "config": settings(view.record.config),
    }


def _applied(table: Mapping[str, Any]) -> int:
    return int(table["applied_ts"] or 0)


def _laggard(view: FeedView, now_ms: int) -> str:
    """What holds the checkpoint back, in a sentence; "" where nothing does, or where nothing is known."""
    progress = view.progress
    if progress is None or not view.running:
        return ""
    if progress.parked:
        return f"table {progress.parked[0].table} is parked and stands still; the others go on"
    if progress.ddl:
        return "a DDL is being done; tables wait for it"
    return slowest_partition(progress.partitions, now_ms)


def slowest_partition(partitions: Sequence[PartitionProgress], now_ms: int) -> str:
    """Return a sentence about the partition that all tables wait for; "" where they are side by side."""
    if len(partitions) < 2:
        return ""
    slowest = min(partitions, key=lambda one: one.resolved_ts or 0)
    fastest = max(one.resolved_ts or 0 for one in partitions)
    place = f"topic {slowest.topic} partition {slowest.partition}"
    if physical_ms(fastest) - physical_ms(slowest.resolved_ts or 0) < BEHIND_MS:
        return ""
    if slowest.high is not None and slowest.offset < slowest.high:
        return f"{place} has {slowest.high - slowest.offset:,} messages to read; all tables wait for it"
    if slowest.resolved_ts is None:
        return f"{place} has brought no resolved ts yet; all tables wait for it"
    ago_s = max(0, now_ms - physical_ms(slowest.resolved_ts)) // 1000
    at = f"{to_datetime(slowest.resolved_ts):%Y-%m-%d %H:%M:%S} UTC"
    return f"{place} has brought no resolved ts since {at} ({ago_s:,} s); all tables wait for it"


def _samples(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """Columns of some samples, evenly chosen: at most POINTS; a lag is None while the changefeed rests."""
    step = -(-len(samples) // POINTS) if samples else 1
    chosen = samples[(len(samples) - 1) % step :: step] if samples else ()
    return {
        "time_ms": [one.time_ms for one in chosen],
        "checkpoint_lag_s": [lag_s(one.checkpoint_ts, one.time_ms, one.state) for one in chosen],
        "resolved_lag_s": [lag_s(one.resolved_ts, one.time_ms, one.state) for one in chosen],
        "rows_per_s": [None if one.state in AT_REST else round(one.rows_per_s, 1) for one in chosen],
        "behind": [one.behind for one in chosen],
    }


def settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings as they act, those that differ from the defaults first."""
    usual, own = dict(_leaves(render({}))), dict(_leaves(render(config)))
    rows = [
        {"key": key, "value": value, "default": usual.get(key), "changed": key not in usual or usual[key] != value}
        for key, value in own.items()
    ]
    return sorted(rows, key=lambda row: (not row["changed"], row["key"]))


def _leaves(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping):
            found += _leaves(value, f"{key}.")
        else:
            found.append((key, value if isinstance(value, str) else msgspec.json.encode(value).decode()))
    return found
