"""What the Redis sink is asked to do, and how its servers are reached: a value that travels to tasks."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Mode: TypeAlias = Literal["hash", "json", "invalidate", "stream"]
TEMPLATE: Final = "{schema}:{table}:{pk}"
CHANNEL: Final = "{schema}:{table}"
STREAM: Final = "changes:{schema}:{table}"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Parameters of the address, times in seconds. `hosts` are one server, or some of a cluster. Printing it shows no
    password."""

    feed: str
    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    timeout_s: float = 10.0
    mode: Mode = "hash"
    template: str = TEMPLATE
    invalidated: str = ""
    """What cached keys are made of (invalidate.py)."""
    stream: str = STREAM
    """What the names of streams are made of."""
    stream_entries: int = 0
    """About how many entries a stream keeps; 0: all."""
    channel: str = ""
    """What the names of channels are made of, on which changed keys are announced; empty: none is."""
    lookups: bool = False
    """Whether rows are found by their unique indexes, too (lookups.py)."""
    tombstone_s: float = 86_400.0
    """How long the version of a row that is gone is kept."""
    batch_rows: int = 256
    """Most rows of one call of a script."""
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""

    @property
    def place(self) -> str:
        """The servers, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)
