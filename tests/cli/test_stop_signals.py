"""Signals that come at the worst moment: commands that wait for one end all the same."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from click.testing import CliRunner

from tidegate.cli.main import main
from tidegate.engine.stop_signals import SLICE_S, StopEvent, stop_on_signals
from tidegate_upstream import serve as upstream_serve
from tidegate_upstream.background import READY, UpstreamOptions
from tidegate_upstream.broker import Broker
from tidegate_upstream.cli import broker as broker_cmd

SOON_S = 0.3
"""Time enough for the main thread to sit down."""
pytestmark = [pytest.mark.slow, pytest.mark.limit(60)]


@contextmanager
def signalled_elsewhere(ready: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """SIGTERM once it is `ready`, noted by a thread that is not the main one.

    So it interrupts no wait of the main thread: what becomes of a signal that comes right before the wait begins."""

    def strike() -> None:
        until_s = time.monotonic() + 30
        while not ready() and time.monotonic() < until_s:
            time.sleep(0.01)
        time.sleep(SOON_S)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_signal_that_interrupts_nothing_is_seen() -> None:
    """A wait without a limit ends soon after a signal that came before it began."""
    with stop_on_signals() as stop, signalled_elsewhere():
        began_s = time.monotonic()
        assert stop.wait()

    assert time.monotonic() - began_s < SOON_S + SLICE_S + 2


def test_a_signal_in_the_middle_of_a_wait() -> None:
    """A handler that sets the event at any step of its thread's own wait finds no lock that is held."""
    struck = []

    def strike(frame: FrameType, _event: str, _arg: object) -> None:
        struck.append(frame.f_code.co_name)
        signal.raise_signal(signal.SIGTERM)

    tracing = sys.gettrace()
    with stop_on_signals() as stop:
        sys.settrace(strike)
        try:
            told = stop.wait(5)
        finally:
            sys.settrace(tracing)

    assert told
    assert {"wait", "wait_until"} <= set(struck)


def test_an_event_of_a_wait() -> None:
    """Waits tell whether it was set, and end in time when it was not; it is set and cleared as any other event."""
    stop, began_s = StopEvent(), time.monotonic()
    assert (stop.wait(0.05), stop.wait(0), stop.wait(-1), stop.is_set()) == (False, False, False, False)
    assert 0.05 <= time.monotonic() - began_s < 5
    stop.set()
    assert (stop.wait(), stop.wait(0), stop.is_set()) == (True, True, True)
    stop.clear()

    assert not stop.is_set()


def test_signals_without_an_interrupt() -> None:
    """A command that ends in good order whatever comes takes a second Ctrl-C as the first."""
    with stop_on_signals(interrupts=False) as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

        assert stop.is_set()


def test_the_process_of_an_upstream(tmp_path: Path) -> None:
    """The process behind `upstream start` ends in good order."""
    ready = tmp_path / READY
    with signalled_elsewhere(ready.exists):
        upstream_serve.serve(tmp_path, UpstreamOptions())

    assert not ready.exists()


def test_an_upstream_in_the_foreground(monkeypatch: pytest.MonkeyPatch) -> None:
    """`upstream start --foreground` ends with status 0."""
    opened: list[object] = []
    real = upstream_serve.open_upstream

    def noted(home: Path, options: UpstreamOptions) -> object:
        opened.append(home)
        return real(home, options)

    monkeypatch.setattr(upstream_serve, "open_upstream", noted)
    with signalled_elsewhere(lambda: bool(opened)):
        done = CliRunner().invoke(main, ["upstream", "start", "--foreground", "--port", "0", "--json"])

    assert done.exit_code == 0, done.output
    assert list(json.loads(done.stdout)["ports"]) == ["n1"]


def test_a_broker_in_the_foreground(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`broker start --foreground` stops its broker and ends with status 0."""
    one, calls = Broker("127.0.0.1:1", 1, tmp_path, temporary=False), list[str]()

    def start(*_words: object) -> Broker:
        calls.append("start")
        return one

    monkeypatch.setattr(broker_cmd, "ensure_jars", lambda *_words: None)
    monkeypatch.setattr(broker_cmd, "start_broker", start)
    monkeypatch.setattr(broker_cmd, "stop_broker", lambda _one: calls.append("stop"))
    monkeypatch.setattr(broker_cmd, "status", lambda _dir: (one,))
    with signalled_elsewhere(lambda: bool(calls)):
        done = CliRunner().invoke(main, ["broker", "start", "--foreground"])

    assert done.exit_code == 0, done.output
    assert calls == ["start", "stop"]
