"""`tidegate sink`: what can be done with a replica in a database.

ddl       list the DDLs that it refused, and say what became of them
hold      let its changefeed stand still, to read it at one ts
"""

import click

from tidegate.cli.former import former_verify
from tidegate.cli.sink.ddl import ddl
from tidegate.cli.sink.hold import hold


@click.group()
def sink() -> None:
    """Look after replicas in databases."""


for command in (ddl, hold, former_verify("sink verify")):
    sink.add_command(command)
