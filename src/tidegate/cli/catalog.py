"""`tidegate catalog serve`: a read-only Iceberg REST catalog of a lake's tables.

    tidegate catalog serve /srv/lake                                        this machine only, http://127.0.0.1:8181
    tidegate catalog serve s3://bucket/lake --host 0.0.0.0 --token-file t   others too; they send the text of `t`

A port that other machines reach requires a token; --tls-cert and --tls-key enable TLS.  SIGTERM and Ctrl-C stop the
server once running requests are answered, within a few seconds.
"""

from pathlib import Path
from typing import Final

import click

from tidegate.cli.lake import lake_root
from tidegate.cli.output import echo, echo_json
from tidegate.config.uri import read_token
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.model.errors import ConfigError
from tidegate.model.host import reaches_others
from tidegate.server.web_server import address_of, listening
from tidegate.server.web_server import serve as serve_until

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def catalog() -> None:
    """Serve the tables of a lake to readers of Iceberg."""


@catalog.command()
@click.argument("root", metavar="LAKE")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; a public one needs a token."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8181,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option("--token-file", type=_FILE, help="File with the bearer token that clients must send.")
@click.option("--tls-cert", type=_FILE, help="Serve TLS with this certificate (PEM, with its chain).")
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
    from tidegate.lakes.catalog import application
    from tidegate.server.web_server import Tls, web_server

    token = None if token_file is None else read_token(token_file, "--token-file")
    if token is None and reaches_others(host):
        raise ConfigError(f"other machines reach {host or 'every address'}: name a --token-file")
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("--tls-cert and --tls-key must be set together")
    web = web_server(application(lake_root(root), token), Tls(tls_cert or "", tls_key or ""))
    with stop_on_signals(interrupts=False) as stop, listening(host, port, "--port") as listener:
        address = f"{'https' if tls_cert else 'http'}://{address_of(listener)}"
        serve_until(web, listener, stop, begun=lambda: _tell(address, root, as_json=as_json))


def _tell(address: str, root: str, *, as_json: bool) -> None:
    if as_json:
        echo_json({"uri": address, "warehouses": ["lake", "lake@now"], "lake": root})
        return
    echo(f"Iceberg REST catalog of {root}: uri {address}, warehouse lake or lake@now")
