"""The ledger of DDLs: a permanent row per DDL of a feed, in the target itself.

    planned ──► running ──► done          skipped: nothing to run     refused: not possible in the target, see `note`
       └ shape of the tables           └ connection id

    refused ──┬── the user does it manually ──► done       the changefeed continues after it
    planned ──┤
    running ──┴── again                     ──► no row     the changefeed runs it as if for the first time

Every write is a transaction that ends with the writer's fence: a writer with an outdated epoch commits nothing.  A
refused DDL that changed nothing is planned anew by the next run, from the current shape of the tables.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import msgspec

from tidegate.expr.tokens import quote_names
from tidegate.model.errors import ConfigError, Fenced
from tidegate.model.event import Ddl
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import DdlConnection, TargetSession
from tidegate.sink.sql.ddl_shape import WAS, Facts

Fence = Callable[[DdlConnection], None]
"""Given a session inside a transaction: raises Fenced if the writer's epoch is over; else the epoch stays until the
transaction ends."""


@dataclass(frozen=True, slots=True)
class DdlWriter:
    """The writer of a ledger: a feed and its epoch, which `fence` checks inside each transaction of the ledger."""

    feed: str
    epoch: int
    fence: Fence


@dataclass(frozen=True, slots=True)
class DdlRecord:
    """A row of the ledger; `note` is what makes the mark of a statement that was planned, or why none is run. `was` are
    the columns of tables that schema/ does not know, before the statement."""

    state: str
    executed: str = ""
    connection_id: int = 0
    facts: Facts = field(default=frozenset())
    note: str = ""
    was: Facts = field(default=frozenset())


class DdlLedger:
    """The rows of one feed."""

    def __init__(self, writer: DdlWriter) -> None:
        self.writer = writer

    def create(self, session: DdlConnection) -> None:
        """Make the table where it is not there."""
        session.ask(sent.CREATE_DATABASE)
        session.ask(sent.CREATE_LEDGER)

    def read(self, session: DdlConnection, ddl: Ddl) -> DdlRecord | None:
        """Return the row of a DDL; None if there is none."""
        rows = session.ask(sent.DDL, (self.writer.feed, ddl.commit_ts or 0, ddl_id_of(ddl)))
        if not rows:
            return None
        row = rows[0]
        kept = msgspec.json.decode(row[3], type=list[tuple[str, ...]]) if row[3] else []
        was = frozenset(fact for fact in kept if fact[0] == WAS)
        return DdlRecord(row[0], row[1], int(row[2]), frozenset(kept) - was, row[4], was)

    def made_database(self, session: DdlConnection, schema: str) -> bool:
        """Return True if a DDL of the feed created a database, so that the charset of its tables is the upstream's."""
        return bool(session.ask(sent.MADE_DATABASE, (self.writer.feed, lowered(schema))))

    def write(self, session: DdlConnection, ddl: Ddl, record: DdlRecord) -> None:
        """Replace the row of a DDL, under the fence. Raises the fence's errors."""
        facts = record.facts | record.was
        kept = msgspec.json.encode(sorted(facts)).decode() if facts else ""
        columns = (ddl.schema, ddl.table, ddl.query, record.executed, record.connection_id, kept, record.note[:16_000])
        row = (self.writer.feed, ddl.commit_ts or 0, ddl_id_of(ddl), record.state, self.writer.epoch, *columns)
        with session.transaction():
            self.writer.fence(session)
            session.ask(sent.PUT_DDL, row)


def fence_by_progress(feed: str, epoch: int) -> "Fence":
    """Return the fence of a writer whose epoch is in the row of its checkpoint, shard -1 of `tidegate.progress`."""

    def fence(session: DdlConnection) -> None:
        rows = session.ask(sent.EPOCH, (feed.encode(),))
        if not rows or int(rows[0][0]) != epoch:
            raise Fenced("another run of this changefeed has taken over")

    return fence


def ddl_id_of(ddl: Ddl) -> str:
    """Return a digest that distinguishes DDLs of one ts."""
    return sha256(f"{ddl.schema}\x1f{ddl.table}\x1f{ddl.query}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def values_table(feed: str, ddl_ts: int, ddl_id: str) -> TableName:
    """Return the table in which the values of a DDL are kept (ddl_values.py)."""
    return TableName(sent.DATABASE, f"ddl_values_{sha256(f'{feed}:{ddl_ts}:{ddl_id}'.encode()).hexdigest()[:16]}")


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


def list_ddls(session: TargetSession, feed: str, *, every: bool = False) -> list[LedgerDdl]:
    """Return the DDLs of a feed that wait, by ts; with `every` all that its ledger has."""
    if not _has_ledger(session):
        return []
    rows = session.ask(sent.DDLS if every else sent.WAITING_DDLS, values=(feed,))
    return [LedgerDdl(int(row[0]), *row[1:]) for row in rows]


def has_ddl_above(session: TargetSession, feed: str, ts: int) -> bool:
    """Return True if tables may be ahead of a feed at `ts`: a DDL was begun above it, or waits for a decision."""
    if not _has_ledger(session):
        return False
    return bool(session.ask(sent.HAS_AHEAD, values=(feed, ts)))


def last_ddl_ts(session: TargetSession, feed: str) -> int:
    """Return the ts of the last DDL of a feed that was run, or begun at least; 0 if none was."""
    if not _has_ledger(session):
        return 0
    ((ts,),) = session.ask(sent.LAST_RAN, values=(feed,))
    return int(ts or 0)


def settle(session: TargetSession, feed: str, ddl_id: str, *, was_done: bool) -> LedgerDdl:
    """Record that a waiting DDL was done manually, or let it run again; return it. ConfigError where none waits."""
    waiting = [row for row in list_ddls(session, feed) if row.id == ddl_id]
    if not waiting:
        raise ConfigError(f"no DDL {ddl_id} of changefeed {feed} is waiting in {session.options.address}")
    record = waiting[-1]
    if was_done:
        values = values_table(feed, record.ddl_ts, record.id)
        session.ask(sent.DROP_VALUES.format(values=quote_names(values.schema, values.table)))
    session.changed(sent.SETTLE_DONE if was_done else sent.SETTLE_AGAIN, feed, record.ddl_ts, record.id)
    return record
