r"""What lies in a place of files: streams of data files, index files and schema files, told from their paths alone.

    shop/orders/451/2026-08-20/CDC00000000000000000001.csv     ─┐ stream shop/orders/451/2026-08-20: files 1, 2
    shop/orders/451/2026-08-20/CDC00000000000000000002.csv     ─┤
    shop/orders/451/2026-08-20/meta/CDC.index                  ─┘ up to which files are named
    shop/orders/meta/schema_451_0004192708.json                  the table of directory shop/orders at version 451

A stream is what is numbered together: the files of one directory, or of one writer in it.  Which part of its path is
the version follows from the directories that have schema files, so names of any form, partitions, dates and table ids
in paths need no setting.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.codec.storage import parse_data_path, parse_index_path, parse_schema_path
from tidegate.model.name import all_digits


class PlacedFile(NamedTuple):
    """A file of a place: where, how large, a word that changes when it is written anew, and when it last was, in
    microseconds since 1970 by the clock of its store."""

    path: str
    size_bytes: int
    version: str
    changed_us: int


@dataclass(slots=True)
class Listing:
    """The files of a place by what they are: data by stream and number, indexes by stream, schema files."""

    data: dict[str, dict[int, PlacedFile]] = field(default_factory=dict)
    indexes: dict[str, PlacedFile] = field(default_factory=dict)
    schemas: list[PlacedFile] = field(default_factory=list)

    @classmethod
    def of(cls, files: Iterable[PlacedFile], extension: str) -> "Listing":
        """Return the listing of some files; data files have `extension`."""
        found = cls()
        for file in files:
            told = parse_data_path(file.path)
            if told is not None:
                if told.extension == extension and told.number > 0:
                    found.data.setdefault(told.stream, {})[told.number] = file
            elif (stream := parse_index_path(file.path)) is not None:
                found.indexes[stream] = file
            elif parse_schema_path(file.path) is not None:
                found.schemas.append(file)
        return found

    def tops(self, indexed: Mapping[str, int], *, by_index: bool = True) -> dict[str, int]:
        """Return the last number of each stream that is named, by the numbers that index files tell; 0 where none is.

        In a place without any index, or not `by_index`, all that is there counts as named."""
        if self.indexes and by_index:
            return {stream: indexed.get(stream, 0) for stream in self.data}
        return {stream: max(numbers) for stream, numbers in self.data.items()}


def table_of_stream(stream: str, tables: Collection[str]) -> tuple[str, int] | None:
    """Return the directory of a stream's table, one of `tables`, and its version; None where it lies below none."""
    parts = stream.split("/")
    for end in range(len(parts) - 1, 0, -1):
        directory = "/".join(parts[:end])
        if directory in tables and all_digits(parts[end]):
            return directory, int(parts[end])
    return None
