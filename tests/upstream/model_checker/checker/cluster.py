"""A small cluster: what its nodes and its owner can do next, and whether its data keeps what it promises.

    state   ((node, ..), published version, batches done, number of the database)
    node    (version, version that its open transaction began under, number of what it does, key)

    a node   runs a transaction under its own version     or begins one before it loads the next, and commits it later
    a node   loads the published version                  or, with leases, falls out until it does
    owner    publishes the next version                   when every node has the published one, and its work is done
    owner    cancels, while the step can be taken back    the same, into the way back
    owner    does one batch of the step's work            when every node has the published version

Databases and texts are numbered as they come up, so that a state is a few small numbers.  A transaction does nothing
before it commits, so one that is over before its node loads another version is as good as one that begins at its end;
and one that cannot commit any more, for what its guard says or since its row was written, is as good as over.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.upstream.model_checker.checker.anomaly import Anomaly, Database
from tests.upstream.model_checker.checker.rows import Rows
from tests.upstream.model_checker.checker.rules import Guard, Rules
from tests.upstream.model_checker.checker.spaces import Spaces
from tests.upstream.model_checker.checker.track import Track
from tidegate_upstream.f1 import Work

__all__ = ["Cluster", "Move", "State", "World", "canonical"]

World = Rows | Spaces
Node = tuple[int, int, int, int]
State = tuple[tuple[Node, ...], int, int, int]
Move = tuple[int, str, str, State]
"""Who (a node's number or OWNER), what with a place for the next, of what, and the state after it."""

OWNER: Final = -1
FAILED: Final = -1
OUT: Final = -1
IDLE: Final = (-1, 0, 0)


class Cluster:
    """The moves of nodes and owner in `world`, whose versions are those of `way`, as careful as `rules` say."""

    def __init__(self, world: World, way: Track, rules: Rules) -> None:
        self.world, self.way, self.rules = world, way, rules
        self.data: list[Database] = []
        self.numbers: dict[Database, int] = {}
        self.texts: list[str] = []
        self.batches = [world.batches(at) for at in range(len(way.steps))]
        self.writes = cache(self._writes)
        self.finds = cache(lambda at, db, doomed: world.anomaly(at, self.data[db], doomed))
        self.misreads = cache(lambda at, db: world.misread(at, self.data[db]))

    def start(self) -> State:
        """All nodes at the version before the operation, and no data."""
        return ((0, *IDLE),) * self.rules.nodes, 0, 0, self._number(self.world.empty())

    def mixed(self) -> State:
        """One node already at version 1, the others before it, and no data."""
        nodes = ((0, *IDLE),) * (self.rules.nodes - 1)
        return (*nodes, (1, *IDLE)), 1, 0, self._number(self.world.empty())

    def _number(self, database: Database) -> int:
        if database not in self.numbers:
            self.numbers[database] = len(self.data)
            self.data.append(database)
        return self.numbers[database]

    def _writes(self, at: int, db: int) -> dict[int, tuple[int, int]]:
        """What a node at version `at` can do: number of its text -> key and database after it."""
        found = {}
        for write in self.world.writes(at, self.data[db]):
            if write.text not in self.texts:
                self.texts.append(write.text)
            found[self.texts.index(write.text)] = (write.key, self._number(write.after))
        return found

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next."""
        for number in range(self.rules.nodes):
            yield from self._node(state, number)
        yield from self._owner(state)

    def _node(self, state: State, number: int) -> Iterator[Move]:
        nodes, published, done, db = state
        version, begun, running, key = nodes[number]
        if version == OUT:
            pass
        elif begun >= 0:
            yield from self._commit(state, number)
        else:
            for text, (touched, after) in self.writes(version, db).items():
                yield number, "{}", self.texts[text], (self._cleared(nodes, (touched,)), published, done, after)
        if begun < 0 and version not in (OUT, published) and self.rules.guard is not Guard.INSTANT:
            for text, (touched, _) in self.writes(version, db).items():
                opened = _with(nodes, number, (version, version, text, touched))
                yield number, "begins: {}", self.texts[text], (opened, published, done, db)
        if version != published:
            kept = IDLE if self.rules.guard is Guard.COMMIT_CHECK else (begun, running, key)
            loaded = _with(nodes, number, (published, *kept))
            yield number, "loads {}", self.way.labels[published], (loaded, published, done, db)
            if self.rules.leases and version != OUT:
                yield number, "loses its lease", "", (_with(nodes, number, (OUT, *IDLE)), published, done, db)

    def _commit(self, state: State, number: int) -> Iterator[Move]:
        nodes, published, done, db = state
        version, begun, running, _ = nodes[number]
        over = _with(nodes, number, (version, *IDLE))
        same = self.writes(begun, db).get(running)
        text = self.texts[running]
        if same is None:
            yield number, "fails to commit: {}", text, (over, published, done, db)
        else:
            said = f"commits under {self.way.labels[begun]}: {{}}"
            yield number, said, text, (self._cleared(over, (same[0],)), published, done, same[1])

    def _cleared(self, nodes: tuple[Node, ...], keys: tuple[int, ...]) -> tuple[Node, ...]:
        """The nodes without the open transactions that will meet a write conflict on one of `keys`."""
        if self.rules.guard is Guard.INSTANT or not self.rules.conflicts:
            return nodes
        if all(begun < 0 for _, begun, _, _ in nodes):
            return nodes
        return tuple((node[0], *IDLE) if node[1] >= 0 and node[3] in keys else node for node in nodes)

    def _owner(self, state: State) -> Iterator[Move]:
        nodes, published, done, db = state
        ready = self._synced(nodes, published)
        todo = self.batches[published]
        if 0 <= done < todo and (ready or not self.rules.work_waits):
            batch = self.world.batch(published, done, self.data[db])
            if batch.after is None:
                yield OWNER, "{}: refused", batch.text, (nodes, published, FAILED, db)
            else:
                after = self._number(batch.after)
                yield OWNER, "{}", batch.text, (self._cleared(nodes, batch.keys), published, done + 1, after)
        if not ready and self.rules.waits:
            return
        for following in self.way.after[published] if done == todo else ():
            yield OWNER, "publishes {}", self.way.labels[following], (nodes, following, 0, db)
        back = self.way.back[published]
        if back is not None:
            yield OWNER, "rolls back, publishes {}", self.way.labels[back], (nodes, back, 0, db)

    def _synced(self, nodes: tuple[Node, ...], published: int) -> bool:
        """Whether all nodes that serve have loaded the published version, and count as having done so."""
        locks = self.rules.guard is Guard.METADATA_LOCK
        for version, begun, _, _ in nodes:
            if version not in (OUT, published) or (locks and begun not in (-1, published)):
                return False
        return True

    def anomaly(self, state: State) -> tuple[Anomaly, str] | None:
        """The first promise broken in `state`, and who sees it."""
        nodes, published, done, db = state
        doomed = self.way.doomed[published]
        step = self.way.steps[published]
        if step.work is Work.DELETE_RANGE and done == self.batches[published]:
            doomed -= set(step.on)
        for number, (version, *_) in enumerate(nodes):
            found = None if version == OUT else self.finds(version, db, doomed)
            if found is not None:
                return found, f"{name(number)} at {self.way.labels[version]}"
        if self.rules.reader:
            version = self.way.decodes[published]
            found = self.misreads(version, db)
            if found is not None:
                return found, f"the reader of the change log, by {self.way.labels[version]}"
        return None


def name(who: int) -> str:
    """`node A`, or `owner`."""
    return "owner" if who == OWNER else f"node {'ABC'[who]}"


def _with(nodes: tuple[Node, ...], number: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[:number], node, *nodes[number + 1 :])


def canonical(state: State) -> State:
    """The one state that stands for all that differ only in which node is which."""
    nodes, published, done, db = state
    return tuple(sorted(nodes)), published, done, db
