"""The simulation with listeners: whatever regions do, what the log says is what the store holds."""

from tests.upstream.simulation import KEYS, Simulation
from tidegate.model.kv_change import KvChange, KvOp
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.engine import KvEngine
from tidegate_upstream.tidb.log_writer import SpanFeed

SPANS = ((b"", b""), (KEYS[1], KEYS[6]), (KEYS[5], b""))


class Listener:
    """A copy of a span that is made of rows alone."""

    def __init__(self, log: ChangeLog, span: tuple[bytes, bytes], from_ts: int, rows: dict[bytes, bytes]) -> None:
        self.span, self.rows = span, dict(rows)
        self.feed = SpanFeed(log, *span, from_ts)
        self.resolved_ts = from_ts

    def covers(self, key: bytes) -> bool:
        """Whether a key is in the span."""
        return self.span[0] <= key and (not self.span[1] or key < self.span[1])

    def take(self) -> list[KvChange]:
        """Apply what became complete: each row replaces just the value that it says it does."""
        rows, ts = self.feed.take()
        assert ts >= self.resolved_ts
        assert [row.commit_ts for row in rows] == sorted(row.commit_ts for row in rows)
        for row in rows:
            assert self.resolved_ts < row.commit_ts <= ts
            assert self.covers(row.key)
            assert row.old_value == self.rows.get(row.key), "an old value that was not there"
            assert (row.op is KvOp.DELETE) == (row.value is None)
            self.rows.pop(row.key, None)
            if row.value is not None:
                self.rows[row.key] = row.value
        self.resolved_ts = ts
        return rows


class LogSimulation(Simulation):
    """Splits, merges, moving leaders, listeners that come late, read slowly and start again."""

    def __init__(self, seed: int, engine: KvEngine | None = None) -> None:
        super().__init__(seed, engine)
        self.listen()

    def listen(self) -> None:
        """A log of this life of the store, and listeners that go on where those of the last one stood."""
        old = getattr(self, "listeners", None)
        self.log = ChangeLog(self.world.store, self.world.oracle)
        if old is None:
            self.listeners = [Listener(self.log, span, 0, {}) for span in SPANS]
        else:
            self.listeners = [Listener(self.log, one.span, one.resolved_ts, one.rows) for one in old]

    def turn(self) -> None:
        """A turn of a client, or of a region, or of a listener."""
        match self.random.randrange(14):
            case 0:
                self.counts["region"] += 1
                self.change_region()
            case 1 | 2:
                self.random.choice(self.listeners).feed.poll(self.random.choice((0, 1, 3, 1000)))
            case 3:
                self.log.advance()
            case 4:
                self.check_listener(self.random.choice(self.listeners))
            case _:
                super().turn()

    def change_region(self) -> None:
        """A split, a merge or another leader."""
        region = self.random.choice(list(self.log.regions))
        match self.random.choice(("split", "merge", "leader")):
            case "split":
                self.log.split(self.random.choice(KEYS) + self.random.choice((b"", b"\0")))
            case "merge":
                self.log.merge(region.id)
            case "leader":
                self.log.move_leader(region.id)

    def check_listener(self, listener: Listener) -> None:
        """At its resolved ts a copy is what the store was at that moment."""
        rows = listener.take()
        self.counts["rows"] += len(rows)
        self.trace += [repr(row) for row in rows]
        expected = {key: value for key, value in self.model.at(listener.resolved_ts).items() if listener.covers(key)}
        assert listener.rows == expected

    def restart(self) -> None:
        """A new life has a new log, with one region."""
        super().restart()
        self.listen()

    def collect(self) -> None:
        """Listeners hold the safe point back."""
        if all(listener.resolved_ts for listener in self.listeners):
            super().collect()

    def safe_point(self) -> int:
        """No change that a listener still needs is collected."""
        return min(super().safe_point(), *(one.resolved_ts for one in self.listeners))

    def check_everything(self) -> None:
        """Once no lock is left, every listener comes to the present."""
        super().check_everything()
        for listener in self.listeners:
            for _ in range(2):
                listener.feed.poll()
                self.log.advance()
            listener.feed.poll()
            self.check_listener(listener)
            assert listener.resolved_ts >= max(self.commits, default=0)
