"""`tidegate sink verify`: every table of a replica against its upstream, at one moment.

$ tidegate sink verify mysql://root@replica:3306/ --upstream tidb://root@tidb:4000/
$ tidegate sink verify tidb://root@replica:4000/ --upstream tidb://root@tidb:4000/ --at 470607233675427842
$ tidegate sink verify mysql://root@replica:3306/ --upstream /srv/lake --filter 'shop.*' --json

A table is a line when it was compared; a table of many rows is told on standard error when it is begun.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidegate.cli.lake import lake_root
from tidegate.cli.sink.session import feed_of, session_of
from tidegate.cli.verify import SHOWN, conclude, tell, tell_json
from tidegate.config.delta_sink import ICEBERG, SCHEME, parse_delta
from tidegate.config.say import say
from tidegate.config.sql_target import parse_sql
from tidegate.config.uri import STORES, scheme_of, told, wrong_scheme
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError
from tidegate.model.tso import parse_ts, to_datetime
from tidegate.verify.chunk import CHUNK_ROWS
from tidegate.verify.comparison import Side, compare_sides
from tidegate.verify.local import lake_side, recording_side
from tidegate.verify.moment import WantedMoment, replica_at, upstream_at

UPSTREAM: Final = "--upstream"
Passes = Callable[[str, str], bool]
Open = Callable[[int, Passes], AbstractContextManager[Side]]
Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("-c", "--changefeed", "feed", metavar="NAME", help="Who writes it; needed if several do."),
    click.option("--at", default="latest", show_default=True, metavar="latest|TSO|TIME", help="The moment to compare."),
    click.option(
        "--wait", "wait_s", default=30.0, show_default=True, type=click.FloatRange(0), help="Seconds to wait for it."
    ),
    click.option("--filter", "rules", multiple=True, metavar="RULE", help="Only these tables, such as 'shop.*'."),
    click.option(
        "--limit", default=SHOWN, show_default=True, type=click.IntRange(0), help="Differences shown a table."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line."),
)


def upstream_of(uri: str, where: str) -> Open:
    """Return what opens an upstream at a ts. Raises what is wrong with its address, before anything is asked."""
    uri = told(uri, where)
    scheme = scheme_of(uri)
    if scheme.partition("+")[0] in {"mysql", "tidb"}:
        parse_sql(uri, where=where)
        return partial(_database, uri)
    if scheme.partition("+")[0] in {SCHEME, ICEBERG}:
        uri = parse_delta(uri).path
    elif scheme and scheme not in STORES:
        raise wrong_scheme(uri, where, ("tidb", "mysql", SCHEME))
    if (Path(uri) / "truth").is_dir():
        return lambda ts, passes: nullcontext(recording_side(Path(uri), ts, passes))
    root = lake_root(uri)
    return lambda ts, passes: lake_side(root, ts, passes)


@contextmanager
def _database(uri: str, ts: int, passes: Passes) -> Iterator[Side]:
    with closing(session_of(uri, where=UPSTREAM)) as session:
        yield upstream_at(session, ts, passes)


def moment_options(command: Command) -> Command:
    """Give a command the options of a comparison at one moment."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def moment_of(at: str) -> int | None:
    """Return the ts that --at names; None for the latest."""
    return None if at == "latest" else parse_ts(at, now_ms=time.time_ns() // 1_000_000)


def tell_sides(ts: int, place: str, source: str) -> None:
    """Say what is compared with which source, and of which moment."""
    say(f"ts {ts} ({to_datetime(ts):%Y-%m-%d %H:%M:%S} UTC): {place} beside {source}")


def tell_begun(name: str, rows: int) -> None:
    """Say that a table of many rows is begun."""
    if rows > CHUNK_ROWS:
        say(f"{name}: comparing {rows:,} rows", err=True)


@click.command()
@click.argument("sink_uri", metavar="SINK_URI")
@click.option("--upstream", required=True, metavar="URI", help="A tidb:// or mysql:// server, a lake or a recording.")
@moment_options
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    sink_uri: str,
    upstream: str,
    feed: str | None,
    at: str,
    rules: tuple[str, ...],
    **shown: Any,
) -> None:
    """Compare the tables of SINK_URI, a replica, with those of its upstream at one moment. Both may go on meanwhile.

    A moment is a sync point of a TiDB; in any replica the one where its changefeed stands, as after --until TSO."""
    as_json, limit = bool(shown["as_json"]), int(shown["limit"])
    opened, passes = upstream_of(upstream, UPSTREAM), TableFilter.parse(rules).matches
    wanted = WantedMoment(moment_of(at), shown["wait_s"])
    with closing(session_of(sink_uri)) as session:
        replica, ts = replica_at(session, feed_of(session, feed), wanted, passes)
        with opened(ts, passes) as source:
            if not as_json:
                tell_sides(ts, replica.place, source.place)
            total, wrong = (tell_json if as_json else tell)(compare_sides(source, replica, tell_begun), shown=limit)
    if not total:
        raise ConfigError(f"nothing was compared: no table passes the filter {' '.join(rules) or '*.*'}")
    conclude(ctx, total, wrong, as_json=as_json, ts=ts)
