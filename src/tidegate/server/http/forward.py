"""Requests to a server that does not own the changefeeds go on to the one that does.

    client ──► server b ── TiCDC-ForwardFromCapture: b's id ──► server a, the owner ──► answer, as it came
                           TiCDC-ForwardTimes: 1

Credentials travel along; with `mtls` the forwarding server shows its own certificate.  A request that was forwarded is
not forwarded again: two servers that each take the other for the owner answer with an error.

Source: TiCDC's OpenAPI v2, middleware of the owner (headers, ErrRequestForwardErr).
"""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from tidegate.model.name import all_digits
from tidegate.server.config import ServerConfig
from tidegate.server.http.faults import ForwardFailed
from tidegate.sink.exchange import exchange

FROM: Final = "TiCDC-ForwardFromCapture"
TIMES: Final = "TiCDC-ForwardTimes"
TIMES_MAX: Final = 1
ANSWER_S: Final = 60.0
ANSWER_BYTES: Final = 64 * 1024 * 1024
_SENT: Final = ("authorization", "accept", "content-type", "user-agent", "x-client-version")
_RETURNED: Final = ("content-type", "www-authenticate", "cache-control")


class Forwarder:
    """Asks the owner in a client's place."""

    def __init__(self, config: ServerConfig, own_id: str) -> None:
        self._config, self._id = config, own_id

    def ask(self, address: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Return the answer of the server at `address` (HOST:PORT). ForwardFailed where there is none."""
        times = headers.get(TIMES.lower(), "0")
        if not all_digits(times) or int(times) >= TIMES_MAX:
            raise ForwardFailed(f"the request was forwarded {times[:20]} times; who owns changes, ask again")
        sent = {name: headers[name] for name in _SENT if name in headers}
        sent |= {FROM: self._id, TIMES: str(int(times) + 1)}
        connection = self._connect(address)
        try:
            answer = exchange(
                connection, method, target, body or None, sent, within_s=ANSWER_S, most_bytes=ANSWER_BYTES
            )
        except (OSError, http.client.HTTPException) as error:
            raise ForwardFailed(f"the owner at {address} does not answer: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        returned = {name: value for name in _RETURNED if (value := answer.headers.get(name))}
        return Response(answer.body, answer.status, returned)

    def _connect(self, address: str) -> http.client.HTTPConnection:
        security = self._config.security
        if not security.cert_path:
            return http.client.HTTPConnection(address, timeout=ANSWER_S)
        context = ssl.create_default_context(cafile=security.ca_path or None)
        if security.mtls:
            context.load_cert_chain(security.cert_path, security.key_path)
        return http.client.HTTPSConnection(address, timeout=ANSWER_S, context=context)
