"""Seeded workloads with real processes: see test_workloads.py for what is real in them."""

from pathlib import Path

import pytest

from tests.workloads.real import Real
from tidegate_upstream.broker import start_broker, stop_broker

REAL = 12


@pytest.mark.usefixtures("spark")
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(REAL))
def test_real_seeds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, SIGKILL to a worker and twice to the driver, SIGKILL to the broker: the same promises hold, and the lake
    that `tidegate run` makes of the topics is the database at five moments."""
    broker = start_broker(tmp_path / "broker")
    real = Real(seed, broker, tmp_path)
    try:
        statuses = real.feed(monkeypatch)
        problems = [*real.complaints(), *real.differences()]
    finally:
        stop_broker(real.broker)

    assert statuses[-1] == 0, (tmp_path / "life-last" / "stderr").read_text()[-2000:]
    assert -9 in statuses
    assert not problems, f"seed {seed}: {real.setting}: {problems[:3]}"
