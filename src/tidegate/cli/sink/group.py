"""`tidegate sink`: what can be done with a replica in a database.

ddl       list the DDLs that it refused, and say what became of them
hold      let its changefeed stand still, to read it at one ts
verify    compare it with its upstream, a lake or a recording, at one ts, while both go on
"""

import click

from tidegate.cli.sink.ddl import ddl
from tidegate.cli.sink.hold import hold
from tidegate.cli.sink.verify import verify


@click.group()
def sink() -> None:
    """Look after replicas in databases."""


for command in (ddl, hold, verify):
    sink.add_command(command)
