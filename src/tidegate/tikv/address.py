"""Addresses of a cluster: PD's URLs, how what it advertises is reached, and the certificates.

    pd1:2379,https://pd2:2379                         given: where members are asked for
    http://pd-0.peer:2379, tikv-0.peer:20160          advertised: by members and stores
    host-mapping=tikv-0.peer:10.0.0.7,a:20160:b:30160 ADVERTISED:REACHABLE, each with a port or without

An entry with a port stands before one without; one without keeps the port.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from tidegate.model.errors import ConfigError

if TYPE_CHECKING:
    import grpc

PD_PORT: Final = 2379
_HOST: Final = r"(\[[0-9a-fA-F:.]+\]|[^:,\[\]]*[^0-9:,\[\]][^:,\[\]]*)(:[0-9]{1,5})?"
_ENTRY: Final = re.compile(f"{_HOST}:{_HOST}")


class ClusterAddress(msgspec.Struct, frozen=True):
    """Where a cluster is and what it is shown; paths are of PEM files, and no CA means no TLS."""

    pd: tuple[str, ...]
    host_mapping: Mapping[str, str] = {}
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""

    def reachable(self, advertised: str) -> str:
        """Return HOST:PORT for an advertised URL or HOST:PORT."""
        target = target_of(advertised)
        if target in self.host_mapping:
            return self.host_mapping[target]
        host, _, port = target.rpartition(":")
        return f"{self.host_mapping[host]}:{port}" if host in self.host_mapping else target

    def credentials(self) -> "grpc.ChannelCredentials | None":
        """Return the credentials of a channel, None without a CA."""
        if not self.ca_path:
            return None
        import grpc  # a configuration is read without it

        pems = [_read(path) if path else None for path in (self.ca_path, self.key_path, self.cert_path)]
        return grpc.ssl_channel_credentials(*pems)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as fault:
        raise ConfigError(f"cannot read the certificate file {path}: {fault.strerror}") from fault


def cluster_address(
    pd: str, *, host_mapping: str = "", ca_path: str = "", cert_path: str = "", key_path: str = ""
) -> ClusterAddress:
    """Return the address that texts describe; `pd` is a list of URLs or HOST:PORT, joined by commas."""
    if bool(cert_path) != bool(key_path) or (cert_path and not ca_path):
        raise ConfigError("a client certificate needs ca-path, cert-path and key-path")
    urls = tuple(url.strip() for url in pd.split(",") if url.strip())
    if not urls:
        raise ConfigError("no address of PD: give one or more, such as pd1:2379,pd2:2379")
    for url in urls:
        target_of(url)
        if url.startswith("https://") and not ca_path:
            raise ConfigError(f"{url} needs ca-path, the certificate of the cluster's authority")
    return ClusterAddress(urls, parse_host_mapping(host_mapping), ca_path, cert_path, key_path)


def address_of(options: Any) -> ClusterAddress:
    """Return the address that the options of a source or a load describe."""
    names = ("host_mapping", "ca_path", "cert_path", "key_path")
    return cluster_address(options.pd, **{name: getattr(options, name) for name in names})


def target_of(url: str) -> str:
    """Return HOST:PORT of a URL of PD or of a store's address."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        port, host = parts.port or PD_PORT, parts.hostname or ""
    except ValueError:
        host, port = "", 0
    if not host or parts.path.strip("/") or parts.query or parts.username:
        shown = url.rpartition("@")[2]  # without a password
        raise ConfigError(f"{shown!r} is no address: HOST:PORT, http://HOST:PORT or https://HOST:PORT")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host_mapping(text: str) -> dict[str, str]:
    """Return what is reachable by what is advertised, with their ports where they have some."""
    mapping = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        parts = _ENTRY.fullmatch(entry)
        if not parts or bool(parts[2]) != bool(parts[4]):
            raise ConfigError(
                f"host-mapping: {entry!r} is not ADVERTISED:REACHABLE, such as tikv-0.peer:10.0.0.7 or "
                "tikv-0.peer:20160:10.0.0.7:30160"
            )
        mapping[(parts[1] + (parts[2] or "")).lower()] = parts[3] + (parts[4] or "")
    return mapping
