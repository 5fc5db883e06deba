"""A partition that brings no resolved ts is named, because every table waits for it."""

from types import SimpleNamespace

import pytest

from tidegate.engine import loop as meter
from tidegate.engine.progress import PartitionProgress
from tidegate.model.tso import compose

TS = compose(1_767_323_045_000)


class Listener:
    """A meter whose clock the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(meter, "time", SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: 0.0))
        self.meter = meter.Meter(lambda _: None, silent_after_s=60)

    def at(self, now_s: float, *resolved: int | None, offset: int = 10) -> tuple[str, ...]:
        """The warnings after the partitions were heard at `now_s`; each ends at offset 10."""
        self.now_s = now_s
        self.meter.listen([PartitionProgress("shop", n, offset, 10, ts) for n, ts in enumerate(resolved)])
        return self.meter.now.warnings


def test_the_silent_partition_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that was set, topic, partition and the last resolved ts are told, once for each silence."""
    heard = Listener(monkeypatch)
    assert heard.at(0, TS, TS) == ()
    assert heard.at(59, TS + 1, TS) == ()
    (warning,) = heard.at(60, TS + 2, TS)
    assert warning == "topic shop partition 1: no resolved ts since 2026-01-02 03:04:05; all tables wait for it"
    assert heard.at(90, TS + 3, TS) == (warning,)


def test_one_that_never_spoke(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without any resolved ts counts from when it was first seen."""
    heard = Listener(monkeypatch)
    heard.at(0, TS, None)
    assert heard.at(61, TS + 1, None) == ("topic shop partition 1: no resolved ts at all; all tables wait for it",)


def test_a_backlog_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition with messages left to read is behind, not silent."""
    heard = Listener(monkeypatch)
    heard.at(0, TS, TS)
    assert heard.at(100, TS + 1, TS, offset=9) == ()


def test_when_all_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing comes at all it is not a partition's fault, and one line says so."""
    heard = Listener(monkeypatch)
    heard.at(0, TS, TS)
    (warning,) = heard.at(60, TS, TS)
    assert "Is TiCDC running" in warning
