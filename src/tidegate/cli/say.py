"""Lines for people: what a terminal would obey stands as an escape in them, and a password as xxxxx.

Names, statements and errors hold texts of whoever may write to a topic; one of them must neither move the cursor nor
make a line that looks like ours.  In JSON they stand as escapes that its readers take back.
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
