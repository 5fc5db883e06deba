"""A real feed into a real Redis on a cluster of two executors: somebody dies at every named place.

    recorded shop as a change log ──► `tidegate run`, in as many lives as it takes ──► Redis, which dies as well

All places are armed, each once; whichever is reached first pauses, and its victim gets SIGKILL.  Who dies where and at
which time follows from the seed.
"""

from itertools import cycle
from pathlib import Path

import pytest

from tests.e2e.rig import Running
from tests.failpoint import REDIS_FAILPOINTS
from tests.kill.conftest import MOMENT
from tests.kill.seeds import chance
from tests.kill.test_cluster import ON_CLUSTER
from tests.kill.victims import Victim, driver, executor, group, jvm, lives, worker
from tests.redis_server import running_redis
from tests.replay.test_database import WORKLOAD, recorded, truths
from tests.sink.redis.test_outages import DURABLE
from tests.verify.test_cache import differing, said

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.limit(900)
@pytest.mark.parametrize("mode", ["hash", "json"])
def test_every_place_of_a_redis(tmp_path: Path, mode: str) -> None:
    """Driver, JVM, worker, executor, all of them, or the server: whoever dies wherever, each key has its row."""
    recorded(tmp_path / "segments")
    by_chance = chance(f"every place of a Redis {mode}")
    with running_redis(tmp_path / "redis", *DURABLE) as server:

        def target(_run: Running, _pausing: int) -> None:
            """The Redis, which comes back at once."""
            server.kill()
            server.start()

        victims: list[Victim] = [driver, jvm, group, worker, executor, target]
        spread = cycle(by_chance.sample(victims, len(victims)))
        plan = {place: next(spread) for place in by_chance.sample([*REDIS_FAILPOINTS], len(REDIS_FAILPOINTS))}
        deeds = [f"{place}=pause@{by_chance.randint(1, 3)}" for place in plan]
        sink = f"redis://127.0.0.1:{server.port}/?mode={mode}&batch-rows=16"
        words = ["run", "--source-uri", f"tidb://{tmp_path / 'segments'}", "--sink-uri", sink, "-c", "kill"]
        words += ["--state-dir", str(tmp_path / "state"), "--until", str(truths()[MOMENT - 1]["ts"])]
        deaths = lives(words, ON_CLUSTER, tmp_path, plan, deeds)
        status, told, error = said(server, str(WORKLOAD), query=f"?mode={mode}")

    assert (status, differing(told), error) == (0, {}, ""), deaths
    assert {death.partition(" at ")[2] for death in deaths} == set(plan), deaths
