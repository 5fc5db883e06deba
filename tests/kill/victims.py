"""Whom a signal kills when a feed pauses at a named place, and the rig that does it.

    feed ──► pauses at a place, its process id in a file ──► rig kills a victim, takes the file away ──► next life

A pausing process that the signal spares goes on when the file is gone, beside the next life: it is the writer that
outlived its driver, and must do no harm.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from tests.e2e.rig import Running, running
from tidegate.objectstore.failpoint import DIRECTORY_VARIABLE, VARIABLE

LIFE_S: Final = 480.0
POLL_S: Final = 0.02


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def driver(run: Running, _pausing: int) -> None:
    """The Python process of the feed; its JVM and workers see that later."""
    _kill(run.process.pid)


def jvm(run: Running, _pausing: int) -> None:
    """Spark's Java process; the driver is left with a closed connection."""
    for child in psutil.Process(run.process.pid).children():
        with suppress(psutil.Error):
            if "java" in child.name():
                _kill(child.pid)


def group(run: Running, pausing: int) -> None:
    """Everything at once."""
    run.signal_group(signal.SIGKILL)
    _kill(pausing)


def worker(run: Running, pausing: int) -> None:
    """A Python worker of Spark, whose task is tried again: the one that stands at the place, else any."""
    if pausing != run.process.pid:
        _kill(pausing)
        return
    for child in psutil.Process(run.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if any(word.endswith(".daemon") for word in child.parent().cmdline()):
                _kill(child.pid)
                return


def executor(_run: Running, pausing: int) -> None:
    """The executor in whose Python worker the place was reached; Spark starts another. A worker whose executor has
    just died at another place dies after it."""
    with suppress(psutil.Error):
        for ancestor in psutil.Process(pausing).parents():
            if any("CoarseGrainedExecutorBackend" in word for word in ancestor.cmdline()):
                _kill(ancestor.pid)
                return
    _kill(pausing)


Victim = Callable[[Running, int], None]
VICTIMS: Final[tuple[Victim, ...]] = (driver, jvm, group, worker)


@contextmanager
def armed_processes(deeds: Sequence[str], shared: Path) -> Iterator[None]:
    """Processes started in the block have `deeds`, each done once among those that share the directory."""
    shared.mkdir(exist_ok=True)
    variables = {VARIABLE: ",".join(deeds), DIRECTORY_VARIABLE: str(shared)}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def live(
    run: Running, shared: Path, victim_at: Callable[[str], Victim], meanwhile: Callable[[], None] = lambda: None
) -> tuple[int, list[str]]:
    """Kill at every pause until the feed has ended; its exit status, and who died where.

    Whatever else pauses at that moment goes on together with it, and is told as what died or lived beside it."""
    deaths: list[str] = []
    run.unread()
    until_s = time.monotonic() + LIFE_S
    while (status := run.process.poll()) is None:
        assert time.monotonic() < until_s, f"neither an end nor a pause after {deaths}"
        marks = [(mark, pid) for mark in sorted(shared.glob("*.paused")) if (pid := mark.read_text())]
        if marks:
            places = [mark.stem.replace(".", "/", 1) for mark, _ in marks]
            victim = victim_at(places[0])
            victim(run, int(marks[0][1]))
            deaths += [f"{victim.__name__} at {place}" for place in places]
            for mark, _ in marks:
                mark.unlink()
        meanwhile()
        time.sleep(POLL_S)
    for mark in shared.glob("*.paused"):
        mark.unlink()
        deaths.append(f"left over at {mark.stem.replace('.', '/', 1)}")
    return status, deaths


def lives(
    words: Sequence[str], program: Sequence[str], home: Path, plan: Mapping[str, Victim], deeds: Sequence[str]
) -> list[str]:
    """Run a command again and again until it ends by itself, at most twice for each place; who died where."""
    deaths: list[str] = []
    for number in range(2 * len(plan)):
        with (
            armed_processes(deeds, home / "marks"),
            running(words, home / f"life-{number}", program, hang_s=LIFE_S) as run,
        ):
            status, died = live(run, home / "marks", plan.__getitem__)
        deaths += died
        assert status == 0 or died, (home / f"life-{number}" / "stderr").read_text()[-2000:]
        if status == 0:
            break
    return deaths
