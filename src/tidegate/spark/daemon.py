"""The daemon that forks Spark's Python workers: PySpark's daemon with less memory per worker.

    java ──► python -m tidegate.spark.daemon pyspark.worker      imports the libraries of tasks, once
                 ├─ fork ── worker    task, task, task ...       shares those pages, starts in milliseconds
                 └─ fork ── worker

The protocol is PySpark's; there are five changes:

1. The libraries of Tidegate's tasks are imported before the fork, so that workers share them.
2. Imported objects are frozen for the garbage collector: PySpark runs a full collection after each task, which would
   traverse all of them, a tenth of a second, and make the shared pages private.
3. While a task runs, freed memory stays with the process (`keep_freed`): arrays of one chunk reuse the memory of the
   previous chunk, without new pages from the system.
4. After each task free memory is returned to the system, so that idle workers are small.
5. The working directory comes last in the module search path, not first (with PYTHONSAFEPATH): functions of a program
   are found there, and none of its files shadows a module of Python.

Source: pyspark/daemon.py and pyspark/worker_util.py of 4.1.
"""

import ctypes
import gc
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

MODULE: Final = "tidegate.spark.daemon"
WARM: Final = (
    "confluent_kafka.admin",
    "deltalake",
    "msgspec.json",
    "numba",
    "numpy",
    "obstore.store",
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot",
)
"""Modules to import early, if installed; a task that needs a missing one raises its own error."""
TASKS: Final = "pyspark.worker"
"""The module that runs tasks; others, which plan data sources, have a daemon of their own."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
FREED: Final = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}
"""Settings of glibc's `mallopt`, in bytes: smaller arrays are in the heap, which may keep so much free memory."""

Serve = Callable[[Any, Any], None]


def keep_freed() -> bool:
    """Let this process and its forks reuse the memory of large arrays; return False without glibc."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    return tell is not None and all(tell(name, size) for name, size in FREED.items())


class Tidy:
    """Runs tasks and cleans up after each: free memory is returned to the system, imported modules are frozen."""

    def __init__(self, serve: Serve) -> None:
        import pyarrow as pa

        self._serve = serve
        self._pool = pa.default_memory_pool()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
        self._modules = 0
        self._freeze()

    def __call__(self, infile: Any, outfile: Any) -> None:
        """Serve one task."""
        try:
            self._serve(infile, outfile)
        finally:
            self._freeze()
            self._pool.release_unused()
            if self._trim is not None:
                self._trim(0)

    def _freeze(self) -> None:
        """Freeze objects only when there are new modules, so that a task's garbage is still collected."""
        if len(sys.modules) > self._modules:
            self._modules = len(sys.modules)
            gc.collect()
            gc.freeze()


def main() -> None:
    """Fork workers until Spark closes the standard input."""
    sys.path.append("")
    for name in WARM if sys.argv[1:] == [TASKS] else ():
        with suppress(ImportError):
            importlib.import_module(name)
    keep_freed()
    from pyspark import daemon

    daemon.worker_main = Tidy(daemon.worker_main)
    daemon.manager()


if __name__ == "__main__":
    main()
