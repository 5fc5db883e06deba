"""`ddl-ts=commit`: DDLs where SQL shows them, and a replica that equals SQL in the middle of every DDL."""

import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.log_source import log_source
from tests.source.tidb.kit import changes, write_log
from tests.source.tidb.kit import recorded_log as another_log
from tests.source.tidb.modify_recording import END, Shown, ddls, recorded_log, truths
from tests.source.tidb.test_log_source import walked
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.kv.rows import decode_row
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.model.event import Update
from tidegate.model.kv_change import KvOp
from tidegate.schema.job import decode_job_row
from tidegate.sink.callback import Callback, CallbackSink
from tidegate.sink.sqlite import FEED, SqliteSink
from tidegate.source.tidb_ddl import JOBS
from tidegate.source.tidb_segment import WHOLE, SegmentLog, put_safe_point, safe_points
from tidegate.source.tidb_states import ShownLog, Switch
from tidegate.testing.script import run_here


def shown_log(log: Path) -> ShownLog:
    """A log whose DDLs come where SQL shows them."""
    return ShownLog(SegmentLog(log))


def difference(file: Path, name: str, shown: Shown) -> list[object]:
    """The rows of a table that are only in the file or only in SQL's answer; virtual columns are not stored."""
    with closing(sqlite3.connect(file)) as connection:
        stored = [column[1] for column in connection.execute(f'PRAGMA table_info("md.{name}")')]
        wanted = [column for column in shown.columns if column in stored]
        assert len(shown.columns) - len(wanted) == (name == "t09")
        chosen = ", ".join(f'"{column}"' for column in wanted)
        rows = connection.execute(f'SELECT {chosen} FROM "md.{name}"')
        mine = Counter(tuple(map(text, row)) for row in rows)
    places = [shown.columns.index(column) for column in wanted]
    expected = Counter[tuple[str | None, ...]]()
    for values, count in shown.rows.items():
        expected[tuple(values[place] for place in places)] += count
    return [*(mine - expected).elements(), *(expected - mine).elements()]


def text(value: object) -> str | None:
    """A value of SQLite or of a lake as SQL returned it, without a fraction of a second that is zero."""
    if isinstance(value, datetime):
        plain = value.replace(tzinfo=None)
        return plain.isoformat(" ", "milliseconds" if plain.microsecond else "seconds")
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def switches(log: Path) -> set[int]:
    """The timestamps at which a MODIFY that rewrites rows becomes visible."""
    whole = shown_log(log)
    list(whole.rows(whole.begin().ts, whole.parts(0)[-1].high, (JOBS,)))
    return {switch.ts for switch in rewriting(whole)}


def rewriting(log: ShownLog) -> list[Switch]:
    """The switches of a MODIFY."""
    return [switch for switch in log.switches if isinstance(switch, Switch)]


@pytest.mark.slow
@pytest.mark.parametrize("step", [320, pytest.param(1, marks=pytest.mark.soak)])
def test_a_replica_equals_sql_inside_ddls(tmp_path, step):
    """Stopped and started anew at each timestamp (of `step`), a replica holds what SQL returned there, rows that have a
    value of their own where a MODIFY rewrites rows too."""
    log, file, compared = recorded_log(tmp_path / "log"), tmp_path / "replica.db", 0
    for number, truth in enumerate(truths()):
        if number % step:
            continue
        run_here(log_source(shown_log(log)), SqliteSink(str(file), "one"), until=truth.ts)
        for name, shown in truth.tables.items():
            if name != "t11":  # it has no key, and SQLite leaves it out
                assert not difference(file, name, shown), (truth.name, truth.ts, name)
                compared += 1
    assert compared >= 900 // step


@pytest.mark.slow
def test_no_checkpoint_without_rows_of_a_ddl(tmp_path):
    """Where a MODIFY rewrites rows, those with a value of their own come between the DDL and the next resolved
    timestamp; a log that ends at the DDL shows what is below it."""
    log = recorded_log(tmp_path / "log", cuts=switches(recorded_log(tmp_path / "whole")))
    late, seen = switches(log), list[tuple[str, int]]()
    callback = Callback(
        lambda batch: seen.extend(("row", ts) for ts in batch.commit_ts.to_pylist()),
        lambda ddl: seen.append(("ddl", ddl.commit_ts or 0)),
        lambda ts: seen.append(("resolved", ts)),
    )
    sink = CallbackSink(callback, DirectoryCheckpoints(tmp_path, "one"))
    run_here(log_source(shown_log(log)), sink, tasks=LocalTasks(pickles=False))

    assert len(late) == 19
    assert late <= {ts for kind, ts in seen if kind == "ddl"}
    assert not late & {ts for kind, ts in seen if kind == "resolved"}
    for ts in late & {ts - 1 for kind, ts in seen if kind == "row"}:
        behind = seen[seen.index(("ddl", ts)) :]
        first = next(at for kind, at in behind if kind == "resolved" and at >= ts)
        assert behind.index(("row", ts + 1)) < behind.index(("resolved", first))

    last = max(late)
    for path in log.glob("*.seg"):
        if int(path.stem.partition("-")[2]) > last:
            path.unlink()
    lake = tmp_path / "lake"
    feed = Changefeed(f"tidb://{log}", f"delta://{lake}", state_dir=tmp_path / "state")
    assert feed.run(tasks=LocalTasks(), idle_s=0).checkpoint_ts == last - 1


@pytest.mark.slow
@pytest.mark.parametrize("step", [300, pytest.param(1, marks=pytest.mark.soak)])
def test_a_lake_equals_sql_inside_ddls(tmp_path, step):
    """The same of a lake, but for what a lake stores otherwise: a zero date is NULL there, and a table without a key a
    log of changes."""
    log, lake, compared = recorded_log(tmp_path / "log"), tmp_path / "lake", 0
    for number, truth in enumerate(truths()):
        if number % step:
            continue
        feed = Changefeed(f"tidb://{log}?ddl-ts=commit", f"delta://{lake}", state_dir=tmp_path / "state")
        feed.run(tasks=LocalTasks(), until=truth.ts)
        for name, shown in truth.tables.items():
            if name == "t11":
                continue
            stored = Lake(str(lake)).arrow(f"md.{name}")
            columns = [column for column in shown.columns if column in stored.column_names]
            assert len(shown.columns) - len(columns) == (name == "t09")
            mine = Counter(tuple(map(text, row)) for row in zip(*map(to_list(stored), columns), strict=True))
            places = [shown.columns.index(column) for column in columns]
            expected = Counter[tuple[str | None, ...]]()
            for values, count in shown.rows.items():
                expected[tuple(of_lake(values[place]) for place in places)] += count
            assert mine == expected, (truth.name, truth.ts, name)
            compared += 1
    assert compared >= 900 // step


def to_list(stored: Any) -> Callable[[str], list[object]]:
    """The values of a column by its name."""
    return lambda name: stored.column(name).to_pylist()


def of_lake(value: str | None) -> str | None:
    """A value of SQL as a lake has it."""
    return None if value is None or value.startswith("0000-00-00") else value.removesuffix(".000")


@pytest.mark.slow
def test_jobs_come_where_sql_shows_them(tmp_path):
    """Each DDL that succeeded comes once, in order, at the commit of one of its versions, a MODIFY that rewrites rows
    before its job's finish; a failed or cancelled one never comes."""
    log = shown_log(recorded_log(tmp_path / "log"))
    rows = list(log.rows(log.begin().ts, log.parts(0)[-1].high, (JOBS,)))
    jobs = {decode_job_row(row.key, row.value or b"").id: row.commit_ts for row in rows}
    succeeded = [ddl for ddl in ddls() if ddl["ok"] and ddl["jobs"]]

    assert list(jobs) == [job for ddl in succeeded for job in ddl["jobs"]]
    early = 0
    for ddl in succeeded:
        versions = [int(ts) for ts, _ in ddl["versions"]]
        ts = jobs[ddl["jobs"][0]]
        assert ts in versions
        early += ts < versions[-1]
    assert early > 25
    assert len({switch.ts for switch in rewriting(log)}) == len(rewriting(log)) == 19


@pytest.mark.slow
def test_old_values_of_rows_with_a_value_of_their_own(tmp_path):
    """They are what the DDL makes of the row: another value only where the DDL's session and the row's writer have
    different time zones."""
    log = shown_log(recorded_log(tmp_path / "log"))
    list(log.rows(log.begin().ts, END, (JOBS,)))
    names = {int(ts): ddl["name"] for ddl in ddls() for ts, _ in ddl["versions"]}
    same, other = Counter[str](), Counter[str]()
    for switch in rewriting(log):
        of_ddl = (row for row in log.rows(switch.ts, switch.ts + 1, ((b"t", b"u"),)) if not row.start_ts)
        for row in of_ddl:
            before, after = (decode_row(switch.layout, row.key, value) for value in (row.old_value, row.value))
            (same if before.columns == after.columns else other)[names[switch.ts]] += 1

    assert set(other) == {"datetime-timestamp", "datetime3-timestamp3"}, other
    assert same.total() > 100


@pytest.mark.parametrize("stream", ["partition", "ddl", "interleave", "rename_swap"])
def test_ddls_are_those_of_finished_jobs(tmp_path, stream):
    """From another log come the same DDLs in the same order, none later; the same rows, and those that a MODIFY rewrote
    in addition, with old values that are the new ones."""
    log = another_log(tmp_path / "log", stream)
    finished, shown = walked(log_source(log)), walked(log_source(shown_log(log)))
    pairs = list(zip(finished.ddls, shown.ddls, strict=True))
    assert [replace(one.ddl, commit_ts=0, session=None) for one, _ in pairs] == [
        replace(other.ddl, commit_ts=0, session=None) for _, other in pairs
    ]
    times = [(one.ddl.commit_ts or 0, other.ddl.commit_ts or 0) for one, other in pairs]
    assert all(later >= earlier for later, earlier in times)
    assert any(later > earlier for later, earlier in times)
    after_ddls = {earlier + 1 for _, earlier in times}
    rewritten = [row for row in shown.rows if row not in finished.rows]
    assert [row for row in shown.rows if row not in rewritten] == finished.rows
    assert all(isinstance(row, Update) and row.before == row.after for row in rewritten)
    assert {row.commit_ts for row in rewritten} <= after_ddls
    assert bool(rewritten) == (stream == "interleave")


@pytest.mark.parametrize("stream", ["ddl", "rename_swap"])
def test_a_log_without_keys_of_the_schema(tmp_path, stream):
    """Its DDLs come where their jobs finish, as they are, and none waits for what ends its job."""
    rows = [row for row in changes(stream) if not row.key.startswith(b"m")]
    rows = [row for row in rows if row.op is KvOp.PUT or not JOBS[0] <= row.key < JOBS[1]]
    log = write_log(tmp_path / "log", rows)
    finished, shown = walked(log_source(log)), walked(log_source(shown_log(log)))
    assert (shown.ddls, shown.rows) == (finished.ddls, finished.rows)
    assert finished.ddls


SHRINK = next(ddl for ddl in ddls() if ddl["name"] == "varchar-shrink-lax")
"""A MODIFY that rewrites rows; its versions are write-only, write-reorg, public, .., done."""
REORG_TS, SHOWN_TS, FINISH_TS = (int(SHRINK["versions"][step][0]) for step in (2, 3, -1))


def uris(log: Path, state: Path, ddl_ts: str) -> dict[str, str]:
    """The addresses of a changefeed, which is told nothing where `ddl_ts` is empty."""
    told = f"?ddl-ts={ddl_ts}" if ddl_ts else ""
    return {"source_uri": f"tidb://{log}{told}", "sink_uri": f"sqlite://{state}.db"}


def run(log: Path, state: Path, ddl_ts: str = "") -> int:
    """Run a changefeed to the end of the log; return its rows."""
    config = load(**uris(log, state, ddl_ts), state_dir=state)
    return Engine(feed_of(config), LocalTasks(), Meter(lambda _: None), NoPauseEvent()).run(idle_s=0).rows


FEED_PROCESS = """
import sys
from tidegate.config.changefeed import Changefeed
from tidegate.engine.ports import LocalTasks
Changefeed(*sys.argv[1:3], state_dir=sys.argv[3]).run(tasks=LocalTasks())
"""


def killed(log: Path, state: Path, ddl_ts: str, at: int) -> None:
    """Run a changefeed in a process of its own, which gets SIGKILL when it is at a timestamp."""
    program, end_s = [sys.executable, "-c", FEED_PROCESS], time.monotonic() + 60
    with subprocess.Popen([*program, *uris(log, state, ddl_ts).values(), str(state)]) as process:
        try:
            while checkpoint(state) < at:
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.02)
        finally:
            process.kill()


def checkpoint(state: Path) -> int:
    """The timestamp that a changefeed has in its file; 0 before it has one."""
    try:
        with closing(sqlite3.connect(f"file:{state}.db?mode=rw", uri=True)) as connection:
            return int(connection.execute(f"SELECT ts FROM {FEED}").fetchone()[0])
    except (sqlite3.OperationalError, TypeError):
        return 0


def stored(state: Path, name: str) -> list[tuple[object, ...]]:
    """The rows of a table in a changefeed's file."""
    with closing(sqlite3.connect(f"{state}.db")) as connection:
        return sorted(connection.execute(f'SELECT * FROM "md.{name}"'), key=str)


def chosen(log: Path, state: Path) -> str:
    """The ddl-ts in the safe point of a changefeed."""
    (ddl_ts,) = (point.ddl_ts for point in safe_points(log) if f"-{state.name}-" in point.changefeed)
    return ddl_ts


@pytest.fixture
def grow(tmp_path: Path) -> Callable[[int], Path]:
    """A function that lets a log grow to a timestamp around a MODIFY, and returns the log."""
    whole = recorded_log(tmp_path / "whole", cuts=(REORG_TS + 9, SHOWN_TS + 9, FINISH_TS))
    log = tmp_path / "log"
    log.mkdir()

    def grown(upto: int) -> Path:
        for path in whole.iterdir():
            if path.suffix == WHOLE or int(path.stem.partition("-")[2]) <= upto:
                path.rename(log / path.name)
        return log

    return grown


def equals_sql(state: Path) -> None:
    """Tables that later DDLs changed, too, are those of SQL at the end."""
    *_, end = truths()
    assert end.name == "ALL-end"
    for name in ("t12", "t13", "t14", "t15", "t16"):
        assert not difference(Path(f"{state}.db"), name, end.tables[name]), name


@pytest.mark.more
@pytest.mark.slow
def test_a_killed_feed_changes_to_commit(tmp_path, grow):
    """SIGKILL amid a MODIFY that SQL does not show yet: it goes on with ddl-ts=commit, and loses nothing. Once SQL
    shows the change, which its former ddl-ts has not sent, it is refused until it is beyond the job's finish."""
    early, late = tmp_path / "early", tmp_path / "late"
    log = grow(REORG_TS + 9)
    killed(log, early, "finish", REORG_TS + 9)
    run(log, early, "commit")
    grow(SHOWN_TS + 9)
    killed(log, late, "finish", SHOWN_TS + 9)
    before = stored(late, "t05")
    for upto in (SHOWN_TS + 9, FINISH_TS):
        grow(upto)
        with pytest.raises(ConfigError, match=r"ddl-ts cannot be changed now.*v3 varchar\(12\).*finished"):
            run(log, late, "commit")
        assert stored(late, "t05") == before
    killed(log, late, "finish", FINISH_TS)
    run(log, late, "finish")
    run(log, late, "commit")
    grow(END)
    for state in (early, late):
        assert run(log, state) > 0
        assert chosen(log, state) == "commit"
        equals_sql(state)


@pytest.mark.more
@pytest.mark.slow
def test_a_feed_changes_back_to_finish(tmp_path, grow):
    """While the log has a DDL beyond it that SQL shows before its job finishes, it is refused, as the DDL would come
    twice or not at all; then it works, and keeps finish."""
    log, state = grow(SHOWN_TS + 9), tmp_path / "feed"
    run(log, state)
    assert chosen(log, state) == "commit"
    with pytest.raises(ConfigError, match=rf"ddl-ts cannot be changed now.*at {SHOWN_TS + 9}.*has not finished"):
        run(log, state, "finish")
    grow(FINISH_TS)
    with pytest.raises(ConfigError, match=rf"ddl-ts cannot be changed now.*finished at {FINISH_TS}"):
        run(log, state, "finish")
    run(log, state)
    run(log, state, "finish")
    grow(END)
    assert run(log, state) > 0
    assert chosen(log, state) == "finish"
    finishes = tmp_path / "finishes"
    run(log, finishes, "finish")
    for name in ("t12", "t13", "t14", "t15", "t16"):
        assert stored(state, name) == stored(finishes, name)


@pytest.mark.slow
def test_a_feed_from_before_keeps_finish(tmp_path, grow):
    """A changefeed that ran before there was a choice, or that has a checkpoint and no safe point, has ddl-ts=finish
    until it is told otherwise; without a checkpoint it is new."""
    log, state = grow(REORG_TS + 9), tmp_path / "feed"
    run(log, state, "finish")
    (file,) = (log / "feeds").iterdir()
    put_safe_point(log, file.stem, checkpoint(state), 0)
    assert chosen(log, state) == ""
    run(log, state)
    assert chosen(log, state) == "finish"
    file.unlink()
    run(log, state)
    assert chosen(log, state) == "finish"
    grow(SHOWN_TS + 9)
    run(log, state)
    file.unlink()
    with pytest.raises(ConfigError, match="ddl-ts cannot be changed now"):
        run(log, state)
    run(log, state, "finish")
    Path(f"{state}.db").unlink()
    file.unlink()
    run(log, state)
    assert chosen(log, state) == "commit"
