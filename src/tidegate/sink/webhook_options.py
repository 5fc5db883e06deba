"""Options of the webhook sink: a value that is sent to tasks."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tidegate.model.option import TIME_MAX_MS, Local, Option


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """An address to call, and how; times in seconds. Printing it shows neither secret nor token."""

    feed: str
    url: str
    batch_events: Annotated[
        int, Option("batch-size", "maximum events per call; 1: single events, not lists", low=1)
    ] = 100
    batch_bytes: Annotated[int, Option("batch-bytes", "maximum bytes per call, except for a single event", low=1)] = (
        1 << 20
    )
    concurrency: Annotated[int, Option("concurrency", "maximum parallel calls", low=1, high=1024)] = 8
    timeout_s: Annotated[float, Option("timeout", "timeout of a response", low=1, high=TIME_MAX_MS)] = 30.0
    retries: Annotated[int, Option("max-retry", "quick retries of a call; then the changefeed retries later")] = 4
    resolved: Annotated[bool, Option("resolved", "also post resolved timestamps")] = False
    dead_letter: Annotated[
        Literal["halt", "keep"],
        Option(
            "dead-letter",
            "an event that is rejected (400, 422, ..): `halt`, or `keep` it in the state directory and continue",
        ),
    ] = "halt"
    dead_letters: str = ""
    """The directory or object store of dead letters."""
    secret_file: Annotated[
        str, Option("secret-file", "file with the secret that calls are signed with", local=Local.TOKEN)
    ] = ""
    token_file: Annotated[str, Option("token-file", "file with the bearer token of calls", local=Local.TOKEN)] = ""
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate, if the system does not have it", local=Local.FILE)
    ] = ""
    secret: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The server of the webhook, for messages: its path and parameters may be secret."""
        return "/".join(self.url.split("/", 3)[:3])

    @property
    def identity(self) -> str:
        return self.url.partition("?")[0].partition("://")[2]

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset()

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        if self.url.startswith("http://") and (self.secret_file or self.token_file):
            return ("sink-uri: http:// sends rows and token in clear; use https://",)
        return ()
