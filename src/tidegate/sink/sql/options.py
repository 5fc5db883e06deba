"""What the sink of a database is asked to do, and how its server is reached: a value that travels to tasks."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tidegate.mysql.client import Door, ServerTls

Atomicity: TypeAlias = Literal["none", "table", "global"]


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """Parameters of the address, times in seconds. Printing it shows no password."""

    feed: str
    host: str
    port: int = 4000
    user: str = "root"
    password: str = field(default="", repr=False)
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    tls: bool = False
    dial_s: float = 120.0
    read_s: float = 120.0
    write_s: float = 120.0
    workers: int = 16
    txn_rows: int = 256
    safe_mode: bool = False
    atomicity: Atomicity = "global"
    multi_statements: bool = True
    batch: bool = True
    txn_mode: str = "optimistic"
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""
    sync_point_ms: tuple[int, int] | None = None
    """Interval and retention of sync points; None: there are none."""

    @property
    def place(self) -> str:
        """The server, for messages."""
        return f"{self.host}:{self.port}"

    def door(self, read_s: float | None) -> Door:
        """Return how the server is reached, with the time that its answers may take."""
        tls = ServerTls(self.ssl_ca, self.ssl_cert, self.ssl_key) if self.tls else None
        return Door(self.host, self.port, self.user, self.password, tls, self.dial_s, read_s, self.write_s)
