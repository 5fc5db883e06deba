"""Whom a signal kills when a feed pauses at a named place, and the rig that does it.

    feed ──► pauses at a place, its process id in a file ──► rig kills a victim, takes the file away ──► next life

A pausing process that the signal spares goes on when the file is gone, beside the next life: it is the writer that
outlived its driver, and must do no harm.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from tests.e2e.rig import Running
from tidegate.spark.failpoint import DEEDS_VARIABLE, DIRECTORY_VARIABLE

LIFE_S: Final = 120.0
POLL_S: Final = 0.02


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def driver(run: Running, _pausing: int) -> None:
    """The Python process of the feed; its JVM and workers see that later."""
    _kill(run.process.pid)


def jvm(run: Running, _pausing: int) -> None:
    """Spark's Java process; the driver is left with a closed connection."""
    for child in psutil.Process(run.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "java" in child.name():
                _kill(child.pid)


def group(run: Running, pausing: int) -> None:
    """Everything at once."""
    run.signal_group(signal.SIGKILL)
    _kill(pausing)


def pausing_one(_run: Running, pausing: int) -> None:
    """The very process that stands at the place: the driver, or one worker whose task is tried again."""
    _kill(pausing)


VICTIMS: Final = (driver, jvm, group, pausing_one)
Victim = Callable[[Running, int], None]


@contextmanager
def armed_processes(deeds: Sequence[str], shared: Path) -> Iterator[None]:
    """Processes started in the block have `deeds`, each done once among those that share the directory."""
    shared.mkdir(exist_ok=True)
    variables = {DEEDS_VARIABLE: ",".join(deeds), DIRECTORY_VARIABLE: str(shared)}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def live(run: Running, shared: Path, victims: Iterator[Victim]) -> tuple[int, list[str]]:
    """Kill the next victim at every pause until the feed has ended; its exit status and what was done."""
    deaths: list[str] = []
    until_s = time.monotonic() + LIFE_S
    while (status := run.process.poll()) is None:
        assert time.monotonic() < until_s, f"neither an end nor a pause after {deaths}"
        for paused in sorted(shared.glob("*.paused"))[:1]:
            if not (pausing := paused.read_text()):
                continue
            victim = next(victims)
            victim(run, int(pausing))
            deaths.append(f"{victim.__name__} at {paused.stem}")
            for mark in shared.glob("*.paused"):
                mark.unlink()
        time.sleep(POLL_S)
    return status, deaths
