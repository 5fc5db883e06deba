"""Two nodes write while a third session changes the tables: threads, real jobs, real backfill."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidegate.model.errors import Retry, SqlRefused, UpstreamError
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.session import Session

TABLES = (
    "create table t (id int primary key, a int, s varchar(30))",
    "create table p (id bigint, a int, s varchar(30), unique key up (id)) partition by hash (id) partitions 2",
)
CHANGES = (
    "alter table t add index ia (a)",
    "alter table t add column c int not null default 7",
    "alter table t modify column s int",
    "alter table t add index ic (c, a)",
    "alter table t drop index ia",
    "alter table t modify column a varchar(12)",
    "alter table p add index ia (a)",
    "alter table p partition by range (id) (partition x values less than (20), partition y values less than (99))",
    "alter table p reorganize partition x, y into (partition b values less than (maxvalue))",
    "alter table p add primary key (id) nonclustered",
    "alter table p remove partitioning",
    "alter table t drop index ic",
    "alter table t drop column c",
)
EXPECTED = frozenset({1062, 1048})
"""Duplicates are the game's own; everything else that SqlRefused says here would be a fault."""


def statement(rng: random.Random) -> str:
    """A statement about few rows, so that nodes and DDL meet."""
    name, number, value = rng.choice("tp"), rng.randrange(40), rng.randrange(9)
    row = f"{name} (id, a, s) values ({number}, {value}, '{value}')"
    return rng.choice(
        [
            f"insert into {row}",
            f"insert into {row} on duplicate key update a = {value}",
            f"replace into {row}",
            f"update {name} set a = {value} where id = {number}",
            f"update {name} set s = '{value}' where a = {value}",
            f"update {name} set id = id + 40 where id = {number}",
            f"delete from {name} where id = {number}",
        ]
    )


@contextmanager
def writers(nodes: list[Node], seed: int) -> Iterator[list[BaseException]]:
    """One writing session a node while the block runs; gives what went wrong."""
    stop, wrong = threading.Event(), list[BaseException]()

    def write(node: Node, own_seed: int) -> None:
        rng, session = random.Random(own_seed), Session(node)
        session.execute("use d")
        while not stop.is_set():
            time.sleep(0.003)
            try:
                session.execute(statement(rng))
            except SqlRefused as refused:
                if refused.mysql_code not in EXPECTED:
                    wrong.append(refused)
            except UpstreamError as error:
                if error.retry is not Retry.LATER:
                    wrong.append(error)

    threads = [threading.Thread(target=write, args=(node, seed + at)) for at, node in enumerate(nodes)]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_tables_stay_consistent_while_they_change(seed):
    """After every change of a definition, under fire, each index of both tables agrees with the rows."""
    cluster = Cluster.open()
    other = cluster.add_node("b")
    cluster.start_thread()
    session = Session(cluster.node)
    for sql in ("create database d", "use d", *TABLES):
        session.execute(sql)
    with writers([cluster.node, other], seed * 100) as wrong:
        for sql in CHANGES:
            time.sleep(0.05)
            session.execute(sql)
            for name in "tp":
                session.execute(f"admin check table {name}")
    counts = [len(session.execute(f"select id from {name}")[0].rows) for name in "tp"]
    cluster.stop_thread()
    cluster.close()

    assert wrong == []
    assert min(counts) > 5
