"""Join PREWRITE and COMMIT of TiKV's change log into COMMITTED rows.

    PREWRITE  start_ts 5  key a  value 1  old_value 0  ──┐
    COMMIT    start_ts 5  key a  commit_ts 7  op PUT  ───┴──▶  COMMITTED  key a  5 to 7  PUT  value 1  old_value 0

    row           before INITIALIZED                               after INITIALIZED
    PREWRITE      store by (start_ts, key), see below              store
    COMMIT        match a PREWRITE that has a value and            must match, else PrewriteNotMatch
                  generation 0; put aside any other COMMIT
    ROLLBACK      put aside                                        remove the PREWRITE, if there is one
    COMMITTED     emit; forget the COMMIT put aside for it         emit
    INITIALIZED   match or forget each COMMIT put aside, then
                  remove the PREWRITE of each ROLLBACK put aside

Until INITIALIZED, live rows mix with those of the initial scan; only live rows older than the scan's snapshot are sure
to precede it.  So a live COMMIT can precede the scan's PREWRITE of its lock, or stand alone because its PREWRITE is
older than the registration; then the scan brings the row as COMMITTED:

    PREWRITE   start_ts 5  key a  no value      live, a heartbeat: stored
    COMMIT     start_ts 5  key a  commit_ts 7   live: put aside
    COMMITTED  start_ts 5  key a  commit_ts 7   scan, with the value: emitted; PREWRITE and COMMIT are forgotten

- A stored PREWRITE gives way only to a PREWRITE with a value and with no lower generation.  Heartbeats of older TiKV
  repeat a PREWRITE without its value; each flush of a pipelined transaction repeats it with a higher generation.
- A DELETE has no value by right, so its PREWRITE looks like a heartbeat: its COMMIT waits for INITIALIZED.
- The scan's COMMITTED follows the live COMMIT of the same row.  It removes a COMMIT that was put aside, whose PREWRITE
  may lack the value.  TiCDC's matcher keeps both, and emits a second row without a value at INITIALIZED.
- An emitted row has op, commit_ts and txn_source of its COMMIT, value and old_value of its PREWRITE.  The value that a
  COMMIT may carry is ignored.  A PUT has a value, which may be empty; a DELETE has None.
- No emitted row has commit_ts <= `checkpoint_ts`: the registration before delivered it.
- A row may be emitted twice, live and from the scan; both copies have the same (commit_ts, start_ts, key).
- A PREWRITE is never dropped for its age: a resolved ts above its start_ts does not exclude a later COMMIT, because a
  transaction may prewrite long after its start.

One matcher serves one registration of one region and ends with it.
Source: tiflow cdc/kv/matcher.go@c7b2588, ticdc logservice/logpuller@b813e76, tikv components/cdc/src@8e96471.
"""

from typing import TypeAlias

from tidegate.model.errors import PrewriteNotMatch, redacted
from tidegate.model.kv_change import KvChange, KvOp, LogType

_Id: TypeAlias = tuple[int, bytes]


class Matcher:
    """The matcher of one registration, which began at `checkpoint_ts`: it stores the rows that are not matched yet."""

    def __init__(self, checkpoint_ts: int) -> None:
        self.checkpoint_ts = checkpoint_ts
        self.initialized = False
        self._prewrites: dict[_Id, KvChange] = {}
        self._commits: dict[_Id, KvChange] = {}
        self._rollbacks: set[_Id] = set()

    @property
    def waiting(self) -> int:
        """Count stored PREWRITEs. One whose lock was removed without a record stays until the registration ends."""
        return len(self._prewrites)

    def apply(self, change: KvChange) -> list[KvChange]:
        """Take the next row of the log; return the COMMITTED rows that it completes. Raises PrewriteNotMatch."""
        change_id = (change.start_ts, change.key)
        match change.type:
            case LogType.PREWRITE:
                prewrite = self._prewrites.get(change_id)
                if prewrite is None or (change.value and change.generation >= prewrite.generation):
                    self._prewrites[change_id] = change
            case LogType.COMMIT:
                return self._commit(change_id, change)
            case LogType.ROLLBACK:
                self._rollback(change_id)
            case LogType.COMMITTED:
                if self._commits.pop(change_id, None) is not None:
                    self._prewrites.pop(change_id, None)
                return [change] if change.commit_ts > self.checkpoint_ts else []
            case LogType.INITIALIZED:
                return self._initialize()
        return []

    def _commit(self, change_id: _Id, commit: KvChange) -> list[KvChange]:
        prewrite = self._prewrites.get(change_id)
        if self.initialized and prewrite is None:
            raise PrewriteNotMatch(
                f"key {redacted(commit.key.hex())}: commit of start_ts {commit.start_ts} at {commit.commit_ts} has no "
                "prewrite; register the region anew"
            )
        # Before INITIALIZED the scan may still bring a better PREWRITE than a heartbeat or an early flush.
        if prewrite is None or not (self.initialized or (prewrite.value and prewrite.generation == 0)):
            self._commits.setdefault(change_id, commit)
            return []
        return self._matched(self._prewrites.pop(change_id), commit)

    def _rollback(self, change_id: _Id) -> None:
        if self.initialized:
            self._prewrites.pop(change_id, None)
        else:
            self._rollbacks.add(change_id)

    def _initialize(self) -> list[KvChange]:
        self.initialized = True
        pairs = [
            (self._prewrites.pop(change_id), commit)
            for change_id, commit in self._commits.items()
            if change_id in self._prewrites
        ]
        for change_id in self._rollbacks:
            self._prewrites.pop(change_id, None)
        self._commits.clear()
        self._rollbacks.clear()
        return [row for prewrite, commit in pairs for row in self._matched(prewrite, commit)]

    def _matched(self, prewrite: KvChange, commit: KvChange) -> list[KvChange]:
        if commit.commit_ts <= self.checkpoint_ts:
            return []
        value = None if commit.op is KvOp.DELETE else prewrite.value or b""
        fields = (commit.op, value, prewrite.old_value, commit.txn_source)
        return [KvChange(LogType.COMMITTED, commit.key, commit.start_ts, commit.commit_ts, *fields)]
