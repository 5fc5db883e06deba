"""The command line: `tidegate COMMAND`.

    main ── COMMANDS[name] = (module:attribute, one line of help) ── imported when it is called, not before
         ── UPSTREAM[name] = one line of help ── an entry point "tidegate.commands" of tidegate-upstream, if installed

`tidegate --help` and `decode` start without Spark or Arrow.  A Tidegate error is one line on stderr, as JSON if the
command prints JSON.  Exit status:

    0  done        1  it failed, or verify found a difference        2  wrong usage        130  interrupted
"""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from tidegate.cli.output import echo, echo_json
from tidegate.config.uri import mask_text
from tidegate.model.errors import ConfigError, EnvironmentFault, TidegateError
from tidegate.model.extras import lacking
from tidegate.model.runbook import link

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("tidegate.cli.run:run", "Run a changefeed: any source into any sink."),
    "capture": ("tidegate.cli.capture:capture", "Write the changes of a TiDB cluster into a log for changefeeds."),
    "apply": ("tidegate.cli.apply:apply", "Recover a replica to a consistent timestamp after a disaster."),
    "server": ("tidegate.cli.server:server", "Run many changefeeds, with TiCDC's API and a page."),
    "pack": ("tidegate.cli.pack:pack", "Build an archive of Tidegate for the executors of a cluster."),
    "cli": ("tidegate.server.client:cli", "Manage the changefeeds of a server, as with `cdc cli`."),
    "load": ("tidegate.cli.load:load", "Load tables of a server's changefeed, or cancel that."),
    "status": ("tidegate.cli.status:status", "Show the state, checkpoint and error of changefeeds."),
    "verify": ("tidegate.cli.verify:verify", "Compare a lake, a database or a Redis with its upstream."),
    "lake": ("tidegate.cli.lake:lake", "Read a lake: tables, snapshots, rows."),
    "catalog": ("tidegate.cli.catalog:catalog", "Serve a lake as an Iceberg REST catalog."),
    "sink": ("tidegate.cli.sink:sink", "Manage replicas in databases: resolve refused DDLs, hold a changefeed."),
    "search": ("tidegate.cli.search:search", "Search rows of a table in a full-text index."),
    "table": ("tidegate.cli.table:table", "List and resume parked tables of a lake."),
    "decode": ("tidegate.cli.decode:decode", "Print messages as events, one JSON object a line."),
    "encode": ("tidegate.cli.encode:encode", "Encode events as messages, byte for byte as TiCDC does."),
    "transcode": ("tidegate.cli.transcode:transcode", "Convert messages from one protocol to the other."),
    "mount": ("tidegate.cli.mount:mount", "Print the row events of a recording of keys and values."),
    "ddl": ("tidegate.cli.ddl:ddl", "Print DDL statements as TiCDC sends them."),
    "topic": ("tidegate.cli.topic:topic", "Inspect a Kafka topic."),
    "dlq": ("tidegate.cli.dlq:dlq", "List, replay and skip dead letters."),
    "debug": ("tidegate.cli.debug:debug", "Collect what a report of a fault needs."),
    "doctor": ("tidegate.cli.doctor:doctor", "Check Java, jars and this machine."),
    "tso": ("tidegate.cli.tso:tso", "Convert TSOs to times, and times to TSOs."),
}
UPSTREAM: Final[Mapping[str, str]] = {
    "demo": "Run a database, a broker and a lake, with DDLs, and verify it.",
    "broker": "Start and stop a Kafka broker on this machine.",
    "upstream": "Run a local embedded TiDB.",
}
"""Commands that come with the embedded TiDB."""
FORMER: Final = {"cache": "tidegate.cli.former:cache"}
"""Former commands, which fail with the name of their replacement; not listed in help."""
HELP: Final = {"demo": UPSTREAM["demo"], **{name: line for name, (_, line) in COMMANDS.items()}, **UPSTREAM}
_OF_COMMAND: Final = {
    **dict.fromkeys(("topic", "transcode"), "kafka"),
    "search": "search",
    "capture": "tikv",
    **dict.fromkeys(("server", "catalog"), "spark,server"),
}
"""What brings all that a command needs, where one of its packages comes with other extras as well."""
_STORES: Final = (("obstore.exceptions", "BaseError"), ("deltalake.exceptions", "DeltaError"))
"""Errors of stores, by the modules that have them."""
INTERRUPTED: Final = 130


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and prints Tidegate's errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the table."""
        return list(HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command; None for an unknown name."""
        if cmd_name not in HELP and cmd_name not in FORMER:
            return None
        try:
            command = _load(cmd_name)
        except ModuleNotFoundError as error:
            raise _missing(error, cmd_name) from error
        assert isinstance(command, click.Command), cmd_name
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing it."""
        names = [CompletionItem(name, help=line) for name, line in HELP.items() if name.startswith(incomplete)]
        return names or click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word; the error for an unknown one suggests the nearest name."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in HELP and name not in FORMER:
            import difflib

            close = difflib.get_close_matches(name, HELP, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(HELP.items()))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command line; errors of Tidegate are printed as one line and set the exit status."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words[:1] or os.environ.get("TIDEGATE_DEBUG", "") not in {"", "0"}
        try:
            return super().main(words, *rest, **extra)
        except Exception as error:
            if (fault := _fault(error, words)) is not None:
                _tell(fault, json="--json" in words, debug=debug)
                sys.exit(1)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt sets its own exit status."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _load(name: str) -> object:
    """Return the command. Raises EnvironmentFault for one of the embedded TiDB if that is not installed."""
    if target := FORMER.get(name) or COMMANDS.get(name, ("",))[0]:
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)
    for command in entry_points(group="tidegate.commands", name=name):
        return command.load()
    raise EnvironmentFault(f"command {name!r} comes with the embedded TiDB: pip install 'tidegate[upstream]'")


def _fault(error: Exception, words: Sequence[str]) -> TidegateError | None:
    """What to say of an error: of files, a store or a missing package, what is in the way; None for a bug."""
    if isinstance(error, TidegateError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return _missing(error, next((word for word in words if word in HELP), ""))
    kinds = [getattr(sys.modules.get(module), name, None) for module, name in _STORES]
    if not isinstance(error, (OSError, *filter(None, kinds))):
        return None
    said = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        said = f"{error.filename}: {error.strerror}"
    fault = EnvironmentFault(said)
    fault.__cause__ = error
    return fault


def _missing(error: ModuleNotFoundError, command: str) -> EnvironmentFault:
    """Return the error that names the package to install; a missing module of Tidegate's own is a command that this
    release lacks."""
    name = (error.name or "").partition(".")[0]
    what = f"command {command!r}"
    if name == "tidegate":
        return EnvironmentFault(f"{what} is not included in this release ({error.name} is missing)")
    return EnvironmentFault(lacking(name, what, _OF_COMMAND.get(command, "")))


def _tell(error: TidegateError, *, json: bool, debug: bool) -> None:
    if debug:
        first, *rest = "".join(traceback.format_exception(error)).splitlines()
        for line in (first, *(f"    {line}" for line in rest)):
            echo(line, err=True)
    if json:
        answer = {"code": error.code, "message": mask_text(str(error)), "runbook": link(error.code)}
        echo_json({"error": answer}, err=True)
        return
    where = "" if isinstance(error, ConfigError) else f" (see {link(error.code)})"
    echo(f"error {error.code}: {' '.join(str(error).split())}{where}", err=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tidegate", message="tidegate %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def main(*, debug: bool) -> None:
    """TiCDC for Python and Spark: changes of TiDB, in commit order, into any sink."""
    del debug  # read by LazyGroup.main, which outlives this call
