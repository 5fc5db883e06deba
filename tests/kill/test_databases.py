"""A real feed into a real MariaDB on a cluster of two executors: somebody dies at every named place.

    recorded shop as a change log ──► `tidegate run`, in as many lives as it takes ──► MariaDB, which dies as well

Places of rows and DDLs, in the soak all of them, are armed, each once; whichever is reached first pauses, and its
victim gets SIGKILL.  Who dies where and at which time follows from the seed.
"""

from itertools import cycle
from pathlib import Path

import pytest

from tests.counts import some
from tests.e2e.rig import Running
from tests.failpoint import DDL_FAILPOINTS, SQL_FAILPOINTS, VALUE_FAILPOINTS
from tests.kill.conftest import MOMENT
from tests.kill.seeds import chance
from tests.kill.test_cluster import ON_CLUSTER
from tests.kill.victims import Victim, driver, executor, group, jvm, lives, worker
from tests.mariadb import Server, connected, needed
from tests.replay.test_database import recorded, truths, unlike
from tidegate_upstream.demo.replica import MariaDb

pytestmark = pytest.mark.slow

FAILPOINTS = (*SQL_FAILPOINTS, *DDL_FAILPOINTS, *VALUE_FAILPOINTS)
ARMED = some(2, len(FAILPOINTS))
NOTED = "ddl/noted"
ONCE = {"sql/laid-out", NOTED, *VALUE_FAILPOINTS}
"""Places that a feed passes once: its tables stay as they are, and the recording has one DDL, a key on an expression
behind the 10th moment, that a MariaDB leaves out whole, and one before it whose values a MariaDB would compute."""


def test_every_place_of_a_database(tmp_path: Path) -> None:
    """Driver, JVM, worker, executor, all of them, or the server: whoever dies wherever, all rows and DDLs arrive once,
    tables without a key among them."""
    needed()
    recorded(tmp_path / "segments")
    server, by_chance = MariaDb(tmp_path), chance("every place of a database")
    server.start()

    def target(_run: Running, _pausing: int) -> None:
        """The database, which comes back at once."""
        server.kill()
        server.start()

    victims: list[Victim] = [driver, jvm, group, worker, executor, target]
    spread = cycle(by_chance.sample(victims, len(victims)))
    plan = {place: next(spread) for place in by_chance.sample(FAILPOINTS, ARMED)}
    truth = truths()[10 if NOTED in plan else MOMENT - 1]
    deeds = [f"{place}=pause@{1 if place in ONCE else by_chance.randint(1, 3)}" for place in plan]
    sink = f"mysql://root@127.0.0.1:{server.port}/?transaction-atomicity={by_chance.choice(['none', 'global'])}"
    words = ["run", "--source-uri", f"tidb://{tmp_path / 'segments'}", "--sink-uri", sink, "-c", "kill"]
    words += ["--state-dir", str(tmp_path / "state"), "--until", str(truth["ts"])]
    try:
        deaths = lives(words, ON_CLUSTER, tmp_path, plan, deeds)
        connection = connected(server.port)
        wrong = list(unlike(Server(server.port, connection), truth))
        connection.close()
    finally:
        server.stop()
    assert not wrong, deaths
    assert {death.partition(" at ")[2] for death in deaths} == set(plan), deaths
