"""Feeds that begin with a load, of an embedded TiDB that works all along: equal to it at S, behind it and at the end.

TIDEGATE_SEED=17 pytest -m "" tests/source/load/test_feeds.py -k four     one seed again
SEEDS=0-49 pytest -m "" tests/source/load/test_feeds.py -k many           some of the soak's 200; each adds its outcome
                                                                          to the file of TIDEGATE_LOAD_LEDGER
"""

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import failpoint
from tests.contract.test_sql_sink import emptied
from tests.mariadb import running_server
from tests.redis_server import running_redis
from tests.source.load import feeds
from tests.source.load.feeds import Database, Draw, Feed, Servers, Work
from tests.upstream.worlds import seeds
from tidegate.config.load import load
from tidegate.config.registry import sink_of, source_of
from tidegate.testing.script import run_here

SEEDS = 200
FOUR = (7, 15, 20, 36)
SEED = "TIDEGATE_SEED"
LATER = [pytest.param(seed, marks=pytest.mark.more) for seed in FOUR[2:]]


@pytest.fixture(scope="module")
def servers(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The broker of all tests, a MariaDB and a Redis."""
    home = tmp_path_factory.mktemp("servers")
    with running_server(home / "mariadb") as mariadb, running_redis(home / "redis") as redis:
        yield Servers(bootstrap, mariadb, redis.port)


def test_what_the_seeds_draw() -> None:
    """The soak has each sink at least 30 times, each pair of source and sink, trimmed logs, and each failpoint of a
    load into each sink; four seeds have every source."""
    draws = [Draw.of(seed) for seed in range(SEEDS)]
    sinks = Counter(sink for draw in draws for sink in draw.sinks)
    assert set(sinks) == set(feeds.SINKS)
    assert min(sinks.values()) >= 30
    assert len({(draw.source, sink) for draw in draws for sink in draw.sinks}) == len(feeds.SOURCES) * len(feeds.SINKS)
    assert len({(draw.source, draw.trimmed, draw.force, draw.early) for draw in draws}) == 3 * 8
    died = {
        (sink, name)
        for draw in draws
        for sink, deaths in zip(draw.sinks, draw.deaths, strict=True)
        for name, _ in deaths
    }
    expected = {(sink, name) for sink in feeds.SINKS for name in (*feeds.LOADING, *feeds.POINTS.get(sink, ()))}
    assert died == expected
    assert {name for _, name in died} <= failpoint.ALL.keys()
    four = [draws[seed] for seed in FOUR]
    assert {draw.source for draw in four} == set(feeds.SOURCES)
    assert len({sink for draw in four for sink in draw.sinks}) == 7


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1) if SEED in os.environ else [*FOUR[:2], *LATER])
def test_four_seeds(seed: int, servers: Servers, tmp_path: Path) -> None:
    """The log and topics of both protocols, each into two sinks."""
    feeds.lived(seed, servers, tmp_path / f"load-four-{seed}")


@pytest.mark.soak
def test_many_seeds(servers: Servers, tmp_path: Path) -> None:
    """Every pair of sinks; one that fails does not end the others."""
    chosen = feeds.chosen_seeds(SEEDS)
    homes = {seed: tmp_path / f"load-many-{seed}" for seed in chosen}
    failed = [feeds.noted(seed, partial(feeds.lived, seed, servers, home)) for seed, home in homes.items()]
    assert not list(filter(None, failed))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["log", "canal-json"])
def test_somebody_else_has_loaded(source: str, servers: Servers, tmp_path: Path) -> None:
    """Rows of S that another job has put into a database are followed by what is above S, DDLs among it, and no row or
    DDL of S or before comes again."""
    home = tmp_path / f"load-somebody-{source}"
    home.mkdir()
    emptied(servers.mariadb)
    draw = Draw.of(feeds.SOURCES.index(source))._replace(force=False)
    work, database = Work(1), Database(home / "log")
    feed = Feed(draw, "mariadb", database, servers, home)
    rules = ["w.*", "!w.keyless"]
    try:
        database.play((*feeds.TABLES, *work.rows(60)))
        begun = database.now()
        database.play(work.rows(10))
        ts = database.now()
        feeds.write(draw, servers, database, ts, since=begun, state="writer")
        rows = load(
            load_mode="only", load_from=database.address, load_ts=ts, sink_uri=feed.sink_uri, rules=rules,
            state_dir=home / "dump", name="dump",
        )  # fmt: skip
        assert run_here(source_of(rows), sink_of(rows), rules=rows.rules).checkpoint_ts == ts
        database.play((*work.rows(20), *work.storm()))
        end = database.now()
        feeds.write(draw, servers, database, end, since=begun, state="writer")
        config = load(
            source_uri=feed.source_uri, sink_uri=feed.sink_uri, rules=rules, name="follows", state_dir=home / "state",
            load_mode="done", load_from=database.address, load_ts=ts,
        )  # fmt: skip
        assert feeds.finished(config, end, database).checkpoint_ts == end
        found = feed.tables()
        assert not feed.unlike(end, {**found, "w.keyless": database.tables(end)["w.keyless"]})
    finally:
        database.close()
