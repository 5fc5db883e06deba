"""`tidegate status`: the last reports of the changefeeds of a lake or a state directory.

$ tidegate status /srv/lake
shop: normal since 2026-03-17T09:31:06Z, checkpoint 470606744143265793 (2026-03-17 09:31:06.250), kafka://.. -> delta://..
"""

import click

from tidegate.cli.output import echo, echo_json
from tidegate.config.status import FeedStatus, statuses
from tidegate.config.uri import location_of
from tidegate.engine.progress import PathsSeen, lag_words, left_out_words, load_words, slow_words, undecodable_words
from tidegate.model.errors import ConfigError


def words(status: FeedStatus) -> str:
    """Return a status as a line of text."""
    text = f"{status.changefeed}: {status.state}" + (f" since {status.since}" if status.since else "")
    text += f", checkpoint {status.checkpoint_ts} ({status.checkpoint_time}), {status.source} -> {status.sink}"
    if status.history_left_s is not None:
        text += f"; history left {lag_words(int(status.history_left_s * 1000))}"
    if load := load_words(status.load):
        text += f"; {load}"
    if odd := undecodable_words(status.undecodable):
        text += f"; {odd}"
    if status.error is not None:
        text += f"; {status.error}"
    if left := left_out_words(status):
        text += f"; {left}"
    if slow := slow_words(PathsSeen(status.roads, status.slow_roads)):
        text += f"; slow paths: {slow}"
    text += "".join(f"; parked: {table.table}: {table}" for table in status.parked)
    return text if status.running else f"{text}; it is not running, and goes on behind its checkpoint when it is run"


@click.command()
@click.argument("root", metavar="[LAKE|STATE-DIR]", required=False)
@click.option("--state-dir", metavar="DIRECTORY|URL", help="Where `run` keeps checkpoints.")
@click.option("-c", "--changefeed-id", "name", help="This changefeed only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def status(*, root: str | None, state_dir: str | None, name: str | None, as_json: bool) -> None:
    """Show the state, checkpoint and error of the changefeeds of a lake or a state directory, ended ones too."""
    where = root or state_dir
    if where is None:
        raise click.UsageError("give a LAKE, or the --state-dir of a feed that keeps its checkpoint there")
    shown = [each for each in statuses(location_of(where, "status")) if name in {None, each.changefeed}]
    if name is not None and not shown:
        raise ConfigError(f"{where} knows no changefeed {name!r}")
    for each in shown:
        if as_json:
            echo_json(each)
        else:
            echo(words(each))
