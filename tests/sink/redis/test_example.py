"""The example that reads rows, look-ups and streams of a Redis."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import RedisServer, running_redis
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[3] / "examples" / "redis_reader.py"


def users() -> Script:
    """Two users, one of whom gets another address; a third one goes."""
    story = Script()
    story.ddl("shop.users", "CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR(20) UNIQUE, age INT)")
    story.commit(
        *(put("shop.users", id=at, mail=f"{name}@x", age=None) for at, name in enumerate(("ann", "bob", "cy")))
    )
    story.commit(put("shop.users", id=1, mail="rob@x", age=41), remove("shop.users", id=2))
    story.resolve()
    return story


def told(server: RedisServer, *words: str) -> list[str]:
    """What the example prints of the table."""
    command = [sys.executable, str(EXAMPLE), f"127.0.0.1:{server.port}", "shop", "users", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def test_the_example(tmp_path: Path) -> None:
    """It finds a row by its key and by a unique column, as the last change left it, and gives a group each change once,
    one that was not taken again."""
    story = users()
    with running_redis(tmp_path / "redis") as server:
        at = (("127.0.0.1", server.port),)
        for feed, more in (("rows", {"mode": "hash", "lookups": True}), ("changes", {"mode": "stream"})):
            run_here(ScriptedSource(story), RedisSink(RedisOptions(feed, at, **more)), until=story.ts)  # type: ignore[arg-type]
        rob = str({"id": "1", "mail": "rob@x", "age": "41"})
        assert told(server, "1") == told(server, "mail=rob@x") == [rob]
        assert told(server, "0") == [str({"id": "0", "mail": "ann@x"})]
        assert told(server, "2") == told(server, "mail=bob@x") == ["None"]
        server.client.xgroup_create("changes:shop:users", "billing", id="0")
        ((_, given),) = server.client.xreadgroup("billing", "one", {"changes:shop:users": ">"}, count=2)
        assert len(given) == 2
        lines = told(server, "--group", "billing")
        assert [line.split()[0] for line in lines] == ["ddl", *["insert"] * 3, "update", "delete"]
        assert json.loads(lines[4].partition(" ")[2])["commit_ts"] == story.rows(story.ts)[3].commit_ts
        assert told(server, "--group", "billing") == []
        assert len(told(server, "--group", "audit")) == len(lines)
