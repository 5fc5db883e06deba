"""The live demo: the whole chain is right at every chosen timestamp, and a difference would be told."""

import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.server.http_kit import Client
from tidegate.cli.main import main
from tidegate.engine.panel import ComparedTable
from tidegate.lakes.lake import Lake
from tidegate.objectstore import deltalog
from tidegate.server.application import application
from tidegate.source.tidb_segment import SegmentLog
from tidegate.verify.compare import Difference, TableReport
from tidegate_upstream.demo.live import (
    LiveDemo,
    LiveOptions,
    MomentReport,
    Verdict,
    choose,
    compare_at,
    compare_merged,
    compare_view,
    ddl_line,
    moment_lines,
    table_lines,
    truth_at,
    verdict_line,
    verdict_of,
)
from tidegate_upstream.demo.panel import PanelTeller, compared_tables
from tidegate_upstream.demo.served import served_feeds
from tidegate_upstream.demo.upstream import DdlReport, DdlStep, NotedTs, WorkPace


def test_choice_of_timestamps():
    """The last note is kept, kinds of DDL in their middle come first, the others fill up, in order of time."""
    plain = [NotedTs(ts, "in between") for ts in range(0, 100, 10)]
    middles = [NotedTs(ts, "x", f"kind {ts % 3}", "write only") for ts in range(1, 100, 10)]
    direct = [NotedTs(ts, "x", f"other {ts % 2}", "public") for ts in range(2, 100, 10)]
    last = NotedTs(1000, "end")

    found = choose([*direct, *plain, last, *middles], 12)

    assert len(found) == len(set(found)) == 12
    assert found == sorted(found)
    assert found[-1] == last
    assert {note.kind for note in found} == {"", "kind 0", "kind 1", "kind 2", "other 0"}
    assert choose([last], 12) == [last]
    assert choose([last, *plain], 5)[-1] == last
    assert len(choose([last, *plain], 5)) == 5


def report(ts, balance=40_000, **tables):
    """All tables at a timestamp, each with so many differences."""
    found = (TableReport(name, 3, (Difference("extra row", (1,)),) * wrong) for name, wrong in tables.items())
    return MomentReport(NotedTs(ts, "noon", "add index", "write only"), tuple(found), balance)


def test_verdict():
    """All equal, or which tables differ; a wrong sum of balances and an empty comparison are no success."""
    fine = [report(1 << 60, a=0, b=0), report(2 << 60, a=0)]

    assert verdict_line(verdict_of(fine, 1)) == "all 2 tables equal at 2 timestamps"
    assert verdict_line(verdict_of(fine, 2)) == "all 2 tables equal at 2 timestamps in 2 lakes"
    assert verdict_of([*fine, report(3, b=2)], 1) == Verdict(False, 2, 3, 1, ("b",))
    assert verdict_line(verdict_of([*fine, report(3, b=2)], 1)) == "1 of 2 tables differ: b"
    assert not verdict_of([*fine, report(3, 39_999, a=0)], 1).equal
    assert not verdict_of([], 1).equal
    assert table_lines([*fine, report(3, b=1)])[1] == "b: different at 1, equal at 1 at 2 timestamps, 3 to 3 rows"
    assert "1 of 1 tables differ" in moment_lines(report(3, b=7))[0]
    assert len(moment_lines(report(3, b=7))) == 1 + 1 + 5


def test_line_of_a_ddl():
    """States with the versions of the nodes; a state of several versions is told once."""
    steps = tuple(DdlStep(state, (at, at - 1)) for at, state in enumerate(("delete only", "public", "public"), 8))

    assert ddl_line(DdlReport("add index", "shop.a", "ALTER", steps, 0.25, 9)) == (
        "add index shop.a: delete only 8/7, public x2 10/9; 0.2 s, 9 commits meanwhile"
    )


@pytest.mark.parametrize(
    ("verdict", "status"), [(Verdict(True, 1, 1, 1), 0), (Verdict(False, 1, 1, 1), 1), (None, 130)]
)
def test_exit_status(tmp_path, monkeypatch, verdict, status):
    """0 for equal, 1 for a difference, 130 when it was stopped."""
    monkeypatch.setattr(LiveDemo, "play", lambda _: verdict)

    assert CliRunner().invoke(main, ["demo", "--json", "--dir", str(tmp_path / "here")]).exit_code == status


def test_a_table_of_comparisons():
    """A row a table, with its outcome at each timestamp; where it did not exist it has none."""
    reports = [report(1 << 60, a=0, b=0), report(2 << 60, a=1), report(3 << 60, b=0)]
    assert compared_tables(reports) == (
        ComparedTable("a", 3, (True, False, None)),
        ComparedTable("b", 3, (True, None, True)),
    )


class Watcher(PanelTeller):
    """A panel that nobody draws; it looks at the page's feeds while they run."""

    def __init__(self) -> None:
        super().__init__(color=False)
        self.frames, self.states, self.written = [], [], []

    def write(self, text: str) -> None:
        """Keep a line."""
        self.written.append(text)

    def look(self, run: LiveDemo) -> None:
        """Take a frame, and the states of the changefeeds from the server."""
        self.frames.append(self.panel(run))
        page = next(line for line in self.frames[0].notes if line.startswith("page: "))
        address, token = page.removeprefix("page: http://").split("/#token=")
        answer = Client(address, Authorization=f"Bearer {token}").get("/changefeeds")
        self.states.append({feed["id"]: feed["state"] for feed in answer.json["items"]})


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A small demo of one protocol in a server, after its work, still open, and its reports."""
    home, teller = tmp_path_factory.mktemp("demo"), Watcher()
    options, server = LiveOptions(home, 7, WorkPace(48, 8.0, 0.01)), partial(served_feeds, application)
    with LiveDemo(options, ("canal-json",), threading.Event(), teller, server=server) as run:
        run.start()
        teller.look(run)
        run.work()
        teller.look(run)
        run.catch_up()
        reports = list(run.compare())
        teller.look(run)
        yield run, reports
    assert not run.scratch.exists()


@pytest.mark.slow
def test_its_panel(played):
    """It has the way from commits to the lake, each DDL that is done, and in the end all comparisons; lines that the
    panel shows are not written."""
    run, reports = played
    first, worked, last = run.tell.frames
    assert [stage.name for stage in worked.stages] == ["upstream", "→ canal topic", "→ changelog", "→ canal lake"]
    assert worked.stages[0].total == run.upstream.commits > 0
    assert all(stage.total > 0 for stage in last.stages)
    assert len(worked.done) == 30
    assert not first.done
    assert {len(table.outcomes) for table in last.compared} == {len(reports)} == {last.timestamps}
    assert {outcome for table in last.compared for outcome in table.outcomes} <= {True, None}
    assert not any("commits meanwhile" in line for line in run.tell.written)


@pytest.mark.slow
def test_its_server(played):
    """The changefeeds run in a server, whose page is told first; they rest while they are compared."""
    run, _ = played
    assert run.tell.frames[0].notes[0].startswith("page: http://127.0.0.1:")
    assert run.tell.states[:2] == [{"canal-topic": "normal", "canal-lake": "normal"}] * 2
    assert run.tell.states[2] == {"canal-topic": "stopped", "canal-lake": "stopped"}


@pytest.mark.slow
def test_everything_is_equal(played):
    """Every DDL of the scripts was done, and every table is the same at each of at least ten timestamps, of which some
    lie in the middle of a DDL; there were rows to compare."""
    run, reports = played

    verdict = verdict_of(reports, 1)
    assert verdict_line(verdict).startswith("all "), [moment_lines(one) for one in reports if not one.equal]
    assert verdict.timestamps >= 10
    assert run.upstream.refused_ddls == []
    assert len({one.kind for one in run.upstream.reports}) > 20
    assert sum(one.note.state in {"delete only", "write only", "write reorganization"} for one in reports) >= 3
    assert min(sum(table.rows for table in one.tables) for one in reports) > 100
    assert all(len(step.versions) == 3 for one in run.upstream.reports for step in one.steps)


@pytest.mark.slow
def test_it_begins_with_a_load(played):
    """The log lacks the upstream's first rows; the lake has them as of S, its first snapshot, and all else follows."""
    run, reports = played
    (chain,) = run.chains
    assert not SegmentLog(run.log).begin().whole
    assert chain.load is not None
    assert chain.load.is_done
    assert 0 < SegmentLog(run.log).begin().ts < chain.load.ts < min(one.note.ts for one in reports)
    assert min(one.checkpoint_ts for one in Lake(str(chain.lake)).history()) >= chain.load.ts


@pytest.mark.slow
def test_a_wrong_timestamp_is_found(played):
    """The lake at one timestamp is not the upstream at another, between which a row changed."""
    run, reports = played
    session = run.upstream.session(1)
    first, last = reports[0].note, reports[-2].note

    with Lake(str(run.chains[0].lake)).at(first.ts).live() as view:
        assert not compare_view(truth_at(session, last.ts), view, first).equal
        assert compare_view(truth_at(session, first.ts), view, first).equal


@pytest.mark.slow
def test_a_wrong_row_is_found(played):
    """One value changed in a data file of the lake is a difference of that row, column and table, at once."""
    run, _ = played
    root, session = str(run.chains[0].lake), run.upstream.session(2)
    uri, version = Lake(root).location("bank.accounts")
    stored = deltalog.load(uri, version)
    assert stored is not None
    path = Path(uri.removeprefix("file://")) / stored.files()[0].path
    before, rows = path.read_bytes(), pq.read_table(path)
    place = next(at for at, kind in enumerate(rows.schema.types) if pa.types.is_string(kind))
    values = rows.column(place).to_pylist()
    changed = pa.array(["somebody else", *values[1:]], rows.schema.types[place])
    pq.write_table(rows.set_column(place, rows.schema.field(place), changed), path)
    try:
        merged = compare_merged(session, root)
    finally:
        path.write_bytes(before)

    wrong = [table for table in merged.tables if not table.equal]
    assert [(table.name, len(table.differences)) for table in wrong] == [("bank.accounts", 1)]
    assert (wrong[0].differences[0].kind, wrong[0].differences[0].column) == ("value", "owner")
    assert not verdict_of([merged], 1).equal
    assert compare_at(session, root, merged.note).equal
