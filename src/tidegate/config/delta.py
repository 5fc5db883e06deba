r"""delta:// addresses: a lake of Delta tables, and the options of the Delta sink.

delta:///srv/lake?schema-change=evolve      an absolute path
delta://./lake                              a path from the working directory
delta+s3://bucket/prefix                    an object store (also gs, azure, az, abfss)
iceberg:///srv/lake, iceberg+s3://…         the same lake, always with Iceberg metadata
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, RefusedKey, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import STORES, host_of, lake_path, parameters, split
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.sink.delta.options import EMBEDDED, DeltaOptions, stored_definition

if TYPE_CHECKING:
    from tidegate.schema.stored.snapshot import TableVersion
    from tidegate.sink.delta.sink import DeltaSink

SCHEME: Final = "delta"
REST_SCHEMES: Final = ("https", "http")
ICEBERG: Final = "iceberg"
_SECTION: Final = "sink.delta-config."
_SCHEMES: Final = tuple(
    f"{scheme}{store}" for scheme in (SCHEME, ICEBERG) for store in ("", *(f"+{store}" for store in ("file", *STORES)))
)


DELTA_SINK: Final = options_of(DeltaOptions)


def parse_delta(uri: str, document: Document | None = None) -> DeltaOptions:
    """Return the lake at `uri`; its parameters win over those of the file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    in_file = (document or Document()).section(_SECTION, DELTA_SINK)
    values = {**in_file, **parameters(parts, DELTA_SINK)}
    fields, ignored = read_all(DELTA_SINK, values, UriInvalid)
    target = DeltaOptions(root=lake_path(parts), feed="", ignored=ignored, **{"iceberg": True, **fields})
    if parts.scheme.startswith(ICEBERG) and not target.iceberg:
        raise ConfigError(f"sink-uri: {ICEBERG}:// means iceberg=on; without Iceberg metadata a lake is a {SCHEME}://")
    if "catalog" in values:
        _check_catalog(target, values["catalog"].where)
    return target


def _check_catalog(target: DeltaOptions, where: str) -> None:
    if not target.rest_catalog:
        if target.catalog not in {EMBEDDED, "off"}:
            raise UriInvalid(f"{where}: {target.catalog!r} is not {EMBEDDED}, off or https://HOST/PATH")
        return
    parts = split(target.catalog, where, REST_SCHEMES)
    if "@" in parts.netloc:
        raise UriInvalid(f"{where}: put the token into the file of catalog-token-file: {parts.shown}")
    if parts.query:
        raise UriInvalid(f"{where}: set the warehouse by catalog-warehouse: {parts.shown}")
    if not target.iceberg:
        raise ConfigError(f"{where}: an Iceberg catalog needs iceberg=on")


def delta_options(config: FeedConfig) -> DeltaOptions:
    """Return the options of the Delta sink of a changefeed."""
    assert isinstance(config.sink, DeltaOptions)
    return msgspec.structs.replace(
        config.sink,
        feed=config.name,
        time_zone=config.time_zone,
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

    options = delta_options(config)
    catalogs: list[NameCatalog] = []
    if "://" not in options.root:
        catalogs += [EmbeddedCatalog(options, shows=options.iceberg and options.catalog == EMBEDDED)]
    if options.rest_catalog:
        client = RestClient(options.catalog, options.catalog_warehouse, options.catalog_token_file)
        catalogs += [RestCatalog(options, client)]
    upkeep = None
    if options.upkeep:
        upkeep = LakeUpkeep(options, options.limits, interval_s=options.upkeep_interval_s, notes=True)
    return DeltaSink(options, upkeep=upkeep, catalogs=catalogs)


def _tokens_go_to(sink: DeltaOptions) -> frozenset[str]:
    """The REST catalog, where there is a token for it."""
    from tidegate.sink.delta.iceberg_catalogs import TOKEN_VARIABLE

    has_token = sink.catalog_token_file or os.environ.get(TOKEN_VARIABLE)
    return frozenset({host_of(sink.rest_catalog)} if sink.rest_catalog and has_token else ())


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
    address=DeltaOptions,
    open=delta_sink,
    keeps_progress=True,
    reads_changelog=True,
    zone_of=lambda sink: sink.source_zone,
    renders_times=False,
    needs_whole_tables=lambda sink: sink.mode == "replica",
    keeps_keyless=True,
    check_tables=check_lake,
    accepts=frozenset({"sink.dispatchers[]."}),
    acts=frozenset({"sink.column-selectors[].matcher", "sink.column-selectors[].columns"}),
    refuses={"sink.dispatchers[].target-schema": _NAMES, "sink.dispatchers[].target-table": _NAMES},
    tokens_go_to=_tokens_go_to,
    warnings=DeltaOptions.warnings,
)
