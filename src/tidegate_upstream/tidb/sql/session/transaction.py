"""The transaction of a session: begun by BEGIN, by a statement, or not at all.

    autocommit = 1      each statement has its own, and is tried again when others were faster (9007, 8028, 9004 ..)
    BEGIN, autocommit=0 one stays open until COMMIT, ROLLBACK or a DDL; a statement that fails leaves no trace in it
    READ ONLY           writes are refused (1792)

Transactions are optimistic: writers do not wait for each other, the one that commits later fails.  PESSIMISTIC is
accepted and means the same; SELECT .. FOR UPDATE makes a commit fail when the rows changed since.

Source: TiDB documentation, "Optimistic Transaction Model", "Transactions".
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidegate.model.errors import KeyLocked, Retry, SqlRefused, UpstreamError
from tidegate.model.name import lowered
from tidegate_upstream.tidb.node import GuardedTransaction, Node

_RETRIES: Final = 32
"""Times that an autocommit statement is tried; TiDB's tidb_retry_limit is 10, but its conflicts wait in between."""
_PAUSE_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
_NO_SAVEPOINT: Final = 1305
_READ_ONLY: Final = 1792
_Result = TypeVar("_Result")


@dataclass(slots=True)
class SessionTransaction:
    """`autocommit` tells the variable; `interrupted` raises when somebody wants the statement to end; `write_source`
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
        """Whether COMMIT would end something."""
        return self.open is not None

    def begin(self, *, read_only: bool = False) -> None:
        """BEGIN: what was open is committed first."""
        self.commit()
        self.open, self.read_only = self.node.begin(), read_only

    def commit(self) -> int | None:
        """COMMIT; the commit_ts if anything was written. A failure leaves nothing open."""
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
        """SAVEPOINT; one of the same name goes. Outside a transaction it means nothing."""
        if self.open is None and not self.autocommit():
            self.open = self.node.begin()
        if self.open is not None:
            self._savepoints = [one for one in self._savepoints if one[0] != lowered(name)]
            self._savepoints.append((lowered(name), self.open.savepoint()))

    def rollback_to(self, name: str) -> None:
        """ROLLBACK TO; SqlRefused 1305."""
        at = self._place(name)
        assert self.open is not None
        self.open.restore(self._savepoints[at][1])
        del self._savepoints[at + 1 :]

    def release(self, name: str) -> None:
        """RELEASE SAVEPOINT, and those set after it; SqlRefused 1305."""
        del self._savepoints[self._place(name) :]

    def _place(self, name: str) -> int:
        for at, (known, _) in enumerate(self._savepoints):
            if known == lowered(name):
                return at
        raise SqlRefused(_NO_SAVEPOINT, f"SAVEPOINT {name} does not exist", "42000")

    # --- statements ---

    def read(self, statement: Callable[[GuardedTransaction], _Result], *, passing: bool = False) -> _Result:
        """Return a statement that writes nothing: in what is open, else in a transaction that nobody hears of.

        One in `passing`, which reads no table, opens nothing even where autocommit is off."""
        if self.open is None and not self.autocommit() and not passing:
            self.open = self.node.begin()
        if self.open is not None:
            return self._within(statement)
        return self._alone(statement, commit=False)

    def write(self, statement: Callable[[GuardedTransaction], _Result]) -> _Result:
        """Return a statement that writes; SqlRefused 1792 where nothing may be written."""
        if self.read_only:
            raise SqlRefused(_READ_ONLY, "Cannot execute statement in a READ ONLY transaction.", "25006")
        if self.open is None and not self.autocommit():
            self.open = self.node.begin()
        if self.open is not None:
            return self._within(statement)
        return self._alone(statement, commit=True)

    def _within(self, statement: Callable[[GuardedTransaction], _Result]) -> _Result:
        """In the open transaction, whole or not at all; locks of others are waited for."""
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
        """In a transaction of its own, tried again while that may help."""
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
        """How long to wait after each try; None after the last."""
        pause_s = _PAUSE_S
        for _ in range(_RETRIES):
            self.interrupted()
            yield pause_s
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        yield None


class LockingReads:
    """Reads of a transaction that lock the rows they find: SELECT .. FOR UPDATE."""

    def __init__(self, transaction: GuardedTransaction) -> None:
        self._transaction = transaction

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, locked."""
        self._transaction.lock(key)
        return self._transaction.get(key)

    def scan(self, start: bytes, end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return keys with values, locked."""
        for key, value in self._transaction.scan(start, end):
            self._transaction.lock(key)
            yield key, value
