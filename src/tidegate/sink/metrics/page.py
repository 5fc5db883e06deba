"""A page of one's own: `/metrics` of a changefeed, for Prometheus, in a thread beside the rounds.

A client holds a thread for CLIENT_S and no longer, whether it sends nothing or trickles; above CLIENTS at a time others
are closed at once.  What is shown is the snapshot of the last
checkpoint, so a scrape never sees half a round.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from tidegate.model.errors import EnvironmentFault
from tidegate.sink.exchange import shut_down_after
from tidegate.sink.metrics.families import LabelledNumbers, NumbersCollector
from tidegate.sink.metrics.shown import ShownNumbers

CLIENT_S: Final = 10.0
CLIENTS: Final = 32
POLL_S: Final = 0.1


class _Server(ThreadingWSGIServer):
    """Threads of CLIENTS at most, each with an end."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._room = threading.BoundedSemaphore(CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is room."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket, client_address: Any) -> None:  # type: ignore[override]
        """Answer, and end the connection when its time is over."""
        try:
            with shut_down_after(CLIENT_S, request):
                super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients come and go."""


class _SixServer(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_S

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class MetricsPage:
    """Answers at an address until it is closed. EnvironmentFault where that is not free."""

    def __init__(self, place: tuple[str, int], snapshot: Callable[[], ShownNumbers | None]) -> None:
        registry = CollectorRegistry(auto_describe=False)

        def snapshots() -> list[LabelledNumbers]:
            found = snapshot()
            return [] if found is None else [LabelledNumbers({"changefeed": found.feed}, found)]

        registry.register(NumbersCollector(snapshots))
        server = _SixServer if ":" in place[0] else _Server
        try:
            self._server = make_server(*place, _only_metrics(make_wsgi_app(registry)), server, _Handler)
        except (OSError, OverflowError) as error:
            why = str(getattr(error, "strerror", None) or error)
            raise EnvironmentFault(f"metrics://{place[0]}:{place[1]}: {why}; another port: sink-uri") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(CLIENT_S)


def _only_metrics(page: Callable[..., Any]) -> Callable[..., Any]:
    """The page under `/metrics`, and a word that it is there elsewhere."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if environ.get("PATH_INFO") == "/metrics":
            return page(environ, start)
        start("404 Not Found", [("content-type", "text/plain")])
        return [b"see /metrics\n"]

    return answer
