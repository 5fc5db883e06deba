"""The table of what a state allows is neither too strict nor too lax, as far as the checker can tell."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.correct import BASIC
from tests.upstream.model_checker.checker.pairs import PAIRS, Pair, coexist
from tests.upstream.model_checker.checker.report import BLOCKS
from tests.upstream.model_checker.checker.scenario import run, run_mixed
from tests.upstream.model_checker.test_correct import in_document
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import ACCESS, OPERATIONS, ElementKind, Operation, Touch

S, K = ElementState, ElementKind
ORPHAN, INTEGRITY = AnomalyKind
BY_NAME = {scenario.name: scenario for scenario in BASIC}
Case = tuple[ElementKind, ElementState, dict[str, object], str, AnomalyKind]
LEFT: list[Case] = [
    (K.INDEX, S.DELETE_ONLY, {"delete": False}, "add index", ORPHAN),
    (K.INDEX, S.DELETE_ONLY, {"update": Touch.LEAVE}, "add index", ORPHAN),
    (K.INDEX, S.DELETE_ONLY, {"insert": Touch.PUT}, "add index", ORPHAN),
    (K.INDEX, S.DELETE_ONLY, {"read": True}, "add index", INTEGRITY),
    (K.INDEX, S.WRITE_ONLY, {"read": True}, "add index", INTEGRITY),
    (K.INDEX, S.WRITE_ONLY, {"delete": False}, "drop index", ORPHAN),
    (K.INDEX, S.WRITE_ONLY, {"insert": Touch.LEAVE}, "drop index", INTEGRITY),
    (K.INDEX, S.WRITE_REORG, {"insert": Touch.LEAVE}, "add index", INTEGRITY),
    (K.INDEX, S.WRITE_REORG, {"update": Touch.DROP}, "add index", INTEGRITY),
    (K.COLUMN, S.WRITE_REORG, {"update": Touch.DROP}, "add column", INTEGRITY),
    (K.COLUMN, S.WRITE_ONLY, {"insert": Touch.LEAVE}, "drop column with its index", INTEGRITY),
    (K.COLUMN, S.WRITE_ONLY, {"insert": Touch.LEAVE}, "modify column, new bytes", ORPHAN),
    (K.CONSTRAINT, S.WRITE_REORG, {"insert": Touch.LEAVE}, "add check constraint", INTEGRITY),
    (K.CONSTRAINT, S.WRITE_ONLY, {"read": True}, "modify column, null to not null", INTEGRITY),
    (K.CONSTRAINT, S.WRITE_ONLY, {"insert": Touch.LEAVE}, "create table with foreign key", INTEGRITY),
    (K.COPY, S.DELETE_ONLY, {"delete": False}, "reorganize partition", ORPHAN),
    (K.COPY, S.WRITE_REORG, {"update": Touch.LEAVE}, "reorganize partition", ORPHAN),
    (K.COPY, S.WRITE_ONLY, {"insert": Touch.LEAVE}, "reorganize partition", INTEGRITY),
    (K.COPY, S.WRITE_REORG, {"read": True}, "reorganize partition", INTEGRITY),
]


@pytest.mark.parametrize("case", LEFT, ids=lambda case: f"{case[0].value}-{case[1].label}-{case[2]}-{case[3]}")
def test_each_part_is_needed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thing changed in what a state allows, an operation that passed comes to an anomaly."""
    kind, state, change, name, expected = case
    monkeypatch.setitem(ACCESS[kind], state, replace(ACCESS[kind][state], **change))
    found = run(BY_NAME[name]).anomaly

    assert found is not None
    assert found.kind is expected


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.scenario.name)
def test_coexist(pair: Pair) -> None:
    """Two states get on with each other just when `coexist` says so, whichever of them is the newer."""
    assert (run_mixed(pair.scenario).anomaly is None) == coexist(pair.kind, pair.old, pair.new)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_steps_get_on(operation: Operation) -> None:
    """Neighbouring versions get on, element by element; but what is about to be deleted as a range may be forgotten."""
    ways = [operation.steps, *((step, *way) for step, way in zip(operation.steps, operation.back, strict=False))]
    ranges = {role for way in ways for step in way if step.work.value == "delete range" for role in step.on}
    for way in ways:
        for older, newer in pairwise(way):
            for role, old, new in zip(operation.roles, older.states, newer.states, strict=True):
                forgotten = new is S.NONE and role.name in ranges
                assert forgotten or coexist(role.kind, old, new), (role.name, old, new)


def test_document() -> None:
    """The table of pairs in the document is what the checker finds today."""
    assert in_document("pairs", BLOCKS["pairs"]())
