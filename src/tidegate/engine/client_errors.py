"""What brokers say of a client that they do not let in, and how long an answer is waited for then.

    request ──► future ──► the answer
       │
       └─ refused: the client library tries again and again until the request is over, half a minute or so, which then
          has "timed out"; why, it tells aside:

          error_cb ──► ClientErrors.hear     last     "Connect to ipv4#10.0.0.7:9093 failed: Connection refused"
                                            refusal  "Authentication failed: Invalid username or password; check …"

Once there is a refusal, or all brokers of the list are told to be down, `awaited` gives them a moment to answer after
all, and raises it: nobody waits for the end of the request to hear of a wrong address.

Source: librdkafka, "Error handling" (`error_cb`, `_AUTHENTICATION`, `_SSL`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

LOOK_S: Final = 0.2
LOOKS: Final = 8
"""How often is looked whether somebody else answers after all."""
ADDRESS: Final = (
    ". Is it running? Are host and port right? Check with: tidegate topic inspect kafka://{bootstrap}/TOPIC"
)

LOGIN: Final = "; check sasl-user, sasl-password and sasl-mechanism"
CERTIFICATE: Final = "; check ca, cert, key and the name in the broker's certificate"
_HINTS: Final = {"_AUTHENTICATION": LOGIN, "_SSL": CERTIFICATE}
_TLS: Final = "SSL routines"
"""What OpenSSL calls itself: a broker that does not like our certificate closes the connection with such a word."""
_IDLE: Final = "_ALL_BROKERS_DOWN"
_FILES: Final = {"ssl.ca.location": "ca", "ssl.certificate.location": "cert", "ssl.key.location": "key"}


class ClientErrors:
    """The last words about one client, and whether they were a refusal; `hear` is its error_cb. Texts may be empty."""

    def __init__(self) -> None:
        self.last = self.refusal = ""
        self.down = False
        """True once no broker of the list can be connected to."""

    def hear(self, error: Any) -> None:
        """An error as the client library tells it aside."""
        name, text = error.name(), str(error.str())
        if name == _IDLE:
            self.down = True
            return
        self.last = text
        hint = _HINTS.get(name) or (CERTIFICATE if _TLS in text else "")
        if hint:
            self.refusal = text + hint

    def forget(self) -> None:
        """A request was answered."""
        self.last = self.refusal = ""
        self.down = False

    def unreachable(self, bootstrap: str) -> str:
        """Return what is to be said when no broker can be connected to."""
        why = self.last.rpartition(" failed: ")[2].partition(" (after")[0] or "no answer"
        return f"cannot reach broker {bootstrap} ({why})" + ADDRESS.format(bootstrap=bootstrap)

    def aside(self) -> str:
        """Return what is to be said behind an error that does not tell its cause."""
        text = self.refusal or self.last
        return f": {text}" if text else ""


def awaited(
    future: Any,
    serve: Callable[[], object],
    words: ClientErrors,
    refused: Callable[[str], Exception],
    unreachable: Callable[[], Exception],
) -> Any:
    """Return the answer. `serve` lets the client tell what it has to.

    Raises what `refused` makes of a refusal, what `unreachable` gives when no broker can be connected to, and what the
    future raises."""
    looks = LOOKS
    while looks:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            serve()
            looks -= bool(words.refusal or words.down)
    raise refused(words.refusal) if words.refusal else unreachable()


def file_named(text: str, config: Mapping[str, Any]) -> str:
    """Return what is to be said behind a client's own error about one of its files, which does not tell which one."""
    found = [f"; {name} is {config[key]}: is it there, and PEM?" for key, name in _FILES.items() if key in text]
    return "".join(found)
