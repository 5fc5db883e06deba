"""DDLs that wait for somebody: refused by the target, or begun by a changefeed that has stopped since.

refused ──┬── the user does it by hand ──► done        the changefeed goes on behind it
planned ──┤
running ──┴── again                     ──► no row      the changefeed runs it as if for the first time
"""

from typing import NamedTuple

from tidegate.expr.syntax.tokens import quote_names
from tidegate.model.errors import ConfigError
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.ddl.ledger import values_of


def _has_ledger(session: TargetSession) -> bool:
    return bool(session.ask(sent.HAS_TABLE, values=(sent.DATABASE, "ddl_history")))


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
    if not _has_ledger(session):
        return []
    rows = session.ask(sent.DDLS if every else sent.WAITING_DDLS, values=(feed,))
    return [LedgerDdl(int(row[0]), *row[1:]) for row in rows]


def has_ahead(session: TargetSession, feed: str, ts: int) -> bool:
    """Return whether tables may be ahead of a feed at `ts`: a DDL was begun above it, or waits for somebody."""
    if not _has_ledger(session):
        return False
    return bool(session.ask(sent.HAS_AHEAD, values=(feed, ts)))


def last_ran(session: TargetSession, feed: str) -> int:
    """Return the ts of the last DDL of a feed that was run, or begun at least; 0 if none was."""
    if not _has_ledger(session):
        return 0
    ((found,),) = session.ask(sent.LAST_RAN, values=(feed,))
    return int(found or 0)


def settle(session: TargetSession, feed: str, ddl_id: str, *, was_done: bool) -> LedgerDdl:
    """Note that a DDL that waits was done by hand, or let it be run again; return it. ConfigError where none waits."""
    waiting = [one for one in ddls_of(session, feed) if one.id == ddl_id]
    if not waiting:
        raise ConfigError(f"no DDL {ddl_id} of changefeed {feed} waits in {session.options.place}")
    found = waiting[-1]
    if was_done:
        values = values_of(feed, found.ddl_ts, found.id)
        session.ask(sent.DROP_VALUES.format(values=quote_names(values.schema, values.table)))
    session.changed(sent.SETTLE_DONE if was_done else sent.SETTLE_AGAIN, feed, found.ddl_ts, found.id)
    return found
