"""Which tables of a snapshot are replicated, and where their rows lie.

    snapshot ── filter rules ── can rows be told apart? ──► tables ──► spans of their ids, or of their partitions'

A table without a primary key or a unique key on NOT NULL columns is left out unless `force` is set (by the user) or
the sink `keeps` such tables; a sequence always is.  A view has DDLs and no rows.

    feed        ├─ begin          CREATE t (a INT)      ALTER t ADD PRIMARY KEY       TRUNCATE t      DROP, CREATE t
    left out                      ├──────────────────── no DDL, no row ───────────────────────────────┤ carried

A table that was left out stays so when it gets a key: its CREATE and its rows from before are not downstream.  So does
one that a feed which goes on does not have, though its sink keeps such tables now.

Source: TiCDC's filter and table eligibility, and what a real one writes of such tables: nothing.
"""

from collections.abc import Callable, Container, Iterable, Iterator

from tidegate.kv.keys import table_span
from tidegate.model.left_out import LATE_KEY, NO_KEY, LeftOut
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion, table_info
from tidegate.source.tidb.log import Span

Matches = Callable[[str, str], bool]


def name_of(version: TableVersion) -> TableName:
    """Return the name of a table."""
    return TableName(version.schema, version.stored.name.original)


class Tables:
    """The choice of tables; verdicts are kept by id and version."""

    def __init__(self, matches: Matches, *, force: bool = False, keeps: bool = False) -> None:
        self.matches, self.force, self.keeps = matches, force, keeps
        self._verdicts: dict[tuple[int, int], bool] = {}
        self._bare: set[int] = set()
        self._out: set[int] = set()

    def eligible(self, version: TableVersion) -> bool:
        """Return whether rows of the table can be told apart, or are wanted all the same."""
        stored = version.stored
        if stored.is_sequence:
            return False
        if self.force or stored.is_view:
            return True
        return stored.id not in self._out and (self.keeps or self.has_key(version))

    def has_key(self, version: TableVersion) -> bool:
        """Return whether rows of the table can be told apart."""
        known = version.stored.id, version.version
        if known not in self._verdicts:
            self._verdicts[known] = bool(definition_of(version).handle_key)
        return self._verdicts[known]

    def meet(self, versions: Iterable[TableVersion], *, instead_of: int = 0, begun: bool = True) -> None:
        """Take notice of tables as they are now, `instead_of` one that was truncated, or as they were before a feed has
        `begun`."""
        for version in versions:
            stored = version.stored
            if stored.is_view or stored.is_sequence or not self.matches(*name_of(version)):
                continue
            if instead_of in self._out:
                self._out.add(stored.id)
            if not self.has_key(version):
                self._bare.add(stored.id)
                self._out |= {stored.id} if begun and not self.keeps else set()

    def carry(self, known: Container[tuple[str, str]], snapshot: StoredSnapshot) -> None:
        """Take notice of the tables that a feed which goes on has: others that were seen without a key stay out."""
        for version in snapshot.tables.values():
            if version.stored.id in self._bare and name_of(version).key not in known:
                self._out.add(version.stored.id)

    def left_out(self, snapshot: StoredSnapshot) -> tuple[LeftOut, ...]:
        """Return the tables of the filter whose rows are not sent."""
        found = (
            LeftOut(str(name_of(version)), LATE_KEY if self.has_key(version) else NO_KEY)
            for version in snapshot.tables.values()
            if self.matches(*name_of(version)) and not version.stored.is_sequence and not self.eligible(version)
        )
        return tuple(sorted(found, key=str))

    def replicated(self, snapshot: StoredSnapshot) -> Iterator[TableVersion]:
        """Return the tables whose rows are sent."""
        return filter(self.replicates, snapshot.tables.values())

    def replicates(self, version: TableVersion) -> bool:
        """Return True if the table's rows are sent."""
        return not version.stored.is_view and self.matches(*name_of(version)) and self.eligible(version)

    @staticmethod
    def spans(version: TableVersion) -> list[Span]:
        """Return where rows of a table lie."""
        return [table_span(physical_id) for physical_id in version.stored.physical_ids]


def definition_of(version: TableVersion) -> TableInfo:
    """Return the definition that rows of the table are mounted with."""
    return table_info(version.stored, version.schema, version.version, every_state=True)
