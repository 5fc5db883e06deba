"""Errors of the embedded TiDB's transactions, with the numbers that a MySQL client of TiDB sees."""

from tidegate.model.errors import Retry, SqlRefused, UpstreamError


class WriteConflict(UpstreamError):
    """Another transaction committed `key` after this one began: (start_ts, its start_ts, its commit_ts, key)."""

    code = "kv:9007"
    mysql_code = 9007

    def __init__(self, start_ts: int, conflict_start_ts: int, conflict_commit_ts: int, key: bytes, /) -> None:
        super().__init__(start_ts, conflict_start_ts, conflict_commit_ts, key)
        self.start_ts, self.key = start_ts, key
        self.conflict_start_ts, self.conflict_commit_ts = conflict_start_ts, conflict_commit_ts

    def __str__(self) -> str:
        return (
            f"write conflict: the transaction of start_ts {self.start_ts} writes key {self.key.hex()}, which start_ts "
            f"{self.conflict_start_ts} committed at {self.conflict_commit_ts}; retry the transaction"
        )


class KeyLocked(UpstreamError):
    """A transaction that may still commit holds `key`: (key, primary, its start_ts, its time to live in ms)."""

    code = "tikv:9004"
    mysql_code = 9004

    def __init__(self, key: bytes, primary: bytes, lock_ts: int, ttl_ms: int, /) -> None:
        super().__init__(key, primary, lock_ts, ttl_ms)
        self.key, self.primary, self.lock_ts, self.ttl_ms = key, primary, lock_ts, ttl_ms

    def __str__(self) -> str:
        return (
            f"key {self.key.hex()} is locked by the transaction of start_ts {self.lock_ts} (primary "
            f"{self.primary.hex()}) for {self.ttl_ms} ms from its start; retry once it has ended or expired"
        )


class TransactionGone(UpstreamError):
    """The transaction's lock was rolled back by another transaction: (start_ts, key)."""

    code = "kv:8022"
    mysql_code = 8022

    def __init__(self, start_ts: int, key: bytes, /) -> None:
        super().__init__(start_ts, key)
        self.start_ts, self.key = start_ts, key

    def __str__(self) -> str:
        return f"the transaction of start_ts {self.start_ts} was rolled back at key {self.key.hex()}; retry it"


class SchemaOutdated(UpstreamError):
    """A node's schema lease has expired; the message names schema version and start_ts."""

    code = "domain:8027"
    mysql_code = 8027


class SchemaChanged(UpstreamError):
    """A table that a transaction wrote has a newer definition; the message names table and versions."""

    code = "domain:8028"
    mysql_code = 8028


class HistoryCollected(UpstreamError):
    """A transaction began before the GC safe point: (start_ts, safe_point)."""

    code = "tikv:9006"
    retry = Retry.NEVER
    mysql_code = 9006

    def __init__(self, start_ts: int, safe_point: int, /) -> None:
        super().__init__(start_ts, safe_point)
        self.start_ts, self.safe_point = start_ts, safe_point

    def __str__(self) -> str:
        return (
            f"GC life time is shorter than transaction duration: start_ts {self.start_ts}, "
            f"GC safe point {self.safe_point}; retry the transaction"
        )


class SnapshotTooOld(HistoryCollected):
    """A historical read is below the GC safe point: (ts, safe_point)."""

    code = "variable:8055"
    mysql_code = 8055

    def __str__(self) -> str:
        return f"snapshot {self.start_ts} is older than the GC safe point {self.safe_point}; read at or above it"


class EntryTooLarge(UpstreamError):
    """The size of a key with its value exceeds the limit; the message names key, bytes and limit."""

    code = "kv:8025"
    retry = Retry.NEVER
    mysql_code = 8025


class TransactionTooLarge(UpstreamError):
    """The size of a transaction exceeds the limit; the message names start_ts, bytes and limit."""

    code = "kv:8004"
    retry = Retry.NEVER
    mysql_code = 8004


def missing_table(table: str) -> SqlRefused:
    """Return MySQL's error 1146 for a table: its name in quotes, or another description of it."""
    return SqlRefused(1146, f"Table {table} doesn't exist", "42S02")


def missing_name(schema: str, name: str) -> SqlRefused:
    """Return MySQL's error 1146 for the name of a table."""
    return missing_table(f"'{schema}.{name}'")
