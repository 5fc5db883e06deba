"""Failpoints: points in the code where a test can kill, fail or pause this process; no effect in other runs.

    failpoint("landing/before-commit")    in the code; one comparison with None when nothing is armed

    TIDEGATE_FAILPOINTS="landing/before-commit=kill@3,publish/before-snapshot=error:ENOSPC"
                         └ name ─────────────┘ └ action └ at the third time in this process; else the first, once

    kill            SIGKILL to the process that reaches it, driver or worker
    error:ENOSPC    OSError of that name; the write at the failpoint fails
    error:SinkError the error of model/errors.py of that name
    sleep:2         seconds
    pause           write the process id to a file in TIDEGATE_FAILPOINTS_DIR and wait until the file is removed

`@*` acts every time.  With TIDEGATE_FAILPOINTS_DIR an action happens once among all processes that share the directory,
so a feed that was killed does not die again after its restart.  The names are listed in tests/failpoint.py.
"""

import errno
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tidegate.model import errors
from tidegate.model.errors import ConfigError, TidegateError

VARIABLE: Final = "TIDEGATE_FAILPOINTS"
DIRECTORY_VARIABLE: Final = "TIDEGATE_FAILPOINTS_DIR"
PAUSE_MAX_S: Final = 60.0
GRAMMAR: Final = re.compile(
    r"(?P<name>[a-z]+/[a-z-]+)=(?P<action>kill|pause|sleep|error)(:(?P<what>[\w.]+))?(@(?P<nth>\d+|\*))?"
)

Action = Callable[[], None]

_armed: Mapping[str, Action] | None = None


def failpoint(name: str) -> None:
    """Perform the action armed for `name`, if any."""
    if _armed is not None and name in _armed:
        _armed[name]()


def arm(actions: Mapping[str, Action] | None) -> Mapping[str, Action] | None:
    """Replace the armed actions (None: none), and return the previous ones."""
    global _armed
    before, _armed = _armed, actions
    return before


def parse_failpoints(text: str, directory: Path | None = None) -> dict[str, Action]:
    """Return the actions in a TIDEGATE_FAILPOINTS value. Raises ConfigError for an invalid one."""
    actions: dict[str, Action] = {}
    for word in filter(None, text.split(",")):
        match = GRAMMAR.fullmatch(word.strip())
        if match is None:
            raise ConfigError(f"{VARIABLE}: {word!r} is not NAME=kill|pause|sleep:S|error:NAME, with @N or @*")
        name, nth = match["name"], match["nth"] or "1"
        action = _action(match["action"], match["what"] or "", name, directory)
        actions[name] = action if nth == "*" else _once(action, int(nth), name, directory)
    return actions


def mark(directory: Path, name: str) -> Path:
    """Return the file that exists while a process pauses at `name`."""
    return directory / f"{name.replace('/', '.')}.paused"


def _action(kind: str, what: str, name: str, directory: Path | None) -> Action:
    match kind:
        case "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            return lambda: time.sleep(float(what))
        case "pause":
            if directory is None:
                raise ConfigError(f"{VARIABLE}: pause needs {DIRECTORY_VARIABLE}")
            return lambda: _pause(mark(directory, name))
        case _:
            return lambda: _fail(what, name)


def _fail(error: str, name: str) -> None:
    kind = getattr(errors, error, None)
    if isinstance(kind, type) and issubclass(kind, TidegateError):
        raise kind(f"failpoint {name}")
    number = getattr(errno, error, errno.EIO)
    raise OSError(number, os.strerror(number), name)


def _pause(where: Path) -> None:
    where.write_text(str(os.getpid()))
    until_s = time.monotonic() + PAUSE_MAX_S
    while where.exists() and time.monotonic() < until_s:
        time.sleep(0.02)


def _once(action: Action, nth: int, name: str, directory: Path | None) -> Action:
    """`action` at the nth call, if no process that shares `directory` has done it."""
    times: Counter[str] = Counter()

    def at_last() -> None:
        times[name] += 1
        if times[name] == nth and (directory is None or _first(directory / f"{name.replace('/', '.')}.done")):
            action()

    return at_last


def _first(done: Path) -> bool:
    try:
        done.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if VARIABLE in os.environ:
    shared = os.environ.get(DIRECTORY_VARIABLE)
    arm(parse_failpoints(os.environ[VARIABLE], Path(shared) if shared else None))
