"""Functions as a sink: what they are called with, when, and what becomes of their errors."""

import pickle
from pathlib import Path

import pytest

from tests.contract.adapters import Journal
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.progress import Progress
from tidegate.model.errors import SinkError, SinkRefused
from tidegate.model.event import Ddl, Event, Resolved
from tidegate.sink.callback import Callback, CallbackSink
from tidegate.testing.script import Script, ScriptedSource, put, run_here
from tidegate.testing.validators import event_text


def story() -> Script:
    """A table, two transactions, a DDL between them."""
    one = Script()
    one.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    one.commit(put("shop.t", id=1, v="a"), put("shop.t", id=2, v="b"))
    one.resolve()
    one.ddl("shop.t", "ALTER TABLE shop.t COMMENT = 'x'")
    one.commit(put("shop.t", id=1, v="c"))
    one.resolve()
    return one


def run(home: Path, callback: Callback, script: Script | None = None) -> Progress:
    """One run of the functions."""
    return run_here(ScriptedSource(script or story()), CallbackSink(callback, DirectoryCheckpoints(home, "feed")))


def texts(events: list[Event]) -> list[str]:
    """Events in short."""
    return [f"resolved {event.ts}" if isinstance(event, Resolved) else event_text(event) for event in events]


def test_calls_come_in_order(tmp_path: Path) -> None:
    """Rows, then the DDL behind them, then the resolved ts of both; a restart calls nothing again."""
    script, journal = story(), Journal(tmp_path / "journal", "nothing")
    done = run(tmp_path, journal.callback(), script)

    create, first, second, comment, last = script.events
    marks = [Resolved(one.commit_ts or 0) for one in (create, comment, last)]
    assert texts(journal.read()) == texts([create, marks[0], first, second, comment, marks[1], last, marks[2]])
    assert (done.rows, done.messages_written, done.ddls) == (3, 2, 2)
    assert run(tmp_path, journal.callback(), script).resumed
    assert len(journal.read()) == 8


def test_ddl_and_resolved_may_be_left_out(tmp_path: Path) -> None:
    """A function for rows alone is enough."""
    journal = Journal(tmp_path / "journal", "nothing")
    run(tmp_path, Callback(journal.write))

    assert [type(event).__name__ for event in journal.read()] == ["Insert", "Insert", "Update"]


def refuse(_what: object) -> None:
    """A function that will never take it."""
    raise SinkRefused("not with me")


def fail(_what: object) -> None:
    """A function with a fault."""
    raise KeyError("v")


def test_an_error_says_where_it_was(tmp_path: Path) -> None:
    """Whatever a function raises is a SinkError with its name, table and commit_ts, and is tried again."""
    with pytest.raises(SinkError, match=r"callback fail: KeyError\('v'\)") as rows:
        run(tmp_path / "rows", Callback(fail))
    with pytest.raises(SinkError) as ddl:
        run(tmp_path / "ddl", Callback(print, ddl=fail))
    first, second = story().events[:2]
    assert (rows.value.where.table, rows.value.where.commit_ts) == ("shop.t", second.commit_ts)
    assert ddl.value.where.commit_ts == first.commit_ts


def test_an_error_that_will_not_pass_is_raised_at_once(tmp_path: Path) -> None:
    """A TidegateError of the function's own decides by itself whether it is tried again."""
    calls: list[Ddl] = []
    callback = Callback(refuse, ddl=calls.append)

    with pytest.raises(SinkRefused, match="not with me"):
        run(tmp_path, callback)
    assert len(calls) == 1


def test_the_function_travels(tmp_path: Path) -> None:
    """`write` reaches tasks by pickle; what cannot is told at once."""
    assert pickle.loads(pickle.dumps(Callback(fail).write)) is fail
    with pytest.raises((AttributeError, pickle.PicklingError)):
        run(tmp_path, Callback(lambda _: None))
