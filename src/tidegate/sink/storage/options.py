"""What the storage sink is asked for: a value that travels into tasks."""

from dataclasses import dataclass

from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.storage import FileNames
from tidegate.engine.dispatch import SplitPolicy
from tidegate.sink.storage.bucket import Bucket
from tidegate.sink.storage.cron import CronLine


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Where files are written, and how; `time_zone` tells the date of their directories. `cleanup` says when those of
    more than `expiration_days` ago are deleted, None never."""

    bucket: Bucket
    protocol: CsvOptions | EncodeOptions
    workers: int = 16
    file_bytes: int = 64 << 20
    flush_s: float = 5.0
    time_zone: str = "UTC"
    date_separator: str = "day"
    partition_separator: bool = True
    index_digits: int = 20
    column_ids: bool = False
    raw_change_event: bool = False
    expiration_days: int = 0
    cleanup: CronLine | None = None

    @property
    def names(self) -> FileNames:
        """Names of data files."""
        return FileNames(".csv" if isinstance(self.protocol, CsvOptions) else ".json", self.index_digits)

    @property
    def split(self) -> SplitPolicy:
        """Which UPDATEs become a DELETE and an INSERT."""
        return SplitPolicy(unique_keys=not self.raw_change_event, dispatch_key=False, newarch=True)
