"""Lives of captures by seeds: the soak has 500 of them, SEEDS=a-b chooses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.source.load.feeds import chosen_seeds
from tests.upstream.tikv import capture_life
from tests.upstream.tikv.capture_life import Life, lived, noted
from tidegate.model.kv_change import LogType
from tidegate.tikv import registrations
from tidegate.tikv.registrations import Registration, Registrations, Stream
from tidegate.tikv.walk import START_TS, TYPE, Batch, read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(5))
def test_a_life(seed: int, tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice, and PD holds what is not written, whatever happens."""
    assert sum(lived(seed, tmp_path).values()) >= 30


@pytest.mark.soak
def test_lives(tmp_path: Path) -> None:
    """Five hundred lives; the ledger has what each of them did."""
    failed = [error for seed in chosen_seeds(500) if (error := noted(seed, tmp_path / str(seed)))]
    assert not failed


def dropped_by_start_ts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a transaction that began at or below what is resolved are left out."""
    lives: list[Life] = []
    begun = Life.begun

    def begin(self: Life) -> Any:
        lives[:] = [self]
        return begun(self)

    def dropping(messages: Sequence[bytes]) -> Batch:
        batch = read(messages)
        is_row = batch.rows[:, TYPE] != int(LogType.INITIALIZED)
        batch.rows[is_row & (batch.rows[:, START_TS] <= lives[0].served.high()), TYPE] = 0
        return batch

    monkeypatch.setattr(Life, "begun", begin)
    monkeypatch.setattr(registrations, "read", dropping)


def resolved_by_a_stale_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolved ts counts for a region, whichever registration it is of."""

    def resolve(self: Registrations, stream: Stream, _: int, regions: Sequence[int], ts: int, now: float) -> None:
        for each in stream.registrations.values():
            if each.region.region.id in regions and ts > each.part.ts:
                each.span.ranges.advance(each.part, ts)
                self._advanced.add(each.span)

    monkeypatch.setattr(Registrations, "_resolve", resolve)


def gap_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range of a region that split is read from now on, not from where it was."""
    again = Registrations._again

    def unread(self: Registrations, part: Registration, *cure: Any, **how: Any) -> None:
        part.span.ranges.advance(part.part, capture_life.newest_ts())
        again(self, part, *cure, **how)

    monkeypatch.setattr(Registrations, "_again", unread)


@pytest.mark.soak
@pytest.mark.parametrize("plant", [dropped_by_start_ts, resolved_by_a_stale_generation, gap_of_a_split])
def test_a_planted_bug_is_found(plant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the first lives differ from the upstream."""
    plant(monkeypatch)
    for seed in range(40):
        try:
            lived(seed, tmp_path / str(seed))
        except AssertionError:
            return
    pytest.fail("not found in 40 lives")
