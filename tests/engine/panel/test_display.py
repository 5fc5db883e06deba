"""A display suits its stream: JSON, lines, or a panel that follows the size of its terminal."""

import io
from dataclasses import replace
from threading import Event

import pytest

from tests.engine.test_progress import BUSY, TS
from tests.terminal import terminal
from tidegate.engine.display import FeedPanel, Rates, display
from tidegate.engine.panel import RunningDdl
from tidegate.engine.progress import Progress
from tidegate.engine.reading import CaptureProgress, DdlJob
from tidegate.model.tso import physical_ms

SCRIPT = """
import logging, sys
from dataclasses import replace
from threading import Event
from tests.engine.test_progress import BUSY
from tidegate.engine.display import FeedPanel, display
logging.basicConfig()
stop = Event()
with display(FeedPanel("shop", "source", "sink"), stop, json=False, color=True, out=sys.stdout, err=sys.stderr) as show:
    for rows, word in enumerate(sys.stdin):
        show(replace(BUSY, rows=1_000 + rows))
        logging.warning("got %s", word.strip())
        if rows:
            stop.set()
"""


def feed() -> FeedPanel:
    """That of a changefeed."""
    return FeedPanel("shop", "tidb:///log?x=y", "delta:///lake", clock=lambda: 0.0)


def test_display_suits_the_stream() -> None:
    """JSON goes to stdout, lines go to stderr where that is no terminal."""
    out, err = io.StringIO(), io.StringIO()
    with display(feed(), Event(), json=True, color=True, out=out, err=err) as show:
        show(BUSY)
    assert out.getvalue().startswith("{")
    assert not err.getvalue()
    with display(feed(), Event(), json=False, color=False, out=out, err=err) as show:
        show(BUSY)
    assert err.getvalue().startswith("warning: a\n")


def test_a_rate_is_of_the_last_seconds() -> None:
    """Values that come in quick succession are one; a counter that begins anew has no negative rate."""
    rates = Rates()
    for now_s, rows in ((0.0, 0), (0.5, 50), (2.0, 100), (3.0, 130), (4.0, 10)):
        rates.add(now_s, {"rows": rows})
    assert rates.of("rows") == (50.0, 30.0, 0.0)
    assert rates.of("other") == ()


def test_the_panel_of_a_feed() -> None:
    """Its stages have rates and lags of now, those furthest behind come first, and a DDL moves to those done."""
    shown = feed()
    shown.show(BUSY)
    shown.panel(now_ms=physical_ms(TS) + 1_000)
    shown.show(
        replace(
            BUSY,
            ddl=None,
            ddls=BUSY.ddls + 1,
            elapsed_s=14.3,
            capture=CaptureProgress(waits_for="a job"),
            rows=1_234_120,
        )
    )
    panel = shown.panel(now_ms=physical_ms(TS) + 3_000)
    assert [(stage.name, stage.lag_ms) for stage in panel.stages] == [
        ("tidb:///log", 3_000),
        ("→ changelog", 3_000),
        ("→ delta:///lake", 3_000),
    ]
    assert panel.stages[2].rates == pytest.approx((60.0,))
    assert [table.name for table in panel.tables[:2]] == ["shop.table_00", "shop.table_01"]
    assert not panel.ddls
    assert [(ddl.name, round(ddl.seconds, 3)) for ddl in panel.done] == [(BUSY.ddl, 2.0)]
    assert "capture: a job" in panel.notes


def test_time_passes_between_reports() -> None:
    """How long a feed and its DDL run is as of the drawing, not of the last report."""
    now_s = 100.0
    shown = FeedPanel("shop", "tidb:///log", "delta:///lake", clock=lambda: now_s)
    shown.show(Progress("running", elapsed_s=2.0, ddl="DROP TABLE a"))
    now_s += 30
    panel = shown.panel(now_ms=0)
    assert "· 32 s ·" in panel.title
    assert [ddl.seconds for ddl in panel.ddls] == [30.0]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("running", "normal"), "stopping (waits for the round in flight)"),
        (Progress("running", "normal", ddl="DROP TABLE a"), "stopping (waits for the DDL in flight)"),
        (Progress("running", "warning", waits_for="Spark"), "stopping (waits for Spark)"),
        (Progress("starting"), "stopping (waits for the start in flight)"),
        (Progress("stopping", "warning"), "stopping"),
        (Progress("stopped", "failed"), "failed"),
    ],
)
def test_a_stop_is_seen_at_once(progress: Progress, words: str) -> None:
    """Between a stop and the end of the round no report comes, and the panel says what the stop waits for."""
    shown = feed()
    shown.show(progress)
    assert shown.panel(0, stops=True).title.split(" · ")[1] == words


def test_a_ddl_that_is_given_up_is_not_done() -> None:
    """A feed that fails or stops in front of a DDL does not show it among those that are done."""
    shown = feed()
    shown.show(BUSY)
    shown.show(replace(BUSY, ddl=None, phase="stopped"))
    panel = shown.panel(now_ms=physical_ms(TS))
    assert (panel.ddls, panel.done) == ((), ())


def test_ddls_that_run_upstream_are_in_flight() -> None:
    """They are shown with their states, beside the one that the sink executes."""
    shown = feed()
    job = DdlJob("ALTER TABLE a ADD INDEX i (v)", "write-only", TS)
    shown.show(Progress("running", ddl="DROP TABLE b", jobs=(job,)))
    panel = shown.panel(now_ms=physical_ms(TS) + 2_500)
    assert panel.nodes == ("upstream",)
    assert panel.ddls == (RunningDdl("DROP TABLE b", 0.0, ("done",)), RunningDdl(job.query, 2.5, ("write-only",)))


def test_what_does_not_land_has_two_stages() -> None:
    """Rows that go straight into the sink have no changelog on their way."""
    shown = feed()
    shown.show(Progress("running", rows=7))
    assert [stage.total for stage in shown.panel(now_ms=0).stages] == [0, 7]


@pytest.mark.slow
def test_a_terminal_gets_a_panel_that_fits() -> None:
    """It is as large as the terminal, also after that was resized; what is logged is a part of it, and that it stops
    before a report says so; the last report and the log stay on the first screen."""
    with terminal(80, 24, "-c", SCRIPT) as shown:
        shown.enter("one")
        lines = shown.frame("got one", 80)
        assert len(lines) == 24
        assert lines[0].startswith("shop · running")
        shown.resize(101, 33)
        assert len(shown.frame("got one", 101)) == 33
        shown.enter("two")
        assert any("1,001 rows" in line for line in shown.frame("got two", 101))
        shown.frame("shop · stopping (waits for", 101)
        assert shown.program.stdin
        shown.program.stdin.close()
        while shown.read():
            pass
        after = shown.text.rpartition("\x1b[?1049l")[2]
        assert after.index("WARNING:root:got one") < after.index("WARNING:root:got two") < after.index("1,001 rows")
    assert "\x1b[31m" not in shown.text


@pytest.mark.slow
@pytest.mark.parametrize(("environ", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["", "NO_COLOR"])
def test_colors_are_off_where_asked(environ: dict[str, str], *, is_colored: bool) -> None:
    """NO_COLOR leaves no color; a DDL in flight is yellow otherwise."""
    with terminal(80, 24, "-c", SCRIPT, **environ) as shown:
        shown.enter("one")
        shown.frame("got one", 80)
        assert ("\x1b[33m" in shown.text) == is_colored


@pytest.mark.slow
def test_a_terminal_without_a_cursor_gets_lines() -> None:
    """TERM=dumb has lines, as a pipe has."""
    with terminal(80, 24, "-c", SCRIPT, TERM="dumb") as shown:
        shown.enter("one")
        while "got one" not in shown.text:
            shown.read()
        assert "warning: a" in shown.text
        assert "\x1b" not in shown.text
