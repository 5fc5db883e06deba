"""`tidegate demo`: the whole chain on one machine, and a comparison of the lake with the upstream.

demo                    demo/live.py       SQL and online DDL on an embedded TiDB, while the chain runs
                        demo/upstream.py   the workload and the observed DDL steps
demo --replica tidb     demo/replica.py    the same into a database, with a reader that sums the bank's balances
demo --recorded         demo/recorded.py   a recorded topic of real TiCDC, replayed
demo --recording DIR                       a recording of the user's
"""

from pathlib import Path

import click

from tidegate.cli.main import INTERRUPTED
from tidegate.engine.stop_signals import stop_on_signals
from tidegate_upstream.demo.recorded import play_recording, scratch

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
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
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
    as_json: bool,
) -> None:
    """Run a database, a broker and a lake with changefeeds between them, and compare the lake with the database."""
    protocols = _PROTOCOLS if protocol == "both" else (protocol,)
    if recorded or recording is not None:
        ctx.exit(play_recording(recording, protocols, home, as_json=as_json))
    ctx.exit(_play_live(protocols, replica, seed, seconds, home or _HOME, as_json=as_json))


def _play_live(
    protocols: tuple[str, ...], replica: str | None, seed: int, seconds: float, home: Path, *, as_json: bool
) -> int:
    from tidegate.cli import options as logging
    from tidegate_upstream.demo.live import LiveDemo, LiveOptions, Teller
    from tidegate_upstream.demo.replica import ReplicaDemo
    from tidegate_upstream.demo.upstream import WorkPace

    logging.configure(json=as_json, displays=not as_json)
    tell = Teller(as_json)
    with stop_on_signals() as stop, scratch(home) as directory:
        options = LiveOptions(directory, seed, WorkPace.lasting(seconds))
        demo = (
            LiveDemo(options, protocols, stop, tell) if replica is None else ReplicaDemo(options, replica, stop, tell)
        )
        with demo as run:
            verdict = run.play()
    if verdict is None:
        click.echo("stopped", err=True)
        return INTERRUPTED
    for hint in run.hints:
        tell.write(f"inspect it: {hint}")
    return 0 if verdict.equal else 1
