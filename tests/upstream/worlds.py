"""A store on a clock that tests move, and the naive model that it is held to."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.model.kv_change import KvChange
from tidegate.source.tidb_segment import read_spans
from tidegate_upstream.tidb.engine import KvEngine, MemoryEngine, MetaBound, SqliteEngine
from tidegate_upstream.tidb.store_mvcc import Store
from tidegate_upstream.tidb.transaction import Options, Oracle, Storage

TTL_MS = 50
CARRIED = ("batch_keys", "one_phase", "check")
ENGINES: dict[str, Callable[[Path], KvEngine]] = {"memory": lambda _: MemoryEngine(), "sqlite": SqliteEngine}


def seeds(count: int) -> range:
    """`count` seeds, or the one that TIDEGATE_SEED names."""
    chosen = os.environ.get("TIDEGATE_SEED")
    return range(int(chosen), int(chosen) + 1) if chosen else range(count)


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self, ms: int = 1_577_934_245_678) -> None:
        self.ms = ms

    def __call__(self) -> int:
        """Now."""
        return self.ms


class World:
    """One life of a storage; `reopened` is the next one over the same engine."""

    def __init__(self, engine: KvEngine | None = None, clock: Clock | None = None, **options) -> None:
        self.engine, self.clock = engine or MemoryEngine(), clock or Clock()
        self.store = Store(self.engine)
        self.oracle = Oracle(self.clock, MetaBound(self.engine))
        self.options = Options(**{"ttl_ms": TTL_MS, **options})
        self.storage = Storage(self.store, self.oracle, self.options)

    def reopened(self) -> "World":
        """The next life over the same engine."""
        return World(self.engine, self.clock, **{name: getattr(self.options, name) for name in CARRIED})

    def put(self, **values: bytes | None) -> int:
        """One transaction over keys named by single words; None deletes."""
        txn = self.storage.begin()
        for key, value in values.items():
            if value is None:
                txn.delete(key.encode())
            else:
                txn.put(key.encode(), value)
        commit_ts = txn.commit()
        assert commit_ts is not None
        return commit_ts


class Model:
    """What was committed: key -> [(commit_ts, value)], and nothing else."""

    def __init__(self) -> None:
        self.versions: dict[bytes, list[tuple[int, bytes | None]]] = {}

    def commit(self, commit_ts: int, writes: dict[bytes, bytes | None]) -> None:
        """A transaction became visible."""
        for key, value in writes.items():
            self.versions.setdefault(key, []).append((commit_ts, value))

    def at(self, ts: int) -> dict[bytes, bytes]:
        """Keys with values at `ts`, in order."""
        found = {key: max((v for v in of if v[0] <= ts), default=(0, None))[1] for key, of in self.versions.items()}
        return {key: value for key, value in sorted(found.items()) if value is not None}

    def committed_after(self, key: bytes, ts: int) -> bool:
        """Whether somebody committed the key after `ts`."""
        return any(commit_ts > ts for commit_ts, _ in self.versions.get(key, []))


class MemoryBound:
    """A bound for an oracle that lives no longer than its process."""

    def __init__(self, bound_ms: int = 0) -> None:
        self.bound_ms = bound_ms

    def load(self) -> int:
        """Return the last saved bound."""
        return self.bound_ms

    def save(self, bound_ms: int) -> None:
        """Remember `bound_ms`."""
        self.bound_ms = bound_ms


def read_segments(directory: Path, low: int, high: int, *, start: bytes = b"", end: bytes = b"") -> Iterator[KvChange]:
    """Rows of (low, high] with keys in [start, end)."""
    return read_spans(directory, low, high, ((start, end),))
