"""Commits of the changelog: batches follow each other, one writer at a time."""

import pytest

from tests.source.kit import OPEN, TOPIC, begin, insert, land_batch, open_message, resolved
from tidegate.changelog.changelog import advance, append, claim, commit_batch, newest
from tidegate.changelog.files import Halt, State, TaskReport
from tidegate.codec.options import DecodeOptions
from tidegate.engine.frontier import Reached
from tidegate.model.errors import ConfigError, Fenced
from tidegate.objectstore import deltalog

KNOWN = State(feed="f", epoch=1, batch=4, positions={TOPIC: {0: Reached(10, 50), 1: Reached(5, 40)}}, frontier=40)


def report(partition: int, start: int, position: int, ts: int | None = None, **more: object) -> TaskReport:
    return TaskReport(topic=TOPIC, partition=partition, start=start, position=position, resolved=ts, **more)


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "changelog")


def test_a_batch_moves_positions_and_frontier():
    """Each report moves its partition; the frontier is the least of all."""
    state = advance(KNOWN, [report(0, 10, 20, 90), report(1, 5, 6, 45)])

    assert state.positions == {TOPIC: {0: Reached(20, 90), 1: Reached(6, 45)}}
    assert (state.frontier, state.batch) == (45, 5)


def test_a_batch_must_begin_where_the_last_ended():
    """A hole or an overlap between batches is never committed."""
    for start in (9, 11):
        with pytest.raises(Fenced, match=f"begins at offset {start}, but the changelog is at 10"):
            advance(KNOWN, [report(0, start, 20)])


def test_a_new_partition_joins_without_moving_the_frontier():
    """A partition seen for the first time, even while empty, holds the frontier until it has resolved."""
    joined = advance(KNOWN, [report(2, 0, 0), report(0, 10, 20, 90), report(1, 5, 9, 90)])
    resolved_ = advance(joined, [report(2, 0, 1, 80)])

    assert (joined.frontier, resolved_.frontier) == (40, 80)


LOG = State(feed="f", epoch=1, batch=4, frontier=40)


def stretch(start: int, position: int) -> TaskReport:
    """What a batch brings of a change log."""
    return TaskReport(start=start, position=position)


def test_a_log_moves_the_frontier_alone():
    """A change log has no positions: its batches follow each other by timestamps, the first one begins anywhere."""
    state = advance(LOG, [stretch(40, 55)])

    assert (state.positions, state.frontier, state.batch) == ({}, 55, 5)
    assert advance(State(), [stretch(7, 9)]).frontier == 9
    with pytest.raises(Fenced, match="starts at ts 41 of the change log, but the changelog is at 40"):
        advance(LOG, [stretch(41, 55)])


def test_a_log_is_fenced_by_its_frontier(uri):
    """A batch of a log that was committed already is not committed again, and another landing fences this one."""
    state = claim(uri, "f", None, lambda state: state)
    landed = commit_batch(uri, state, [stretch(0, 9)])
    with pytest.raises(Fenced):
        commit_batch(uri, state, [stretch(0, 9)])

    append(uri, (), rows=0, ddls=0)
    assert commit_batch(uri, landed, [stretch(9, 12)]).frontier == 12


def test_a_topic_does_not_follow_a_log(uri):
    """A changelog that a change log has filled is no place for a topic, whose positions would begin anew."""
    commit_batch(uri, claim(uri, "f", None, lambda state: state), [stretch(0, 9)])

    with pytest.raises(ConfigError, match="was landed from a change log"):
        begin(uri)


def test_halts_stay_until_they_are_passed():
    """A halt is told until its partition has moved on, whatever other partitions do."""
    halt = Halt(TOPIC, 0, 12, "code", "why")
    stands = advance(KNOWN, [report(0, 10, 12, halt=halt)])
    still = advance(stands, [report(1, 5, 9)])
    passed = advance(still, [report(0, 12, 13)])

    assert (stands.halted, still.halted, passed.halted) == ((halt,), (halt,), ())


def test_made_up_timestamps_resolve_everywhere():
    """Under order "offset" nothing is awaited: all partitions stand at the newest ts, the silent ones too."""
    state = advance(KNOWN, [report(0, 10, 20, 90)], order_by_offset=True)

    assert state.positions == {TOPIC: {0: Reached(20, 90), 1: Reached(5, 90)}}
    assert state.frontier == 90


def test_a_landing_that_was_replaced_is_fenced(uri):
    """Once another landing has claimed the changelog, the old one commits nothing more."""
    old = begin(uri)
    new = begin(uri)

    with pytest.raises(Fenced, match="epoch 1 was superseded by epoch 2"):
        land_batch(uri, old, {0: [open_message(0, insert(5, 1))]})
    assert land_batch(uri, new, {0: [open_message(0, insert(5, 1))]}).rows == 1


def test_the_same_batch_twice_is_fenced(uri):
    """A batch that was committed already is not committed again: its positions have moved."""
    state = begin(uri)
    land_batch(uri, state, {0: [open_message(0, insert(5, 1))]})

    with pytest.raises(Fenced):
        land_batch(uri, state, {0: [open_message(0, insert(5, 1))]})


def test_an_append_does_not_fence(uri):
    """A replayed dead letter adds a commit; a landing that finds its version taken by one goes on behind it."""
    state = land_batch(uri, begin(uri), {0: [open_message(0, insert(5, 1), resolved(5))]})
    append(uri, (), rows=0, ddls=0)

    after = land_batch(uri, state, {0: [open_message(1, insert(6, 2), resolved(6))]})

    assert after.frontier == 6
    assert newest(uri) == (4, after)


def test_a_race_for_a_version_is_settled(uri, monkeypatch):
    """Losing the race for a version means reading again: an append passes, another landing fences."""
    state = begin(uri)
    taken = iter([True, False])
    commit = deltalog.commit

    def racing(where, version, *rest, **named):
        if next(taken):
            raise deltalog.CommitConflict("taken")
        commit(where, version, *rest, **named)

    monkeypatch.setattr(deltalog, "commit", racing)

    assert land_batch(uri, state, {0: [open_message(0, insert(5, 1))]}).rows == 1


def test_claims_show_no_storage_address(uri):
    """The changelog remembers how messages are read, but not the claim-check storage, whose address may hold keys."""
    options = DecodeOptions(protocol="open-protocol", compression="lz4", claim_check_storage_uri="s3://k:secret@b")
    claim(uri, "f", options, lambda state: state)
    _, state = newest(uri)

    assert state.decode == DecodeOptions(protocol="open-protocol", compression="lz4")


def test_a_claim_goes_on_where_the_last_stood(uri):
    """A new landing keeps positions, frontier and batch number, and takes a higher epoch."""
    landed = land_batch(uri, begin(uri), {0: [open_message(0, insert(5, 1), resolved(5))]})
    claimed = begin(uri)

    assert (claimed.positions, claimed.frontier, claimed.batch) == (landed.positions, 5, 1)
    assert claimed.epoch == landed.epoch + 1
    assert claimed.decode == OPEN
