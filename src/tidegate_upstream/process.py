"""Processes that outlive the command that started them: looked for by pid, known by their command line, ended.

    started(child)                  this process will reap it
    living(pid, is_ours, ..)        None when it ended, or when the pid now names another program
    end(process, timeout_s, ..)     SIGTERM, wait, SIGKILL

`watch` says what is watched and which extra brings psutil, for the error where that is missing.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.model.errors import EnvironmentFault

if TYPE_CHECKING:
    import psutil

LOOKS: Final = 5
LOOK_PAUSE_S: Final = 0.02
"""Between fork and the end of exec a process shows no command line for some microseconds; then we look again."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started: the handle of an unreaped child says for certain whether it runs."""


class Watch(NamedTuple):
    """What is watched, and the extra that brings psutil."""

    what: str
    extra: str


def started(child: subprocess.Popen[bytes]) -> None:
    """Remember a child of this process."""
    _children[child.pid] = child


def child_of(pid: int) -> subprocess.Popen[bytes]:
    """Return a child that this process started."""
    return _children[pid]


def living(pid: int, is_ours: Callable[[Sequence[str]], bool], watch: Watch) -> "psutil.Process | None":
    """Return the process; a child of ours, or one whose command line `is_ours`. Raises EnvironmentFault without
    psutil."""
    psutil = _psutil(watch)
    try:
        process = psutil.Process(pid)
        if (child := _children.get(pid)) is not None:
            return process if child.poll() is None else None
        for _ in range(LOOKS):
            if words := process.cmdline():
                return process if is_ours(words) else None
            time.sleep(LOOK_PAUSE_S)
    except psutil.Error:
        return None
    return None


def end(process: "psutil.Process", timeout_s: float, watch: Watch) -> None:
    """Ask it to end, and after `timeout_s` make it."""
    psutil = _psutil(watch)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(sign)
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout_s)
            break
    if (child := _children.pop(process.pid, None)) is not None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout_s)


def _psutil(watch: Watch) -> ModuleType:
    try:
        return import_module("psutil")
    except ImportError as fault:
        raise EnvironmentFault(
            f"{watch.what} are watched with psutil ({fault}): pip install 'tidegate[{watch.extra}]'"
        ) from fault
