"""Which index a table has, and what a DDL makes of it. Pure.

    CREATE, TRUNCATE                     a new index, empty
    DROP                                 the table has none any more
    RENAME                               the index stays, under another alias
    ALTER, where rows or mapping change  a new index, filled from the old one
    DROP and TRUNCATE PARTITION          a new index, filled with the other rows
    EXCHANGE PARTITION                   two new indexes, filled from the two old ones

    orders ─► index a ──ALTER──► index b (filled from a) ──TRUNCATE──► index c
              read until the checkpoint is behind the DDL     then the alias moves, and a goes

An index that a DDL leaves gets no more rows, so that the DDL can be done again, from its begin.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from tidegate.model.errors import SinkRefused
from tidegate.model.event import UNTOLD, ToldSession
from tidegate.model.table import TableInfo, TableName
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.sink.documents.change import altered
from tidegate.sink.search.mapping import IndexRule, mapping_of


class TableIndex(msgspec.Struct, frozen=True):
    """The index of a table, and its mapping as text."""

    schema: str
    table: str
    index: str
    mapping: str

    @property
    def name(self) -> TableName:
        """The table's name."""
        return TableName(self.schema, self.table)


Indexes: TypeAlias = Mapping[tuple[str, str], TableIndex]
"""By the key of the table's name."""


class Part(msgspec.Struct, frozen=True):
    """Rows of an old index that go into a new one.

    `how`: as they are, as ALTER makes them, or under the columns of the new table. With `partitions`, those rows alone
    that lie in them, or that do not (`within`)."""

    index: str
    old: TableInfo
    how: Literal["copy", "alter", "columns"] = "copy"
    partitions: tuple[str, ...] = ()
    within: bool = True


class Filling(msgspec.Struct, frozen=True):
    """A new index and what it is filled with."""

    made: TableIndex
    table: TableInfo
    parts: tuple[Part, ...] = ()


class Follower:
    """Follows the effects of one DDL; `name` makes the name of a table's next index."""

    def __init__(
        self,
        indexes: Indexes,
        rules: Sequence[IndexRule],
        name: Callable[[TableInfo], str],
        *,
        time_zone: str,
        commit_ts: int,
        session: ToldSession = UNTOLD,
    ) -> None:
        self.indexes = dict(indexes)
        self._rules, self._name = rules, name
        self._zone, self._ts, self._session = time_zone, commit_ts, session

    def follow(self, found: Sequence[Effect]) -> Iterator[Filling]:
        """Return what is to be filled, in order. SinkRefused for rows that no index has any more."""
        for effect in found:
            match effect:
                case effects.TableCreated(table):
                    yield from self._made(table)
                case effects.TableDropped(old):
                    self.indexes.pop(old.name.key, None)
                case effects.TableTruncated(old, new):
                    self.indexes.pop(old.name.key, None)
                    yield from self._made(new)
                case effects.TableRenamed(old, new):
                    yield from self._renamed(old, new)
                case effects.TableAltered(old, new):
                    yield from self._altered(old, new)
                case effects.PartitionsTruncated(old, names, new) | effects.PartitionsDropped(old, names, new):
                    yield from self._kept(old, new, Part("", old, partitions=names, within=False))
                case effects.PartitionExchanged():
                    yield from self._exchanged(effect)
                case effects.TableRecovered(table):
                    raise SinkRefused(
                        f"table {table.name} came back with rows that the index does not have any more; begin a new "
                        "changefeed with them, or leave the DDL out by an event filter"
                    )

    def ensure(self, table: TableInfo) -> Iterator[Filling]:
        """Give a table an index of its mapping, filled from another one that it has."""
        if not self._is_as_wanted(table):
            yield from self._kept(table, table, Part("", table))
            if table.name.key not in self.indexes:
                yield from self._made(table)

    def _is_as_wanted(self, table: TableInfo) -> bool:
        found = self.indexes.get(table.name.key)
        return found is not None and found.mapping == mapping_of(table, self._rules).text

    def _made(self, table: TableInfo, *parts: Part) -> Iterator[Filling]:
        self.indexes.pop(table.name.key, None)
        if table.handle_key:
            made = TableIndex(*table.name, self._name(table), mapping_of(table, self._rules).text)
            self.indexes[table.name.key] = made
            yield Filling(made, table, parts)

    def _renamed(self, old: TableInfo, new: TableInfo) -> Iterator[Filling]:
        found = self.indexes.pop(old.name.key, None)
        if found is not None:
            self.indexes[new.name.key] = msgspec.structs.replace(found, schema=new.name.schema, table=new.name.table)
            yield from self.ensure(new)

    def _altered(self, old: TableInfo, new: TableInfo) -> Iterator[Filling]:
        if not old.handle_key or not new.handle_key:
            yield from self._made(new)
        elif altered(old, new, self._zone, self._ts, self._session, keeps_null=True) is not None:
            yield from self._kept(old, new, Part("", old, "alter"))
        else:
            yield from self.ensure(new)

    def _kept(self, old: TableInfo, new: TableInfo, *parts: Part) -> Iterator[Filling]:
        """A new index of `new` from that of `old`."""
        if (found := self.indexes.get(old.name.key)) is not None:
            yield from self._made(new, *(msgspec.structs.replace(part, index=found.index) for part in parts))

    def _exchanged(self, effect: effects.PartitionExchanged) -> Iterator[Filling]:
        partitioned, other = (self.indexes.get(table.name.key) for table in (effect.partitioned, effect.other))
        if partitioned is None or other is None:
            return
        chosen = (effect.partition,)
        yield from self._made(effect.new_other, Part(partitioned.index, effect.partitioned, "columns", chosen))
        stays = Part(partitioned.index, effect.partitioned, "columns", chosen, within=False)
        yield from self._made(effect.new_partitioned, stays, Part(other.index, effect.other, "columns"))
