"""The Redis server or cluster of a sink: versions, scripts, calls and their errors, and the feed's progress.

A version is a text, because scripts of Redis have no integers above 2^53.  Texts compare as the events happened:

    0470606747354005504.000000001       commit_ts, then the position within it: 29 characters
    position   0: rows that a transaction removes; 1: rows that it puts, so a row removed and put again is there
               2 ..: the DDLs of that ts, by steps, after its rows

A script runs as a whole or not at all.  Writes that are repeated change nothing, so after an error they are sent again.

    write      for each entry: nothing if the key or its tombstone is as new, else the row, or a tombstone
    append     entries behind the last one of a stream; nothing if the server was restarted meanwhile
    take       become the writer: raise the epoch; return the epoch, the revision and what was kept
    advance    keep a checkpoint, if the epoch and the revision are those that this writer left

    KEYS of write     row, tombstone, row, tombstone, ..
    ARGV of write     msgpack [[names of a row's fields, of a look-up's], [[version, fields, kind], ..]]
                      fields nil: the row is deleted; one text in mode json: the object without its first brace
                      kind 0: a row, 1: a look-up
                      milliseconds that tombstones live
                      channel on which changed rows are announced, or nothing
                      bytes, to which numbers among the fields point
    KEYS of append    the stream
    ARGV of append    msgpack [[id, type, table, event], ..], ids ascending; those not above the last id are left out
                      about how many entries the stream keeps; 0: all
                      run ids of the servers, in which entries are accepted

    WRONGPASS, NOAUTH, NOPERM                       LoginRefused   retried: the server's side may be corrected
    certificate, OOM, READONLY, no answer, MOVED    SinkError      retried, with the slots as they are then
    other error replies                             SinkRefused    not retried

Progress is the hash `_tidegate:progress:{FEED}`: epoch (raised by each new writer), revision (how often the checkpoint
was kept), checkpoint and schema as JSON.  A higher epoch means Fenced.  A lower epoch, or a lower revision in the own
epoch, means that Redis lost writes: SinkRefused, and a new run continues from there.  Redis persists and replicates
writes in order, so what survives is a checkpoint that is no newer than the rows.  In a cluster each server loses writes
by itself.

Source: Redis documentation, "Scripting with Lua", "Cluster specification"; redis-py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import SinkPosition
from tidegate.model.errors import ConfigError, EnvironmentFault, Fenced, LoginRefused, SinkError, SinkRefused
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.state import SchemaState
from tidegate.sink.redis_options import PROGRESS, RedisOptions, progress_key

T = TypeVar("T")
FIELD: Final = "_tidegate_version"
"""The field of a row's value that holds its version."""
TS_DIGITS: Final = 19
VERSION_BYTES: Final = 29
PLACE_DIGITS: Final = 9
STEPS: Final = 9_000
"""Steps of one DDL, at most: a table that is renamed takes one, an exchange three."""


def row_versions(commit_ts: Any, put: Any) -> list[str]:
    """Return the versions of row changes; `commit_ts` is an Arrow array, `put` marks those that put a row."""
    texts = pc.utf8_lpad(commit_ts.cast(pa.string()), TS_DIGITS, "0")
    versions: list[str] = pc.binary_join_element_wise(
        texts, pc.if_else(put, pa.scalar(f"{1:0{PLACE_DIGITS}d}"), pa.scalar(f"{0:0{PLACE_DIGITS}d}")), "."
    ).to_pylist()
    return versions


def ddl_version(commit_ts: int, number: int, step: int) -> str:
    """Return the version of a step of a DDL, the `number`th (from 0) of its ts."""
    assert 0 <= step < STEPS, step
    return f"{commit_ts:0{TS_DIGITS}d}.{2 + number * STEPS + step:0{PLACE_DIGITS}d}"


_FRAME: Final = """
local fields_of, entries = unpack(cmsgpack.unpack(ARGV[1]))
local written = 0
for at, entry in ipairs(entries) do
  local key, tombstone = KEYS[2 * at - 1], KEYS[2 * at]
  local version, fields, names = entry[1], entry[2], fields_of[entry[3] + 1]
  local have = HAVE
  local gone = redis.call('GET', tombstone)
  if not (have and have >= version) and not (gone and gone >= version) then
    if fields then
      PUT
      if gone then redis.call('DEL', tombstone) end
    else
      redis.call('UNLINK', key)
      redis.call('SET', tombstone, version, 'PX', ARGV[2])
    end
    if ARGV[3] ~= '' and entry[3] == 0 then
      redis.call('PUBLISH', ARGV[3], cjson.encode({key = key, version = version, gone = not fields}))
    end
    written = written + 1
  end
end
return written
"""
_HASH_HAVE: Final = f"""nil
  if redis.call('TYPE', key).ok == 'hash' then have = redis.call('HGET', key, '{FIELD}') end"""
_HASH_PUT: Final = f"""redis.call('UNLINK', key)
      local values = {{key, '{FIELD}', version}}
      for place, name in ipairs(names) do
        local value = fields[place]
        if value then
          if type(value) == 'number' then value = ARGV[value] end
          values[#values + 1] = name
          values[#values + 1] = value
        end
        if #values > 2000 then
          redis.call('HSET', unpack(values))
          values = {{key}}
        end
      end
      if #values > 1 then redis.call('HSET', unpack(values)) end"""
OPENING: Final = f'{{"{FIELD}":"'
_JSON_HAVE: Final = f"""nil
  if redis.call('TYPE', key).ok == 'string' then
    have = redis.call('GETRANGE', key, 0, {len(OPENING) + VERSION_BYTES - 1})
    have = string.sub(have, 1, {len(OPENING)}) == '{OPENING}' and string.sub(have, {len(OPENING) + 1})
  end"""
_JSON_PUT: Final = f"""redis.call('SET', key, '{OPENING}' .. version .. '",' .. fields[1])"""
WRITE: Final = {
    "hash": _FRAME.replace("HAVE", _HASH_HAVE).replace("PUT", _HASH_PUT),
    "json": _FRAME.replace("HAVE", _JSON_HAVE).replace("PUT", _JSON_PUT),
}
"""By mode."""
APPEND: Final = """
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = false
for at = 3, #ARGV do known = known or ARGV[at] == run_id end
if not known then return redis.error_reply('RESTARTED this server began anew, or another took over') end
local function above(id, other)
  local ts, seq = string.match(id, '(%d+)-(%d+)')
  local its, nth = string.match(other, '(%d+)-(%d+)')
  if ts == its then ts, its = seq, nth end
  if #ts ~= #its then return #ts > #its end
  return ts > its
end
local last = '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then last = info[at + 1] end
  end
end
local added = 0
for _, entry in ipairs(cmsgpack.unpack(ARGV[1])) do
  if above(entry[1], last) then
    local words = {KEYS[1], entry[1], 'type', entry[2], 'table', entry[3], 'event', entry[4]}
    if ARGV[2] ~= '0' then
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], unpack(words, 2))
    else
      redis.call('XADD', unpack(words))
    end
    added = added + 1
  end
end
return added
"""
TAKE: Final = """
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return redis.call('HMGET', KEYS[1], 'epoch', 'revision', 'checkpoint', 'schema')
"""
ADVANCE: Final = """
local epoch, revision = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'revision'))
if (epoch or '0') ~= ARGV[1] or (revision or '0') ~= ARGV[2] then
  return {epoch or '0', revision or '0'}
end
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[3])
if ARGV[4] then redis.call('HSET', KEYS[1], 'schema', ARGV[4]) end
return {}
"""


@contextmanager
def writing() -> Iterator[None]:
    """Mark what writes a batch of rows."""
    failpoint("redis/before-write")
    yield
    failpoint("redis/after-write")


def amid_ddl() -> None:
    """Mark that some keys of a DDL's tables are moved, and others not."""
    failpoint("redis/amid-ddl")


SCAN_KEYS: Final = 1000
"""The number of keys that a server examines for one answer of SCAN."""
_MOVED: Final = ("MovedError", "AskError", "ClusterDownError", "TryAgainError", "SlotNotCoveredError", "ClusterError")
_LATER: Final = (*_MOVED, "BusyLoadingError", "ReadOnlyError", "OutOfMemoryError", "MasterDownError")
_LATER_WORDS: Final = (
    *("OOM", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED", "RESTARTED"),
)
_LOGIN: Final = (
    "AuthenticationError",
    "AuthorizationError",
    "NoPermissionError",
    "AuthenticationWrongNumberOfArgsError",
)
_ADVICE: Final = (
    ("OOM", "; its memory is full: raise maxmemory, or replicate fewer tables"),
    ("READONLY", "; it is a replica: use the address of the primary"),
    ("MISCONF", "; it cannot save to its disk"),
)


class ScriptCall(NamedTuple):
    """One run of a script; its keys lie in one slot."""

    script: str
    keys: Sequence[bytes]
    arguments: Sequence[object]


def driver() -> Any:
    """Return redis-py. EnvironmentFault where it is not installed."""
    try:
        import redis
    except ImportError as missing:
        raise EnvironmentFault("a Redis sink needs redis-py: pip install 'tidegate[redis]'") from missing
    return redis


def sink_error(error: Exception, options: RedisOptions) -> SinkError:
    """Return the sink's error for an error of the driver."""
    name, text = type(error).__name__, str(error)
    advice = next((more for word, more in _ADVICE if text.startswith(word)), "")
    if name in _LOGIN or text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        return LoginRefused(
            f"{options.address}: {text}; check user and password of the address; '@', ':' and '/' of a password are "
            "written %40, %3A and %2F"
        )
    is_reply = isinstance(error, driver().ResponseError)
    later = not is_reply or name in _LATER or text.startswith(_LATER_WORDS)
    return (SinkError if later else SinkRefused)(f"{options.address}: {text}{advice}")


class RedisServers:
    """Connections to the servers; `is_cluster` as the first one says."""

    def __init__(self, options: RedisOptions) -> None:
        self.options = options
        redis = driver()
        self._settings: dict[str, Any] = {
            "username": options.user or None,
            "password": options.password or None,
            "socket_timeout": options.timeout_s,
            "socket_connect_timeout": options.timeout_s,
            "retry": None,
        }
        if options.tls:
            for path in filter(None, (options.ssl_ca, options.ssl_cert, options.ssl_key)):
                if not Path(path).is_file():
                    raise ConfigError(f"{options.address}: TLS file {path} does not exist")
            self._settings |= {
                "ssl": True,
                "ssl_ca_certs": options.ssl_ca or None,
                "ssl_certfile": options.ssl_cert or None,
                "ssl_keyfile": options.ssl_key or None,
            }
        self._cluster: Any = None
        self._client: Any = None
        with self._errors():
            self._client = self._answering(redis)
            if self._client.info("cluster").get("cluster_enabled"):
                if options.database:
                    raise ConfigError(f"{options.address}: a cluster has no databases; remove /{options.database}")
                nodes = [redis.cluster.ClusterNode(host, port) for host, port in options.hosts]
                self._cluster = redis.cluster.RedisCluster(startup_nodes=nodes, **self._settings)

    @property
    def is_cluster(self) -> bool:
        return self._cluster is not None

    def _answering(self, redis: Any) -> Any:
        """The first of the addresses that answers."""
        failed: list[Exception] = []
        for host, port in self.options.hosts:
            client = redis.Redis(host=host, port=port, db=self.options.database, **self._settings)
            try:
                client.ping()
            except (redis.RedisError, OSError) as error:
                failed.append(error)
                continue
            return client
        raise failed[0]

    def close(self) -> None:
        for client in (self._cluster, self._client):
            if client is not None:
                client.close()

    def call(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts, those of one server in one packet; return their answers in the order of `calls`."""
        return self._answers([call.keys[0] for call in calls], calls, self._send)

    def read(self, keys: Sequence[bytes], ask: Callable[[Any, bytes], object]) -> list[Any]:
        """Return the answer of `ask` (a command on a pipeline) for each key."""

        def send(client: Any, keys: Sequence[bytes]) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for key in keys:
                ask(pipeline, key)
            return list(pipeline.execute())

        return self._answers(keys, keys, send)

    def _answers(
        self, keys: Sequence[bytes], requests: Sequence[T], send: Callable[[Any, Sequence[T]], list[Any]]
    ) -> list[Any]:
        """Send each of the requests to the server of its key; return the answers in their order."""
        answers: list[Any] = [None] * len(keys)
        with self._errors():
            for client, indexes in self._by_server(keys):
                for index, answer in zip(indexes, send(client, [requests[index] for index in indexes]), strict=True):
                    answers[index] = answer
        return answers

    def scan(self, pattern: bytes) -> Iterator[list[bytes]]:
        """Return, in pages, all keys that match a pattern and exist during the whole scan; keys may be repeated."""
        for client in self._servers():
            cursor = 0
            while True:
                with self._errors():
                    cursor, keys = client.scan(cursor, pattern, SCAN_KEYS)
                if keys:
                    yield list(keys)
                if not cursor:
                    break

    def run_ids(self) -> Mapping[str, str]:
        """Return the run id of each server: a restarted server has another one."""
        with self._errors():
            infos = [(client.connection_pool.connection_kwargs, client.info("server")) for client in self._servers()]
        return {f"{server.get('host')}:{server.get('port')}": str(info["run_id"]) for server, info in infos}

    def slots_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return the slots of keys; one call takes keys of one slot."""
        if not self.is_cluster:
            return [0] * len(keys)
        from redis.crc import key_slot

        return [key_slot(key) for key in keys]

    def _servers(self) -> list[Any]:
        if self._cluster is None:
            return [self._client]
        return [self._cluster.get_redis_connection(node) for node in self._cluster.get_primaries()]

    def _by_server(self, keys: Sequence[bytes]) -> Iterator[tuple[Any, list[int]]]:
        """The clients of keys, each with the indexes of its keys."""
        if self._cluster is None:
            yield self._client, list(range(len(keys)))
            return
        indexes: dict[str, list[int]] = {}
        nodes = {}
        for index, slot in enumerate(self.slots_of(keys)):
            node = self._cluster.nodes_manager.get_node_from_slot(slot)
            nodes[node.name] = node
            indexes.setdefault(node.name, []).append(index)
        for name, mine in indexes.items():
            yield self._cluster.get_redis_connection(nodes[name]), mine

    def _send(self, client: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        redis = driver()
        for _ in range(2):
            pipeline = client.pipeline(transaction=False)
            for script, keys, arguments in calls:
                digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
                pipeline.evalsha(digest, len(keys), *keys, *arguments)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
            unknown = any(isinstance(answer, redis.exceptions.NoScriptError) for answer in answers)
            if not unknown:
                break
            for script in {call.script for call in calls}:
                client.script_load(script)
        failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if failed is not None:
            raise failed
        return answers

    @contextmanager
    def _errors(self) -> Iterator[None]:
        redis = driver()
        try:
            yield
        except redis.RedisError as error:
            if type(error).__name__ in _MOVED and self._cluster is not None:
                self._cluster.nodes_manager.initialize()
            raise sink_error(error, self.options) from error
        except OSError as error:
            raise sink_error(error, self.options) from error


def feeds_of(servers: RedisServers) -> dict[str, SinkPosition]:
    """Return the position of each feed whose progress a Redis has, by name."""
    return _positions(servers, sorted({key for keys in servers.scan(PROGRESS + b"*") for key in keys}))


def _positions(servers: RedisServers, keys: Sequence[bytes]) -> dict[str, SinkPosition]:
    answers = servers.read(keys, lambda pipeline, key: pipeline.hmget(key, ("checkpoint", "schema")))
    return {
        key.removeprefix(PROGRESS + b"{").removesuffix(b"}").decode(): _position(key, checkpoint, schema)
        for key, (checkpoint, schema) in zip(keys, answers, strict=True)
        if checkpoint is not None
    }


def _position(key: bytes, checkpoint: bytes, schema: bytes) -> SinkPosition:
    try:
        decoded = decode_state(StateKind.REDIS, checkpoint, Checkpoint, f"key {key.decode()}")
    except msgspec.DecodeError as error:
        raise SinkRefused(f"{key.decode()} has the progress of another release: {error}") from error
    return SinkPosition(decoded, SchemaState.from_json(schema))


class RedisProgress:
    """The progress of one feed, as its driver moves it."""

    def __init__(self, feed: str) -> None:
        self._key = progress_key(feed)
        self._epoch = self._revision = 0
        self._stored_schema: SchemaState | None = None

    def take(self, servers: RedisServers) -> SinkPosition:
        """Become the writer of the feed; return its position. Raises StateTooNew or SinkRefused for progress that
        cannot be read; the writer is then the previous one."""
        _positions(servers, [self._key])
        ((epoch, revision, checkpoint, schema),) = servers.call([ScriptCall(TAKE, [self._key], [])])
        self._epoch, self._revision = int(epoch), int(revision or 0)
        if checkpoint is None:
            return SinkPosition(Checkpoint(), SchemaState(), is_new=True)
        position = _position(self._key, checkpoint, schema)
        self._stored_schema = position.state
        return position

    def check(self, servers: RedisServers) -> None:
        """Raise Fenced if another writer began, SinkRefused if Redis lost this writer's progress."""
        (answer,) = servers.read([self._key], lambda pipeline, key: pipeline.hmget(key, ("epoch", "revision")))
        self._compare(answer)

    def advance(self, servers: RedisServers, position: SinkPosition) -> None:
        """Make `position` the checkpoint. Raises the errors of `check`."""
        state: list[Any] = [encode_state(StateKind.REDIS, position.checkpoint)]
        if position.state is not self._stored_schema:
            state.append(position.state.to_json())
        for _ in range(2):
            call = ScriptCall(ADVANCE, [self._key], [self._epoch, self._revision, *state])
            (answer,) = servers.call([call])
            if not answer:
                break
            self._compare(answer)  # a higher revision is that of a try whose answer did not come
        self._revision, self._stored_schema = self._revision + 1, position.state

    def _compare(self, answer: Any) -> None:
        epoch, revision = (int(value or 0) for value in answer)
        if epoch > self._epoch:
            raise Fenced("another run of this changefeed has taken over")
        if (epoch, revision) < (self._epoch, self._revision):
            raise SinkRefused(
                "Redis lost acknowledged writes, after a crash or a failover to a replica; start the changefeed "
                "again: it continues from the checkpoint that Redis still has"
            )
        self._revision = revision
