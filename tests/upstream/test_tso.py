"""Timestamps only grow."""

from hypothesis import given
from hypothesis import strategies as st

from tests.upstream.worlds import Clock, MemoryBound
from tidegate.model.tso import compose, physical_ms
from tidegate_upstream.tidb.engine import MemoryEngine, MetaBound
from tidegate_upstream.tidb.transaction import WINDOW_MS, Oracle

MOVES = st.lists(
    st.one_of(st.integers(1, 5), st.just(1 << 18), st.integers(-5_000, 5_000).map(str), st.just("restart")), max_size=30
)


def test_physical_and_logical() -> None:
    """The physical part is the clock in ms, the logical one counts within it."""
    oracle = Oracle(Clock(1_577_934_245_678), MemoryBound())

    found = oracle.batch(6)

    assert found[0] == compose(1_577_934_245_678)
    assert found[5] == 413645994899013637
    assert oracle.newest == found[5]


@given(MOVES)
def test_only_grows(moves: list[int | str]) -> None:
    """Batches, clocks that jump either way and restarts: each timestamp is above all before it."""
    clock, bound = Clock(1_000_000), MemoryBound()
    oracle, last = Oracle(clock, bound), 0
    for move in moves:
        if move == "restart":
            oracle = Oracle(clock, bound)
        elif isinstance(move, str):
            clock.ms += int(move)
        else:
            found = oracle.batch(move)
            assert len(found) == move
            assert found[0] > last
            assert found == range(found[0], found[0] + move)
            assert physical_ms(found[-1]) <= bound.bound_ms
            last = found[-1]


def test_bound_is_written_seldom() -> None:
    """A thousand timestamps within one window cost one durable write."""

    class Counted(MemoryBound):
        saves = 0

        def save(self, bound_ms: int) -> None:
            Counted.saves += 1
            super().save(bound_ms)

    clock = Clock()
    oracle = Oracle(clock, Counted())
    for _ in range(1000):
        clock.ms += WINDOW_MS // 1001
        oracle.next()

    assert Counted.saves == 1


def test_bound_in_the_store() -> None:
    """A clock that was set back over a restart repeats nothing."""
    engine, clock = MemoryEngine(), Clock()
    before = Oracle(clock, MetaBound(engine)).next()
    clock.ms -= 86_400_000

    assert Oracle(clock, MetaBound(engine)).next() > before
