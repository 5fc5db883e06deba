"""The recorded shop as a changelog and as a history: both tell TiDB's state at every recorded moment, past ones too."""

import random
from functools import partial
from pathlib import Path

import pytest

from tests.counts import SOAK
from tests.replay import stage as stages
from tests.replay.stage import Crash, Stage, moments, partitions_of
from tests.verify.one_table import compare
from tidegate.lakes.lake import Lake
from tidegate.model.table import TableInfo
from tidegate.schema.effects import TableTruncated
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.delta.apply import state_at
from tidegate.sink.delta.options import DeltaOptions
from tidegate.verify.local import Truth, TruthTable, compare_tables, load_truth

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
PROTOCOLS = {"open": "open-protocol", "open_table": "open-protocol", "canal": "canal-json", "canal_table": "canal-json"}
TRUTHS = load_truth(WORKLOAD)
SLOW = pytest.mark.slow

Past = tuple[Truth, dict[str, TableInfo]]
"""A moment and the definitions that its tables had."""


@pytest.fixture(params=["history", pytest.param("changelog", marks=[SLOW, pytest.mark.more])])
def mode(request, monkeypatch) -> str:
    """The mode in which the stages of a test write."""
    monkeypatch.setattr(stages, "DeltaOptions", partial(DeltaOptions, mode=request.param))
    return request.param


def definitions(lake: Lake) -> dict[str, TableInfo]:
    return {name.lower(): lake.definition(name) for name in lake.tables()}


def present(root: Path, truth: Truth) -> list[str]:
    """Where the newest state differs from the truth, tables and columns included."""
    lake = Lake(str(root))
    return [str(one) for one in compare_tables(truth, lake.tables(), lake.arrow) if not one.equal]


def heirs(stage: Stage) -> dict[str, str]:
    """The incarnations that a TRUNCATE ended, and those that go on with their past."""
    state, found, last, seq = SchemaState(), {}, 0, 0
    for placed in stage.log.ddls(0, 1 << 62):
        seq = seq + 1 if placed.ddl.commit_ts == last else 1
        last = placed.ddl.commit_ts
        state, effects = apply_ddl(state, placed.ddl, seq)
        found |= {one.old.incarnation: one.new.incarnation for one in effects if isinstance(one, TableTruncated)}
    return found


def past(lake: Lake, moment: Past, heirs: dict[str, str]) -> list[str]:
    """Where the lake's rows of a past moment differ from TiDB's of then.

    A later lake cannot be asked for tables that are gone, and for columns that are gone or have another type."""
    truth, then = moment
    now = {table.incarnation: table for table in definitions(lake).values()}
    found = []
    for name, expected in truth.tables.items():
        old = then[name.lower()]
        incarnation = old.incarnation
        while incarnation not in now and incarnation in heirs:
            incarnation = heirs[incarnation]
        new = now.get(incarnation)
        if new is None:
            continue
        same = {
            one.name: other.name
            for one in old.columns
            for other in new.columns
            if (one.id, one.type) == (other.id, other.type) and not other.virtual
        }
        rows = state_at(lake.arrow(str(new.name)), new.handle_key, truth.ts)
        places = [at for at, column in enumerate(expected.columns) if column.name in same]
        kept = TruthTable(
            tuple(one for one in expected.key if one in same),
            tuple(expected.columns[at] for at in places),
            [tuple(row[at] for at in places) for row in expected.rows],
        )
        rows = rows.select(list(same.values())).rename_columns(list(same))
        found += [f"{name} at {truth.n}: {one}" for one in compare(kept, rows)]
    return found


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param("open", marks=SLOW),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("canal", "open_table", "canal_table")),
    ],
)
@pytest.mark.usefixtures("mode")
def test_every_moment_is_told_later_too(tmp_path, recording):
    """At all twelve moments the lake tells TiDB's rows of that moment, and in the end those of every earlier one."""
    stage = Stage(tmp_path, PROTOCOLS[recording], partitions_of(WORKLOAD / recording), seed=1)
    seen: list[Past] = []

    for truth in moments(stage, TRUTHS):
        assert present(tmp_path, truth) == [], truth.n
        lake = Lake(str(tmp_path))
        seen.append((truth, definitions(lake)))
        if truth.n == 12 or (SOAK and truth.n in {5, 9}):
            assert [one for moment in seen for one in past(lake, moment, heirs(stage))] == [], truth.n


@SLOW
@pytest.mark.parametrize(("recording", "seed"), [pytest.param("open", 1, marks=pytest.mark.soak), ("canal", 2)])
def test_killed_again_and_again_nothing_is_told_twice(tmp_path, mode, recording, seed):
    """Killed at random places, the tables are row for row what an undisturbed run writes."""
    messages, last = partitions_of(WORKLOAD / recording), TRUTHS[-1]
    chance = random.Random(seed)
    lives = 0

    def crash(_place: str) -> None:
        if chance.random() < 0.06:
            raise Crash

    while True:
        lives += 1
        stage = Stage(tmp_path / "killed", PROTOCOLS[recording], messages, seed=seed * 1000 + lives)
        stage.crash = crash
        try:
            more = True
            while stage.sink.snapshot.checkpoint.ts < last.ts:
                more = more and stage.land(chance.choice([300, 3000]))
                stage.round(last.ts)
            break
        except Crash:
            continue
    calm = Stage(tmp_path / "calm", PROTOCOLS[recording], messages)
    while calm.land(1 << 20):
        pass
    calm.round(last.ts)

    assert lives > 2
    one, other = Lake(str(tmp_path / "killed")), Lake(str(tmp_path / "calm"))
    assert one.tables() == other.tables()
    for name in one.tables():
        rows, expected = (sorted(map(str, lake.arrow(name).to_pylist())) for lake in (one, other))
        assert expected == rows, (mode, name)


@SLOW
def test_a_live_view_is_ahead_of_what_is_stored(tmp_path, mode):
    """What has landed and is not applied stands in the live view as it will stand in the tables, DDLs included."""
    stage = Stage(tmp_path, PROTOCOLS["open"], partitions_of(WORKLOAD / "open"))
    while stage.land(1 << 20):
        pass
    stage.round(TRUTHS[8].ts)
    lake = Lake(str(tmp_path))

    with lake.at(TRUTHS[11].ts).live() as view:
        reports = list(compare_tables(TRUTHS[11], view.tables(), view.arrow))
        live = {name: sorted(map(str, view.arrow(name).to_pylist())) for name in view.tables()}
    stage.round(TRUTHS[11].ts)
    lake = Lake(str(tmp_path))

    assert [str(report) for report in reports if not report.equal] == [], mode
    assert live == {name: sorted(map(str, lake.arrow(name).to_pylist())) for name in lake.tables()}
