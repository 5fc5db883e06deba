"""Options of a TiDB cluster that is read by its PD and TiKV, without gRPC, so that a configuration can be read."""

from typing import Annotated, Final, Literal

import msgspec

from tidegate.engine.chunk_size import CHUNK_ROWS
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError
from tidegate.model.kept_state import StateKind, decode_state
from tidegate.model.option import Local, Option
from tidegate.objectstore.store_path import Location
from tidegate.source.upstream_address import (
    ChunkRows,
    Connections,
    LoadHours,
    LoadOptions,
    ResourceGroup,
    RowsPerSecond,
)

SCHEME: Final = "tikv"
GC_TTL_S: Final = 86_400
CaPath = Annotated[str, Option("ca-path", "path of the CA certificate; enables TLS", local=Local.FILE)]
CertPath = Annotated[str, Option("cert-path", "path of the client certificate", local=Local.FILE)]
KeyPath = Annotated[str, Option("key-path", "path of the client key", local=Local.FILE)]
HostMapping = Annotated[
    str, Option("host-mapping", "how advertised addresses of PD and TiKV are reached: `ADVERTISED:REACHABLE,..`")
]
GcTtl = Annotated[
    int, Option("gc-ttl", "seconds for which garbage collection waits for a changefeed that does not run", low=60)
]


class TikvLoadOptions(LoadOptions, frozen=True, kw_only=True):
    """A cluster to load, and its options; `rows_per_s` (0: no limit) is per task."""

    pd: str
    ca_path: CaPath = ""
    cert_path: CertPath = ""
    key_path: KeyPath = ""
    host_mapping: HostMapping = ""
    gc_ttl_s: GcTtl = GC_TTL_S
    connections: Connections = 4
    chunk_rows: ChunkRows = CHUNK_ROWS
    rows_per_s: RowsPerSecond = 0
    load_hours: LoadHours = ""
    replica_read: Annotated[
        Literal["leader", "follower"], Option("replica-read", "replicas to read: `leader` or `follower`")
    ] = "leader"
    resource_group: ResourceGroup = ""

    @property
    def label(self) -> str:
        return self.pd

    @property
    def identity(self) -> str:
        return f"tikv://{self.pd}"

    @property
    def server(self) -> str:
        """The cluster, for messages."""
        return self.pd


ORIGIN: Final = "capture.json"


class CaptureOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of which cluster a captured log is, and of which tables; `log` tells it from other logs of the cluster, and is
    empty from releases without it."""

    cluster_id: int
    rules: tuple[str, ...]
    log: str = ""
    case_sensitive: bool = False

    @property
    def tables(self) -> TableFilter:
        """The filter whose tables the log has."""
        return TableFilter.parse(self.rules, case_sensitive=self.case_sensitive)


def origin_of(directory: Location) -> CaptureOrigin | None:
    """Return the origin of the log in a directory or an object store; None for one that no capture writes. Raises
    ConfigError, StateTooNew where it cannot be read."""
    path = directory / ORIGIN
    try:
        return decode_state(StateKind.CAPTURE, path.read_bytes(), CaptureOrigin, str(path))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} does not tell of which cluster the log is: {error}; restore it") from error
