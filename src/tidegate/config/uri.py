r"""The parts of an address, and its secrets.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip
    scheme  \________/ \__________/ \_____________________________________/
              netloc       path          parameters, declared by its scheme

Names and values are percent-encoded as in any URI.  Repeated and unknown parameters are errors.  Messages never contain
passwords: `mask_uri` hides them, `Secret` prints as xxxxx.  Undeclared parts can be secrets too: the path of a webhook,
a parameter of its receiver, the end of a password with an unescaped "&".  Since all users of a machine can see the
arguments of a command, an address can also be read from a file, @FILE, or from the environment, env:NAME.

Local files and directories that addresses and parameters name (Option.local, the directory of an address) are
reported to the listener of `reporting_names` before they are opened: a server refuses those that its clients may not
name (server/changefeeds.py).
"""

import difflib
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.model.option import MASK, Local, Secret

_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|connection[-_.]?str|jaas|authorization|signature|^sig$"
    r"|(access|account|api|private|encryption|sas|shared)[-_.]?key",
    re.IGNORECASE,
)
_DECLARED: Final[set[str]] = set()
"""Names of parameters whose values are shown."""
_URL_WITH_PATH: Final = re.compile(r"(https?://[^/?#]*)/[^?#]+", re.IGNORECASE)
"""An address that is called, with a path."""
_CALLED_BY: Final[set[str]] = set()
"""Names of parameters whose values are such addresses."""
_USER_INFO: Final = re.compile(r"(?<=://)(?!\[)([^:/?#]*):(?:[^?#]*|(?!\d*(?:[,/?#]|$)).*)@", re.DOTALL)
"""User and password, up to the last "@" before parameters; up to the last one of all if no port precedes
the apparent path or parameters: a password that should have been percent-encoded."""
T = TypeVar("T")
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)([^?#\0-\x1f]*)(?:\?([^#\0-\x1f]*))?(?:#(.*))?")
"""RFC 3986, appendix B; the library's own parser takes several hosts with an IPv6 one among them for an error."""
HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@,]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
_TICDC: Final = ("azblob", "blackhole", "file", "gcs", "iceberg", "kafka", "mysql", "pulsar", "redis", "s3", "tidb")
"""Schemes that TiCDC or Flink CDC know, whether this release does or not."""
LAKE_SCHEMES: Final = ("delta", "iceberg", "changelog", "file")
"""Schemes of addresses of lakes, as sink and as source, and of files."""
STORES: Final = ("s3", "gs", "azure", "az", "abfss")
"""Schemes of object stores, as objectstore/stores.py opens them."""


def declare(names: Iterable[str], *, called_by: Iterable[str] = ()) -> None:
    """Let `mask_uri` show the values of these parameters, but for names that speak of a secret, and for the paths of
    addresses in `called_by`. The registry declares those of its tables; as long as none does, all values are masked."""
    _DECLARED.update(names)
    _CALLED_BY.update(called_by)


def mask_uri(uri: str) -> str:
    """Return `uri` with xxxxx for its user's password, for the path of a webhook, for every parameter that is not
    declared or whose name suggests a secret, and for the text after a "#", which no valid address has: it may be the
    end of a password."""
    return _URL_WITH_PATH.sub(rf"\1/{MASK}", _mask(uri), count=1) if _URL_WITH_PATH.match(uri) else _mask(uri)


def mask_text(text: str) -> str:
    """Return a text with the addresses in it masked; an address ends at a space."""
    return " ".join(_mask(word) if "://" in word else word for word in text.split(" ")) if "://" in text else text


def mask_value(name: str, value: str) -> str:
    """Return a parameter's value with its secrets masked: all of it, where its name speaks of one."""
    if value and _SECRET_NAME.search(name):
        return MASK
    if name in _CALLED_BY:
        return mask_uri(value)
    return _mask(value) if "://" in value else value


def _mask(uri: str) -> str:
    uri = _USER_INFO.sub(lambda hit: f"{hit[1]}:{MASK}@", uri)
    base, mark, query = uri.partition("?")
    query, hash_, fragment = query.partition("#")
    return base + mark + "&".join(map(_mask_parameter, query.split("&"))) + hash_ + (MASK if fragment else "")


def _mask_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    plain = unquote(name)
    if not value:
        return text if not text or plain in _DECLARED else MASK
    if plain not in _DECLARED:
        return f"{name}={MASK}"
    inner = unquote(value)
    masked = mask_value(plain, inner)
    return text if masked == inner else f"{name}{equals}{quote(masked, safe='')}"


def resolve_uri(uri: str, where: str) -> str:
    """Return the address that was given: `uri` itself, the text of the file of @FILE, or the variable of env:NAME."""
    kind, _, name = uri.partition(":")
    if kind == "env":
        if not (value := os.environ.get(name, "")):
            raise UriInvalid(f"{where}: environment variable {name!r} of {uri} is not set")
        return value
    if not uri.startswith("@"):
        return uri
    try:
        return Path(uri[1:]).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UriInvalid(f"{where}: cannot read {uri[1:]}: {type(error).__name__}") from error


def scheme_of(uri: str) -> str:
    """Return the scheme of an address, in lower case; "" where there is none."""
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator else ""


class RawValue(NamedTuple):
    """An unparsed value, and a description of where it was given."""

    where: str
    value: object


def nearest(word: str, names: Iterable[str]) -> str:
    """`; did you mean "x"?` for the known word closest to `word`, or nothing."""
    close = difflib.get_close_matches(word.replace("_", "-").lower(), list(names), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


class Parts(NamedTuple):
    """The parts of an address; `where` is source-uri or sink-uri, `shown` the address without its secrets."""

    where: str
    shown: str
    scheme: str
    netloc: str
    path: str
    query: str


def split(uri: str, where: str, schemes: Sequence[str]) -> Parts:
    """Return the parts of an address of one of these schemes. Raises an error for invalid ones, and `wrong_scheme`."""
    if not uri:
        raise UriInvalid(f"{where} is missing")
    match = _PARTS.fullmatch(uri)
    if match is None:
        raise UriInvalid(f"{where}: expected SCHEME://..., found {mask_uri(uri)}")
    if scheme_of(uri) not in schemes:
        raise wrong_scheme(uri, where, schemes)
    _, netloc, path, query, fragment = (part or "" for part in match.groups())
    user = _USER_INFO.search(uri)
    if user is not None and set(user[0]) & set("/?#"):
        raise UriInvalid(f"{where}: '/', '?' and '#' of a password must be written %2F, %3F and %23 in {mask_uri(uri)}")
    if fragment:
        raise UriInvalid(f"{where}: '#' must be written %23 in {mask_uri(uri)}")
    return Parts(where, mask_uri(uri), scheme_of(uri), netloc, path, query)


def hosts_of(parts: Parts, text: str, port: int) -> tuple[tuple[str, int], ...]:
    """Return the servers that `text` names, by HOST:PORT; `port` for those without one. Raises UriInvalid."""
    matches = [HOST.fullmatch(host) for host in text.split(",")]
    hosts = [(host["name"].strip("[]"), int(host["port"] or port)) for host in matches if host is not None]
    if len(hosts) < len(matches) or not all(0 < port < 1 << 16 for _, port in hosts):
        raise UriInvalid(f"{parts.where}: {text!r} is not HOST:PORT, or a list separated by ',', in {parts.shown}")
    return tuple(hosts)


def account_of(parts: Parts) -> tuple[dict[str, str], str]:
    """Return user and password of an address, and the servers after them."""
    account, _, hosts = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    return {"user": unquote(user), "password": Secret(unquote(password))}, hosts


def tls_of(parts: Parts, read: Mapping[str, object], error: type[ConfigError], scheme: str) -> bool:
    """Return True if an address enables TLS: by its scheme, which `scheme` describes, by ssl-ca or by enable-tls.

    Raises `error` for a client certificate without its key or without TLS, and for ways that contradict each other."""
    if bool(read.get("ssl_cert")) != bool(read.get("ssl_key")):
        raise error(f"{parts.where}: ssl-cert and ssl-key must be set together")
    implied = parts.scheme.endswith(("+ssl", "rediss")) or bool(read.get("ssl_ca"))
    tls_option = read.get("tls")
    if implied and tls_option is False:
        raise error(f"{parts.where}: enable-tls is false, but {scheme} or ssl-ca enables TLS")
    tls = implied or bool(tls_option)
    if read.get("ssl_cert") and not tls:
        raise error(f"{parts.where}: ssl-cert needs ssl-ca, or {scheme}")
    return tls


def wrong_scheme(uri: str, where: str, schemes: Sequence[str]) -> ConfigError | UnsupportedError:
    """Return the error for an address whose scheme is none of `known`."""
    what, scheme = where.removesuffix("-uri"), scheme_of(uri)
    right = " or ".join(f"{each}://" for each in schemes)
    if scheme in _TICDC:
        return UnsupportedError(f"{where}: no {what} {scheme}:// here; use {right}")
    reason = f'unknown scheme "{scheme}" in {mask_uri(uri)}'
    return UriInvalid(f"{where}: {reason}{nearest(scheme, schemes)}; use {right}")


def object_store(parts: Parts) -> str:
    """Return the address of an object store and a prefix in it. Raises UriInvalid."""
    if ":" in parts.netloc.rpartition("@")[0]:
        raise UriInvalid(
            f"{parts.where}: object store credentials come from the environment, not from the address: {parts.shown}"
        )
    if not parts.netloc:
        raise UriInvalid(f"{parts.where}: the bucket is missing in {parts.shown}")
    return f"{parts.scheme.rpartition('+')[2]}://{parts.netloc}{unquote(parts.path).rstrip('/')}"


def lake_path(parts: Parts) -> str:
    """Return the directory or the prefix in an object store that an address names. Raises UriInvalid."""
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
            f"{parts.scheme}://./{parts.netloc}{parts.path} for a relative one"
        )
    if not path.strip("/"):
        raise UriInvalid(f"{parts.where}: the path of the lake is missing; expected {parts.scheme}:///path/of/lake")
    return _named(parts, path)


def location_of(text: str, where: str, *others: str) -> str:
    """Return the directory or object store address that a path, a store's address or one of LAKE_SCHEMES names.

    Raises UriInvalid, and `wrong_scheme`, which tells of `others`, too."""
    if not text or "\0" in text or re.search("[\ud800-\udfff]", text):
        raise UriInvalid(f"{where}: {text!a:.200} is not a path: expected UTF-8 without NUL bytes")
    if "://" not in text:
        return text
    scheme = scheme_of(text)
    kind, _, store = scheme.partition("+")
    if kind in LAKE_SCHEMES and store in {"", "file", *STORES}:
        return lake_path(split(text, where, (scheme,)))
    if scheme not in {*STORES, "gcs", "azblob"}:
        raise wrong_scheme(text, where, (*others, LAKE_SCHEMES[0]))
    object_store(split(text, where, (scheme,)))
    return text


def _named(parts: Parts, path: str) -> str:
    normalized = posixpath.normpath(path)
    name_file(parts.where, normalized)
    return normalized


def state_directory(text: str, where: str = "state-dir") -> str:
    """Return a directory of a changefeed: a path, or the address of an object store. Raises what `split` does, and
    UriInvalid."""
    if "://" not in text:
        return str(Path(text))
    parts = split(text, where, STORES)
    parameters(parts, {})
    return object_store(parts)


def parameters(parts: Parts, names: Collection[str]) -> dict[str, RawValue]:
    """Return the parameters of an address by their names, without empty ones. Raises UriInvalid."""
    where = parts.where
    values: dict[str, RawValue] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=200)
    except ValueError as error:
        raise UriInvalid(f"{where}: parameters must be NAME=VALUE joined by '&': {parts.shown}") from error
    for name, value in pairs:
        if name not in names:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, names)}')
        if name in values:
            raise UriInvalid(f'{where}: parameter "{name}" is given twice')
        values[name] = RawValue(f'{where} parameter "{name}"', value)
    return {name: item for name, item in values.items() if item.value}


class LocalName(NamedTuple):
    """A path, and a description of where it was given."""

    where: str
    path: str


_CALLED_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
ADDED: Final = (
    *("AWS_SESSION_TOKEN", "AWS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "AZURE_FABRIC_TOKEN_SERVICE_URL",
)
"""Variables that clients of stores read besides explicit keys, or in place of them."""
OVER_SIGNATURES: Final = (
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    *("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
)
"""Variables that they read in place of an explicit shared access signature."""
NameListener = Callable[[LocalName], None]
_LISTENER: ContextVar[NameListener | None] = ContextVar("listener", default=None)


@contextmanager
def reporting_names(listener: NameListener) -> Iterator[None]:
    """Pass each local name that is read in the block to `listener`, before it is opened."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def name_file(where: str, path: str) -> None:
    """Report a file or a directory to the listener of `reporting_names`."""
    listener = _LISTENER.get(None)
    if path and listener is not None:
        listener(LocalName(where, path))


def report_directory(where: str, text: str) -> None:
    """Report a directory to the listener of `reporting_names`, in each way in which its path or address can be read; an
    object store is none."""
    scheme, _, path = _split_url(text)
    if "://" not in text:
        name_file(where, text)
    if scheme in {"", "file", "local"}:
        name_file(where, unquote(path))


def host_of(url: str) -> str:
    """Return HOST:PORT of an http:// or https:// address; all of one that parsers could read in two ways."""
    scheme, netloc = _split_url(url if "://" in url else f"http://{url}")[:2]
    if not _CALLED_HOST.fullmatch(netloc):
        return url
    host, _, port = netloc.rpartition(":") if re.search(r":[0-9]+$", netloc) else (netloc, "", "")
    return f"{host.strip('[]').lower()}:{port or (80 if scheme == 'http' else 443)}"


def store_host(uri: str) -> frozenset[str]:
    """Return the server named in an object store's address, unless the address also has the keys: otherwise keys of the
    environment, or signatures made with them, are sent to it."""
    query = dict(parse_qsl(uri.partition("?")[2]))
    has_key = {"access-key", "secret-access-key"} <= query.keys() or "account-key" in query
    variables = ADDED if has_key else (*ADDED, *OVER_SIGNATURES)
    own_keys = (has_key or "sas-token" in query) and not any(map(os.environ.get, variables))
    return frozenset() if own_keys or not query.get("endpoint") else frozenset({host_of(query["endpoint"])})


def _split_url(text: str) -> tuple[str, str, str]:
    """Scheme, host and path of an address; of what is none the text as a path."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "", "", text
    return parts.scheme, parts.netloc, parts.path


def name_local(kind: Local, where: str, value: T) -> T | str:
    """Report the file or directory that a parameter of a kind names; return the value. The path of a file becomes
    absolute: executors, which have working directories of their own, read it, too."""
    if kind is Local.LOCATION:
        report_directory(where, str(value))
    elif kind is not Local.NOTHING and value:
        name_file(where, str(value))
        return str(Path(str(value)).absolute())
    return value


def read_token(file: str | Path, where: str) -> str:
    """Return the one word in `file`; "" where none is named. ConfigError, which begins with `where`, for a file that
    holds anything else."""
    if not file:
        return ""
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} {file}: {error}") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where} {file}: expected one word of printable ASCII characters")
    return token
