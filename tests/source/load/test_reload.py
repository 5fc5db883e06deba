"""`tidegate table add` and `tidegate table reload`: tables of a lake are loaded beside the feed, amid DDLs and deaths.

    a log that begins above rows ──► a lake that lacks them ──► reload: killed, storms ──► equal at ten moments

SEEDS=0-9 pytest -m "" tests/source/load/test_reload.py -k many     some of the soak's 100
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from tests.counts import crossed
from tests.failpoint import RELOAD_FAILPOINTS, armed
from tests.source.load.feeds import LAKES, MOMENTS, TABLES, Database, Draw, Feed, Work, failures, finished
from tidegate.cli.main import main
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of, load
from tidegate.config.registry import sink_of, source_of, status_of
from tidegate.engine import reload
from tidegate.engine.load import WITHOUT_ROWS, LoadingSource
from tidegate.engine.load_plan import KeptPlan, LoadPlan
from tidegate.engine.loop import Engine
from tidegate.engine.reload import KeptReload, Reload
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, HistoryLost, SourceError, TidegateError
from tidegate.model.table import TableName
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest
from tidegate.source.load_sql import SqlReader
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import run_here

PLACES = (*RELOAD_FAILPOINTS, "load/rows-read", "load/files-written")
LIVES = ("publish/before-schema", "publish/after-snapshot", "round/applied", "apply/rows-committed")
WAITING = {
    "planned": "reload/plan-kept",
    "parked": "reload/parked",
    "written": "load/files-written",
    "caught": "reload/loaded",
}
SEEDS = 100


class Reloaded(Feed):
    """A lake of a log that begins above rows; `rules` are those of its filter."""

    rules: Sequence[str] = ("w.*",)
    begun: int = 0
    more: str = ""

    @property
    def root(self) -> str:
        """The lake."""
        return str(self.home / "lake")

    @property
    def config(self) -> FeedConfig:
        """As `tidegate run` has it; a reload needs `load-from`, which loads nothing else."""
        return load(
            document_of({"force-replicate": True}),
            source_uri=f"tidb://{self.database.log}",
            sink_uri=f"delta://{self.root}?mode={self.sink}{self.more}",
            rules=[*self.rules],
            name="reloaded",
            load_from=self.database.address if self.loads else None,
            start_ts=None if self.loads else self.begun,
        )

    def ended(
        self, amid: Iterator[str], deaths: Sequence[str] = (), deeds: Mapping[str, Callable[[], None]] | None = None
    ) -> Reload:
        """Follow the log until the reload has ended, each life killed at one of `deaths` if it comes there, with some
        statements between and, in the middle of it, within."""
        left = list(deaths)
        for _ in range(60):
            self.database.play(few(amid))
            with suppress(Died), armed({**(deeds or {}), **{name: self._killing(left, name) for name in left[:1]}}):
                finished(self.config, self.database.now(), self.database)
            found = KeptReload(self.root).read()
            if found is not None and found.outcome and not left:
                return found
            left = left[1:] if found is not None and found.outcome else left
        raise AssertionError(f"{found} has not ended")

    def dying(self, place: str) -> None:
        """Follow the log until it dies there."""
        left = [place]
        with suppress(Died), armed({place: self._killing(left, place)}):
            for _ in range(60):
                finished(self.config, self.database.now(), self.database)
        assert not left

    def _killing(self, left: list[str], name: str) -> Callable[[], None]:
        def die() -> None:
            if left and left[0] == name:
                self.died.append(left.pop(0))
                raise Died(name)

        return die


def few(amid: Iterator[str]) -> list[str]:
    """The next statements."""
    return [*islice(amid, 12)]


@contextmanager
def rows(home: Path) -> Iterator[Database]:
    """An upstream with rows."""
    home.mkdir(exist_ok=True)
    made = Database(home / "log")
    try:
        made.play((*TABLES, *Work(1).rows(60)))
        made.trim()
        yield made
    finally:
        made.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An upstream with rows."""
    with rows(tmp_path) as made:
        yield made


def begun(database: Database, home: Path, sink: str = "replica", rules: Sequence[str] = ("w.*",)) -> Reloaded:
    """Return a feed that has followed the log for a while, and lacks rows."""
    feed = Reloaded(Draw.of(0), sink, database, None, home, loads=False)  # type: ignore[arg-type]
    feed.rules, feed.begun = rules, database.now()
    database.play(Work(2).rows(20))
    finished(feed.config, database.now(), database)
    feed.loads = True
    return feed


def same(feed: Reloaded, before: Sequence[int] = ()) -> None:
    """Follow to the end, where the lake equals the upstream, and a replica at moments behind the swap."""
    end = feed.database.now()
    finished(feed.config, end, feed.database)
    assert not feed.unlike(end), feed.died
    for ts in before if feed.sink == "replica" else ():
        assert not feed.unlike(ts, feed.at(ts)), (ts, feed.died)


def storms(seed: int) -> Iterator[str]:
    """Rows and DDLs of all tables, without an end."""
    work = Work(seed)
    while True:
        yield from work.rows(4)
        yield from work.storm()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task a chunk, and no pause between looks for a request."""
    monkeypatch.setattr(reload, "CHUNKS_A_SLOT", 1)
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    monkeypatch.setattr(reload, "AGAIN_S", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("sink", LAKES)
def test_every_table(sink: str, database: Database, tmp_path: Path) -> None:
    """All get the rows that they lack, amid DDLs; a second reload does it again, and nothing is left of either."""
    feed = begun(database, tmp_path, sink)
    assert not Lake(feed.root).arrow("w.single").num_rows
    amid = storms(3)
    for seed in (3, 4):
        KeptReload(feed.root).ask(["w.*"])
        assert feed.ended(amid).outcome == reload.DONE
        same(feed)
        database.play(Work(seed).rows(9))
    same(feed)
    assert not latest(DeltaOptions(root=feed.root, feed="")).parked


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_death(place: str, database: Database, tmp_path: Path) -> None:
    """At each place of a reload it goes on where it stood."""
    feed = begun(database, tmp_path)
    KeptReload(feed.root).ask(["w.*"])
    assert feed.ended(storms(5), [place]).outcome == reload.DONE
    assert feed.died == [place]
    same(feed)


@pytest.mark.slow
def test_rounds_go_on_while_it_is_planned(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass S', which a group of no table keeps; a death then takes S' anew, and the next life loads at that."""
    feed, plan, work, moments = begun(database, tmp_path), SqlReader.plan, Work(10), list[int]()

    def late(reader: SqlReader, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:
        until_s, options = time.monotonic() + 60, DeltaOptions(root=feed.root, feed="")
        moments.append(ts or 0)
        while not ((now := latest(options)).parked and now.checkpoint.ts > moments[-1] == now.parked[0].checkpoint.ts):
            assert time.monotonic() < until_s
            database.play((*work.rows(3), *work.storm()))
            database.now()
            time.sleep(0.2)  # the rounds need the processor
        return plan(reader, selects, ts)

    def die() -> None:
        raise Died("reload/planned")

    monkeypatch.setattr(SqlReader, "plan", late)
    KeptReload(feed.root).ask(["w.*"])
    for deed in (die, lambda: None):
        with suppress(Died), armed({"reload/planned": deed}):
            run_here(source_of(feed.config), sink_of(feed.config), rules=feed.rules)
    assert len({*moments}) == 2
    found = KeptReload(feed.root).read()
    assert found is not None
    assert found.outcome == reload.DONE
    assert found.plan is not None
    assert found.plan.ts == moments[-1]
    same(feed)


@pytest.mark.slow
def test_a_source_that_fails_meanwhile(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again while chunks are read, which stay."""
    feed, failures, restart = begun(database, tmp_path), list[SourceError](), Engine.restart_source
    restarted = threading.Event()

    def restart_source(engine: Engine, failure: TidegateError) -> None:
        failures.clear()
        restart(engine, failure)
        restarted.set()

    def fail() -> None:
        if not restarted.is_set():
            failures.append(SourceError("the log is away"))
            assert restarted.wait(60)

    monkeypatch.setattr(LoadingSource, "failure", lambda _: failures[0] if failures else None)
    monkeypatch.setattr(Engine, "restart_source", restart_source)
    KeptReload(feed.root).ask(["w.*"])
    assert feed.ended(storms(6), deeds={"load/rows-read": fail}).outcome == reload.DONE
    assert restarted.is_set()
    same(feed)


@pytest.mark.slow
def test_commands(database: Database, tmp_path: Path) -> None:
    """`tidegate table reload`, `add` and `status` of a lake: what is asked for, how far it is, and the outcome."""
    feed = begun(database, tmp_path, rules=("w.*", "!w.keyless", "!w.t"))

    def said(*words: str, code: int = 0) -> str:
        ran = CliRunner().invoke(main, ["table", words[0], feed.root, *words[1:]])
        assert ran.exit_code == code, ran.output
        return ran.output

    def told() -> dict[str, Any]:
        document = json.loads(said("status", "--json"))
        assert isinstance(document, dict)
        return document

    def die() -> None:
        raise Died("reload/loaded")

    def run() -> None:
        sink, report = sink_of(feed.config), lambda now: status_of(feed.config).save(now)
        run_here(source_of(feed.config), sink, rules=feed.rules, report=report)

    assert said("status") == "no reload\n"
    for words in ((), ("w.t", "--all")):
        assert "expected table names, or --all" in said("reload", *words, code=2)
    elsewhere = CliRunner().invoke(main, ["table", "add", "mysql://root@127.0.0.1:1/", "w.t"])
    assert "mysql:// keeps no request" in elsewhere.output
    assert "w.parts will be loaded when the changefeed runs" in said("reload", "w.parts")
    assert said("status") == "reload of w.parts: waits for the feed\n"
    with pytest.raises(Died), armed({"reload/loaded": die}):
        run()
    assert "not done yet" in said("add", "w.t", code=1)
    assert said("status").startswith("reload of w.parts at ts 4")
    assert "loading w.parts, 0 of 2 chunks, 0 of 1 tables, 0%, S 20" in said("status")
    assert {"tables": ["w.parts"], "outcome": ""}.items() <= told().items()
    assert {"chunks": 2, "chunks_done": 0}.items() <= told()["progress"].items()
    database.now()
    run()
    assert said("status").endswith(": done\n")
    assert (told()["outcome"], told()["progress"]) == (reload.DONE, None)
    said("add", "w.t")
    feed.rules = ("w.*", "!w.keyless")
    run()
    database.now()
    run()
    assert said("status").endswith(": done\n")
    assert "w.t" in Lake(feed.root).tables()


@pytest.mark.slow
@pytest.mark.more
def test_on_spark(spark: Any, database: Database, tmp_path: Path) -> None:
    """Chunks are read and written by tasks of a session that the rounds share."""
    feed = begun(database, tmp_path)
    KeptReload(feed.root).ask(["w.*"])
    for _ in range(2):
        run_here(source_of(feed.config), sink_of(feed.config), rules=feed.rules, tasks=SparkTasks(spark))
        database.now()
    found = KeptReload(feed.root).read()
    assert found is not None
    assert found.outcome == reload.DONE
    same(feed)


def lived(seed: int, home: Path) -> None:
    """A reload of some and all tables into a lake, with two deaths, amid storms: equal behind it. For odd seeds S'
    is the log's end, so that rounds come there while the tables are planned."""
    random = Random(f"reload {seed}")
    with rows(home) as database, pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(SqlReader, "newest_ts", lambda _: database.writer.low)
        feed = begun(database, home, LAKES[seed % len(LAKES)])
        amid = storms(seed)
        for rules in random.choice([[["w.*"]], [["w.t", "w.parts", "w.other"], ["w.*"]]]):
            KeptReload(feed.root).ask(rules)
            assert feed.ended(amid, random.sample([*PLACES, *LIVES], 2)).outcome == reload.DONE
        moments = []
        for _ in range(MOMENTS):
            database.play(islice(amid, 5))
            moments.append(database.now())
        same(feed, moments)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.more) for seed in (1, 2))])
def test_a_seed(seed: int, tmp_path: Path) -> None:
    """The modes of a lake take turns."""
    lived(seed, tmp_path / str(seed))


@pytest.mark.soak
def test_many_seeds(tmp_path: Path) -> None:
    """One that fails does not end the others."""
    assert not failures(lived, SEEDS, tmp_path)


@pytest.mark.slow
def test_a_table_that_is_added(database: Database, tmp_path: Path) -> None:
    """It was left out by the filter: with a filter that takes it, it waits for its rows, and the others go on."""
    feed = begun(database, tmp_path, rules=("w.*", "!w.keyless", "!w.t", "!w.parts"))
    KeptReload(feed.root).ask(["w.t", "w.parts"])
    database.play(Work(6).rows(9))
    waits = finished(feed.config, database.now(), database)
    assert [text for text in waits.warnings if "the filter takes" in text]
    feed.rules = ("w.*", "!w.keyless")
    database.play(["INSERT INTO w.t (id, v) VALUES (1000, 'new')", "DELETE FROM w.parts", *Work(7).rows(20)])
    assert feed.ended(Work(8).rows(60), ["load/files-written"]).outcome == reload.DONE
    end = database.now()
    finished(feed.config, end, database)
    wrong = {text.partition(":")[0] for text in feed.unlike(end)}
    assert "w.single" in wrong
    assert wrong.isdisjoint({"w.t", "w.parts"})


@pytest.mark.slow
def test_a_reload_that_fails(database: Database, tmp_path: Path) -> None:
    """Without a database, with rows that are gone, or beside another one: the tables stay as they were."""
    feed = begun(database, tmp_path, rules=("w.*", "!w.keyless"))
    before = feed.tables()
    feed.loads = False
    for rules in (["w.other"], ["w.t"]):  # nothing is planned yet, so the later one stands
        KeptReload(feed.root).ask(rules)
    kept = KeptReload(feed.root)
    request = kept.read()
    assert request == Reload(("w.t",))
    kept.write(Reload(("w.t",), LoadPlan(1)))
    with pytest.raises(ConfigError, match="not done yet"):
        KeptReload(feed.root).ask(["w.other"])
    kept.write(request)
    assert "load-from" in feed.ended(iter(())).outcome
    feed.loads = True

    def lost() -> None:
        raise HistoryLost("S is gone")

    KeptReload(feed.root).ask(["w.t"])
    assert "S is gone" in feed.ended(iter(()), deeds={"load/rows-read": lost}).outcome
    finished(feed.config, database.now(), database)
    assert feed.tables() == before
    assert not latest(DeltaOptions(root=feed.root, feed="")).parked


@pytest.mark.slow
@pytest.mark.parametrize(("place", "begins"), crossed(WAITING, {"begun": False, "loaded": True}))
def test_a_start_without_load_from(place: str, database: Database, tmp_path: Path, *, begins: bool) -> None:
    """Amid a reload the tables stay as they were, the feed goes on and says why the reload waits, whether it began with
    a load or not; with load-from it is done."""
    feed = begun(database, tmp_path)
    if begins:
        KeptPlan(feed.root).write(LoadPlan(1, done=True))
    KeptReload(feed.root).ask(["w.*"])
    feed.dying(place)
    feed.loads = False
    database.play([*Work(11).rows(9), "INSERT INTO w.single VALUES (8)"])
    last = finished(feed.config, database.now(), database)
    assert [text for text in last.warnings if f"waits: {WITHOUT_ROWS}" in text]
    assert Lake(feed.root).arrow("w.single").to_pylist() == [{"id": 8}]
    feed.loads = True
    assert feed.ended(Work(12).rows(60)).outcome == reload.DONE
    same(feed)


@pytest.mark.slow
def test_a_request_is_read_once(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake's feed has two parts that look for requests: together they read the file once an interval."""
    feed, read, reads = begun(database, tmp_path), KeptReload.read, list[str]()
    monkeypatch.setattr(reload, "LOOK_S", 3600.0)
    monkeypatch.setattr(KeptReload, "read", lambda kept: (reads.append(""), read(kept))[1])
    database.play(Work(3).rows(9))
    run_here(source_of(feed.config), sink_of(feed.config), until=database.now(), rules=feed.rules)
    assert len(reads) == 1


@pytest.mark.slow
def test_a_table_that_is_tied_to_a_parked_one(database: Database, tmp_path: Path) -> None:
    """It is not swapped alone, since the other one is behind; both together are, and nothing is parked any more."""
    feed = begun(database, tmp_path)
    feed.more = "&table-error=park&schema-change=exception"
    database.play(["ALTER TABLE w.other ADD COLUMN c INT", "ALTER TABLE w.other DROP COLUMN c"])
    finished(feed.config, database.now(), database)
    KeptReload(feed.root).ask(["w.parts"])
    swaps = iter(["SELECT 1", "ALTER TABLE w.parts EXCHANGE PARTITION p WITH TABLE w.other"])
    finished(feed.config, database.now(), database)
    assert "w.other" in feed.ended(swaps).outcome
    KeptReload(feed.root).ask(["w.*"])
    assert feed.ended(Work(9).rows(30)).outcome == reload.DONE
    assert not latest(DeltaOptions(root=feed.root, feed="")).parked
    same(feed)
