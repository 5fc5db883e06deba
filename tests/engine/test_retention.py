"""The rules of what may be forgotten, for any history."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.retention import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Limits,
    RetainedSnapshot,
    changelog_bound,
    forgettable,
    needed,
    purgeable,
    versions_kept,
)
from tidegate.model.tso import compose

DEFAULTS = Limits()
NOW = 1_800_000_000_000
AGES = st.lists(st.integers(0, 10 * DAY_MS), min_size=1, max_size=60).map(lambda ages: sorted(ages, reverse=True))


def moments(ages: list[int]) -> list[RetainedSnapshot]:
    return [RetainedSnapshot(number, NOW - age, {"a": number}) for number, age in enumerate(ages)]


def stay(ages: list[int], now_ms: int = NOW, limits: Limits = DEFAULTS) -> set[int]:
    return set(range(len(ages))) - set(forgettable(moments(ages), now_ms, limits))


@given(ages=AGES, retention_ms=st.integers(0, 10 * DAY_MS))
def test_what_stays(ages, retention_ms):
    """The newest stays, all young ones stay, and nothing older than the retention does."""
    kept = stay(ages, limits=Limits(snapshot_ms=retention_ms))

    newest = len(ages) - 1
    assert newest in kept
    assert all(number in kept for number, age in enumerate(ages) if age < 10 * MINUTE_MS and age <= retention_ms)
    assert all(ages[number] <= retention_ms for number in kept - {newest})


@given(ages=AGES)
def test_no_gap_is_wider_than_promised(ages):
    """Beside every snapshot that was forgotten within the retention stands one of its minute, or of its hour."""
    kept = stay(ages)

    for number, age in enumerate(ages):
        if age > 7 * DAY_MS or number in kept:
            continue
        reach = HOUR_MS if age >= DAY_MS else MINUTE_MS
        assert any(ages[other] <= age <= ages[other] + reach for other in kept)


@given(ages=AGES, later_ms=st.integers(0, 2 * DAY_MS))
def test_forgetting_twice_is_forgetting_once(ages, later_ms):
    """What stays at a later time is the same whether or not there was a pass before."""
    before = [one for one in moments(ages) if one.number in stay(ages)]
    at_once = stay(ages, NOW + later_ms)

    in_two = {one.number for one in before} - set(forgettable(before, NOW + later_ms, Limits()))
    assert in_two == at_once


@given(
    lives=st.lists(st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(1, 10))), max_size=40),
    kept=st.sets(st.integers(0, 20), max_size=5),
    newest=st.integers(0, 20),
)
def test_no_kept_version_loses_a_file(lives, kept, newest):
    """A file is needed exactly when a kept version, or one from the newest published on, holds it."""
    for added, length in lives:
        removed = None if length is None else added + length
        holds = {version for version in range(60) if added <= version and (removed is None or version < removed)}

        assert needed(added, removed, sorted(kept), newest) == bool(holds & (kept | set(range(newest, 60))))
        assert needed(added, removed, sorted(kept), None) == bool(holds & kept)


def test_versions_kept():
    """Each table keeps every version that a snapshot names."""
    assert versions_kept([RetainedSnapshot(1, 0, {"a": 1, "b": 4}), RetainedSnapshot(2, 0, {"a": 2, "b": 4})]) == {
        "a": {1, 2},
        "b": {4},
    }


def test_purgeable():
    """A dropped table waits for recover-retention while it can be recovered, and for snapshots that show it always."""
    limits = Limits(recover_ms=100)
    since_ms = {"young": 950, "old": 900, "lost": 990, "shown": 0}

    assert purgeable(since_ms, {"young", "old", "shown"}, {"shown"}, 1000, limits) == ["old", "lost"]


def test_changelog_bound():
    """Never above the checkpoint, and so far behind the frontier that those who look back find what they want."""
    checkpoint, frontier = compose(10 * HOUR_MS, 5), compose(10 * HOUR_MS + 1, 7)

    assert changelog_bound(checkpoint, frontier, Limits(changelog_ms=0)) == checkpoint
    assert changelog_bound(checkpoint, frontier, Limits(changelog_ms=HOUR_MS)) < compose(9 * HOUR_MS + 2)
    assert changelog_bound(compose(HOUR_MS), frontier, Limits(changelog_ms=HOUR_MS)) == compose(HOUR_MS)
    assert changelog_bound(0, None, Limits()) == 0
