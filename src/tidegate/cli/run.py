"""`tidegate run`: one changefeed in this process, until it is stopped.

Source and sink are configured by addresses and a file, in the same way for every pair (config/load.py).

first SIGINT or SIGTERM    finish work in flight, store the checkpoint, stop
second SIGINT              stop at once; the next run continues from the checkpoint, as after a crash
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.cli.options import spark_tasks
from tidegate.cli.output import echo, echo_json
from tidegate.config.full_load import MODES, MOMENTS
from tidegate.config.load import load
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.model.tso import compose, parse_ts

if TYPE_CHECKING:
    from tidegate.config.entry import FeedConfig

NOW: Final = "now"
"""An end of the run, not of the feed."""


@click.command()
@click.argument("path", metavar="[CONFIG]", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--source-uri",
    help="Where to read: kafka://HOST:PORT/TOPIC?protocol=open-protocol|canal-json&..., tikv://PD:PORT, tidb:///LOG, "
    "file:///DIRECTORY?protocol=csv|canal-json, s3://BUCKET/PREFIX?protocol=... (gs:// or gcs://, azure:// or "
    "azblob://, az://, abfss://), changelog:///LAKE, mysql://USER@HOST:PORT/ (its rows, once)",
)
@click.option(
    "--sink-uri",
    help="Where to write: delta:///LAKE?... (iceberg:// is the same with Iceberg metadata), "
    "kafka://HOST:PORT/TOPIC?protocol=..., mysql://USER@HOST:PORT/ (tidb:// too), redis://HOST:PORT/ (rediss:// by "
    "TLS), search+tantivy:///DIR, opensearch://HOST:PORT (elasticsearch:// too), https://HOST/PATH (http:// too), "
    "file:///DIR?protocol=csv|canal-json, s3://BUCKET/PREFIX?protocol=... (gs:// or gcs://, azure:// or "
    "azblob://, az://, abfss://), metrics://HOST:PORT, sqlite:///FILE, callback://MODULE/NAME",
)
@click.option("--filter", "rules", multiple=True, metavar="RULE", help="Tables, such as 'shop.*' or '!shop.tmp_*'.")
@click.option("-c", "--changefeed-id", "name", help="Name under which progress is kept.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Into a lake: tables merged at the same time.")
@click.option(
    "--until",
    "--target-ts",
    "until",
    metavar="now|TSO|TIME",
    help="Stop when everything up to this time is in the sink.",
)
@click.option("--start-ts", metavar="TSO|TIME", help="tidb:// only: where to start; default: the log's begin.")
@click.option(
    "--state-dir",
    metavar="DIRECTORY|URL",
    help="For the checkpoint, if the sink keeps none: a directory, or s3://BUCKET/PREFIX.",
)
@click.option(
    "--stop-when-idle",
    "idle_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop after nothing has come for so long.",
)
@click.option(
    "--load",
    "load_mode",
    type=click.Choice(MODES),
    help="Begin with the rows that are there: `initial` (default with --load-from), or `only` these and end.",
)
@click.option(
    "--load-from", metavar="URI", help="Where these rows are: mysql://USER:PASSWORD@HOST:4000/, or file:///DUMPLING"
)
@click.option("--load-ts", metavar="TSO", type=click.IntRange(min=1), help="The TSO to read them at; default: now.")
@click.option(
    "--ticdc",
    metavar="URL|FILE",
    help="Compare the load with its changefeed: http://HOST:8300/api/v2/changefeeds/ID, or its file.",
)
@click.option(
    "--definitions-from", metavar="URI", help="For a topic that begins in the middle: the database that has its tables."
)
@click.option("--definitions-at", type=click.Choice(MOMENTS), help="As of the topic's `start` (default), or `now`.")
@click.option("--master", metavar="URL", help="Of a cluster: spark://HOST:PORT, yarn, k8s://..., or sc://HOST:PORT.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Archive of Tidegate for executors (`tidegate pack`); built if none is given, except for sc://.",
)
@click.option(
    "--check", "checks", is_flag=True, help="Check source, sink, load-from and --ticdc, list tables, and exit."
)
@click.option("--json", "as_json", is_flag=True, help="Report progress as JSON lines on stdout.")
@click.option("--no-color", is_flag=True, help="No colors.")
def run(
    *,
    path: str | None,
    source_uri: str | None,
    sink_uri: str | None,
    rules: tuple[str, ...],
    name: str | None,
    workers: int | None,
    until: str | None,
    start_ts: str | None,
    state_dir: str | None,
    idle_s: float | None,
    master: str | None,
    settings: tuple[str, ...],
    archive: Path | None,
    checks: bool,
    as_json: bool,
    no_color: bool,
    **begins: Any,
) -> None:
    """Run a changefeed from a topic, a log or files into a sink.

    Options override the values of CONFIG, a changefeed file as TiCDC has it, with a [source] section."""
    now_ms = time.time_ns() // 1_000_000
    if (
        path is None
        and (source_uri is None or sink_uri is None)
        and (begins["load_mode"] != "only" or sink_uri is None)
    ):
        raise click.UsageError("give a CONFIG file, or both --source-uri and --sink-uri")
    config = load(
        path,
        source_uri=source_uri,
        sink_uri=sink_uri,
        name=name,
        rules=rules,
        workers=workers,
        start_ts=None if start_ts is None else parse_ts(start_ts, now_ms=now_ms),
        target_ts=None if until in {None, NOW} else parse_ts(until, now_ms=now_ms),
        state_dir=state_dir,
        **begins,
    )
    from tidegate.cli import options as logging
    from tidegate.config.changefeed import Changefeed
    from tidegate.config.registry import upstream_now
    from tidegate.engine.display import FeedPanel, display

    logging.configure(json=as_json, displays=not as_json)
    if not as_json:
        echo(f"changefeed {config.name}: {config.source_uri} -> {config.sink_uri}", err=True)
    for warning in config.warnings:
        echo(f"warning: {warning}", err=True)
    if checks:
        _check(config, as_json=as_json)
        return
    now_ts = upstream_now(config) if NOW in {until, start_ts} else None
    feed = FeedPanel(config.name, config.source_uri, config.sink_uri)
    with (
        stop_on_signals() as stop,
        display(feed, stop, json=as_json, color=not no_color, out=sys.stdout, err=sys.stderr) as show,
    ):
        Changefeed(replace(config, start_ts=now_ts) if start_ts == NOW else config).run(
            tasks=spark_tasks(master, settings, archive),
            on_progress=show,
            stop=stop,
            until=now_ts if until == NOW else config.target_ts,
            idle_s=idle_s,
            stop_when_ended=until == NOW or (config.target_ts is not None and config.target_ts <= compose(now_ms)),
        )


def _check(config: "FeedConfig", *, as_json: bool) -> None:
    from tidegate.config.changefeed import check

    checked = check(config)
    if as_json:
        echo_json(checked)
        return
    for warning in checked.warnings[len(config.warnings) :]:
        echo(f"warning: {warning}", err=True)
    for line in checked.lines():
        echo(line)
