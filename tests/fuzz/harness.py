"""Cases one after the other in a process of their own, each within MEMORY_BYTES and CASE_S.

    seed, number ──► Random ──► case ──► read(case)     a refusal that is meant is fine; all else is a failure

A process that dies is one, too: the seed and the number tell which case it was.

The same seed and number are the same case, so `run(.., first=number, cases=1)` shows it again.
"""

import faulthandler
import json
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

__all__ = ["CASE_S", "MEMORY_BYTES", "Run", "run"]

MEMORY_BYTES: Final = 1 << 30
"""What the cases may take beyond what the process has when they begin."""
CASE_S: Final = 5.0
"""Processor time of one case."""

_Case = TypeVar("_Case")


class Run(NamedTuple):
    """How many cases were tried and how many were read; `failure` is empty, or tells the first that went wrong."""

    tried: int
    read: int
    failure: str = ""


def run(
    make: Callable[[random.Random], _Case],
    read: Callable[[_Case], object],
    refused: tuple[type[Exception], ...],
    *,
    seed: int,
    cases: int = 1 << 62,
    seconds: float = 1e9,
    first: int = 0,
) -> Run:
    """Try cases up to a number or a time; each is a value of `make`, read by `read`, which may raise `refused`."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        numbers, until = range(first, first + cases), time.monotonic() + seconds
        _child(tell, make, read, refused, seed=seed, numbers=numbers, until=until)
    os.close(tell)
    with os.fdopen(told) as lines:
        last = list(lines)[-1:] or ["[0, 0, 'it never began']"]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = Run(*json.loads(last[0]))
    if status and not found.failure:
        return found._replace(failure=f"seed {seed}, case {first + found.tried}: the process ended with {status}")
    return found


def _child(
    tell: int,
    make: Callable[[random.Random], _Case],
    read: Callable[[_Case], object],
    refused: tuple[type[Exception], ...],
    *,
    seed: int,
    numbers: range,
    until: float,
) -> None:
    """Try cases, and tell after each how many there were."""
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.disable()  # the parent tells of a death
    tried = good = 0
    for number in numbers:
        if time.monotonic() > until:
            break
        os.write(tell, f"{json.dumps([tried, good])}\n".encode())
        try:
            case = make(random.Random(f"{seed}-{number}"))
            signal.setitimer(signal.ITIMER_PROF, CASE_S)
            read(case)
            good += 1
        except refused:
            pass
        except BaseException:  # noqa: BLE001  whatever it is, the parent is to know
            failure = f"seed {seed}, case {number}: {traceback.format_exc()[-4000:]}"
            os.write(tell, f"{json.dumps([tried + 1, good, failure])}\n".encode())
            os._exit(1)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        tried += 1
    os.write(tell, f"{json.dumps([tried, good])}\n".encode())
    os._exit(0)
