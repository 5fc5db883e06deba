"""F1's states as data: what a state allows, how operations are composed, and that a real TiDB goes the same way."""

import base64
import itertools
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tidegate.schema.stored.definition import ElementState
from tidegate_upstream import f1
from tidegate_upstream.f1 import (
    ACCESS,
    BY_ACTION,
    OPERATIONS,
    ElementKind,
    Operation,
    Step,
    Touch,
    Work,
    access,
    combine,
    interleave,
    next_step,
    rollback,
)

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "kv").glob("*.jsonl.xz"))
STREAMS = ("ddl", "interleave", "partition", "rename_swap", "types")
MULTI_SCHEMA = 61
DROP_FOREIGN_KEY = 10
NOT_OURS = {51, 53, 56, 57, 59, 68, 70}
"""Placement policies, cached tables, resource groups: TiCDC does not replicate them, and we have none."""
S = ElementState
P, WO, DO, WR, DR, N = S.PUBLIC, S.WRITE_ONLY, S.DELETE_ONLY, S.WRITE_REORG, S.DELETE_REORG, S.NONE


def state_of(operation: Operation, step: Step, role: str) -> ElementState:
    """Return the state of the element `role` at `step`."""
    names = [item.name for item in operation.roles]
    return step.states[names.index(role)]


def element_path(operation: Operation, role: str) -> tuple[ElementState, ...]:
    """Return the states that the element `role` goes through, each once in a row."""
    states = [state_of(operation, step, role) for step in operation.steps]
    return tuple(state for at, state in enumerate(states) if at == 0 or state is not states[at - 1])


def job_path(operation: Operation) -> tuple[ElementState, ...]:
    """Return the job's `schema_state` after each of its versions, each once in a row: what mysql.tidb_ddl_job shows."""
    states = [step.job for step in operation.steps[1:]]
    return tuple(state for at, state in enumerate(states) if at == 0 or state is not states[at - 1])


names = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


@cache
def recorded_jobs() -> tuple[tuple[dict[str, Any], ...], ...]:
    """Each recorded job as the contents of its row in mysql.tidb_ddl_job, one after the other."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for path in RECORDINGS:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in map(json.loads, file):
                if line.get("kind") == "ddl_job" and line["value_b64"]:
                    row = base64.b64decode(line["value_b64"])
                    text = row[row.index(b'{"id"') :].decode("utf-8", "replace")
                    job, _ = json.JSONDecoder().raw_decode(text)
                    found.setdefault((path.name, job["id"]), []).append(job)
    return tuple(tuple(rows) for rows in found.values())


def once(states: list[Any]) -> list[Any]:
    """The list without repeats of what stands just before."""
    return [state for at, state in enumerate(states) if at == 0 or state != states[at - 1]]


def test_recordings_are_there() -> None:
    """What follows speaks of recorded jobs of every stream, not of an empty directory."""
    assert {path.name.split(".")[0] for path in RECORDINGS} >= set(STREAMS)
    assert len(recorded_jobs()) > 200


def test_recorded_jobs_go_these_ways() -> None:
    """Each recorded job has the states of an operation here; only DROP FOREIGN KEY has a version less."""
    seen = set()
    for rows in recorded_jobs():
        action = rows[0]["type"]
        if action in NOT_OURS | {MULTI_SCHEMA}:
            continue
        states = once([row["schema_state"] for row in rows[1:]])
        seen.add(action)
        if action == DROP_FOREIGN_KEY:
            assert states == [N]
        else:
            assert tuple(states) in {job_path(operation) for operation in BY_ACTION[action]}, rows[0]["query"]

    assert len(seen) > 30


def test_recorded_multi_schema_changes_are_interleaved_so() -> None:
    """The sub-jobs of recorded multi-schema changes move together as `interleave` says, version by version."""
    jobs = [rows for rows in recorded_jobs() if rows[0]["type"] == MULTI_SCHEMA]
    for rows in jobs:
        subs = [row["multi_schema_info"]["sub_jobs"] for row in rows]
        parts = [BY_ACTION[sub["type"]][0] for sub in subs[0]]
        mine = [[part.steps[at].job for part, at in zip(parts, place, strict=True)] for place in interleave(parts)]

        assert once(mine) == once([[sub["schema_state"] for sub in line] for line in subs]), rows[0]["query"]
    assert len(jobs) >= 6


@names
def test_every_state_has_an_access(operation: Operation) -> None:
    """Whatever state an operation brings an element to, on the way there and back, it is said what it allows."""
    ways = [operation.steps, *operation.back]
    for step in (step for way in ways for step in way):
        assert len(step.states) == len(operation.roles)
        for role, state in zip(operation.roles, step.states, strict=True):
            access(role.kind, state)


@names
def test_elements_never_jump(operation: Operation) -> None:
    """An index or copy is delete-only before it is written, written before it is read, and unread before it is gone."""
    allowed = {
        (N, DO), (DO, WO), (WO, WR), (WR, P), (WO, P),
        (P, WO), (WO, DO), (DO, DR), (DR, N), (DO, N), (WO, N),
    }  # fmt: skip
    for role in operation.roles:
        if role.kind in {ElementKind.INDEX, ElementKind.COPY}:
            path = element_path(operation, role.name)
            assert set(itertools.pairwise(path)) <= allowed


@names
def test_ends(operation: Operation) -> None:
    """Work names roles of the operation, ways back end where the operation began, and the last step has no next."""
    roles = {role.name for role in operation.roles}
    last = len(operation.steps) - 1

    assert all(set(step.on) <= roles and bool(step.on) == (step.work is not Work.NOTHING) for step in operation.steps)
    assert all(way[-1].states == operation.steps[0].states for way in operation.back if way)
    assert len(operation.back) == operation.revertible + 1
    assert next_step(operation, last) is None
    assert rollback(operation, last) is None
    assert [next_step(operation, at) for at in range(last)] == list(range(1, last + 1))


def test_add_index() -> None:
    """ADD INDEX passes delete-only, write-only and write-reorg with backfill, and delete-only when cancelled."""
    path = element_path(f1.ADD_INDEX, "index")

    assert path == (N, DO, WO, WR, P)
    assert f1.ADD_INDEX.steps[3].work is Work.BACKFILL
    assert rollback(f1.ADD_INDEX, 0) == ()
    assert [step.job for step in rollback(f1.ADD_INDEX, 2) or ()] == [DO, DR, N]
    assert rollback(f1.ADD_INDEX, 4) is None


def test_old_column_is_written_to_the_last() -> None:
    """In a lossy MODIFY COLUMN the old column is written until it is gone; only its index is delete-only before."""
    lossy = f1.MODIFY_LOSSY

    assert element_path(lossy, "old column") == (P, WO, N)
    assert element_path(lossy, "old index") == (P, WO, DO, N)
    assert state_of(lossy, lossy.steps[-2], "new column") is P


def test_access() -> None:
    """Delete-only takes entries away and makes none; write-only makes them unread; a column is kept or filled."""
    index, column = ACCESS[ElementKind.INDEX], ACCESS[ElementKind.COLUMN]

    assert (index[DO].insert, index[DO].update, index[DO].delete) == (Touch.LEAVE, Touch.DROP, True)
    assert (index[WO].read, index[WO].insert) == (False, Touch.PUT)
    assert (column[DO].insert, column[DO].update) == (Touch.LEAVE, Touch.DROP)
    assert (column[WO].insert, column[WR].update) == (Touch.FILL, Touch.FILL)
    assert {
        state for state, allowed in ACCESS[ElementKind.TABLE].items() if allowed != access(ElementKind.TABLE, N)
    } == {P}
    with pytest.raises(KeyError):
        access(ElementKind.ATTRIBUTE, WO)


def test_a_lossy_change_of_type_ends_with_its_job() -> None:
    """Until the last version of a multi-schema change the old columns are written, of all that are changed."""
    parts = (f1.MODIFY_LOSSY, f1.DROP_INDEX, f1.MODIFY_LOSSY, f1.ADD_COLUMN)
    places = interleave(parts)
    old = [(parts[0].steps[place[0]].states[0], parts[2].steps[place[2]].states[0]) for place in places]

    assert places[-1] == tuple(len(part.steps) - 1 for part in parts)
    assert [place for place, states in zip(places, old, strict=True) if N in states] == [places[-1]]
    assert all(0 <= b - a <= 1 for one, other in itertools.pairwise(places) for a, b in zip(one, other, strict=True))


def test_multi_schema_change() -> None:
    """Parts go in turn up to where they can be taken back, past it all at once; the last begun goes back first."""
    both = combine("two", (f1.ADD_COLUMN, f1.ADD_INDEX))
    at_once = [at for at, step in enumerate(both.steps) if step.states == (P, P)]

    assert [role.name for role in both.roles] == ["1 column", "2 index"]
    assert both.steps[at_once[0] - 1].states == (WR, WR)
    assert both.steps[at_once[0] - 1].on == ("2 index",)
    assert [step.states for step in both.back[4]] == [(WR, DO), (WR, DR), (WR, N), (DO, N), (DR, N), (N, N)]
    assert both.back[4][-1].on == ("2 index",)
