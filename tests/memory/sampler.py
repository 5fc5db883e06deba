"""The memory of a feed's processes, seen from outside while it runs.

    tidegate run ──► java ──► pyspark.daemon ──► worker, worker, planner ...
    driver           jvm      `workers`: all of these together; `worker`: the largest one

Peaks of single processes are the kernel's own (VmHWM of /proc/PID/status: resident, shared pages included), so no
spike falls between two looks.  Workers are forks that share the daemon's pages: their sum is of PSS, which counts each
shared page once among those who share it.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

EVERY_S = 0.05
MIB = 1 << 20
GONE = (psutil.Error, FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass
class Peaks:
    """The most that each kind of process had, in MiB."""

    driver: float = 0
    jvm: float = 0
    worker: float = 0
    workers: float = 0

    def raised(self, **found: float) -> None:
        """Take in what was found where it is more."""
        for name, mib in found.items():
            setattr(self, name, max(getattr(self, name), mib))


@dataclass
class Sampler:
    """Watches the tree of processes below `pid`; `now` is the last look, resident without peaks."""

    pid: int
    peaks: Peaks = field(default_factory=Peaks)
    now: Peaks = field(default_factory=Peaks)
    looks: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(*GONE):
            root = psutil.Process(self.pid)
            while not self._over.is_set():
                begun = time.monotonic()
                self._look(root)
                self._over.wait(max(EVERY_S - (time.monotonic() - begun), 0.005))

    def _look(self, root: psutil.Process) -> None:
        now = Peaks()
        self._measure("driver", root.pid, now)
        for child in root.children(recursive=True):
            with suppress(*GONE):
                java = child.name() == "java"
                self._measure("jvm" if java else "worker", child.pid, now)
        self.peaks.raised(workers=now.workers)
        self.now = now
        self.looks += 1

    def _measure(self, kind: str, pid: int, now: Peaks) -> None:
        resident, peak = _status(pid)
        self.peaks.raised(**{kind: peak})
        now.raised(**{kind: resident})
        if kind == "worker":
            now.workers += _pss(pid)


def _status(pid: int) -> tuple[float, float]:
    """(resident, its high-water mark) in MiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, peak = (int(lines.get(name, "0").split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return resident, peak  # a zombie has neither


def _pss(pid: int) -> float:
    found = Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()
    return int(found[0]) / 1024 if found else 0.0
