"""Which changefeeds still need a change log, and from where: their service safe points.

    <log>/feeds/<changefeed>.<sink>.json     {"changefeed": "shop", "checkpoint_ts": 470606747354005504, ...}

    safe point   the least checkpoint of those that were heard of within gc-ttl (a day, as TiCDC has it)
    upstream     lets its log begin there at most; who was silent for longer is not waited for

`<sink>` is a digest of the sink's address, so two changefeeds of one name into different sinks have a safe point each.
A file without it counts like any other as long as its time to live lasts.
A feed writes its file anew every few seconds while it runs; the file is the old one or the new one.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from tidegate.model.errors import EnvironmentFault
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.spark.cache import PRIVATE_DIRECTORY, write_whole

GC_TTL_MS: Final = 86_400_000
_FEEDS: Final = "feeds"
_DIGEST_CHARS: Final = 12


class LogSafePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A changefeed that needs all above `checkpoint_ts`, when it said so last."""

    changefeed: str
    checkpoint_ts: int
    time_ms: int

    def lives(self, now_ms: int, ttl_ms: int) -> bool:
        """Return whether it is waited for."""
        return now_ms - self.time_ms < ttl_ms


def safe_point_name(changefeed: str, sink: str) -> str:
    """Return the name under which a changefeed into `sink` (its address, without passwords) holds a log."""
    return f"{changefeed}.{hashlib.sha256(sink.encode()).hexdigest()[:_DIGEST_CHARS]}"


def put_safe_point(log: Path, name: str, checkpoint_ts: int, time_ms: int) -> None:
    """Put the safe point of the changefeed that holds the log as `name` (`safe_point_name`) in place of its last one.

    Raises EnvironmentFault when the disk refuses, StateTooNew where a newer release put the last one."""
    kept_safe_point(log, name)
    hold = LogSafePoint(changefeed=name.partition(".")[0], checkpoint_ts=checkpoint_ts, time_ms=time_ms)
    place = log / _FEEDS
    try:
        place.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        write_whole(place / f"{name}.json", encode_state(StateKind.SAFE_POINT, hold).decode())
    except OSError as fault:
        raise EnvironmentFault(
            f"a changefeed keeps its safe point in {place}, which cannot be written ({fault.strerror}): without one "
            "its upstream would let go of the log"
        ) from fault


def kept_safe_point(log: Path, name: str) -> int | None:
    """Return the safe point of the changefeed that holds the log as `name`; None where it has none. StateTooNew."""
    found = _read(log / _FEEDS / f"{name}.json")
    return None if found is None else found.checkpoint_ts


def safe_points(log: Path) -> list[LogSafePoint]:
    """Return all that are there, by name; files that are none of ours are passed over. StateTooNew."""
    found = map(_read, sorted((log / _FEEDS).glob("*.json")))
    return [one for one in found if one is not None]


def _read(path: Path) -> LogSafePoint | None:
    try:
        return decode_state(StateKind.SAFE_POINT, path.read_bytes(), LogSafePoint, str(path))
    except (OSError, msgspec.DecodeError):
        return None


def safe_point(log: Path, now_ms: int, ttl_ms: int = GC_TTL_MS) -> int | None:
    """Return the ts above which somebody needs the log; None when nobody does."""
    return min((one.checkpoint_ts for one in safe_points(log) if one.lives(now_ms, ttl_ms)), default=None)
