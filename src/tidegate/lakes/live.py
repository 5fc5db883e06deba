"""The live view: all tables of a lake at one ts above the published snapshot, by applying landed changes on the fly.

    snapshot at C ──────────┐         table without a DDL in (C, F]:  its stored rows minus the changed keys, plus
                            ├─► F     the rows that exist afterwards; nothing is written
    changelog in (C, F] ────┘         any other:  its unit of steps, as the feed would run it, on a clone

The snapshot is fixed first, then the changelog is read up to the frontier F, so what the feed publishes meanwhile does
not matter.  The plan is the feed's own (`engine/plan.py`): the same cuts, the same steps, for all tables at one ts.
Only changelog files with changes above C are opened.

A frame of a small table holds its rows themselves (`is_local` in read.py): a point query on it is planned and answered
without a Spark job.  A larger one is stored files and a join.

A clone is a Delta log of its own that refers to the data files of the origin; no row is copied:

    origin  tables/7f-1/   _delta_log   part-a  part-b                      unchanged
                                          ▲       ▲
    clone   tmp/tables/7f-1/ _delta_log ──┴───────┘   add {"path": "/srv/lake/tables/7f-1/part-a"}
                             part-c                   what was written since

It has the position of the version that it was made of, so a unit of steps runs on it as it would on the origin
(`sink/delta/apply.py`).

Invariants: a view never changes; all of its tables are at `ts`; each table is what the feed will have merged when its
checkpoint is `ts`.

Source: the Delta protocol document, "Add File" (absolute paths).
"""

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import obstore
import pyarrow as pa

from tidegate.changelog.changelog import Changelog
from tidegate.changelog.files import ChangeSlice
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import Create, Round, Rows, Step
from tidegate.engine.segment import Planning, plan_landed
from tidegate.lakes import sql as lake_sql
from tidegate.lakes.read import (
    NOTHING,
    RowFilter,
    Tail,
    Where,
    chosen,
    is_local,
    overlaid,
    spark_local,
    spark_overlaid,
    spark_stored,
    stored_rows,
    stored_table,
)
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.name import lowered, table_key
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import DataFile, TableSnapshot
from tidegate.objectstore.stores import store
from tidegate.sink.delta.apply import run_unit
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import NetChanges, if_any, log_rows, net_changes
from tidegate.sink.delta.snapshots import Snapshot, check_round, position, progress


class Scratch:
    """Directories for clones, created on demand: below `home`, or temporary ones of this machine."""

    def __init__(self, home: str | None = None) -> None:
        self._home = home
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._uris: list[str] = []

    def new_uri(self) -> str:
        """Return the address of a new, empty directory."""
        if self._home is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidegate-live-", ignore_cleanup_errors=True)
        home = self._temporary.name if self._temporary else str(self._home).rstrip("/")
        self._uris.append(f"{home}/{uuid.uuid4().hex}")
        return self._uris[-1]

    def close(self) -> None:
        """Remove all directories."""
        for uri in self._uris:
            if "://" in uri:
                where = store(uri)
                for batch in obstore.list(where):
                    obstore.delete(where, [entry["path"] for entry in batch])
            else:
                shutil.rmtree(uri, ignore_errors=True)
        self._uris = []
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def clone(origin: TableSnapshot, uri: str, feed: str) -> None:
    """Create a table at `uri` with the rows and the position of `origin`."""
    base = origin.uri if "://" in origin.uri else str(Path(origin.uri).resolve())
    adds = [
        deltalog.add(f"{base}/{file.path}", file.size_bytes, _stats(file), partition=file.partition)
        for file in origin.files()
    ]
    deltalog.create(
        uri,
        origin.fields,
        [*progress(feed, position(origin, feed)), *adds],
        metadata={"feed": feed, "clone": origin.uri, "version": origin.version},
        partition_columns=origin.partition_columns,
        configuration=origin.configuration,
    )


def _stats(file: DataFile) -> Mapping[str, Any]:
    """Return the bounds that JSON represents exactly; others would only avoid reads."""
    both = {
        name for name, low in file.lows.items() if type(low) in (int, str) and type(file.highs.get(name)) is type(low)
    }
    lows, highs = ({name: bounds[name] for name in both} for bounds in (file.lows, file.highs))
    return {"numRecords": file.rows, "minValues": lows, "maxValues": highs}


T = TypeVar("T")


class Live:
    """All tables of a lake at `ts`, ahead of the merged ones; created by `Lake.live`.

    For a table that a DDL changed since the snapshot, files are written to a temporary directory. It is removed with
    `close`, at the end of a `with` block, or with the view; once Spark has got such a table, at the end of the
    program.

    >>> with tidegate.lake("/srv/lake").live() as live:
    ...     live.arrow("shop.orders", where={"id": 1}).to_pylist()
    [{'id': 1, 'item': 'tea'}]"""

    def __init__(
        self, root: str, base: Snapshot, changelog: Changelog, *, upto: int | None = None, scratch: str | None = None
    ) -> None:
        options = base.options or DeltaOptions(root=root, feed=changelog.state.feed)
        self.options = msgspec.structs.replace(options, root=root)
        self.base = base
        self.ts = _end_ts(root, base, changelog, upto)
        self._slice, self._round = planned(base, changelog, self.ts, self.options)
        check_round(base, self._round, self.options)
        self._units = {step_table.incarnation: unit for unit in self._round.units for step_table in unit.tables}
        self._directory = Scratch(scratch)
        self._clones: dict[str, tuple[str, int]] = {}

    @property
    def checkpoint_ts(self) -> int:
        return self.ts

    @property
    def files(self) -> tuple[str, ...]:
        """The changelog's files with the changes that the snapshot lacks, sorted; no others are read for rows."""
        return tuple(sorted({group.path for group in self._slice.groups}))

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(str(table.name) for table in self._round.state.tables.values() if self._is_stored(table))

    def definition(self, name: str) -> TableInfo:
        """Return a table's definition at this timestamp."""
        folded = table_key(name)
        for table in self._round.state.tables.values():
            if lowered(str(table.name)) == folded and self._is_stored(table):
                return table
        names = ", ".join(self.tables()) or "none"
        raise ConfigError(f"no table {name} in {self.options.root} at ts {self.ts}; it has: {names}")

    def arrow(
        self, name: str, columns: Sequence[str] = (), limit: int | None = None, *, where: Where | None = None
    ) -> pa.Table:
        """Return the rows of a table as Arrow, in the order of its columns unless `columns` names some.

        `where` selects the rows whose columns have these values (`{"id": 17}`, `{"id": [17, 18]}`): stored files whose
        bounds exclude them are not opened, so looking up a key takes some milliseconds."""
        table = self.definition(name)
        stored, tail = self._rows_of(table)
        row_filter = RowFilter.of(where or {}, stored_columns(stored), table)
        rows = row_filter.matching(overlaid(stored_rows(stored, row_filter=row_filter), tail))
        if columns:
            rows = rows.select(chosen(columns, rows.column_names, table))
        return rows if limit is None else rows.slice(0, limit)

    def table(self, name: str, spark: Any = None) -> Any:
        """Return the rows of a table as a Spark DataFrame."""
        from tidegate.spark.session import session

        spark = spark or session()
        table = self.definition(name)
        stored, tail = self._rows_of(table)
        if is_local(stored, tail):
            return spark_local(spark, overlaid(stored_rows(stored), tail), stored_columns(stored))
        if self._touched(table):
            atexit.register(self.close)
        return spark_overlaid(spark, spark_stored(spark, stored), tail)

    def sql(self, query: str, spark: Any = None) -> Any:
        """Return the DataFrame of a query, in Spark's SQL, over all tables of this view by their names `db.table`."""
        from tidegate.spark.session import session

        tables = self.tables()  # what is wrong is told before Spark starts
        spark = spark or session()
        return lake_sql.run(spark, query, tables, lambda name: self.table(name, spark))

    def pieces(self, name: str) -> tuple[deltalog.TableSnapshot, Tail]:
        """Return a stored table and its tail; for a table that a DDL changed, a clone that ends with the view."""
        return self._rows_of(self.definition(name))

    def is_clone(self, stored: deltalog.TableSnapshot) -> bool:
        """Return True for a table of `pieces` that the view wrote."""
        return any(stored.uri == uri for uri, _ in self._clones.values())

    def close(self) -> None:
        """Remove the view's files; its frames of tables that a DDL changed can no longer be read."""
        atexit.unregister(self.close)
        self._clones = {}
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_stored(self, table: TableInfo) -> bool:
        unit = self._units.get(table.incarnation)
        recreated = unit is not None and any(
            isinstance(step, Create) and step.table.incarnation == table.incarnation for step in unit.steps
        )
        stored = table.incarnation in self.base.tables or table.incarnation in self.base.retired
        return recreated or stored or self.base.group(table.incarnation) is not None

    def _touched(self, table: TableInfo) -> bool:
        """Return True if a table changed by more than rows since the snapshot, or its rows are more than replaced."""
        unit = self._units.get(table.incarnation)
        if unit is None:
            return False
        return self.options.mode != "replica" or not all(isinstance(step, Rows) for step in unit.steps)

    def _rows_of(self, table: TableInfo) -> tuple[deltalog.TableSnapshot, Tail]:
        """Return a stored table and its tail; for a table that a DDL changed, a clone at this timestamp."""
        self.base.check_not_parked(table, self.options.root)
        if self._touched(table):
            return stored_table(*self._cloned(table), str(table.name)), NOTHING
        stored = self._stored(table)
        return stored, self._tail(table, stored)

    def _stored(self, table: TableInfo) -> deltalog.TableSnapshot:
        published = self.base.tables.get(table.incarnation)
        version = self.base.retired[table.incarnation] if published is None else published.version
        return stored_table(self.options.table_uri(table.incarnation), version, str(table.name))

    def _tail(self, table: TableInfo, stored: deltalog.TableSnapshot) -> Tail:
        """Return the rows since the snapshot, each range read with the table's name and definition then."""
        unit = self._units.get(table.incarnation)
        merged_ts, _ = position(stored, self.options.feed)
        columns = stored_columns(stored)
        steps = unit.steps if unit is not None else ()
        parts = [_read(self._following, step, merged_ts, columns) for step in steps]
        return Tail(tuple(part for part in parts if part is not None))

    def _following(self, step: Step, merged_ts: int, columns: Sequence[LakeColumn]) -> NetChanges | pa.Table | None:
        assert isinstance(step, Rows), step
        chunks = if_any(self._slice.batches(step.table.name, max(step.after, merged_ts), step.upto))
        if chunks is None:
            return None
        reads = net_changes if step.table.handle_key else log_rows
        return reads(chunks, step.table, columns, self.options)

    def _cloned(self, table: TableInfo) -> tuple[str, int]:
        """Return the address and version of a table after its unit of steps ran on clones of the unit's tables."""
        if table.incarnation not in self._clones:
            unit = self._units[table.incarnation]
            options = msgspec.structs.replace(self.options, root=self._directory.new_uri())
            for origin in {unit_table.incarnation: unit_table for unit_table in unit.tables}.values():
                if origin.incarnation in self.base.tables or origin.incarnation in self.base.retired:
                    clone(self._stored(origin), options.table_uri(origin.incarnation), options.feed)
            for result in _read(run_unit, unit, self._slice, options):
                self._clones[result.incarnation] = options.table_uri(result.incarnation), result.version
        return self._clones[table.incarnation]


def reaches_back(changelog: Changelog, base: Snapshot) -> bool:
    """Return True if the changelog still has every row above the snapshot."""
    return base.checkpoint.ts >= changelog.floor()


def _end_ts(root: str, base: Snapshot, changelog: Changelog, upto: int | None) -> int:
    reached = max(changelog.frontier() or 0, base.checkpoint.ts)
    if not reached:
        raise ConfigError(f"{root} has no snapshot, and nothing has landed completely: there is no moment to read")
    upto = None if upto is None else changelog.rests_at(upto)
    if upto is not None and upto > reached:
        raise ConfigError(f"{root} has landed up to {reached} only, before {upto}")
    return reached if upto is None else upto


def planned(base: Snapshot, changelog: Changelog, upto: int, options: DeltaOptions) -> tuple[ChangeSlice, Round]:
    """Return the changes between the snapshot and `upto`, planned as the feed plans them."""
    start = base.checkpoint
    slice_ = (
        _read(changelog.slice, start.ts, upto) if upto > start.ts else ChangeSlice(changelog.uri, start.ts, upto, ())
    )
    rules = TableFilter.parse(options.rules, case_sensitive=options.case_sensitive)
    events = EventFilter.of(
        options.event_rules, None, case_sensitive=options.case_sensitive, since=options.events_since
    )
    planning = Planning(rules.matches, events.ddls(), rules.takes_ddl)
    return slice_, plan_landed(base.state, start, changelog.ddls(start.ts, upto), upto, slice_, rules=planning)


def _read(read: Callable[..., T], *args: Any) -> T:
    """Return the result of a reader. Raises HistoryLost if upkeep has removed a file."""
    try:
        return read(*args)
    except FileNotFoundError as missing:
        raise HistoryLost(f"a file of this view was removed meanwhile, create a new view: {missing}") from missing
