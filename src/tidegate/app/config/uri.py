r"""The parts of an address, and its secrets.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip
    scheme  \________/ \__________/ \_____________________________________/
              netloc       path          parameters, each of a table of its scheme

Names and values are percent-encoded as in any URI.  A parameter given twice and an unknown one are errors.  Passwords
never leave in a message: `mask_uri` hides them, `Secret` prints as xxxxx.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from tidegate.app.config.param import Given, Param, nearest
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid

MASK: Final = "xxxxx"
_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|pwd|secret|token|credential|(access|account|api|private|encryption|sas)[-_.]?key|signature|^sig$",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(?<=://)([^:/?#]*):([^?#]*)@")
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)([^?#\0-\x1f]*)(?:\?([^#\0-\x1f]*))?(?:#(.*))?")
"""RFC 3986, appendix B; the library's own parser takes several hosts with an IPv6 one among them for an error."""
_TICDC: Final = ("azblob", "blackhole", "file", "gcs", "iceberg", "kafka", "mysql", "pulsar", "redis", "s3", "tidb")
"""Schemes that TiCDC or Flink CDC know, whether this release does or not."""


class Secret(str):
    """A text that prints as xxxxx; `str()` of it is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK) if self else "''"


def mask_uri(uri: str) -> str:
    """Return `uri` with xxxxx for its user's password and for every parameter whose name speaks of a secret."""
    uri = _USER_INFO.sub(lambda hit: f"{hit[1]}:{MASK}@", uri)
    base, mark, query = uri.partition("?")
    query, hash_, fragment = query.partition("#")
    return base + mark + "&".join(map(_mask_parameter, query.split("&"))) + hash_ + fragment


def _mask_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if not value:
        return text
    if _SECRET_NAME.search(unquote(name)):
        return f"{name}={MASK}"
    inner = unquote(value)
    masked = mask_uri(inner) if "://" in inner else inner
    return text if masked == inner else f"{name}{equals}{quote(masked, safe='')}"


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
    if fragment:
        raise UriInvalid(f"{where}: '#' must be written %23 in {mask_uri(uri)}")
    return Parts(where, mask_uri(uri), scheme_of(uri), netloc, path, query)


def wrong_scheme(uri: str, where: str, known: Sequence[str]) -> ConfigError | UnsupportedError:
    """Return the error for an address whose scheme is none of `known`."""
    what, scheme = where.removesuffix("-uri"), scheme_of(uri)
    right = " or ".join(f"{each}://" for each in known)
    if scheme in _TICDC:
        return UnsupportedError(f"{where}: no {what} {scheme}:// here; use {right}")
    found = f'unknown scheme "{scheme}" in {mask_uri(uri)}'
    return UriInvalid(f"{where}: {found}{nearest(scheme, known)}; use {right}")


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
