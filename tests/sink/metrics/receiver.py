"""A collector of one's own: an HTTP server that takes OTLP as JSON, and keeps what it got."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """`requests` that came, and what they say of a metric."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics of the last request by name."""
        [resource] = self.requests[-1]["resourceMetrics"]
        [scope] = resource["scopeMetrics"]
        return {metric["name"]: metric for metric in scope["metrics"]}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take a request."""
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}/v1/metrics"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
