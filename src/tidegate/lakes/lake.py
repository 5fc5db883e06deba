"""Reading a lake: all tables at one timestamp.

    lake = tidegate.lake("/srv/lake")
    lake.tables()                       names at the newest snapshot
    lake.table("shop.orders", spark)    Spark DataFrame of that very version
    lake.sql("select …", spark)         a query over all tables of the snapshot
    lake.arrow("shop.orders")           Arrow table, no Spark needed; with where={"id": 17} one row, quickly

    lake.at(ts | datetime | text)       the newest snapshot at or below that time, with the schema of its own ts
    lake.live()                         including what has landed but is not merged yet: the state at the frontier
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from tidegate.changelog.changelog import Changelog
from tidegate.config.uri import place_of
from tidegate.expr.tokens import quote_name
from tidegate.lakes import sql as lake_sql
from tidegate.lakes.read import Wanted, Where, chosen, is_local, spark_local, spark_rows, stored_rows, stored_table
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.name import lowered, table_key
from tidegate.model.table import TableInfo
from tidegate.model.tso import MAX_TS, compose, parse_ts, to_datetime
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, history, latest, published_at


def statements(options: DeltaOptions, snapshot: Snapshot, catalog: str | None = None) -> Iterator[str]:
    """Return the statements for the tables of a snapshot, in `catalog` or the session's own."""
    prefix = f"{quote_name(catalog)}." if catalog else ""
    tables = sorted((table.name, options.table_uri(incarnation)) for incarnation, table in snapshot.tables.items())
    for schema in sorted({name.schema for name, _ in tables}):
        yield f"CREATE SCHEMA IF NOT EXISTS {prefix}{quote_name(schema)}"
    for name, place in tables:
        location = place.replace("\\", "\\\\").replace("'", "\\'")
        where = f"{prefix}{quote_name(name.schema)}.{quote_name(name.table)}"
        yield f"CREATE TABLE IF NOT EXISTS {where} USING delta LOCATION '{location}'"


if TYPE_CHECKING:
    from tidegate.lakes.live import Live

LATEST: Final = "latest"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Moment: TypeAlias = int | str | datetime


def moment_ts(moment: Moment) -> int | None:
    """Return the TSO that a moment means; None for the newest."""
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
                raise ConfigError(f"{moment} is no TSO: it must lie between 0 and {MAX_TS}")
            return moment


@dataclass(frozen=True, slots=True)
class Moved:
    """A published snapshot, and which tables it shows at another version, under another name or for the first time
    (`changed`) or not any more (`gone`) compared with the one before."""

    number: int
    checkpoint_ts: int
    published: datetime
    tables: int
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def time(self) -> datetime:
        return to_datetime(self.checkpoint_ts)


class Lake:
    """A lake at one snapshot: the newest, or the newest at or before a moment."""

    def __init__(self, root: str, ts: Moment = LATEST, *, changelog: Changelog | None = None) -> None:
        self.options = DeltaOptions(root=place_of(str(root), "lake"), feed="")
        self.ts = moment_ts(ts)
        self._changelog = changelog or Changelog(self.options.changelog_uri)
        self._live: Live | None = None

    def at(self, moment: Moment) -> "Lake":
        """Return this lake at the newest snapshot whose checkpoint is not above `moment`.

        A TSO, a datetime (UTC unless it has a zone), such a text, or "latest". `checkpoint_ts` tells the ts that it
        is; a snapshot has the tables and columns of its own ts."""
        return Lake(self.options.root, moment, changelog=self._changelog)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The published snapshot."""
        found = self._published()
        if found.number < 0:
            at = "" if self.ts is None else f" at or before {self.ts}"
            raise ConfigError(f"{self.options.root} holds no published snapshot{at}")
        return found

    def _published(self) -> Snapshot:
        return latest(self.options) if self.ts is None else published_at(self.options, self.ts)

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

    def place(self, name: str) -> tuple[str, int]:
        """Return where the table's rows lie and at which Delta version. TableParked when they are of an earlier ts."""
        incarnation, table = self._find(name)
        self.snapshot.check_not_parked(table, self.options.root)
        return self.options.table_uri(incarnation), self.snapshot.tables[incarnation].version

    def stored(self, name: str) -> deltalog.TableSnapshot:
        """Return the table as Delta has it, at the version of this snapshot."""
        return stored_table(*self.place(name), name)

    def count(self, name: str) -> int:
        """Return how many rows are stored (changes, for a table without a key), from the table's log alone."""
        return sum(file.rows for file in self.stored(name).files())

    def arrow(
        self, name: str, columns: Sequence[str] = (), limit: int | None = None, *, where: Where | None = None
    ) -> pa.Table:
        """Return the table's rows as Arrow, columns in the upstream's order unless `columns` names some.

        `where` asks for the rows whose columns have these values: `{"id": 17}`, `{"id": [17, 18]}`."""
        stored, table = self.stored(name), self.definition(name)
        known = stored_columns(stored)
        wanted = Wanted.of(where or {}, known, table)
        return stored_rows(stored, chosen(columns, [one.name for one in known], table), limit, wanted=wanted)

    def table(self, name: str, spark: Any = None) -> Any:
        """Return the table's rows as a Spark DataFrame: of a small table the rows themselves, of a larger one
        Delta's."""
        from tidegate.spark.session import session

        spark, stored = spark or session(), self.stored(name)
        if is_local(stored):
            return spark_local(spark, stored_rows(stored), stored_columns(stored))
        return spark_rows(spark, stored.uri, stored.version)

    def sql(self, query: str, spark: Any = None) -> Any:
        """Return the DataFrame of a query, Spark's SQL, over all tables of this snapshot by their names `db.table`."""
        from tidegate.spark.session import session

        tables = self.tables()  # what is wrong is told before Spark starts
        spark = spark or session()
        return lake_sql.run(spark, query, tables, lambda name: self.table(name, spark))

    def register(self, spark: Any, catalog: str | None = None) -> None:
        """Give all tables their names in the metastore of a session. Names mean newest versions there."""
        for statement in statements(self.options, self.snapshot, catalog):
            spark.sql(statement)

    def history(self, newest: int = 0) -> list[Moved]:
        """Return every snapshot up to this moment, the oldest first; with `newest` those among the last so many."""
        found: list[Moved] = []
        before: dict[str, tuple[str, int]] = {}
        for one in history(self.options, newest and newest + 1):
            if self.ts is not None and one.checkpoint_ts > self.ts:
                break
            now = {str(table.name): (incarnation, table.version) for incarnation, table in one.tables.items()}
            changed = tuple(sorted(name for name in now if now[name] != before.get(name)))
            gone = tuple(sorted(before.keys() - now.keys()))
            published = to_datetime(one.published_ms << 18)
            found.append(Moved(one.number, one.checkpoint_ts, published, len(now), changed, gone))
            before = now
        return found[-newest:]

    def moves(self, newest: int = 0) -> list[Moved]:
        """Return the snapshots of `history` that changed a table, and the newest: an idle lake publishes its checkpoint
        every few seconds."""
        found = self.history(newest)
        return [one for one in found if one.changed or one.gone or one is found[-1]]

    def live(self, *, refresh: bool = True, scratch: str | None = None) -> "Live":
        """Return all tables at the frontier: the newest snapshot and what has landed since. At a moment of `at`:
        exactly then.

        A view stays at the ts at which it was made; each call makes a newer one, with `refresh=False` the last one is
        given again. An older moment can be had as long as the changelog keeps what came after its snapshot.

        `scratch` is a directory or URL that Spark's executors can read as well; the default is a temporary directory of
        this machine. It is used for tables that a DDL touched since the snapshot."""
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
        for incarnation, published in self.snapshot.tables.items():
            if lowered(str(published.name)) == folded:
                return incarnation, state.tables[published.name.key]
        for table in state.tables.values():  # parked before its first row was stored
            if lowered(str(table.name)) == folded:
                self.snapshot.check_not_parked(table, self.options.root)
        known = ", ".join(self.tables()) or "none"
        raise ConfigError(f"no table {name} in {self.options.root} at ts {self.checkpoint_ts}; it has: {known}")
