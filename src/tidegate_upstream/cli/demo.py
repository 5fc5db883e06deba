"""`tidegate demo`: the whole chain on one machine, and a comparison of the lake with the upstream.

demo                    demo/live.py       SQL and online DDL on an embedded TiDB, while the chain runs
                        demo/upstream.py   the workload and the observed DDL steps
demo --replica tidb     demo/replica.py    the same into a database, with a reader that sums the bank's balances
demo --recorded         demo/recorded.py   a recorded topic of real TiCDC, replayed
demo --recording DIR                       a recording of the user's
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.main import INTERRUPTED
from tidegate.engine.stop_signals import stop_on_signals
from tidegate_upstream.demo.recorded import play_recording, scratch

if TYPE_CHECKING:
    from tidegate_upstream.demo.feeds import Feeds

_PROTOCOLS = ("open-protocol", "canal-json")
_HOME = Path(".demo")


@click.command()
@click.option("--recorded", is_flag=True, help="Replay the source tree's recorded topic instead.")
@click.option(
    "--recording", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Replay this recording."
)
@click.option(
    "--protocol",
    type=click.Choice([*_PROTOCOLS, "both"]),
    default="both",
    show_default=True,
    help="Protocol of the topics.",
)
@click.option("--replica", metavar="tidb|mariadb|URI", help="Replicate into this database instead of topics and lakes.")
@click.option("--seed", default=1, show_default=True, help="Seed of the workload's statements.")
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    default=40.0,
    show_default=True,
    help="Duration of the workload on the upstream.",
)
@click.option(
    "--dir",
    "home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the lakes here, in demo-N (default: .demo; a recording's lakes are removed).",
)
@click.option("--no-server", is_flag=True, help="Run the changefeeds without a server and its page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.option("--no-color", is_flag=True, help="No colors.")
@click.pass_context
def demo(
    ctx: click.Context,
    *,
    recorded: bool,
    recording: Path | None,
    protocol: str,
    replica: str | None,
    seed: int,
    seconds: float,
    home: Path | None,
    no_server: bool,
    as_json: bool,
    no_color: bool,
) -> None:
    """Run a database, a broker and a lake with changefeeds between them, and compare the lake with the database."""
    protocols = _PROTOCOLS if protocol == "both" else (protocol,)
    if recorded or recording is not None:
        ctx.exit(play_recording(recording, protocols, home, as_json=as_json))
    from tidegate.cli import options as logging
    from tidegate.engine.display import is_drawn
    from tidegate_upstream.demo.live import LiveDemo, LiveOptions, Teller
    from tidegate_upstream.demo.panel import PanelTeller
    from tidegate_upstream.demo.replica import ReplicaDemo
    from tidegate_upstream.demo.upstream import WorkPace

    logging.configure(json=as_json, displays=not as_json)
    tell = Teller(as_json=as_json) if as_json or not is_drawn(sys.stdout) else PanelTeller(color=not no_color)
    with stop_on_signals() as stop, scratch(home or _HOME) as directory:
        options = LiveOptions(directory, seed, WorkPace.lasting(seconds))
        server = None if no_server else _server()
        live = (
            LiveDemo(options, protocols, stop, tell, server)
            if replica is None
            else ReplicaDemo(options, replica, stop, tell, server)
        )
        with tell.showing(live), live as run:
            verdict = run.play()
    if verdict is None:
        click.echo("stopped", err=True)
        ctx.exit(INTERRUPTED)
    for hint in run.hints:
        tell.write(f"inspect it: {hint}")
    ctx.exit(0 if verdict.equal else 1)


def _server() -> Callable[[Path], AbstractContextManager[tuple["Feeds", str]]]:
    """Return what runs a server in a directory; only this needs the packages of the extra `server`."""
    from tidegate.server.application import application
    from tidegate_upstream.demo.served import served_feeds

    return partial(served_feeds, application)
