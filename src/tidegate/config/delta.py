r"""A delta:// address: a lake of Delta tables, and how it is written.

delta:///srv/lake?schema-change=evolve      an absolute path
delta://./lake                              a path from the working directory
delta+s3://bucket/prefix                    an object store (also gs, azure, az, abfss)
iceberg:///srv/lake, iceberg+s3://…         the same lake, with Iceberg metadata in any case
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from tidegate.config.entry import Document, FeedConfig, RefusedKey, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import STORES, host_of, lake_path, parameters, scheme_of, split
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.model.host import reaches_others
from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.sink.delta.options import ColumnMapping, DeltaOptions, Mode, SchemaChange, ZeroDate, stored_definition

if TYPE_CHECKING:
    from tidegate.engine.retention import Limits
    from tidegate.schema.stored.snapshot import TableVersion
    from tidegate.sink.delta.sink import DeltaSink

SCHEME: Final = "delta"
EMBEDDED: Final = "embedded"
REST_SCHEMES: Final = ("https", "http")
ICEBERG: Final = "iceberg"
_SECTION: Final = "sink.delta-config."
_SCHEMES: Final = tuple(
    f"{scheme}{store}" for scheme in (SCHEME, ICEBERG) for store in ("", *(f"+{one}" for one in ("file", *STORES)))
)


class DeltaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A lake of Delta tables. `path` is a file path or an object store address (s3://bucket/prefix)."""

    path: str
    mode: Mode = "replica"
    schema_change: SchemaChange = "evolve"
    iceberg: Annotated[
        Literal["on", "off"],
        Option("iceberg", "`on`: every published version can be read as an Iceberg table too, over the same files"),
    ] = "on"
    catalog: Annotated[
        str,
        Option(
            "catalog",
            "with `iceberg=on`, names for the tables: `embedded` in `catalog.db` of a lake in a directory, `off`, or "
            "the address `https://…` of an Iceberg REST catalog",
        ),
    ] = EMBEDDED
    catalog_warehouse: Annotated[
        str, Option("catalog-warehouse", "the warehouse of that catalog; without, its own default")
    ] = ""
    catalog_token_file: Annotated[
        str,
        Option(
            "catalog-token-file",
            "a file with the token for it, read at each request; without, the environment's `TIDEGATE_CATALOG_TOKEN`",
            local=Local.TOKEN,
        ),
    ] = ""
    zero_date: ZeroDate = "null"
    column_mapping: ColumnMapping = "auto"
    time_zone: Annotated[
        str | None, Option("time-zone", "the same as the source's `time-zone`", "zone", default="UTC")
    ] = None
    worker_count: Annotated[
        int | None, Option("worker-count", "tables merged at the same time", default="one a core", low=1, high=1024)
    ] = None
    table_error: Annotated[
        Literal["halt", "park"],
        Option("table-error", "a table whose stored form is refused stops the feed (`halt`), or itself alone (`park`)"),
    ] = "halt"
    flush_interval_ms: Annotated[
        int, Option("flush-interval", "shortest time between two advances of the lake", "duration")
    ] = 1000
    upkeep: Annotated[
        Literal["on", "off"], Option("upkeep", "`on`: delete what the following times allow; `off`: keep all")
    ] = "on"
    upkeep_interval_ms: Annotated[
        int, Option("upkeep-interval", "time between two passes of the upkeep", "duration", low=1000)
    ] = 60_000
    snapshot_retention_ms: Annotated[
        int,
        Option(
            "snapshot-retention",
            "how long snapshots stay: all for 10 minutes, then one a minute for a day, then one an hour",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = 7 * 86_400_000
    changelog_retention_ms: Annotated[
        int,
        Option(
            "changelog-retention",
            "how long landed rows stay that the lake has already, measured back from the newest resolved ts",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = 3_600_000
    recover_retention_ms: Annotated[
        int,
        Option(
            "recover-retention",
            "how long the rows of dropped tables stay for RECOVER TABLE and FLASHBACK TABLE",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = 7 * 86_400_000
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return self.path

    @property
    def places(self) -> frozenset[str]:
        return frozenset({self.path})

    @property
    def rest_catalog(self) -> str:
        """The address of the REST catalog that names the tables; "" for none."""
        return self.catalog if "://" in self.catalog else ""

    @property
    def tokens_go_to(self) -> frozenset[str]:
        """The REST catalog, where there is a token for it."""
        from tidegate.sink.delta.iceberg_catalogs import TOKEN_VARIABLE

        has_token = self.catalog_token_file or os.environ.get(TOKEN_VARIABLE)
        return frozenset({host_of(self.rest_catalog)} if self.rest_catalog and has_token else ())

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know before this lake is written."""
        plain = self.catalog_token_file and scheme_of(self.catalog) == "http"
        if plain and reaches_others(urlsplit(self.catalog).hostname or ""):
            return (f"{self.catalog}: the token of catalog-token-file goes there in clear; use https://",)
        return ()


DELTA_SINK: Final = options_of(DeltaTarget)


def parse_delta(uri: str, document: Document | None = None) -> DeltaTarget:
    """Return the lake behind `uri`; its parameters win over those of the file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    in_file = (document or Document()).section(_SECTION, DELTA_SINK)
    given = {**in_file, **parameters(parts, DELTA_SINK)}
    fields, ignored = read_all(DELTA_SINK, given, UriInvalid)
    target = DeltaTarget(path=lake_path(parts), ignored=ignored, **fields)
    if parts.scheme.startswith(ICEBERG) and target.iceberg == "off":
        raise ConfigError(f"sink-uri: {ICEBERG}:// means iceberg=on; without Iceberg metadata a lake is a {SCHEME}://")
    if "catalog" in given:
        _check_catalog(target, given["catalog"].where)
    return target


def _check_catalog(target: DeltaTarget, where: str) -> None:
    if not target.rest_catalog:
        if target.catalog not in {EMBEDDED, "off"}:
            raise UriInvalid(f"{where}: {target.catalog!r} is none of {EMBEDDED}, off and https://HOST/PATH")
        return
    parts = split(target.catalog, where, REST_SCHEMES)
    if "@" in parts.netloc:
        raise UriInvalid(f"{where}: a token goes into the file that catalog-token-file names: {parts.shown}")
    if parts.query:
        raise UriInvalid(f"{where}: the warehouse goes into catalog-warehouse: {parts.shown}")
    if target.iceberg == "off":
        raise ConfigError(f"{where}: an Iceberg catalog needs iceberg=on")


def delta_options(config: FeedConfig) -> DeltaOptions:
    """Return the options of the Delta sink of a changefeed."""
    sink = config.sink
    assert isinstance(sink, DeltaTarget)
    return DeltaOptions(
        root=sink.path,
        feed=config.name,
        time_zone=config.time_zone,
        zero_date=sink.zero_date,
        schema_change=sink.schema_change,
        mode=sink.mode,
        column_mapping=sink.column_mapping,
        iceberg=sink.iceberg == "on",
        rules=config.rules,
        case_sensitive=config.case_sensitive,
        event_rules=config.event_rules,
        events_since=config.events.since,
        selectors=config.selectors,
    )


def delta_sink(config: FeedConfig, _source: SourceEntry | None = None) -> "DeltaSink":
    """Return the Delta sink of a changefeed."""
    from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog, RestCatalog, RestClient
    from tidegate.sink.delta.sink import DeltaSink, NameCatalog
    from tidegate.sink.delta.upkeep import LakeUpkeep

    sink, options = config.sink, delta_options(config)
    assert isinstance(sink, DeltaTarget)
    catalogs: list[NameCatalog] = []
    if "://" not in sink.path:
        catalogs += [EmbeddedCatalog(options, shows=options.iceberg and sink.catalog == EMBEDDED)]
    if sink.rest_catalog:
        catalogs += [RestCatalog(options, RestClient(sink.catalog, sink.catalog_warehouse, sink.catalog_token_file))]
    upkeep = None
    if sink.upkeep != "off":
        upkeep = LakeUpkeep(options, limits_of(sink), interval_s=sink.upkeep_interval_ms / 1000, notes=True)
    return DeltaSink(
        options,
        workers=sink.worker_count,
        flush_s=sink.flush_interval_ms / 1000,
        upkeep=upkeep,
        parks=sink.table_error == "park",
        catalogs=catalogs,
    )


def limits_of(sink: DeltaTarget) -> "Limits":
    """Return the limits that a lake's address sets."""
    from tidegate.engine.retention import Limits

    return Limits(
        snapshot_ms=sink.snapshot_retention_ms,
        recover_ms=sink.recover_retention_ms,
        changelog_ms=sink.changelog_retention_ms,
    )


def check_lake(config: FeedConfig, tables: "Iterable[TableVersion]") -> None:
    """Raise ColumnSelectorFailed for column selectors that do not fit a table."""
    from tidegate.schema.stored.snapshot import table_info

    options = delta_options(config)
    for table in tables:
        stored_definition(table_info(table.stored, table.schema, table.version), options)


_NAMES: Final = RefusedKey(("",), UnsupportedError, "tables of a lake have the upstream's names")
SINK: Final = SinkEntry(
    scheme=SCHEME,
    aliases=(ICEBERG,),
    about="a lake of Delta tables",
    example="delta:///srv/lake",
    params=DELTA_SINK,
    section=_SECTION,
    parse=parse_delta,
    address=DeltaTarget,
    open=delta_sink,
    keeps_progress=True,
    reads_changelog=True,
    zone_of=lambda sink: sink.time_zone,
    renders_times=False,
    needs_whole_tables=lambda sink: sink.mode == "replica",
    keeps_keyless=True,
    check_tables=check_lake,
    acts=frozenset({"sink.column-selectors[].matcher", "sink.column-selectors[].columns"}),
    no_sync_points="; a lake is read at any ts that it has, without them",
    refuses={"sink.dispatchers[].target-schema": _NAMES, "sink.dispatchers[].target-table": _NAMES},
    tokens_go_to=lambda sink: sink.tokens_go_to,
    warnings=DeltaTarget.warnings,
)
