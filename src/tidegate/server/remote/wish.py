"""What `create` and `update` are told of a changefeed: flags, and a changefeed file as `tidegate run` takes it.

--config FILE ──► its tree, unknown keys refused ──► replica_config in the words of the API
--sink-uri, --source-uri, --schema-registry      win over the file
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from tidegate.config.document import read_document
from tidegate.config.uri import told
from tidegate.server.replica_config import parse, spelled

Command = TypeVar("Command", bound=Callable[..., Any])
_IDLE: Final = ("--tz", "--sort-engine", "--sort-dir", "--upstream-pd", "--upstream-ca", "--upstream-cert",
                "--upstream-key")  # fmt: skip
"""Hidden flags of TiCDC, which have no effect."""


class Wish(NamedTuple):
    """The body of a request, as far as flags and file say it, and the name that the file has."""

    body: dict[str, Any]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WishOptions:
    """The flags, as given."""

    sink_uri: str
    source_uri: str
    config: Path | None
    target_ts: int
    schema_registry: str

    @staticmethod
    def added(command: Command) -> Command:
        """Add the flags to a command."""
        file = click.Path(dir_okay=False, path_type=Path)
        for option in (
            click.option("--sink-uri", default="", help="Where to write; @FILE and env:NAME keep it out of sight."),
            click.option("--source-uri", default="", help="Where to read.  [default: the server's own upstream]"),
            click.option("--config", type=file, help="A changefeed file."),
            click.option("--target-ts", type=int, default=0, help="Where it ends.  [default: never]"),
            click.option("--schema-registry", default="", help="Address of a schema registry."),
            *(click.option(name, hidden=True, expose_value=False) for name in _IDLE),
        ):
            command = option(command)
        return command


def read_wish(options: WishOptions) -> Wish:
    """Return what the flags and the file ask for. ConfigError for a file that cannot be read, or has other keys."""
    tree = dict(read_document(options.config).tree)
    name, sink, source = str(tree.pop("changefeed-id", "")), str(tree.pop("sink-uri", "")), dict(tree.pop("source", {}))
    upstream = str(source.pop("uri", ""))
    tree |= {"source": source} if source else {}
    if options.schema_registry:
        tree["sink"] = {**tree.get("sink", {}), "schema-registry": options.schema_registry}
    config = spelled(tree)
    parse(config)  # a duration that is none, told before the server is asked
    body = {
        "sink_uri": told(options.sink_uri or sink, "sink-uri"),
        "source_uri": told(options.source_uri or upstream, "source-uri"),
        "target_ts": options.target_ts,
        "replica_config": config,
    }
    return Wish(body, name)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the values of another one in place of its own; lists are replaced whole."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        merged[name] = laid_over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
