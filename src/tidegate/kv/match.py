"""Rows out of TiKV's change log: a commit gets the value that its prewrite brought.

    PREWRITE start 5 key a value 1 ──┐
    COMMIT   start 5 key a at 7 ─────┴──▶  COMMITTED key a value 1 start 5 at 7

    before INITIALIZED                                   after it
    a COMMIT may come before its PREWRITE: kept,         every COMMIT has its PREWRITE, or the stream is broken
      tried again at INITIALIZED, forgotten then         (PrewriteNotMatch)
      if its row came as COMMITTED from the scan
    a ROLLBACK may too: kept, undone at INITIALIZED      a ROLLBACK without PREWRITE is nothing

A PREWRITE of a put without a value after one with a value is a heartbeat of its transaction and changes nothing.  Rows
at or below `checkpoint_ts`, where the registration began, are the previous one's.  One matcher serves one registration.

Source: TiCDC's region worker and matcher; TiKV's cdc component.
"""

from typing import Final, TypeAlias

from tidegate.model.errors import PrewriteNotMatch
from tidegate.model.kv_change import KvChange, KvOp, LogType

__all__ = ["Matcher"]

_Id: TypeAlias = tuple[int, bytes]
_NONE: Final[list[KvChange]] = []


class Matcher:
    """What one registration still has to match."""

    def __init__(self, checkpoint_ts: int) -> None:
        self.checkpoint_ts = checkpoint_ts
        self.initialized = False
        self._prewrites: dict[_Id, KvChange] = {}
        self._commits: dict[_Id, KvChange] = {}
        self._rollbacks: set[_Id] = set()

    @property
    def waiting(self) -> int:
        """Prewrites that nobody has committed or rolled back yet."""
        return len(self._prewrites)

    def apply(self, change: KvChange) -> list[KvChange]:
        """The rows, as COMMITTED, that are known now. Raises PrewriteNotMatch."""
        match change.type:
            case LogType.PREWRITE:
                return self._prewrite(change)
            case LogType.COMMIT:
                return self._commit(change)
            case LogType.ROLLBACK:
                self._rollback((change.start_ts, change.key))
                return _NONE
            case LogType.COMMITTED:
                return [change] if change.commit_ts > self.checkpoint_ts else _NONE
            case LogType.INITIALIZED:
                return self._initialize()

    def _prewrite(self, change: KvChange) -> list[KvChange]:
        at = (change.start_ts, change.key)
        known = self._prewrites.get(at)
        if known is None or change.value or change.op is KvOp.DELETE:
            self._prewrites[at] = change
        return _NONE

    def _commit(self, change: KvChange) -> list[KvChange]:
        at = (change.start_ts, change.key)
        if at not in self._prewrites:
            if self.initialized:
                raise PrewriteNotMatch(
                    f"key {change.key.hex()}: commit of start_ts {change.start_ts} at {change.commit_ts} has no "
                    "prewrite; register the region anew"
                )
            self._commits[at] = change
            return _NONE
        return self._matched(self._prewrites.pop(at), change)

    def _rollback(self, at: _Id) -> None:
        if self._prewrites.pop(at, None) is None and not self.initialized:
            self._rollbacks.add(at)

    def _initialize(self) -> list[KvChange]:
        for at in self._rollbacks:
            self._prewrites.pop(at, None)
        pairs = [(self._prewrites.pop(at), commit) for at, commit in self._commits.items() if at in self._prewrites]
        self.initialized = True
        self._commits.clear()
        self._rollbacks.clear()
        return [row for prewrite, commit in pairs for row in self._matched(prewrite, commit)]

    def _matched(self, prewrite: KvChange, commit: KvChange) -> list[KvChange]:
        if commit.commit_ts <= self.checkpoint_ts:
            return _NONE
        fields = (prewrite.op, prewrite.value, prewrite.old_value)
        return [KvChange(LogType.COMMITTED, commit.key, commit.start_ts, commit.commit_ts, *fields)]
