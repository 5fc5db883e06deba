"""Configuration of a server, a TOML file with TiCDC's keys and Tidegate's, overridden by flags; and its write token.

    addr = "127.0.0.1:8300"              [security]
    data-dir = "/var/lib/tidegate"       ca-path = ".."  cert-path = ".."  key-path = ".."
    source-uri = "tidb:///srv/log"       users-file = "/etc/tidegate/users"

`source-uri` is the upstream of changefeeds that name none.  `pd` is another way to say it: the URLs of a cluster's PD,
as TiCDC's `--pd` has them; those with `https://` are shown the certificate of `[security]`.  `data-dir` is a directory
for servers of one machine, an object store's prefix for servers of several.

A server without users accepts writes with its token, so whoever can read the token's file may change changefeeds:

    DATA_DIR/token           one word, mode 0600, created once, shared by servers of a directory (of a store: an object)
    CACHE/servers/PORT.json  the token and the process, while that runs: `tidegate cli` of the same user finds it there

It is sent as bearer token, or as the password of any user.

Source: TiCDC documentation, "TiCDC Server Configurations".
"""

import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tidegate.config.tikv_load import cluster_uri
from tidegate.config.uri import nearest, read_token, state_directory
from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.model.host import reaches_others
from tidegate.model.name import all_digits
from tidegate.objectstore.local_files import write_whole
from tidegate.objectstore.stores import Changed
from tidegate.server.documents import Documents
from tidegate.server.web_server import Tls
from tidegate.spark.cache import cache_dir

PORT: Final = 8300
TTL_MIN_S: Final = 2


class Security(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """TLS and authentication. With certificate and key the port speaks TLS; with `mtls` it accepts only clients whose
    certificate is signed by the authority in `ca_path`, with a name in `cert_allowed_cn`."""

    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    cert_allowed_cn: tuple[str, ...] = ()
    mtls: bool = False
    client_user_required: bool = False
    client_allowed_user: tuple[str, ...] = ()
    users_file: str = ""
    """File with a line per user: name, colon, hash; written by `tidegate server user`."""
    token_file: str = ""
    """File with the bearer token of programs."""
    auth: Literal["token", "none"] = "token"
    """Credential that a server without users requires of writes: the token in its data directory, or none."""
    token_hosts: tuple[str, ...] = ()
    """HOST or HOST:PORT to which changefeeds of clients may send tokens from files and the environment."""

    @property
    def authenticates(self) -> bool:
        """True if clients must authenticate."""
        return bool(self.users_file or self.token_file or self.mtls)


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The configuration of a server."""

    addr: str = f"127.0.0.1:{PORT}"
    advertise_addr: str = ""
    """Address for other servers and clients; default: `addr`."""
    data_dir: str = ""
    allow_path: tuple[str, ...] = ()
    """Directories in which clients may name files; default: the data directory, and the one in which the server
    started."""
    source_uri: str = ""
    pd: str = ""
    """PD's URLs, joined by commas; they become `source_uri`."""
    cluster_id: str = "default"
    gc_ttl: int = 86_400
    capture_session_ttl: int = 10
    """Seconds without a sign of life after which another server takes over."""
    callback_modules: tuple[str, ...] = ()
    """Functions that changefeeds may call (`callback://`): MODULE/NAME, or MODULE for all that are defined in it."""
    tz: str = "System"
    log_level: str = "info"
    log_file: str = ""
    redact_info_log: Literal["off", "marker", "on"] = "off"
    """How values and keys of rows stand in the log and in errors."""
    security: Security = Security()

    @property
    def host(self) -> str:
        return self.addr.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.addr.rpartition(":")[2])

    @property
    def tls(self) -> Tls:
        security = self.security
        return Tls(security.cert_path, security.key_path, security.ca_path if security.mtls else "")

    @property
    def scheme(self) -> str:
        return "https" if self.security.cert_path else "http"

    def state_dir(self, namespace: str) -> str:
        """Return the directory for checkpoints of a namespace's changefeeds whose sinks keep none."""
        return f"{self.data_dir.rstrip('/')}/state/{namespace}"


def server_config(path: Path | None, **flags: Any) -> ServerConfig:
    """Return the configuration of a file, overridden by the flags that are not None. Raises ConfigError."""
    try:
        tree = {} if path is None else tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tree |= {name.replace("_", "-"): value for name, value in flags.items() if value is not None and value != ()}
    try:
        config = msgspec.convert(tree, ServerConfig)
    except msgspec.ValidationError as error:
        keys = {
            each.encode_name: each.type for kind in (ServerConfig, Security) for each in msgspec.structs.fields(kind)
        }
        reason, _, key = str(error).rstrip("`").partition(" - at `$.")
        word = reason.partition("unknown field `")[2].partition("`")[0]
        what = f"unknown key {word}{nearest(word, keys)}" if word else str(error)
        if choices := get_args(keys.get(key.rpartition(".")[2])):
            what = f"{key}: expected one of {', '.join(choices)} ({reason})"
        raise ConfigError(f"{path or 'the flags'}: {what}") from error
    try:
        ZoneInfo("UTC" if config.tz == "System" else config.tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise ConfigError(f"tz {config.tz!r}: expected System, or a name such as UTC or Asia/Shanghai") from unknown
    return _checked(config)


def _checked(config: ServerConfig) -> ServerConfig:
    security = config.security
    host, colon, port = config.addr.rpartition(":")
    if not colon or not all_digits(port) or int(port) > 65_535:
        raise ConfigError(f"addr {config.addr!r}: expected HOST:PORT")
    if not config.data_dir:
        raise ConfigError("data-dir is missing: a directory, or s3://BUCKET/PREFIX for servers of several machines")
    if bool(security.cert_path) != bool(security.key_path):
        raise ConfigError("security.cert-path and security.key-path must be set together")
    if security.mtls and not (security.ca_path and security.cert_path):
        raise ConfigError("security.mtls needs ca-path, cert-path and key-path")
    if security.auth == "none" and security.authenticates:
        raise ConfigError("security.auth = none contradicts users-file, token-file and mtls: remove one or the other")
    if security.client_user_required and not (security.users_file and security.client_allowed_user):
        raise ConfigError("security.client-user-required needs users-file and client-allowed-user")
    if reaches_others(host.strip("[]")) and not security.authenticates:
        raise ConfigError(
            f"other machines reach {host or 'every address'}: set users-file, token-file or mtls under [security]"
        )
    if config.advertise_addr.startswith(("0.0.0.0", "[::]")):  # noqa: S104  refused
        raise ConfigError(f"advertise-addr {config.advertise_addr}: clients cannot connect to that address")
    for callable_ in config.callback_modules:
        module, slash, function = callable_.partition("/")
        if not all(map(str.isidentifier, (*module.split("."), *([function] if slash else [])))):
            raise ConfigError(f"callback-modules: expected MODULE/NAME, found {callable_!r}")
    if config.capture_session_ttl < TTL_MIN_S:
        raise ConfigError(f"capture-session-ttl: at least {TTL_MIN_S} s")
    data_dir = state_directory(config.data_dir)
    return msgspec.structs.replace(
        config,
        data_dir=data_dir,
        source_uri=_upstream(config),
        allow_path=config.allow_path or _roots(data_dir),
        advertise_addr=config.advertise_addr or config.addr,
    )


def _upstream(config: ServerConfig) -> str:
    """Return the source of changefeeds that name none."""
    if config.pd and config.source_uri:
        raise ConfigError("pd and source-uri both name the upstream: remove one of them")
    names = ("ca_path", "cert_path", "key_path") if "https://" in config.pd else ()
    files = {name: getattr(config.security, name) for name in names}
    return cluster_uri(config.pd, **files) if config.pd else config.source_uri


def _roots(data_dir: str) -> tuple[str, ...]:
    """Default of allow-path: the data directory and the current one, unless that is the root."""
    directory = Path.cwd()
    return (
        *([] if "://" in data_dir else [data_dir]),
        *([] if directory == Path(directory.root) else [str(directory)]),
    )


NAME: Final = "token"
PORTS: Final = {"http": 80, "https": 443}


class _Note(msgspec.Struct, frozen=True):
    pid: int
    token: str


def write_token(config: ServerConfig, documents: Documents) -> str:
    """Return the server's token, created if there is none; "" if it authenticates users, or needs no token."""
    if config.security.authenticates or config.security.auth == "none":
        return ""
    word = secrets.token_urlsafe(32)
    if "://" not in config.data_dir:
        file = Path(config.data_dir, NAME)
        if not file.exists():
            with suppress(FileExistsError):
                write_whole(file, f"{word}\n", new=True)
        return read_token(file, "the server's token")
    with suppress(Changed):
        documents.write(NAME, word.encode())
    document = documents.read(NAME)
    return word if document is None else document.body.decode()


@contextmanager
def announced(port: int, token: str) -> Iterator[None]:
    """Let the user's own command line find the token while the block runs."""
    if not token:
        yield
        return
    note = _note(port)
    write_whole(note, msgspec.json.encode(_Note(os.getpid(), token)).decode())
    try:
        yield
    finally:
        if (current := _read(note)) and current.pid == os.getpid():
            note.unlink(missing_ok=True)


def found_token(server: str) -> str:
    """Return the token of the user's own server at an address of this machine; "" if none is known."""
    parts = urlsplit(server)
    with suppress(ValueError, KeyError, OSError, EnvironmentFault):
        if not reaches_others(parts.hostname or "") and (note := _read(_note(parts.port or PORTS[parts.scheme]))):
            os.kill(note.pid, 0)  # else another user's process may have the port
            return note.token
    return ""


def _note(port: int) -> Path:
    return cache_dir("servers") / f"{port}.json"


def _read(note: Path) -> _Note | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(note.read_bytes(), type=_Note)
    return None
