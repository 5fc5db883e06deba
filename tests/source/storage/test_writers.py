"""Writers that crash anywhere, and a reader that looks at any moment, dies and goes on: every row is there once."""

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.counts import crossed, some
from tests.failpoint import FILES_FAILPOINTS, armed
from tests.source.storage.kit import Made, lines_of
from tests.source.storage.writers import TABLES, Crashed, Writer, history
from tidegate.engine.ports import LocalTasks
from tidegate.testing.contract.sinks import Died

FAILPOINTS = [
    *FILES_FAILPOINTS,
    "landing/before-file",
    "landing/after-file",
    "landing/before-commit",
    "landing/after-commit",
]
KINDS = {
    "classic": {"new": False},
    "classic without some indexes": {"new": False, "failing": 0.3},
    "classic, over its files": {"new": False, "failing": 0.5},
    "classic without any index": {"new": False, "failing": 1.0},
    "newarch": {"new": True},
    "dispatchers": {"new": True, "dispatchers": ("1a2b", "3c-4d")},
    "no index": {"new": True, "indexes": False},
}


def looked(made: Made, dice: random.Random) -> None:
    """One life of a reader, which may die at a place."""

    def die() -> None:
        if dice.random() < 0.3:
            raise Died

    source = made.source()
    with suppress(Died), armed({dice.choice(FAILPOINTS): die}):
        source.start(LocalTasks(), None)
        for _ in range(dice.randint(1, 3)):
            source.landing.land()  # type: ignore[attr-defined]
    if (failure := source.failure()) is not None:
        raise failure


def written(made: Made, kind: str, seed: int) -> tuple[Writer, int]:
    """A place that a writer has written to its end, looked at on the way, and how often the writer crashed."""
    dice, look = random.Random(f"{kind} {seed}"), random.Random(seed)
    for table in TABLES:
        made.created(table)
    made.checkpoint(1)
    writer = Writer(made, history(dice, 25), dice, **KINDS[kind])  # type: ignore[arg-type]
    if kind in {"classic, over its files", "classic without any index"}:
        writer.read = made.landed
    writer.pause = lambda: looked(made, look) if look.random() < 0.03 else None
    crashes = 0
    for chance in (*[0.08] * 6, 0.0):
        try:
            writer.live(chance)
        except Crashed:
            crashes += 1
        looked(made, look)
    return writer, crashes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "batch_bytes"), crossed(dict(zip(KINDS, KINDS, strict=True)), {"whole": 1 << 30, "pieces": 300})
)
def test_writers_that_crash(tmp_path: Path, kind: str, batch_bytes: int) -> None:
    """Once each, and none that was not written; read in pieces, repeats of two pieces may be left to the sink."""
    crashes = 0
    for seed in range(some(2, 60)):
        made = Made(tmp_path / str(seed), batch_bytes=batch_bytes)
        writer, crashed = written(made, kind, seed)
        crashes += crashed
        source = made.landed()
        assert source.frontier() == writer.last

        happened = Counter(
            f"{ts} {'D' if line[0] == 'D' else 'I'} {table} {line.split(',')[2]}"
            for table, rows in writer.rows.items()
            for ts, line in rows
        )
        arrived = Counter(" ".join(line.split(" ")[:4]) for line in lines_of(source) if " CREATE " not in line)
        assert arrived.keys() == happened.keys(), seed
        assert batch_bytes < 1_000 or arrived == happened, seed
    assert crashes > 1
