"""Threads of a changefeed: they log with the fields of whoever begins them (engine/log_fields.py).

    with ContextPool(8, "storage") as pool:         each piece of work in a copy of the context that submits it
        pool.submit(work)
    begin_thread(work, "tidegate-load-guard")       the same for a thread alone

A context is what `contextvars` holds.  A plain thread, and a plain pool's, begins with an empty one.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ContextPool(ThreadPoolExecutor):
    """A pool of threads whose work runs in the context that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))


def begin_thread(work: Callable[[], object], name: str) -> Thread:
    """Start a daemon thread in the caller's context, and return it."""
    thread = Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread
