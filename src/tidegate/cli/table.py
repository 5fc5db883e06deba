"""`tidegate table`: parked tables of a lake, which stopped at a refused step, and tables that are loaded beside a feed.

$ tidegate table list /srv/lake
$ tidegate table resume /srv/lake shop.orders
$ tidegate table resume /srv/lake --all
$ tidegate table reload /srv/lake shop.orders 'shop.price_*'
$ tidegate table status /srv/lake
reload of shop.orders, shop.price_list at ts 470606744143265793 (2026-03-17 09:31:06 UTC): loading shop.orders, 12 of 40
chunks, 1 of 2 tables, 30%, S 2026-03-17 09:31:06, 41.2 MiB/s, about 9 min left
$ tidegate table reload /var/lib/tidegate/replica shop.orders
$ tidegate table reload /var/lib/tidegate/topics shop.orders --resend

With `table-error=park` only the refused table stops. Its changes stay in the changelog; once the cause is fixed, for
example by another `schema-change`, it continues from its position and catches up.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.lake import lake_root
from tidegate.cli.output import echo, echo_json
from tidegate.engine.progress import FeedError, load_words
from tidegate.model.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.status import FeedStatus

ROOT = click.argument("root", metavar="LAKE")


@click.group()
def table() -> None:
    """List the parked tables of a lake, resume them, and load tables again."""


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


NAMES = click.argument("names", metavar="[TABLE]...", nargs=-1)


HOME = click.argument("root", metavar="HOME")


@table.command()
@HOME
@NAMES
@click.option("--all", "every", is_flag=True, help="Load all tables again.")
@click.option("--resend", is_flag=True, help="Topics, webhooks, callbacks: send all rows once more, as INSERTs.")
def reload(root: str, names: tuple[str, ...], *, every: bool, resend: bool) -> None:
    """Load tables (database.table, or patterns) again from the feed's load-from, beside the feed.

    HOME is a lake, or the directory of a feed below its --state-dir. Readers of a lake see the tables of before until
    the new ones are whole; others see row after row become as it is. Readers of topics, webhooks and callbacks get
    rows that they have had only with --resend."""
    from tidegate.config.registry import SINKS
    from tidegate.config.uri import scheme_of
    from tidegate.engine.reload import check_resend

    if bool(names) == every:
        raise click.UsageError("expected table names, or --all")
    if (report := _reported(_home(root))) is not None and (scheme := scheme_of(report.sink)):
        sends = any(entry.sends for entry in SINKS.values() if scheme in {entry.scheme, *entry.aliases})
        check_resend(sends=sends, resend=resend)
    _ask(root, names or ("*.*",), resend=resend)


@table.command()
@HOME
@click.argument("names", metavar="TABLE...", nargs=-1, required=True)
def add(root: str, names: tuple[str, ...]) -> None:
    """Load tables that the filter has left out: they come once the feed of HOME runs with a filter that takes them."""
    _ask(root, names, resend=True)


def _ask(root: str, names: tuple[str, ...], *, resend: bool) -> None:
    from tidegate.engine.reload import KeptReload

    KeptReload(_home(root)).ask(names, resend=resend)
    echo(f"{', '.join(names)} will be loaded when the changefeed runs; see: tidegate table status")


def _home(root: str) -> str:
    """Return the home of a lake, or of a feed, whose checkpoint is beside its directory."""
    from tidegate.config.registry import SINKS
    from tidegate.config.uri import scheme_of

    sink = SINKS.get(scheme_of(root)) if "://" in root else None
    if sink is not None and not sink.keeps_progress:
        raise ConfigError(f"{sink.scheme}:// keeps no request: give the directory of the feed below its --state-dir")
    is_feed = "://" not in root and Path(f"{root.rstrip('/')}.json").is_file()
    return str(Path(root).absolute()) if is_feed else lake_root(root)


def _reported(home: str) -> "FeedStatus | None":
    """Return the last report of the feed of a home."""
    from tidegate.config.status import statuses

    root, name = os.path.split(home)
    is_feed = "://" not in home and Path(f"{home}.json").is_file()
    reports = statuses(root if is_feed else home)
    return next((report for report in reports if not is_feed or report.changefeed == name), None)


@table.command()
@HOME
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(root: str, *, as_json: bool) -> None:
    """Show where the last `add`, `reload` or repair of HOME is."""
    from tidegate.engine.reload import KeptReload

    home = _home(root)
    last = KeptReload(home).read()
    plan = last.plan if last else None
    report = _reported(home) if last and plan and not last.outcome else None
    reported = report.reload.load if report and report.reload else None
    load = reported if reported and plan and reported.ts == plan.ts else None
    if as_json:
        tables, ts = ([str(item.name) for item in plan.tables], plan.ts) if plan else ([], None)
        echo_json(
            last
            and {
                "rules": last.rules,
                "ts": ts,
                "tables": tables,
                "outcome": last.outcome,
                "progress": load,
                "failed": last.failed,
            }
        )
        return
    state = last and (last.outcome or load_words(load) or (last.progress if plan else "waits for the feed"))
    echo("no reload" if last is None else f"{last}: {state}")
