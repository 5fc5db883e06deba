"""A real `tidegate run --load-from` that dies in its load and is started again: equal to the upstream at S and at the
end.

    embedded TiDB ──► load, killed before its plan is kept, behind that, amid its rows ──► whole at S?
                  ──► DROP, TRUNCATE, RENAME, EXCHANGE, new columns ──► log ──► equal?
"""

from pathlib import Path

import pytest

from tests.e2e.rig import TIDEGATE, cli
from tests.kill.victims import driver, group, lives
from tests.mariadb import needed
from tests.source.load.kit import Loaded
from tidegate.config.status import statuses
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream
from tidegate_upstream.demo.replica import MariaDb

pytestmark = pytest.mark.slow

RANGES = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (100), PARTITION q VALUES LESS THAN (1000))"
TABLES = (
    "CREATE DATABASE held",
    "CREATE TABLE held.t (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE held.pairs (a VARCHAR(9) COLLATE utf8mb4_general_ci, b BIGINT UNSIGNED, PRIMARY KEY (a, b))",
    f"CREATE TABLE held.parts (id INT PRIMARY KEY, v INT) {RANGES}",
    "CREATE TABLE held.other (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE held.gone (id INT PRIMARY KEY)",
    "CREATE TABLE held.empty (id INT PRIMARY KEY)",
    f"INSERT INTO held.t VALUES {', '.join(f'({one}, {one % 7})' for one in range(900))}",
    f"INSERT INTO held.pairs VALUES {', '.join(f'({text!r}, {(1 << 63) + at})' for text in 'abC' for at in range(90))}",
    f"INSERT INTO held.parts VALUES {', '.join(f'({one}, {one})' for one in range(0, 900, 9))}",
    "INSERT INTO held.other VALUES (5, -5), (105, -105)",
    "INSERT INTO held.gone VALUES (1)",
)
LATER = (
    "UPDATE held.t SET v = 'later' WHERE id < 300",
    "DELETE FROM held.t WHERE id >= 800",
    "ALTER TABLE held.t ADD COLUMN w INT DEFAULT 3",
    "INSERT INTO held.t VALUES (5000, 'new', 4)",
    "ALTER TABLE held.t DROP COLUMN v",
    "TRUNCATE TABLE held.pairs",
    "INSERT INTO held.pairs VALUES ('z', 1)",
    "DELETE FROM held.other WHERE id > 100",
    "ALTER TABLE held.parts EXCHANGE PARTITION p WITH TABLE held.other",
    "RENAME TABLE held.empty TO held.full",
    "INSERT INTO held.full VALUES (1)",
    "DROP TABLE held.gone",
)


def played(home: Path, sink: str, target: str, amid: str) -> None:
    """Both halves, each compared with the upstream."""
    (home / "changes").mkdir()
    upstream = start_upstream(UpstreamOptions(log=str(home / "changes")))
    try:
        client = Loaded(upstream.port_of(1))
        for statement in TABLES:
            client.run(statement)
        address = f"mysql://root@127.0.0.1:{client.port}/?enable-tls=false&chunk-rows=100"
        words = ["run", "--load-from", address, "--source-uri", f"tidb://{home / 'changes'}", "--sink-uri", sink]
        words += ["-c", "held", "--state-dir", str(home / "state")]
        plan = {"load/planned": driver, "load/plan-kept": driver, amid: group}
        deeds = [f"{place}=pause@{3 if place == amid else 1}" for place in plan]
        deaths = lives([*words, "--until", "1"], [str(TIDEGATE)], home, plan, deeds)
        assert {death.partition(" at ")[2] for death in deaths} == set(plan), deaths
        verified = ["verify", target, "--upstream", f"mysql://root@127.0.0.1:{client.port}/", "--filter", "held.*"]
        at_s = cli(*verified)
        assert at_s.exit_code == 0, at_s.output
        for statement in LATER:
            client.run(statement)
        ended = cli(*words, "--until", "now")
        assert ended.exit_code == 0, ended.output
        (status,) = statuses(str(home / "lake" if target == str(home / "lake") else home / "state"))
        assert status.load is not None
        assert status.load.is_done
        assert status.rows < 900, "nothing is loaded again"
        after = cli(*verified)
        assert after.exit_code == 0, after.output
        client.connection.close()
    finally:
        stop_upstream(upstream)


@pytest.mark.more
def test_a_load_into_a_lake(tmp_path: Path) -> None:
    """The driver dies around its plan, and all of it amid rows; the lake's first snapshot is S."""
    played(tmp_path, f"delta://{tmp_path / 'lake'}", str(tmp_path / "lake"), "load/files-written")


@pytest.mark.more
def test_a_load_into_a_database(tmp_path: Path) -> None:
    """The same into a MariaDB, which has each row once."""
    needed()
    server = MariaDb(tmp_path)
    server.start()
    try:
        sink = f"mysql://root@127.0.0.1:{server.port}/"
        played(tmp_path, sink, sink, "sql/before-commit")
    finally:
        server.stop()
