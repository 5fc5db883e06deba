"""What the server at the other end is: its kind, its version and the variables that decide how statements are written.

A session asks a server only for what its kind has: KINDS says it, a row a kind.

    SELECT VERSION()    5.7.25-TiDB-v8.5.1                  TIDB     (8, 5, 1)
                        11.8.3-MariaDB-0+deb13u1            MARIADB  (11, 8, 3)
                        8.0.36, 8.0.36-28 (forks)           MYSQL    (8, 0, 36)
                        5.5.5-10.3.2-MariaDB                MARIADB  (10, 3, 2)    what old clients are told

A variable that the server does not have is absent from `variables`, which is how optional ones are found out.

Source: TiCDC's MySQL sink probes the server in the same way (TiDB's VERSION() begins with the MySQL release whose
protocol it speaks); MariaDB knowledge base, "Server version prefix".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.errors import SinkRefused


class ServerKind(Enum):
    """Whose SQL a server speaks."""

    MYSQL = "MySQL"
    MARIADB = "MariaDB"
    TIDB = "TiDB"


class Setting(NamedTuple):
    """A variable of sessions, its value as SQL, and the version of the server since which it holds."""

    name: str
    value: str
    since: tuple[int, ...] = ()


ROW_MODES: Final = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
"""Strict, so that nothing is cut off; what the upstream holds, such as a day 0, is taken."""
DDL_MODES: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""Not strict: a change of type that the upstream has made is made here too."""
OWN_ZONE: Final = "+00:00"
"""The zone of every session, but for a DDL whose own is known."""
_EVERY: Final = (Setting("time_zone", f"'{OWN_ZONE}'"), Setting("foreign_key_checks", "0"))
ROWS: Final = (Setting("sql_mode", f"'{ROW_MODES}'"), *_EVERY)
"""Of sessions of rows, on servers of all kinds: they are set before the kind is known."""
_DDLS: Final = (Setting("sql_mode", f"'{DDL_MODES}'"), *_EVERY)
_TABLES: Final = (Setting("explicit_defaults_for_timestamp", "1"), Setting("default_storage_engine", "InnoDB"))
_READ_COMMITTED: Final = (
    Setting("transaction_isolation", "'READ-COMMITTED'"),
    Setting("tx_isolation", "'READ-COMMITTED'"),
)
_WRITE_SOURCE: Final = (Setting("tidb_cdc_write_source", "1"), Setting("tidb_placement_mode", "'ignore'"))


_UNCHECKED: Final = Setting("check_constraint_checks", "0", since=(10, 2, 1))
"""The upstream checks its rows, as far as it does; a CHECK of MariaDB's own refuses JSON that is deeper than 31."""


@dataclass(frozen=True, slots=True)
class KindTraits:
    """What servers of a kind have, and what sessions set there besides ROWS.

    `asked` are variables that not all of its versions have: the server is asked, and they are set where it has them."""

    rows: tuple[Setting, ...]
    ddls: tuple[Setting, ...]
    asked: tuple[str, ...]
    duplicates: bool = True
    """INSERT .. ON DUPLICATE KEY UPDATE tells how many rows were there."""
    documents: bool = True
    """JSON is compared as documents, not as text."""
    grants: bool = True
    """SHOW GRANTS tells all rights, roles left out."""
    numbers: str = ""
    """The relation of information_schema with the numbers of tables; "" for none."""
    jobs: bool = False
    """DDLs are jobs, in information_schema.ddl_jobs."""
    past: bool = False
    """Rows of the past can be read, by tidb_snapshot."""


_ASKED: Final = ("max_allowed_packet", "transaction_isolation", "tx_isolation")
KINDS: Final[Mapping[ServerKind, KindTraits]] = {
    ServerKind.MYSQL: KindTraits(rows=_READ_COMMITTED, ddls=(*_DDLS, *_TABLES), asked=_ASKED, numbers="INNODB_TABLES"),
    ServerKind.MARIADB: KindTraits(
        rows=(
            *_READ_COMMITTED,
            Setting("sql_mode", f"'{ROW_MODES},TIME_ROUND_FRACTIONAL'", since=(10, 4, 1)),
            Setting("in_predicate_conversion_threshold", "0", since=(10, 3, 18)),
            _UNCHECKED,
        ),
        ddls=(
            *_DDLS,
            Setting("sql_mode", f"'{DDL_MODES},TIME_ROUND_FRACTIONAL'", since=(10, 4, 1)),
            _UNCHECKED,
            Setting("max_statement_time", "0", since=(10, 1, 1)),
            *_TABLES,
        ),
        asked=_ASKED,
        documents=False,
        numbers="INNODB_SYS_TABLES",
    ),
    ServerKind.TIDB: KindTraits(
        rows=(
            *_READ_COMMITTED,
            Setting("tidb_txn_mode", "'{txn_mode}'"),
            Setting("allow_auto_random_explicit_insert", "1"),
            Setting("tidb_enable_external_ts_read", "OFF"),
            *_WRITE_SOURCE,
        ),
        ddls=(*_DDLS, *_WRITE_SOURCE),
        asked=(
            *_ASKED,
            "allow_auto_random_explicit_insert",
            "tidb_cdc_write_source",
            "tidb_enable_external_ts_read",
            "tidb_external_ts",
            "tidb_placement_mode",
            "tidb_txn_mode",
        ),
        duplicates=False,
        grants=False,
        jobs=True,
        past=True,
    ),
}
"""A MariaDB rounds fractions of a second as the others do only when it is told to, by a mode of its own."""

_TIDB: Final = re.compile(r"tidb-v?(\d+(?:\.\d+)*)", re.IGNORECASE)
_MARIADB: Final = re.compile(r"(?:5\.5\.5-)?(\d+(?:\.\d+)*)-mariadb", re.IGNORECASE)
_NUMBERS: Final = re.compile(r"(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class TargetServer:
    """A server: whose SQL it speaks, its version, and those of the variables asked for that it has."""

    kind: ServerKind
    version: tuple[int, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.value} {'.'.join(map(str, self.version))}"

    def has(self, variable: str) -> bool:
        """Return whether the server knows a variable that its kind was asked for."""
        return variable in self.variables

    @property
    def traits(self) -> KindTraits:
        """What its kind has."""
        return KINDS[self.kind]

    def settings(self, wanted: Iterable[Setting]) -> list[Setting]:
        """Return the settings among `wanted` that the server has."""
        asked = self.traits.asked
        return [
            one for one in wanted if self.version >= one.since and (one.name not in asked or one.name in self.variables)
        ]

    def modes(self, *, strict: bool) -> Setting:
        """Return the SQL modes of sessions of rows, or those of sessions that are not strict."""
        wanted = [*ROWS, *self.traits.rows] if strict else self.traits.ddls
        return [one for one in self.settings(wanted) if one.name == "sql_mode"][-1]

    @property
    def packet_bytes(self) -> int:
        """The longest statement that the server takes."""
        return int(self.variables.get("max_allowed_packet") or 1 << 24)


Target: TypeAlias = TargetServer
"""What the parts of this sink call it."""


def target_of(version: str, variables: Mapping[str, str] = MappingProxyType({})) -> TargetServer:
    """Return the target whose VERSION() and variables these are. SinkRefused for text without a version."""
    kinds = ((ServerKind.TIDB, _TIDB), (ServerKind.MARIADB, _MARIADB), (ServerKind.MYSQL, _NUMBERS))
    for kind, pattern in kinds:
        found = pattern.search(version)
        if found is not None:
            return TargetServer(kind, tuple(map(int, found[1].split("."))), dict(variables))
    raise SinkRefused(f"the server calls its version {version!r}; it is no MySQL, MariaDB or TiDB")
