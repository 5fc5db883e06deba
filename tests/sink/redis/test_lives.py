"""Feeds that get SIGKILL at each place, and feeds whose tasks are Spark's, leave in Redis what happened."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.failpoint import REDIS_FAILPOINTS
from tests.redis_server import RedisServer, running_redis
from tests.sink.redis.lives import sink_of, story_of
from tests.sink.redis.test_invalidate import wrong
from tests.sink.redis.test_lookups import found, wanted
from tests.sink.redis.test_outages import DURABLE, unlike
from tests.sink.redis.test_stream import as_texts, told
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import ScriptedSource, run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
MODES = ("hash", "json", "lookups", "stream", "invalidate")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that loses nothing when it is killed."""
    with running_redis(tmp_path / "redis", *DURABLE) as server:
        yield server


def right(server: RedisServer, mode: str) -> None:
    """Asserts that Redis has what happened."""
    story = story_of(mode)
    match mode:
        case "stream":
            assert sorted(as_texts(told(server))) == sorted(as_texts(story.events))
        case "lookups":
            assert found(server, table="v") == wanted(story, "v")
        case "invalidate":
            assert wrong(server, story, story.ts) == []
        case _:
            assert not unlike(server, story, mode=mode)


@pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.soak) for mode in MODES[1:])])
def test_kills(server: RedisServer, mode: str) -> None:
    """Processes that get SIGKILL at one place after the other, and the one after them, leave all as it happened."""
    deeds = [f"{place}=kill" for place in REDIS_FAILPOINTS]
    command = [sys.executable, "-m", "tests.sink.redis.lives", str(server.port), mode, *deeds, ""]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, check=True, env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True)

    lines = done.stdout.splitlines()
    assert lines == [f"{-signal.SIGKILL} False"] * len(deeds) + ["0 True"]
    right(server, mode)


@pytest.mark.soak
def test_spark(server: RedisServer, spark: "SparkSession") -> None:
    """Tasks of Spark write what tasks in this process do, in each mode."""
    tasks = SparkTasks(spark)
    for mode in MODES:
        server.client.flushall()
        story = story_of(mode)
        run_here(ScriptedSource(story), sink_of(server.port, mode), until=story.marks[1], tasks=tasks)
        run_here(ScriptedSource(story), sink_of(server.port, mode), until=story.ts, tasks=tasks)
        right(server, mode)
