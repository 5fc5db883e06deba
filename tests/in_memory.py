"""Where tests write: into memory, if there is plenty of it.

    /dev/shm, roomy, programs may run there ──► TMPDIR of this run and of all that it starts
    anything else, or a TMPDIR of your own  ──► as it was

Stores, segments and brokers wait for the disk after each step, which is most of the time of some tests. They are killed
here by signals, never by a power cut, so what they wait for makes no difference to what is read afterwards.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

import psutil

__all__ = ["write_there"]

PLACE: Final = Path("/dev/shm")
ROOM_BYTES: Final = 6 << 30
"""A run writes some two gigabytes a process, and what a test wrote goes with it unless the test failed."""
VARIABLE: Final = "TMPDIR"


def write_there() -> None:
    """Let temporary files of this process and of those that it starts lie in memory."""
    if VARIABLE not in os.environ and _is_roomy():
        os.environ[VARIABLE] = tempfile.tempdir = str(PLACE)


def _is_roomy() -> bool:
    if not (PLACE.is_dir() and os.access(PLACE, os.W_OK | os.X_OK)):
        return False
    found = os.statvfs(PLACE)
    free = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available // 2)
    return free >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC
