"""What a statement runs with: the moment, the session's settings, and the warnings so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, Protocol

from tidegate.mysql.value.kinds import SqlValue

DEFAULT_COLLATION: Final = "utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class SqlWarning:
    """One line of SHOW WARNINGS."""

    level: Literal["Note", "Warning", "Error"]
    code: int
    message: str


class UserLocks(Protocol):
    """The locks that users name, as one session sees them."""

    def take(self, name: str, wait_s: float) -> bool:
        """GET_LOCK."""
        ...

    def release(self, name: str) -> bool | None:
        """RELEASE_LOCK."""
        ...

    def release_all(self) -> int:
        """RELEASE_ALL_LOCKS."""
        ...

    def owner(self, name: str) -> int | None:
        """IS_USED_LOCK."""
        ...


@dataclass(slots=True)
class Context:
    """What one statement runs with; `now` is in UTC and stays while the statement runs."""

    now: datetime
    zone: tzinfo = UTC
    sql_mode: frozenset[str] = frozenset()
    database: str = ""
    variables: Mapping[str, SqlValue] = field(default_factory=dict)
    """Session variables, lower-case names; what is not here is looked up in `global_variables`."""
    global_variables: Mapping[str, SqlValue] = field(default_factory=dict)
    user_variables: dict[str, SqlValue] = field(default_factory=dict)
    """Lower-case names without @."""
    last_insert_id: int = 0
    connection_id: int = 0
    row_count: int = -1
    found_rows: int = 0
    user: str = "root@%"
    warnings: list[SqlWarning] = field(default_factory=list)
    new_timestamp: Callable[[], int] | None = None
    """The oracle, for functions that ask for a timestamp."""
    locks: UserLocks | None = None
    start_ts: int = 0
    writing: bool = False
    """True inside INSERT, UPDATE and DELETE, where strict mode makes errors of warnings."""

    def warn(self, code: int, message: str) -> None:
        """Add a warning."""
        self.warnings.append(SqlWarning("Warning", code, message))

    @property
    def strict(self) -> bool:
        """Whether a statement that writes must refuse what it cannot store exactly."""
        return bool(self.sql_mode & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


NO_CONTEXT: Final = Context(datetime(1970, 1, 1, tzinfo=UTC))
"""For literals, which do not look at it."""
