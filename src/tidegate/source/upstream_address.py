"""The upstream database's address, in the form of TiCDC's MySQL and TiDB sinks.

    mysql://USER:PASSWORD@HOST:PORT/?ssl-ca=…&ssl-cert=…&ssl-key=…&timeout=10s&read-timeout=2m
    tidb://   the same

    (nothing)                  TLS, the server's certificate and name checked against the system's authorities or ssl-ca
    insecure-skip-verify=true  TLS, with any server
    enable-tls=false           no TLS: rows and password proofs can be read by anybody on the network path

The default port is 4000.  User and password are percent-encoded.  Errors never show the address, only host and port.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Final, Literal, get_type_hints
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from tidegate.engine.chunk_size import CHUNK_ROWS
from tidegate.model.errors import UriInvalid
from tidegate.model.option import Local, Option
from tidegate.mysql.client import ConnectionOptions, ServerTls

_PORT: Final = 4000
_DURATION: Final = re.compile(r"(\d{1,9})(ms|s|m|h)")
_HOURS: Final = re.compile(r"([01]?\d|2[0-3])-([01]?\d|2[0-4])([+ -][01]\d:[0-5]\d)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
OPTION: Final = "large-message-upstream-uri"
"""The option that holds an address, unless another is named."""


class Address(msgspec.Struct, frozen=True):
    """The address and account of a database; times in seconds."""

    host: str
    port: int = _PORT
    user: str = "root"
    password: str = ""
    ssl_ca: Annotated[str, Option("ssl-ca", "path of the CA certificate", local=Local.FILE)] = ""
    ssl_cert: Annotated[str, Option("ssl-cert", "path of the client's certificate", local=Local.FILE)] = ""
    ssl_key: Annotated[str, Option("ssl-key", "path of the client's key", local=Local.FILE)] = ""
    enable_tls: Annotated[bool, Option("enable-tls", "use TLS")] = True
    insecure_skip_verify: Annotated[
        bool, Option("insecure-skip-verify", "use TLS without checking certificate and name")
    ] = False
    timeout_s: Annotated[float, Option("timeout", "timeout of a connection attempt", "seconds")] = 10.0
    read_timeout_s: Annotated[float, Option("read-timeout", "timeout of a response, except rows", "seconds")] = 120.0

    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"

    @property
    def connection_options(self) -> ConnectionOptions:
        """The connection settings of the server."""
        tls = None
        if self.enable_tls:
            tls = ServerTls(self.ssl_ca, self.ssl_cert, self.ssl_key, verify=not self.insecure_skip_verify)
        times = (self.timeout_s, self.read_timeout_s, self.read_timeout_s)
        return ConnectionOptions(self.host, self.port, self.user, self.password.encode(), tls, *times)


def parse_address(uri: str, option: str = OPTION) -> Address:
    """Return the address in `uri`, the value of `option`. Raises UriInvalid, which does not show it, for any other
    text."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
        parameters = parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=20)
    except ValueError as error:
        raise UriInvalid(f"{option}: not a URI; expected mysql://USER:PASSWORD@HOST:PORT/") from error
    if parts.scheme not in {"mysql", "tidb"} or not host or parts.fragment or parts.path not in {"", "/"}:
        raise UriInvalid(
            f"{option}: expected mysql://USER:PASSWORD@HOST:PORT/ with user and password percent-encoded ('@' is %40, "
            "'/' is %2F, '#' is %23), and no database"
        )
    fields: dict[str, object] = {}
    for name, value in parameters:
        if name not in PARAMETERS:
            close = difflib.get_close_matches(name, PARAMETERS, n=1)
            raise UriInvalid(
                f"{option}: unknown parameter {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
            )
        field, read = PARAMETERS[name]
        fields[field] = read(f"{option}: {name}", value)
    if ("ssl_cert" in fields) != ("ssl_key" in fields):
        raise UriInvalid(f"{option}: ssl-cert and ssl-key must be set together")
    secured = fields.keys() & {"ssl_ca", "ssl_cert", "ssl_key", "insecure_skip_verify"}
    if secured and fields.get("enable_tls") is False:
        raise UriInvalid(f"{option}: enable-tls is false, so {', '.join(_spelled(secured))} would do nothing")
    who = {"user": unquote(parts.username or "root"), "password": unquote(parts.password or "")}
    return msgspec.convert({"host": host, "port": port or _PORT, **who, **fields}, Address)


def with_absolute_files(uri: str) -> str:
    """Return an address whose files executors find, which have working directories of their own."""
    head, _, query = uri.partition("?")
    pairs = [(name, _path(name, text) if name.startswith("ssl-") else text) for name, text in parse_qsl(query)]
    return f"{head}?{urlencode(pairs)}" if pairs else uri


def _spelled(fields: Collection[str]) -> list[str]:
    return sorted(field.replace("_", "-") for field in fields)


def _flag(name: str, value: str) -> object:
    if value not in {"true", "false"}:
        raise UriInvalid(f"{name} is {value!r}; expected true or false")
    return value == "true"


def _path(_name: str, value: str) -> object:
    return value and str(Path(value).absolute())


def _seconds(name: str, value: str) -> object:
    match = _DURATION.fullmatch(value)
    if match is None or int(match[1]) == 0:
        raise UriInvalid(f'{name} is {value!r}; expected a time such as "10s" or "2m"')
    return int(match[1]) * _UNIT_S[match[2]]


_READ: Final[Mapping[type, Callable[[str, str], object]]] = {bool: _flag, str: _path, float: _seconds}
PARAMETERS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    option.name: (field, _READ[hint.__origin__])
    for field, hint in get_type_hints(Address, include_extras=True).items()
    for option in getattr(hint, "__metadata__", ())
}


def hours_of(text: str) -> tuple[int, int, timezone] | None:
    """Return the first and the last hour of a text such as 22-6+08:00, and its zone; None for any other text. In an
    address + is a blank."""
    match = _HOURS.fullmatch(text)
    if match is None:
        return None
    zone = datetime.strptime((match[3] or "+00:00").replace(" ", "+"), "%z").tzinfo
    assert isinstance(zone, timezone)
    return int(match[1]), int(match[2]) % 24, zone


def rests_until(text: str, now_s: float) -> str:
    """Return the time at which the hours of `text` begin, such as 22:00+08:00; "" within them, and without any."""
    hours = hours_of(text)
    if hours is None:
        return ""
    first, last, zone = hours
    now = datetime.fromtimestamp(now_s, zone)
    inside = first <= now.hour < last if first < last else not last <= now.hour < first
    return "" if inside else f"{first:02}:00{now.isoformat()[-6:]}"


READ_TIMEOUT_S: Final = 900.0
"""A scan that skips many deleted versions is silent before its first row."""


RowsPerSecond = Annotated[int, Option("rows-per-second", "maximum rows/s of a connection; `0`: no limit")]
LoadHours = Annotated[
    str,
    Option("load-hours", "hours of the day in which rows are read, in UTC (`22-6`) or with an offset (`22-6+08:00`)"),
]
Connections = Annotated[int, Option("connections", "parallel connections that plan a load", low=1, high=64)]
ChunkRows = Annotated[int, Option("chunk-rows", "approximate rows of a chunk", low=1)]
ResourceGroup = Annotated[str, Option("resource-group", "resource group of the connections")]


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every load has: the zone of its TIMESTAMPs, what becomes of its target, and how much runs at once."""

    time_zone: str = "UTC"
    target: Annotated[
        Literal["refuse", "truncate", "keep"],
        Option(
            "load-target",
            "tables that hold rows in the target: `refuse` ends the changefeed, `truncate` empties them first, `keep` "
            "loads over them",
        ),
    ] = "refuse"
    publish: Annotated[
        Literal["together", "table"],
        Option("load-publish", "when a lake shows loaded tables: `together`, or each `table` once it is whole"),
    ] = "together"
    max_connections: Annotated[
        int, Option("max-connections", "maximum connections that read rows, over all tasks; `0`: one per task")
    ] = 0
    whole: bool = True
    """False for the definitions alone, without the borders of chunks."""
    sequences: bool = False
    """True where the target may have sequences."""


class SqlLoadOptions(LoadOptions, frozen=True):
    """A database to load, and its options. `rows_per_s` (0: no limit) and `scan_concurrency` are per connection,
    `connections` plan in parallel; without `snapshot` current rows are read, which is for benchmarks only."""

    address: Address
    connections: Connections = 4
    chunk_rows: ChunkRows = CHUNK_ROWS
    rows_per_s: RowsPerSecond = 0
    load_hours: LoadHours = ""
    gc_life_time_ms: Annotated[
        int,
        Option("gc-life-time", "`tidb_gc_life_time` during the load; restored afterwards", "duration", low=600_000),
    ] = 0
    replica_read: Annotated[str, Option("replica-read", "replicas to read, as in `tidb_replica_read`")] = ""
    resource_group: ResourceGroup = ""
    scan_concurrency: Annotated[int, Option("scan-concurrency", "`tidb_distsql_scan_concurrency`", low=1)] = 5
    read_timeout_s: float = READ_TIMEOUT_S
    snapshot: bool = True

    @property
    def label(self) -> str:
        return self.address.host

    @property
    def identity(self) -> str:
        return f"mysql://{self.server}"

    @property
    def server(self) -> str:
        """The server, for messages."""
        return f"{self.address.host}:{self.address.port}"
