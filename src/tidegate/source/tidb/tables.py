"""Which tables of a snapshot are replicated, and where their rows lie.

    snapshot ── filter rules ── can rows be told apart? ──► tables ──► spans of their ids, or of their partitions'

A table without a primary key or a unique key on NOT NULL columns is left out unless `force` is set; a sequence always
is.  A view has DDLs and no rows.

Source: TiCDC's filter and table eligibility.
"""

from collections.abc import Callable, Iterator

from tidegate.kv.table_key import table_span
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.schema.stored.table import table_info
from tidegate.source.tidb.log import Span

Matches = Callable[[str, str], bool]


def name_of(version: TableVersion) -> TableName:
    """Return the name of a table."""
    return TableName(version.schema, version.stored.name.original)


class Tables:
    """The choice of tables; verdicts are kept by id and version."""

    def __init__(self, matches: Matches, *, force: bool = False) -> None:
        self.matches, self.force = matches, force
        self._verdicts: dict[tuple[int, int], bool] = {}

    def eligible(self, version: TableVersion) -> bool:
        """Return whether rows of the table can be told apart, or are wanted all the same."""
        stored = version.stored
        if stored.is_sequence:
            return False
        if self.force or stored.is_view:
            return True
        known = stored.id, version.version
        if known not in self._verdicts:
            self._verdicts[known] = bool(definition_of(version).handle_key)
        return self._verdicts[known]

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
