"""Breadth first through every state of a cluster: the first broken promise found has a shortest way to it.

    [start] -> states one move away -> two moves away -> ..      each state once, nodes that swap places count as one

Source: Tidegate's own.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.upstream.model_checker.checker.anomaly import Anomaly
from tests.upstream.model_checker.checker.cluster import Cluster, State, canonical, name

__all__ = ["Result", "search"]

STATES_MOST: Final = 2_000_000


class Result(NamedTuple):
    """What a search found: how many states, with how many different versions published; the anomaly if there is one,
    who sees it, the way to it as (who, what), and the data at its end."""

    states: int
    versions: int
    anomaly: Anomaly | None = None
    seen_by: str = ""
    trace: tuple[tuple[str, str], ...] = ()
    data: str = ""


def search(cluster: Cluster, first: State) -> Result:
    """Go through all states that `cluster` can come to from `first`, up to the first broken promise.

    Raises AssertionError beyond two million states: the scope is too large."""
    start = canonical(first)
    before: dict[State, State | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if cluster.anomaly(state) is not None:
            return _explain(cluster, before, first, state)
        for _, _, _, following in cluster.moves(state):
            known = canonical(following)
            if known not in before:
                before[known] = state
                queue.append(known)
        assert len(before) <= STATES_MOST, "too large a scope"
    return Result(len(before), _versions(before))


def _versions(states: Iterable[State]) -> int:
    return len({published for _, published, _, _ in states})


def _explain(cluster: Cluster, before: dict[State, State | None], first: State, last: State) -> Result:
    """The way from `first` to `last` with the nodes keeping their names."""
    way: list[State] = []
    state: State | None = last
    while state is not None:
        way.append(state)
        state = before[state]
    current, trace = first, []
    for target in reversed(way[:-1]):
        who, what, of, current = next(move for move in cluster.moves(current) if canonical(move[3]) == target)
        trace.append((name(who), what.format(of)))
    found = cluster.anomaly(current)
    assert found is not None
    return Result(
        len(before), _versions(before), found[0], found[1], tuple(trace), cluster.world.show(cluster.data[current[3]])
    )
