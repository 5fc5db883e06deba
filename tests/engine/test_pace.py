"""Where a round ends, and how long merging rests."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.ports import BUSY_ROWS, REST_MAX_S, ROUND, RoundLimit, RowRange, rest_s, round_end, tasks_at_once

MOST = RoundLimit(rows=200, size_bytes=1000)
SPANS = st.tuples(st.integers(1, 100), st.integers(0, 30))
STRETCHES = st.lists(
    st.builds(
        lambda span, rows, size: RowRange(span[0], span[0] + span[1], rows, size),
        SPANS,
        st.integers(0, 250),
        st.integers(0, 1200),
    )
)


def test_a_backlog_is_cut_before_what_is_too_much():
    """A round ends before the first stretch with which its rows, or its bytes, would be too many."""
    assert round_end([RowRange(1, 10, 40), RowRange(11, 20, 90), RowRange(21, 30, 110)], 99, MOST) == 20
    assert round_end([RowRange(1, 10, 1, 600), RowRange(15, 20, 1, 600)], 99, MOST) == 14


def test_a_small_backlog_is_taken_whole():
    """Within the limits a round goes to the frontier."""
    assert round_end([RowRange(1, 10, 40, 500), RowRange(11, 20, 90, 500)], 99, MOST) == 99
    assert round_end([], 99) == 99


def test_large_rows_make_shorter_rounds():
    """A million rows of 100 bytes are one round; of 10 KiB some forty, none above 256 MiB."""
    small, large = (
        [RowRange(at * 10 + 1, at * 10 + 10, 1000, 1000 * row_bytes) for at in range(1000)]
        for row_bytes in (100, 10240)
    )

    assert rounds(small, 10_000) == [10_000]
    ends = rounds(large, 10_000)
    assert 38 <= len(ends) <= 45
    for after, end in zip([0, *ends], ends, strict=False):
        taken = [one.size_bytes for one in large if one.last_ts > after and one.first_ts <= end]
        assert sum(taken) <= ROUND.size_bytes


def rounds(stretches: list[RowRange], upto: int) -> list[int]:
    """The ends of all rounds from 0 to `upto`."""
    ends: list[int] = []
    while not ends or ends[-1] < upto:
        after = ends[-1] if ends else 0
        ends.append(round_end([one for one in stretches if one.last_ts > after], upto))
    return ends


def test_a_transaction_above_the_limit_is_taken_whole():
    """One stretch that is too large alone is a round of its own."""
    assert round_end([RowRange(5, 5, 10_000), RowRange(6, 9, 1)], 99, MOST) == 5
    assert round_end([RowRange(5, 5, 10_000)], 99, MOST) == 99


@given(stretches=STRETCHES, upto=st.integers(131, 200), after=st.integers(0, 60))
def test_a_round_always_moves(stretches, upto, after):
    """Whatever waits, a round finishes at least one stretch, so rounds cannot stand still."""
    waiting = [one for one in stretches if one.last_ts > after]

    end = round_end(waiting, upto, MOST)

    assert after < end <= upto
    assert end == upto or any(one.last_ts <= end for one in waiting)


@given(stretches=STRETCHES, upto=st.integers(131, 200))
def test_a_round_stays_within_its_limits(stretches, upto):
    """More than one stretch is only taken within the limits, unless all of those overlap."""
    end = round_end(stretches, upto, MOST)

    taken = [one for one in stretches if one.first_ts <= end]
    within = sum(one.rows for one in taken) <= MOST.rows and sum(one.size_bytes for one in taken) <= MOST.size_bytes
    assert within or len(taken) == 1 or end == min(one.last_ts for one in stretches)


def test_merging_rests_longer_after_longer_rounds():
    """A quiet feed merges a quarter of its time, at most some seconds apart and never faster than it was asked to."""
    assert rest_s(1.0, 10, 0.0) == 3.0
    assert rest_s(9.0, 10, 0.0) == REST_MAX_S
    assert rest_s(0.1, 10, 1.0) == 0.9


def test_a_backlog_is_not_rested_on():
    """Where much waits, rounds follow each other."""
    assert rest_s(5.0, BUSY_ROWS, 1.0) == 0.0


def test_landing_finds_a_free_task():
    """While little waits merging leaves half of Spark's tasks to the landing; a backlog gets what was asked for."""
    assert tasks_at_once(10, 2) == tasks_at_once(10, 1) == 1
    assert tasks_at_once(10, 16) == 8
    assert tasks_at_once(10, 16, limit=3) == 3
    assert tasks_at_once(BUSY_ROWS, 2) is None
    assert tasks_at_once(BUSY_ROWS, 2, limit=3) == 3
