"""Tables that are compared by tasks: parts of a side have the sums of all of it."""

import json
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.lakes.stages import WORKLOAD, Play, truths
from tests.mariadb import Server
from tests.verify.shop import filled, now_ts, stand, verified
from tests.verify.test_servers import address, passes, sides
from tidegate.cli.main import main
from tidegate.cli.sink import session_of
from tidegate.engine.ports import LocalTasks
from tidegate.verify import compare as comparison
from tidegate.verify.compare import ComparedTable, TableReader, compare_sides, part_sums
from tidegate.verify.database import upstream_at
from tidegate.verify.local import lake_at
from tidegate.verify.sums import ChunkPlan

pytestmark = pytest.mark.slow
COUNT = 3


def shared(side: TableReader, shape: ComparedTable) -> int:
    """The number of parts of a table, whose sums, joined, are those of the whole."""
    columns = tuple(column.name.lower() for column in shape.columns if column.generated != "virtual")
    plan = ChunkPlan(columns, tuple(name.lower() for name in shape.key), 5)
    parts = side.parts(shape, COUNT)
    if parts:
        first, *others = LocalTasks().run(partial(part_sums, shape, plan, 0), parts)
        for other in others:
            first.join(other)
        assert first.rows.sum() > 0 or not side.count(shape)
        assert not first.different(side.sums(shape, plan))
    return len(parts)


def test_servers(upstream: Server, mariadb: Server) -> None:
    """A TiDB at a ts, and a server that is read as it is now, are shared by ranges of a key of one whole number; other
    tables are not, nor is a replica at the moment at which its feed was held."""
    filled(upstream)
    filled(mariadb)
    ts = now_ts(upstream)
    upstream.run("DELETE FROM shop.kinds")
    stand(mariadb, ts)
    for server in (upstream, mariadb):
        with closing(session_of(address(server))) as session:
            side = upstream_at(session, ts, passes)
            counts = {name: shared(side, shape) for name, shape in side.tables.items()}
            assert side.whole == ""
            assert min(counts["shop.kinds"], counts["shop.customers"]) > 1
            assert counts["shop.visits"] == counts["shop.names"] == 0
    with sides(upstream, mariadb, ts) as (_, held):
        assert "one connection" in held.whole
        assert {held.parts(shape, COUNT) for shape in held.tables.values()} == {()}


@pytest.mark.parametrize(
    "mode", ["replica", *(pytest.param(mode, marks=pytest.mark.more) for mode in ("history", "changelog"))]
)
def test_lakes(tmp_path: Path, mode: str) -> None:
    """A snapshot is shared by files, unless changes of a table have to be folded; a live view is not."""
    play = Play(tmp_path / "lake", mode=mode)
    for truth in truths()[:3]:
        play.land(truth.ts)
        play.merge(truth.ts)
    play.land(truths()[4].ts)
    with lake_at(str(tmp_path / "lake"), None, lambda *_: True) as (side, _):
        counts = [shared(side, shape) for shape in side.tables.values()]
        assert side.whole == ""
        assert (max(counts) > 1) is (mode != "changelog")
    with lake_at(str(tmp_path / "lake"), truths()[4].ts, lambda *_: True) as (side, _):
        assert side.whole
        assert not any(side.parts(shape, COUNT) for shape in side.tables.values())


def test_one_comparison(upstream: Server, mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference is found by tasks, too, and is the same; each job is one of a side that can be shared."""
    monkeypatch.setattr(comparison, "SHARED_CHUNKS", 0)
    filled(upstream)
    filled(mariadb)
    stand(mariadb, now_ts(upstream))
    mariadb.run("UPDATE shop.customers SET name = 'bo' WHERE id = 2")
    tasks = LocalTasks(2)
    with sides(upstream, mariadb, None) as both:
        found = {report.name: list(map(str, report.differences)) for report in compare_sides(*both, tasks=tasks)}
    assert found.pop("shop.customers") == ["row (2) column name: expected 'bob', found 'bo'"]
    assert set(map(tuple, found.values())) == {()}
    assert tasks.jobs > 3


@pytest.mark.more
def test_spark(tmp_path: Path, upstream: Server, mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --master the tables are shared by tasks of Spark; which side is not, and why, is said."""
    monkeypatch.setattr(comparison, "SHARED_CHUNKS", 0)
    ts = truths()[0].ts
    play = Play(tmp_path / "lake")
    play.land(ts)
    play.merge(ts)
    words = ["verify", str(tmp_path / "lake"), "--upstream", str(WORKLOAD), "--at", "1", "--json", "--filter", "bank.*"]
    done = CliRunner().invoke(main, [*words, "--master", "local[2]"])
    assert (done.exit_code, json.loads(done.stdout.splitlines()[-1])["equal"]) == (0, True), done.output
    assert "the recording: read by this process alone, as it is read in one pass" in done.stderr
    filled(upstream)
    filled(mariadb)
    stand(mariadb, now_ts(upstream))
    said = verified(mariadb, address(upstream), "--master", "local[2]", "--filter", "shop.customers")
    assert (said.status, said.wrong) == (0, {})
    assert "read by this process alone, as its snapshot is that of one connection" in said.error
