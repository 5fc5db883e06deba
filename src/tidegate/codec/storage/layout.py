r"""Names in the directory of a storage sink, and the small files beside the data: index and `metadata`.

    metadata                                                        {"checkpoint-ts":N}
    shop/meta/schema_451_3668434463.json                            a DDL of the database, commit_ts 451
    shop/orders/meta/schema_451_0004192708.json                     the table from 451 on; its checksum has ten digits
    shop/orders/451/2026-08-20/CDC00000000000000000001.csv          rows; files count from 1 in every directory
    shop/orders/451/2026-08-20/meta/CDC.index                       "CDC00000000000000000001.csv\n": the newest file
    shop/orders/451/105/2026-08-20/CDC00000000000000000001.csv      rows of the physical partition 105

    shop/orders/451/2026-08-20/CDC_<writer>_00000000000000000001.csv          new architecture: one of several writers
    shop/orders/451/2026-08-20/meta/CDC_<writer>.index                        of a table, each with numbers of its own
    105/451/2026-08-20/CDC00000000000000000001.csv                            use-table-id-as-path

The date is that on which a file was written, not that of its commits.  Names of schemas and tables stand as they are,
so one that holds a slash has no place here.

Source: TiCDC's storage sink document; ticdc, pkg/cloudstorage (path_key, generator).
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from tidegate.model.errors import SinkRefused
from tidegate.model.name import all_digits
from tidegate.model.table import TableName

METADATA: Final = "metadata"
CHECKSUM_DIGITS: Final = 10
DATE_LENGTHS: Final = {"none": 0, "year": 4, "month": 7, "day": 10}
"""How much of 2026-08-20 names a directory, by date-separator."""
_SCHEMA_NAME: Final = re.compile(r"schema_(\d+)_(\d{10})\.json")
_DATA_NAME: Final = re.compile(r"CDC(?:_(.+)_)?([0-9]{1,20})(\.csv|\.json)")
_INDEX_NAME: Final = re.compile(r"CDC(?:_(.+))?\.index")
_CHECKPOINT: Final = re.compile(rb'\{"checkpoint-ts":(\d+)\}')


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of data files: CDC, a number of `digits` digits, the extension with its dot."""

    extension: str
    digits: int = 20

    def data(self, number: int) -> str:
        """Return the name of a data file."""
        return f"CDC{number:0{self.digits}d}{self.extension}"

    def number(self, name: str) -> int:
        """Return the number of a data file; 0 for what is none."""
        digits = name.removeprefix("CDC").removesuffix(self.extension)
        is_data = name.startswith("CDC") and name.endswith(self.extension) and all_digits(digits)
        return int(digits) if is_data else 0

    def index(self, number: int) -> bytes:
        """Return the content of an index file whose newest data file has this number."""
        return f"{self.data(number)}\n".encode()

    def indexed(self, body: bytes) -> int:
        """Return the number that an index file names; 0 for a file that names none."""
        return self.number(body.decode("utf-8", "replace").strip())


def date_part(day: date, separator: str) -> str:
    """Return the directory of a day; "" without a date-separator."""
    return day.isoformat()[: DATE_LENGTHS[separator]]


def version_directory(name: TableName, version: int) -> str:
    """Return the directory of all rows that were written with one version of a table."""
    return f"{_part(name.schema)}/{_part(name.table)}/{version}"


def data_directory(version: str, date: str, partition_id: int | None = None) -> str:
    """Return the directory of data files below that of a version; `partition_id` where partitions have their own."""
    return "/".join([version, *([] if partition_id is None else [str(partition_id)]), *([date] if date else [])])


def index_path(directory: str) -> str:
    """Return the index file of a directory of data files."""
    return f"{directory}/meta/CDC.index"


def schema_directory(schema: str, table: str = "") -> str:
    """Return the directory of schema files of a table, or of a database."""
    return f"{_part(schema)}/{_part(table)}/meta" if table else f"{_part(schema)}/meta"


def schema_name(version: int, checksum: int) -> str:
    """Return the name of a schema file."""
    return f"schema_{version}_{checksum:0{CHECKSUM_DIGITS}d}.json"


def parse_schema_name(name: str) -> tuple[int, int] | None:
    """Return the version and checksum that a schema file's name tells; None for another file."""
    found = _SCHEMA_NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


class DataPath(NamedTuple):
    """A data file: its directory, its writer ("" where a table has one), its number there, its extension."""

    directory: str
    writer: str
    number: int
    extension: str

    @property
    def stream(self) -> str:
        """The files that are numbered together: one writer's in one directory."""
        return stream_name(self.directory, self.writer)


def stream_name(directory: str, writer: str) -> str:
    """Return the name of the files that a writer numbers in a directory."""
    return f"{directory}/CDC_{writer}" if writer else directory


def parse_data_path(path: str) -> DataPath | None:
    """Return what the path of a data file tells; None for another file."""
    directory, _, name = path.rpartition("/")
    found = _DATA_NAME.fullmatch(name)
    return None if found is None else DataPath(directory, found[1] or "", int(found[2]), found[3])


def parse_index_path(path: str) -> str | None:
    """Return the stream of an index file; None for another file."""
    directory, _, name = path.rpartition("/")
    found = _INDEX_NAME.fullmatch(name)
    if found is None or not directory.endswith("/meta"):
        return None
    return stream_name(directory.removesuffix("/meta"), found[1] or "")


def parse_index(body: bytes) -> int:
    """Return the number of the file that an index names; 0 where it names none."""
    found = parse_data_path(body.decode("utf-8", "replace").strip())
    return 0 if found is None else found.number


def parse_schema_path(path: str) -> tuple[str, int, int] | None:
    """Return directory, version and checksum of a schema file; None for another file."""
    directory, _, name = path.rpartition("/")
    told = parse_schema_name(name) if directory.endswith("/meta") else None
    return None if told is None else (directory.removesuffix("/meta"), *told)


def render_metadata(checkpoint_ts: int) -> bytes:
    """Return the content of `metadata`."""
    return f'{{"checkpoint-ts":{checkpoint_ts}}}'.encode()


def parse_metadata(body: bytes) -> int:
    """Return the checkpoint that `metadata` tells; -1 where it tells none."""
    found = _CHECKPOINT.fullmatch(body.strip())
    return -1 if found is None else int(found[1])


def _part(name: str) -> str:
    if name in {"", ".", ".."} or "/" in name:
        raise SinkRefused(f"the name {name!r} cannot be that of a directory; leave its table out by a filter rule")
    return name
