"""Transactions that keep to the schema of their begin, and what they may not commit into.

    begin               version 181 is pinned: definitions and start_ts belong together
    lock table t        with metadata locks: the first key of t that it touches; refused when t is newer by now (8028)
    commit              the lease of its node ran out            8027   it cannot know what the schema is
                        t changed since, no metadata locks       8028   its writes were made for another definition
                        t changed since, metadata locks          fine   the owner waits for it before the next step

Touched tables are known by the keys: the id behind `t` is that of a table or partition, whatever statement wrote it.

Source: TiDB pkg/infoschema/validator (commit check), pkg/domain (metadata lock check); F1's two versions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.kv.number import decode_int
from tidegate.model.errors import SchemaChanged, SchemaOutdated
from tidegate.model.tso import physical_ms
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.tidb.meta.load import LoadedSchema
from tidegate.tidb.store.mvcc import Verb
from tidegate.tidb.transaction import Options, Stage, Storage, Transaction

if TYPE_CHECKING:
    from tidegate.tidb.node import Node

__all__ = ["GuardedTransaction", "changed_tables", "physical_id", "physical_ids"]

_TABLE: Final = b"t"
_PREFIX_BYTES: Final = 9


def physical_id(key: bytes) -> int | None:
    """The id of the table or partition that a key belongs to; None for keys of no table."""
    if key[:1] != _TABLE or len(key) < _PREFIX_BYTES:
        return None
    return decode_int(key, 1)[0]


def physical_ids(keys: Iterable[bytes]) -> set[int]:
    """The ids of tables and partitions that own some of the keys."""
    prefixes = {key[:_PREFIX_BYTES] for key in keys}
    return {number for prefix in prefixes if (number := physical_id(prefix)) is not None}


def changed_tables(begun: StoredSnapshot, now: StoredSnapshot, ids: Iterable[int]) -> list[int]:
    """Which of the ids belong to another definition, or to none any more, or only now to one."""
    if begun is now:
        return []
    return sorted(number for number in ids if _differs(begun, now, number))


def _differs(begun: StoredSnapshot, now: StoredSnapshot, number: int) -> bool:
    old, new = begun.table_of(number) or begun.tables.get(number), now.table_of(number) or now.tables.get(number)
    if old is new:
        return False
    return old is None or new is None or old.stored != new.stored


class GuardedTransaction(Transaction):
    """A transaction of a node: `schema` holds for all its statements. Raises SchemaChanged, SchemaOutdated."""

    def __init__(self, node: "Node", storage: Storage, options: Options, loaded: LoadedSchema) -> None:
        super().__init__(storage, replace(options, check=self._admit))
        self.node, self.schema, self.schema_version = node, loaded.snapshot, loaded.version
        self.used: set[int] = set()
        self._known: set[bytes] = set()
        self.doomed = False
        """Set when its node lost its lease meanwhile: nobody waited for this transaction."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, of a table whose definition has not changed."""
        self._use(key)
        return super().get(key)

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys of one table, whose definition has not changed."""
        self._use(start)
        return super().scan(start, end, reverse=reverse)

    def _set(self, key: bytes, entry: tuple[Verb, bytes | None]) -> None:
        self._use(key)
        super()._set(key, entry)

    def steps(self) -> Iterator[Stage]:
        """The commit stage by stage; at its end, or wherever it is left, the node forgets the transaction."""
        try:
            yield from super().steps()
        finally:
            self.node.over(self)

    def rollback(self) -> None:
        """Forget everything."""
        super().rollback()
        self.node.over(self)

    def uses(self, table_ids: Iterable[int]) -> bool:
        """Whether it touched one of the tables, itself or a partition."""
        logical = {self.schema.logical.get(number, number) for number in self.used}
        return not self.used.isdisjoint(table_ids) or not logical.isdisjoint(table_ids)

    def _use(self, key: bytes) -> None:
        prefix = key[:_PREFIX_BYTES]
        if prefix in self._known:
            return
        number = physical_id(prefix)
        if number is not None:
            self._lock(number)
        self._known.add(prefix)

    def _lock(self, number: int) -> None:
        """Count as a user of a table from now on. Raises SchemaChanged with metadata locks."""
        with self.node.guard:
            if self.node.options.metadata_lock and (
                changed := changed_tables(self.schema, self.node.schema, (number,))
            ):
                raise self._changed(changed)
            self.used.add(number)

    def _admit(self, start_ts: int, commit_ts: int, keys: tuple[bytes, ...]) -> None:
        """The check of a commit (transaction.py)."""
        with self.node.guard:
            if self.doomed or physical_ms(commit_ts) > self.node.valid_until_ms:
                raise SchemaOutdated(
                    f"Information schema is out of date: node {self.node.name} has version {self.schema_version} and "
                    f"no lease at commit_ts {commit_ts} of start_ts {start_ts}; begin anew"
                )
            if self.node.options.metadata_lock:
                return
            if changed := changed_tables(self.schema, self.node.schema, physical_ids(keys)):
                raise self._changed(changed)

    def _changed(self, changed: list[int]) -> SchemaChanged:
        version = self.node.loaded.version
        return SchemaChanged(
            f"Information schema is changed in the transaction of start_ts {self.start_ts}: tables {changed} are of "
            f"version {version}, it began under {self.schema_version}; begin anew"
        )
