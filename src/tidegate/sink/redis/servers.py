"""The servers of a Redis, one or a cluster's: how they are reached, what is sent at once, and whose errors those are.

    call      scripts by their digest, each with keys of one slot, all of a server in one packet
    values    what keys hold
    scan      the keys of a pattern, server by server

    what a server or the driver says         error          try again
    WRONGPASS, NOAUTH, NOPERM                LoginRefused   later: the other side may put it right
    a certificate that does not fit          SinkError      later
    OOM, READONLY, LOADING, no answer, ..    SinkError      later
    MOVED, ASK, CLUSTERDOWN                  SinkError      later, by the places that slots have then
    other replies of errors                  SinkRefused    no

Scripts change nothing when they come twice, so whatever went wrong is simply sent again.

Source: Redis documentation, "Scripting with Lua", "Cluster specification"; redis-py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidegate.model.errors import ConfigError, EnvironmentFault, LoginRefused, SinkError, SinkRefused
from tidegate.sink.redis.options import RedisOptions

SCAN_KEYS: Final = 1000
"""How many keys a server looks at for one answer of SCAN."""
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
    ("OOM", "; its memory is full: raise maxmemory, or let the changefeed carry fewer tables"),
    ("READONLY", "; it is a replica, address the primary"),
    ("MISCONF", "; it cannot save to its disk"),
)


class ScriptCall(NamedTuple):
    """One run of a script; its keys lie in one slot."""

    script: str
    keys: Sequence[bytes]
    given: Sequence[object]


def driver() -> Any:
    """Return redis-py. EnvironmentFault where it is not installed."""
    try:
        import redis
    except ImportError as missing:
        raise EnvironmentFault("a Redis is written with redis-py: pip install 'tidegate[redis]'") from missing
    return redis


def sink_error(error: Exception, options: RedisOptions) -> SinkError:
    """Return the error of ours for one of the driver's."""
    name, text = type(error).__name__, str(error)
    advice = next((more for word, more in _ADVICE if text.startswith(word)), "")
    if name in _LOGIN or text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        return LoginRefused(
            f"{options.place}: {text}; check user and password of the address; '@', ':' and '/' of a password are "
            "written %40, %3A and %2F"
        )
    is_reply = isinstance(error, driver().ResponseError)
    later = not is_reply or name in _LATER or text.startswith(_LATER_WORDS)
    return (SinkError if later else SinkRefused)(f"{options.place}: {text}{advice}")


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
                    raise ConfigError(f"{options.place}: there is no file {path}, which its TLS asks for")
            self._settings |= {
                "ssl": True,
                "ssl_ca_certs": options.ssl_ca or None,
                "ssl_certfile": options.ssl_cert or None,
                "ssl_keyfile": options.ssl_key or None,
            }
        self._cluster: Any = None
        self._one: Any = None
        with self._told():
            self._one = self._answering(redis)
            if self._one.info("cluster").get("cluster_enabled"):
                if options.database:
                    raise ConfigError(f"{options.place}: a cluster has no databases; leave /{options.database} out")
                nodes = [redis.cluster.ClusterNode(host, port) for host, port in options.hosts]
                self._cluster = redis.cluster.RedisCluster(startup_nodes=nodes, **self._settings)

    @property
    def is_cluster(self) -> bool:
        """Whether keys lie on several servers, by their slots."""
        return self._cluster is not None

    def _answering(self, redis: Any) -> Any:
        """The first of the addresses that answers."""
        failed: list[Exception] = []
        for host, port in self.options.hosts:
            one = redis.Redis(host=host, port=port, db=self.options.database, **self._settings)
            try:
                one.ping()
            except (redis.RedisError, OSError) as error:
                failed.append(error)
                continue
            return one
        raise failed[0]

    def close(self) -> None:
        """Let go of connections."""
        for client in (self._cluster, self._one):
            if client is not None:
                client.close()

    def call(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts, those of one server in one packet; return their answers in the order of `calls`."""
        answers: list[Any] = [None] * len(calls)
        with self._told():
            for client, places in self._by_server([one.keys[0] for one in calls]):
                mine = [calls[place] for place in places]
                for place, answer in zip(places, self._send(client, mine), strict=True):
                    answers[place] = answer
        return answers

    def read(self, keys: Sequence[bytes], ask: Callable[[Any, bytes], object]) -> list[Any]:
        """Return what `ask` (a command on a pipeline) answers for each key."""
        answers: list[Any] = [None] * len(keys)
        with self._told():
            for client, places in self._by_server(keys):
                pipeline = client.pipeline(transaction=False)
                for place in places:
                    ask(pipeline, keys[place])
                for place, answer in zip(places, pipeline.execute(), strict=True):
                    answers[place] = answer
        return answers

    def scan(self, pattern: bytes) -> Iterator[list[bytes]]:
        """Return the keys that fit a pattern and are there from begin to end, some at a time; others may come twice."""
        for client in self._servers():
            cursor = 0
            while True:
                with self._told():
                    cursor, found = client.scan(cursor, pattern, SCAN_KEYS)
                if found:
                    yield list(found)
                if not cursor:
                    break

    def run_ids(self) -> Mapping[str, str]:
        """Return what tells a run of each server from the one before."""
        with self._told():
            told = [(client.connection_pool.connection_kwargs, client.info("server")) for client in self._servers()]
        return {f"{at.get('host')}:{at.get('port')}": str(info["run_id"]) for at, info in told}

    def slots_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return which keys one call may have together: those of one number."""
        if not self.is_cluster:
            return [0] * len(keys)
        from redis.crc import key_slot

        return [key_slot(key) for key in keys]

    def _servers(self) -> list[Any]:
        if self._cluster is None:
            return [self._one]
        return [self._cluster.get_redis_connection(node) for node in self._cluster.get_primaries()]

    def _by_server(self, keys: Sequence[bytes]) -> Iterator[tuple[Any, list[int]]]:
        """The clients of keys, each with the places of its keys."""
        if self._cluster is None:
            yield self._one, list(range(len(keys)))
            return
        places: dict[str, list[int]] = {}
        nodes = {}
        for place, slot in enumerate(self.slots_of(keys)):
            node = self._cluster.nodes_manager.get_node_from_slot(slot)
            nodes[node.name] = node
            places.setdefault(node.name, []).append(place)
        for name, mine in places.items():
            yield self._cluster.get_redis_connection(nodes[name]), mine

    def _send(self, client: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        redis = driver()
        for _ in range(2):
            pipeline = client.pipeline(transaction=False)
            for script, keys, given in calls:
                pipeline.evalsha(_digest(script), len(keys), *keys, *given)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
            unknown = any(isinstance(answer, redis.exceptions.NoScriptError) for answer in answers)
            if not unknown:
                break
            for script in {one.script for one in calls}:
                client.script_load(script)
        failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if failed is not None:
            raise failed
        return answers

    @contextmanager
    def _told(self) -> Iterator[None]:
        redis = driver()
        try:
            yield
        except redis.RedisError as error:
            if type(error).__name__ in _MOVED and self._cluster is not None:
                self._cluster.nodes_manager.initialize()
            raise sink_error(error, self.options) from error
        except OSError as error:
            raise sink_error(error, self.options) from error


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()
