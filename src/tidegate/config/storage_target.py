"""An address of files in TiCDC's storage layout, and how they are written.

    file:///srv/out?protocol=csv                 an absolute path; file://./out one from the working directory
    s3://bucket/prefix?protocol=canal-json       an object store: also gs, gcs, azure, azblob, az, abfss
                       &endpoint=…&region=…      TiCDC's parameters of the store; keys better come from the environment

The parameters stand in a changefeed file as well, under [sink] and [sink.cloud-storage-config]; the address wins.
Numbers out of range are taken for the nearest that is in it, with a warning, as TiCDC does.

Source: TiCDC documentation, "Replicate Data to Storage Services"; ranges as the new architecture's code has them.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from tidegate.codec.csv import CsvOptions, csv_options
from tidegate.codec.encoding import NEWARCH, EncodeOptions, encode_options
from tidegate.config.delta_sink import lake_path
from tidegate.config.document import Document
from tidegate.config.entry import SinkEntry
from tidegate.config.feed import FeedConfig
from tidegate.config.file_params import DIRECTORY, PROTOCOL, STORE_SCHEMES, split_store, store_params
from tidegate.config.keys import KEYS
from tidegate.config.local_name import store_host
from tidegate.config.param import TIME_MAX_MS, Given, Param, idle, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.uri import Secret, object_store, parameters, split
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UnsupportedError

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.storage.bucket import StorageOptions

_NIGHTLY: Final = "0 0 2 * * *"
_FILE: Final = "sink.cloud-storage-config."
STORAGE_SINK: Final[Mapping[str, Param]] = {
    "protocol": PROTOCOL,
    "enable-tidb-extension": Param(
        "bool", "enable_tidb_extension", "false", "canal-json: rows carry `_tidb` with their commit ts"
    ),
    "time-zone": Param("zone", "time_zone", "UTC", "zone of TIMESTAMP values, and of the date in directories"),
    "worker-count": Param("int", "worker_count", "16", "most tasks that write side by side; 1 to 512"),
    "flush-interval": Param(
        "duration", "flush_ms", "5s", "shortest time between rounds while little comes; 100ms to 10m", high=TIME_MAX_MS
    ),
    "file-size": Param(
        "int",
        "file_bytes",
        "67108864",
        "a file ends behind the transaction that fills it; 1 KiB to 512 MiB",
        high=1 << 62,
    ),
    "date-separator": Param(
        "choice", "date_separator", "day", "directories by the date of writing", ("none", "year", "month", "day")
    ),
    "enable-partition-separator": Param(
        "bool", "partition_separator", "true", "directories by partition, where the source tells it"
    ),
    "file-index-width": Param("int", "index_digits", "20", "digits in names of files; 6 to 20"),
    "output-column-id": Param("bool", "column_ids", "false", "schema files tell the numbers of columns"),
    "output-raw-change-event": Param(
        "bool", "raw_change_event", "false", "an UPDATE of a key stays one row, and is not split"
    ),
    "file-expiration-days": Param(
        "int",
        "expiration_days",
        "0",
        "with date-separator=day: days after which files go; 0: never",
        high=36_500,
    ),
    "file-cleanup-cron-spec": Param(
        "text", "cleanup", _NIGHTLY, "when they are deleted: seconds, minutes, hours, day, month, day of week"
    ),
    **store_params(),
    "use-table-id-as-path": Param(
        "choice", "table_ids", "false", "`false`: directories have the names of tables", ("false",), known=("true",)
    ),
    "flush-concurrency": idle("int", "1", "a file is one request; its library cuts large ones"),
    "spool-disk-quota": idle("int", "10737418240", "a task holds one file, and what it reads next"),
    "spool-base-dir": idle("text", "", "nothing is kept aside on disk"),
}


class _Range(NamedTuple):
    low: int
    high: int


_RANGES: Final = {
    "worker-count": _Range(1, 512),
    "flush-interval": _Range(100, 600_000),
    "file-size": _Range(1 << 10, 512 << 20),
}
_DIGITS: Final = range(6, 21)
_PLACES: Final = {
    "protocol": "sink.protocol",
    "date-separator": "sink.date-separator",
    "enable-partition-separator": "sink.enable-partition-separator",
    **{name: f"{_FILE}{name}" for name, param in STORAGE_SINK.items() if param.field and f"{_FILE}{name}" in KEYS},
}
_WIDTHS: Final = ("sink.file-index-digit", "sink.file-index-width")
_CANAL: Final = (
    *("sink.only-output-updated-columns", "sink.delete-only-output-handle-key-columns", "sink.content-compatible"),
    "sink.terminator",
)
"""Keys of the file that the encoder of canal-json reads."""
STORAGE_KEYS: Final = frozenset(
    path for path in KEYS if path.startswith("sink.csv.") or path in {*_CANAL, *_WIDTHS, *_PLACES.values()}
)
"""Keys of a changefeed file that act where files are written."""

STORAGE_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "a file has the columns that its schema file tells"),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "files are named by their tables; there are no topics"),
}
"""Keys that files have no place for."""


class StorageTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Files to write, and how; times in ms. `uri` may hold the keys of a store, `place` holds none."""

    uri: Secret
    place: str
    encoder: CsvOptions | EncodeOptions
    worker_count: int = 16
    flush_ms: int = 5_000
    file_bytes: int = 64 << 20
    time_zone: str = "UTC"
    date_separator: str = "day"
    partition_separator: bool = True
    index_digits: int = 20
    column_ids: bool = False
    raw_change_event: bool = False
    expiration_days: int = 0
    cleanup: str = _NIGHTLY
    clamped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return self.place

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
        return frozenset({self.place})

    @property
    def expires(self) -> bool:
        """Whether files are deleted some day."""
        return self.expiration_days > 0 and self.date_separator == "day"

    def needs_types(self) -> str:
        """Return the parameter that needs the parameters of column types; empty where none does."""
        encoder = self.encoder
        return "content-compatible" if isinstance(encoder, EncodeOptions) and encoder.content_compatible else ""

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        encoder = self.encoder
        if isinstance(encoder, CsvOptions):
            silent, word = not encoder.include_commit_ts, "csv without include-commit-ts"
        else:
            silent, word = not encoder.enable_tidb_extension, "canal-json without enable-tidb-extension"
        told = f"{word} has no commit_ts, so that a reader cannot tell the order of rows of different directories"
        kept = "file-expiration-days needs date-separator=day: no file is deleted"
        is_kept = self.expiration_days > 0 and not self.expires
        return (*([told] if silent else []), *([kept] if is_kept else []), *self.clamped)

    def options(self) -> "StorageOptions":
        """Return what the sink is asked for."""
        from tidegate.sink.storage.bucket import Bucket, CronLine, StorageOptions

        return StorageOptions(
            bucket=Bucket(str(self.uri), self.place),
            protocol=self.encoder,
            workers=self.worker_count,
            file_bytes=self.file_bytes,
            flush_s=self.flush_ms / 1000,
            time_zone=self.time_zone,
            date_separator=self.date_separator,
            partition_separator=self.partition_separator,
            index_digits=self.index_digits,
            column_ids=self.column_ids,
            raw_change_event=self.raw_change_event,
            expiration_days=self.expiration_days,
            cleanup=CronLine.parse(self.cleanup) if self.expires else None,
        )


def parse_storage(uri: str, document: Document | None = None) -> StorageTarget:
    """Return the files behind `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would."""
    flat = (document or Document()).flat
    parts = split(uri, "sink-uri", (DIRECTORY, *STORE_SCHEMES))
    others = store_params().keys() - store_params(parts.scheme).keys()
    given = parameters(parts, {name: param for name, param in STORAGE_SINK.items() if name not in others})
    told = {name: Given(path, flat[path]) for name, path in _PLACES.items() if flat.get(path) not in {None, ""}}
    width = next((path for path in _WIDTHS if path in flat), None)
    if width is not None:
        told["file-index-width"] = Given(width, flat[width])
    store, rest = split_store(given, parts.scheme, STORAGE_SINK)
    read, ignored = read_all(STORAGE_SINK, {**told, **rest}, SinkConfigInvalid)
    if "protocol" not in read:
        raise SinkConfigInvalid("sink-uri: protocol is missing; write protocol=csv or protocol=canal-json")
    place = lake_path(parts) if parts.scheme == DIRECTORY else object_store(parts)
    from tidegate.sink.storage.bucket import CronLine

    CronLine.parse(str(read.get("cleanup", _NIGHTLY)))
    clamped = _clamped(read)
    if read.get("index_digits") not in _DIGITS:
        read.pop("index_digits", None)
    fields: dict[str, Any] = {name: read[name] for name in StorageTarget.__struct_fields__ if name in read}
    return StorageTarget(
        uri=Secret(f"{place}?{urlencode(store)}" if store else place),
        place=place,
        encoder=_encoder(read, flat),
        clamped=clamped,
        ignored=ignored,
        **fields,
    )


def _clamped(read: dict[str, Any]) -> tuple[str, ...]:
    """Bring numbers into their range; return what users should hear of it."""
    said = []
    for name, (low, high) in _RANGES.items():
        field = STORAGE_SINK[name].field or ""
        value = read.get(field, low)
        if not low <= value <= high:
            read[field] = min(max(value, low), high)
            unit = " ms" if STORAGE_SINK[name].kind == "duration" else ""
            said.append(f"{name}: {value}{unit} is not between {low} and {high}; {read[field]} is taken")
    return tuple(said)


def _encoder(read: Mapping[str, Any], flat: Mapping[str, object]) -> CsvOptions | EncodeOptions:
    """The options of the protocol, whose keys stand in the file."""
    zone = read.get("time_zone", "UTC")
    extension = read.get("enable_tidb_extension", False)
    if read["protocol"] == "csv":
        if extension:
            raise SinkConfigInvalid("sink-uri: enable-tidb-extension is for canal-json; csv has include-commit-ts")
        names = ("sink.csv.", "sink.terminator", "sink.delete-only-output-handle-key-columns")
        csv = csv_options({path: value for path, value in flat.items() if path.startswith(names)})
        return msgspec.structs.replace(csv, time_zone=zone)
    told = {path: flat[path] for path in _CANAL if path in flat}
    asked = {"uri.enable-tidb-extension": extension, "uri.time-zone": zone, "dialect": NEWARCH, **told}
    found = encode_options(asked, "canal-json")
    return msgspec.structs.replace(found, max_message_bytes=(1 << 31) - 1)


def storage_entry(make: "Callable[[FeedConfig], Sink[Any]]") -> SinkEntry:
    """Return what the registry says of files; `make` opens them."""
    return SinkEntry(
        scheme=DIRECTORY,
        aliases=STORE_SCHEMES,
        about="files in TiCDC's storage layout",
        example="file:///srv/out?protocol=canal-json&enable-tidb-extension=true",
        params=STORAGE_SINK,
        parse=parse_storage,
        address=StorageTarget,
        open=make,
        keys=STORAGE_KEYS,
        refused=STORAGE_REFUSED,
        needs_types=StorageTarget.needs_types,
        tokens_go_to=lambda sink: store_host(sink.uri),
        warnings=StorageTarget.warnings,
        zone_of=lambda sink: sink.time_zone,
        keeps_progress=False,
        reads_changelog=False,
    )
