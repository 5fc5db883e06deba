"""Reading a lake: all tables at one timestamp.

    lake = tidegate.lake("/srv/lake")
    lake.tables()                       names at the newest snapshot
    lake.table("shop.orders", spark)    Spark DataFrame of that very version
    lake.sql("select …", spark)         a query over all tables of the snapshot
    lake.arrow("shop.orders")           Arrow table, no Spark needed; with where={"id": 17} one row, quickly

    lake.at(ts | datetime | text)       the newest snapshot at or below that time, with the schema of its own ts
    lake.live()                         including landed changes that are not merged yet: the state at the frontier
    lake.at(ts).live()                  the state at exactly `ts`

        snapshots      ──S1──────S2───────S3─ ─ ─ ─ ─ ─►  merged
        changelog      ──────────────────────────────F►  landed
        at(t)             │←──t                          S1: complete, of its own ts, at or before t
        at(t).live()      └───t                          S1 and the changes in (S1, t]
        live()                             └─────────F   S3 and the changes in (S3, F]

Every table is read at the version that the snapshot names, so all tables are of one ts.  A time may be given as

    470607233675427842             that TSO
    datetime(2026, 1, 2, 3, 4, 5)  the first TSO of that millisecond; without a zone it is UTC
    "2026-01-02T03:04:05Z"         the same
    "now"                          now
    "latest"                       the newest: None

`statements` gives the DDL that names a lake's tables in a metastore of Spark's (Hive, Unity, Glue):

    CREATE SCHEMA IF NOT EXISTS `shop`
    CREATE TABLE IF NOT EXISTS `shop`.`orders` USING delta LOCATION '/srv/lake/tables/7f-1'

A name of a metastore means the newest version of its table, not a published snapshot.  Run them again after tables were
created or renamed; old names stay until they are dropped, which removes no file.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from tidegate.changelog.changelog import Changelog
from tidegate.config.uri import location_of
from tidegate.expr.tokens import quote_name
from tidegate.lakes import sql as lake_sql
from tidegate.lakes.read import RowFilter, Where, chosen, is_local, spark_local, spark_rows, stored_rows, stored_table
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.name import lowered, table_key
from tidegate.model.table import TableInfo
from tidegate.model.tso import MAX_TS, compose, parse_ts, to_datetime
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, kept_schema, latest, numbered, numbers, published


def statements(options: DeltaOptions, snapshot: Snapshot, catalog: str | None = None) -> Iterator[str]:
    """Yield the SQL statements that register the tables of a snapshot, in `catalog` or the session's own."""
    prefix = f"{quote_name(catalog)}." if catalog else ""
    tables = sorted((table.name, options.table_uri(incarnation)) for incarnation, table in snapshot.tables.items())
    for schema in sorted({name.schema for name, _ in tables}):
        yield f"CREATE SCHEMA IF NOT EXISTS {prefix}{quote_name(schema)}"
    for name, uri in tables:
        location = uri.replace("\\", "\\\\").replace("'", "\\'")
        where = f"{prefix}{quote_name(name.schema)}.{quote_name(name.table)}"
        yield f"CREATE TABLE IF NOT EXISTS {where} USING delta LOCATION '{location}'"


if TYPE_CHECKING:
    from tidegate.lakes.live import Live

LATEST: Final = "latest"
KEPT: Final = 1 << 14
"""Published states of which LakeStates keeps the names that changed."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Moment: TypeAlias = int | str | datetime


def moment_ts(moment: Moment) -> int | None:
    """Return the TSO of a moment; None for the newest."""
    match moment:
        case str():
            return None if moment == LATEST else parse_ts(moment, now_ms=time.time_ns() // 1_000_000)
        case datetime():
            when = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            ms = (when - EPOCH) // timedelta(milliseconds=1)
            if ms < 0:
                raise ConfigError(f"{moment.isoformat()} is before 1970")
            return compose(ms)
        case _:
            if not 0 <= moment <= MAX_TS:
                raise ConfigError(f"{moment} is not a TSO: expected a number between 0 and {MAX_TS}")
            return moment


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """A published snapshot with the tables that changed: those at another version, under another name or shown for the
    first time (`changed`), and those no longer shown (`gone`)."""

    number: int
    checkpoint_ts: int
    published: datetime
    tables: int
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def time(self) -> datetime:
        return to_datetime(self.checkpoint_ts)


def moves(snapshots: Sequence[SnapshotChanges]) -> list[SnapshotChanges]:
    """Return those that changed a table, and the last one."""
    return [snapshot for snapshot in snapshots if snapshot.changed or snapshot.gone or snapshot is snapshots[-1]]


class LakeStates:
    """The published states of a lake, each of which is written once under its number: a question lists the numbers, and
    reads what no earlier question has read."""

    def __init__(self, options: DeltaOptions) -> None:
        self._options, schemas = options, lru_cache(2)(kept_schema)
        self._published = lru_cache(1)(partial(published, options))
        self._snapshot = lru_cache(2)(partial(numbered, options, schemas=schemas))
        self._ts = lru_cache(KEPT)(lambda number: self._published(number).checkpoint_ts)
        self._changed = lru_cache(KEPT)(self._changes)

    def at(self, ts: int | None) -> Snapshot:
        """Return the newest state, or the newest not above `ts`; an empty one if there is none."""
        every = numbers(self._options)
        index = len(every) if ts is None else bisect_right(every, ts, key=self._ts)
        return self._snapshot(every[index - 1]) if index else Snapshot()

    def changes(self, newest: int = 0) -> list[SnapshotChanges]:
        """Return the tables that each state changed, the oldest first; with `newest`, of the last states."""
        return [self._changed(*pair) for pair in [*pairwise([None, *numbers(self._options)])][-newest:]]

    def _changes(self, before: int | None, number: int) -> SnapshotChanges:
        tables = {} if before is None else self._tables(before)
        state, now = self._published(number), self._tables(number)
        changed = tuple(sorted(name for name in now if now[name] != tables.get(name)))
        gone, published_time = tuple(sorted(tables.keys() - now.keys())), to_datetime(compose(state.published_ms))
        return SnapshotChanges(number, state.checkpoint_ts, published_time, len(now), changed, gone)

    def _tables(self, number: int) -> dict[str, tuple[str, int]]:
        tables = self._published(number).tables
        return {str(table.name): (incarnation, table.version) for incarnation, table in tables.items()}


class Lake:
    """A lake at one snapshot: the newest, or the newest at or before a moment.

    Parameters:
        root: directory or URL of the lake
        ts: the moment, as in `at`
        changelog: of the lake, if it was opened before
        states: of the lake, if they were read before

    >>> lake = tidegate.lake("/srv/lake")
    >>> lake.tables()
    ['shop.orders']
    >>> lake.arrow("shop.orders", ["id", "item"], where={"id": 2}).to_pylist()
    [{'id': 2, 'item': 'milk'}]"""

    def __init__(
        self,
        root: str,
        ts: Moment = LATEST,
        *,
        changelog: Changelog | None = None,
        states: LakeStates | None = None,
    ) -> None:
        self.options = DeltaOptions(root=location_of(str(root), "lake"), feed="")
        self.ts = moment_ts(ts)
        self._states = states or LakeStates(self.options)
        self._changelog = changelog or Changelog(self.options.changelog_uri)
        self._live: Live | None = None

    def at(self, moment: Moment) -> "Lake":
        """Return this lake at the newest snapshot whose checkpoint is not above `moment`.

        `moment` is a TSO, a datetime (UTC unless it has a zone), such a text, or "latest". `checkpoint_ts` is the
        timestamp of the snapshot, which has the tables and columns of that time."""
        return Lake(self.options.root, moment, changelog=self._changelog)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The published snapshot."""
        published = self._published()
        if published.number < 0:
            bound = "" if self.ts is None else f" at or before {self.ts}"
            raise ConfigError(f"{self.options.root} holds no published snapshot{bound}")
        return published

    def _published(self) -> Snapshot:
        return self._states.at(self.ts)

    @property
    def checkpoint_ts(self) -> int:
        """Everything at or below it is in this snapshot."""
        return self.snapshot.checkpoint.ts

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(str(table.name) for table in self.snapshot.tables.values())

    def definition(self, name: str) -> TableInfo:
        """Return the table's definition at this snapshot."""
        return self._find(name)[1]

    def location(self, name: str) -> tuple[str, int]:
        """Return the address of a table's rows and their Delta version. Raises TableParked if they are of an earlier
        timestamp."""
        incarnation, table = self._find(name)
        self.snapshot.check_not_parked(table, self.options.root)
        return self.options.table_uri(incarnation), self.snapshot.tables[incarnation].version

    def stored(self, name: str) -> deltalog.TableSnapshot:
        """Return the Delta table at the version of this snapshot."""
        return stored_table(*self.location(name), name)

    def count(self, name: str) -> int:
        """Return the number of stored rows (of changes, for a table without a key), from the table's log alone."""
        return sum(file.rows for file in self.stored(name).files())

    def arrow(
        self, name: str, columns: Sequence[str] = (), limit: int | None = None, *, where: Where | None = None
    ) -> pa.Table:
        """Return the rows of a table as Arrow, in the order of its columns unless `columns` names some.

        `where` selects the rows whose columns have these values: `{"id": 17}`, `{"id": [17, 18]}`."""
        stored, table = self.stored(name), self.definition(name)
        lake_columns = stored_columns(stored)
        row_filter = RowFilter.of(where or {}, lake_columns, table)
        return stored_rows(
            stored, chosen(columns, [column.name for column in lake_columns], table), limit, row_filter=row_filter
        )

    def table(self, name: str, spark: Any = None) -> Any:
        """Return the rows of a table as a Spark DataFrame: of a small table the rows themselves, of a larger one
        Delta's."""
        from tidegate.spark.session import session

        spark, stored = spark or session(), self.stored(name)
        if is_local(stored):
            return spark_local(spark, stored_rows(stored), stored_columns(stored))
        return spark_rows(spark, stored.uri, stored.version)

    def sql(self, query: str, spark: Any = None) -> Any:
        """Return the DataFrame of a query, in Spark's SQL, over all tables of this snapshot by their names
        `db.table`."""
        from tidegate.spark.session import session

        tables = self.tables()  # what is wrong is told before Spark starts
        spark = spark or session()
        return lake_sql.run(spark, query, tables, lambda name: self.table(name, spark))

    def register(self, spark: Any, catalog: str | None = None) -> None:
        """Register all tables in the metastore of a session, where names mean the newest versions."""
        for statement in statements(self.options, self.snapshot, catalog):
            spark.sql(statement)

    def history(self, newest: int = 0) -> list[SnapshotChanges]:
        """Return every snapshot up to this moment, oldest first; with `newest`, the last ones of those."""
        if self.ts is None:
            return self._states.changes(newest)
        return [each for each in self._states.changes() if each.checkpoint_ts <= self.ts][-newest:]

    def moves(self) -> list[SnapshotChanges]:
        """Return the snapshots of `history` that changed a table, and the newest: an idle lake publishes its checkpoint
        every few seconds."""
        return moves(self.history())

    def live(self, *, refresh: bool = True, scratch: str | None = None) -> "Live":
        """Return all tables at the frontier: the newest snapshot and later landed changes. After `at(...)`: exactly at
        that moment, or one timestamp later for that of a DDL whose rows follow it.

        A view stays at its timestamp. Each call returns a newer one; `refresh=False` returns the last one again. An
        older moment can be read as long as the changelog keeps the changes above its snapshot.

        `scratch` is a directory or URL that Spark's executors can also read; the default is a temporary directory of
        this machine. It is used for tables that a DDL changed since the snapshot."""
        from tidegate.lakes.live import Live, reaches_back

        if self._live is None or (refresh and self.ts is None):
            base = self._published()
            self._changelog.refresh()
            newest = base if self.ts is None else latest(self.options)
            if newest.number != base.number and not reaches_back(self._changelog, base):
                raise HistoryLost(
                    f"{self.options.root}: the changelog does not reach back to the snapshot before {self.ts}; "
                    "at(...) without live() gives that snapshot"
                )
            self._live = Live(self.options.root, base, self._changelog, upto=self.ts, scratch=scratch)
        return self._live

    def _find(self, name: str) -> tuple[str, TableInfo]:
        folded, state = table_key(name), self.snapshot.state
        for incarnation, shown in self.snapshot.tables.items():
            if lowered(str(shown.name)) == folded:
                return incarnation, state.tables[shown.name.key]
        for table in state.tables.values():  # parked before its first row was stored
            if lowered(str(table.name)) == folded:
                self.snapshot.check_not_parked(table, self.options.root)
        names = ", ".join(self.tables()) or "none"
        raise ConfigError(f"no table {name} in {self.options.root} at ts {self.checkpoint_ts}; it has: {names}")
