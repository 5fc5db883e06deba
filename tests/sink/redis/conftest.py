"""A Redis for each file of this folder that asks for one."""

from collections.abc import Iterator

import pytest

from tests.redis_server import RedisServer, running_redis


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for the cases of a file."""
    with running_redis(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def server(redis: RedisServer) -> RedisServer:
    """The server, emptied."""
    redis.client.flushall()
    return redis
