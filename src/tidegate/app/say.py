"""Lines for people: what a terminal would obey stands as an escape in them, and a password as xxxxx.

Names, statements and errors hold texts of whoever may write to a topic; one of them must neither move the cursor nor
make a line that looks like ours.  JSON has escapes of its own.
"""

import click

from tidegate.app.config.uri import mask_text
from tidegate.model.name import printable


def say(line: str, *, err: bool = False) -> None:
    """Print a line of text, on standard error with `err`."""
    click.echo(printable(mask_text(line)), err=err)
