"""DDLs that wait for somebody: refused by the target, or begun by a changefeed that has stopped since.

refused ──┬── the user does it by hand ──► done        the changefeed goes on behind it
planned ──┤
running ──┴── again                     ──► no row      the changefeed runs it as if for the first time
"""

from typing import Final, NamedTuple

from tidegate.model.errors import ConfigError
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.ddl.ledger import LEDGER_TABLE

_HAS_LEDGER: Final = "SELECT 1 FROM information_schema.tables WHERE table_name = 'ddl_history'"


class LedgerDdl(NamedTuple):
    """A DDL as the ledger has it; `note` says why it was refused."""

    ddl_ts: int
    id: str
    state: str
    schema: str
    table: str
    query: str
    note: str


def ddls_of(session: TargetSession, feed: str, *, every: bool = False) -> list[LedgerDdl]:
    """Return the DDLs of a feed that wait, by ts; with `every` all that its ledger has."""
    if not session.ask(_HAS_LEDGER):
        return []
    some = "" if every else " AND state NOT IN ('done', 'skipped')"
    columns = "ddl_ts, id, state, schema_name, table_name, query, note"
    rows = session.ask(
        f"SELECT {columns} FROM {LEDGER_TABLE} WHERE feed = %s{some} ORDER BY ddl_ts, id", values=(feed,)
    )
    return [LedgerDdl(int(row[0]), *row[1:]) for row in rows]


def has_ahead(session: TargetSession, feed: str, ts: int) -> bool:
    """Return whether tables may be ahead of a feed at `ts`: a DDL was begun above it, or waits for somebody."""
    if not session.ask(_HAS_LEDGER):
        return False
    some = "(ddl_ts > %s OR state NOT IN ('done', 'skipped'))"
    return bool(session.ask(f"SELECT 1 FROM {LEDGER_TABLE} WHERE feed = %s AND {some} LIMIT 1", values=(feed, ts)))


def last_ran(session: TargetSession, feed: str) -> int:
    """Return the ts of the last DDL of a feed that was run, or begun at least; 0 if none was."""
    if not session.ask(_HAS_LEDGER):
        return 0
    where = "WHERE feed = %s AND state IN ('running', 'done')"
    ((found,),) = session.ask(f"SELECT MAX(ddl_ts) FROM {LEDGER_TABLE} {where}", values=(feed,))
    return int(found or 0)


def settle(session: TargetSession, feed: str, ddl_id: str, *, was_done: bool) -> LedgerDdl:
    """Note that a DDL that waits was done by hand, or let it be run again; return it. ConfigError where none waits."""
    waiting = [one for one in ddls_of(session, feed) if one.id == ddl_id]
    if not waiting:
        raise ConfigError(f"no DDL {ddl_id} of changefeed {feed} waits in {session.options.place}")
    found = waiting[-1]
    what = f"UPDATE {LEDGER_TABLE} SET state = 'done'" if was_done else f"DELETE FROM {LEDGER_TABLE}"
    session.changed(f"{what} WHERE feed = %s AND ddl_ts = %s AND id = %s", feed, found.ddl_ts, found.id)
    return found
