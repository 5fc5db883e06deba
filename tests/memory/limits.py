"""What the processes of a feed take at most, in MiB: the one table that the tests hold and docs/limits.md shows."""

import os
from dataclasses import asdict

from tests.memory.sampler import Peaks

DRIVER = 384
JVM = 2048
WORKER = 2048
WORKERS = 2048
"""All workers together, and A_CORE more for each core."""
A_CORE = 512

TABLE = {
    "driver": str(DRIVER),
    "JVM": str(JVM),
    "one worker": str(WORKER),
    "all workers": f"{WORKERS} + {A_CORE} a core",
}
FLAT = 64
"""How much the driver and the JVM may differ between two looks at a feed that waits."""


def beyond(peaks: Peaks) -> dict[str, float]:
    """What took more than it may."""
    cores = len(os.sched_getaffinity(0))
    limits = {"driver": DRIVER, "jvm": JVM, "worker": WORKER, "workers": WORKERS + A_CORE * cores}
    return {name: mib for name, mib in asdict(peaks).items() if mib > limits[name]}
