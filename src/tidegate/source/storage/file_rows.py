"""What one file tells, whatever its protocol."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog.report import Halt
from tidegate.engine.change import DeadLetter
from tidegate.model.roads import RoadCounts

NO_COMMIT_TS: Final = (
    "its rows carry no commit_ts, so they cannot be ordered. Set {key} on the changefeed that writes the files, "
    "and let it write into a fresh place"
)


class Text(NamedTuple):
    """A piece of a file that begins and ends between two records, and how many records and lines stand before it."""

    body: bytes
    records: int = 0
    lines: int = 0


@dataclass(slots=True)
class FileRows:
    """Rows of a text in a range of commit_ts as LANDED_SCHEMA, the lines that are none, and what else there was.

    `waits` is the least commit_ts above the range, None where nothing waits; `undated` are lines that tell no
    commit_ts, which are put aside when the file is done; `records` counts all."""

    tables: list[pa.Table] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    undated: list[DeadLetter] = field(default_factory=list)
    waits: int | None = None
    records: int = 0
    messages: int = 0
    filtered: int = 0
    roads: RoadCounts = field(default_factory=RoadCounts)
    halt: Halt | None = None
    halted_at: DeadLetter | None = None

    def then(self, later: "FileRows") -> None:
        """Take what the text behind this one tells, but for its rows."""
        self.letters += later.letters
        self.undated += later.undated
        if later.waits is not None:
            self.wait(later.waits)
        self.records += later.records
        self.messages += later.messages
        self.filtered += later.filtered
        self.roads.update(later.roads)

    def wait(self, ts: int) -> None:
        """Know of a row above the range."""
        self.waits = ts if self.waits is None else min(ts, self.waits)

    def gate(self, table: pa.Table, after: int, upto: int) -> None:
        """Take the rows of a table with after < commit_ts <= upto."""
        ts = table["commit_ts"]
        later = pc.min(ts.filter(pc.greater(ts, upto))).as_py()
        if later is not None:
            self.wait(later)
        inside = table.filter(pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto)))
        if inside.num_rows:
            self.tables.append(inside)
