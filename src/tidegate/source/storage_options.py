"""The options of a file:// source as one value: the directory to read, and how."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from tidegate.codec.csv import CsvOptions
from tidegate.codec.options import DecodeOptions
from tidegate.model.option import DEAD_LETTER, MAX_RETRY, SOURCE_ZONE, STORAGE_PROTOCOL, TIME_MAX_MS, Option, Secret


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The csv dialect; `handle_key` is the classic architecture's output-handle-key."""

    options: CsvOptions
    handle_key: bool = False


@dataclass(frozen=True, slots=True)
class CanalDialect:
    """The canal-json dialect: the options of its decoder, and the line terminator."""

    options: DecodeOptions = field(repr=False)
    terminator: str = "\r\n"


Dialect = CsvDialect | CanalDialect


class FilesToRead(msgspec.Struct, frozen=True, kw_only=True):
    """Files to read, and how they are written. `uri` may hold the keys of a store, `address` holds none."""

    uri: Secret
    address: str
    protocol: Annotated[str, STORAGE_PROTOCOL]
    time_zone: Annotated[str | None, SOURCE_ZONE] = None
    dead_letter: Annotated[Literal["halt", "skip"], DEAD_LETTER] = "halt"
    decoder: CsvOptions | DecodeOptions
    handle_key: Annotated[bool, Option("output-handle-key", "csv: rows include a field for the key (classic)")] = False
    terminator: Annotated[str, Option("terminator", "line terminator", default="CR LF")] = "\r\n"
    index_files: Annotated[
        Literal["auto", "ignore"],
        Option(
            "index-files",
            "`auto`: a restart skips files by index files, if present; `ignore`: it reads all files",
        ),
    ] = "auto"
    made_anew_us: Annotated[
        int,
        Option(
            "made-anew",
            "the number from the error: reads a directory that was emptied and rewritten from its first file",
            default="0",
            high=1 << 62,
        ),
    ] = 0
    poll_ms: Annotated[
        int, Option("poll-interval", "interval of reading `metadata`", "duration", low=50, high=TIME_MAX_MS)
    ] = 1_000
    max_retry: Annotated[int, MAX_RETRY] = 5
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.address

    @property
    def identity(self) -> str:
        return self.address

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.address})

    @property
    def has_old_values(self) -> bool:
        """True if an UPDATE carries the row before it."""
        return not isinstance(self.decoder, CsvOptions) or self.decoder.output_old_value

    @property
    def dialect(self) -> Dialect:
        """How a line is read."""
        if isinstance(self.decoder, CsvOptions):
            return CsvDialect(self.decoder, self.handle_key)
        return CanalDialect(self.decoder, self.terminator)

    @property
    def extension(self) -> str:
        return ".csv" if isinstance(self.decoder, CsvOptions) else ".json"

    @property
    def by_index(self) -> bool:
        """False: read all files, whether an index file names them or not."""
        return self.index_files == "auto"
