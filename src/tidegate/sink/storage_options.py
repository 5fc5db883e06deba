"""Options of the storage sink: a value that is sent to tasks."""

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.storage import FileNames
from tidegate.engine.dispatch import SplitPolicy
from tidegate.model.option import STORAGE_PROTOCOL, TIME_MAX_MS, Option

SECTION: Final = "sink.cloud-storage-config."
NIGHTLY: Final = "0 0 2 * * *"


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Files to write, and how; times in seconds. `uri` may hold the keys of a store, `address`, its name in messages,
    holds none. `cleanup` says when those of more than `expiration_days` ago are deleted."""

    uri: str = field(repr=False)
    address: str
    encoder: CsvOptions | EncodeOptions
    protocol: Annotated[str, STORAGE_PROTOCOL] = "csv"
    tidb_extension: Annotated[
        bool, Option("enable-tidb-extension", "canal-json: rows carry `_tidb` with their commit ts")
    ] = False
    time_zone: Annotated[
        str, Option("time-zone", "zone of TIMESTAMP values, and of the date in directories", "zone")
    ] = "UTC"
    workers: Annotated[int, Option("worker-count", "maximum parallel writer tasks; 1 to 512", key=SECTION)] = 16
    flush_s: Annotated[
        float,
        Option(
            "flush-interval",
            "minimum time between rounds at low rates; 100ms to 10m",
            high=TIME_MAX_MS,
            key=SECTION,
        ),
    ] = 5.0
    file_bytes: Annotated[
        int,
        Option(
            "file-size",
            "a file ends after the transaction that fills it; 1 KiB to 512 MiB",
            high=1 << 62,
            key=SECTION,
        ),
    ] = 64 << 20
    date_separator: Annotated[
        Literal["none", "year", "month", "day"],
        Option("date-separator", "directories by the date of writing", key="sink."),
    ] = "day"
    partition_separator: Annotated[
        bool,
        Option("enable-partition-separator", "directories by partition, if the source provides it", key="sink."),
    ] = True
    index_digits: Annotated[int, Option("file-index-width", "digits in file names; 6 to 20")] = 20
    column_ids: Annotated[bool, Option("output-column-id", "schema files include column ids", key=SECTION)] = False
    raw_change_event: Annotated[
        bool, Option("output-raw-change-event", "an UPDATE of a key stays one row instead of being split", key=SECTION)
    ] = False
    expiration_days: Annotated[
        int,
        Option(
            "file-expiration-days",
            "with date-separator=day: days after which files are deleted; 0: never",
            default="0",
            high=36_500,
            key=SECTION,
        ),
    ] = 0
    cleanup: Annotated[
        str,
        Option(
            "file-cleanup-cron-spec",
            "time of that deletion: seconds, minutes, hours, day, month, day of week",
            key=SECTION,
        ),
    ] = NIGHTLY
    clamped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return self.address

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.address})

    @property
    def expires(self) -> bool:
        """True if files are deleted some day."""
        return self.expiration_days > 0 and self.date_separator == "day"

    @property
    def names(self) -> FileNames:
        """Names of data files."""
        return FileNames(".csv" if isinstance(self.encoder, CsvOptions) else ".json", self.index_digits)

    @property
    def split(self) -> SplitPolicy:
        """The UPDATEs to split into a DELETE and an INSERT."""
        return SplitPolicy(unique_keys=not self.raw_change_event, dispatch_key=False, newarch=True)

    def needs_types(self) -> str:
        """Return the parameter that needs the parameters of column types; empty where none does."""
        encoder = self.encoder
        return "content-compatible" if isinstance(encoder, EncodeOptions) and encoder.content_compatible else ""

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        encoder = self.encoder
        if isinstance(encoder, CsvOptions):
            silent, word = not encoder.include_commit_ts, "csv without include-commit-ts"
        else:
            silent, word = not encoder.enable_tidb_extension, "canal-json without enable-tidb-extension"
        note = f"{word} has no commit_ts, so readers cannot order rows of different directories"
        kept = "file-expiration-days needs date-separator=day: no file is deleted"
        is_kept = self.expiration_days > 0 and not self.expires
        return (*([note] if silent else []), *([kept] if is_kept else []), *self.clamped)
