"""Rows that are brought again through a running feed: `tidegate table reload` and repairs (engine/refresh.py).

SEEDS=0-9 pytest -m "" tests/source/load/test_refresh.py -k many     some of the soak's 100
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from tests.contract.adapters import Journal
from tests.contract.test_sql_sink import emptied
from tests.counts import crossed
from tests.failpoint import REFRESH_FAILPOINTS, RELOAD_FAILPOINTS, armed
from tests.mariadb import Server, running_server
from tests.redis_server import running_redis
from tests.sink.webhook.receiver import Receiver, receiving
from tests.source.load.feeds import (
    LAKES,
    RANGES,
    TABLES,
    Database,
    Draw,
    Feed,
    Servers,
    Tables,
    Work,
    failures,
    finished,
    ordered,
    streams_of,
)
from tidegate.cli.main import main
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of
from tidegate.config.load import load as load_config
from tidegate.config.registry import home_of, sink_of, source_of, status_of
from tidegate.engine import refresh, reload
from tidegate.engine.load import WITHOUT_ROWS
from tidegate.engine.load_plan import LoadGuard, LoadPlan
from tidegate.engine.progress import Progress
from tidegate.engine.reading import ReloadProgress
from tidegate.engine.refresh import RefreshingSource
from tidegate.engine.reload import NOT_AGAIN, REPAIR_MAX, KeptReload, Reload, RepairKeys, check_resend, key_text
from tidegate.model.errors import ConfigError, SourceError, StartBeforeGc
from tidegate.model.event import RowChange
from tidegate.model.table import TableName
from tidegate.model.tso import LOGICAL_BITS
from tidegate.sink.callback import Callback
from tidegate.source import load_sql
from tidegate.source.load_sql import GcGuard, SqlReader
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import run_here
from tidegate.testing.validators import images_of

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
ADDED = ["w.apart", "w.large"]
"""Tables that the filter may leave out at first: no DDL ties them to others."""
SENT = ("callback", "webhook", "open-protocol")
"""Sinks whose readers have had what was sent."""
SEEDS = 100
DAMAGE = [{"matcher": ["*.*"], "ignore-event": ["delete", "update"]}]


@dataclass
class Refreshed(Feed):
    """A feed that began above rows, and for a while left out DELETEs and UPDATEs."""

    begun: int = 0
    damages: bool = False
    forced: bool = False
    rules: Sequence[str] = field(default_factory=lambda: RULES)
    receiver: Receiver | None = None
    mode: str | None = None
    may_die: Callable[[], bool] = lambda: True

    @property
    def sink_uri(self) -> str:
        """A function or a receiver here, or as the others."""
        if self.sink == "callback":
            return f"callback://{__name__}/journal?path={self.home / 'journal'}"
        return self.receiver.url if self.receiver is not None else super().sink_uri

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
            rules=self.rules,
            name=self.home.name,
            state_dir=None if self.sink in LAKES else self.home / "state",
            load_mode=self.mode,
            load_from=self.database.address if self.loads else None,
            start_ts=None if self.loads and not self.mode else self.begun,
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
        if left and left[0] == name and self.may_die():
            self.died.append(left.pop(0))
            raise Died(name)

    def keys(self) -> list[RepairKeys]:
        """All keys of both sides."""
        both = [self.database.tables(self.database.now()), self.tables()]
        return [
            RepairKeys(TableName(*name.split(".")), KEYS[name], tuple({keys_of(row, KEYS[name]): 1 for row in found}))
            for side in both
            for name, found in side.items()
            if name in self.rules
        ]

    def sent(self) -> list[RowChange]:
        """What its readers have had, each row in its order."""
        if self.sink == "callback":
            events = Journal(self.home / "journal", "").read()
        elif self.receiver is not None:
            events = self.receiver.changes()
        else:
            events = [event for stream in streams_of(self) for event in stream]
        return [event for event in events if isinstance(event, RowChange)]

    def again(self) -> Counter[tuple[str, ...]]:
        """The keys of the rows that were sent once more, and how often: chunks have the last ticks of a millisecond."""
        low = (1 << LOGICAL_BITS) - 1000
        chunks = [row for row in self.sent() if (row.commit_ts or 0) % (1 << LOGICAL_BITS) > low]
        every = images_of(chunks)
        assert all(image.comes for image in every), "a resend deletes nothing"
        keys = Counter[tuple[str, ...]]()
        for image, count in every.items():
            keys[image.table, *(str(dict(image.values)[name]) for name in KEYS[image.table])] += count
        return keys

    def tables(self) -> Tables:
        """What the target has, or a reader that writes row over row."""
        if self.sink not in SENT:
            return super().tables()
        last: dict[str, dict[tuple[str, ...], dict[str, object]]] = {name: {} for name in self.rules}
        for row in sorted(self.sent(), key=lambda row: row.commit_ts or 0):
            rows = last[f"{row.schema}.{row.table}"]
            for comes, values in enumerate((getattr(row, "before", None), getattr(row, "after", None))):
                named = dict(zip((column.name for column in row.fields), values or (), strict=bool(values)))
                key = tuple(str(named.get(name)) for name in KEYS[f"{row.schema}.{row.table}"])
                if values and comes:
                    rows[key] = named
                elif values:
                    rows.pop(key, None)
        return {name: ordered(rows.values()) for name, rows in last.items()}

    def lacking(self) -> list[object]:
        """Rows of the upstream that a reader does not have, once the feed has come there."""
        end = self.database.now()
        finished(self.config, end, self.database)
        found = self.tables()
        return [
            (name, row)
            for name, rows in self.database.tables(end).items()
            for row in rows
            if name in self.rules and row not in found[name]
        ]

    def wrong(self) -> list[str]:
        """The tables that are not as the upstream has them, once the feed has come there."""
        end = self.database.now()
        finished(self.config, end, self.database)
        return [text for text in self.unlike(end) if text.partition(":")[0] in self.rules]


def keys_of(row: tuple[tuple[str, str], ...], columns: Sequence[str]) -> tuple[str, ...]:
    """The key of a row."""
    return tuple(dict(row)[column] for column in columns)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys a chunk, and no pause between looks for a request."""
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    monkeypatch.setattr(reload, "AGAIN_S", 0.0)
    monkeypatch.setattr(refresh, "KEYS_A_CHUNK", 40)


def journal(path: str) -> Callback:
    """The function of a feed into a callback."""
    return Journal(Path(path), "nothing").callback()


@contextmanager
def damaged(
    home: Path,
    sink: str,
    servers: Servers | None = None,
    rules: Sequence[str] = RULES,
    receiver: Receiver | None = None,
) -> Iterator[Refreshed]:
    """A feed whose target lacks rows, has others changed, and too many."""
    home.mkdir(exist_ok=True)
    database = Database(home / "log")
    try:
        database.play((*TABLES, *Work(1).rows(40)))
        database.trim()
        servers = servers or Servers("", SimpleNamespace(port=0), 0)  # type: ignore[arg-type]
        feed = Refreshed(Draw.of(0), sink, database, servers, home, loads=False, begun=database.now(), damages=True)
        feed.rules, feed.receiver = [*rules], receiver
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
@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE w.p REMOVE PARTITIONING",
        "ALTER TABLE w.p DROP PARTITION p",
        "ALTER TABLE w.p REORGANIZE PARTITION p, q INTO (PARTITION o VALUES LESS THAN (1000))",
    ],
)
def test_partitions_change_behind_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ddl: str) -> None:
    """Chunks of partitions that are gone before the first of them is read are planned again."""
    ddls, plan_slice = [ddl], RefreshingSource._plan_slice
    statements = [f"CREATE TABLE w.p (id INT PRIMARY KEY) {RANGES}", "INSERT INTO w.p VALUES (1), (2), (200)"]
    with loaded(tmp_path / "feed", "sqlite", statements) as feed:

        def planned(*given: Any) -> None:
            feed.database.play([ddls.pop()] if ddls else ())
            plan_slice(*given)

        monkeypatch.setattr(RefreshingSource, "_plan_slice", planned)
        feed.kept.ask(["w.*"])
        assert feed.ended(iter(())).outcome == reload.DONE
        assert not ddls
        feed.kept.ask_repair([RepairKeys(TableName("w", "p"), ("id",), (("1",), ("2",), ("200",)))])
        assert feed.ended(iter(())).outcome == reload.DONE
        assert as_upstream(feed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "place"),
    crossed(
        {"sqlite": "sqlite", "files": "files"},
        {"planned": "refresh/plan-kept", "applied": "round/applied", "slice": "refresh/slice-done"},
    ),
)
def test_a_start_without_load_from(sink: str, place: str, tmp_path: Path) -> None:
    """Amid a reload the feed goes on, and says why that waits; with load-from it is done. A request without a plan ends
    by name."""
    with damaged(tmp_path / "feed", sink) as feed:
        feed.kept.ask(["w.*"])
        feed.may_die = lambda: (now := feed.kept.read()) is not None and now.slice is not None
        left = [place]
        with suppress(Died), armed({place: partial(feed.dies, left, place)}):
            for _ in range(60):
                finished(feed.config, feed.database.now(), feed.database)
        assert not left
        feed.loads = False
        feed.database.play([*Work(3).rows(9), "REPLACE INTO w.single VALUES (8)"])
        last = finished(feed.config, feed.database.now(), feed.database)
        assert [text for text in last.warnings if f"waits: {WITHOUT_ROWS}" in text]
        assert (("id", "8"),) in feed.tables()["w.single"]
        feed.loads = True
        assert feed.ended(Work(5).rows(60)).outcome == reload.DONE
        assert not feed.wrong()
        feed.loads = False
        feed.kept.ask(["w.*"])
        finished(feed.config, feed.database.now(), feed.database)
        assert "start it with load-from, and ask again" in (feed.kept.read() or Reload()).outcome


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["sqlite", "replica"])
def test_a_request_before_the_first_checkpoint(sink: str, tmp_path: Path) -> None:
    """With `load = never` load-from is for what is requested: a new feed loads those tables, and no other ones."""
    database = Database(tmp_path / "log")
    try:
        database.play((*TABLES, *Work(1).rows(40)))
        database.trim()
        servers = Servers("", SimpleNamespace(port=0), 0)  # type: ignore[arg-type]
        feed = Refreshed(Draw.of(0), sink, database, servers, tmp_path / "feed", begun=database.now(), mode="never")
        KeptReload(home_of(feed.config)).ask(["w.t"])
        assert feed.ended(Work(2).rows(9)).outcome == reload.DONE
        wrong = {text.partition(":")[0] for text in feed.wrong()}
        assert "w.t" not in wrong
        assert "w.parts" in wrong
    finally:
        database.close()


@pytest.mark.slow
def test_a_database_that_stays_away(tmp_path: Path) -> None:
    """Its slice is given up, and the feed goes on without its rows."""
    with loaded(tmp_path / "feed", "sqlite", ["CREATE TABLE w.t (id INT PRIMARY KEY)"]) as feed:
        source, part = source_of(feed.config), LoadPlan(7)
        assert isinstance(source, RefreshingSource)
        source._request, source._hold = source.requests.write(Reload(("w.*",), part, slice=part)), LoadGuard()
        assert source.refused(SourceError("the database is away"))
        assert feed.kept.read() == Reload(("w.*",), part)
        assert not source._is_open


@pytest.mark.slow
def test_what_is_read_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream keeps R of a slice until its rows are there; a slice that comes too late begins again at another
    R."""
    holds: list[int] = []

    class Hold(GcGuard):
        def __enter__(self) -> Any:
            holds.append(self._ts)
            if len(holds) < 3:
                raise StartBeforeGc(f"PD has collected {self._ts}")
            return super().__enter__()

        def restore(self) -> None:
            super().restore()
            holds.append(-self._ts)

    statements = "CREATE TABLE w.t (id INT PRIMARY KEY)", "INSERT INTO w.t VALUES (1)"
    with loaded(tmp_path / "feed", "sqlite", statements) as feed:
        monkeypatch.setattr(load_sql, "GcGuard", Hold)
        feed.kept.ask_repair([rows(1, 2, table=TableName("w", "t"))])
        assert feed.ended(iter(())).outcome == reload.DONE
    first, second, third, released = holds
    assert first < second < third == -released


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


READ = ("kafka://a:1/t?protocol=open-protocol", "http://a/", f"callback://{__name__}/rows")


@pytest.mark.parametrize(
    ("sink_uri", "kind", "reason"),
    [
        *((uri, "reload", "ask with `--resend`") for uri in READ),
        *((uri, "repair", "reload the table instead; readers") for uri in READ),
        *((uri, "resend", None) for uri in READ),
        *(("metrics://", kind, "^metrics, and") for kind in ("reload", "resend", "repair")),
        *(("redis://a/?mode=stream", kind, "mode=stream") for kind in ("reload", "resend", "repair")),
        ("redis://a/?mode=invalidate&invalidate-keys=t:{id}", "reload", "mode=invalidate"),
        ("redis://a/", "reload", None),
        ("redis://a/", "repair", None),
        ("file:///nowhere?protocol=csv", "repair", "reload it instead"),
        ("file:///nowhere?protocol=csv", "reload", None),
        ("mysql://root@m/", "repair", None),
    ],
)
def test_what_comes_again(sink_uri: str, kind: str, reason: str | None, tmp_path: Path) -> None:
    """Each sink takes a request, or says why not, and with what it does."""
    config = load_config(
        document_of({}),
        source_uri="kafka://b:1/changes?protocol=open-protocol",
        sink_uri=sink_uri,
        state_dir=tmp_path,
        load_from="mysql://root@a/",
    )
    asked = Reload(repairs=(rows(1),)) if kind == "repair" else Reload(rules=("w.*",), resend=kind == "resend")
    assert asked.kind == kind
    found = NOT_AGAIN.get((sink_of(config).brings_again, kind))
    assert found is None if reason is None else re.search(reason, found or "")


def test_resend_is_for_readers() -> None:
    """It is asked for where readers have had the rows, and nowhere else."""
    for sends in (False, True):
        check_resend(sends=sends, resend=sends)
        with pytest.raises(ConfigError, match="--resend"):
            check_resend(sends=sends, resend=not sends)


@contextmanager
def read(sink: str, home: Path, bootstrap: str = "") -> Iterator[Refreshed]:
    """A damaged feed into a sink whose readers have had what was sent."""
    servers = Servers(bootstrap, SimpleNamespace(port=0), 0)  # type: ignore[arg-type]
    with (
        receiving() as receiver,
        damaged(home, sink, servers, receiver=receiver if sink == "webhook" else None) as feed,
    ):
        yield feed


def resent(feed: Refreshed) -> None:
    """Rows that lack come by a resend, each at most twice though it dies amid a slice."""
    assert feed.lacking()
    feed.kept.ask(["w.*"])
    assert "--resend" in feed.ended(Work(8).rows(10)).outcome
    assert not feed.again()
    feed.kept.ask(["w.*"], resend=True)
    feed.may_die = lambda: bool(feed.again())
    assert feed.ended(Work(9).rows(60), ["round/applied"]).outcome == reload.DONE
    assert feed.died == ["round/applied"]
    assert not feed.lacking()
    assert set(feed.again().values()) == {1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["callback", "webhook"])
def test_a_resend(sink: str, tmp_path: Path) -> None:
    """Into a function and a receiver."""
    with read(sink, tmp_path / "feed") as feed:
        resent(feed)


@pytest.mark.slow
def test_a_resend_into_a_topic(bootstrap: str, tmp_path: Path) -> None:
    """Into a topic, whose readers write row over row."""
    with read("open-protocol", tmp_path / f"resent-{uuid4().hex}", bootstrap) as feed:
        resent(feed)


@pytest.mark.slow
def test_commands(tmp_path: Path) -> None:
    """`tidegate table reload` is refused where readers have had the rows, but with --resend; `status` tells the
    chunks."""
    with read("callback", tmp_path / "feed") as feed:

        def said(*words: str, code: int = 0) -> str:
            ran = CliRunner().invoke(main, ["table", words[0], home_of(feed.config), *words[1:]])
            assert ran.exit_code == code, ran.output
            return ran.output

        def save(progress: Progress) -> None:
            status_of(feed.config).save(progress)

        def run(times: int = 1) -> None:
            for _ in range(times):
                source, sink, until = source_of(feed.config), sink_of(feed.config), feed.database.now()
                run_here(source, sink, rules=feed.rules, until=until, report=save)

        def die() -> None:
            raise Died("refresh/slice-done")

        run()
        assert "ask with `--resend`" in said("reload", "w.*", code=1)
        assert said("status") == "no reload\n"
        said("reload", "w.*", "--resend")
        with pytest.raises(Died), armed({"refresh/slice-done": die}):
            run(9)
        assert re.search(r"reload of .*loading w\.\w+, \d+ of \d+ chunks, 0 of 8 tables", said("status"))
        assert json.loads(said("status", "--json"))["progress"]["chunks"] > 8
        assert feed.ended(Work(1).rows(6)).outcome == reload.DONE
        assert said("status").endswith(": done\n")
        assert not feed.lacking()
        said("add", "w.t")
        assert feed.kept.read() == Reload(("w.t",), resend=True)


@pytest.mark.slow
def test_its_progress(tmp_path: Path) -> None:
    """Reports tell the table and the chunks of a reload by slices, then the outcome."""
    reports: list[ReloadProgress] = []

    def report(progress: Progress) -> None:
        reports.extend(filter(None, [progress.reload]))

    with damaged(tmp_path / "feed", "sqlite") as feed:
        feed.kept.ask(["w.*"])
        while not reports or reports[-1].state != reload.DONE:
            assert len(reports) < 10_000
            source, sink, until = source_of(feed.config), sink_of(feed.config), feed.database.now()
            run_here(source, sink, rules=feed.rules, until=until, report=report)
    loads = [one.load for one in reports if one.load is not None]
    assert {one.state for one in reports} >= {"loading", "sweeping", reload.DONE}
    assert [load.chunks_done for load in loads] == sorted(load.chunks_done for load in loads)
    assert len({load.chunks_done for load in loads}) > 1
    assert all(load.chunks_done < load.chunks and load.table in RULES for load in loads)


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
    """Adds, reloads and repairs at random moments, with deaths, amid rows and DDLs: right behind each."""
    random, sink = Random(f"refresh {seed}"), ("sqlite", "search", "replica", "files", "changelog")[seed % 5]
    ddls = iter(random.sample(DDLS, len(DDLS)))
    added, moment = [] if sink == "files" else ADDED[seed % 2 :], random.randrange(2)
    with damaged(home, sink, rules=[name for name in RULES if name not in added]) as feed:
        for number in range(2):
            amid = chain(Work(seed + number).rows(8), islice(ddls, 1), Work(seed - number).rows(400))
            deaths = random.sample(PLACES, 2)
            if added and number == moment:
                feed.rules, deaths = RULES, random.sample([*RELOAD_FAILPOINTS] if sink in LAKES else PLACES, 1)
                feed.kept.ask(added)
            elif sink in LAKES or (sink != "files" and random.random() < 0.5):
                feed.kept.ask_repair(feed.keys())
            else:
                feed.kept.ask(random.choice([["w.*"], ["w.t", "w.parts", "w.other", "w.pairs"]]))
            assert feed.ended(amid, deaths).outcome == reload.DONE
        if sink == "files":
            feed.kept.ask(["w.*"])
        else:
            feed.kept.ask_repair(feed.keys())
        assert feed.ended(Work(seed).rows(400)).outcome == reload.DONE
        assert not feed.wrong(), feed.died


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.more) for seed in (1, 2))])
def test_a_seed(seed: int, tmp_path: Path) -> None:
    """A file, an index and a lake."""
    lived(seed, tmp_path / str(seed))


@pytest.mark.soak
def test_many_seeds(tmp_path: Path) -> None:
    """One that fails does not end the others."""
    assert not failures(lived, SEEDS, tmp_path)
