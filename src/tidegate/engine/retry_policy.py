"""Retry policy: how long a changefeed retries during an outage, and the distinction of a refusal from an outage.

    error ─ 1 s ─ 2 s ─ 4 s ─ 8 s ─ 16 s ─ 10 s ─ 20 s ─ 40 s ─ 60 s ─ 60 s ─ …            failed
            └── quick: max-retry times ──┘   └── until nothing has moved for stuck-duration ──┘

An outage begins with an error and ends when the feed makes progress: rows land, or the checkpoint advances.  A single
successful step does not end it: a broker that answers and fails again is still in the same outage.

Kafka clients are a case of their own (`ClientErrors`, `awaited`): librdkafka retries a broker that refuses it until
the request times out, and gives the reason only to its error callback.

Source: TiCDC's changefeed states: a retryable error makes the state `warning`, with pauses from 10 s doubling (there
up to 10 minutes; here 60 s, so that a feed follows soon after its broker is back), and `failed` once the checkpoint
has not advanced for changefeed-error-stuck-duration, 30 minutes by default.  librdkafka, "Error handling"
(`error_cb`, `_AUTHENTICATION`, `_SSL`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tidegate.model.errors import Retry, TidegateError

QUICK_S: Final = 1.0
QUICK_MAX_S: Final = 30.0
SLOW_S: Final = 10.0
SLOW_MAX_S: Final = 60.0
DOUBLINGS_MAX: Final = 30
"""The largest exponent of a pause, which has long reached its maximum by then."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailureRun:
    """Errors in a row: the time of the first, on a monotonic clock, and their number."""

    since_s: float
    errors: int = 1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`quick` retries first, then retries until `stuck_s` seconds after the first error; None: no more. With `most_s`
    no try starts later than that after the start of the run; `first_s` is the first pause, a second by default."""

    quick: int = 5
    stuck_s: float | None = 1800.0
    most_s: float | None = None
    first_s: float | None = None

    def met(self, trouble: FailureRun | None, now_s: float) -> FailureRun:
        """Return the run of errors with one more."""
        return FailureRun(now_s) if trouble is None else FailureRun(trouble.since_s, trouble.errors + 1)

    def pause_s(self, trouble: FailureRun, now_s: float, begun_s: float = 0.0) -> float | None:
        """Return the pause before the next try; None to give up. `begun_s`: the start of the run."""
        slow = trouble.errors - self.quick - 1
        if slow < 0:
            pause = min((self.first_s or QUICK_S) * 2.0 ** min(trouble.errors - 1, DOUBLINGS_MAX), QUICK_MAX_S)
        elif self.stuck_s is None or (left_s := trouble.since_s + self.stuck_s - now_s) <= 0:
            return None
        else:
            pause = min(SLOW_S * 2.0 ** min(slow, DOUBLINGS_MAX), SLOW_MAX_S, left_s)
        return None if self.most_s is not None and now_s + pause - begun_s > self.most_s else pause


class Outage:
    """Retryable errors in a row, waited out by `policy`."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._begun_s = time.monotonic()
        self._run: FailureRun | None = None
        self._failed_s = 0.0

    @property
    def errors(self) -> int:
        """The number of errors in a row."""
        return 0 if self._run is None else self._run.errors

    def pause_s(self, error: TidegateError, *, passes: bool | None = None) -> float:
        """Return the pause after an error before the next try. Raises the error when it is not retryable, by its
        `retry` or the caller's `passes`, or when the policy allows no more tries."""
        if not (error.retry is Retry.LATER if passes is None else passes):
            raise error
        self._failed_s = now_s = time.monotonic()
        self._run = self.policy.met(self._run, now_s)
        pause_s = self.policy.pause_s(self._run, now_s, begun_s=self._begun_s)
        if pause_s is None:
            raise error
        return pause_s

    def sleep(self, error: TidegateError) -> None:
        """Sleep until the next try is due. Raises as `pause_s` does."""
        time.sleep(self.pause_s(error))

    def recovered(self, *, after_s: float = 0.0) -> bool:
        """Return True when an outage ends: work has gone on, or nothing has failed for `after_s`."""
        ends = self._run is not None and time.monotonic() - self._failed_s >= after_s
        self._run = None if ends else self._run
        return ends


def retry(work: Callable[[], T], survive: Callable[[TidegateError], None]) -> T:
    """Return the result of `work`, retried whenever `survive` returns; `survive` raises to give up."""
    while True:
        try:
            return work()
        except TidegateError as error:
            survive(error)


LOOK_S: Final = 0.2
ATTEMPTS: Final = 8
"""The number of checks whether another broker answers after all."""
ADDRESS: Final = (
    ". Is it running? Are host and port correct? Check with: tidegate topic inspect kafka://{bootstrap}/TOPIC"
)

LOGIN: Final = "; check sasl-user, sasl-password and sasl-mechanism"
CERTIFICATE: Final = "; check ca, cert, key and the name in the broker's certificate"
_HINTS: Final = {"_AUTHENTICATION": LOGIN, "_SSL": CERTIFICATE}
_TLS: Final = "SSL routines"
"""A part of OpenSSL's messages, one of which comes from a broker that refuses our certificate."""
_IDLE: Final = "_ALL_BROKERS_DOWN"
_FILES: Final = {"ssl.ca.location": "ca", "ssl.certificate.location": "cert", "ssl.key.location": "key"}


class ClientErrors:
    """The last error texts of one client, and whether they are a refusal; `hear` is its error_cb. Texts may be
    empty."""

    def __init__(self) -> None:
        self.last = self.refusal = ""
        self.down = False
        """True once all brokers of the list are unreachable."""

    def hear(self, error: Any) -> None:
        """Record an error that the client library reports through its callback."""
        name, text = error.name(), str(error.str())
        if name == _IDLE:
            self.down = True
            return
        self.last = text
        hint = _HINTS.get(name) or (CERTIFICATE if _TLS in text else "")
        if hint:
            self.refusal = text + hint

    def forget(self) -> None:
        """Forget all errors, as a request was answered."""
        self.last = self.refusal = ""
        self.down = False

    def unreachable(self, bootstrap: str) -> str:
        """Return the message for unreachable brokers."""
        reason = self.last.rpartition(" failed: ")[2].partition(" (after")[0] or "no answer"
        return f"cannot reach broker {bootstrap} ({reason})" + ADDRESS.format(bootstrap=bootstrap)

    def aside(self) -> str:
        """Return the cause, to append to an error that does not state it."""
        text = self.refusal or self.last
        return f": {text}" if text else ""


def awaited(
    future: Any,
    serve: Callable[[], object],
    words: ClientErrors,
    refused: Callable[[str], Exception],
    unreachable: Callable[[], Exception],
) -> Any:
    """Return the answer of a client's request; `serve` lets the client report its errors.

    A client retries a broker that refuses it until the request "times out" half a minute later.  Once there is a
    refusal, or all brokers of the list are reported down, they get a moment to answer after all; then the error is
    raised, without waiting for the end of the request.

    Raises the error of `refused` for a refusal, that of `unreachable` if no broker can be reached, and errors of
    the future."""
    attempts = ATTEMPTS
    while attempts:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            serve()
            attempts -= bool(words.refusal or words.down)
    raise refused(words.refusal) if words.refusal else unreachable()


def file_named(text: str, config: Mapping[str, Any]) -> str:
    """Return a hint that names the file, to append to a client error that does not."""
    hints = [f"; {name} is {config[key]}: is it there, and PEM?" for key, name in _FILES.items() if key in text]
    return "".join(hints)
