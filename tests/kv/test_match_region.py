"""A region of TiKV that commits, rolls back, flushes and sends heartbeats while a matcher registers at it.

    commands   0 ........ P ............ S ................... end
                          └ observer     └ snapshot
    queue      live rows of P to S, then the scan of S and INITIALIZED mixed with the live rows after S

Each row that the matcher emits must be the version that the region holds, and each version above the checkpoint must
come.  Heartbeats are those of older TiKV: a PREWRITE without value, with an old value.
"""

from dataclasses import dataclass, field
from random import Random

from tidegate.kv.match import Matcher
from tidegate.model.kv_change import KvChange, KvOp, LogType

KEYS = (b"a", b"b", b"c")
COMMANDS = 40
SEEDS = 3000


@dataclass
class Region:
    """Locks and versions, as the rows that tell of them."""

    random: Random
    ts: int = 0
    locks: dict[bytes, KvChange] = field(default_factory=dict)
    versions: list[KvChange] = field(default_factory=list)

    def next_ts(self) -> int:
        """A timestamp above all others."""
        self.ts += 1
        return self.ts

    def command(self) -> list[KvChange]:
        """Change a key; return the live rows."""
        key = self.random.choice(KEYS)
        lock = self.locks.get(key)
        return self.begin(key) if lock is None else self.go_on(lock)

    def begin(self, key: bytes) -> list[KvChange]:
        """Lock a free key, commit it in one phase, or roll back what never came."""
        start_ts, old = self.next_ts(), next((one.value for one in reversed(self.versions) if one.key == key), None)
        match self.random.randrange(5):
            case 0:
                return [KvChange(LogType.ROLLBACK, key, start_ts)]
            case 1:
                row = KvChange(LogType.COMMITTED, key, start_ts, self.next_ts(), *self.write(), old)
                self.versions.append(row)
                return [row]
            case choice:
                return self.lock(key, start_ts, old, 1 if choice == 2 else 0)

    def go_on(self, lock: KvChange) -> list[KvChange]:
        """Roll a lock back, keep it alive, flush its key again, or commit it."""
        at = (lock.key, lock.start_ts)
        match self.random.randrange(5):
            case 0:
                del self.locks[lock.key]
                return [KvChange(LogType.ROLLBACK, *at)]
            case 1:
                return [KvChange(LogType.PREWRITE, *at, 0, lock.op, None, lock.old_value, 0, lock.generation)]
            case 2 if lock.generation:
                return self.lock(*at, lock.old_value, lock.generation + 1)
            case _:
                del self.locks[lock.key]
                commit_ts, short = self.next_ts(), self.random.choice((None, lock.value))
                self.versions.append(KvChange(LogType.COMMITTED, *at, commit_ts, lock.op, lock.value, lock.old_value))
                return [KvChange(LogType.COMMIT, *at, commit_ts, lock.op, short)]

    def lock(self, key: bytes, start_ts: int, old: bytes | None, generation: int) -> list[KvChange]:
        """Write a lock with a new operation; one with a generation belongs to a pipelined transaction."""
        row = KvChange(LogType.PREWRITE, key, start_ts, 0, *self.write(), old, 0, generation)
        self.locks[key] = row
        return [row]

    def write(self) -> tuple[KvOp, bytes | None]:
        """An operation and its value, which no other has."""
        return self.random.choice(((KvOp.PUT, b"%d" % self.random.randrange(10**9)), (KvOp.DELETE, None)))

    def scan(self, checkpoint_ts: int) -> list[KvChange]:
        """By key: the lock, then the versions above the checkpoint from new to old; behind the last INITIALIZED."""
        rows = []
        for key in KEYS:
            rows += [self.locks[key]] if key in self.locks else []
            rows += [one for one in reversed(self.versions) if one.key == key and one.commit_ts > checkpoint_ts]
        return [*rows, KvChange(LogType.INITIALIZED, b"", 0)]


def mixed(random: Random, one: list[KvChange], other: list[KvChange]) -> list[KvChange]:
    """Two queues as one, each in its order."""
    left, right, found = list(one), list(other), []
    while left and right:
        found.append(random.choice((left, right)).pop(0))
    return found + left + right


def registered(random: Random, region: Region) -> tuple[int, list[KvChange]]:
    """A checkpoint, and what a registration in the middle of the region's life receives."""
    observer, snapshot = sorted(random.choices(range(COMMANDS), k=2))
    for _ in range(observer):
        region.command()
    checkpoint_ts = random.randint(0, region.ts)
    before = [row for _ in range(observer, snapshot) for row in region.command()]
    scanned = region.scan(checkpoint_ts)
    after = [row for _ in range(snapshot, COMMANDS) for row in region.command()]
    return checkpoint_ts, [*before, *mixed(random, scanned, after)]


def run(seed: int) -> None:
    """Let a region live; register at it in the middle; compare rows and versions."""
    random = Random(seed)
    region = Region(random)
    checkpoint_ts, rows = registered(random, region)
    matcher = Matcher(checkpoint_ts)
    emitted = [row for change in rows for row in matcher.apply(change)]

    assert set(emitted) == {one for one in region.versions if one.commit_ts > checkpoint_ts}, seed
    assert matcher.waiting >= len(region.locks), seed


def test_region() -> None:
    """Wherever observer and snapshot fall, a matcher makes the committed rows, all of them and no others."""
    for seed in range(SEEDS):
        run(seed)
