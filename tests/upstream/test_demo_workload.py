"""The demo's people: their statements follow from a seed, their money is conserved, their DDLs are of every kind."""

import itertools
from decimal import Decimal
from itertools import islice

import pytest

from tidegate.model.errors import SqlRefused
from tidegate_upstream.demo.upstream import ACCOUNTS, DDLS, STREAMS, TOTAL, setup, transactions
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.information_schema import type_name
from tidegate_upstream.tidb.session import Session

KINDS = {
    *("add column", "drop column", "modify column", "alter table multi-schema change", "add index", "drop index"),
    *(
        "rename index",
        "set default value",
        "create table",
        "drop table",
        "truncate table",
        "rename table",
        "rename tables",
        "recover table",
    ),
    *("add partition", "drop partition", "truncate partition", "exchange partition"),
    *("alter table reorganize partition", "alter table partition by", "alter table remove partitioning"),
    *("create schema", "drop schema", "create view", "drop view"),
}


def some(seed, count=60):
    """The first transactions of every stream."""
    return {stream.name: list(islice(transactions(seed, stream), count)) for stream in STREAMS}


def test_a_seed_decides_every_statement():
    """The same seed gives the same statements, another one gives others, and no two streams do the same."""
    assert some(3) == some(3)
    assert list(setup(3)) == list(setup(3)) != list(setup(4))
    for name, found in some(3).items():
        assert found != some(4)[name]
    assert len({str(found) for found in some(3).values()}) == len(STREAMS)


def run(session, statements):
    """A transaction; False when the schema refused it."""
    session.execute("BEGIN")
    try:
        for statement in statements:
            session.execute(statement)
    except SqlRefused:
        session.execute("ROLLBACK")
        return False
    session.execute("COMMIT")
    return True


def asked(session, query):
    """The rows of a query."""
    return session.execute(query)[-1].rows


def test_transfers_conserve_the_sum():
    """After each transfer of the bank its balances are together what they were at the start."""
    session = Session(Cluster.open().node)
    for statement in setup(5):
        session.execute(statement)
    assert asked(session, "SELECT COUNT(*), SUM(balance) FROM bank.accounts") == [(ACCOUNTS, Decimal(TOTAL))]
    for stream in (one for one in STREAMS if one.name.startswith("bank")):
        for number, transfer in enumerate(islice(transactions(5, stream), 40), 1):
            assert run(session, transfer)
            assert number % 10 or asked(session, "SELECT SUM(balance) FROM bank.accounts") == [(TOTAL,)]
    assert asked(session, "SELECT COUNT(*) FROM bank.accounts WHERE version > 0")[0][0] > ACCOUNTS // 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_scripts_meet_work(seed):
    """Every DDL of both scripts is carried out between transactions, they are of every kind, and of each stream some
    transactions succeed before, between and after them; orders of the month whose partition is dropped still come."""
    cluster = Cluster.open()
    session = Session(cluster.node)
    for statement in setup(seed):
        session.execute(statement)
    streams = {stream.name: transactions(seed, stream) for stream in STREAMS}
    done = {name: [] for name in streams}
    for number, ddl in enumerate(one for pair in itertools.zip_longest(*DDLS) for one in pair if one):
        for name, stream in streams.items():
            done[name] += [number for _ in range(2) if run(session, next(stream))]
        session.execute(ddl)

    kinds = {type_name(job.type) for job in cluster.ddl_client.history()}
    assert kinds >= KINDS, KINDS - kinds
    for name, numbers in done.items():
        assert len(numbers) > 15, name
        assert min(numbers) < 8, name
        assert max(numbers) > 35, name
    assert asked(session, "SELECT COUNT(*) FROM shop.orders WHERE month = 1 AND id > 0")[0][0]
    assert asked(session, "SELECT SUM(balance) FROM bank.accounts") == [(TOTAL,)]
