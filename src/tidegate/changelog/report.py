"""What is said about landed data: by a task to the driver, and by a commit of the changelog to whoever reads it.

    executor --TaskReport---------> driver --State (userMetadata of the commit)--> Changelog, a later driver

    TaskReport   one Kafka partition of one batch, or a stretch of a change log: how far it came, which files it wrote
    State        the whole feed after a commit: positions, frontier, epoch, where it halts

Every commit of a changelog carries a State, so the newest one says all.
"""

import msgspec

from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import Place
from tidegate.engine.frontier import Reached
from tidegate.model.roads import RoadCounts


class TableRows(msgspec.Struct, frozen=True):
    """How many row changes of a table a task landed, and their range of commit_ts."""

    schema: str
    table: str
    rows: int
    min_ts: int
    max_ts: int


class LandedFile(msgspec.Struct, frozen=True):
    """A Parquet file of the changelog that no commit names yet."""

    path: str
    part: str
    """"rows" or "control"."""
    size_bytes: int
    rows: int
    min_ts: int | None = None
    max_ts: int | None = None


class Halt(msgspec.Struct, frozen=True):
    """Why a partition stands still. `order` means that its rows carry no commit_ts: no dead letter, a wrong mode."""

    topic: str
    partition: int
    offset: int
    code: str
    reason: str
    order: bool = False

    @property
    def place(self) -> Place:
        """Where the feed stands."""
        return Place(self.topic, self.partition, self.offset)


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """One Kafka partition of one batch, from `start` up to `position`: offsets. A change log has no topic: then both
    are timestamps."""

    topic: str = ""
    partition: int = 0
    start: int
    position: int
    high: int = 0
    """The end of the partition when the batch was planned."""
    resolved: int | None = None
    since: int | None = None
    """The first resolved ts: the partition has all above it."""
    messages: int = 0
    filtered: int = 0
    """Rows of tables that the feed does not carry."""
    roads: RoadCounts = msgspec.field(default_factory=RoadCounts)
    """Rows by the road that they took."""
    ddls: int = 0
    dead: int = 0
    tables: tuple[TableRows, ...] = ()
    files: tuple[LandedFile, ...] = ()
    halt: Halt | None = None


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A changelog after one of its commits; rows, ddls, dead and messages count that commit alone."""

    feed: str = ""
    epoch: int = 0
    """Grows whenever a landing takes the changelog over; an older one finds out at its next commit."""
    batch: int = 0
    decode: DecodeOptions | None = None
    """How the topics are read, without the addresses of claim-check storage and upstream, which may carry secrets."""
    positions: dict[str, dict[int, Reached]] = {}
    """What is durable of each partition; empty for a change log, whose position is the frontier."""
    identities: dict[str, str] = {}
    """What tells each topic from another of the same name; "" where nothing does, which was said."""
    frontier: int | None = None
    halted: tuple[Halt, ...] = ()
    floor: int | None = None
    """Rows at or below it may have been taken out by upkeep: whoever reads on from a ts below it misses some."""
    messages: int = 0
    rows: int = 0
    ddls: int = 0
    dead: int = 0
