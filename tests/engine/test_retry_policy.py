"""An outage is waited out with growing pauses for as long as the user said, and not longer."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.load import load
from tidegate.engine.retry_policy import FailureRun, RetryPolicy
from tidegate.model.errors import ConfigError


@pytest.fixture(autouse=True)
def _tried_again_soon() -> None:
    """Pauses are those of users here."""


def pauses(patience: RetryPolicy, *, error_s: float = 0.0, most: int = 500) -> list[float]:
    """All pauses of an outage whose every try takes `error_s`, until patience is over."""
    now_s, trouble, found = 100.0, None, []
    while len(found) < most:
        now_s += error_s
        trouble = patience.met(trouble, now_s)
        pause_s = patience.pause_s(trouble, now_s)
        if pause_s is None:
            break
        found.append(pause_s)
        now_s += pause_s
    return found


def test_quick_tries_then_slow_ones():
    """The first tries come soon, the later ones up to a minute apart, for half an hour in all."""
    found = pauses(RetryPolicy())

    assert found[:9] == [1, 2, 4, 8, 16, 10, 20, 40, 60]
    assert set(found[9:-1]) == {60}
    assert sum(found) == 1800


def test_only_quick_tries():
    """With a stuck duration of nothing, or none at all, the quick tries are all there are; zero of them is none."""
    assert pauses(RetryPolicy(3, 0)) == pauses(RetryPolicy(3, None)) == [1, 2, 4]
    assert pauses(RetryPolicy(0, 0)) == []
    assert pauses(RetryPolicy(0, 15)) == [10, 5]


@given(quick=st.integers(0, 40), stuck_s=st.floats(0, 4000), error_s=st.floats(0, 30))
def test_patience_ends(quick, stuck_s, error_s):
    """Pauses are never negative, and no outage is waited out for ever."""
    found = pauses(RetryPolicy(quick, stuck_s), error_s=error_s, most=5000)

    assert len(found) < 5000
    assert all(pause_s >= 0 for pause_s in found)
    assert all(pause_s <= 60 for pause_s in found)


def test_trouble_keeps_its_begin():
    """Errors in a row are one trouble."""
    patience = RetryPolicy()

    assert patience.met(patience.met(None, 5.0), 9.0) == FailureRun(5.0, 2)


@pytest.mark.parametrize(("text", "stuck_ms"), [("", 1_800_000), ("'1m30s'", 90_000), ("'0'", 0)])
def test_the_changefeed_file_says_how_long(tmp_path: Path, text: str, stuck_ms: int) -> None:
    """TiCDC's key for it acts, with TiCDC's default."""
    file = tmp_path / "feed.toml"
    file.write_text(f"changefeed-error-stuck-duration = {text}" if text else "")

    found = load(file, source_uri="kafka://h/shop?protocol=open-protocol", sink_uri="delta:///srv/lake")

    assert found.stuck_ms == stuck_ms
    assert found.warnings == ()


def test_a_wrong_duration_is_told(tmp_path: Path) -> None:
    """A time that is none is an error with the key's name."""
    file = tmp_path / "feed.toml"
    file.write_text("changefeed-error-stuck-duration = 'long'")

    with pytest.raises(ConfigError, match='changefeed-error-stuck-duration: expected a time such as "10s"'):
        load(file, source_uri="kafka://h/shop?protocol=open-protocol", sink_uri="delta:///srv/lake")
