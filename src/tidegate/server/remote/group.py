"""`tidegate cli`: its group, the options that every command of it takes, and the small commands.

    tidegate cli changefeed list --server http://127.0.0.1:8300       options may stand after any of the words
    tidegate cli capture list
    tidegate cli tso query
    tidegate cli completion bash

Answers are JSON on stdout, indented by two spaces, as TiCDC's; errors are `Error: [CODE]text` on stderr.  The exit
status is 1 for any error, and for a question that was answered with no.

Source: TiCDC's `cdc cli`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import get_completion_class

from tidegate.config.uri import mask_text
from tidegate.model.errors import ConfigError, InputError, TidegateError
from tidegate.model.name import printable
from tidegate.model.tso import compose
from tidegate.server.remote.client import SERVER, ApiClient, credentials
from tidegate.server.write_token import found_token

Command = TypeVar("Command", bound=Callable[..., Any])
_KEY: Final = "tidegate.connection"


class Aborted(InputError):
    """A question was answered with no."""

    code = "CDC:ErrCliAborted"


class CliGroup(click.Group):
    """A group whose errors read as TiCDC's."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Errors end it with 1, those of its words too."""
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            click.echo(f"Error: [{error.code}]{printable(mask_text(' '.join(str(error).split())))}", err=True)
        except click.UsageError as error:
            error.show()
        sys.exit(1)


def connects(command: Command) -> Command:
    """Add the options of a connection to a command; its client is `connected()`."""
    for words, about in reversed(
        (
            (("--server",), f"The server's address.  [default: {SERVER}]"),
            (("--user",), "Who asks; the password is asked for, if none is given."),
            (("--password",), "The user's password."),
            (("--token-file",), "A file with a bearer token, in place of a user."),
            (("--ca",), "The authority of the server's certificate (PEM)."),
            (("--cert",), "This client's certificate (PEM)."),
            (("--key",), "Its key (PEM)."),
            (("--log-level",), ""),
            (("--pd",), ""),
        )
    ):
        option = click.option(*words, help=about, hidden=not about, expose_value=False, callback=_note)
        command = option(command)
    return command


def _note(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta.setdefault(_KEY, {})[option.name] = value


def connected() -> ApiClient:
    """Return a client of the server that the options name."""
    given: dict[str, str] = click.get_current_context().meta.get(_KEY, {})
    if "pd" in given:
        raise ConfigError("--pd: changefeeds are asked of their server; name it with --server")
    file = given.get("token_file", "")
    try:
        token = Path(file).read_text("utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: {error}") from error
    server = given.get("server", SERVER)
    login = credentials(*(given.get(name, "") for name in ("user", "password", "ca", "cert", "key")))
    return ApiClient(server, login, token if token or login.ticdc_user else found_token(server))


def show(value: object) -> None:
    """Print JSON for people."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def confirm(text: str) -> None:
    """Ask a question. Aborted for any answer but y."""
    click.echo(f"{text} [Y/N]")
    if sys.stdin is None or sys.stdin.readline().strip() not in {"y", "Y"}:
        raise Aborted("aborted: nothing was changed")


def now_ts(client: ApiClient) -> int:
    """Return the timestamp of this moment as the server has it."""
    found = client.ask("POST", "/tso", {})
    return compose(int(found["timestamp"]), int(found["logic_time"]))


@click.group("cli", cls=CliGroup)
@connects
def cli() -> None:
    """Look after the changefeeds of a server, as with TiCDC's `cdc cli`."""


@cli.group()
def capture() -> None:
    """Show the servers that share a store."""


@capture.command("list")
@connects
def list_captures() -> None:
    """List the servers, and which of them owns the changefeeds."""
    found = connected().ask("GET", "/captures")["items"]
    show([{name.replace("_", "-"): value for name, value in item.items()} for item in found])


@cli.group()
def tso() -> None:
    """Ask for timestamps."""


@tso.command()
@connects
def query() -> None:
    """Print the timestamp of this moment."""
    click.echo(now_ts(connected()))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete the words of tidegate: source it from the shell's own file."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "tidegate", "_TIDEGATE_COMPLETE").source())
