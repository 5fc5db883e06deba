"""Lives of a cluster at the level of SQL, seed by seed: see life.py for what happens in one and what has to hold.

TIDEGATE_SEED=17 pytest -m "" tests/upstream/simulate/test_life.py       one seed again
make test  2 seeds a sixth of the way, 2 to the end        make soak  50 and 2,000 in chunks of 100
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.counts import some
from tests.upstream.simulate.life import STEPS, Life
from tests.upstream.worlds import seeds

pytestmark = pytest.mark.slow

CHUNK = 100
FIRED = (
    *("time", "kill", "revive", "freeze", "cancel", "gc", "ranges", "committed", "selects", "events", "rows"),
    *(
        f"crash ddl/{place}"
        for place in ("version-taken", "before-step", "after-step", "before-batch", "before-history")
    ),
    *("error 8027", "error 8028", "error 9007", "error 1062", "died PREWRITTEN", "died CHECKED", "died DONE"),
    *(
        f"job synced {action}"
        for action in (3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 19, 20, 23, 25, 32, 33, 42, 61, 64, 71, 72)
    ),
    *(f"job rollback_done {action}" for action in (5, 7, 12, 42, 61)),
    *("job cancelled 7", "job cancelled 12", "job error 8214", "job error 1062", "job error 1138"),
)
"""What has to have happened in 50 seeds: faults of every kind, and every kind of job done or taken back."""


def lives(numbers: range, directory: Path | None = None, steps: int = STEPS) -> Counter[str]:
    """What happened in some lives; the seed of one that fails goes before the error. Every fifth is on SQLite."""
    fired: Counter[str] = Counter()
    for seed in numbers:
        life = Life(seed, None if directory is None or seed % 5 else directory / str(seed))
        try:
            life.run(steps)
        except Exception as error:
            story = "\n".join(life.trace[-12:])
            raise AssertionError(f"seed {seed}, step {life.step}: {error}\n{story}") from error
        fired += life.fired
    return fired


def test_some_lives() -> None:
    """Two seeds, a sixth of the way."""
    assert lives(seeds(2), steps=STEPS // 6)["committed"]


@pytest.mark.slow
def test_the_same_seed_is_the_same_life(tmp_path: Path) -> None:
    """Nothing but the seed decides, the place where the bytes lie neither."""
    once, again, stored, other = (
        Life(seed, home).run(STEPS // 2) for seed, home in ((7, None), (7, None), (7, tmp_path / "7"), (8, None))
    )

    assert once.digest == again.digest == stored.digest
    assert once.digest != other.digest


@pytest.mark.slow
def test_lives_on_both_stores(tmp_path: Path) -> None:
    """All hold, on both stores."""
    assert lives(seeds(some(2, 6)), tmp_path)["committed"]


@pytest.mark.soak
def test_fifty_lives_see_every_fault(tmp_path: Path) -> None:
    """All hold, and together they have met every kind of fault and of job."""
    fired = lives(seeds(50), tmp_path)

    missing = [what for what in FIRED if not fired[what]]
    assert not missing or len(seeds(50)) == 1, missing


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 2_000, CHUNK))
def test_two_thousand_lives(first: int, tmp_path: Path) -> None:
    """The full count; a chosen seed is run by each chunk's turn only once."""
    chosen = seeds(2_000)
    numbers = range(max(first, chosen.start), min(first + CHUNK, chosen.stop))
    assert sum(lives(numbers, tmp_path).values()) or not numbers, f"seeds {numbers} did nothing"
