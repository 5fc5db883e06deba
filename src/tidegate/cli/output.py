"""Output of commands: control characters are escaped and passwords masked as xxxxx.

Names, statements and errors can contain text from anybody who may write to a topic.  Such text must not move the
cursor or imitate a line of Tidegate.  JSON output uses JSON escapes, which its readers decode.
"""

import click

from tidegate.codec.neutral import render
from tidegate.config.uri import mask_text
from tidegate.model.name import printable


def echo(line: str, *, err: bool = False) -> None:
    """Print a line of text, on standard error with `err`."""
    click.echo(printable(mask_text(line)), err=err)


def echo_json(line: object, *, err: bool = False) -> None:
    """Print a value as a line of JSON, on standard error with `err`."""
    click.echo(render(line), err=err)
