"""What a webhook sink is asked to do, and whom it calls: a value that travels to tasks."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Parameters of the address, times in seconds. Printing it shows neither secret nor token."""

    feed: str
    url: str
    batch_events: int = 100
    batch_bytes: int = 1 << 20
    concurrency: int = 8
    timeout_s: float = 30.0
    tries: int = 5
    resolved: bool = False
    dead_letter: Literal["halt", "keep"] = "halt"
    dead_letters: str = ""
    """Where those are kept: a directory, or a place in an object store."""
    ssl_ca: str = ""
    secret: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """The server that is called, for messages: path and parameters of a webhook may be its secret."""
        return "/".join(self.url.split("/", 3)[:3])
