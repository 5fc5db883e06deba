"""The last report of a changefeed, stored with its progress and shown by `tidegate status`.

    LAKE/_tidegate/feed.state.json            for a sink that stores its own progress
    <state>/<changefeed>.state.json           for a changefeed with its checkpoint in a state directory

    state       process      meaning
    pending     running      not started: its source does not reach the checkpoint yet
    normal      running      no error
    warning     running      an error is being retried: code, table, ts, position, since when, next try
    failed      ended        an error ended it; the next run continues from the checkpoint
    stopped     ended        it was stopped, or ended without a report (then `running` is false, the rest is outdated)
    finished    ended        the target ts is reached

A state change is written at once, other reports at most once a second (every five in an object store).  A failed
write is logged and not raised: only the checkpoint can stop a changefeed.

Source: states of a changefeed in TiCDC.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import obstore

from tidegate.codec.neutral import render
from tidegate.engine.checkpoints import StateFiles, checkpoints_in
from tidegate.engine.progress import FeedError, Progress, history_left_ms, now
from tidegate.engine.reading import LoadProgress, ReloadProgress
from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import SlowRows
from tidegate.model.tso import to_datetime
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, PRIVATE_FILE, write_whole
from tidegate.objectstore.stores import STORE_ERRORS, first_line, store, writable

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 1.0
STORE_EVERY_S: Final = 5.0
"""A store counts requests."""
HEARD_S: Final = 60.0
"""A feed of another machine that has said nothing for so long does not run."""
LAKE_FILE: Final = "feed"
_SUFFIX: Final = ".state.json"
_RUNNING: Final = frozenset({"pending", "normal", "warning"})


class _Kept(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Content of the file. `topic` is the sink in files of earlier releases."""

    changefeed: str
    source: str
    sink: str = ""
    topic: str = ""
    updated: str = ""
    updated_ms: int = 0
    pid: int = 0
    host: str = ""
    progress: dict[str, object] = {}


class FeedStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A changefeed as `tidegate status` shows it; times are UTC."""

    changefeed: str
    state: str
    running: bool
    checkpoint_ts: int
    checkpoint_time: str
    source: str
    sink: str
    since: str = ""
    updated: str = ""
    frontier_ts: int = 0
    history_left_s: float | None = None
    """The time until the retention of its topics passes what was read; None where that is unknown."""
    load: LoadProgress | None = None
    reload: ReloadProgress | None = None
    undecodable: dict[str, int] = {}
    rows: int = 0
    ddls: int = 0
    left_out: tuple[LeftOut, ...] = ()
    rows_left_out: int = 0
    ddls_left_out: int = 0
    roads: dict[str, int] = {}
    slow_roads: tuple[SlowRows, ...] = ()
    warnings: tuple[str, ...] = ()
    error: FeedError | None = None
    parked: tuple[FeedError, ...] = ()


class StatusFile:
    """The file of one changefeed, in a directory or an object store; `source` and `sink` are masked addresses.

    Who may read a lake may read how far its feed is; a state directory is the account's own."""

    def __init__(self, home: str, name: str, changefeed: str, *, source: str, sink: str) -> None:
        self._home, self._name = home, f"{name}{_SUFFIX}"
        self._every_s = STORE_EVERY_S if "://" in home else EVERY_S
        self._modes = (0o755, 0o644) if home.endswith("/_tidegate") else (PRIVATE_DIRECTORY, PRIVATE_FILE)
        self._kept = _Kept(changefeed=changefeed, source=source, sink=sink, pid=os.getpid(), host=socket.gethostname())
        self._state, self._saved_s, self._refused = "", 0.0, False

    def save(self, progress: Progress) -> None:
        """Keep a report if it is time, and if the store takes it."""
        state = progress.state + progress.phase
        if state == self._state and time.monotonic() - self._saved_s < self._every_s:
            return
        self._state, self._saved_s = state, time.monotonic()
        self._kept.updated, self._kept.updated_ms = now(), time.time_ns() // 1_000_000
        self._kept.progress = msgspec.to_builtins(progress)
        body = render(self._kept) + b"\n"
        try:
            if "://" in self._home:
                obstore.put(writable(self._home), self._name, body)
            else:
                Path(self._home).mkdir(mode=self._modes[0], parents=True, exist_ok=True)
                write_whole(Path(self._home, self._name), body.decode(), mode=self._modes[1])
            self._refused = False
        except STORE_ERRORS as fault:
            if not self._refused:
                LOG.warning(
                    "the state of the changefeed is not kept: %s/%s: %s", self._home, self._name, first_line(fault)
                )
            self._refused = True


def statuses(root: str) -> Iterator[FeedStatus]:
    """Return the changefeeds whose progress is kept in a state directory or a lake, by name.

    EnvironmentFault when it cannot be read."""
    control = f"{root.rstrip('/')}/_tidegate"
    status = _status(_read(control, f"{LAKE_FILE}{_SUFFIX}"), None)
    if status is not None:
        yield status
        return
    try:
        names = {name.partition(".")[0] for name in _names(root) if name.endswith(".json")}
    except STORE_ERRORS as fault:
        reason = getattr(fault, "strerror", None) or first_line(fault)
        raise EnvironmentFault(f"the state directory {root} cannot be read: {reason}") from fault
    for name in sorted(names):
        status = _status(_read(root, f"{name}{_SUFFIX}"), checkpoints_in(root, name))
        if status is not None:
            yield status


def _names(root: str) -> list[str]:
    if "://" in root:
        return [entry["path"] for entry in obstore.list_with_delimiter(store(root))["objects"]]
    return [path.name for path in Path(root).iterdir()]


def _status(kept: _Kept | None, checkpoints: StateFiles | None) -> FeedStatus | None:
    saved = None
    if checkpoints is not None:
        try:
            saved = checkpoints.kept()
        except ConfigError:
            saved = None
    if kept is None and saved is None:
        return None
    report = kept or _Kept(changefeed=saved.changefeed if saved else "", source=saved.source if saved else "")
    progress = report.progress
    is_running = None if checkpoints is None else checkpoints.is_held()
    running = _is_alive(report) if is_running is None else is_running
    state = str(progress.get("state", "stopped"))
    ended = not running and state in _RUNNING
    ts = saved.checkpoint_ts if saved is not None else _number(progress, "checkpoint_ts")
    frontier_ts = _number(progress, "frontier_ts")
    left_ms = history_left_ms(_number(progress, "begin_ts"), frontier_ts) if running else None
    return FeedStatus(
        changefeed=report.changefeed,
        state="stopped" if ended else state,
        running=running,
        checkpoint_ts=ts,
        checkpoint_time=to_datetime(ts).isoformat(timespec="milliseconds"),
        source=report.source,
        sink=report.sink or report.topic or (saved.sink or saved.topic if saved else ""),
        since="" if ended else str(progress.get("since", "")),
        updated=report.updated,
        frontier_ts=frontier_ts,
        history_left_s=None if left_ms is None else left_ms / 1000,
        load=msgspec.convert(progress.get("load"), LoadProgress | None),
        reload=msgspec.convert(progress.get("reload"), ReloadProgress | None),
        undecodable=msgspec.convert(progress.get("undecodable") or {}, dict[str, int]),
        rows=_number(progress, "rows"),
        ddls=_number(progress, "ddls"),
        left_out=msgspec.convert(progress.get("left_out") or (), tuple[LeftOut, ...]),
        rows_left_out=_number(progress, "rows_left_out"),
        ddls_left_out=_number(progress, "ddls_left_out"),
        roads=msgspec.convert(progress.get("roads") or {}, dict[str, int]),
        slow_roads=msgspec.convert(progress.get("slow_roads") or (), tuple[SlowRows, ...]),
        warnings=msgspec.convert(progress.get("warnings") or (), tuple[str, ...]),
        error=msgspec.convert(progress.get("error"), FeedError | None),
        parked=msgspec.convert(progress.get("parked") or (), tuple[FeedError, ...]),
    )


def _number(progress: dict[str, object], name: str) -> int:
    return msgspec.convert(progress.get(name) or 0, int)


def _is_alive(kept: _Kept) -> bool:
    """True if the process that wrote the report runs; for one of another machine, if its last report is recent."""
    if kept.host != socket.gethostname():
        return time.time_ns() // 1_000_000 - kept.updated_ms < HEARD_S * 1000
    if kept.progress.get("phase") == "stopped":
        return False
    try:
        os.kill(kept.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(home: str, name: str) -> _Kept | None:
    try:
        body = obstore.get(store(home), name).bytes().to_bytes() if "://" in home else Path(home, name).read_bytes()
        return msgspec.json.decode(body, type=_Kept)
    except (*STORE_ERRORS, msgspec.DecodeError):
        return None
