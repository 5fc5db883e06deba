"""The sink of a Redis: a cache of rows that is never older than what it has confirmed.

    recover   become the writer: raise the epoch of the feed's progress (progress.py)
    run       by the mode: each table, or each stream, in a task of its own
    ddl       by the mode
    advance   the checkpoint, once Redis is still the one that got the round

    mode          rows                                             DDLs
    hash, json    the last change of each key (task.py)            keys are moved, written anew, taken away (ddl.py)
    invalidate    what was made of them is dropped (invalidate.py) so are all keys of their tables
    stream        an entry each (stream.py)                        an entry

Guarantee: each row exactly as its last change left it.  A key has the version of what it holds, and a script that
looks at it: whatever is not newer changes nothing.  So repeats, tries whose answer was lost and writers that should
be gone change nothing, as long as tombstones live (`tombstone-ttl`).  Transactions do not stay whole.

Progress lives in Redis.  A server that lost its last writes has an older checkpoint with them, and the next run goes
on from there; one that restarts amid a round gets that round again.  A DDL cuts all tables (barrier ALL).

Tables without a key are left out, with one warning: their rows have no names.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.engine.change import PlacedDdl
from tidegate.engine.plan import Barrier, Checkpoint, Round, Unit, refusal, row_steps, zone_warning
from tidegate.engine.ports import Changes, Most, Rhythm, Sink, Standing, Tasks, Written
from tidegate.model.errors import ConfigError, InputError, SchemaError, SinkError, SinkRefused, TidegateError
from tidegate.model.event import Ddl
from tidegate.model.left_out import LeftOut, without_key
from tidegate.model.name import qualified
from tidegate.model.table import TableName
from tidegate.objectstore.failpoint import reach
from tidegate.schema.effects import Effect, TableAltered
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.redis.invalidate import Invalidation
from tidegate.sink.redis.options import RedisOptions
from tidegate.sink.redis.progress import RedisProgress
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.stream import ChangeStreams
from tidegate.sink.redis.task import KeptRows
from tidegate.sink.redis.work import DdlWork

LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Round:
    """What has been done since the checkpoint, to be done again where a server lost it; `state` is the schema before
    it, `run_ids` are those of the servers then."""

    state: SchemaState
    run_ids: Mapping[str, str]
    work: Callable[[Mapping[str, str]], Sequence[Written]]
    ddls: list[PlacedDdl] = field(default_factory=list)


class RedisSink(Sink[Written]):
    """Writes to the servers of `options`; `held` keeps another run of the feed on this machine out."""

    barrier = Barrier.ALL
    rhythm = Rhythm(most=Most(rows=200_000, size_bytes=128 << 20), idle_s=5.0)

    def __init__(
        self, options: RedisOptions, *, held: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self.options = options
        self._held = held
        self._mode = _mode_of(options)
        self._progress = RedisProgress(options.feed)
        self._servers: RedisServers | None = None
        self._checkpoint = Checkpoint()
        self._state = SchemaState()
        self._round: _Round | None = None
        self._is_new = False
        self._said: set[str] = set()
        self._bare: set[TableName] = set()

    def held(self) -> AbstractContextManager[None]:
        """Keep another run on this machine out; others are fenced."""
        return self._held()

    def recover(self) -> Standing:
        """Become the writer of the feed; return where it stands."""
        with self._connected() as servers:
            standing = self._progress.take(servers)
        self._is_new = standing.is_new
        return standing

    def open(self, standing: Standing) -> None:
        """Take notice of where the first round begins. ConfigError for templates of a new feed that fit no table."""
        try:
            self._mode.check(list(standing.state.tables.values()))
        except ConfigError as error:
            if self._is_new:
                raise
            LOGGER.warning("%s; keys of this template are not dropped", error)
        self._checkpoint, self._state = standing.checkpoint, standing.state

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Written]:
        """Write the rows of the units; return when Redis has them."""
        steps = row_steps(units)
        self._state = self._state.with_unknown(step.table for step in steps)
        if self._mode.needs_key:
            self._bare |= {step.table.name for step in steps if not step.table.handle_key}
        if self._mode.needs_key:
            steps = [step for step in steps if step.table.handle_key]

        def work(run_ids: Mapping[str, str]) -> Sequence[Written]:
            return self._mode.run(tasks, changes, steps, run_ids) if steps else []

        with self._connected() as servers:
            self._round = _Round(self._state, servers.run_ids(), work)
            self._progress.check(servers)
        return work(self._round.run_ids)

    def ddl(self, placed: PlacedDdl) -> None:
        """Do one DDL; done again, it does what is left."""
        begun = self._round
        assert begun is not None, "a DDL comes behind the rows of its round"
        try:
            with self._connected() as servers:
                now = servers.run_ids()
                self._progress.check(servers)
            if now != begun.run_ids:
                self._again(begun, now)
            self._do(placed, begun.ddls, now)
        except TidegateError as error:
            raise error.at(**_place(placed)) from None
        begun.ddls.append(placed)

    def _do(self, placed: PlacedDdl, earlier: Sequence[PlacedDdl], run_ids: Mapping[str, str]) -> None:
        """Do a DDL behind those of its round that are done."""
        ddl = placed.ddl
        ts = ddl.commit_ts or 0
        number = len(self._checkpoint.done) if self._checkpoint.ts == ts else 0
        number += sum(one.ddl.commit_ts == ts for one in earlier)
        try:
            after, found = self._effects(ddl, number)
            with self._connected() as servers:
                self._mode.ddl(servers, DdlWork(ddl, found, ts, number, run_ids))
        except (InputError, SchemaError) as error:
            refused = SinkRefused(f"DDL {ddl.query[:500]!r} cannot be followed: {error}")
            raise refusal(refused, ddl, placed.place) from error
        if self._mode.needs_key:
            self._warn_of(found)
            if warning := zone_warning(ddl, found):
                self._say(warning)
        reach("redis/ddl-done")
        self._state = after

    def advance(self, planned: Round, results: Sequence[Written]) -> Standing:  # noqa: ARG002  Redis has their rows
        """Make the round's end the checkpoint. Fenced where another writer began, SinkRefused where Redis lost what it
        had confirmed."""
        standing = Standing(planned.checkpoint, planned.state)
        reach("redis/before-advance")
        with self._connected() as servers:
            while self._round is not None and (now := servers.run_ids()) != self._round.run_ids:
                self._progress.check(servers)
                self._again(self._round, now)
            self._progress.advance(servers, standing)
        self._checkpoint, self._state, self._round = planned.checkpoint, planned.state, None
        return standing

    def close(self) -> None:
        """Let go of the driver's connections."""
        if self._servers is not None:
            self._servers.close()
            self._servers = None

    def _effects(self, ddl: Ddl, number: int) -> tuple[SchemaState, Sequence[Effect]]:
        """The schema behind a DDL, and what it did. InputError, SchemaError where the mode has to know it."""
        try:
            return apply_ddl(self._state, ddl, number + 1)
        except (InputError, SchemaError):
            if self._mode.follows:
                raise
            return self._state, ()

    def _again(self, begun: _Round, run_ids: Mapping[str, str]) -> None:
        """Do a round again whose writes a server may have lost."""
        LOGGER.warning("%s was restarted: the rows since the last checkpoint are written again", self.options.place)
        self._state = begun.state
        begun.work(run_ids)
        for number, placed in enumerate(begun.ddls):
            self._do(placed, begun.ddls[:number], run_ids)
        begun.run_ids = run_ids

    def check(self) -> bool:
        """Ask each server for its name."""
        with self._connected() as servers:
            servers.run_ids()
        return True

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables without a key whose rows came."""
        return without_key(map(self._state.table, self._bare))

    def _warn_of(self, found: Sequence[Effect]) -> None:
        for effect in found:
            if isinstance(effect, TableAltered) and effect.new.handle_key and not effect.old.handle_key:
                self._say(f"table {effect.new.name} has a key now: the rows that it had come when they change")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning("%s", text)

    @contextmanager
    def _connected(self) -> Iterator[RedisServers]:
        """The driver's connections; after an error the next call makes new ones."""
        if self._servers is None:
            self._servers = RedisServers(self.options)
        try:
            yield self._servers
        except SinkError:
            self.close()
            raise


def _mode_of(options: RedisOptions) -> KeptRows | Invalidation | ChangeStreams:
    match options.mode:
        case "invalidate":
            return Invalidation(options)
        case "stream":
            return ChangeStreams(options)
        case _:
            return KeptRows(options)


def _place(placed: PlacedDdl) -> dict[str, Any]:
    ddl = placed.ddl
    return {"table": qualified(ddl.schema, ddl.table) if ddl.table else ddl.schema, "commit_ts": ddl.commit_ts or 0}
