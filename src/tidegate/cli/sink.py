"""`tidegate sink`: maintain replicas in databases.

`tidegate sink ddl` lists the DDLs of a changefeed that its database refused, and records the outcome of one:

$ tidegate sink ddl mysql://root@replica:3306/
470673814969647104  babdc76a1abed152  refused  shop.carts  RECOVER TABLE `shop`.`carts`
    the target keeps no rows of dropped and truncated tables
$ tidegate sink ddl mysql://root@replica:3306/ --done babdc76a1abed152

`tidegate sink hold` pauses a changefeed, so that its tables can be read at one ts:

$ tidegate sink hold 'mysql://root@127.0.0.1:3306/' --at 2026-01-02T03:04:00Z -- mysqldump --all-databases

    holds shop at 463187107225600000 (2026-01-02 03:04:00.000 UTC)         .. the command runs, TIDEGATE_HELD_TS set ..
    shop goes on
"""

import os
import subprocess
import time
from contextlib import closing

import click

from tidegate.cli.former import former_verify
from tidegate.cli.output import echo, echo_json
from tidegate.config.sql import parse_sql
from tidegate.config.uri import resolve_uri
from tidegate.engine.stop_signals import StopEvent, stop_on_signals, wait_until
from tidegate.model.errors import ConfigError, SinkError
from tidegate.model.tso import parse_ts, time_of
from tidegate.sink.sql.connection import TargetSession, probe
from tidegate.sink.sql.ddl_ledger import LedgerDdl, list_ddls, settle
from tidegate.sink.sql.progress import LEASE_S, Lease, check_kept, feeds_of, lease_at

RENEW_S = LEASE_S / 6
STOP_S = 10.0
"""Time for a command to end after SIGTERM."""


@click.group()
def sink() -> None:
    """Maintain replicas in databases: resolve refused DDLs, hold a replica to read it."""


sink.add_command(former_verify("sink verify"))


@sink.command()
@click.argument("uri", metavar="SINK_URI")
@click.option("-c", "--changefeed", metavar="NAME", help="The changefeed; required if several write to the server.")
@click.option("--done", "done_id", metavar="ID", help="Mark this DDL as applied by hand and continue after it.")
@click.option("--again", "again_id", metavar="ID", help="Run this DDL again, as if it had not started.")
@click.option("--all", "every", is_flag=True, help="Include completed DDLs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def ddl(
    *, uri: str, changefeed: str | None, done_id: str | None, again_id: str | None, every: bool, as_json: bool
) -> None:
    """List the DDLs that the database SINK_URI refused or that were interrupted, and resolve one with --done or
    --again."""
    if done_id and again_id:
        raise click.UsageError("--done and --again are mutually exclusive")
    with closing(session_of(uri)) as session:
        feed = feed_of(session, changefeed)
        if ddl_id := done_id or again_id:
            ddls = [settle(session, feed, ddl_id, was_done=bool(done_id))]
        else:
            ddls = list_ddls(session, feed, every=every)
    for entry in ddls:
        echo_json(entry._asdict()) if as_json else _show(entry)
    if ddl_id and not as_json:
        echo(f"resume changefeed {feed}: it continues after this DDL" if done_id else f"resume changefeed {feed}")
    elif not ddls and not as_json:
        echo("no DDL is waiting")


def _show(entry: LedgerDdl) -> None:
    name = ".".join(filter(None, (entry.schema, entry.table)))
    echo(f"{entry.ddl_ts}  {entry.id}  {entry.state}  {name}  {' '.join(entry.query.split())[:200]}")
    if entry.note and entry.state == "refused":
        echo(f"    {entry.note}")


@sink.command("hold")
@click.argument("uri", metavar="SINK_URI")
@click.option("-c", "--changefeed", metavar="NAME", help="The changefeed; required if several write to the server.")
@click.option(
    "--at", "moment", metavar="now|TSO|TIME", help="The timestamp to hold at; default: the next possible one."
)
@click.option("--wait", "wait_s", default=60.0, show_default=True, help="Seconds to wait until it is reached.")
@click.option("--for", "hold_s", default=600.0, show_default=True, help="Maximum seconds to hold.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("command", nargs=-1)
@click.pass_context
def hold_feed(
    ctx: click.Context,
    *,
    uri: str,
    changefeed: str | None,
    moment: str | None,
    wait_s: float,
    hold_s: float,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Hold a changefeed into the database SINK_URI at one timestamp while COMMAND runs, or until Ctrl-C.

    COMMAND finds the timestamp in TIDEGATE_HELD_TS. If this command dies, the hold ends within 30 seconds."""
    ts = None if moment is None else parse_ts(moment, now_ms=time.time_ns() // 1_000_000)
    session = session_of(uri)
    feed = feed_of(session, changefeed)
    try:
        with stop_on_signals() as stop, lease_at(session, feed, ts) as lease:
            held_ts = _stands(lease, stop, wait_s)
            if as_json:
                echo_json({"changefeed": feed, "ts": held_ts})
            else:
                echo(f"holds {feed} at {held_ts} ({time_of(held_ts)})", err=bool(command))
            status = _during(lease, stop, hold_s, command, held_ts)
    finally:
        session.close()
    if not as_json:
        echo(f"{feed} continues", err=bool(command))
    ctx.exit(status)


def _stands(lease: Lease, stop: StopEvent, wait_s: float) -> int:
    """Return the timestamp at which the feed is held. Raises ConfigError if it does not reach it in time."""
    wait_until(lambda: stop.is_set() or lease.stands(), wait_s)
    if stop.is_set():
        raise click.exceptions.Exit(130)
    if lease.ts is None or not lease.stands():
        position = "" if lease.ts is None else f" at {lease.ts}"
        raise ConfigError(
            f"changefeed {lease.feed} did not stop{position} within {wait_s:g} s. Is it running, and is the ts in the "
            f"past? A stopped changefeed needs no hold"
        )
    return lease.ts


def _during(lease: Lease, stop: StopEvent, hold_s: float, command: tuple[str, ...], ts: int) -> int:
    """Renew the lease until the command or the time has ended; return the exit status."""
    child = subprocess.Popen(command, env={**os.environ, "TIDEGATE_HELD_TS": str(ts)}) if command else None
    end_s, renewed_s = time.monotonic() + hold_s, time.monotonic()

    def has_ended() -> bool:
        nonlocal renewed_s
        if time.monotonic() - renewed_s >= RENEW_S:
            lease.renew()
            renewed_s = time.monotonic()
        return stop.is_set() or (child is not None and child.poll() is not None)

    try:
        in_time = wait_until(has_ended, max(end_s - time.monotonic(), 0.0))
        lease.renew()
    finally:
        if child is not None and child.poll() is None:
            _end(child)
    if child is None:
        return 0
    if not in_time:
        raise SinkError(f"{command[0]} was terminated: the hold ended after {hold_s:g} s; see --for")
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()


def session_of(uri: str, feed: str = "", *, where: str = "sink-uri") -> TargetSession:
    """Open a session with the server of an address, which @FILE or env:NAME may hold. Raises the error of an invalid
    address, and SinkError."""
    session = TargetSession(parse_sql(resolve_uri(uri, where), where=where, feed=feed))
    return session.prepare(probe(session))


def feed_of(session: TargetSession, name: str | None) -> str:
    """Return the changefeed with this name, else the only one that writes to the server. Raises ConfigError,
    StateTooNew."""
    feeds = feeds_of(session)
    chosen = name or (feeds[0] if len(feeds) == 1 else None)
    if chosen in feeds:
        check_kept(session, chosen)
        return chosen
    hint = f"it has {', '.join(feeds)}; give --changefeed" if feeds else "none has"
    which = f"no changefeed {name} writes" if name else "several changefeeds, or none, write"
    raise ConfigError(f"{which} to {session.options.address}: {hint}")
