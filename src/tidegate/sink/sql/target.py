"""What the server at the other end is: its kind, its version and the variables that decide how statements are written.

    SELECT VERSION()    5.7.25-TiDB-v8.5.1                  TIDB     (8, 5, 1)
                        11.8.3-MariaDB-0+deb13u1            MARIADB  (11, 8, 3)
                        8.0.36, 8.0.36-28 (forks)           MYSQL    (8, 0, 36)
                        5.5.5-10.3.2-MariaDB                MARIADB  (10, 3, 2)    what old clients are told

A variable that the server does not have is absent from `variables`, which is how optional ones are found out.

Source: TiCDC's MySQL sink probes the server in the same way (TiDB's VERSION() begins with the MySQL release whose
protocol it speaks); MariaDB knowledge base, "Server version prefix".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from tidegate.model.errors import SinkRefused


class ServerKind(Enum):
    """Whose SQL a server speaks."""

    MYSQL = "MySQL"
    MARIADB = "MariaDB"
    TIDB = "TiDB"


VARIABLES: Final = (
    "allow_auto_random_explicit_insert",
    "lower_case_table_names",
    "max_allowed_packet",
    "read_only",
    "sql_mode",
    "tidb_cdc_write_source",
    "tidb_enable_external_ts_read",
    "tidb_external_ts",
    "tidb_placement_mode",
    "tidb_txn_mode",
    "transaction_isolation",
    "tx_isolation",
)
"""The variables that are asked for."""

_TIDB: Final = re.compile(r"tidb-v?(\d+(?:\.\d+)*)", re.IGNORECASE)
_MARIADB: Final = re.compile(r"(?:5\.5\.5-)?(\d+(?:\.\d+)*)-mariadb", re.IGNORECASE)
_NUMBERS: Final = re.compile(r"(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class TargetServer:
    """A server: whose SQL it speaks, since which version, and the values of VARIABLES that it has."""

    kind: ServerKind
    version: tuple[int, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.value} {'.'.join(map(str, self.version))}"

    def has(self, variable: str) -> bool:
        """Return whether the server knows a variable of VARIABLES."""
        return variable in self.variables

    @property
    def packet_bytes(self) -> int:
        """The longest statement that the server takes."""
        return int(self.variables.get("max_allowed_packet") or 1 << 24)


Target: TypeAlias = TargetServer
"""What the parts of this sink call it."""


def target_of(version: str, variables: Mapping[str, str]) -> TargetServer:
    """Return the target whose VERSION() and variables these are. SinkRefused for text without a version."""
    kinds = ((ServerKind.TIDB, _TIDB), (ServerKind.MARIADB, _MARIADB), (ServerKind.MYSQL, _NUMBERS))
    for kind, pattern in kinds:
        found = pattern.search(version)
        if found is not None:
            return TargetServer(kind, tuple(map(int, found[1].split("."))), dict(variables))
    raise SinkRefused(f"the server calls its version {version!r}; it is no MySQL, MariaDB or TiDB")
