"""`tidegate apply`: bring a replica whose upstream was lost to one ts, from the changes that have landed.

$ tidegate apply --source-uri changelog:///srv/lake --sink-uri 'mysql://root@10.0.0.9:3306/'

    changelog of a lake or feed  ─┐                      ┌─ tidegate.progress: from its checkpoint ..
    topic                         ├─ rows and DDLs up to ┤
    change log of the TiDB        ─┘                     └─ .. to `--until`, or as far as everything is resolved

Changes above the last resolved ts are not applied, because they may be incomplete.  An interrupted run can be repeated:
it continues from the checkpoint, and does nothing if the target is already there.
"""

import sys
import tempfile
import time

import click

from tidegate.cli.output import echo, echo_json
from tidegate.cli.sink import feed_of, session_of
from tidegate.config.entry import FeedConfig
from tidegate.config.load import addresses, load, read_document
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.model.errors import ConfigError
from tidegate.model.tso import parse_ts, time_of
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.progress import checkpoint_of, reached

SILENCE_S = 1.0
"""A source that sends nothing for this long is taken to have sent everything."""


@click.command()
@click.argument("path", metavar="[CONFIG]", required=False)
@click.option("--source-uri", help="The source: changelog:///LAKE, kafka://HOST:PORT/TOPIC?protocol=..., tidb:///LOG")
@click.option("--sink-uri", help="The replica: mysql://USER:PASSWORD@HOST:PORT/ or tidb://...")
@click.option("--until", metavar="now|TSO|TIME", help="Target timestamp; default: the last resolved one.")
@click.option(
    "-c", "--changefeed-id", "name", help="The changefeed to continue; required if several wrote to the replica."
)
@click.option(
    "--filter", "rules", multiple=True, metavar="RULE", help="Filter rules, such as 'shop.*' or '!shop.tmp_*'."
)
@click.option(
    "--state-dir",
    metavar="DIRECTORY|URL",
    help="The changefeed's state directory, if it still exists: avoids reading again.",
)
@click.option("--json", "as_json", is_flag=True, help="Report progress as JSON lines on stdout.")
@click.pass_context
def apply(
    ctx: click.Context,
    *,
    path: str | None,
    source_uri: str | None,
    sink_uri: str | None,
    until: str | None,
    name: str | None,
    rules: tuple[str, ...],
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Bring a replica in a database to one timestamp of its upstream from the changes that have landed, then exit.

    It takes over from the changefeed that wrote the replica; one that still runs is ended."""
    until_ts = None if until is None else parse_ts(until, now_ms=time.time_ns() // 1_000_000)
    _, sink = addresses(read_document(path), source_uri, sink_uri)
    checkpoint_ts, last_ts, name = _position(sink, name)
    if until_ts is not None and last_ts > until_ts:
        raise ConfigError(f"the replica is already at {last_ts}, later than --until {until_ts}")
    with tempfile.TemporaryDirectory() as own:
        config = load(
            path, source_uri=source_uri, sink_uri=sink_uri, name=name, rules=rules, state_dir=state_dir or own
        )
        if not isinstance(config.sink, SqlOptions):
            raise ConfigError("apply is for replicas in databases; for other sinks, use tidegate run --until")
        brought = _bring(config, until_ts, as_json=as_json)
    if as_json:
        echo_json({"changefeed": config.name, "from_ts": checkpoint_ts, "ts": brought})
    else:
        echo(f"the replica is as its upstream was at {brought} ({time_of(brought):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC)")
    if until_ts is not None and brought < until_ts:
        echo(f"the source is resolved only up to {brought}, not up to {until_ts}", err=True)
        ctx.exit(1)


def _position(sink: str, name: str | None) -> tuple[int, int, str | None]:
    """Return the checkpoint of the replica, the timestamp of its last row or DDL, and the changefeed that wrote it: 0
    and `name` if nothing was written yet."""
    session = session_of(sink)
    try:
        if not session.ask(sent.OWN_TABLES, values=(sent.DATABASE,)):
            return 0, 0, name
        feed = feed_of(session, name)
        return checkpoint_of(session, feed), reached(session, feed), feed
    finally:
        session.close()


def _bring(config: FeedConfig, until: int | None, *, as_json: bool) -> int:
    """Run the changefeed to `until`, or to everything resolved; return its checkpoint."""
    from tidegate.cli import options as logging
    from tidegate.config.changefeed import Changefeed
    from tidegate.engine.display import FeedPanel, display

    logging.configure(json=as_json, displays=not as_json)
    feed = FeedPanel(config.name, config.source_uri, config.sink_uri)
    with (
        stop_on_signals() as stop,
        display(feed, stop, json=as_json, color=True, out=sys.stdout, err=sys.stderr) as show,
    ):
        outcome = Changefeed(config).run(on_progress=show, stop=stop, until=until, idle_s=SILENCE_S)
        if until is None and (outcome.frontier_ts or 0) > (outcome.checkpoint_ts or 0) and not stop.is_set():
            outcome = Changefeed(config).run(on_progress=show, stop=stop, until=outcome.frontier_ts, idle_s=SILENCE_S)
    return outcome.checkpoint_ts or 0
