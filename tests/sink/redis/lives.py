"""Lives of a feed into a Redis, each in a process of its own that SIGKILL may end: `python -m .. PORT MODE DEED ..`.

Each begins with what happened first, as if Redis had lost the progress, and amid all that the one before has left.
Prints how it ended, and whether it came to the end of what happened.
"""

import os
import sys

import redis

from tests.sink.redis.test_lookups import moved
from tidegate.objectstore import failpoint
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, run_here


def story_of(mode: str) -> Script:
    """What happens: the shop, or rows whose unique values move."""
    return moved(4, ("RENAME TABLE shop.u TO shop.v",)) if mode == "lookups" else stories.shop()


def sink_of(port: int, mode: str) -> RedisSink:
    """A sink of that mode: hash with look-ups, too."""
    kept = "hash" if mode == "lookups" else mode
    more = {"stream": "changes", "invalidated": "row:{table}:{id}", "lookups": mode == "lookups"}
    return RedisSink(RedisOptions("feed", (("127.0.0.1", port),), mode=kept, batch_rows=2, **more))  # type: ignore[arg-type]


def life(port: int, mode: str, deed: str) -> None:
    """Run the feed to its end, or to the place where it is killed."""
    failpoint.arm(failpoint.parse_failpoints(deed))
    story = story_of(mode)
    client = redis.Redis(port=port)
    client.delete("_tidegate:progress:{feed}")
    client.set("row:orders:7", "cached by an application")
    run_here(ScriptedSource(story), sink_of(port, mode), until=story.ts)


if __name__ == "__main__":
    PORT, MODE = int(sys.argv[1]), sys.argv[2]
    for word in sys.argv[3:]:
        child = os.fork()
        if child == 0:
            life(PORT, MODE, word)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        upto = sink_of(PORT, MODE).recover().checkpoint.ts
        print(status, upto == story_of(MODE).ts)  # noqa: T201
