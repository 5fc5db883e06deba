"""Refusals that a client library tells aside: what counts as one, and how long an answer is waited for."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError

from tidegate.engine.retry_policy import ATTEMPTS, ClientErrors, awaited, file_named
from tidegate.model.errors import LoginRefused, SinkError

ALERT = "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42"
REFUSALS = [
    (KafkaError._AUTHENTICATION, "Invalid username", "Invalid username; check sasl-user, sasl-password"),
    (KafkaError._SSL, "verify failed", "verify failed; check ca, cert, key"),
    (KafkaError._TRANSPORT, ALERT, f"{ALERT}; check ca, cert, key"),
]


@pytest.mark.parametrize(("code", "text", "refusal"), REFUSALS)
def test_what_counts_as_a_refusal(code: int, text: str, refusal: str) -> None:
    """Account and certificate, with what to look at; an outage afterwards does not hide it."""
    words = ClientErrors()
    words.hear(KafkaError(code, text))
    words.hear(KafkaError(KafkaError._TRANSPORT, "Connection refused"))

    assert words.refusal.startswith(refusal)
    assert words.last == "Connection refused"
    assert words.aside() == f": {words.refusal}"


def test_an_outage_is_no_refusal() -> None:
    """It is said behind an error; that all brokers are down says nothing, and what is forgotten is not said."""
    words = ClientErrors()
    words.hear(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    words.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert (words.refusal, words.aside()) == ("", ": Connection refused")

    words.forget()
    assert words.aside() == ""


class Waiting:
    """A request: nothing comes at first; then words, an answer, or both. Time does not pass."""

    def __init__(self, *, refused_at: int | None, answered_at: int | None, down_at: int | None = None) -> None:
        self.words, self.looks = ClientErrors(), 0
        self.refused_at, self.answered_at, self.down_at = refused_at, answered_at, down_at

    def result(self, _timeout: float) -> str:
        """As a future's."""
        if self.looks == self.answered_at:
            return "answer"
        raise TimeoutError

    def serve(self) -> None:
        """As a client's poll."""
        self.looks += 1
        if self.looks == self.refused_at:
            self.words.hear(KafkaError(KafkaError._AUTHENTICATION, "no"))
        if self.looks == self.down_at:
            self.words.hear(KafkaError(KafkaError._TRANSPORT, "h:9092/1: Connect to ipv4#1.2.3.4:9092 failed: refused"))
            self.words.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    def unreachable(self) -> SinkError:
        """What is said of a wrong address."""
        return SinkError(self.words.unreachable("h:9092"))

    def ask(self) -> object:
        """The answer, or LoginRefused."""
        return awaited(self, self.serve, self.words, LoginRefused, self.unreachable)


def test_an_answer_wins_over_a_refusal() -> None:
    """Another broker of the list may let the client in; and a slow one is waited for as long as the request lasts."""
    assert Waiting(refused_at=3, answered_at=1 + ATTEMPTS).ask() == "answer"
    assert Waiting(refused_at=None, answered_at=500).ask() == "answer"


def test_a_wrong_address_is_not_waited_out() -> None:
    """No broker can be connected to: it is raised a moment after it was heard, with what to check."""
    waiting = Waiting(refused_at=None, answered_at=None, down_at=2)
    with pytest.raises(SinkError, match=r"cannot reach broker h:9092 \(refused\). Is it running\? .* topic inspect"):
        waiting.ask()

    assert waiting.looks == 1 + ATTEMPTS
    assert Waiting(refused_at=None, answered_at=ATTEMPTS, down_at=2).ask() == "answer"


def test_a_refusal_is_not_waited_out() -> None:
    """Nobody answers: the refusal is raised a moment after it was heard."""
    waiting = Waiting(refused_at=3, answered_at=None)
    with pytest.raises(LoginRefused, match="no; check sasl-user"):
        waiting.ask()

    assert waiting.looks == 2 + ATTEMPTS


def test_what_a_request_raises() -> None:
    """Its own error is passed on."""
    future: Future[None] = Future()
    future.set_exception(LookupError("topic"))
    with pytest.raises(LookupError):
        awaited(future, int, ClientErrors(), LoginRefused, SinkError)


def test_a_file_by_its_parameter() -> None:
    """The client names its own key; we say which parameter that is, and the path."""
    config = {"ssl.ca.location": "/ca.pem", "ssl.key.location": "/k.pem"}

    assert file_named("ssl.key.location failed", config) == "; key is /k.pem: is it there, and PEM?"
    assert file_named("No provider for SASL", config) == ""
