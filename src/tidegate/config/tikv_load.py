"""tikv:// addresses: what a source and `load-from` have in common, and those of a load (source/tikv_load.py)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidegate.config.option import options_of, read_all
from tidegate.config.uri import Parts, hosts_of, name_file, parameters, split
from tidegate.model.errors import ConfigError, EnvironmentFault, UriInvalid
from tidegate.source.tikv_options import SCHEME, TikvLoadOptions

_PD_PORT: Final = 2379
_OPTIONS: Final = options_of(TikvLoadOptions)


def parse_cluster(uri: str) -> TikvLoadOptions:
    """Return the cluster that a load reads."""
    parts = split(uri, "load-from", [SCHEME])
    fields, _ = read_all(_OPTIONS, parameters(parts, _OPTIONS), UriInvalid)
    options = TikvLoadOptions(pd=pd_of(parts), **fields)
    check_files(options, "load-from")
    return options


def pd_of(parts: Parts) -> str:
    """Return PD's members of an address. Raises UriInvalid."""
    if parts.path.strip("/") or "@" in parts.netloc:
        raise UriInvalid(f"{parts.where}: expected tikv://PD:2379, without a path or an account, found {parts.shown}")
    hosts = hosts_of(parts, parts.netloc, _PD_PORT)
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def check_files(read: Any, where: str) -> None:
    """Name the files of certificates. Raises ConfigError for some of them without the others."""
    if bool(read.cert_path) != bool(read.key_path) or (read.cert_path and not read.ca_path):
        raise ConfigError(f"{where}: a client certificate needs ca-path, cert-path and key-path")
    for name, path in (("ca-path", read.ca_path), ("cert-path", read.cert_path), ("key-path", read.key_path)):
        name_file(f"{where}: {name}", path)


@contextmanager
def needs_grpc() -> Iterator[None]:
    """Raise EnvironmentFault where an import finds no gRPC."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise EnvironmentFault("a cluster is read over gRPC: pip install 'tidegate[tikv]'") from missing
