"""Failpoints: places where a test makes this process die, fail or wait; without effect in other runs.

    reach("landing/before-commit")        in the code; one comparison with None when nothing is armed

    TIDEGATE_FAILPOINTS="landing/before-commit=kill@3,publish/before-snapshot=error:ENOSPC"
                         └ place ────────────┘ └ deed ┘└ at the third time of this process; else the first, once

    kill            SIGKILL to this process, driver or worker, whichever gets there
    error:ENOSPC    OSError of that name; the write that the place stands in fails
    error:SinkError the error of ours of that name
    sleep:2         seconds
    pause           put our process id into a file of TIDEGATE_FAILPOINTS_DIR and wait until somebody removes it

`@*` acts every time.  With TIDEGATE_FAILPOINTS_DIR a deed is done once among all processes that share the directory,
so a feed that was killed and is started again lives on.  The names are listed in tests/failpoint.py.
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

DEEDS_VARIABLE: Final = "TIDEGATE_FAILPOINTS"
DIRECTORY_VARIABLE: Final = "TIDEGATE_FAILPOINTS_DIR"
PAUSE_MAX_S: Final = 60.0
GRAMMAR: Final = re.compile(
    r"(?P<place>[a-z]+/[a-z-]+)=(?P<deed>kill|pause|sleep|error)(:(?P<what>[\w.]+))?(@(?P<nth>\d+|\*))?"
)

Deed = Callable[[], None]

_armed: Mapping[str, Deed] | None = None


def reach(place: str) -> None:
    """Perform the action armed for `place`, if any."""
    if _armed is not None and place in _armed:
        _armed[place]()


def arm(deeds: Mapping[str, Deed] | None) -> Mapping[str, Deed] | None:
    """Replace the armed actions (None: none), and return the previous ones."""
    global _armed
    before, _armed = _armed, deeds
    return before


def parse(text: str, directory: Path | None = None) -> dict[str, Deed]:
    """Return the actions in a TIDEGATE_FAILPOINTS value. Raises ConfigError for an invalid one."""
    deeds: dict[str, Deed] = {}
    for word in filter(None, text.split(",")):
        match = GRAMMAR.fullmatch(word.strip())
        if match is None:
            raise ConfigError(f"{DEEDS_VARIABLE}: {word!r} is not PLACE=kill|pause|sleep:S|error:NAME, with @N or @*")
        place, nth = match["place"], match["nth"] or "1"
        deed = _deed(match["deed"], match["what"] or "", place, directory)
        deeds[place] = deed if nth == "*" else _once(deed, int(nth), place, directory)
    return deeds


def mark(directory: Path, place: str) -> Path:
    """Return the file that exists while a process pauses at `place`."""
    return directory / f"{place.replace('/', '.')}.paused"


def _deed(kind: str, what: str, place: str, directory: Path | None) -> Deed:
    match kind:
        case "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            return lambda: time.sleep(float(what))
        case "pause":
            if directory is None:
                raise ConfigError(f"{DEEDS_VARIABLE}: pause needs {DIRECTORY_VARIABLE}")
            return lambda: _pause(mark(directory, place))
        case _:
            return lambda: _fail(what, place)


def _fail(name: str, place: str) -> None:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, TidegateError):
        raise kind(f"failpoint {place}")
    number = getattr(errno, name, errno.EIO)
    raise OSError(number, os.strerror(number), place)


def _pause(where: Path) -> None:
    where.write_text(str(os.getpid()))
    until_s = time.monotonic() + PAUSE_MAX_S
    while where.exists() and time.monotonic() < until_s:
        time.sleep(0.02)


def _once(deed: Deed, nth: int, place: str, directory: Path | None) -> Deed:
    """`deed` at the nth call, if no process that shares `directory` has done it."""
    times: Counter[str] = Counter()

    def at_last() -> None:
        times[place] += 1
        if times[place] == nth and (directory is None or _first(directory / f"{place.replace('/', '.')}.done")):
            deed()

    return at_last


def _first(done: Path) -> bool:
    try:
        done.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if DEEDS_VARIABLE in os.environ:
    arm(parse(os.environ[DEEDS_VARIABLE], Path(there) if (there := os.environ.get(DIRECTORY_VARIABLE)) else None))
