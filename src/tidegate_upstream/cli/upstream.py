"""`tidegate upstream start|sql|status|stop`: an embedded TiDB, without installing one.

    tidegate upstream start --port 4000              one node, in memory; any MySQL client connects to it
    tidegate upstream start --data ./tidb --nodes 3  three nodes on consecutive ports, durable rows
    tidegate upstream start --log ./log              its change log, which `tidegate run` replicates to a topic
    tidegate upstream sql 'SELECT VERSION()'         run a statement; --node 2 runs it on the second node
    tidegate upstream status                         all running upstreams
    tidegate upstream stop                           the only running one; --data or --all if there are several

With `--json` each command prints JSON: objects, and for `sql` one list of rows per statement.
"""

import json
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
from msgspec import to_builtins

from tidegate.config.option import by_name, read_all
from tidegate.config.uri import RawValue, resolve_uri
from tidegate.engine.stop_signals import stop_on_signals, wait_until
from tidegate.model.errors import ConfigError, EnvironmentFault, InputError
from tidegate.model.host import reaches_others
from tidegate.model.option import TIME_MAX_MS, Option
from tidegate.mysql.client import ConnectionOptions, connect, faults
from tidegate.source.tidb_segment import base_of, safe_points, segments
from tidegate_upstream.background import UpstreamOptions, UpstreamProcess, start_upstream, status, stop_upstream

DATA: Final = click.option(
    "--data",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the data (default: in memory).",
)
TIMES: Final = by_name(
    (
        Option("log-keep", "minimal retention of the change log", "duration", high=TIME_MAX_MS, field="log_keep_ms"),
        Option("gc-ttl", "retention for a stopped changefeed", "duration", high=TIME_MAX_MS, field="gc_ttl_ms"),
    )
)


def _secret(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Resolve a password written as @FILE or env:NAME, since arguments are visible to every user of the machine."""
    if value is not None and not value.startswith(("@", "env:")):
        raise ConfigError(f"{option.opts[0]}: expected @FILE or env:NAME, not the password itself")
    return None if value is None else resolve_uri(value, option.opts[0])


USER: Final = click.option("--user", default="root", show_default=True, help="User of the password.")
PASSWORD: Final = click.option(
    "--password", callback=_secret, metavar="@FILE|env:NAME", help="File or variable with the password (default: none)."
)
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def upstream() -> None:
    """Run a small TiDB on this machine: real keys, real DDL jobs, a MySQL port."""


@upstream.command()
@DATA
@click.option(
    "--port", type=click.IntRange(0, 65535), default=4000, show_default=True, help="First port; 0: free ports."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; one that other machines reach requires --password."
)
@USER
@PASSWORD
@click.option(
    "--nodes", type=click.IntRange(1, 16), default=1, show_default=True, help="Number of SQL nodes, one port each."
)
@click.option(
    "--lease", "lease_s", type=click.FloatRange(min=0.1), default=45.0, show_default=True, help="Lease, in s."
)
@click.option(
    "--metadata-lock/--no-metadata-lock",
    default=True,
    show_default=True,
    help="Whether DDL waits for open transactions.",
)
@click.option(
    "--log",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the change log there, for `tidegate run --source-uri tidb:///DIRECTORY`.",
)
@click.option("--log-keep", default="0", metavar="TIME", help="Retention of the log, such as 24h; 0: unlimited.")
@click.option(
    "--gc-ttl",
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Retention of the log for a stopped changefeed.",
)
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C or SIGTERM, then stop; on a terminal as a panel.")
@JSON
@click.option("--no-color", is_flag=True, help="No colors.")
def start(
    directory: Path | None,
    port: int,
    host: str,
    *,
    user: str,
    password: str | None,
    nodes: int,
    lease_s: float,
    metadata_lock: bool,
    log: Path | None,
    log_keep: str,
    gc_ttl: str,
    foreground: bool,
    as_json: bool,
    no_color: bool,
) -> None:
    """Start an upstream and print how to connect."""
    times, _ = read_all(
        TIMES, {"log-keep": RawValue("--log-keep", log_keep), "gc-ttl": RawValue("--gc-ttl", gc_ttl)}, ConfigError
    )
    from tidegate_upstream.tidb.wire import account

    admitted = account(user, password) if password else None
    if admitted is None and reaches_others(host):
        raise ConfigError(f"other machines reach {host or 'every address'}: set --password to @FILE or env:NAME")
    options = UpstreamOptions(
        host,
        port,
        nodes,
        round(lease_s * 1000),
        metadata_lock,
        in_memory=directory is None,
        log=str(log.expanduser().resolve()) if log else "",
        user=admitted.user if admitted else "",
        password_hash=admitted.password_hash if admitted else "",
        **times,
    )
    login = f"-u {user} -p" if admitted else f"-u {user}"
    if foreground:
        _serve(directory, options, login, as_json=as_json, color=not no_color)
        return
    _tell(start_upstream(options, directory, stays=True), login, as_json=as_json)


@upstream.command()
@click.argument("statements")
@DATA
@USER
@PASSWORD
@click.option("--node", type=click.IntRange(min=1), default=1, show_default=True, help="Number of the node.")
@click.option("--database", "-D", default=None, help="Database to use.")
@JSON
def sql(
    statements: str,
    directory: Path | None,
    *,
    user: str,
    password: str | None,
    node: int,
    database: str | None,
    as_json: bool,
) -> None:
    """Run STATEMENTS, separated by `;`, and print their answers."""
    upstream = _only(directory)
    try:
        connection = connect(
            ConnectionOptions(upstream.host, upstream.port_of(node), user, password or ""), many=True, database=database
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statements)
            for lines in _answers(cursor, as_json=as_json):
                click.echo(lines)
    except faults() as error:
        code, text = error.args if len(error.args) == 2 else (0, error)
        raise InputError(f"{code}: {text}") from error


@upstream.command(name="status")
@DATA
@JSON
def show(directory: Path | None, *, as_json: bool) -> None:
    """List the running upstreams."""
    running = status(directory)
    if as_json:
        click.echo(json.dumps([_fields(upstream) for upstream in running]))
        return
    for upstream in running:
        click.echo(
            f"{_addresses(upstream)}  process {upstream.pid}  {'in memory' if upstream.temporary else upstream.dir}"
        )
        for line in _log_lines(upstream):
            click.echo(f"  {line}")
    if not running:
        click.echo("no upstream is running")


@upstream.command()
@DATA
@click.option("--all", "every", is_flag=True, help="Stop all upstreams that Tidegate started.")
@JSON
def stop(directory: Path | None, *, every: bool, as_json: bool) -> None:
    """Stop an upstream; data in memory is lost."""
    running = status(directory) if every else (_only(directory),)
    for upstream in running:
        stop_upstream(upstream)
        if not as_json:
            click.echo(f"stopped {_addresses(upstream)}")
    if as_json:
        click.echo(json.dumps([_fields(upstream) for upstream in running]))


def _only(directory: Path | None) -> UpstreamProcess:
    running = status(directory)
    if not running:
        raise EnvironmentFault("no upstream is running; start one: tidegate upstream start")
    if len(running) > 1:
        shown = "\n".join(f"  --data {upstream.dir}" for upstream in running)
        raise EnvironmentFault(f"{len(running)} upstreams are running; choose one:\n{shown}")
    return running[0]


def _serve(directory: Path | None, options: UpstreamOptions, login: str, *, as_json: bool, color: bool) -> None:
    from tidegate.engine.display import is_drawn, panel_on
    from tidegate_upstream.cluster_panel import ClusterPanel
    from tidegate_upstream.serve import open_upstream, written_log

    with stop_on_signals(interrupts=False) as stop_event, TemporaryDirectory() as scratch:
        home = directory or Path(scratch)
        with open_upstream(home, options) as served, written_log(served, options):
            process = UpstreamProcess(0, home, options.host, served.ports, directory is None)
            if as_json or not is_drawn(sys.stdout):
                _tell(process, login, as_json=as_json)
                wait_until(stop_event.is_set)
                return
            panel = ClusterPanel(served, options.log, [*_logins(process, login)])
            with panel_on(sys.stdout, panel.panel, color=color):
                wait_until(stop_event.is_set)


def _logins(upstream: UpstreamProcess, login: str) -> Iterator[str]:
    for port in upstream.ports.values():
        yield f"mysql -h {upstream.host} -P {port} {login}"


def _tell(upstream: UpstreamProcess, login: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_fields(upstream)))
        return
    for line in _logins(upstream, login):
        click.echo(line)
    if upstream.pid:
        words = "" if upstream.temporary else f" --data {upstream.dir}"
        click.echo(f"process {upstream.pid}; stop it with: tidegate upstream stop{words}", err=True)


def _addresses(upstream: UpstreamProcess) -> str:
    return " ".join(f"{upstream.host}:{port}" for port in upstream.ports.values())


def _fields(upstream: UpstreamProcess) -> dict[str, object]:
    kept = {"pid": upstream.pid, "dir": str(upstream.dir), "host": upstream.host, "temporary": upstream.temporary}
    if not upstream.log:
        return {**kept, "ports": dict(upstream.ports)}
    begin, end = _extent(Path(upstream.log))
    log = {
        "dir": upstream.log,
        "begin_ts": begin,
        "end_ts": end,
        "changefeeds": to_builtins(safe_points(Path(upstream.log))),
    }
    return {**kept, "ports": dict(upstream.ports), "log": log}


def _extent(log: Path) -> tuple[int, int]:
    base, files = base_of(log), segments(log)
    return base[0] if base else 0, files[-1][1] if files else 0


def _log_lines(upstream: UpstreamProcess) -> Iterator[str]:
    if not upstream.log:
        return
    begin, end = _extent(Path(upstream.log))
    yield f"change log {upstream.log} from {begin} to {end}"
    now_ms = time.time_ns() // 1_000_000
    for safe_point in safe_points(Path(upstream.log)):
        last_seen = f"last seen {(now_ms - safe_point.time_ms) // 1000} s ago"
        yield f"changefeed {safe_point.changefeed} at {safe_point.checkpoint_ts}, {last_seen}"


def _answers(cursor: Any, *, as_json: bool) -> Iterator[str]:
    while True:
        if cursor.description is None:
            yield "[]" if as_json else f"OK, {cursor.rowcount} rows affected"
        else:
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            if as_json:
                yield json.dumps([dict(zip(names, map(_plain, row), strict=True)) for row in rows], ensure_ascii=False)
            else:
                yield "\n".join(["\t".join(names), *("\t".join(map(_shown, row)) for row in rows)])
        if not cursor.nextset():
            return


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal | datetime | date | timedelta) else value


def _shown(value: object) -> str:
    return "NULL" if value is None else str(_plain(value))
