"""What the tasks of a batch are told: values that travel.

A line's place is (stream, 0, number << 32 | record), both from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidegate.codec.csv import CsvOptions
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import Place
from tidegate.engine.event_filter import EventFilter
from tidegate.source.kafka.resolution import Resolution
from tidegate.source.storage.definitions import FileLayout
from tidegate.source.storage.files import FilePlace
from tidegate.source.storage.listing import PlacedFile

NUMBER_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How csv is written; `handle_key` stands for the classic architecture's output-handle-key."""

    options: CsvOptions
    handle_key: bool = False


@dataclass(frozen=True, slots=True)
class CanalDialect:
    """How canal-json is written: what its decoder is told, and what ends a line."""

    options: DecodeOptions = field(repr=False)
    terminator: str = "\r\n"


Dialect = CsvDialect | CanalDialect


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What all runs of a batch share; an `early` one does not come to `upto` in all files of its place."""

    place: FilePlace
    changelog: str
    dialect: Dialect
    after: int
    upto: int
    early: bool = False
    events: EventFilter = field(default_factory=EventFilter)
    resolutions: Mapping[Place, Resolution] = field(default_factory=dict)
    halted: frozenset[Place] = frozenset()
    """Places whose lines are already kept in the changelog for inspection."""
    skip_dead: bool = False


class FileJob(NamedTuple):
    """One file; `is_last` of those of its stream, `is_loose` where no index names it."""

    number: int
    stored: PlacedFile
    is_last: bool
    is_loose: bool = False


@dataclass(frozen=True, slots=True)
class RunJob:
    """Files of one stream, by number; all of them or none `is_loose`: named by no index."""

    stream: str
    table: FileLayout
    files: tuple[FileJob, ...]

    @property
    def is_loose(self) -> bool:
        """Whether no index names the files."""
        return self.files[0].is_loose

    @property
    def size_bytes(self) -> int:
        """The size of the files."""
        return sum(file.stored.size_bytes for file in self.files)


def offset_of(number: int, record: int) -> int:
    """Return the offset of a record of a file, both from 1."""
    return number << NUMBER_BITS | record


def file_of(offset: int) -> tuple[int, int]:
    """Return the number of the file and of the record that an offset means."""
    return offset >> NUMBER_BITS, offset & ((1 << NUMBER_BITS) - 1)
