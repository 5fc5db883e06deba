"""One server owns at a time, whatever is paused, slow or gone."""

from pathlib import Path

import pytest

from tidegate.server import running as leases
from tidegate.server.documents import SqliteDocuments
from tidegate.server.running import Lease

TTL_S = 10.0


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all leases."""
    clock = Clock()
    monkeypatch.setattr(leases, "steady_s", clock)
    return clock


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Lease, Lease]:
    """Two servers of one store."""
    return (
        Lease(SqliteDocuments(tmp_path), "one", "h1:8300", TTL_S),
        Lease(SqliteDocuments(tmp_path), "two", "h2:8300", TTL_S),
    )


def test_a_lease_is_renewed(clock: Clock, pair: tuple[Lease, Lease]) -> None:
    """As long as the owner renews, the other waits, and knows whom it waits for."""
    one, two = pair
    for _ in range(40):
        assert one.step()
        assert not two.step()
        clock.now_s += TTL_S / 4

    assert two.holder is not None
    assert (two.holder.address, two.epoch) == ("h1:8300", 1)


def test_a_silent_owner_is_followed(clock: Clock, pair: tuple[Lease, Lease]) -> None:
    """After its time a silent owner is followed, by its own clock it has ended before, and its next word is refused."""
    one, two = pair
    one.step()
    two.step()
    clock.now_s += TTL_S * 0.9
    assert not one.owns()
    assert not two.step()
    clock.now_s += TTL_S * 0.3

    assert two.step()
    assert two.epoch == 2
    assert not one.step()
    assert not one.owns()


def test_two_never_own(clock: Clock, pair: tuple[Lease, Lease]) -> None:
    """Whatever steps are missed, there is no moment at which both own."""
    import random

    draw = random.Random(7)
    epochs = set()
    for _ in range(4000):
        clock.now_s += draw.random() * TTL_S / 3
        for lease in pair:
            if draw.random() < 0.5:
                lease.step()
        assert not (pair[0].owns() and pair[1].owns())
        epochs |= {lease.epoch for lease in pair if lease.owns()}
    assert len(epochs) > 10


def test_a_lease_is_given_away(clock: Clock, pair: tuple[Lease, Lease]) -> None:
    """An owner that stops is followed at once."""
    one, two = pair
    one.step()
    one.release()

    assert not one.owns()
    assert two.step()
    assert two.epoch == 2
