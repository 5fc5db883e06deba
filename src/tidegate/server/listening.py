"""A port of ours: where it listens, and how a web server on it begins and ends.

listening(host, port) ──► serve(web, listener, stop, begun): uvicorn in a thread ── stop ──► it answers what is asked
"""

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.engine.stop_signals import StopEvent, wait_until
from tidegate.model.errors import EnvironmentFault
from tidegate.server.guests import GuestListener

if TYPE_CHECKING:
    from uvicorn import Server

END_S: Final = 10
"""For requests at work to be answered, of which web_server.py bounds the time."""


def listening(host: str, port: int, option: str) -> socket.socket:
    """Return a bounded socket (guests.py) that listens. EnvironmentFault where it cannot; `option` changes the port."""
    try:
        return guest_listener((host, port))
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise EnvironmentFault(f"{host}:{port}: {why}; another port: {option}") from error


def guest_listener(place: tuple[str, int]) -> GuestListener:
    """Return a bounded socket that listens at HOST, PORT. OSError where it cannot."""
    [(family, *_, found), *_] = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return GuestListener(family, found[:2])


def place_of(listener: socket.socket) -> str:
    """Return HOST:PORT of a socket that listens."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(
    web: "Server",
    listener: socket.socket,
    stop: StopEvent,
    *,
    begun: Callable[[], None],
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until `stop` is set; `begun` is called at the begin, `ending` while requests are still answered.

    EnvironmentFault where nobody asked for the end."""
    thread = threading.Thread(target=web.run, args=([listener],), name="http", daemon=True)
    thread.start()
    wait_until(lambda: web.started or stop.is_set() or not thread.is_alive())
    if web.started:
        begun()
    wait_until(lambda: stop.is_set() or not thread.is_alive())
    asked = stop.is_set()
    ending()
    web.should_exit = True
    thread.join(END_S)
    if not asked:
        raise EnvironmentFault("the web server has ended by itself")
