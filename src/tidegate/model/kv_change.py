"""Change capture events of TiKV: changes of keys, before they are mapped to tables.

    PREWRITE    key, value, old value, start_ts      a lock was written; it may commit or roll back
    COMMIT      key, start_ts, commit_ts             the value came with the prewrite of (start_ts, key)
    ROLLBACK    key, start_ts                        the prewrite of (start_ts, key) is void
    COMMITTED   all of it in one                     one-phase commits, and rows that a registration finds
    INITIALIZED nothing                              the scan of existing rows is complete

    ResolvedSpan  nothing with commit_ts <= ts is still to come in [start, end)
    RegionFault   the registration is over: register again from the last resolved ts

`value` and `old_value` are None where there is none: a delete has no value, an insert no old value.  `txn_source`
identifies the writer of a transaction; change capture omits those with a bit of LOSSY_DDL or above.
`generation` counts from 1 the flushes of a pipelined transaction, which may prewrite a key more than once; it is 0 for
other rows, and always 0 from a TiKV that does not send it (all but 8.4.0 to 8.5.3, 9.0.0-beta.1 and beta.2).
Source: kvproto cdcpb (numbers and names); reference behaviour of TiKV's cdc component.
"""

from enum import Enum, IntEnum
from typing import Final, TypeAlias

import msgspec

LOSSY_DDL: Final = 1 << 8
"""The source of rewrites by which a DDL changes the bytes of a column."""
WRITE_SOURCE: Final = LOSSY_DDL - 1
"""The lower bits: which replication wrote the row (tidb_cdc_write_source), 0 for a user."""


class LogType(IntEnum):
    """The type of an event, with cdcpb's numbers."""

    PREWRITE = 1
    COMMIT = 2
    ROLLBACK = 3
    COMMITTED = 4
    INITIALIZED = 5


class KvOp(IntEnum):
    """The operation on a key, with cdcpb's numbers."""

    UNKNOWN = 0
    PUT = 1
    DELETE = 2


class KvChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event of one key. `commit_ts` is 0 until it is known."""

    type: LogType
    key: bytes
    start_ts: int
    commit_ts: int = 0
    op: KvOp = KvOp.UNKNOWN
    value: bytes | None = None
    old_value: bytes | None = None
    txn_source: int = 0
    generation: int = 0


class ResolvedSpan(msgspec.Struct, frozen=True):
    """A resolved timestamp of the keys in [start, end): no later event has `commit_ts <= ts`. An empty `end` is no
    bound."""

    start: bytes
    end: bytes
    ts: int


class FaultKind(Enum):
    """The reason why a region ends a registration."""

    NOT_LEADER = "not leader"
    EPOCH_NOT_MATCH = "epoch not match"
    REGION_NOT_FOUND = "region not found"
    CONGESTED = "congested"


class RegionFault(msgspec.Struct, frozen=True):
    """The last event of a registration."""

    kind: FaultKind
    region_id: int


KvEvent: TypeAlias = KvChange | ResolvedSpan | RegionFault
"""An event of a registration."""
