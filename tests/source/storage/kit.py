"""Places of files made by hand, after the rules of TiCDC's writers, and what is read of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sources import files_to_read
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.codec.csv import CsvOptions
from tidegate.codec.storage import SchemaFile, render_metadata
from tidegate.engine.ports import LocalTasks, Tasks
from tidegate.model.errors import TidegateError
from tidegate.model.event import Ddl, RowChange
from tidegate.source.storage_land import StorageLanding
from tidegate.source.storage_options import CsvDialect, Dialect
from tidegate.testing.contract.sources import every, rows_of

PLAIN = CsvDialect(CsvOptions(include_commit_ts=True))
DAY = "2026-08-20"
ID = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"}
NAME = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "20"}
COLUMNS = (ID, NAME)


class ByHand(StorageLanding):
    """A landing without a thread: a batch lands when a test asks for it."""

    def start(self, tasks: Tasks) -> None:
        """Claim the changelog; nothing lands by itself."""
        self._tasks = tasks
        self._state = self._claim()

    def land(self) -> bool:
        """Land a batch; False when none was to be landed, or when it failed."""
        before = self._state, {stream: dict(marks) for stream, marks in self._marks.items()}
        try:
            self._batch()
        except TidegateError as error:
            self._error = error
            return False
        return before != (self._state, self._marks)


class Polled(ByHand):
    """A place that lands some more at each look."""

    def idle(self) -> bool:
        """Return True when all has landed, after another batch."""
        return not self.land() and super().idle()


@dataclass
class Made:
    """A place of files below `home`, and the changelog that its files land in."""

    home: Path
    dialect: Dialect = PLAIN
    options: dict[str, Any] = field(default_factory=dict)
    """Those of the source."""
    batch_bytes: int = 1 << 30

    @property
    def root(self) -> Path:
        """Where the files are."""
        return self.home / "in"

    @property
    def lake(self) -> str:
        """Where they land."""
        return str(self.home / "lake")

    def put(self, path: str, text: str | bytes) -> None:
        """Write a file."""
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(text.encode() if isinstance(text, str) else text)

    def schema(
        self,
        table: str,
        version: int,
        columns: Sequence[Any] | None = COLUMNS,
        *,
        query: str = "",
        action: int = 0,
        directory: str = "",
    ) -> None:
        """Write a schema file of shop.`table`, or of the database."""
        file = SchemaFile("shop", table, version, None if columns is None else tuple(columns), query, action)
        self.put(f"{directory}/meta/{file.path.rpartition('/')[2]}" if directory else file.path, file.render())

    def created(self, table: str = "t", version: int = 1) -> None:
        """Write the schema file of a CREATE TABLE."""
        query = f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY, `v` VARCHAR(20))"
        self.schema(table, version, query=query, action=3)

    def rows(self, path: str, *lines: str, table: str = "t", end: str = "\r\n") -> None:
        """Write a file of lines such as I,5,1,"a": op, commit_ts, values."""
        whole = [line.partition(",") for line in lines]
        self.put(path, "".join(f'"{op}","{table}","shop",{rest}{end}' for op, _, rest in whole))

    def data(self, number: int, *lines: str, table: str = "t", version: int = 1, day: str = DAY) -> None:
        """Write a data file of a day."""
        self.rows(f"shop/{table}/{version}/{day}/CDC{number:020d}.csv", *lines, table=table)

    def index(self, number: int, *, table: str = "t", version: int = 1, day: str = DAY) -> None:
        """Write the index of a day."""
        self.put(f"shop/{table}/{version}/{day}/meta/CDC.index", f"CDC{number:020d}.csv\n")

    def checkpoint(self, ts: int) -> None:
        """Write `metadata`."""
        self.put("metadata", render_metadata(ts))

    def landing(self, **rules: Any) -> ByHand:
        """A landing of the place."""
        options = files_to_read(str(self.root), "in", self.dialect, **self.options)
        return ByHand(options, self.lake, "feed", batch_bytes=self.batch_bytes, **rules)

    def source(self, **rules: Any) -> LandedSource:
        """A source of the place."""
        return LandedSource(lambda: self.landing(**rules), changelog_uri(self.lake))

    def landed(self, **rules: Any) -> LandedSource:
        """A source that was just started, all that is to be landed landed. Raises why a landing ended."""
        source = self.source(**rules)
        source.start(LocalTasks(), None)
        land(source)
        return source

    def read(self) -> list[str]:
        """What a fresh landing leaves in the changelog."""
        return lines_of(self.landed())


def land(source: LandedSource) -> None:
    """Land all that there is. Raises why the landing ended."""
    assert isinstance(source.landing, ByHand)
    while source.landing.land():
        pass
    source.refresh()
    if (failure := source.failure()) is not None:
        raise failure


def events_of_source(source: LandedSource) -> Iterator[RowChange | Ddl]:
    """All that has landed, up to the frontier: rows and DDLs in commit order, rows of a DDL's moment before it."""
    frontier = source.frontier() or 0
    rows = [(row.commit_ts or 0, False, row) for row in rows_of(every(source.changes(0, frontier)))]
    ddls = [(one.ddl.commit_ts or 0, True, one.ddl) for one in source.ddls(0, frontier)]
    return (event for _, _, event in sorted([*rows, *ddls], key=lambda one: one[:2]))


def lines_of(source: LandedSource) -> list[str]:
    """What has landed in short: `5 I t 1 a`, `7 CREATE TABLE ..`."""
    return list(map(short, events_of_source(source)))


def short(event: RowChange | Ddl) -> str:
    """An event in short."""
    if isinstance(event, Ddl):
        return f"{event.commit_ts} {event.query}"
    after, before = getattr(event, "after", None), getattr(event, "before", None)
    word = "U" if before and after else "I" if after else "D"
    images = " -> ".join(" ".join(map(str, one)) for one in (before, after) if one)
    return f"{event.commit_ts} {word} {event.table} {images}"


__all__ = ["COLUMNS", "DAY", "ID", "NAME", "PLAIN", "ByHand", "Made", "Polled", "land", "lines_of", "short"]
