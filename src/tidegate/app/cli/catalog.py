"""`tidegate catalog serve`: the names of a lake's tables for everybody who reads Iceberg, without writing a thing.

    tidegate catalog serve /srv/lake                                        this machine only, http://127.0.0.1:8181
    tidegate catalog serve s3://bucket/lake --host 0.0.0.0 --token-file t   others too; they send the text of `t`

A port that other machines reach needs a token; with --tls-cert and --tls-key it speaks TLS.  SIGTERM and Ctrl-C end it
once the requests at work are answered, at the latest after GRACE_S.
"""

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidegate.app.cli.lake import lake_root
from tidegate.app.say import say, say_json
from tidegate.app.stop_signals import stop_on_signals, wait_until
from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.model.host import reaches_others

if TYPE_CHECKING:
    from uvicorn import Server

GRACE_S: Final = 5
CONNECTIONS: Final = 512
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def catalog() -> None:
    """Name the tables of a lake for readers of Iceberg."""


@catalog.command()
@click.argument("root", metavar="LAKE")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; one of the network needs a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8181, show_default=True, help="Port; 0: a free one.")
@click.option("--token-file", type=_FILE, help="Answer only those who send the text of this file as bearer token.")
@click.option("--tls-cert", type=_FILE, help="Speak TLS with this certificate (PEM, with its chain).")
@click.option("--tls-key", type=_FILE, help="The certificate's key (PEM).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def serve(
    root: str,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    as_json: bool,
) -> None:
    """Serve LAKE as an Iceberg REST catalog, read only, until Ctrl-C or SIGTERM."""
    import uvicorn

    from tidegate.lakes.catalog.http import application

    token = _token(token_file)
    if token is None and reaches_others(host):
        raise ConfigError(f"other machines reach {host or 'every address'}: name a --token-file")
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("--tls-cert and --tls-key belong together")
    config = uvicorn.Config(
        application(lake_root(root), token),
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigError(f"--tls-cert {tls_cert}, --tls-key {tls_key}: {error}") from error
    with stop_on_signals(interrupts=False) as stop, _listening(host, port) as listener:
        address = f"{'https' if tls_cert else 'http'}://{_place(listener)}"
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="catalog", daemon=True)
        thread.start()
        wait_until(lambda: server.started or stop.is_set() or not thread.is_alive())
        if server.started:
            _tell(address, root, as_json=as_json)
        wait_until(lambda: stop.is_set() or not thread.is_alive())
        _end(server, thread, asked=stop.is_set())


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    token = file.read_text("utf-8").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"--token-file {file}: expected one word of printable ASCII characters")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """A socket at which the port listens. EnvironmentFault where it cannot."""
    try:
        [(family, *_, place), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise EnvironmentFault(f"{host}:{port}: {why}; another port: --port") from error


def _place(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell(address: str, root: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"uri": address, "warehouses": ["lake", "lake@now"], "lake": root})
        return
    say(f"Iceberg REST catalog of {root}: uri {address}, warehouse lake or lake@now")


def _end(server: "Server", thread: threading.Thread, *, asked: bool) -> None:
    """Let the requests at work end. EnvironmentFault where nobody asked for the end."""
    server.should_exit = True
    thread.join(2 * GRACE_S)
    if not asked:
        raise EnvironmentFault("the catalog's server has ended by itself")
