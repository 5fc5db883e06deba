"""`tidegate load`: full loads of the changefeeds of a server.

$ tidegate load start orders --all --load-from mysql://tidegate:secret@tidb:4000/
$ tidegate load start orders --tables shop.items,shop.prices_*
$ tidegate load status orders
normal: loading shop.items, 12 of 40 chunks, 1 of 2 tables, 30%, ..
$ tidegate load cancel orders

Use `start` for a changefeed that began without existing rows, for tables changed outside TiDB's transactions (IMPORT
INTO, Lightning, BR), or if S was garbage-collected.  Tables are replaced: readers of a lake see the old ones until S.
"""

from collections.abc import Callable
from typing import Any, Final

import click

from tidegate.server.client import connected, connects, feed_path, show, spaced


@click.group()
def load() -> None:
    """Start, watch and cancel full loads of a server's changefeeds."""


def _of_feed(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("feed")(connects(spaced(command)))


_ROOT: Final = "/api/tidegate/v1"


@load.command()
@_of_feed
@click.option("--load-from", default="", metavar="URI", help="The database.  [default: the one that FEED knows]")
@click.option("--tables", default="", metavar="RULE,...", help="These tables only; the others go on as they are.")
@click.option("--all", "every", is_flag=True, help="All tables.")
def start(feed: str, namespace: str, load_from: str, tables: str, *, every: bool) -> None:
    """Load tables of FEED, replacing those in its target; FEED stops for the load and continues after it."""
    if bool(tables) == every:
        raise click.UsageError("give --tables, or --all")
    body = {"load_from": load_from, "tables": [rule for rule in tables.split(",") if rule]}
    connected().act(feed, "load/start", namespace, body, root=_ROOT)


@load.command()
@_of_feed
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(feed: str, namespace: str, *, as_json: bool) -> None:
    """Show how far the load of FEED is."""
    info = connected().ask("GET", feed_path(feed), namespace=namespace)
    details = info["tidegate"]
    if as_json:
        show({"state": info["state"], "load": details["progress"].get("load"), "error": details["error"]})
        return
    error = f"; {details['error']['code']}: {details['error']['message']}" if details["error"] else ""
    click.echo(f"{info['state']}: {details['loading'] or 'no load'}{error}")


@load.command()
@_of_feed
def pause(feed: str, namespace: str) -> None:
    """Stop FEED during its load; finished chunks are not read again."""
    connected().act(feed, "pause", namespace)


@load.command()
@_of_feed
def resume(feed: str, namespace: str) -> None:
    """Go on with FEED where it was paused, at the same S."""
    connected().act(feed, "resume", namespace, {})


@load.command()
@_of_feed
def cancel(feed: str, namespace: str) -> None:
    """End the load of FEED: tables that are not whole are dropped from its target, and FEED is stopped."""
    connected().act(feed, "load/cancel", namespace, root=_ROOT)
