"""`tidegate cache verify`: the rows of a Redis beside what they were made of, at one moment.

$ tidegate cache verify redis://cache:6379/ --source-uri tidb://root@tidb:4000/
$ tidegate cache verify 'redis://cache:6379/?mode=json' --source-uri /srv/lake --at 470607233675427842 --json

    shop.orders: 2 keys differ (1,024 rows expected)
        missing    shop:orders:17
        different  shop:orders:18 column qty: expected 3, found 4

The changefeed may go on meanwhile: a key that changed behind the moment is no difference (verify/cache.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import click

from tidegate.cli.sink.verify import moment_of, moment_options, tell_begun, tell_sides, upstream_of
from tidegate.cli.verify import conclude
from tidegate.config.document import Document
from tidegate.config.redis_sink import parse_redis
from tidegate.config.say import say, say_json
from tidegate.config.uri import told
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import Standing
from tidegate.engine.stop_signals import wait_until
from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered
from tidegate.sink.redis.progress import feeds_of
from tidegate.sink.redis.servers import RedisServers
from tidegate.verify.cache import LOOKUP_KINDS, ROW_KINDS, CacheSide
from tidegate.verify.comparison import Side, compare_sides
from tidegate.verify.lake import Difference, TableReport

SOURCE: Final = "source-uri"
_KINDS: Final = ROW_KINDS | LOOKUP_KINDS
Keyed = list[tuple[str, Difference]]
"""What differs, with the key, or nothing where no key is at fault."""


@click.group()
def cache() -> None:
    """Look after rows in a Redis."""


@cache.command()
@click.argument("uri", metavar="SINK_URI")
@click.option("--source-uri", required=True, metavar="URI", help="A tidb:// server, a lake or a recording.")
@moment_options
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    uri: str,
    source_uri: str,
    feed: str | None,
    at: str,
    wait_s: float,
    rules: tuple[str, ...],
    **shown: Any,
) -> None:
    """Compare the rows of SINK_URI, a redis:// with mode=hash or json, with their source at one moment.

    Its parameters are those of the changefeed: mode and key-template say how rows are kept, lookups that look-ups are
    compared with rows, too. Tables without a key are left out."""
    as_json, limit = bool(shown["as_json"]), int(shown["limit"])
    opened, passes = upstream_of(source_uri, SOURCE), TableFilter.parse(rules).matches
    ts = moment_of(at)
    address = parse_redis(told(uri, "sink-uri"), Document())
    if address.mode not in {"hash", "json"}:
        raise ConfigError(f"mode={address.mode} keeps no rows; what is compared are rows of mode=hash and mode=json")
    with closing(RedisServers(address.options("", "UTC"))) as servers:
        standing = _standing(servers, feed, ts, wait_s)
        ts = standing.checkpoint.ts if ts is None else ts
        side = CacheSide(servers, standing.state.tables.values(), passes)
        with opened(ts, passes) as source:
            _keyed_alike(source, side)
            if not as_json:
                tell_sides(ts, side.place, source.place)
            total = wrong = 0
            for report, found in _reports(source, side, ts, lookups=address.lookups):
                total += 1
                wrong += bool(found)
                (_tell_json if as_json else _tell)(report, found, limit)
    if not total:
        raise ConfigError(f"nothing was compared: no table with a key passes the filter {' '.join(rules) or '*.*'}")
    conclude(ctx, total, wrong, as_json=as_json, ts=ts)


def _standing(servers: RedisServers, feed: str | None, ts: int | None, wait_s: float) -> Standing:
    """Where the changefeed stands, once it is at `ts`. ConfigError where it does not come there in time."""
    feeds = feeds_of(servers)
    name = next(iter(feeds)) if feed is None and len(feeds) == 1 else feed
    if name not in feeds:
        known = f"it has {', '.join(feeds)}; give --changefeed" if feeds else "none has, in this database"
        asked = f"no changefeed {feed} writes" if feed else "several or no changefeeds write"
        raise ConfigError(f"{asked} to {servers.options.place}: {known}")
    if ts is not None and feeds[name].checkpoint.ts < ts:
        wait_until(lambda: feeds_of(servers)[name].checkpoint.ts >= ts, wait_s)
        feeds = feeds_of(servers)
        if feeds[name].checkpoint.ts < ts:
            raise ConfigError(
                f"changefeed {name} is at {feeds[name].checkpoint.ts} in {servers.options.place}, before {ts}, after "
                f"{wait_s:g} s; is it running? Wait longer with --wait, or verify --at latest"
            )
    return feeds[name]


def _keyed_alike(source: Side, side: CacheSide) -> None:
    """Give the source's tables the keys that rows have in Redis; those without any key are left out there."""
    source.tables = {
        name: replace(shape, key=side.tables[name].key) if name in side.tables else shape
        for name, shape in source.tables.items()
        if shape.key or name in side.tables
    }


def _reports(source: Side, side: CacheSide, ts: int, *, lookups: bool) -> Iterator[tuple[TableReport, Keyed]]:
    for report in compare_sides(source, side, tell_begun):
        rows = [one for one in report.differences if one.kind in ROW_KINDS]
        found: Keyed = [("", one) for one in report.differences if one.kind not in ROW_KINDS]
        if rows:
            found += [(_shown_key(key), one) for key, one in side.keyed(source.tables[lowered(report.name)], rows, ts)]
        if lookups and lowered(report.name) in side.tables:
            found += [(_shown_key(key), one) for key, one in side.lookup_faults(lowered(report.name), ts)]
        yield report, found


def _shown_key(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _tell(report: TableReport, found: Keyed, limit: int) -> None:
    if not found:
        say(f"{report.name}: equal ({report.rows:,} rows)")
        return
    keys = {key for key, _ in found if key}
    say(f"{report.name}: {len(keys):,} key{'s' * (len(keys) != 1)} differ ({report.rows:,} rows expected)")
    for key, one in found[:limit]:
        if not key:
            say(f"    {one}")
            continue
        value = f" column {one.column}: expected {one.expected!r}, found {one.found!r}" if one.kind == "value" else ""
        say(f"    {_KINDS[one.kind]:<9}  {key}{value}")
    if len(found) > limit:
        say(f"    ... {len(found) - limit:,} more")


def _tell_json(report: TableReport, found: Keyed, limit: int) -> None:
    say_json(
        {
            "table": report.name,
            "equal": not found,
            "rows": report.rows,
            "differences": len(found),
            "shown": list(_shown(found[:limit])),
        }
    )


def _shown(found: Iterable[tuple[str, Difference]]) -> Iterator[dict[str, object]]:
    for key, one in found:
        told: dict[str, object] = {"kind": _KINDS.get(one.kind, one.kind)}
        told |= {"key": key} if key else {}
        told |= {"column": one.column} if one.column else {}
        if one.kind == "value":
            told |= {"expected": _plain(one.expected), "found": _plain(one.found)}
        yield told


def _plain(value: object) -> object:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value
