"""The page of metrics holds few clients, each for a while."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tidegate.sink import metrics_page as module
from tidegate.sink.metrics_page import MetricsPage


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsPage]:
    """A page of four clients, half a second each."""
    monkeypatch.setattr(module, "CLIENTS", 4)
    monkeypatch.setattr(module, "CLIENT_S", 0.5)
    monkeypatch.setattr(module._Handler, "timeout", 0.5)
    found = MetricsPage(("127.0.0.1", 0), lambda: None)
    yield found
    found.close()


def scraped(page: MetricsPage) -> bytes:
    """What a scrape gets; nothing where there is no room."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        try:
            return client.makefile("rb").read()
        except ConnectionResetError:
            return b""


def test_silent_clients_have_an_end(page: MetricsPage) -> None:
    """Where all places are taken by clients that say nothing others are closed at once; soon there is room."""
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=10))
        time.sleep(0.2)
        assert scraped(page) == b""
        deadline = time.monotonic() + 10
        while not scraped(page).startswith(b"HTTP/1.0 200"):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_trickle_has_an_end(page: MetricsPage) -> None:
    """A client that sends a byte now and then is let go when its time is over."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as client:
        began_s = time.monotonic()
        with suppress(OSError):  # a reset or a broken pipe
            while time.monotonic() - began_s < 10:
                client.sendall(b"G")
                time.sleep(0.05)
    assert time.monotonic() - began_s < 8


@pytest.mark.slow
def test_numbers_without_a_page_need_no_prometheus_client() -> None:
    """The sink is imported, and sends OTLP, where prometheus-client is not installed."""
    code = "import sys; sys.modules['prometheus_client'] = None; import tidegate.sink.metrics, tidegate.config.registry"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
