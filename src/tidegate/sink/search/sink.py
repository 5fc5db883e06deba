"""The sink of a search index: every row a document that is found by its words, and never older than its last change.

    recover   become the writer: whoever wrote before is shut out
    run       each table in a task of its own: the last change of each key, in bulks (task.py)
    ddl       where rows or mapping change, the next index is filled from the last one, in tasks (catalog.py)
    advance   checkpoint and indexes are published in one step; then the aliases of readers move, and old indexes go

Guarantee: each row exactly as its last change left it.  What comes again, or late, changes nothing: OpenSearch compares
versions (server.py), the embedded index keeps how far it is in the commit of its rows (embedded.py).  Readers search
by alias, so that an index is complete when they first see it.  Transactions do not stay whole.

Progress lies beside the indexes.  A DDL cuts all tables (barrier ALL).

Tables without a key are left out, with one warning: their rows have no names.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.engine.change import PlacedDdl
from tidegate.engine.plan import Barrier, Checkpoint, Round, Unit, refusal, row_steps, zone_warning
from tidegate.engine.ports import Changes, Most, Rhythm, Sink, Standing, Tasks, Written
from tidegate.model.errors import InputError, SchemaError, SinkRefused, TidegateError
from tidegate.model.event import UNTOLD, ToldSession
from tidegate.model.left_out import LeftOut, without_key
from tidegate.model.name import qualified
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import reach
from tidegate.schema.effects import TableAltered
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.search.catalog import Filling, Follower, Indexes
from tidegate.sink.search.mapping import IndexRule
from tidegate.sink.search.names import alias_of, index_name
from tidegate.sink.search.store import PublishedIndexes, SearchStore
from tidegate.sink.search.task import FillJob, IndexJob, fill_index, write_table

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the sink is asked to do: `prefix` begins the names that readers search."""

    rules: tuple[IndexRule, ...] = ()
    prefix: str = ""
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""


class SearchSink(Sink[Written]):
    """Writes to a store; `held` keeps another run of the feed on this machine out."""

    barrier = Barrier.ALL
    rhythm = Rhythm(most=Most(rows=200_000, size_bytes=128 << 20), idle_s=5.0)

    def __init__(
        self,
        store: SearchStore,
        options: SearchOptions = SearchOptions(),
        *,
        held: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.store, self.options = store, options
        self._held = held
        self._epoch = self._made = 0
        self._checkpoint = Checkpoint()
        self._state = SchemaState()
        self._indexes: Indexes = {}
        self._schema: tuple[SchemaState | None, str] = (None, "")
        self._tasks: Tasks | None = None
        self._ddls: list[int] = []
        self._said: set[str] = set()
        self._bare: set[TableName] = set()

    def held(self) -> AbstractContextManager[None]:
        """Keep another run on this machine out; others are fenced."""
        return self._held()

    def recover(self) -> Standing:
        """Become the writer of the feed; return where it stands."""
        found = self.store.take()
        self._epoch, self._indexes = found.epoch, found.by_table
        return found.standing

    def open(self, standing: Standing) -> None:
        """Take notice of where the first round begins."""
        self._checkpoint, self._state = standing.checkpoint, standing.state

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Written]:
        """Write the rows of the units; return when their indexes have them."""
        self._tasks, self._ddls = tasks, []
        self.store.check(self._epoch)
        steps = row_steps(units)
        keyed = [step for step in steps if step.table.handle_key]
        self._state = self._state.with_unknown(step.table for step in steps)
        self._bare |= {step.table.name for step in steps if not step.table.handle_key}
        follower = self._follower(self._checkpoint.ts, "rows")
        for step in keyed:
            self._fill(follower.ensure(step.table), self._checkpoint.ts, UNTOLD)
        self._indexes = follower.indexes
        jobs = [IndexJob(changes, step, self.store, self._indexes[step.table.name.key], self._epoch) for step in keyed]
        return tasks.run(write_table, jobs) if jobs else []

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables without a key whose rows came."""
        return without_key(map(self._state.table, self._bare))

    def ddl(self, placed: PlacedDdl) -> None:
        """Do one DDL; done again, it begins anew."""
        ddl = placed.ddl
        ts = ddl.commit_ts or 0
        number = (len(self._checkpoint.done) if self._checkpoint.ts == ts else 0) + self._ddls.count(ts)
        try:
            self.store.check(self._epoch)
            after, found = apply_ddl(self._state, ddl, number + 1)
            follower = self._follower(ts, str(number), ddl.told)
            self._fill(follower.follow(found), ts, ddl.told)
        except (InputError, SchemaError) as error:
            refused = SinkRefused(f"DDL {ddl.query[:500]!r} cannot be followed: {error}").at(**_place(placed))
            raise refusal(refused, ddl, placed.place) from error
        except TidegateError as error:
            raise error.at(**_place(placed)) from None
        if warning := zone_warning(ddl, found):
            self._say(warning)
        for effect in found:
            if isinstance(effect, TableAltered) and effect.new.handle_key and not effect.old.handle_key:
                self._say(f"table {effect.new.name} has a key now: the rows that it had come when they change")
        reach("search/ddl-done")
        self._state, self._indexes = after, follower.indexes
        self._ddls.append(ts)

    def advance(self, planned: Round, results: Sequence[Written]) -> Standing:  # noqa: ARG002  the indexes have them
        """Publish the round's end. Fenced where another writer began."""
        standing = Standing(planned.checkpoint, planned.state)
        reach("search/before-advance")
        if planned.state is not self._schema[0]:
            self._schema = planned.state, planned.state.to_json().decode()
        indexes = tuple(self._indexes.values())
        self.store.keep(PublishedIndexes(self._epoch, planned.checkpoint, self._schema[1], indexes))
        self._checkpoint, self._state, self._ddls = planned.checkpoint, planned.state, []
        return standing

    def close(self) -> None:
        """Let go of connections."""
        self.store.close()

    def _follower(self, ts: int, place: str, session: ToldSession = UNTOLD) -> Follower:
        def name(table: TableInfo) -> str:
            self._made += 1
            alias = alias_of(table.name, self.options.prefix)
            return index_name(alias, f"{ts}.{place}.{self._made}", self._epoch)

        zone = self.options.time_zone
        return Follower(self._indexes, self.options.rules, name, time_zone=zone, commit_ts=ts, session=session)

    def _fill(self, fillings: Iterable[Filling], ts: int, session: ToldSession) -> None:
        for filling in fillings:
            self.store.create(filling.made, self._epoch)
            if not filling.parts:
                continue
            assert self._tasks is not None, "a DDL comes behind the rows of its round"
            for part in filling.parts:
                self.store.settle(part.index)
            shares = self.store.shares(self._tasks.slots)
            job = FillJob(filling, self.store, self._epoch, self.options.time_zone, ts, session, shares=shares)
            jobs = [replace(job, share=share) for share in range(shares)]
            self._tasks.run(fill_index, jobs)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning("%s", text)


def _place(placed: PlacedDdl) -> dict[str, Any]:
    ddl = placed.ddl
    return {"table": qualified(ddl.schema, ddl.table) if ddl.table else ddl.schema, "commit_ts": ddl.commit_ts or 0}
