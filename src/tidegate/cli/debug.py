"""`tidegate debug bundle`: what a report of a fault needs, in one archive without secrets.

    doctor.json                 versions, Java, jars, ports, disk space of this machine
    verify.json                 the last comparisons of `tidegate verify` by this user, without values and keys of rows
    status.json                 with a LAKE or STATE-DIR: its changefeeds and their last reports
    server.json                 with a server: settings, threads, Spark's settings and memory, the end of the log
    captures.json overview.json operations.json metrics.txt
    changefeeds/NAMESPACE.NAME.json    configuration, state, error; with .page.json progress and delays

What cannot be had is an entry of errors.json, so that a bundle of a broken machine has the rest.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

import click
import msgspec

from tidegate.cli.doctor import diagnose
from tidegate.config.uri import location_of, mask_text
from tidegate.model.errors import EnvironmentFault, TidegateError
from tidegate.server.client import connected, connects
from tidegate.verify.last_reports import last_reports

ENTRY_BYTES: Final = 4 << 20
"""A longer entry is cut."""
FEEDS: Final = 200
"""How many changefeeds have an entry of their own: those that do not run well first."""
_OWN: Final = "/api/tidegate/v1"

Read = Callable[[], object]


@click.group()
def debug() -> None:
    """Collect what a report of a fault needs."""


@debug.command()
@click.argument("root", metavar="[LAKE|STATE-DIR]", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The archive to write.")
@connects
def bundle(*, root: str | None, output: Path | None) -> None:
    """Write an archive with versions, settings, changefeeds, states, errors, metrics, threads, Spark and the end of the
    log of a server; or, of LAKE or STATE-DIR, what its changefeeds have reported; and the last comparisons of `tidegate
    verify`. Passwords, keys and tokens are masked."""
    file = output or Path(f"tidegate-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip")
    missing: dict[str, str] = {}
    try:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for name, read in _entries(root, missing):
                try:
                    archive.writestr(name, _text(read())[:ENTRY_BYTES])
                except TidegateError as error:
                    missing[name] = f"{error.code}: {mask_text(str(error))}"
            archive.writestr("errors.json", _text(missing))
    except OSError as error:
        raise EnvironmentFault(f"{file}: {error.strerror}; name another file by --output") from error
    click.echo(f"wrote {file}")
    for name, reason in missing.items():
        click.echo(f"without {name}: {reason}", err=True)


def _text(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, indent=2, ensure_ascii=False).encode()


def _entries(root: str | None, missing: dict[str, str]) -> Iterator[tuple[str, Read]]:
    """Yield the names of entries with what reads them."""
    yield "doctor.json", lambda: [asdict(finding) for finding in diagnose()]
    yield "verify.json", last_reports
    if root is not None:
        from tidegate.config.status import statuses

        yield "status.json", lambda: msgspec.to_builtins(list(statuses(location_of(root, "debug bundle"))))
        return
    client = connected()
    yield "server.json", partial(client.ask, "GET", f"{_OWN}/debug")
    yield "captures.json", partial(client.ask, "GET", "/captures")
    yield "operations.json", partial(client.ask, "GET", f"{_OWN}/operations")
    yield "metrics.txt", partial(client.read, "/metrics")
    try:
        overview = client.ask("GET", f"{_OWN}/overview")
    except TidegateError as error:
        missing["overview.json"] = f"{error.code}: {mask_text(str(error))}"
        return
    yield "overview.json", lambda: overview
    for item in sorted(overview["items"], key=lambda item: item["state"] == "normal")[:FEEDS]:
        feed, path = f"changefeeds/{item['namespace']}.{item['id']}", f"/changefeeds/{item['id']}"
        yield f"{feed}.json", partial(client.ask, "GET", path, namespace=item["namespace"])
        yield f"{feed}.page.json", partial(client.ask, "GET", f"{_OWN}{path}", namespace=item["namespace"])
