"""`tidegate sink ddl`: DDLs of a changefeed into a database that wait for somebody.

$ tidegate sink ddl mysql://root@replica:3306/
470673814969647104  babdc76a1abed152  refused  shop.carts  RECOVER TABLE `shop`.`carts`
    the target keeps no rows of dropped and truncated tables
$ tidegate sink ddl mysql://root@replica:3306/ --done babdc76a1abed152
"""

from contextlib import closing

import click

from tidegate.cli.sink.session import feed_of, session_of
from tidegate.config.say import say, say_json
from tidegate.sink.sql.ddl.ledger import LedgerDdl, list_ddls, settle


@click.command()
@click.argument("uri", metavar="SINK_URI")
@click.option("-c", "--changefeed", metavar="NAME", help="Which one; needed if several write to the server.")
@click.option("--done", "done_id", metavar="ID", help="This one was done by hand: go on behind it.")
@click.option("--again", "again_id", metavar="ID", help="Run this one again, as if it had not begun.")
@click.option("--all", "every", is_flag=True, help="Those that are done as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def ddl(
    *, uri: str, changefeed: str | None, done_id: str | None, again_id: str | None, every: bool, as_json: bool
) -> None:
    """List the DDLs that the database SINK_URI refused or that were cut off, and say what became of one."""
    if done_id and again_id:
        raise click.UsageError("a DDL is --done or run --again, not both")
    with closing(session_of(uri)) as session:
        feed = feed_of(session, changefeed)
        if wanted := done_id or again_id:
            found = [settle(session, feed, wanted, was_done=bool(done_id))]
        else:
            found = list_ddls(session, feed, every=every)
    for one in found:
        say_json(one._asdict()) if as_json else _show(one)
    if wanted and not as_json:
        say(f"resume changefeed {feed}: it goes on behind this DDL" if done_id else f"resume changefeed {feed}")
    elif not found and not as_json:
        say("no DDL waits")


def _show(one: LedgerDdl) -> None:
    name = ".".join(filter(None, (one.schema, one.table)))
    say(f"{one.ddl_ts}  {one.id}  {one.state}  {name}  {' '.join(one.query.split())[:200]}")
    if one.note and one.state == "refused":
        say(f"    {one.note}")
