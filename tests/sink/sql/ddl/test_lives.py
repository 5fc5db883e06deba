"""Random lives of DDLs into real targets end with the shape that schema/ says.

random DDL ──► embedded TiDB (upstream) ── the text of its job, as TiCDC sends it ──► runner ──► MariaDB, another TiDB
"""

from contextlib import suppress
from random import Random

import pytest

from tests.counts import some
from tests.failpoint import DDL_FAILPOINTS, armed
from tests.sink.sql.ddl.test_runner import Died, die
from tests.sink.sql.ddl.world import World, follow
from tests.upstream.simulate.ddl import SETUP, Draw
from tests.upstream.worlds import seeds
from tidegate.model.errors import TidegateError
from tidegate.schema.restore_ddl import restore_ddl
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow

STATEMENTS = 40


@pytest.mark.parametrize("seed", seeds(some(1, 50)))
def test_a_life(world: World, seed: int) -> None:
    """After each DDL the target has the tables that the schema has, though now and then a runner dies amid it."""
    random, cluster = Random(seed), Cluster.open()
    session = Session(cluster.nodes["n1"])
    session.execute("create database d; use d")
    world.ddl("create database d")
    dropped: list[str] = []
    drawn = iter([("create_table", text) for text in SETUP])
    done = 0
    for _ in range(STATEMENTS):
        tables = {one.stored.name.lower: one.stored for one in cluster.nodes["n1"].schema.tables.values()}
        kind, text = next(drawn, None) or Draw(random, tables, dropped).statement()
        if kind == "recover_table":
            continue
        try:
            session.execute(text)
        except TidegateError:
            continue
        placed = world.placed(restore_ddl(text).text)
        with armed({random.choice(list(DDL_FAILPOINTS)): die} if random.random() < 0.3 else {}), suppress(Died):
            follow(world.runner(), placed, world.state)
        world.state = follow(world.runner(), placed, world.state)
        assert world.looks() == world.meant(), text
        done += 1
    assert done > STATEMENTS // 4
