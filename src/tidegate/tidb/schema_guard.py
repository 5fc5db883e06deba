"""Tables that a transaction touched, and which of them are no longer what they were when it began.

    begin               version 181 is pinned: definitions and start_ts belong together
    lock table t        with metadata locks: the first key of t that it touches; refused when t is newer by now (8028)
    commit              the lease of its node ran out            8027   it cannot know what the schema is
                        t changed since, no metadata locks       8028   its writes were made for another definition
                        t changed since, metadata locks          fine   the owner waits for it before the next step

Touched tables are known by the keys: the id behind `t` is that of a table or partition, whatever statement wrote it.

Source: TiDB pkg/infoschema/validator (commit check), pkg/domain (metadata lock check); F1's two versions.
"""

from collections.abc import Iterable
from typing import Final

from tidegate.kv.number import decode_int
from tidegate.schema.stored.snapshot import StoredSnapshot

__all__ = ["PREFIX_BYTES", "changed_tables", "physical_id", "physical_ids"]

_TABLE: Final = b"t"
PREFIX_BYTES: Final = 9


def physical_id(key: bytes) -> int | None:
    """Return the id of the table or partition that a key belongs to; None for keys of no table."""
    if key[:1] != _TABLE or len(key) < PREFIX_BYTES:
        return None
    return decode_int(key, 1)[0]


def physical_ids(keys: Iterable[bytes]) -> set[int]:
    """Return the ids of tables and partitions that own some of the keys."""
    prefixes = {key[:PREFIX_BYTES] for key in keys}
    return {number for prefix in prefixes if (number := physical_id(prefix)) is not None}


def changed_tables(begun: StoredSnapshot, now: StoredSnapshot, ids: Iterable[int]) -> list[int]:
    """Return which of the ids belong to another definition, or to none any more, or only now to one."""
    if begun is now:
        return []
    return sorted(number for number in ids if _differs(begun, now, number))


def _differs(begun: StoredSnapshot, now: StoredSnapshot, number: int) -> bool:
    old, new = begun.table_of(number) or begun.tables.get(number), now.table_of(number) or now.tables.get(number)
    if old is new:
        return False
    return old is None or new is None or old.stored != new.stored
