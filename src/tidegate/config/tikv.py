"""tikv:// addresses of sources: the PD of a TiDB cluster, and the options for capturing it.

    tikv://pd1:2379,pd2:2379                                  members of PD; the others are learnt from them
    tikv://pd:2379?ca-path=ca.pem&cert-path=a.pem&key-path=b.pem
    tikv://pd:2379?log=/var/tidegate/log                      where the change log is written (source/tikv_capture.py)
    tikv://pd:2379?log=s3://bucket/prefix                     the same in an object store (also gs, azure, az, abfss)

The keys of the changefeed act as those of config/tidb.py do, whose reader reads the log that the capture writes.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from tidegate.config import tidb
from tidegate.config.entry import MEMORY_QUOTA, Document, FeedConfig, SinkEntry, SourceEntry
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.tikv_load import check_address, needs_grpc, pd_of
from tidegate.config.uri import parameters, split, state_directory
from tidegate.model.errors import ConfigError
from tidegate.model.option import Local, Option
from tidegate.objectstore.store_path import Location, location
from tidegate.source.tikv_options import (
    GC_TTL_S,
    SCHEME,
    CaPath,
    CertPath,
    GcTtl,
    HostMapping,
    KeyPath,
    TikvLoadOptions,
)
from tidegate.tikv.address import address_of

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.engine.ports import Source
    from tidegate.schema.stored.snapshot import StoredSnapshot
    from tidegate.source.tikv_capture import Capture, CaptureOptions
    from tidegate.source.tikv_load import TikvReader

_LOG: Final = "capture"
_QUOTA: Final = by_name([Option("memory-quota", "", "int", low=256 << 20, high=1 << 50, field="memory_quota")])


class TikvSource(tidb.TidbSource, frozen=True, kw_only=True):
    """A cluster to capture. `directory` is empty until the feed's home is known, unless `log` names it."""

    pd: str
    ddl_ts: Literal["finish", "commit"] | None = "commit"
    log: Annotated[
        str,
        Option(
            "log",
            "directory or object store of the change log",
            default="beside the changefeed's checkpoint",
            local=Local.LOCATION,
        ),
    ] = ""
    ca_path: CaPath = ""
    cert_path: CertPath = ""
    key_path: KeyPath = ""
    host_mapping: HostMapping = ""
    gc_ttl_s: GcTtl = GC_TTL_S
    force_version: Annotated[bool, Option("force-version", "capture a version that was not tested")] = False
    memory_quota: int = MEMORY_QUOTA

    @property
    def label(self) -> str:
        return self.pd

    @property
    def identity(self) -> str:
        return f"{SCHEME}://{self.pd}"

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(self.pd.split(","))


OPTIONS: Final = options_of(TikvSource)


def parse_tikv(uri: str, document: Document) -> TikvSource:
    """Return the cluster at `uri`, with the [source] section and the changefeed's keys by their paths."""
    parts = split(uri, "source-uri", [SCHEME])
    values = {**document.section("source.", OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, values, ConfigError)
    own = tidb.changefeed_fields(document.flat)
    fields |= read_all(_QUOTA, document.section("", _QUOTA), ConfigError)[0]
    directory = state_directory(fields["log"], "source-uri: log") if fields.get("log") else ""
    source = TikvSource(pd=pd_of(parts), directory=directory, ignored=ignored, **own, **fields)
    check_address(source, "source-uri")
    return source


def capture_options(source: TikvSource, directory: Location, feed: str, **tables: Any) -> "CaptureOptions":
    """Return how the cluster is captured into `directory`; `tables` are fields of CaptureOptions. Raises
    EnvironmentFault without gRPC."""
    with needs_grpc():
        from tidegate.source.tikv_capture import CaptureOptions
    return CaptureOptions(
        address=address_of(source),
        directory=directory,
        feed=feed,
        **tables,
        gc_ttl_ms=1000 * source.gc_ttl_s,
        waiting_bytes=source.memory_quota // 4,
        force_version=source.force_version,
    )


@contextmanager
def _reader(source: TikvSource) -> "Iterator[TikvReader]":
    """A reader of what is in the cluster."""
    with needs_grpc():
        from tidegate.source.tikv_load import TikvReader
    names = ("pd", "ca_path", "cert_path", "key_path", "host_mapping")
    with closing(TikvReader(TikvLoadOptions(**{name: getattr(source, name) for name in names}))) as reader:
        yield reader


def cluster_schema(config: FeedConfig) -> "StoredSnapshot":
    """Return the schema of the cluster at the start of a changefeed. Raises HistoryLost, ClusterUnavailable."""
    assert isinstance(config.source, TikvSource)
    with _reader(config.source) as reader:
        return reader.schema(config.start_ts)


def cluster_now(source: TikvSource) -> int:
    """Return a timestamp of PD. Raises ClusterUnavailable within seconds."""
    with needs_grpc():
        from tidegate.source.tikv_capture import ask_pd
        from tidegate.tikv.pd import PdClient
    return ask_pd(address_of(source), PdClient.tso)


def _log_of(source: TikvSource, home: str) -> Location:
    """The log of a feed with this home."""
    return location(source.directory or f"{home}/_tidegate/{_LOG}")


def _forget(config: FeedConfig, home: str) -> None:
    source = config.source
    assert isinstance(source, TikvSource)
    directory = _log_of(source, home)
    options = capture_options(source, directory, config.name)
    from tidegate.source.tidb_segment import forget_safe_point, safe_point_name
    from tidegate.source.tikv_capture import release

    forget_safe_point(directory, safe_point_name(config.name, home))
    release(options)


def _captured(config: FeedConfig, home: str) -> "tuple[FeedConfig, Capture]":
    """The capture of a feed with this home, and the feed with the log's directory."""
    source = config.source
    assert isinstance(source, TikvSource)
    directory = _log_of(source, home)
    options = capture_options(source, directory, config.name, rules=config.rules, case_sensitive=config.case_sensitive)
    from tidegate.source.tikv_capture import Capture

    capture = Capture(options, config.table_filter().matches, config.start_ts)
    return replace(config, source=msgspec.structs.replace(source, directory=str(directory))), capture


def _land(config: FeedConfig, home: str, sink: SinkEntry) -> "BatchLoop":
    from tidegate.source.tikv_source import CapturedLanding

    own, capture = _captured(config, home)
    return CapturedLanding(capture, **tidb.landing_of(own, home, sink))


def _open(config: FeedConfig, home: str, sink: SinkEntry) -> "Source":
    from tidegate.source.tikv_source import CapturedSource

    own, capture = _captured(config, home)
    return CapturedSource(capture, **tidb.reading_of(own, home, sink))


SOURCE: Final = SourceEntry(
    scheme=SCHEME,
    about="a TiDB cluster, by its PD and TiKV",
    example="tikv://127.0.0.1:2379",
    params=OPTIONS,
    section="source.",
    acts=tidb.SOURCE.acts | _QUOTA.keys(),
    parse=parse_tikv,
    address=TikvSource,
    land=_land,
    open=_open,
    now=cluster_now,
    forget=_forget,
    ordered=True,
    tells_start_ts=True,
    moments=True,
    verifies=tidb.SOURCE.verifies,
    brings_keyless=tidb.SOURCE.brings_keyless,
)
