"""Addresses of files in TiCDC's storage layout, for sources and sinks.

    file:///srv/in?protocol=canal-json           an absolute path; file://./in one from the working directory
    s3://bucket/prefix?protocol=csv              an object store: also gs, gcs, azure, azblob, az, abfss
                       &endpoint=…&region=…      TiCDC's parameters of the store; keys better come from the environment

A source's csv options are read from the address, [source], or [sink.csv] as in the file of the changefeed that writes
it; the first of these that has an option wins.  A sink's parameters can also be under [sink] and
[sink.cloud-storage-config]; the address wins, and numbers out of range are replaced by the nearest valid one, with a
warning, as in TiCDC.  Parameters that do not concern a source are accepted without effect, so that a changefeed's
sink-uri can be pasted here.

Source: TiCDC documentation, "Replicate Data to Storage Services"; ranges as the new architecture's code has them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from tidegate.codec.csv import CsvOptions, csv_options
from tidegate.codec.encoding import NEWARCH, EncodeOptions, encode_options
from tidegate.codec.options import DecodeOptions
from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.store_params import DIRECTORY, STORE_SCHEMES, split_store, store_params
from tidegate.config.uri import RawValue, lake_path, object_store, parameters, split, store_host
from tidegate.model.errors import ConfigError, SinkConfigInvalid
from tidegate.model.option import Option, Secret, idle
from tidegate.sink.storage_options import NIGHTLY, SECTION, StorageOptions
from tidegate.source.storage_options import FilesToRead

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.engine.ports import Sink

_CSV: Final = "sink.csv."
_TERMINATOR: Final = "sink.terminator"
_CSV_NAMES: Final = (
    *("delimiter", "quote", "null", "include-commit-ts", "binary-encoding-method"),
    *("output-old-value", "output-handle-key", "output-field-header"),
)
_CSV_KEYS: Final = frozenset({_TERMINATOR, *(_CSV + name for name in _CSV_NAMES)})
_CANAL: Final = (
    *("sink.only-output-updated-columns", "sink.delete-only-output-handle-key-columns", "sink.content-compatible"),
    _TERMINATOR,
)
"""Keys of the file that the encoder of canal-json reads."""
_WIDTHS: Final = ("sink.file-index-digit", "sink.file-index-width")
_DIGITS: Final = range(6, 21)
_RANGES: Final = {"worker-count": (1, 512), "flush-interval": (100, 600_000), "file-size": (1 << 10, 512 << 20)}


_CSV_OPTIONS: Final = options_of(
    CsvOptions,
    include_commit_ts=Option("include-commit-ts", "csv: rows include the commit ts; required", default="true"),
    output_old_value=Option("output-old-value", "csv: an UPDATE is two rows, and rows have a column for this"),
    output_field_header=Option("output-field-header", "csv: files start with a header of column names"),
    binary_encoding_method=Option("binary-encoding-method", "csv: encoding of bytes", choices=("base64", "hex")),
    delimiter=Option("delimiter", "csv: field delimiter; 1 to 3 characters"),
    quote=Option("quote", 'csv: quote character of strings; `quote = ""` in a file for none'),
    null=Option("null", "csv: representation of NULL"),
)


_WRITERS_ALONE: Final = [
    idle("flush-concurrency", "int", "a file is one request; the client library splits large ones", key=SECTION),
    idle("spool-disk-quota", "int", "a task buffers one file and its next input"),
    idle("spool-base-dir", "text", "nothing is spooled to disk"),
]
STORAGE_SINK: Final[Mapping[str, Option]] = {
    **options_of(StorageOptions),
    **store_params(),
    "use-table-id-as-path": Option(
        "use-table-id-as-path",
        "`false`: directories are named after tables",
        "choice",
        "false",
        ("false",),
        unsupported=("true",),
        field="table_ids",
    ),
    **by_name(_WRITERS_ALONE),
}
_FOR_WRITERS: Final = ("sse", "sse-kms-key-id", "acl", "predefined-acl", "encryption-scope")
STORAGE_SOURCE: Final[Mapping[str, Option]] = {
    **options_of(FilesToRead),
    **_CSV_OPTIONS,
    **store_params(),
    **by_name(idle(name, "text", "only for writers") for name in _FOR_WRITERS),
    **by_name(
        idle(option.name, "bool" if name == "use-table-id-as-path" else option.kind, "detected from the files")
        for name, option in STORAGE_SINK.items()
        if name not in {"protocol", "time-zone", *store_params()}
    ),
}


def parse_files(uri: str, document: Document | None = None) -> FilesToRead:
    """Return the files at `uri` with the keys of a changefeed file. Raises UriInvalid and ConfigErrors."""
    document = document or Document()
    parts = split(uri, "source-uri", (DIRECTORY, *STORE_SCHEMES))
    others = store_params().keys() - store_params(parts.scheme).keys()
    in_address = parameters(parts, {name: param for name, param in STORAGE_SOURCE.items() if name not in others})
    in_file = document.section(_CSV, _CSV_NAMES)
    if _TERMINATOR in document.flat:
        in_file["terminator"] = RawValue(_TERMINATOR, document.flat[_TERMINATOR])
    values = {**in_file, **document.section("source.", STORAGE_SOURCE), **in_address}
    store, rest = split_store(values, parts.scheme, STORAGE_SOURCE)
    read, ignored = read_all(STORAGE_SOURCE, rest, ConfigError)
    if "protocol" not in read:
        raise ConfigError("source-uri: protocol is missing; set protocol=csv or protocol=canal-json")
    address = lake_path(parts) if parts.scheme == DIRECTORY else object_store(parts)
    fields: dict[str, Any] = {name: read[name] for name in FilesToRead.__struct_fields__ if name in read}
    terminator = str(read.get("terminator") or "\r\n")
    return FilesToRead(
        uri=Secret(f"{address}?{urlencode(store)}" if store else address),
        address=address,
        decoder=_decoder(read, terminator),
        ignored=ignored,
        **{**fields, "terminator": terminator},
    )


def _decoder(read: Mapping[str, Any], terminator: str) -> CsvOptions | DecodeOptions:
    zone = read.get("time_zone") or "UTC"
    if read["protocol"] != "csv":
        return DecodeOptions(protocol="canal-json", time_zone=zone)
    if read.get("include_commit_ts") is False:
        raise SinkConfigInvalid(
            "include-commit-ts is false: rows without commit ts cannot be ordered. Set include-commit-ts = true under "
            "[sink.csv] of the changefeed that writes the files, and let it write into an empty directory"
        )
    keys = {f"{_CSV}{name}": read[str(each.field)] for name, each in _CSV_OPTIONS.items() if each.field in read}
    options = csv_options({**keys, f"{_CSV}include-commit-ts": True, _TERMINATOR: terminator})
    return msgspec.structs.replace(options, time_zone=zone)


def parse_storage(uri: str, document: Document | None = None) -> StorageOptions:
    """Return the files at `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would."""
    from tidegate.sink.storage_bucket import CronLine

    flat = (document or Document()).flat
    parts = split(uri, "sink-uri", (DIRECTORY, *STORE_SCHEMES))
    others = store_params().keys() - store_params(parts.scheme).keys()
    options = parameters(parts, {name: param for name, param in STORAGE_SINK.items() if name not in others})
    in_file = (document or Document()).options(STORAGE_SINK.values())
    width = next((path for path in _WIDTHS if path in flat), None)
    if width is not None:
        in_file["file-index-width"] = RawValue(width, flat[width])
    store, rest = split_store(options, parts.scheme, STORAGE_SINK)
    read, ignored = read_all(STORAGE_SINK, {**in_file, **rest}, SinkConfigInvalid)
    if "protocol" not in read:
        raise SinkConfigInvalid("sink-uri: protocol is missing; set protocol=csv or protocol=canal-json")
    address = lake_path(parts) if parts.scheme == DIRECTORY else object_store(parts)
    CronLine.parse(str(read.get("cleanup", NIGHTLY)))
    clamped = []  # numbers out of their range, and what users should hear of it
    for name, (low, high) in _RANGES.items():
        option = STORAGE_SINK[name]
        unit, scale = (" ms", 1000) if option.kind == "seconds" else ("", 1)
        value = round(read.get(str(option.field), low / scale) * scale)
        if not low <= value <= high:
            bounded = min(max(value, low), high)
            read[str(option.field)] = bounded / scale if scale > 1 else bounded
            clamped.append(f"{name}: {value}{unit} is not between {low} and {high}; {bounded} is taken")
    if read.get("index_digits") not in _DIGITS:
        read.pop("index_digits", None)
    return StorageOptions(
        uri=Secret(f"{address}?{urlencode(store)}" if store else address),
        address=address,
        encoder=_encoder(read, flat),
        clamped=tuple(clamped),
        ignored=ignored,
        **{name: value for name, value in read.items() if name in StorageOptions.__slots__},
    )


def _encoder(read: Mapping[str, Any], flat: Mapping[str, object]) -> CsvOptions | EncodeOptions:
    """The options of the protocol, whose keys stand in the file."""
    zone = read.get("time_zone", "UTC")
    extension = read.get("tidb_extension", False)
    if read["protocol"] == "csv":
        if extension:
            raise SinkConfigInvalid("sink-uri: enable-tidb-extension is for canal-json; csv has include-commit-ts")
        names = ("sink.csv.", "sink.terminator", "sink.delete-only-output-handle-key-columns")
        csv = csv_options({path: value for path, value in flat.items() if path.startswith(names)})
        return msgspec.structs.replace(csv, time_zone=zone)
    in_file = {path: flat[path] for path in _CANAL if path in flat}
    keys = {"uri.enable-tidb-extension": extension, "uri.time-zone": zone, "dialect": NEWARCH, **in_file}
    options = encode_options(keys, "canal-json")
    return msgspec.structs.replace(options, max_message_bytes=(1 << 31) - 1)


def _land(config: FeedConfig, home: str, _: SinkEntry) -> "BatchLoop":
    from tidegate.source.storage_land import StorageLanding

    assert isinstance(config.source, FilesToRead)
    accept = config.table_filter().matches
    return StorageLanding(config.source, home, config.name, accept=accept, events=config.events)


def _check_files(config: FeedConfig, _: SinkEntry) -> None:
    """Look into the directory, which need not have files yet."""
    from tidegate.source.storage_listing import FileRoot

    assert isinstance(config.source, FilesToRead)
    next(iter(FileRoot(str(config.source.uri), config.source.address).files()), None)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.storage import StorageSink

    assert isinstance(config.sink, StorageOptions)
    return StorageSink(config.sink, checkpoints_of(config))


SOURCE: Final = SourceEntry(
    scheme=DIRECTORY,
    aliases=STORE_SCHEMES,
    about="files in TiCDC's storage layout",
    example="file:///srv/in?protocol=csv",
    params=STORAGE_SOURCE,
    section="source.",
    parse=parse_files,
    address=FilesToRead,
    land=_land,
    check=_check_files,
    ordered=False,
    tells_start_ts=False,
    moments=False,
    acts=_CSV_KEYS,
    tokens_go_to=lambda source: store_host(source.uri),
    zone_of=lambda source: source.time_zone,
    start_ts_refused="files are read from the begin of their directory",
    has_old_values=lambda source: source.has_old_values,
    lacks_old_values=lambda source: "" if source.has_old_values else "output-old-value=false",
)
SINK: Final = SinkEntry(
    scheme=DIRECTORY,
    aliases=STORE_SCHEMES,
    about="files in TiCDC's storage layout",
    example="file:///srv/out?protocol=canal-json&enable-tidb-extension=true",
    params=STORAGE_SINK,
    parse=parse_storage,
    address=StorageOptions,
    open=_open,
    acts=_CSV_KEYS.union(_CANAL, _WIDTHS),
    needs_types=StorageOptions.needs_types,
    tokens_go_to=lambda sink: store_host(sink.uri),
    warnings=StorageOptions.warnings,
    zone_of=lambda sink: sink.time_zone,
)
