"""An address of files in TiCDC's storage layout that is read.

    file:///srv/in?protocol=canal-json           an absolute path; file://./in one from the working directory
    s3://bucket/prefix?protocol=csv              an object store: also gs, gcs, azure, azblob, az, abfss

How csv is written stands in the address, under [source], or under [sink.csv] as in the file of the changefeed that
writes it; the first of these that says it wins.  Parameters of TiCDC's storage sink that say nothing to a reader are
accepted without effect, so that a changefeed's own sink-uri can be pasted here.

Source: TiCDC documentation, "Replicate Data to Storage Services".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from tidegate.codec.csv import CsvOptions, csv_options
from tidegate.codec.options import DecodeOptions
from tidegate.config.delta_sink import lake_path
from tidegate.config.document import Document
from tidegate.config.entry import SourceEntry
from tidegate.config.feed import FeedConfig
from tidegate.config.file_params import (
    CSV_PARAMS,
    DIRECTORY,
    STORAGE_SOURCE,
    STORE_SCHEMES,
    split_store,
    store_params,
)
from tidegate.config.keys import KEYS
from tidegate.config.local_name import store_host
from tidegate.config.param import Given, read_all
from tidegate.config.refused import NO_WRITER
from tidegate.config.uri import Secret, object_store, parameters, split
from tidegate.model.errors import ConfigError, SinkConfigInvalid

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.source.storage.land import FilesToRead

_CSV: Final = "sink.csv."
_TERMINATOR: Final = "sink.terminator"
CSV_KEYS: Final = frozenset(path for path in KEYS if path.startswith(_CSV) or path == _TERMINATOR)


class StorageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Files to read, and how they are written. `uri` may hold the keys of a store, `place` holds none."""

    uri: Secret
    place: str
    dialect: CsvOptions | DecodeOptions
    handle_key: bool = False
    terminator: str = "\r\n"
    time_zone: str | None = None
    dead_letter: str = "halt"
    index_files: str = "auto"
    made_anew_us: int = 0
    poll_ms: int = 1_000
    max_retry: int = 5
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The words that begin a changefeed's name."""
        return self.place

    @property
    def identity(self) -> str:
        """What tells this source from others in the names of changefeeds."""
        return self.place

    @property
    def places(self) -> frozenset[str]:
        """What is read."""
        return frozenset({self.place})

    @property
    def has_old_values(self) -> bool:
        """Whether an UPDATE tells the row before it."""
        return not isinstance(self.dialect, CsvOptions) or self.dialect.output_old_value

    def options(self) -> "FilesToRead":
        """Return what the landing is asked for."""
        from tidegate.source.storage.land import FilesToRead
        from tidegate.source.storage.listing import CanalDialect, CsvDialect, FilePlace

        if isinstance(self.dialect, CsvOptions):
            dialect: CsvDialect | CanalDialect = CsvDialect(self.dialect, self.handle_key)
        else:
            dialect = CanalDialect(self.dialect, self.terminator)
        return FilesToRead(
            place=FilePlace(str(self.uri), self.place),
            dialect=dialect,
            dead_letter=self.dead_letter,
            trigger_ms=self.poll_ms,
            by_index=self.index_files == "auto",
            made_anew_us=self.made_anew_us,
        )


def parse_files(uri: str, document: Document | None = None) -> StorageSource:
    """Return the files behind `uri` with the keys of a changefeed file. Raises UriInvalid and ConfigErrors."""
    document = document or Document()
    parts = split(uri, "source-uri", (DIRECTORY, *STORE_SCHEMES))
    others = store_params().keys() - store_params(parts.scheme).keys()
    given = parameters(parts, {name: param for name, param in STORAGE_SOURCE.items() if name not in others})
    told = {
        path.removeprefix(_CSV): Given(path, document.flat[path]) for path in document.flat if path.startswith(_CSV)
    }
    if _TERMINATOR in document.flat:
        told["terminator"] = Given(_TERMINATOR, document.flat[_TERMINATOR])
    asked = {**told, **document.section("source."), **given}
    store, rest = split_store(asked, parts.scheme, STORAGE_SOURCE)
    read, ignored = read_all(STORAGE_SOURCE, rest, ConfigError)
    if "protocol" not in read:
        raise ConfigError("source-uri: protocol is missing; write protocol=csv or protocol=canal-json")
    place = lake_path(parts) if parts.scheme == DIRECTORY else object_store(parts)
    fields: dict[str, Any] = {name: read[name] for name in StorageSource.__struct_fields__ if name in read}
    terminator = str(read.get("terminator") or "\r\n")
    return StorageSource(
        uri=Secret(f"{place}?{urlencode(store)}" if store else place),
        place=place,
        dialect=_dialect(read, terminator),
        handle_key=bool(read.get("output_handle_key")),
        ignored=ignored,
        **{**fields, "terminator": terminator},
    )


def _dialect(read: Mapping[str, Any], terminator: str) -> CsvOptions | DecodeOptions:
    zone = read.get("time_zone") or "UTC"
    if read["protocol"] != "csv":
        return DecodeOptions(protocol="canal-json", time_zone=zone)
    if read.get("include_commit_ts") is False:
        raise SinkConfigInvalid(
            "include-commit-ts is false: rows without their commit ts cannot be ordered. Set include-commit-ts = true "
            "under [sink.csv] of the changefeed that writes the files, and let it write into a fresh place"
        )
    told = {name: str(param.field) for name, param in CSV_PARAMS.items() if name != "output-handle-key"}
    asked = {f"{_CSV}{name}": read[field] for name, field in told.items() if field in read}
    found = csv_options({**asked, f"{_CSV}include-commit-ts": True, _TERMINATOR: terminator})
    return msgspec.structs.replace(found, time_zone=zone)


def files_entry(make: "Callable[[FeedConfig, str], BatchLoop]", check: "Callable[[FeedConfig], None]") -> SourceEntry:
    """Return what the registry says of files that are read; `make` lands them, `check` looks whether they are there."""
    return SourceEntry(
        scheme=DIRECTORY,
        aliases=STORE_SCHEMES,
        about="files in TiCDC's storage layout",
        example="file:///srv/in?protocol=csv",
        params=STORAGE_SOURCE,
        parse=parse_files,
        address=StorageSource,
        land=make,
        check=check,
        ordered=False,
        tells_start_ts=False,
        moments=False,
        keys=CSV_KEYS,
        tokens_go_to=lambda source: store_host(source.uri),
        zone_of=lambda source: source.time_zone,
        refused={"bdr-mode": NO_WRITER},
        start_ts_refused="files are read from the begin of their place",
        has_old_values=lambda source: source.has_old_values,
        lacks_old_values=lambda source: "" if source.has_old_values else "output-old-value=false",
    )
