"""What a session keeps between two statements, and what a statement is given of it.

    SessionState ── context() ──► Context of one statement ── keep(context) ──► SessionState

    database, variables, @user variables        what SET and USE change
    warnings                                    of the last statement that was no question about them
    last_insert_id, row_count, found_rows       what the last statement of each kind left

Source: MySQL manual, "Information Functions", "User-Defined Variables".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from tidegate.model.errors import SqlRefused, TidegateError, UpstreamError
from tidegate.mysql.context import Context, SqlWarning, UserLocks
from tidegate.mysql.value.kinds import SqlValue
from tidegate_upstream.tidb.sql.variable.kind import zone_named
from tidegate_upstream.tidb.sql.variable.variables import GlobalVariables, SessionVariables


@dataclass(slots=True)
class SessionState:
    """`now_ms` is the clock, `new_timestamp` the oracle."""

    variables: SessionVariables
    now_ms: Callable[[], int]
    new_timestamp: Callable[[], int]
    database: str = ""
    user: str = "root@%"
    connection_id: int = 0
    user_variables: dict[str, SqlValue] = field(default_factory=dict)
    warnings: list[SqlWarning] = field(default_factory=list)
    last_insert_id: int = 0
    row_count: int = -1
    found_rows: int = 0
    locks: UserLocks | None = None

    @classmethod
    def of(cls, shared: GlobalVariables, now_ms: Callable[[], int], new_timestamp: Callable[[], int]) -> "SessionState":
        """Return the state of a new session."""
        return cls(SessionVariables(shared), now_ms, new_timestamp)

    @property
    def sql_mode(self) -> frozenset[str]:
        """The modes that are on."""
        return frozenset(str(self.variables["sql_mode"]).split(",")) - {""}

    @property
    def zone(self) -> tzinfo:
        """The session's time zone."""
        return zone_named(str(self.variables["time_zone"]))

    @property
    def write_source(self) -> int:
        """Which replication writes here; 0 for a user."""
        return int(str(self.variables["tidb_cdc_write_source"]))

    @property
    def now(self) -> datetime:
        """The moment, or the one that `SET timestamp` chose."""
        chosen = self.variables["timestamp"]
        assert isinstance(chosen, int | float), chosen
        return datetime.fromtimestamp(chosen or self.now_ms() / 1000, UTC)

    def context(self, start_ts: int = 0) -> Context:
        """Return what a statement runs with."""
        counts = {level: sum(one.level == level for one in self.warnings) for level in ("Error", "Warning", "Note")}
        self.variables.force("warning_count", len(self.warnings))
        self.variables.force("error_count", counts["Error"])
        return Context(
            now=self.now,
            zone=self.zone,
            sql_mode=self.sql_mode,
            database=self.database,
            variables=self.variables,
            global_variables=self.variables.shared,
            user_variables=self.user_variables,
            last_insert_id=self.last_insert_id,
            connection_id=self.connection_id,
            row_count=self.row_count,
            found_rows=self.found_rows,
            user=self.user,
            new_timestamp=self.new_timestamp,
            locks=self.locks,
            start_ts=start_ts,
        )

    def keep(self, context: Context) -> None:
        """Take over what a statement left."""
        self.warnings = context.warnings[: int(str(self.variables["max_error_count"]))]
        self.last_insert_id = context.last_insert_id

    def blame(self, error: TidegateError) -> None:
        """Note the error of a statement for SHOW WARNINGS."""
        code = error.mysql_code if isinstance(error, UpstreamError) else 1105
        text = error.message if isinstance(error, SqlRefused) else str(error)
        self.warnings.append(SqlWarning("Error", code, text))
        self.row_count = -1
