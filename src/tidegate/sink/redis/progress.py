"""Where a feed stands in its Redis: one hash, `_tidegate:progress:{FEED}`.

    epoch        who writes: raised by each writer that begins
    revision     how often the checkpoint was kept
    checkpoint   as JSON
    schema       the tables there, as JSON; written when it changes

    found by a writer              epoch         revision
    what it left                   its own       its own          goes on
    another writer began           higher        any              Fenced
    Redis lost what it had         lower, or its own and a lower revision    SinkRefused: a new run takes it from there

Redis writes to its disk in the order in which it does things, and replicas get them in that order.  So one that lost
its last writes, after a crash or when a replica took over, has the checkpoint of the rows that it has, or an older
one, and the feed goes on from there.  In a cluster each server loses what it loses by itself.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Standing
from tidegate.model.errors import Fenced, SinkRefused
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.schema.state import SchemaState
from tidegate.sink.redis.keys import PROGRESS, progress_key
from tidegate.sink.redis.scripts import ADVANCE, TAKE
from tidegate.sink.redis.servers import RedisServers, ScriptCall

_FIELDS: Final = ("epoch", "revision")


def feeds_of(servers: RedisServers) -> dict[str, Standing]:
    """Return where each feed stands that a Redis has progress of, by its name."""
    return _standings(servers, sorted({key for keys in servers.scan(PROGRESS + b"*") for key in keys}))


def _standings(servers: RedisServers, keys: Sequence[bytes]) -> dict[str, Standing]:
    held = servers.read(keys, lambda pipeline, key: pipeline.hmget(key, ("checkpoint", "schema")))
    return {
        key.removeprefix(PROGRESS + b"{").removesuffix(b"}").decode(): _standing(key, checkpoint, schema)
        for key, (checkpoint, schema) in zip(keys, held, strict=True)
        if checkpoint is not None
    }


def _standing(key: bytes, checkpoint: bytes, schema: bytes) -> Standing:
    try:
        found = decode_state(StateKind.REDIS, checkpoint, Checkpoint, f"key {key.decode()}")
    except msgspec.DecodeError as error:
        raise SinkRefused(f"{key.decode()} holds another release's progress: {error}") from error
    return Standing(found, SchemaState.from_json(schema))


class RedisProgress:
    """The progress of one feed, as its driver moves it."""

    def __init__(self, feed: str) -> None:
        self._key = progress_key(feed)
        self._epoch = self._revision = 0
        self._known: SchemaState | None = None

    def take(self, servers: RedisServers) -> Standing:
        """Become the writer of the feed; return where it stands. StateTooNew, SinkRefused for what nobody reads; the
        writer is then the one before."""
        _standings(servers, [self._key])
        ((epoch, revision, checkpoint, schema),) = servers.call([ScriptCall(TAKE, [self._key], [])])
        self._epoch, self._revision = int(epoch), int(revision or 0)
        if checkpoint is None:
            return Standing(Checkpoint(), SchemaState(), is_new=True)
        standing = _standing(self._key, checkpoint, schema)
        self._known = standing.state
        return standing

    def check(self, servers: RedisServers) -> None:
        """Raise Fenced where another writer began, SinkRefused where Redis lost what this one had kept."""
        (found,) = servers.read([self._key], lambda pipeline, key: pipeline.hmget(key, _FIELDS))
        self._compare(found)

    def advance(self, servers: RedisServers, standing: Standing) -> None:
        """Make `standing` the checkpoint. Raises what `check` does."""
        given: list[Any] = [encode_state(StateKind.REDIS, standing.checkpoint)]
        if standing.state is not self._known:
            given.append(standing.state.to_json())
        for _ in range(2):
            call = ScriptCall(ADVANCE, [self._key], [self._epoch, self._revision, *given])
            (found,) = servers.call([call])
            if not found:
                break
            self._compare(found)  # a higher revision is that of a try whose answer did not come
        self._revision, self._known = self._revision + 1, standing.state

    def _compare(self, found: Any) -> None:
        epoch, revision = (int(value or 0) for value in found)
        if epoch > self._epoch:
            raise Fenced("another run of this changefeed has taken over")
        if (epoch, revision) < (self._epoch, self._revision):
            raise SinkRefused(
                "Redis lost what it had confirmed, after a crash or when a replica took over; start the changefeed "
                "again: it goes on from the checkpoint that Redis still has"
            )
        self._revision = revision
