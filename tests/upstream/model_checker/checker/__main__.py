"""Run the checker: `python -m tests.upstream.model_checker.checker --write docs/online-schema-change.md`.

no option     every block of the document on standard output
--only TEXT   the shortcuts with TEXT in their name
--write FILE  the blocks of FILE computed anew
"""

from pathlib import Path

import click

from tests.upstream.model_checker.checker.report import BLOCKS, fill, render_trace
from tests.upstream.model_checker.checker.scenario import run
from tests.upstream.model_checker.checker.shortcuts import SHORTCUTS


@click.command(help=__doc__.splitlines()[0])
@click.option("--only", help="Print the shortest counterexamples of the shortcuts with this in their name.")
@click.option("--write", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The document to renew.")
def main(only: str | None, write: Path | None) -> None:
    """Print or write what the checker finds."""
    if only is not None:
        for shortcut in SHORTCUTS:
            if only.lower() in shortcut.name.lower():
                click.echo(f"{shortcut.name}\n{render_trace(shortcut.scenario.operation, run(shortcut.scenario))}\n")
        return
    blocks = {name: block() for name, block in BLOCKS.items()}
    if write is None:
        click.echo("\n\n".join(blocks.values()))
    else:
        write.write_text(fill(write.read_text(encoding="utf-8"), blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
