"""`tidegate status --state-dir DIR`: the changefeeds into topics, running or not, and what is in their way."""

from pathlib import Path

import click
import msgspec

from tidegate.app.topic_state import statuses, words
from tidegate.model.errors import ConfigError

__all__ = ["status"]


@click.command()
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where `run` keeps checkpoints.",
)
@click.option("-c", "--changefeed-id", "name", help="This changefeed only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def status(*, state_dir: Path, name: str | None, as_json: bool) -> None:
    """Show the state, checkpoint and error of changefeeds from tidb://, also of those that have ended."""
    found = [each for each in statuses(state_dir) if name in {None, each.changefeed}]
    if name is not None and not found:
        raise ConfigError(f"{state_dir} knows no changefeed {name!r}")
    for each in found:
        click.echo(msgspec.json.encode(each).decode() if as_json else words(each))
