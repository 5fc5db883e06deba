"""The state of a session between statements, its transaction, and the user-level locks of GET_LOCK.

    SessionState ── context() ──► Context of one statement ── keep(context) ──► SessionState

    database, variables, @user variables        what SET and USE change
    warnings                                    of the last statement that did not ask for them
    last_insert_id, row_count, found_rows       of the last statement of each kind

Transactions:

    autocommit = 1      one per statement, retried on a conflict (9007, 8028, 9004 ..)
    BEGIN, autocommit=0 stays open until COMMIT, ROLLBACK or a DDL; a statement that fails leaves no changes in it
    READ ONLY           writes are refused (1792)

They are optimistic: writers do not wait for each other, the one that commits later fails.  PESSIMISTIC is accepted and
means the same; SELECT .. FOR UPDATE makes a commit fail if the rows have changed since.

Named locks:

    session A   GET_LOCK('x', 5) = 1      A may take its own lock again, and must release it as often
    session B   GET_LOCK('x', 5) = 0      after 5 seconds
    A ends      its locks are released

Lock names compare without case.  An empty name, or one of more than 64 characters, is error 3057.

Source: MySQL manual, "Information Functions", "User-Defined Variables", "Locking Functions"; TiDB documentation,
"Optimistic Transaction Model", "Transactions", "Locking Functions".
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from threading import Condition
from typing import Final, TypeVar

from tidegate.model.errors import Retry, SqlRefused, TidegateError, UpstreamError
from tidegate.model.name import lowered
from tidegate.mysql.values import Context, SqlValue, SqlWarning, UserLocks
from tidegate_upstream.errors import KeyLocked
from tidegate_upstream.tidb.node import GuardedTransaction, Node
from tidegate_upstream.tidb.variables import GlobalVariables, SessionVariables, zone_named


@dataclass(slots=True)
class SessionState:
    """Variables, warnings and counters of a session; `now_ms` is the clock, `new_timestamp` the oracle."""

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
        return frozenset(str(self.variables["sql_mode"]).split(",")) - {""}

    @property
    def zone(self) -> tzinfo:
        return zone_named(str(self.variables["time_zone"]))

    @property
    def write_source(self) -> int:
        return int(str(self.variables["tidb_cdc_write_source"]))

    @property
    def now(self) -> datetime:
        """The statement's time, or the one set by `SET timestamp`."""
        chosen = self.variables["timestamp"]
        assert isinstance(chosen, int | float), chosen
        return datetime.fromtimestamp(chosen or self.now_ms() / 1000, UTC)

    def context(self, start_ts: int = 0) -> Context:
        """Return the context of a statement."""
        counts = {
            level: sum(warning.level == level for warning in self.warnings) for level in ("Error", "Warning", "Note")
        }
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
        """Keep warnings and variables that a statement left."""
        self.warnings = context.warnings[: int(str(self.variables["max_error_count"]))]
        self.last_insert_id = context.last_insert_id

    def blame(self, error: TidegateError) -> None:
        """Record the error of a statement for SHOW WARNINGS."""
        code = error.mysql_code if isinstance(error, UpstreamError) else 1105
        text = error.message if isinstance(error, SqlRefused) else str(error)
        self.warnings.append(SqlWarning("Error", code, text))
        self.row_count = -1


MAX_WAIT_S: Final = 3600.0
_LOOK_S: Final = 0.1
"""Interval at which a waiting session checks whether its statement is interrupted."""
_NAME_CHARS: Final = 64


@dataclass(slots=True)
class _Lock:
    owner: "SessionLocks"
    times: int = 1


class NamedLocks:
    """The locks of all sessions of a cluster."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.locks: dict[str, _Lock] = {}


@dataclass(eq=False, slots=True)
class SessionLocks:
    """The locks as one session sees them; `connection_id` is its number, `interrupted` raises when its statement is to
    end."""

    shared: NamedLocks = field(default_factory=NamedLocks)
    connection_id: Callable[[], int] = lambda: 0
    interrupted: Callable[[], None] = lambda: None

    def take(self, name: str, wait_s: float) -> bool:
        key, until_s = _key(name), time.monotonic() + (wait_s if 0 <= wait_s <= MAX_WAIT_S else MAX_WAIT_S)
        with self.shared.changed:
            while (lock := self.shared.locks.setdefault(key, _Lock(self, 0))).owner is not self:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self.shared.changed.wait(min(left_s, _LOOK_S))
                self.interrupted()
            lock.times += 1
            return True

    def release(self, name: str) -> bool | None:
        """Release a lock once; False if another session holds it, None if nobody does."""
        key = _key(name)
        with self.shared.changed:
            lock = self.shared.locks.get(key)
            if lock is None or lock.owner is not self:
                return None if lock is None else False
            lock.times -= 1
            if not lock.times:
                del self.shared.locks[key]
                self.shared.changed.notify_all()
            return True

    def release_all(self) -> int:
        """Release all locks of the session; return how many times it had acquired any."""
        with self.shared.changed:
            mine = [key for key, lock in self.shared.locks.items() if lock.owner is self]
            times = sum(self.shared.locks.pop(key).times for key in mine)
            self.shared.changed.notify_all()
            return times

    def owner(self, name: str) -> int | None:
        """Return the connection id of the session that holds a lock; None if nobody does."""
        with self.shared.changed:
            lock = self.shared.locks.get(_key(name))
            return None if lock is None else lock.owner.connection_id()


def _key(name: str) -> str:
    if not 0 < len(name) <= _NAME_CHARS:
        raise SqlRefused(3057, f"Incorrect user-level lock name '{name}'.", "42000")
    return name.lower()


_RETRIES: Final = 32
"""Attempts of an autocommit statement; TiDB's tidb_retry_limit is 10, but it waits between conflicts."""
_PAUSE_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
_NO_SAVEPOINT: Final = 1305
_READ_ONLY: Final = 1792
_Result = TypeVar("_Result")


@dataclass(slots=True)
class SessionTransaction:
    """`autocommit` reads the variable; `interrupted` raises if the statement is interrupted; `write_source`
    says which replication writes, as change capture tells it."""

    node: Node
    autocommit: Callable[[], bool]
    interrupted: Callable[[], None] = lambda: None
    write_source: Callable[[], int] = lambda: 0
    open: GuardedTransaction | None = None
    read_only: bool = False
    _savepoints: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.open is not None

    def begin(self, *, read_only: bool = False) -> None:
        """BEGIN: commits the open transaction first."""
        self.commit()
        self.open, self.read_only = self.node.begin(), read_only

    def commit(self) -> int | None:
        """COMMIT; return the commit_ts if anything was written. A failure leaves no open transaction."""
        transaction = self.open
        self._forget()
        if transaction is None:
            return None
        transaction.source = self.write_source()
        return transaction.commit()

    def rollback(self) -> None:
        """ROLLBACK."""
        transaction = self.open
        self._forget()
        if transaction is not None:
            transaction.rollback()

    def _forget(self) -> None:
        self.open, self.read_only = None, False
        self._savepoints.clear()

    # --- savepoints ---

    def savepoint(self, name: str) -> None:
        """SAVEPOINT; replaces one of the same name. No effect outside a transaction."""
        if self.open is None and not self.autocommit():
            self.open = self.node.begin()
        if self.open is not None:
            self._savepoints = [savepoint for savepoint in self._savepoints if savepoint[0] != lowered(name)]
            self._savepoints.append((lowered(name), self.open.savepoint()))

    def rollback_to(self, name: str) -> None:
        """ROLLBACK TO; SqlRefused 1305."""
        index = self._savepoint(name)
        assert self.open is not None
        self.open.restore(self._savepoints[index][1])
        del self._savepoints[index + 1 :]

    def release(self, name: str) -> None:
        """RELEASE SAVEPOINT, and those set after it; SqlRefused 1305."""
        del self._savepoints[self._savepoint(name) :]

    def _savepoint(self, name: str) -> int:
        for index, (other, _) in enumerate(self._savepoints):
            if other == lowered(name):
                return index
        raise SqlRefused(_NO_SAVEPOINT, f"SAVEPOINT {name} does not exist", "42000")

    # --- statements ---

    def read(self, statement: Callable[[GuardedTransaction], _Result], *, passing: bool = False) -> _Result:
        """Run a statement that writes nothing: in the open transaction, else in one that is not registered.

        One in `passing`, which reads no table, opens no transaction even with autocommit off."""
        if self.open is None and not self.autocommit() and not passing:
            self.open = self.node.begin()
        if self.open is not None:
            return self._within(statement)
        return self._alone(statement, commit=False)

    def write(self, statement: Callable[[GuardedTransaction], _Result]) -> _Result:
        """Run a statement that writes; SqlRefused 1792 in a read-only transaction."""
        if self.read_only:
            raise SqlRefused(_READ_ONLY, "Cannot execute statement in a READ ONLY transaction.", "25006")
        if self.open is None and not self.autocommit():
            self.open = self.node.begin()
        if self.open is not None:
            return self._within(statement)
        return self._alone(statement, commit=True)

    def _within(self, statement: Callable[[GuardedTransaction], _Result]) -> _Result:
        transaction = self.open
        assert transaction is not None
        mark = transaction.savepoint()
        for pause_s in self._pauses():
            try:
                return statement(transaction)
            except KeyLocked:
                transaction.restore(mark)
                if pause_s is None:
                    raise
                time.sleep(pause_s)
            except BaseException:
                transaction.restore(mark)
                raise
        raise AssertionError

    def _alone(self, statement: Callable[[GuardedTransaction], _Result], *, commit: bool) -> _Result:
        for pause_s in self._pauses():
            try:
                return self._once(statement, commit=commit)
            except UpstreamError as error:
                if error.retry is Retry.NEVER or pause_s is None:
                    raise
                time.sleep(pause_s)
                self.node.reload()
        raise AssertionError

    def _once(self, statement: Callable[[GuardedTransaction], _Result], *, commit: bool) -> _Result:
        transaction = self.node.begin()
        committing = False
        try:
            result = statement(transaction)
            committing = commit
            transaction.source = self.write_source()
            if commit:
                transaction.commit()
        finally:
            if not committing:
                transaction.rollback()
        return result

    def _pauses(self) -> Iterator[float | None]:
        pause_s = _PAUSE_S
        for _ in range(_RETRIES):
            self.interrupted()
            yield pause_s
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        yield None


class LockingReads:
    """Reads of a transaction that lock the rows: SELECT .. FOR UPDATE."""

    def __init__(self, transaction: GuardedTransaction) -> None:
        self._transaction = transaction

    def get(self, key: bytes) -> bytes | None:
        self._transaction.lock(key)
        return self._transaction.get(key)

    def scan(self, start: bytes, end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._transaction.scan(start, end):
            self._transaction.lock(key)
            yield key, value
