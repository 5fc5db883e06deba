"""Seeded workloads into databases: see seeded.py for what happens in them.

TIDEGATE_SEED=17 pytest -m "" tests/sink/sql/test_seeds.py       one seed again
make test   3 seeds     make test-more   3 others     make soak   200 in chunks of 20
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tests.mariadb import Server, running_server
from tests.sink.sql.seeded import Replication, Way
from tests.upstream.worlds import seeds
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

SEEDS, CHUNK = 200, 20
ENDS = {"task", "lost answer", "cut", "straggler"}
Servers = dict[bool, Server]
"""By whether it is a TiDB."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both targets."""
    upstream = start_upstream(UpstreamOptions())
    connection = pymysql.connect(
        host="127.0.0.1", port=upstream.port_of(1), user="root", charset="utf8mb4", autocommit=True
    )
    with running_server(tmp_path_factory.mktemp("mariadb")) as mariadb:
        yield {True: Server(upstream.port_of(1), connection), False: mariadb}
    connection.close()
    stop_upstream(upstream)


def lived(seed: int, servers: Servers, home: Path) -> Counter[str]:
    """What happened in a workload that came to its end; an error says which seed, and how to run it again."""
    again = f"seed {seed} (TIDEGATE_SEED={seed} pytest -m '' tests/sink/sql/test_seeds.py -k seeds)"
    one = Replication(seed, servers[Way.of(seed).tidb], home / str(seed))
    try:
        one.play()
    except Exception as error:
        story = "\n".join(one.story.trace[-12:])
        raise AssertionError(f"{again}: {one.way}: life {one.lives}: {error}\n{story}") from error
    assert not one.problems, f"{again}: {one.way}: {len(one.problems)}: {one.problems[:3]}"
    return one.fired


@pytest.mark.parametrize(("first", "least"), [(3, 3), pytest.param(0, 0, marks=pytest.mark.more)])
def test_three_seeds(first: int, least: int, servers: Servers, tmp_path: Path) -> None:
    """Both targets, by every atomicity, equal the upstream at each moment at which the feed rests, and a reader of
    `global` sees no half of a transaction."""
    chosen = seeds(6)[first : first + 3] or seeds(6)
    fired = sum((lived(seed, servers, tmp_path) for seed in chosen), Counter[str]())

    ends = sum(count for what, count in fired.items() if what.startswith("driver at ") or what in ENDS)
    missing = [what for what in ("moments", "looks", "moves", "kill", "freeze") if not fired[what]]
    assert len(chosen) < 3 or (not missing and ends >= least), fired


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_two_hundred_seeds(first: int, servers: Servers, tmp_path: Path) -> None:
    """The full count."""
    chosen = seeds(SEEDS)
    for seed in range(max(first, chosen.start), min(first + CHUNK, chosen.stop)):
        lived(seed, servers, tmp_path)
