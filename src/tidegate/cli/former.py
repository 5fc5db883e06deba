"""Renamed commands: they fail and print the new command.

$ tidegate sink verify mysql://root@replica:3306/ --upstream tidb://root@tidb:4000/
Error: `tidegate sink verify` is now: tidegate verify mysql://root@replica:3306/ --upstream tidb://root@tidb:4000/
"""

import shlex
from collections.abc import Iterable

import click

from tidegate.config.uri import mask_text


def renamed(former: str, words: Iterable[str]) -> str:
    """Return the command that replaces a former one, with passwords masked."""
    from tidegate.config import registry  # noqa: F401  it declares the parameters that are shown

    return f"`tidegate {former}` is now: tidegate verify {' '.join(map(shlex.quote, map(mask_text, words)))}"


def former_verify(former: str) -> click.Command:
    """Return the hidden command `former`, which fails with a usage error that names its replacement."""

    @click.command("verify", hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def command(ctx: click.Context, *, words: tuple[str, ...]) -> None:
        raise click.UsageError(renamed(former, [word.replace("--source-uri", "--upstream", 1) for word in words]), ctx)

    return command


cache = click.Group("cache", commands=[former_verify("cache verify")], help="Replaced by `tidegate verify`.")
