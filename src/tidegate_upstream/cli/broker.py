"""`tidegate broker start|stop|status`: a local Kafka broker, without installing one.

    tidegate broker start --dir ./kafka        a permanent broker, its data in ./kafka
    tidegate broker start --foreground         a temporary one, until Ctrl-C
    tidegate broker status                     all running brokers
    tidegate broker stop                       the only running broker; --dir or --all if there are several

With `--json` each command prints one JSON value: an object from `start`, lists from `stop` and `status`.
"""

import json
from pathlib import Path

import click

from tidegate.engine.stop_signals import StopEvent, stop_on_signals
from tidegate.model.errors import EnvironmentFault
from tidegate.spark.java import ensure_jars
from tidegate_upstream.broker import Broker, start_broker, status, stop_broker

DIR = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="The broker's directory (default: a temporary one, deleted on stop).",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def broker() -> None:
    """Run a real Kafka broker on this machine, on loopback only."""


@broker.command()
@DIR
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on (default: a free one).")
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C or SIGTERM, then stop the broker.")
@JSON
def start(directory: Path | None, port: int, *, foreground: bool, as_json: bool) -> None:
    """Start a broker and print where it listens."""
    ensure_jars("broker", lambda line: click.echo(line, err=True))
    if not foreground:
        _tell(start_broker(directory, port, stays=True), as_json=as_json)
        return
    with stop_on_signals(interrupts=False) as stop_event:  # before it starts, so that no signal is missed
        started = start_broker(directory, port)
        try:
            _tell(started, as_json=as_json)
            _wait(stop_event, started)
        finally:
            stop_broker(started)


@broker.command()
@DIR
@click.option("--all", "every", is_flag=True, help="Stop all brokers that Tidegate started.")
@JSON
def stop(directory: Path | None, *, every: bool, as_json: bool) -> None:
    """Stop a broker and delete its temporary directory."""
    running = status(directory)
    if not running and not every:
        raise EnvironmentFault(
            f"no broker is running{f' in {directory}' if directory else ''}; see `tidegate broker status`"
        )
    if len(running) > 1 and not every:
        shown = "\n".join(f"  {_stop_words(broker)}" for broker in running)
        raise EnvironmentFault(f"{len(running)} brokers are running; choose one, or --all:\n{shown}")
    for broker in running:
        stop_broker(broker)
        if not as_json:
            click.echo(f"stopped {broker.bootstrap} ({broker.dir})")
    if as_json:
        click.echo(json.dumps([_fields(broker) for broker in running]))


@broker.command(name="status")
@DIR
@JSON
def show(directory: Path | None, *, as_json: bool) -> None:
    """List the running brokers."""
    running = status(directory)
    if as_json:
        click.echo(json.dumps([_fields(broker) for broker in running]))
        return
    for broker in running:
        temporary = "  (temporary)" if broker.temporary else ""
        click.echo(f"{broker.bootstrap}  process {broker.pid}  {broker.dir}{temporary}")
    if not running:
        click.echo("no broker is running")


def _tell(started: Broker, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_fields(started)))
        return
    click.echo(started.bootstrap)
    click.echo(f"broker of {started.dir}, process {started.pid}; stop it with: {_stop_words(started)}", err=True)


def _fields(broker: Broker) -> dict[str, str | int | bool]:
    return {"bootstrap": broker.bootstrap, "pid": broker.pid, "dir": str(broker.dir), "temporary": broker.temporary}


def _stop_words(broker: Broker) -> str:
    return f"tidegate broker stop --dir {broker.dir}"


def _wait(stop_event: StopEvent, started: Broker) -> None:
    """Wait for a signal. Raises EnvironmentFault if the broker ends first."""
    while not stop_event.wait(1.0):
        if started not in status(started.dir):
            raise EnvironmentFault(f"the broker of {started.dir} has ended; if it was not stopped, see its broker.log")
