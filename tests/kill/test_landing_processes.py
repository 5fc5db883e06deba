"""A real feed on a real broker, of which somebody gets SIGKILL while it lands, folds logs and tidies up."""

from pathlib import Path

import pytest

from tests.kill.lives import AROUND_IT, each_once
from tests.kill.seeds import chance

pytestmark = pytest.mark.slow

MOMENT = 4
"""Enough of the recording for logs to be folded and snapshots to be forgotten."""


def test_every_place_around_a_round(bootstrap: str, tmp_path: Path) -> None:
    """Somebody dies at places of the start, of landing, of logs and of upkeep, in the soak at each."""
    each_once(bootstrap, tmp_path, chance("every place around a round"), AROUND_IT, MOMENT)
