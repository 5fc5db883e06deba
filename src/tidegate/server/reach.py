"""What clients of a server may name on its machine, and who may get its tokens.

    a file or a directory    below --allow-path, links followed; and none of the server's own
    a token of a file, or    to the hosts of token-hosts alone: a client names the address that it is sent to
    of the environment

What the server's own --source-uri names may be named by clients, too.  A changefeed that is there goes on with what it
names, and keeps that when it is changed.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegate.config.document import Document
from tidegate.config.feed import FeedConfig
from tidegate.config.local_name import LocalName, heard_by
from tidegate.config.registry import SOURCES, entries_of
from tidegate.config.uri import scheme_of
from tidegate.model.errors import TidegateError, UriInvalid
from tidegate.server.config import ServerConfig

LOG: Final = logging.getLogger(__name__)
OWN: Final = ("server.db", "server.db-wal", "server.db-shm", "token")
"""What a server keeps in its data directory for itself alone."""

Loads = Callable[[], FeedConfig]


class ClientReach:
    """The rules of one server."""

    def __init__(self, config: ServerConfig) -> None:
        security = config.security
        own = (security.users_file, security.token_file, security.key_path)
        kept = () if "://" in config.data_dir else (f"{config.data_dir}/{name}" for name in OWN)
        self._roots = tuple(filter(None, map(_real, config.allow_path)))
        self._own = tuple(filter(None, map(_real, (*filter(None, own), *kept))))
        self._hosts = frozenset(host.lower() for host in config.security.token_hosts)
        self._upstream, self._upstream_hosts = _upstream(config.source_uri)

    def admitted(self, wanted: Loads, before: Loads | None = None) -> FeedConfig:
        """Return what a client asks for, which may name what it named `before`. UriInvalid for what it may not name,
        and whatever `wanted` raises."""
        named, hosts = (set[LocalName](), frozenset[str]()) if before is None else _named(before)
        kept = {name.path for name in named}

        def hear(name: LocalName) -> None:
            if name.path not in kept and not self._knows(name.path):
                raise UriInvalid(
                    f"{name.where}: {name.path} is on the server's machine, where clients may name what lies below "
                    f"{', '.join(map(str, self._roots)) or 'no directory'}, but for the server's own files; start the "
                    "server with --allow-path DIRECTORY (allow-path in its file) to let them name others"
                )

        with heard_by(hear):
            config = wanted()
        for host in self._strange(_hosts(config) - hosts):
            raise UriInvalid(
                f"{host} may not get a token that a file or the environment of the server holds, or what is signed "
                "with it; token-hosts under [security] of the server's file allows it"
            )
        return config

    def _knows(self, path: str) -> bool:
        """Whether a client may name a path."""
        if path in self._upstream:
            return True
        real = _real(path)
        if real is None or any(real.is_relative_to(own) for own in self._own):
            return False
        return any(real.is_relative_to(root) for root in self._roots)

    def _strange(self, hosts: Iterable[str]) -> list[str]:
        """Hosts that may get no token, sorted."""
        allowed = self._hosts | self._upstream_hosts
        return sorted(host for host in hosts if not {host, host.rpartition(":")[0]} & allowed)

    def tell(self, feeds: Iterable[tuple[str, Loads]]) -> None:
        """Log which changefeeds go on with what no client may name."""
        found = {}
        for feed, loads in feeds:
            names, hosts = _named(loads)
            files = {f"{where} {path}" for where, path in names if not self._knows(path)}
            found[feed] = sorted(files | {f"tokens to {host}" for host in self._strange(hosts)})
        if named := [f"{feed} ({', '.join(strange)})" for feed, strange in found.items() if strange]:
            LOG.warning(
                "these changefeeds go on, and name what clients may not name now (--allow-path, token-hosts): %s",
                "; ".join(named),
            )


def _real(path: str) -> Path | None:
    """The place that a path leads to; None for one that no file can have."""
    try:
        return Path(path).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL byte; links in a circle
        return None


def _named(loads: Loads) -> tuple[set[LocalName], frozenset[str]]:
    """What a configuration names, as far as it can be read, and who gets tokens."""
    names: set[LocalName] = set()
    with heard_by(names.add), suppress(TidegateError):
        return names, _hosts(loads())
    return names, frozenset()


def _hosts(config: FeedConfig) -> frozenset[str]:
    source, sink = entries_of(config)
    return frozenset(host.lower() for host in source.tokens_go_to(config.source) | sink.tokens_go_to(config.sink))


def _upstream(uri: str) -> tuple[set[str], frozenset[str]]:
    """Paths of the server's own source, and hosts that get its tokens."""
    entry, names = SOURCES.get(scheme_of(uri).partition("+")[0]), set[str]()
    if entry is not None:
        with heard_by(lambda name: names.add(name.path)), suppress(TidegateError):
            return names, entry.tokens_go_to(entry.parse(uri, Document()))
    return names, frozenset()
