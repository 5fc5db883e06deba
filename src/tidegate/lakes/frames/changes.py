"""The data source `tidegate`: row changes as a range or as a stream, of a lake, of a topic or of a change log.

    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")
    spark.readStream.format("tidegate").option("state", "/srv/query").load("kafka://127.0.0.1:9092/shop?protocol=…")

    option             default    what it says
    path               required   a lake, or the address of a source (the argument of `load`)
    table              see below  database.table, as it is called at the newest snapshot
    form               images     or changes; rows.py says what they are
    starting           see below  a TSO or a time: changes above it
    ending             frontier   a TSO or a time: changes up to it (not for streams)
    maxRowsPerBatch    1000000    about how many rows a micro-batch of a stream takes
    state              none       of a source: the directory that keeps what has landed; one a query
    filter             table      of a source: table filter rules, by blanks; all tables where no table is named

The columns are those of the table when the DataFrame is made: a column that was dropped before is not there, one that
came later either, until the query is started again.  A table is followed by its name.

    driver   changelog, DDLs of (after, upto] ──engine/plan.py──► pieces of rows with the definition of their time
    task     a piece ──► typed images, each once, in commit order

Nothing above the frontier is given, so what came late by the topic is in its place; a stream's offset is a ts.  Without
`starting`, a range begins at the oldest change that is kept, a stream of a lake at the newest snapshot.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegate.changelog.changelog import Changelog
from tidegate.engine.ports import ROUND, RoundLimit, round_end
from tidegate.lakes.frames.lake import check_options
from tidegate.lakes.frames.rows import CHANGES, IMAGES, ChangeForm, ChangeTask, tasks_of
from tidegate.lakes.lake import Lake, moment_ts
from tidegate.lakes.live import planned, reaches_back
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest, published_at

if TYPE_CHECKING:
    from tidegate.lakes.frames.source import SourceChanges

OPTIONS: Final = frozenset({"path", "table", "form", "starting", "ending", "maxrowsperbatch", "state", "filter"})
OF_SOURCES: Final = ("state", "filter")
MOST_ROWS: Final = 1_000_000
FIRST_S: Final = 30.0
"""How long a query waits for what its source has when it begins: with `availableNow` it asks once."""


class ReadableChanges(Protocol):
    """Where ranges of changes come from: a lake, or a source."""

    def form(self) -> ChangeForm:
        """Return what rows are."""

    def frontier(self) -> int:
        """Return the ts up to which everything has landed; 0 before there is one."""

    def landed(self, upto: int | None, within_s: float = math.inf) -> int:
        """Return the frontier, once it has reached `upto` or what there is now, or after so many seconds."""

    def oldest(self) -> int:
        """Return the ts above which every change can still be given."""

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, that has about so many rows."""

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return what lies in (after, upto], cut at DDLs and into tasks."""

    def done(self, ts: int) -> None:
        """Take notice that nothing at or below `ts` is asked for again."""

    def close(self) -> None:
        """End what was begun."""


@dataclass(frozen=True)
class TableChanges:
    """The changes of one table of a lake."""

    root: str
    name: str
    options: DeltaOptions
    rows_as: str = IMAGES

    @classmethod
    def of(cls, root: str, name: str, form: str = IMAGES) -> "TableChanges":
        """Return the changes of a table. ConfigError for a lake that is not there."""
        followed = Lake(root).snapshot.options
        assert followed is not None, "a published snapshot has options"
        return cls(root, name, followed, form)

    def form(self) -> ChangeForm:
        """Return what rows are, with the columns of now. ConfigError for a table that is not there."""
        lake = Lake(self.root)
        return ChangeForm.of(
            lake.definition(self.name), stored_columns(lake.stored(self.name)), self.options, self.rows_as
        )

    @cached_property
    def _changelog(self) -> Changelog:
        return Changelog(self.options.changelog_uri)

    def frontier(self) -> int:
        """Return the ts up to which everything has landed; 0 before there is one."""
        self._changelog.refresh()
        return self._changelog.frontier() or 0

    def landed(self, upto: int | None, within_s: float = 0.0) -> int:  # noqa: ARG002  its changefeed feeds a lake
        """Return the frontier."""
        return self.frontier()

    def oldest(self) -> int:
        """Return the ts above which every change can still be given."""
        self._changelog.refresh()
        kept = (one.checkpoint_ts for one in Lake(self.root).history())
        return next((ts for ts in kept if ts >= self._changelog.floor()), latest(self.options).checkpoint.ts)

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, that has about so many rows."""
        if upto <= after:
            return after
        return round_end(self._changelog.slice(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return what lies in (after, upto] of the table, cut at its DDLs and into tasks.

        HistoryLost when upkeep has removed some of it, ConfigError when it has not all landed."""
        if after >= upto:
            return []
        if upto > self.frontier():
            raise ConfigError(f"{self.root} has landed up to {self._changelog.frontier()} only, before {upto}")
        base = published_at(self.options, after)
        if not reaches_back(self._changelog, base):
            raise HistoryLost(
                f"{self.root}: the changes of table {self.name} behind ts {after} were removed "
                f"(changelog-retention); they are there from ts {self.oldest()} on"
            )
        changes, round_ = planned(base, self._changelog, upto, self.options)
        steps = round_.row_steps
        return [task for step in steps if form.takes(step.table) for task in tasks_of(step, changes, after, form)]

    def done(self, ts: int) -> None:
        """Do nothing: the lake's changefeed says how long changes are kept."""

    def close(self) -> None:
        """Do nothing."""


def changes_of(asked: Mapping[str, str]) -> ReadableChanges:
    """Return what the options of a reader ask for. ConfigError for those that are missing, unknown or wrong."""
    check_options(asked, OPTIONS, required=("path",))
    if asked.get("form", IMAGES) not in {IMAGES, CHANGES}:
        raise ConfigError(f"option 'form' is {IMAGES} or {CHANGES}, not {asked['form']!r}")
    path = asked["path"]
    if path.startswith(("kafka://", "tidb://")):
        return _source_changes(asked)
    check_options(asked, OPTIONS.difference(OF_SOURCES), required=("table",))
    return TableChanges.of(path, asked["table"], asked.get("form", IMAGES))


def _source_changes(asked: Mapping[str, str]) -> "SourceChanges":
    from tidegate.config.changefeed import OWN
    from tidegate.config.load import load
    from tidegate.lakes.frames.source import SourceChanges

    check_options(asked, OPTIONS, required=("path", "state"))
    table = asked.get("table")
    rules = asked["filter"].split() if "filter" in asked else [table] if table else []
    config = load(source_uri=asked["path"], sink_uri=OWN, rules=rules, state_dir=asked["state"], name="spark")
    return SourceChanges(config, table, asked.get("form", IMAGES))


class ChangesReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads the changes of a range; travels to tasks."""

    def __init__(self, tasks: Sequence[ChangeTask]) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read."""
        return self._tasks or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        if isinstance(partition, ChangeTask):
            yield from partition.read()


class ChangesStream(DataSourceStreamReader):  # type: ignore[misc]  # the library has no types
    """Follows the frontier; an offset is {"ts": resolved ts}. What it needs on the driver begins when it is asked."""

    def __init__(self, asked: Mapping[str, str], form: ChangeForm) -> None:
        self._asked, self._form = dict(asked), form
        self._after = _ts(asked.get("starting"))
        self._most = int(asked.get("maxrowsperbatch", MOST_ROWS))
        self._given: int | None = None

    @cached_property
    def _changes(self) -> ReadableChanges:
        return changes_of(self._asked)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return where the stream begins: of a lake at the newest snapshot, of a source with all that it keeps."""
        if self._after is None:
            changes = self._changes
            newest = latest(changes.options).checkpoint.ts if isinstance(changes, TableChanges) else None
            self._after = changes.oldest() if newest is None else newest
        return {"ts": self._after}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return the frontier, or less where much has landed since the last answer."""
        if self._given is None:
            self._given = self._changes.landed(None, FIRST_S)
        else:
            self._given = self._changes.most(self._given, self._changes.frontier(), self._most)
        return {"ts": max(self._given, self._after or 0)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read; of the last one once more when a query starts again."""
        return self._changes.tasks(start["ts"], end["ts"], self._form)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        assert isinstance(partition, ChangeTask)
        yield from partition.read()

    def commit(self, end: dict[str, int]) -> None:
        """Let go of what the query has read."""
        self._changes.done(end["ts"])

    def stop(self) -> None:
        """End what runs beside the query."""
        if "_changes" in self.__dict__:
            self._changes.close()


class ChangesSource(DataSource):  # type: ignore[misc]  # the library has no types
    """`spark.read.format("tidegate")` and `spark.readStream.format("tidegate")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._asked = {name.lower(): value for name, value in options.items()}
        changes = changes_of(self._asked)
        try:
            self._form = changes.form()
        finally:
            changes.close()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegate"

    def schema(self) -> StructType:
        """Return the columns of a row."""
        return self._form.schema()

    def reader(self, schema: StructType) -> ChangesReader:  # noqa: ARG002  ours
        """Return what reads a range."""
        changes = changes_of(self._asked)
        try:
            upto = _ts(self._asked.get("ending"))
            frontier = changes.landed(upto)
            after = _ts(self._asked.get("starting"))
            after = changes.oldest() if after is None else after
            return ChangesReader(changes.tasks(after, frontier if upto is None else upto, self._form))
        finally:
            changes.close()

    def streamReader(self, schema: StructType) -> ChangesStream:  # noqa: ARG002, N802  Spark's name
        """Return what follows the frontier. ConfigError for an end: a stream has none."""
        if "ending" in self._asked:
            raise ConfigError("option 'ending' is for ranges: a stream goes on")
        return ChangesStream(self._asked, self._form)


def _ts(moment: str | None) -> int | None:
    return None if moment is None else moment_ts(moment)
