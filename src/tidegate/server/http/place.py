"""The server as its routes see it: its address, the zone of its times, its version."""

from dataclasses import dataclass
from datetime import tzinfo
from importlib.metadata import version
from zoneinfo import ZoneInfo

from tidegate.server.http.answers import version_text
from tidegate.server.server import Server


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """What answers say of the server that gives them. `zone` None is the machine's own."""

    server: Server
    addr: str
    zone: tzinfo | None
    version: str


def place_of(server: Server) -> ServerPlace:
    """Return the place of a server."""
    config = server.config
    zone = None if config.tz == "System" else ZoneInfo(config.tz)
    return ServerPlace(server, config.advertise_addr, zone, version_text(version("tidegate")))
