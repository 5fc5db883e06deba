"""System variables: their names, defaults, scopes and kinds, and the values of the server and of a session.

    SET GLOBAL x    GlobalVariables      the initial values of sessions   one for all sessions of a server
    SET x           SessionVariables     over a copy of the globals       SHOW VARIABLES, @@x
                    NONE                 cannot be set (1238)             version, hostname ..

    unknown 1193    global only 1229    session only 1228    wrong value 1231, 1232, 1298, 1115, 1273

The kind of a variable decides what SET accepts and what SHOW VARIABLES prints:

    kind                   SET accepts                       stored      SHOW prints
    SWITCH                 ON OFF TRUE FALSE 1 0             1, 0        ON, OFF
    number(low, high)      whole numbers; others are cut     int         100
    REAL                   numbers                           float       0.8
    choice(A, B, ..)       a name, or its index from 0       text        A
    TEXT                   anything                          text        the text
    CHARSET, COLLATION, ZONE, MODE                           text in the usual form

A value cut to its bounds is a warning (1292); any other unsuitable value is error 1231 or 1232.

Variables without effect here are listed because clients set or read them when they connect.  Their values describe this
upstream, not a TiDB with TiKV.

Source: TiDB pkg/sessionctx/variable; TiDB documentation, "System Variables"; MySQL manual, "SET Syntax for Variable
Assignment", "Server System Variables".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from threading import Lock
from typing import Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits
from tidegate.mysql.values import SqlValue
from tidegate.schema.columns import CHARSETS, charset_named, collation_named
from tidegate.schema.job import MODE_BITS

Setting: TypeAlias = int | float | str
"""The value of a variable."""
Warn: TypeAlias = Callable[[int, str], None]
Read: TypeAlias = Callable[[str, SqlValue, Warn], Setting]
SIGNED_MAX: Final = (1 << 63) - 1
UNSIGNED_MAX: Final = (1 << 64) - 1
_ON: Final = frozenset({"on", "true", "1"})
_OFF: Final = frozenset({"off", "false", "0"})
_WRONG_VALUE: Final = 1231
_WRONG_TYPE: Final = 1232
_TRUNCATED: Final = 1292
_UNKNOWN_ERROR: Final = 1105
"""The error in which TiDB wraps an unknown SQL mode."""
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)")
_OFFSET_MAX: Final = timedelta(hours=14)
_OFFSET_MIN: Final = timedelta(hours=-12, minutes=-59)


class VariableKind(NamedTuple):
    """The type of a variable, which reads and prints its values.

    `read(variable, value, warn)` returns the value to store; SqlRefused for an invalid one."""

    read: Read
    show: Callable[[Setting], str] = str


def _wrong_value(name: str, value: object) -> SqlRefused:
    return SqlRefused(_WRONG_VALUE, f"Variable '{name}' can't be set to the value of '{_text(value)}'", "42000")


def _wrong_type(name: str) -> SqlRefused:
    return SqlRefused(_WRONG_TYPE, f"Incorrect argument type to variable '{name}'", "42000")


def _switch(name: str, value: SqlValue, _warn: Warn) -> Setting:
    word = _text(value).lower()
    if word not in _ON | _OFF:
        raise _wrong_value(name, value)
    return int(word in _ON)


def number(low: int = 0, high: int = UNSIGNED_MAX) -> VariableKind:
    """Return the type of integers between bounds."""

    def read(name: str, value: SqlValue, warn: Warn) -> Setting:
        if isinstance(value, float | Decimal) or value is None:
            raise _wrong_type(name)
        word = _text(value).strip()
        word = {"on": "1", "off": "0"}.get(word.lower(), word)
        try:
            parsed = int(word)
        except ValueError:
            raise _wrong_type(name) from None
        cut = min(max(parsed, low), high)
        if cut != parsed:
            warn(_TRUNCATED, f"Truncated incorrect {name} value: '{word}'")
        return cut

    return VariableKind(read)


def _real(name: str, value: SqlValue, _warn: Warn) -> Setting:
    try:
        return float(_text(value))
    except ValueError:
        raise _wrong_type(name) from None


def choice(*names: str) -> VariableKind:
    """Return the type of a variable with a fixed set of values."""

    def read(name: str, value: SqlValue, _warn: Warn) -> Setting:
        word = _text(value)
        if all_digits(word) and int(word) < len(names):
            return names[int(word)]
        chosen = next((option for option in names if option.lower() == word.lower()), None)
        if chosen is None:
            raise _wrong_value(name, value)
        return chosen

    return VariableKind(read)


def _worded(settle: Callable[[str], str]) -> VariableKind:
    """Return the type of a text that `settle` normalizes or refuses."""
    return VariableKind(lambda _name, value, _warn: settle("" if value is None else _text(value)))


"""The known SQL modes, and their bits in a DDL job."""
_ZERO_MODES: Final = "NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO"
_COMBINED: Final = {
    "ANSI": "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI",
    "TRADITIONAL": f"STRICT_TRANS_TABLES,STRICT_ALL_TABLES,{_ZERO_MODES},TRADITIONAL,NO_ENGINE_SUBSTITUTION",
}


def _mode(name: str, value: SqlValue, _warn: Warn) -> Setting:
    modes: dict[str, None] = {}
    for part in _text(value).upper().rstrip(" ").split(","):
        if part in _COMBINED:
            modes.update(dict.fromkeys(_COMBINED[part].split(",")))
        elif part in MODE_BITS:
            modes[part] = None
        elif part:
            wrong = _wrong_value(name, part)
            raise SqlRefused(_UNKNOWN_ERROR, f"ERROR {_WRONG_VALUE} ({wrong.sqlstate}): {wrong.message}", "HY000")
    return ",".join(modes)


def zone_named(name: str) -> tzinfo:
    """Return the time zone of SYSTEM (UTC here), of an offset such as +08:00, or of a name; SqlRefused 1298."""
    if name.upper() in {"SYSTEM", "UTC", "+00:00"}:
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (1 if offset[1] == "+" else -1)
        if _OFFSET_MIN <= span <= _OFFSET_MAX and int(offset[3]) < 60:
            return timezone(span)
    else:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise SqlRefused(1298, f"Unknown or incorrect time zone: '{name}'", "HY000")


def _zone(word: str) -> str:
    zone_named(word)
    return word


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


SWITCH: Final = VariableKind(_switch, lambda value: "ON" if value else "OFF")
REAL: Final = VariableKind(_real, lambda value: f"{value:g}")
TEXT: Final = _worded(str)
CHARSET: Final = _worded(lambda word: charset_named(word) if word else word)
COLLATION: Final = _worded(collation_named)
ZONE: Final = _worded(_zone)
MODE: Final = VariableKind(_mode)


TIDB_VERSION: Final = "v8.5.0-tidegate"
VERSION: Final = f"8.0.11-TiDB-{TIDB_VERSION}"
"""The server version: a MySQL version known to clients, marked as TiDB."""
EXTERNAL_TS: Final = "tidb_external_ts"
"""The timestamp up to which a replica is complete, set by the replication; it never moves back."""
EXTERNAL_TS_READ: Final = "tidb_enable_external_ts_read"
_UNKNOWN, _READ_ONLY, _GLOBAL_ONLY, _SESSION_ONLY, _ERROR = 1193, 1238, 1229, 1228, 1105


class VariableScope(Enum):
    """The scopes in which a variable can be set."""

    BOTH = "each session's, and the default of new ones"
    GLOBAL = "the server's"
    SESSION = "each session's"
    NONE = "read only"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable and its `default`."""

    name: str
    default: Setting
    kind: VariableKind
    scope: VariableScope = VariableScope.BOTH


_SQL_MODE: Final = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION"
)
_LEVELS: Final = ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")
_ANY: Final = number()
_B, _G, _S, _N = VariableScope.BOTH, VariableScope.GLOBAL, VariableScope.SESSION, VariableScope.NONE

_ROWS: Final[tuple[tuple[str, Setting, VariableKind, VariableScope], ...]] = (
    # Characters and time
    ("character_set_client", "utf8mb4", CHARSET, _B),
    ("character_set_connection", "utf8mb4", CHARSET, _B),
    ("character_set_results", "utf8mb4", CHARSET, _B),
    ("character_set_database", "utf8mb4", CHARSET, _B),
    ("character_set_server", "utf8mb4", CHARSET, _B),
    ("character_set_system", "utf8", CHARSET, _N),
    ("character_set_filesystem", "binary", CHARSET, _B),
    ("collation_connection", "utf8mb4_bin", COLLATION, _B),
    ("collation_database", "utf8mb4_bin", COLLATION, _B),
    ("collation_server", "utf8mb4_bin", COLLATION, _B),
    ("time_zone", "SYSTEM", ZONE, _B),
    ("system_time_zone", "UTC", TEXT, _N),
    ("timestamp", 0.0, REAL, _S),
    # SQL
    ("sql_mode", _SQL_MODE, MODE, _B),
    ("sql_select_limit", UNSIGNED_MAX, _ANY, _B),
    ("sql_safe_updates", 0, SWITCH, _B),
    ("sql_auto_is_null", 0, SWITCH, _B),
    ("sql_notes", 1, SWITCH, _B),
    ("sql_log_bin", 1, SWITCH, _B),
    ("sql_quote_show_create", 1, SWITCH, _B),
    ("max_sort_length", 1024, number(4, 8388608), _B),
    ("max_error_count", 64, number(0, 65535), _B),
    ("max_execution_time", 0, number(0, 2147483647), _B),
    ("group_concat_max_len", 1048576, number(4), _B),
    ("foreign_key_checks", 1, SWITCH, _B),
    ("unique_checks", 1, SWITCH, _B),
    ("auto_increment_increment", 1, number(1, 65535), _B),
    ("auto_increment_offset", 1, number(1, 65535), _B),
    ("last_insert_id", 0, _ANY, _S),
    ("identity", 0, _ANY, _S),
    ("warning_count", 0, _ANY, _N),
    ("error_count", 0, _ANY, _N),
    # Transactions
    ("autocommit", 1, SWITCH, _B),
    ("transaction_isolation", "REPEATABLE-READ", choice(*_LEVELS), _B),
    ("tx_isolation", "REPEATABLE-READ", choice(*_LEVELS), _B),
    ("transaction_read_only", 0, SWITCH, _B),
    ("tx_read_only", 0, SWITCH, _B),
    ("read_only", 0, SWITCH, _G),
    ("innodb_lock_wait_timeout", 50, number(1, 3600), _B),
    ("tidb_txn_mode", "optimistic", choice("", "optimistic", "pessimistic"), _B),
    ("tidb_snapshot", "", TEXT, _S),
    (EXTERNAL_TS, 0, _ANY, _G),
    (EXTERNAL_TS_READ, 0, SWITCH, _B),
    ("tidb_current_ts", 0, _ANY, _N),
    ("tidb_retry_limit", 10, number(0, 1 << 31), _B),
    ("tidb_gc_life_time", "10m0s", TEXT, _G),
    ("tidb_gc_max_wait_time", 86_400, number(600, 31_536_000), _G),
    # Rows and DDL
    ("tidb_row_format_version", 2, number(1, 2), _B),
    ("tidb_enable_row_level_checksum", 0, SWITCH, _B),
    ("tidb_enable_clustered_index", "ON", choice("OFF", "ON", "INT_ONLY"), _B),
    ("allow_auto_random_explicit_insert", 0, SWITCH, _B),
    ("tidb_enable_check_constraint", 0, SWITCH, _G),
    ("tidb_enable_foreign_key", 1, SWITCH, _G),
    ("tidb_ddl_reorg_batch_size", 256, number(32, 10240), _B),
    ("tidb_cdc_write_source", 0, number(0, 15), _S),
    # The server
    ("version", VERSION, TEXT, _N),
    ("version_comment", f"TiDB Server (Tidegate's embedded upstream) {TIDB_VERSION}", TEXT, _N),
    ("version_compile_os", "Linux", TEXT, _N),
    ("license", "Apache License 2.0", TEXT, _N),
    ("hostname", "localhost", TEXT, _N),
    ("port", 4000, number(0, 65535), _N),
    ("socket", "", TEXT, _N),
    ("server_id", 0, _ANY, _N),
    ("lower_case_table_names", 2, number(0, 2), _N),
    ("have_ssl", "DISABLED", TEXT, _N),
    ("log_bin", 0, SWITCH, _N),
    ("binlog_format", "ROW", TEXT, _N),
    ("binlog_row_image", "FULL", TEXT, _N),
    ("gtid_mode", "OFF", TEXT, _N),
    ("default_storage_engine", "InnoDB", TEXT, _B),
    ("performance_schema", 0, SWITCH, _N),
    ("init_connect", "", TEXT, _G),
    ("max_allowed_packet", 67108864, number(1024, 1 << 30), _B),
    ("max_connections", 0, number(0, 100000), _G),
    ("net_buffer_length", 16384, number(1024, 1 << 20), _B),
    ("net_read_timeout", 30, number(1, 31536000), _B),
    ("net_write_timeout", 60, number(1, 31536000), _B),
    ("wait_timeout", 28800, number(0, 31536000), _B),
    ("interactive_timeout", 28800, number(1, 31536000), _B),
    ("query_cache_size", 0, _ANY, _G),
    ("query_cache_type", "OFF", choice("OFF", "ON", "DEMAND"), _B),
)
VARIABLES: Final[Mapping[str, Variable]] = {row[0]: Variable(*row) for row in sorted(_ROWS)}
_TWINS: Final = {
    "tx_isolation": "transaction_isolation",
    "transaction_isolation": "tx_isolation",
    "tx_read_only": "transaction_read_only",
    "transaction_read_only": "tx_read_only",
    "identity": "last_insert_id",
    "last_insert_id": "identity",
}
"""Synonyms."""
_OF_CHARSET: Final = {
    "character_set_connection": "collation_connection",
    "character_set_database": "collation_database",
    "character_set_server": "collation_server",
}
_OF_COLLATION: Final = {collation: charset for charset, collation in _OF_CHARSET.items()}


def _ignore(_code: int, _message: str) -> None:
    return


def find(name: str) -> Variable:
    """Return the variable of that name, case-insensitive; SqlRefused 1193."""
    variable = VARIABLES.get(name.lower())
    if variable is None:
        raise SqlRefused(_UNKNOWN, f"Unknown system variable '{name}'", "HY000")
    return variable


def _settled(variable: Variable, value: SqlValue, warn: Callable[[int, str], None]) -> dict[str, Setting]:
    value_read = variable.kind.read(variable.name, value, warn)
    settings = {variable.name: value_read}
    if variable.name in _TWINS:
        settings[_TWINS[variable.name]] = value_read
    if variable.name in _OF_CHARSET and value_read:
        settings[_OF_CHARSET[variable.name]] = CHARSETS[str(value_read)].default
    if variable.name in _OF_COLLATION:
        settings[_OF_COLLATION[variable.name]] = str(value_read).partition("_")[0]
    return settings


class GlobalVariables(Mapping[str, SqlValue]):
    """The values that new sessions start with; thread-safe."""

    def __init__(self, fixed: Mapping[str, Setting] | None = None) -> None:
        """`fixed` are properties of this server, such as its port."""
        self._values: dict[str, Setting] = {name: variable.default for name, variable in VARIABLES.items()}
        self._values |= fixed or {}
        self._lock = Lock()

    def __getitem__(self, name: str) -> Setting:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, variable in VARIABLES.items() if variable.scope is not VariableScope.SESSION)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def set(self, name: str, value: SqlValue, warn: Callable[[int, str], None] = _ignore) -> None:
        """SET GLOBAL; SqlRefused as the module docstring says."""
        variable = find(name)
        if variable.scope is VariableScope.NONE:
            raise SqlRefused(_READ_ONLY, f"Variable '{variable.name}' is a read only variable", "HY000")
        if variable.scope is VariableScope.SESSION:
            raise SqlRefused(
                _SESSION_ONLY, f"Variable '{variable.name}' is a SESSION variable and can't be used with SET GLOBAL"
            )
        settings = _settled(variable, value, warn)
        with self._lock:
            if settings.get(EXTERNAL_TS, self._values[EXTERNAL_TS]) < self._values[EXTERNAL_TS]:  # type: ignore[operator]
                raise SqlRefused(_ERROR, "cannot decrease the external timestamp", "HY000")
            self._values |= settings


class SessionVariables(Mapping[str, SqlValue]):
    """The values of one session: its own over those of the server when it began."""

    def __init__(self, shared: GlobalVariables) -> None:
        self.shared = shared
        self._values: dict[str, Setting] = {name: shared[name] for name in VARIABLES}

    def __getitem__(self, name: str) -> Setting:
        if VARIABLES[name].scope is VariableScope.GLOBAL:
            return self.shared[name]
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(VARIABLES)

    def __len__(self) -> int:
        return len(VARIABLES)

    def set(self, name: str, value: SqlValue, warn: Callable[[int, str], None] = _ignore) -> None:
        """SET SESSION; SqlRefused as the module docstring says."""
        variable = find(name)
        if variable.scope is VariableScope.NONE:
            raise SqlRefused(_READ_ONLY, f"Variable '{variable.name}' is a read only variable", "HY000")
        if variable.scope is VariableScope.GLOBAL:
            raise SqlRefused(
                _GLOBAL_ONLY, f"Variable '{variable.name}' is a GLOBAL variable and should be set with SET GLOBAL"
            )
        self._values |= _settled(variable, value, warn)

    def force(self, name: str, value: Setting) -> None:
        """Set a read-only variable that the session maintains: a count, a database's charset."""
        self._values[find(name).name] = value

    def show(self, *, shared: bool = False) -> Iterator[tuple[str, str]]:
        """Return names and values as SHOW VARIABLES prints them; of the server if `shared`."""
        source: Mapping[str, SqlValue] = self.shared if shared else self
        for name in source:
            value = source[name]
            assert isinstance(value, int | float | str)
            yield name, VARIABLES[name].kind.show(value)
