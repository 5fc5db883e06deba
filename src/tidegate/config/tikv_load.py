"""tikv:// addresses: what a source and `load-from` have in common, and those of a load (source/tikv_load.py)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from tidegate.config.option import options_of, read_all
from tidegate.config.uri import Parts, hosts_of, name_file, parameters, scheme_of, split
from tidegate.model.errors import ConfigError, EnvironmentFault, UriInvalid
from tidegate.source.tikv_options import SCHEME, TikvLoadOptions
from tidegate.tikv.address import PD_PORT, address_of, cluster_address, target_of

_OPTIONS: Final = options_of(TikvLoadOptions)


def parse_cluster(uri: str) -> TikvLoadOptions:
    """Return the cluster that a load reads."""
    parts = split(uri, "load-from", [SCHEME])
    fields, _ = read_all(_OPTIONS, parameters(parts, _OPTIONS), UriInvalid)
    options = TikvLoadOptions(pd=pd_of(parts), **fields)
    check_address(options, "load-from")
    return options


def load_uri(source_uri: str, mode: str, flat: Mapping[str, object]) -> str:
    """Return the address that loads the cluster of a source, with those of its parameters and keys that a load has; ""
    for a mode without a load, and for other sources.

    >>> load_uri("tikv://pd1:2379?ca-path=/ca.pem&log=/log", "initial", {"source.gc-ttl": 600})
    'tikv://pd1:2379?gc-ttl=600&ca-path=%2Fca.pem'
    """
    if mode not in {"initial", "cancel"} or scheme_of(source_uri) != SCHEME:
        return ""
    head, _, query = source_uri.partition("?")
    own = {name: str(flat[path]) for name in _OPTIONS if (path := f"source.{name}") in flat}
    own |= {name: value for name, value in parse_qsl(query) if name in _OPTIONS}
    return f"{head}?{urlencode(own)}" if own else head


def pd_of(parts: Parts) -> str:
    """Return PD's members of an address. Raises UriInvalid."""
    if parts.path.strip("/") or "@" in parts.netloc:
        raise UriInvalid(f"{parts.where}: expected tikv://PD:2379, without a path or an account, found {parts.shown}")
    hosts = hosts_of(parts, parts.netloc, PD_PORT)
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def check_address(options: Any, where: str) -> None:
    """Report the files of certificates. Raises ConfigError for some of them without the others, and for a host-mapping
    that is none."""
    try:
        address = address_of(options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    for name in ("ca-path", "cert-path", "key-path"):
        name_file(f"{where}: {name}", getattr(address, name.replace("-", "_")))


def cluster_uri(pd: str, **files: str) -> str:
    """Return the address of a source by PD's URLs as TiCDC takes them, joined by commas, and the `ca_path`, `cert_path`
    and `key_path` of certificates. Raises ConfigError.

    >>> cluster_uri("https://pd1:2379,https://pd2:2379", ca_path="/ca.pem")
    'tikv://pd1:2379,pd2:2379?ca-path=%2Fca.pem'
    """
    members = ",".join(map(target_of, cluster_address(pd, **files).pd))
    words = urlencode({name.replace("_", "-"): path for name, path in files.items() if path})
    return f"{SCHEME}://{members}{words and f'?{words}'}"


@contextmanager
def needs_grpc() -> Iterator[None]:
    """Raise EnvironmentFault where an import finds no gRPC."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise EnvironmentFault("a cluster is read over gRPC: pip install 'tidegate[tikv]'") from missing
