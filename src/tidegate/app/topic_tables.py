"""The tables that a changefeed into topics replicates now, and the topics that they go to.

    schema at the checkpoint ─► filter, eligible? ─► tables by id ─► dispatchers ─► topics, the default one among them

Reckoned once for each schema: between two DDLs nothing of it changes.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidegate.feed.route import Router
from tidegate.schema.stored_snapshot import StoredSnapshot, TableVersion
from tidegate.source.tidb.tables import name_of
from tidegate.source.tidb.timeline import Timeline

__all__ = ["ActiveTables"]


class _Reckoned(NamedTuple):
    snapshot: StoredSnapshot
    tables: Mapping[int, TableVersion]
    topics: Mapping[str, None]


class ActiveTables:
    """Those of the schema at which a timeline stands."""

    def __init__(self, timeline: Timeline, router: Router) -> None:
        self._timeline, self._router = timeline, router
        self._reckoned: _Reckoned | None = None

    @property
    def tables(self) -> Collection[TableVersion]:
        """The tables."""
        return self._now().tables.values()

    @property
    def topics(self) -> Collection[str]:
        """The topics of their rows, and the default one."""
        return self._now().topics.keys()

    def with_rows(self, rows: Mapping[int, int]) -> list[tuple[TableVersion, int]]:
        """The tables of which there may be rows, and how many; `rows` counts by physical id, that of a partition."""
        logical, active, counts = self._timeline.snapshot.logical, self._now().tables, dict[int, int]()
        for physical_id, count in rows.items():
            table_id = logical.get(physical_id)
            if table_id is not None and table_id in active:
                counts[table_id] = counts.get(table_id, 0) + count
        return [(active[table_id], count) for table_id, count in sorted(counts.items())]

    def _now(self) -> _Reckoned:
        snapshot = self._timeline.snapshot
        if self._reckoned is None or self._reckoned.snapshot is not snapshot:
            tables = {version.stored.id: version for version in self._timeline.tables.replicated(snapshot)}
            topics = self._router.watermark_topics(map(name_of, tables.values()))
            self._reckoned = _Reckoned(snapshot, tables, dict.fromkeys(topics))
        return self._reckoned
