r"""A delta:// address: a lake of Delta tables, and how it is written.

delta:///srv/lake?schema-change=evolve      an absolute path
delta://./lake                              a path from the working directory
delta+s3://bucket/prefix                    an object store (also gs, azure, az, abfss)
iceberg:///srv/lake, iceberg+s3://…         the same lake, with Iceberg metadata in any case
"""

import os
import posixpath
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tidegate.config.local_name import Local, host_of, name_file
from tidegate.config.param import TIME_MAX_MS, Given, Param, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.uri import STORES, Parts, object_store, parameters, scheme_of, split
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.model.host import reaches_others

SCHEME: Final = "delta"
EMBEDDED: Final = "embedded"
REST_SCHEMES: Final = ("https", "http")
ICEBERG: Final = "iceberg"
_SCHEMES: Final = tuple(
    f"{scheme}{store}" for scheme in (SCHEME, ICEBERG) for store in ("", *(f"+{one}" for one in ("file", *STORES)))
)

DELTA_SINK: Final[Mapping[str, Param]] = {
    "mode": Param(
        "choice",
        "mode",
        "replica",
        "`replica`: each table as upstream has it; `changelog`: every change; `history`: every version of every row",
        ("replica", "changelog", "history"),
        known=("append", "upsert"),
    ),
    "schema-change": Param(
        "choice",
        "schema_change",
        "evolve",
        "what a DDL does to the lake, in Flink CDC's words",
        ("exception", "evolve", "try_evolve", "lenient", "ignore"),
    ),
    "iceberg": Param(
        "choice",
        "iceberg",
        "on",
        "`on`: every published version can be read as an Iceberg table too, over the same files",
        ("on", "off"),
    ),
    "catalog": Param(
        "text",
        "catalog",
        EMBEDDED,
        "with `iceberg=on`, names for the tables: `embedded` in `catalog.db` of a lake in a directory, `off`, or the "
        "address `https://…` of an Iceberg REST catalog",
    ),
    "catalog-warehouse": Param(
        "text", "catalog_warehouse", "", "the warehouse of that catalog; without, its own default"
    ),
    "catalog-token-file": Param(
        "text",
        "catalog_token_file",
        "",
        "a file with the token for it, read at each request; without, the environment's `TIDEGATE_CATALOG_TOKEN`",
        local=Local.TOKEN,
    ),
    "zero-date": Param(
        "choice",
        "zero_date",
        "null",
        "dates that no calendar has (0000-00-00): NULL, the columns kept as text, or an error that ends the changefeed",
        ("null", "string", "error"),
    ),
    "column-mapping": Param(
        "choice",
        "column_mapping",
        "auto",
        "a renamed or dropped column: `auto` and `always` map names to names in files, `never` writes all files anew",
        ("auto", "always", "never"),
    ),
    "time-zone": Param("zone", "time_zone", "UTC", "the same as the source's `time-zone`"),
    "worker-count": Param("int", "worker_count", "one a core", "tables merged at the same time", low=1, high=1024),
    "table-error": Param(
        "choice",
        "table_error",
        "halt",
        "a table whose stored form is refused stops the feed (`halt`), or itself alone (`park`)",
        ("halt", "park"),
    ),
    "flush-interval": Param("duration", "flush_interval_ms", "1s", "shortest time between two advances of the lake"),
    "upkeep": Param(
        "choice", "upkeep", "on", "`on`: delete what the following times allow; `off`: keep all", ("on", "off")
    ),
    "upkeep-interval": Param("duration", "upkeep_interval_ms", "1m", "time between two passes of the upkeep", low=1000),
    "snapshot-retention": Param(
        "duration",
        "snapshot_retention_ms",
        "168h",
        "how long snapshots stay: all for 10 minutes, then one a minute for a day, then one an hour",
        high=TIME_MAX_MS,
    ),
    "changelog-retention": Param(
        "duration",
        "changelog_retention_ms",
        "1h",
        "how long landed rows stay that the lake has already, measured back from the newest resolved ts",
        high=TIME_MAX_MS,
    ),
    "recover-retention": Param(
        "duration",
        "recover_retention_ms",
        "168h",
        "how long the rows of dropped tables stay for RECOVER TABLE and FLASHBACK TABLE",
        high=TIME_MAX_MS,
    ),
}


DELTA_KEYS: Final = frozenset(f"sink.delta-config.{name}" for name in DELTA_SINK) | {
    "sink.column-selectors[].matcher",
    "sink.column-selectors[].columns",
}
"""Keys of a changefeed file that act where a lake is written."""

_NAMES: Final = RefusedKey(("",), UnsupportedError, "tables of a lake have the upstream's names")
DELTA_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey(
        (False,), ConfigError, "sync points are for databases; a lake is read at any ts that it has, without them"
    ),
    "sink.dispatchers[].target-schema": _NAMES,
    "sink.dispatchers[].target-table": _NAMES,
}
"""Keys that a lake has no place for."""


class DeltaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A lake of Delta tables. `path` is a file path or an object store address (s3://bucket/prefix)."""

    path: str
    mode: str = "replica"
    schema_change: str = "evolve"
    iceberg: str = "on"
    catalog: str = EMBEDDED
    catalog_warehouse: str = ""
    catalog_token_file: str = ""
    zero_date: str = "null"
    column_mapping: str = "auto"
    time_zone: str | None = None
    worker_count: int | None = None
    table_error: str = "halt"
    flush_interval_ms: int = 1000
    upkeep: str = "on"
    upkeep_interval_ms: int = 60_000
    snapshot_retention_ms: int = 7 * 86_400_000
    changelog_retention_ms: int = 3_600_000
    recover_retention_ms: int = 7 * 86_400_000
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return self.path

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
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


def parse_delta(uri: str, options: Mapping[str, Given] | None = None) -> DeltaTarget:
    """Return the lake behind `uri`; its parameters win over `options`, which come from a file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    given = {**(options or {}), **parameters(parts, DELTA_SINK)}
    fields, ignored = read_all(DELTA_SINK, given, UriInvalid)
    target = msgspec.convert({**fields, "path": lake_path(parts), "ignored": ignored}, DeltaTarget)
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


def lake_path(parts: Parts) -> str:
    """Return the directory or the place in an object store that an address names. Raises UriInvalid."""
    store = parts.scheme.partition("+")[2]
    path = unquote(parts.path)
    if "\0" in path:
        raise UriInvalid(f"{parts.where}: the path holds a NUL byte")
    if store in STORES:
        return object_store(parts)
    if parts.netloc in {".", ".."}:
        return _named(parts, parts.netloc + path)
    if parts.netloc:
        raise UriInvalid(
            f"{parts.where}: write {parts.scheme}:///{parts.netloc}{parts.path} for an absolute path or "
            f"{parts.scheme}://./{parts.netloc}{parts.path} for one from here"
        )
    if not path.strip("/"):
        raise UriInvalid(f"{parts.where}: the path of the lake is missing; write {parts.scheme}:///path/of/lake")
    return _named(parts, path)


def _named(parts: Parts, path: str) -> str:
    found = posixpath.normpath(path)
    name_file(parts.where, found)
    return found
