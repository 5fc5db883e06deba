"""The frontier: the least of all, never back."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.frontier import Reached, forward, frontier, slowest

TS = st.integers(0, (1 << 63) - 1)
POSITIONS = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.integers(0, 3), st.builds(Reached, st.integers(0, 100), st.none() | TS), min_size=1),
)


def test_least_of_all_partitions_of_all_topics():
    """The slowest partition of any topic decides, and is named."""
    positions = {"a": {0: Reached(9, 100), 1: Reached(9, 104)}, "b": {0: Reached(4, 98)}}

    assert frontier(positions) == 98
    assert str(slowest(positions)) == "topic b partition 0: resolved ts 98 (read up to offset 4)"


def test_none_until_every_partition_has_resolved():
    """One silent partition keeps everything unresolved, and it is the one to blame."""
    positions = {"a": {0: Reached(9, 100), 1: Reached(3)}}

    assert frontier(positions) is None
    assert str(slowest(positions)) == "topic a partition 1: no resolved ts yet (read up to offset 3)"


def test_a_partition_added_later_holds_the_frontier_where_it_stood():
    """A new partition that has not resolved neither lowers the frontier nor lets it pass."""
    before = frontier({"a": {0: Reached(9, 100)}})

    held = frontier({"a": {0: Reached(12, 150), 1: Reached(0)}}, before)
    passed = frontier({"a": {0: Reached(12, 150), 1: Reached(1, 140)}}, held)

    assert (before, held, passed) == (100, 100, 140)


def test_no_partitions_no_frontier():
    """Without partitions nothing is known and nobody is slow."""
    assert frontier({}) is None
    assert slowest({}) is None


def test_a_lower_resolved_ts_is_ignored():
    """TiCDC repeats old watermarks after a restart; a partition does not go back for them."""
    assert forward(Reached(5, 100), 9, 60) == Reached(9, 100)
    assert forward(Reached(5, 100), 9, None) == Reached(9, 100)
    assert forward(Reached(5), 9, 7) == Reached(9, 7)


@given(positions=POSITIONS, floor=st.none() | TS)
def test_bounds(positions, floor):
    """The frontier is never below its floor and, above it, never above any partition."""
    found = frontier(positions, floor)
    every = [one.resolved for some in positions.values() for one in some.values()]

    assert floor is None or (found is not None and found >= floor)
    if found is not None and found != floor:
        assert all(ts is not None and found <= ts for ts in every)
