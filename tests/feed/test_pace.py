"""Where a round ends."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.feed.pace import round_end

STRETCHES = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50)))


def test_a_backlog_is_cut_where_the_limit_is_reached():
    """A round takes whole stretches up to the limit."""
    assert round_end([(10, 40), (20, 90), (30, 110)], 99, 200) == 20


def test_a_small_backlog_is_taken_whole():
    """Below the limit a round goes to the frontier."""
    assert round_end([(10, 40), (20, 90)], 99, 200) == 99


@given(stretches=STRETCHES, upto=st.integers(100, 200), limit=st.integers(1, 200))
def test_a_round_always_moves(stretches, upto, limit):
    """The end is never behind the first stretch, so rounds cannot stand still."""
    end = round_end(stretches, upto, limit)

    assert end == upto or end >= min(ts for ts, _ in stretches)
