"""`tidegate server`: many changefeeds in one process, with TiCDC's API, until it is stopped.

    tidegate server --data-dir /var/lib/tidegate --source-uri tidb:///srv/log        this machine only, port 8300
    tidegate server --data-dir s3://bucket/tidegate --config server.toml             one of two: the other takes over
    tidegate server user ann --file /etc/tidegate/users                              a line of users-file

Every flag can also be set in the environment, such as TIDEGATE_SERVER_DATA_DIR.  SIGINT or SIGTERM stops all runs at
their checkpoints and lets another server take over; read requests are answered until the end.
"""

import logging as python_logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tidegate.cli.output import echo, echo_json
from tidegate.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.server.server import Server

LEVELS: Final = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "fatal": 50}
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(invoke_without_command=True, context_settings={"auto_envvar_prefix": "TIDEGATE_SERVER"})
@click.option("--addr", metavar="HOST:PORT", help="Address; 127.0.0.1:8300. A public one needs users or mtls.")
@click.option("--advertise-addr", metavar="HOST:PORT", help="Address for other servers, if it is another one.")
@click.option("--data-dir", metavar="DIRECTORY|URL", help="State; s3://BUCKET/PREFIX for several machines.")
@click.option(
    "--allow-path",
    multiple=True,
    metavar="DIRECTORY",
    help="Clients may name files below it; default: the data directory and the current one.",
)
@click.option("--source-uri", metavar="URI", help="The upstream of changefeeds that name none.")
@click.option("--pd", metavar="URL,..", help="PDs of a TiDB cluster as that upstream; https:// takes [security].")
@click.option("--config", "path", type=_FILE, help="A TOML file; flags override it.")
@click.option("--cluster-id", help="Name of the cluster in answers; default.")
@click.option("--gc-ttl", type=int, help="Seconds that a log is kept for a changefeed that does not run.")
@click.option("--log-level", type=click.Choice(list(LEVELS)), help="info")
@click.option("--log-file", help="File to log to, instead of stderr.")
@click.option("--tz", help="Zone of times in answers; System.")
@click.option("--master", metavar="URL", help="Of a cluster: spark://HOST:PORT, yarn, k8s://..., or sc://HOST:PORT.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option("--archive", type=_FILE, help="For executors, made by `tidegate pack`.")
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines, and print the address as one.")
@click.pass_context
def server(
    ctx: click.Context,
    /,
    *,
    path: Path | None,
    master: str | None,
    settings: tuple[str, ...],
    archive: Path | None,
    as_json: bool,
    **flags: object,
) -> None:
    """Run many changefeeds in one process, with TiCDC's API, metrics and a page, until Ctrl-C or SIGTERM."""
    if ctx.invoked_subcommand is not None:
        return
    from tidegate.cli import options as logging
    from tidegate.engine.stop_signals import stop_on_signals
    from tidegate.server.application import application
    from tidegate.server.config import announced, server_config
    from tidegate.server.running import SparkHost
    from tidegate.server.server import Server
    from tidegate.server.web_server import address_of, listening, serve, web_server

    config = server_config(path, **flags)
    level = LEVELS.get(config.log_level.lower())
    if level is None:
        raise ConfigError(f"log-level {config.log_level!r}: expected one of {', '.join(LEVELS)}")
    logging.configure(level=level, json=as_json, file=config.log_file)
    with stop_on_signals(interrupts=False) as stop, listening(config.host, config.port, "--addr") as listener:
        public = config.advertise_addr
        addr = address_of(listener)
        config = msgspec.structs.replace(config, addr=addr, advertise_addr=addr if public == config.addr else public)
        running = Server(config, SparkHost(partial(_session, master, settings, archive)))
        web = web_server(application(running), config.tls)
        running.start()
        announce = partial(_tell, running, f"{config.scheme}://{addr}", as_json=as_json)
        with announced(listener.getsockname()[1], running.token):
            serve(web, listener, stop, begun=announce, ending=running.stop)


@server.command()
@click.argument("name")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The users-file.")
@click.password_option(help="The password; prompted for by default.")
def user(name: str, file: Path, password: str) -> None:
    """Add NAME to a users-file, or change its password; the file holds only a hash."""
    from tidegate.objectstore.local_files import write_whole
    from tidegate.server.entrance import with_user

    write_whole(file, with_user(file.read_text("utf-8") if file.exists() else "", name, password))
    echo(f"{name} is in {file}")


def _session(master: str | None, settings: tuple[str, ...], archive: Path | None) -> "SparkSession":
    from tidegate.cli.options import conf_of
    from tidegate.server.running import FAIR
    from tidegate.spark.tasks import feed_session

    return feed_session(FAIR | conf_of(master, settings), archive)


def _tell(server: "Server", address: str, *, as_json: bool) -> None:
    """Print the address; the page stores the token that follows it."""
    page = f"{address}/#token={server.token}" if server.token else address
    if as_json:
        line = {"uri": address, "page": page, "id": server.id, "pid": os.getpid(), "data_dir": server.config.data_dir}
        echo_json(line)
        return
    echo(f"tidegate server {server.id}: {page}, changefeeds in {server.config.data_dir}")
    python_logging.getLogger(__name__).info("ready")
