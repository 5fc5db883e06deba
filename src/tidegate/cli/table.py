"""`tidegate table`: list and resume parked tables of a lake, which stopped at a refused step.

$ tidegate table list /srv/lake
$ tidegate table resume /srv/lake shop.orders
$ tidegate table resume /srv/lake --all

With `table-error=park` only the refused table stops. Its changes stay in the changelog; once the cause is fixed, for
example by another `schema-change`, it continues from its position and catches up.
"""

import click

from tidegate.cli.lake import lake_root
from tidegate.cli.output import echo, echo_json
from tidegate.engine.progress import FeedError

ROOT = click.argument("root", metavar="LAKE")


@click.group()
def table() -> None:
    """List the parked tables of a lake, and resume them."""


@table.command("list")
@ROOT
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(root: str, *, as_json: bool) -> None:
    """List the parked tables of LAKE: the timestamp of their rows, and the reason."""
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.snapshots import latest

    parked = latest(DeltaOptions(root=lake_root(root), feed="")).parked
    rows = [(group.checkpoint.ts, FeedError.of_parked(group, name)) for group in parked for name in group.names]
    if as_json:
        echo_json([{"table": error.table, "parked_ts": ts, "error": error} for ts, error in rows])
        return
    if not rows:
        click.echo("no parked tables")
    for ts, error in rows:
        echo(f"{error.table}   at {ts}   {error}")


@table.command()
@ROOT
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Resume all parked tables.")
def resume(root: str, names: tuple[str, ...], *, every: bool) -> None:
    """Resume parked tables (database.table) of LAKE; the feed brings them up to date, now or when it runs next."""
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.snapshots import ask, latest

    if bool(names) == every:
        raise click.UsageError("expected table names, or --all")
    options = DeltaOptions(root=lake_root(root), feed="")
    for group in ask(options, latest(options), names):
        echo(
            f"{', '.join(group.names)} will resume from ts {group.checkpoint.ts} when the changefeed runs; see: "
            "tidegate status"
        )
