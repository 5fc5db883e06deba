"""`tidegate verify`: compare every table of a lake, a database or a Redis with its upstream at one timestamp.

$ tidegate verify /srv/lake --upstream /srv/recording --at 3
$ tidegate verify mysql://root@replica:3306/ --upstream tidb://root@tidb:4000/
$ tidegate verify tidb://root@replica:4000/ --upstream tidb://root@tidb:4000/ --at 470607233675427842
$ tidegate verify 'redis://cache:6379/?mode=json' --upstream /srv/lake --json

    shop.orders: 2 keys differ (1,024 rows expected)
        missing    shop:orders:17
        different  shop:orders:18 column qty: expected 3, found 4

$ tidegate verify /srv/lake --upstream tidb://root@tidb:4000/ --repair /srv/lake

Each compared table prints one line; of a large table, standard error has the progress every ten seconds.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import click

from tidegate.cli.former import renamed
from tidegate.cli.lake import lake_root
from tidegate.cli.options import spark_tasks
from tidegate.cli.output import echo, echo_json
from tidegate.cli.sink import feed_of, session_of
from tidegate.config.entry import Document
from tidegate.config.redis import parse_redis
from tidegate.config.sql import parse_sql
from tidegate.config.uri import location_of, mask_text, resolve_uri, scheme_of
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import Tasks
from tidegate.engine.reload import DONE, KeptReload
from tidegate.model.errors import ConfigError
from tidegate.model.name import qualified, table_key
from tidegate.model.tso import parse_ts, to_datetime
from tidegate.server.client import connected, connects, feed_path, spaced
from tidegate.verify.compare import Difference, Passes, TableReader, TableReport, compare_sides
from tidegate.verify.database import RequestedMoment, replica_at, upstream_at
from tidegate.verify.last_reports import keep_report, summary
from tidegate.verify.local import Recording, Truth, lake_at, lake_beside, load_truth
from tidegate.verify.repair import repair_keys

UPSTREAM: Final = "--upstream"
TOLD_S: Final = 10.0
LOOK_S: Final = 0.5
"""The interval at which the outcome of a repair is looked for."""
SHOWN: Final = 20
SQL: Final = frozenset({"mysql", "tidb"})
CACHES: Final = frozenset({"redis", "rediss"})
Upstream: TypeAlias = Recording | str


class Compared(NamedTuple):
    """Both sides, opened at `ts`; `truth` is the moment of a recording that a lake is compared with."""

    ts: int
    upstream: TableReader
    target: TableReader
    truth: Truth | None = None


class VerifyOptions(NamedTuple):
    """The options of a comparison."""

    feed: str | None
    moment: str
    wait_s: float
    passes: Passes
    rows_per_s: int = 0
    tasks: Tasks | None = None
    shown: int = SHOWN
    as_json: bool = False
    points: bool = True
    """False if a TiDB as target is read where its changefeed is now, not at a sync point."""

    @property
    def ts(self) -> int | None:
        """The timestamp that --at names; None for the latest."""
        return None if self.moment == "latest" else parse_ts(self.moment, now_ms=time.time_ns() // 1_000_000)


def upstream_of(uri: str) -> Upstream:
    """Return the recording, the server's address or the lake's root that an address names. Raises the error of an
    invalid address before anything is compared."""
    uri = resolve_uri(uri, UPSTREAM)
    if scheme_of(uri).partition("+")[0] in SQL:
        parse_sql(uri, where=UPSTREAM)
        return uri
    path = location_of(uri, UPSTREAM, "tidb", "mysql")
    if "://" not in path and (Path(path, "truth").is_dir() or any(Path(path).glob("[0-9]*.json*"))):
        return Recording(path, load_truth(path))
    return lake_root(path)


@contextmanager
def _opened(upstream: Upstream, ts: int, passes: Passes) -> Iterator[TableReader]:
    if isinstance(upstream, Recording):
        yield upstream.at(ts, passes)
    elif scheme_of(upstream).partition("+")[0] in SQL:
        with closing(session_of(upstream, where=UPSTREAM)) as session:
            yield upstream_at(session, ts, passes)
    else:
        with lake_at(upstream, ts, passes) as (reader, _):
            yield reader


@contextmanager
def _beside_database(uri: str, upstream: Upstream, options: VerifyOptions) -> Iterator[Compared]:
    with closing(session_of(uri, where="TARGET")) as session:
        moment = RequestedMoment(options.ts, options.wait_s, options.points)
        target, ts = replica_at(session, feed_of(session, options.feed), moment, options.passes)
        with _opened(upstream, ts, options.passes) as source:
            yield Compared(ts, source, target)


@contextmanager
def _beside_redis(uri: str, upstream: Upstream, options: VerifyOptions) -> Iterator[Compared]:
    from tidegate.sink.redis_server import RedisServers
    from tidegate.verify.cache import CacheReader, position_at

    address = parse_redis(uri, Document())
    if address.mode not in {"hash", "json"}:
        raise ConfigError(f"mode={address.mode} stores no rows to compare; only mode=hash and mode=json do")
    with closing(RedisServers(address)) as servers:
        position = position_at(servers, options.feed, options.ts, options.wait_s)
        ts = position.checkpoint.ts if options.ts is None else options.ts
        tables = position.state.tables.values()
        target = CacheReader(servers, tables, options.passes, ts, lookups=address.lookups)
        with _opened(upstream, ts, options.passes) as source:
            yield Compared(ts, source, target)


@contextmanager
def _beside_lake(uri: str, upstream: Upstream, options: VerifyOptions) -> Iterator[Compared]:
    path = location_of(uri, "TARGET", "tidb", "mysql", "redis")
    if options.feed is not None:
        raise ConfigError("--changefeed is for databases and Redis; a lake has one changefeed")
    if isinstance(upstream, Recording):
        truth, recorded, stored = lake_beside(path, upstream.truths, options.moment, options.passes)
        yield Compared(truth.ts, recorded, stored, truth)
        return
    with (
        lake_at(lake_root(path), options.ts, options.passes) as (target, ts),
        _opened(upstream, ts, options.passes) as source,
    ):
        yield Compared(ts, source, target)


def _sides(uri: str, upstream: Upstream, options: VerifyOptions) -> AbstractContextManager[Compared]:
    scheme = scheme_of(uri).partition("+")[0]
    if scheme not in SQL | CACHES:
        return _beside_lake(uri, upstream, options)
    if isinstance(upstream, Recording):
        options = options._replace(moment=upstream.named(options.moment))
    return (_beside_database if scheme in SQL else _beside_redis)(uri, upstream, options)


def print_reports(reports: Iterable[TableReport], *, shown: int = SHOWN, as_json: bool = False) -> tuple[int, int]:
    """Print each table's line and its first differences, or a line of JSON; return the number of tables, and of those
    that differ."""
    total = wrong = 0
    for report in reports:
        if report.left_out:
            if as_json:
                echo_json({"table": report.name, "left_out": True, "rows": report.rows})
            else:
                echo(f"{report.name}: skipped, as it has no key (0 rows): force-replicate includes it")
            continue
        total += 1
        wrong += not report.equal
        first = report.differences[:shown]
        if as_json:
            entry = {"table": report.name, "equal": report.equal, "rows": report.rows}
            counts = {"differences": len(report.differences), "whole": report.is_whole}
            echo_json({**entry, **counts, "shown": list(map(_plain, first))})
            continue
        if report.equal:
            echo(f"{report.name}: equal ({report.rows:,} rows)")
            continue
        keys = {difference.stored_key for difference in report.differences if difference.stored_key}
        count = len(keys or report.differences)
        what = f"key{'s' * (count > 1)} differ{'s' * (count == 1)}" if keys else f"difference{'s' * (count > 1)}"
        least = "" if report.is_whole else "at least "
        echo(f"{report.name}: {least}{count:,} {what} ({report.rows:,} rows expected)")
        for difference in first:
            echo(f"    {difference}")
        if len(report.differences) > shown:
            echo(f"    ... {len(report.differences) - shown:,} more")
    return total, wrong


def _plain(difference: Difference) -> dict[str, object]:
    shown: dict[str, object] = {"kind": difference.kind}
    if difference.stored_key or difference.key:
        shown["key"] = difference.stored_key or [_json(value) for value in difference.key]
    if difference.column:
        shown["column"] = difference.column
    if difference.has_values:
        shown |= {"expected": _json(difference.expected), "found": _json(difference.found)}
    return shown


def _json(value: object) -> object:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


class Progress:
    """Tells on standard error, every ten seconds, how far the comparison of a large table is."""

    def __init__(self) -> None:
        self._told_s = time.monotonic()

    def __call__(self, name: str, rows: int, done: int) -> None:
        """Take the rows of a table that are read, of about `rows`."""
        if time.monotonic() - self._told_s >= TOLD_S:
            self._told_s = time.monotonic()
            echo(f"{name}: {done:,} of {max(rows, done):,} rows", err=True)


class _Verify(click.Command):
    """The command; for its former two arguments it fails with what replaces them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        former = ctx.params.pop("former")
        if former and not ctx.params["upstream"]:
            position = len(words) - 1 - words[::-1].index(former[0])
            raise click.UsageError(
                renamed("verify LAKE RECORDING", [*words[:position], UPSTREAM, *words[position:]]), ctx
            )
        if former or not ctx.params["upstream"]:
            what = f"Got unexpected extra argument ({former[0]})" if former else f"Missing option '{UPSTREAM}'."
            raise click.UsageError(what, ctx)
        return rest


@click.command(cls=_Verify)
@click.argument("target", metavar="TARGET")
@click.argument("former", metavar="", nargs=-1)
@click.option(UPSTREAM, metavar="URI|RECORDING", help="A tidb:// or mysql:// server, a lake or a recording.")
@click.option(
    "-c", "--changefeed", "feed", metavar="NAME", help="TARGET's changefeed; required if several write to it."
)
@click.option(
    "--at",
    "moment",
    default="latest",
    show_default=True,
    metavar="latest|N|TSO|TIME",
    help="TSO, time or number of a recorded moment; default: latest.",
)
@click.option(
    "--wait",
    "wait_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait until a database or a Redis reaches it.",
)
@click.option("--filter", "rules", multiple=True, metavar="RULE", help="Only these tables, such as 'shop.*'.")
@click.option(
    "--rows-per-second",
    "rows_per_s",
    default=0,
    type=click.IntRange(0),
    help="Rows read of each side in a second; default: no limit.",
)
@click.option("--master", metavar="URL", help="Of a Spark whose tasks share large tables: local[4], spark://..., yarn.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option("--limit", default=SHOWN, show_default=True, type=click.IntRange(0), help="Differences shown per table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.option(
    "--repair",
    metavar="HOME|FEED",
    help="Let the changefeed read rows that differ again, then compare once more: its lake, its STATE-DIR/NAME, or its "
    "name in a server.",
)
@click.option(
    "--repair-wait",
    "repair_wait_s",
    default=3600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait for that; 0: only request it.",
)
@spaced
@connects
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    target: str,
    upstream: str,
    feed: str | None,
    moment: str,
    wait_s: float,
    rules: tuple[str, ...],
    rows_per_s: int,
    limit: int,
    as_json: bool,
    **more: Any,
) -> None:
    """Compare the tables of TARGET, a lake, a database or a Redis, with its upstream at one timestamp. Both may run.

    The timestamp is a state of a recording, by its number N or ts; a sync point of a TiDB; in any other database the
    position of its changefeed, as after --until TSO. The address of a Redis has its changefeed's parameters: mode and
    key-template define how rows are stored, and with lookups the look-ups are compared with rows, too; tables without a
    key are left out."""
    source, passes = upstream_of(upstream), TableFilter.parse(rules).matches
    repair, repair_wait_s, namespace = more["repair"], more["repair_wait_s"], more["namespace"]
    if repair is not None and moment != "latest":
        raise click.UsageError("--repair compares the newest rows before and after: it goes with --at latest")
    tasks = spark_tasks(more["master"], more["settings"])
    options = VerifyOptions(feed, moment, wait_s, passes, rows_per_s, tasks, limit, as_json)
    total, wrong = _compare(target, source, options)
    if not total:
        raise ConfigError(f"nothing was compared: no table passes the filter {' '.join(rules) or '*.*'}")
    if wrong and repair is not None and _repair(repair, namespace, wrong, repair_wait_s):
        names = {table_key(report.name) for report in wrong}
        again = options._replace(passes=lambda *name: table_key(qualified(*name)) in names, points=False)
        _, wrong = _compare(target, source, again)
    ctx.exit(1 if wrong else 0)


def _compare(target: str, source: Upstream, options: VerifyOptions) -> tuple[int, list[TableReport]]:
    """Compare both sides and print the result; return the number of tables, and the reports of those that differ."""
    wrong, tables = list[TableReport](), list[dict[str, Any]]()
    as_json = options.as_json

    def noted(reports: Iterable[TableReport]) -> Iterator[TableReport]:
        for report in reports:
            tables.append(summary(report))
            if not report.equal:
                wrong.append(report)
            yield report

    with _sides(resolve_uri(target, "TARGET"), source, options) as compared:
        truth = compared.truth
        if truth is not None and not as_json:
            echo(f"moment {truth.n}, ts {truth.ts}{f' ({truth.after})' if truth.after else ''}")
        elif not as_json:
            at_utc = f"{to_datetime(compared.ts):%Y-%m-%d %H:%M:%S} UTC"
            echo(f"ts {compared.ts} ({at_utc}): {compared.target.label} beside {compared.upstream.label}")
        for side in compared[1:3] if options.tasks else ():
            if side.whole:
                echo(f"{side.label}: read by this process alone, as {side.whole}", err=True)
        rows_per_s, tasks = options.rows_per_s, options.tasks
        reports = compare_sides(compared.upstream, compared.target, Progress(), rows_per_s=rows_per_s, tasks=tasks)
        total, different = print_reports(noted(reports), shown=options.shown, as_json=as_json)
    labels = {"upstream": compared.upstream.label, "target": compared.target.label}
    keep_report({"ts": compared.ts, **{side: mask_text(label) for side, label in labels.items()}}, tables)
    if as_json and total:
        line_head = {} if truth is None else {"moment": truth.n}
        counts = {"tables": total, "different": different, "equal": not different}
        echo_json({**line_head, "ts": compared.ts, **labels, **counts})
    elif total:
        echo(f"{different} of {total} tables differ" if different else f"all {total} tables equal")
    return total, wrong


def _repair(where: str, namespace: str, reports: Iterable[TableReport], wait_s: float) -> bool:
    """Request that a changefeed brings the rows that differ again, and wait for it; return False if there are none, or
    nobody waits. `where` is its home, or its name in a server. Raises ConfigError if it fails, or takes too long."""
    rows, refused = repair_keys(reports)
    for line in refused:
        echo(f"not repaired: {line}", err=True)
    if not rows:
        return False
    if "/" in where:
        home = location_of(where, "--repair")
        if "://" not in home and not Path(home, "_tidegate").is_dir():
            raise ConfigError(f"{home} is not the home of a changefeed with a load-from: it has no _tidegate directory")
        kept = KeptReload(home)
        kept.ask_repair(rows)

        def outcome() -> str:
            last = kept.read()
            return "" if last is None else last.outcome
    else:
        client, path = connected(), f"/api/tidegate/v1{feed_path(where)}/rows/repair"
        body = [{"table": str(some.table), "columns": some.columns, "keys": some.keys} for some in rows]
        client.ask("POST", path, {"rows": body}, namespace=namespace)

        def outcome() -> str:
            return str(client.ask("GET", path, namespace=namespace)["outcome"])

    echo(f"requested of changefeed {where}: {sum(len(some.keys) for some in rows):,} rows", err=True)
    begun_s = told_s = time.monotonic()
    while not (ended := outcome()) and (now_s := time.monotonic()) < begun_s + wait_s:
        if now_s >= told_s + TOLD_S:
            told_s = now_s
            echo(f"changefeed {where}: not done after {now_s - begun_s:,.0f} s", err=True)
        time.sleep(LOOK_S)
    if ended not in {"", DONE}:
        raise ConfigError(f"changefeed {where} has not repaired all rows: {ended}")
    if not ended and wait_s:
        raise ConfigError(
            f"changefeed {where} has not repaired the rows after {wait_s:g} s; does it run, with a load-from? The "
            "request stays: verify again later"
        )
    return bool(ended)
