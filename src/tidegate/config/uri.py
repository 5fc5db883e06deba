r"""The parts of an address, and its secrets.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip
    scheme  \________/ \__________/ \_____________________________________/
              netloc       path          parameters, each of a table of its scheme

Names and values are percent-encoded as in any URI.  A parameter given twice and an unknown one are errors.  Passwords
never leave in a message: `mask_uri` hides them, `Secret` prints as xxxxx.  What no table of parameters declares may be
a secret too: the path of a webhook, a parameter of its receiver, the end of a password that holds a bare "&".  As all
users of a machine see the words of a command, an address may stand in a file, @FILE, or in the environment, env:NAME.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from tidegate.config.param import Given, Param, nearest
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid

MASK: Final = "xxxxx"
_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|connection[-_.]?str|jaas|authorization|signature|^sig$"
    r"|(access|account|api|private|encryption|sas|shared)[-_.]?key",
    re.IGNORECASE,
)
_DECLARED: Final[set[str]] = set()
"""Names of parameters whose values are shown."""
_CALLED: Final = re.compile(r"(https?://[^/?#]*)/[^?#]+", re.IGNORECASE)
"""An address that is called, with a path."""
_CALLED_BY: Final[set[str]] = set()
"""Names of parameters whose values are such addresses."""
_USER_INFO: Final = re.compile(r"(?<=://)(?!\[)([^:/?#]*):(?:[^?#]*|(?!\d*(?:[,/?#]|$)).*)@", re.DOTALL)
"""User and password, up to the last "@" before parameters; up to the last one where what looks like them, or like a
path, cannot be, as no port stands before it: a password that should have been percent-encoded."""
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)([^?#\0-\x1f]*)(?:\?([^#\0-\x1f]*))?(?:#(.*))?")
"""RFC 3986, appendix B; the library's own parser takes several hosts with an IPv6 one among them for an error."""
_HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@,]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
_TICDC: Final = ("azblob", "blackhole", "file", "gcs", "iceberg", "kafka", "mysql", "pulsar", "redis", "s3", "tidb")
"""Schemes that TiCDC or Flink CDC know, whether this release does or not."""
STORES: Final = ("s3", "gs", "azure", "az", "abfss")
"""Schemes of object stores, as objectstore/stores.py opens them."""


class Secret(str):
    """A text that prints as xxxxx; `str()` of it is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK) if self else "''"


def declare(names: Iterable[str], *, called: Iterable[str] = ()) -> None:
    """Let `mask_uri` show the values of these parameters, but for names that speak of a secret, and for the paths of
    those that are `called`. The registry declares those of its tables; as long as none does, all values are masked."""
    _DECLARED.update(names)
    _CALLED_BY.update(called)


def mask_uri(uri: str) -> str:
    """Return `uri` with xxxxx for its user's password, for the path of a webhook, for every parameter that is not
    declared or whose name speaks of a secret, and for what stands behind a "#", since no address of ours has that: it
    may be the end of a password."""
    return _CALLED.sub(rf"\1/{MASK}", _mask(uri), count=1) if _CALLED.match(uri) else _mask(uri)


def mask_text(text: str) -> str:
    """Return a text with the addresses in it masked; an address ends where a space stands."""
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


def told(uri: str, where: str) -> str:
    """Return the address that was given: `uri` itself, the text of the file of @FILE, or the variable of env:NAME."""
    kind, _, name = uri.partition(":")
    if kind == "env":
        if not (found := os.environ.get(name, "")):
            raise UriInvalid(f"{where}: there is no variable {name!r} in the environment, which {uri} asks for")
        return found
    if not uri.startswith("@"):
        return uri
    try:
        return Path(uri[1:]).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UriInvalid(f"{where}: {uri[1:]} cannot be read: {type(error).__name__}") from error


def scheme_of(uri: str) -> str:
    """Return the scheme of an address, in lower case; "" where there is none."""
    scheme, found, _ = uri.partition("://")
    return scheme.lower() if found else ""


class Parts(NamedTuple):
    """The parts of an address; `where` is source-uri or sink-uri, `shown` the address without its secrets."""

    where: str
    shown: str
    scheme: str
    netloc: str
    path: str
    query: str


def split(uri: str, where: str, schemes: Sequence[str]) -> Parts:
    """Return the parts of an address of one of these schemes. Raises what is wrong with it, and `wrong_scheme`."""
    if not uri:
        raise UriInvalid(f"{where} is missing")
    found = _PARTS.fullmatch(uri)
    if found is None:
        raise UriInvalid(f"{where}: expected SCHEME://..., found {mask_uri(uri)}")
    if scheme_of(uri) not in schemes:
        raise wrong_scheme(uri, where, schemes)
    _, netloc, path, query, fragment = (part or "" for part in found.groups())
    user = _USER_INFO.search(uri)
    if user is not None and set(user[0]) & set("/?#"):
        raise UriInvalid(f"{where}: '/', '?' and '#' of a password must be written %2F, %3F and %23 in {mask_uri(uri)}")
    if fragment:
        raise UriInvalid(f"{where}: '#' must be written %23 in {mask_uri(uri)}")
    return Parts(where, mask_uri(uri), scheme_of(uri), netloc, path, query)


def hosts_of(parts: Parts, places: str, port: int) -> tuple[tuple[str, int], ...]:
    """Return the servers that `places` names, by HOST:PORT; `port` for those without one. Raises UriInvalid."""
    found = [_HOST.fullmatch(place) for place in places.split(",")]
    hosts = [(host["name"].strip("[]"), int(host["port"] or port)) for host in found if host is not None]
    if len(hosts) < len(found) or not all(0 < port < 1 << 16 for _, port in hosts):
        raise UriInvalid(f"{parts.where}: {places!r} is not HOST:PORT, or several joined by ',', in {parts.shown}")
    return tuple(hosts)


def wrong_scheme(uri: str, where: str, known: Sequence[str]) -> ConfigError | UnsupportedError:
    """Return the error for an address whose scheme is none of `known`."""
    what, scheme = where.removesuffix("-uri"), scheme_of(uri)
    right = " or ".join(f"{each}://" for each in known)
    if scheme in _TICDC:
        return UnsupportedError(f"{where}: no {what} {scheme}:// here; use {right}")
    found = f'unknown scheme "{scheme}" in {mask_uri(uri)}'
    return UriInvalid(f"{where}: {found}{nearest(scheme, known)}; use {right}")


def object_store(parts: Parts) -> str:
    """Return the address of an object store and a place in it. Raises UriInvalid."""
    if ":" in parts.netloc.rpartition("@")[0]:
        raise UriInvalid(
            f"{parts.where}: keys of a store come from the environment, not from its address: {parts.shown}"
        )
    if not parts.netloc:
        raise UriInvalid(f"{parts.where}: the bucket is missing in {parts.shown}")
    return f"{parts.scheme.rpartition('+')[2]}://{parts.netloc}{unquote(parts.path).rstrip('/')}"


def state_place(text: str) -> str:
    """Return a state directory: a path, or the address of an object store. Raises what `split` does, and UriInvalid."""
    if "://" not in text:
        return str(Path(text))
    parts = split(text, "state-dir", STORES)
    parameters(parts, {})
    return object_store(parts)


def parameters(parts: Parts, params: Mapping[str, Param]) -> dict[str, Given]:
    """Return the parameters of an address by their names, without empty ones. Raises UriInvalid."""
    where = parts.where
    given: dict[str, Given] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=200)
    except ValueError as error:
        raise UriInvalid(f"{where}: parameters must be NAME=VALUE joined by '&': {parts.shown}") from error
    for name, value in pairs:
        if name not in params:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, params)}')
        if name in given:
            raise UriInvalid(f'{where}: parameter "{name}" is given twice')
        given[name] = Given(f'{where} parameter "{name}"', value)
    return {name: item for name, item in given.items() if item.value}
