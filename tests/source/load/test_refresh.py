"""Rows that are brought again through a running feed: `tidegate table reload` and repairs (engine/refresh.py).

SEEDS=0-9 pytest -m "" tests/source/load/test_refresh.py -k many     some of the soak's 100
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.test_sql_sink import emptied
from tests.failpoint import REFRESH_FAILPOINTS, armed
from tests.mariadb import Server, running_server
from tests.redis_server import running_redis
from tests.source.load.feeds import LAKES, TABLES, Database, Draw, Feed, Servers, Work, chosen_seeds, finished
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of
from tidegate.config.load import load as load_config
from tidegate.config.registry import home_of
from tidegate.engine import refresh, reload
from tidegate.engine.refresh import RefreshingSource
from tidegate.engine.reload import REPAIR_MAX, KeptReload, Reload, RepairKeys, key_text
from tidegate.model.errors import ConfigError
from tidegate.model.table import TableName
from tidegate.source.load_sql import SqlReader
from tidegate.testing.contract.sinks import Died

T, KEYLESS = TableName("shop", "t"), TableName("shop", "log")


def rows(*keys: object, table: TableName = T) -> RepairKeys:
    """The rows of some keys."""
    return RepairKeys(table, ("id",), tuple((key_text(key),) for key in keys))  # type: ignore[arg-type]


def test_a_request_is_kept_until_it_is_done(tmp_path: Path) -> None:
    """A repair is written once; it neither takes the place of another request, nor leaves its own to one."""
    kept = KeptReload(str(tmp_path))
    kept.ask_repair([rows(), rows(table=KEYLESS)])
    assert kept.read() is None
    kept.ask_repair([rows(1, 2.5, "a'b", b"\0\xff"), rows()])
    asked = KeptReload(str(tmp_path)).read()
    assert asked == Reload(repairs=(RepairKeys(T, ("id",), (("1",), ("2.5",), ("a'b",), ("00ff",))),))
    assert str(asked) == "repair of 4 rows of shop.t"
    kept.ask_repair([rows(1, 2.5, "a'b", b"\0\xff")])
    for ask in (lambda: kept.ask_repair([rows(3)]), lambda: kept.ask(["shop.t"])):
        with pytest.raises(ConfigError, match=r"repair of 4 rows of shop\.t is not done yet"):
            ask()
    kept.write(Reload(rules=("shop.t",)))
    with pytest.raises(ConfigError, match=r"reload of shop\.t is not done yet"):
        kept.ask_repair([rows(3)])
    kept.write(Reload(rules=("shop.t",), outcome="done"))
    kept.ask_repair([rows(3)])
    assert kept.read() == Reload(repairs=(rows(3),))


def test_what_no_repair_takes(tmp_path: Path) -> None:
    """Too many rows, and rows without a key, are better loaded again."""
    kept = KeptReload(str(tmp_path))
    with pytest.raises(ConfigError, match="100001 rows are more than a repair takes"):
        kept.ask_repair([rows(*range(REPAIR_MAX)), rows(7, table=KEYLESS)])
    with pytest.raises(ConfigError, match=r"shop\.log: without a key"):
        kept.ask_repair([RepairKeys(KEYLESS, (), (("1",),))])
    assert kept.read() is None


KEYS = {
    **dict.fromkeys(("w.t", "w.large", "w.parts", "w.other", "w.apart", "w.single"), ("id",)),
    **dict.fromkeys(("w.pairs", "w.names"), ("a", "b")),
}
RULES = [*KEYS]
PLACES = (*[name for name in REFRESH_FAILPOINTS if name != "refresh/swept"], "round/planned", "round/applied")
DDLS = (
    "ALTER TABLE w.t ADD COLUMN more INT DEFAULT 3",
    "ALTER TABLE w.parts EXCHANGE PARTITION p WITH TABLE w.other",
    "TRUNCATE TABLE w.pairs",
)
SEEDS = 100
DAMAGE = [{"matcher": ["*.*"], "ignore-event": ["delete", "update"]}]


@dataclass
class Refreshed(Feed):
    """A feed that began above rows, and for a while left out DELETEs and UPDATEs."""

    begun: int = 0
    damages: bool = False
    forced: bool = False
    rules: Sequence[str] = ()

    @property
    def config(self) -> FeedConfig:
        """As `tidegate run` has it."""
        filters: dict[str, object] = {"filter": {"event-filters": DAMAGE}} if self.damages else {}
        if self.sink == "files":
            filters["sink"] = {"csv": {"include-commit-ts": True, "output-old-value": True}}
        return load_config(
            document_of({"force-replicate": self.forced, **filters}),
            source_uri=self.source_uri,
            sink_uri=self.sink_uri,
            rules=self.rules or RULES,
            name=self.home.name,
            state_dir=None if self.sink in LAKES else self.home / "state",
            load_from=self.database.address if self.loads else None,
            start_ts=None if self.loads else self.begun,
        )

    @property
    def kept(self) -> KeptReload:
        """Its request."""
        return KeptReload(home_of(self.config))

    def ended(self, amid: Iterator[str], deaths: Sequence[str] = ()) -> Reload:
        """Follow the log until the request has ended, with statements between, each life killed at one of `deaths`."""
        left = list(deaths)
        for _ in range(60):
            self.database.play(islice(amid, 6))
            with suppress(Died), armed({name: partial(self.dies, left, name) for name in left[:1]}):
                finished(self.config, self.database.now(), self.database)
            found = self.kept.read()
            if found is not None and found.outcome:
                assert not left, left
                return found
        raise AssertionError(f"{found} has not ended")

    def dies(self, left: list[str], name: str) -> None:
        """Die at a place, once."""
        if left and left[0] == name:
            self.died.append(left.pop(0))
            raise Died(name)

    def keys(self) -> list[RepairKeys]:
        """All keys of both sides."""
        both = [self.database.tables(self.database.now()), self.tables()]
        return [
            RepairKeys(TableName(*name.split(".")), KEYS[name], tuple({keys_of(row, KEYS[name]): 1 for row in found}))
            for side in both
            for name, found in side.items()
            if name in KEYS
        ]

    def wrong(self) -> list[str]:
        """The tables that are not as the upstream has them, once the feed has come there."""
        end = self.database.now()
        finished(self.config, end, self.database)
        return [text for text in self.unlike(end) if text.partition(":")[0] in KEYS]


def keys_of(row: tuple[tuple[str, str], ...], columns: Sequence[str]) -> tuple[str, ...]:
    """The key of a row."""
    return tuple(dict(row)[column] for column in columns)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys a chunk, and no pause between looks for a request."""
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    monkeypatch.setattr(reload, "AGAIN_S", 0.0)
    monkeypatch.setattr(refresh, "KEYS_A_CHUNK", 40)


@contextmanager
def damaged(home: Path, sink: str, servers: Servers | None = None) -> Iterator[Refreshed]:
    """A feed whose target lacks rows, has others changed, and too many."""
    home.mkdir(exist_ok=True)
    database = Database(home / "log")
    try:
        database.play((*TABLES, *Work(1).rows(40)))
        database.trim()
        servers = servers or Servers("", SimpleNamespace(port=0), 0)  # type: ignore[arg-type]
        feed = Refreshed(Draw.of(0), sink, database, servers, home, loads=False, begun=database.now(), damages=True)
        if sink in {"files", "mariadb"}:  # these need the definitions; whoever folds files each change of a row, too
            feed.damages, feed.loads = False, True
            finished(feed.config, database.now(), database)
            feed.damages = sink != "files"
        database.play(Work(2).rows(40))
        finished(feed.config, database.now(), database)
        feed.damages, feed.loads = False, True
        assert bool(feed.wrong()) is (sink != "files")
        yield feed
    finally:
        database.close()


@pytest.mark.slow
@pytest.mark.parametrize("sink", [*LAKES, "sqlite", "search"])
def test_a_repair(sink: str, tmp_path: Path) -> None:
    """Rows that lack, differ, or are too many are right afterwards, amid changes."""
    with damaged(tmp_path / "feed", sink) as feed:
        feed.kept.ask_repair(feed.keys())
        assert feed.ended(Work(3).rows(60)).outcome == reload.DONE
        assert not feed.wrong()


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["sqlite", "search", "files"])
def test_a_reload(sink: str, tmp_path: Path) -> None:
    """Every row of every table is right afterwards, amid changes; rows that the upstream lacks are gone."""
    with damaged(tmp_path / "feed", sink) as feed:
        feed.kept.ask(["w.*"])
        assert feed.ended(Work(5).rows(60)).outcome == reload.DONE
        assert not feed.wrong()
        if sink == "files":
            versions = list((feed.home / "out" / "w" / "t" / "meta").glob("schema_*"))
            assert len(versions) > 1


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["mariadb", "redis"])
def test_real_servers(sink: str, tmp_path: Path) -> None:
    """A MariaDB and a Redis: damaged rows are right behind a repair, and behind a reload."""
    with running_server(tmp_path / "mariadb") as mariadb, running_redis(tmp_path / "redis") as redis:
        for asks in ("repair", "reload"):
            with damaged(tmp_path / asks, sink, Servers("", mariadb, redis.port)) as feed:
                if asks == "repair":
                    feed.kept.ask_repair(feed.keys())
                else:
                    feed.kept.ask(["w.*"])
                assert feed.ended(Work(7).rows(60)).outcome == reload.DONE
                assert not feed.wrong()
                emptied(mariadb)


@contextmanager
def loaded(home: Path, sink: str, statements: Sequence[str], mariadb: Server | None = None) -> Iterator[Refreshed]:
    """A feed that has followed some statements, and takes all tables."""
    home.mkdir()
    database = Database(home / "log", chunk_rows=5)
    try:
        database.play(("CREATE DATABASE w",))
        database.now()
        servers = Servers("", mariadb or SimpleNamespace(port=0), 0)  # type: ignore[arg-type]
        feed = Refreshed(Draw.of(0), sink, database, servers, home, forced=True, rules=["w.*"])
        database.play(statements)
        finished(feed.config, database.now(), database)
        yield feed
    finally:
        database.close()


def as_upstream(feed: Refreshed) -> bool:
    """Whether the target has the rows of the upstream, repeats among them."""
    end = feed.database.now()
    finished(feed.config, end, feed.database)
    return feed.tables() == feed.database.tables(end)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["sqlite", "mariadb"])
def test_no_row_is_deleted_for_the_text_of_its_key(sink: str, tmp_path: Path) -> None:
    """A FLOAT is the same number in each of its texts."""
    statements = ["CREATE TABLE w.f (k FLOAT PRIMARY KEY)", "INSERT INTO w.f VALUES (0.5), (1.1), (123456.789), (1e20)"]
    with running_server(tmp_path / "mariadb") as mariadb, loaded(tmp_path / "feed", sink, statements, mariadb) as feed:
        before = feed.tables()
        feed.kept.ask(["w.*"])
        assert feed.ended(iter(())).outcome == reload.DONE
        assert feed.tables() == before
        assert len(before["w.f"]) == 4


@pytest.mark.slow
def test_files_have_a_row_without_a_key_once(tmp_path: Path) -> None:
    """Rows that come amid the reload of a table without a key are in the target once, also behind a death."""
    statements = ["CREATE TABLE w.k (v INT)", *(f"INSERT INTO w.k VALUES ({number})" for number in range(40))]
    with loaded(tmp_path / "feed", "files", statements) as feed:
        feed.kept.ask(["w.k"])
        more = (f"INSERT INTO w.k VALUES ({number})" for number in range(40, 99))
        assert feed.ended(more, ["refresh/slice-done"]).outcome == reload.DONE
        assert as_upstream(feed)


@pytest.mark.slow
def test_a_column_is_added_amid_a_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DDL that the feed has still to come to leaves no table out."""
    ddls, plan_slice = ["ALTER TABLE w.t ADD COLUMN c INT DEFAULT 5"], RefreshingSource._plan_slice
    statements = ["CREATE TABLE w.t (id INT PRIMARY KEY)", "INSERT INTO w.t VALUES (1), (2)"]
    with loaded(tmp_path / "feed", "sqlite", statements) as feed:

        def planned(*given: Any) -> None:
            feed.database.play([ddls.pop()] if ddls else ())
            plan_slice(*given)

        monkeypatch.setattr(RefreshingSource, "_plan_slice", planned)
        feed.kept.ask(["w.*"])
        assert feed.ended(iter(())).outcome == reload.DONE
        assert not ddls
        assert as_upstream(feed)


@pytest.mark.slow
def test_a_ddl_amid_the_search_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's table is not read while the feed brings a DDL of it, which would wait for the end of that."""
    ddls, absent, slow = ["ALTER TABLE w.t ADD COLUMN c INT DEFAULT 5"], SqlReader.absent, [1.0, 1.0, 1.0]
    statements = ["CREATE TABLE w.t (id VARCHAR(700) PRIMARY KEY)", "INSERT INTO w.t VALUES ('a'), ('b')"]
    with (
        running_server(tmp_path / "mariadb", "--lock-wait-timeout=5") as mariadb,
        loaded(tmp_path / "feed", "mariadb", statements, mariadb) as feed,
    ):
        mariadb.run("INSERT INTO w.t SELECT RPAD(seq, 700, 'x') FROM w.seq_1_to_12000")  # more than sockets hold
        monkeypatch.setattr(refresh, "KEYS_A_CHUNK", 1000)

        def missing(*given: Any) -> Any:
            feed.database.play([ddls.pop()] if ddls else ())
            feed.database.now()
            time.sleep(slow.pop() if slow else 0)  # the search ends in a later round
            return absent(*given)

        monkeypatch.setattr(SqlReader, "absent", missing)
        feed.kept.ask(["w.*"])
        while ddls or slow:
            finished(feed.config, feed.database.now(), feed.database)
        finished(feed.config, feed.database.now(), feed.database)
        mariadb.run("SELECT c FROM w.t LIMIT 1")


@pytest.mark.slow
def test_what_comes_as_a_whole(tmp_path: Path) -> None:
    """Files take no single rows again: the request ends with that, and the feed goes on."""
    with damaged(tmp_path / "feed", "files") as feed:
        feed.kept.ask_repair(feed.keys())
        assert "reload it instead" in feed.ended(Work(6).rows(60)).outcome
        assert not feed.wrong()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["refresh/swept", *PLACES])
def test_a_death_amid_a_reload(place: str, tmp_path: Path) -> None:
    """At each place it goes on, and DDLs of its tables let them begin again."""
    with damaged(tmp_path / "feed", "sqlite") as feed:
        feed.kept.ask(["w.*"])
        storms = (statement for seed in range(60) for statement in (*Work(seed).rows(6), *DDLS[seed : seed + 1]))
        assert feed.ended(storms, [place]).outcome == reload.DONE
        assert feed.died == [place]
        assert not feed.wrong()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_death_amid_a_repair(place: str, tmp_path: Path) -> None:
    """At each place it goes on."""
    with damaged(tmp_path / "feed", "sqlite") as feed:
        feed.kept.ask_repair(feed.keys())
        assert feed.ended(Work(4).rows(60), [place]).outcome == reload.DONE
        assert feed.died == [place]
        assert not feed.wrong()


def lived(seed: int, home: Path) -> None:
    """Reloads and repairs at random moments, with deaths, amid rows and DDLs: right behind each."""
    random, sink = Random(f"refresh {seed}"), ("sqlite", "search", "replica", "files", "changelog")[seed % 5]
    ddls = iter(random.sample(DDLS, len(DDLS)))
    with damaged(home, sink) as feed:
        for number in range(2):
            amid = chain(Work(seed + number).rows(8), islice(ddls, 1), Work(seed - number).rows(400))
            if sink in LAKES or (sink != "files" and random.random() < 0.5):
                feed.kept.ask_repair(feed.keys())
            else:
                feed.kept.ask(random.choice([["w.*"], ["w.t", "w.parts", "w.other", "w.pairs"]]))
            assert feed.ended(amid, random.sample(PLACES, 2)).outcome == reload.DONE
        if sink == "files":
            feed.kept.ask(["w.*"])
        else:
            feed.kept.ask_repair(feed.keys())
        assert feed.ended(Work(seed).rows(400)).outcome == reload.DONE
        assert not feed.wrong(), feed.died


@pytest.mark.slow
def test_three_seeds(tmp_path: Path) -> None:
    """A file, an index and a lake."""
    for seed in range(3):
        lived(seed, tmp_path / str(seed))


@pytest.mark.soak
def test_many_seeds(tmp_path: Path) -> None:
    """One that fails does not end the others."""
    failed = {}
    for seed in chosen_seeds(SEEDS):
        try:
            lived(seed, tmp_path / str(seed))
        except (Exception, Died) as error:  # noqa: BLE001  told at the end
            failed[seed] = repr(error)[:2000]
    assert not failed
