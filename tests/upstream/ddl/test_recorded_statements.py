"""Every recorded DDL statement, run here: TiDB's transactions, key by key, but where we chose to differ.

statement                               TiDB                                   here
several changes at once                 done in a transaction of its own       done with its last version
DROP FOREIGN KEY, EXCHANGE PARTITION    a version less                         the version that the checker asks for
TRUNCATE PARTITION                      done with its last version             with the one that has the new partitions
DROP PARTITION                          done with its last version             with its first: rows go elsewhere then
placement, resource groups, CACHE       jobs that no changefeed follows        no jobs
"""

import pytest

from tests.kv.kv_recordings import lines, raw
from tests.upstream.ddl.kit import LEASE_MS, SESSION_MS, Clock, World
from tests.upstream.ddl.test_recorded_life import named, ours, steps_of
from tidegate.model.errors import TidegateError
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.engine import MemoryEngine
from tidegate_upstream.tidb.node import NodeOptions

pytestmark = pytest.mark.slow

FOLLOWED_BY_NOBODY = ("placement policy", "resource group", "cached cache", "cached nocache")
DIFFERENT = ("drop foreign key", "exchange partition", "truncate partition", "drop partition", "add constraint fk1")


class Empty(World):
    """A new cluster of one node."""

    def __init__(self) -> None:
        self.clock, self.engine = Clock(), MemoryEngine()
        options = ClusterOptions(NodeOptions(lease_ms=LEASE_MS, session_ms=SESSION_MS))
        self.cluster = Cluster(self.engine, self.clock, options)


def statements(stream: str):
    """(statement, whether TiDB refused it, its transactions) of every statement that made a job or was refused."""
    found: list[tuple[str, bool, dict[int, set[str]]]] = []
    for line in lines(stream):
        if line["kind"] == "sql":
            found.append((line["sql"], bool(line["error"]), {}))
        elif line["kind"] in ("meta", "ddl_job", "ddl_history"):
            name = named(raw(line, "key_b64"), None if line["op"] == "delete" else raw(line, "value_b64"))
            found[-1][2].setdefault(line["commit_ts"], set()).update({name} - {None})
    return [(sql, refused, [one for one in commits.values() if one]) for sql, refused, commits in found]


def is_ddl(sql: str, commits: list[set[str]]) -> bool:
    """Whether it made a job, and a job of a kind that we have."""
    return any("put tidb_ddl_history" in one for one in commits) and not any(word in sql for word in FOLLOWED_BY_NOBODY)


def is_single(commits: list[set[str]]) -> bool:
    """Whether the job is no multi-schema change, whose row never shows a state."""
    return not any("tidb_ddl_job state 1 schema_state 0" in one and len(one) > 1 for one in commits)


@pytest.mark.parametrize(
    ("stream", "count"),
    [
        ("ddl", 84),
        ("partition", 21),
        pytest.param("interleave", 60, marks=pytest.mark.slow),
        ("rename_swap", 4),
    ],
)
def test_every_statement_lives_as_recorded(stream: str, count: int) -> None:
    """The same keys in the same transactions; `count` statements at least."""
    world, database, same = Empty(), "test", 0
    for sql, refused, commits in statements(stream):
        if sql.startswith("use "):
            database = sql[4:].strip()
        if not is_ddl(sql, commits):
            continue
        after = world.cluster.storage.oracle.next()
        try:
            world.sql(sql, database)
        except TidegateError:
            assert refused, sql
            continue
        assert not refused, sql
        if is_single(commits) and not any(word in sql for word in DIFFERENT):
            assert steps_of(ours(world, after)) == steps_of(commits), sql
            same += 1

    assert same >= count


def test_ids_are_those_of_the_recording() -> None:
    """As long as nothing is left out before: databases, tables and jobs share one counter."""
    world = Empty()
    for sql, _, commits in statements("ddl")[:20]:
        if is_ddl(sql, commits):
            world.sql(sql)
    history = {job.id: (job.type, job.table_id) for job in world.meta().history()}

    assert history == {
        276: (1, 0),
        278: (1, 0),
        279: (26, 0),
        281: (3, 280),
        282: (5, 280),
        284: (3, 283),
        286: (3, 285),
        288: (3, 287),
        290: (3, 289),
        292: (3, 291),
        293: (5, 283),
        294: (5, 283),
        295: (5, 283),
        296: (61, 283),
    }
