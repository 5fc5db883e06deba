"""`tidegate lake`: what a lake holds."""

import click
import msgspec

from tidegate.model.tso import to_datetime

__all__ = ["lake"]


@click.group()
def lake() -> None:
    """Look into a lake."""


@lake.command()
@click.argument("root", metavar="LAKE")
@click.option("--at", default="latest", show_default=True, help="A TSO: the newest snapshot not above it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(*, root: str, at: str, as_json: bool) -> None:
    """List the tables of LAKE with their directories, Delta versions and keys."""
    from tidegate.app.lake import Lake

    found = Lake(root, at if at == "latest" else int(at))
    rows = []
    for name in found.tables():
        place, version = found.place(name)
        definition = found.definition(name)
        rows.append({"table": name, "path": place, "version": version, "key": ", ".join(definition.handle_key)})
    if as_json:
        click.echo(msgspec.json.encode({"checkpoint_ts": found.checkpoint_ts, "tables": rows}).decode())
        return
    click.echo(f"checkpoint {found.checkpoint_ts} ({to_datetime(found.checkpoint_ts):%Y-%m-%d %H:%M:%S.%f} UTC)")
    for row in rows:
        click.echo(f"{row['table']}  key ({row['key']})  version {row['version']}  {row['path']}")
