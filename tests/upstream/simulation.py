"""Clients that take turns over one store, crash anywhere, and are held to the naive model at every step.

One seed decides every choice, so the same seed gives the same trace.  A turn is one call of one client: begin, a read,
a write, one stage of a commit.  Clients die between stages, and the whole process between turns.
"""

import re
from collections import Counter
from collections.abc import Iterator
from random import Random

from tests.upstream.worlds import TTL_MS, Model, World
from tidegate.model.tso import physical_ms
from tidegate_upstream.errors import KeyLocked, SchemaChanged, TransactionGone, WriteConflict
from tidegate_upstream.tidb.engine import KvEngine
from tidegate_upstream.tidb.store_mvcc import collect_garbage
from tidegate_upstream.tidb.transaction import Options, Stage, Transaction

KEYS = [b"t%d" % at for at in range(8)]
CLIENTS = 4
ACTIONS = ("get", "get", "scan", "put", "put", "put", "delete", "lock", *["commit"] * 4, "give up")
VALUES = (b"", b"short", b"L" * 300)


class Client:
    """One transaction after the other."""

    def __init__(self) -> None:
        self.txn: Transaction | None = None
        self.writes: dict[bytes, bytes | None] = {}
        self.locked: set[bytes] = set()
        self.commit: Iterator[Stage] | None = None


class Simulation:
    """A world, its model, and what happened."""

    def __init__(self, seed: int, engine: KvEngine | None = None) -> None:
        self.random = Random(seed)
        self.world = World(engine)
        self.model = Model()
        self.clients = [Client() for _ in range(CLIENTS)]
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.decided: set[int] = set()

    def run(self, turns: int) -> "Simulation":
        """Take turns, then let everything that is left lying be found by readers."""
        for _ in range(turns):
            self.turn()
        self.clients = [Client() for _ in range(CLIENTS)]
        self.world.clock.ms += TTL_MS
        self.check_everything()
        return self

    def turn(self) -> None:
        """One call of one client, or something that befalls all of them."""
        chance = self.random.random()
        if chance < 0.03:
            self.world.clock.ms += self.random.choice((1, 10, TTL_MS))
        elif chance < 0.033:
            self.restart()
        elif chance < 0.037:
            self.collect()
        else:
            self.act(self.random.randrange(CLIENTS))

    def act(self, number: int) -> None:
        """The next call of a client."""
        client = self.clients[number]
        try:
            if client.txn is None:
                self.begin(client)
            elif client.commit is not None:
                self.next_stage(client)
            else:
                self.within(client, client.txn)
            self.note(f"{number} {client.txn and client.txn.start_ts}")
        except KeyLocked as error:
            self.note(f"{number} {error!r}")
            if client.commit is not None:
                self.clients[number] = Client()
        except (WriteConflict, TransactionGone, SchemaChanged) as error:
            self.note(f"{number} {error!r}")
            self.clients[number] = Client()

    def begin(self, client: Client) -> None:
        """A transaction of one phase or two, in batches of one key or many."""
        batch_keys, one_phase = self.random.choice((1, 2, 256)), self.random.random() < 0.3
        client.txn = self.world.storage.begin(
            Options(TTL_MS, batch_keys=batch_keys, one_phase=one_phase, check=self.check_schema)
        )

    def check_schema(self, start_ts: int, commit_ts: int, keys: tuple[bytes, ...]) -> None:
        """Now and then a table has changed meanwhile."""
        assert start_ts < commit_ts == self.world.oracle.newest
        assert keys
        if self.random.random() < 0.05:
            raise SchemaChanged(f"start_ts {start_ts}")

    def within(self, client: Client, txn: Transaction) -> None:
        """A read, a write, or the start of the end."""
        key = self.random.choice(KEYS)
        match self.random.choice(ACTIONS):
            case "get":
                assert txn.get(key) == self.seen(client).get(key)
            case "scan":
                low, high = sorted(self.random.choices([*KEYS, b""], k=2))
                reverse = self.random.random() < 0.5
                rows = [(k, v) for k, v in self.seen(client).items() if low <= k and (not high or k < high)]
                assert list(txn.scan(low, high, reverse=reverse)) == (rows[::-1] if reverse else rows)
            case "put":
                client.writes[key] = b"%d" % self.random.randrange(1000) + self.random.choice(VALUES)
                txn.put(key, client.writes[key] or b"")
            case "delete":
                client.writes[key] = None
                txn.delete(key)
            case "lock" if key not in client.writes:
                client.locked.add(key)
                txn.lock(key)
            case "commit":
                client.commit = txn.steps()
            case "give up":
                txn.rollback()
                client.__init__()

    def seen(self, client: Client) -> dict[bytes, bytes]:
        """What a transaction has to read."""
        assert client.txn
        rows: dict[bytes, bytes | None] = {**self.model.at(client.txn.start_ts), **client.writes}
        return {key: value for key, value in sorted(rows.items()) if value is not None}

    def next_stage(self, client: Client) -> None:
        """Go on with a commit, or die."""
        assert client.txn
        assert client.commit
        if self.random.random() < 0.05:
            self.counts["died"] += 1
            client.__init__()
            return
        stage = next(client.commit, None)
        self.counts[str(stage)] += 1
        if stage is not None and client.txn.commit_ts is not None and client.txn.commit_ts not in self.decided:
            self.decided.add(client.txn.commit_ts)
            self.committed(client, client.txn)
        if stage in (Stage.DONE, None):
            client.__init__()

    @property
    def commits(self) -> set[int]:
        """Every commit_ts so far."""
        return {commit_ts for versions in self.model.versions.values() for commit_ts, _ in versions}

    def committed(self, client: Client, txn: Transaction) -> None:
        """A commit is decided: it has lost no update."""
        assert txn.commit_ts is not None
        assert txn.start_ts < txn.commit_ts <= self.world.oracle.newest
        for key in (*client.writes, *client.locked):
            assert not self.model.committed_after(key, txn.start_ts), "a lost update"
        self.model.commit(txn.commit_ts, client.writes)

    def restart(self) -> None:
        """The process dies and a new one opens the store, on a clock that was set back."""
        before = self.world.oracle.newest
        self.world.clock.ms -= 1
        self.world = self.world.reopened()
        self.clients = [Client() for _ in range(CLIENTS)]
        self.counts["restart"] += 1
        after = self.world.oracle.next()
        assert after > before
        self.world.clock.ms = physical_ms(after)
        self.trace.append("restart")

    def collect(self) -> None:
        """Remove old versions; transactions that began below the safe point are over."""
        try:
            self.counts["collected"] += collect_garbage(self.world.store, self.safe_point(), self.world.oracle.next())
        except KeyLocked as error:
            self.note(f"gc {error!r}")

    def safe_point(self) -> int:
        """No transaction under way reads below it."""
        return min([self.world.oracle.next(), *(client.txn.start_ts for client in self.clients if client.txn)])

    def check_everything(self) -> None:
        """The store and the model agree at every moment that may still be read, and no lock stays."""
        moments = [ts for ts in sorted(self.commits) if ts - 1 >= self.world.store.safe_point]
        for ts in [self.world.oracle.next(), *moments, *(ts - 1 for ts in moments)]:
            assert dict(self.world.storage.snapshot(ts).scan(b"")) == self.model.at(ts)
        assert not self.world.store.locks()

    def note(self, what: str) -> None:
        """Write to the trace, and count what went wrong by its name."""
        self.trace.append(what)
        if error := re.search(r"(\w+)\(", what):
            self.counts[error[1]] += 1
