"""Every operation keeps its promises in every state that a small cluster can come to."""

import time
from pathlib import Path

import pytest

from tests.upstream.model_checker.checker.correct import BASIC, CORRECT
from tests.upstream.model_checker.checker.report import BLOCKS, render_correct, without
from tests.upstream.model_checker.checker.scenario import Scenario, run
from tests.upstream.model_checker.checker.shortcuts import SAFE
from tests.upstream.model_checker.checker.track import track
from tidegate_upstream.f1 import OPERATIONS

DOCUMENT = Path(__file__).parents[3] / "docs" / "online-schema-change.md"
BY_NAME = {scenario.name: scenario for scenario in CORRECT}
QUICK = ("add index", "add column", "exchange partition", "drop index as F1 does")
SECONDS_MOST = 120


@pytest.mark.parametrize("name", QUICK)
def test_a_few(name: str) -> None:
    """Without waiting for the rest: these have no anomaly in any state."""
    assert run(BY_NAME[name]).anomaly is None


@pytest.mark.parametrize("scenario", SAFE, ids=lambda scenario: scenario.name)
def test_safe_shortcuts(scenario: Scenario) -> None:
    """What F1 would not do, but is safe where rows are written whole and ids never used again."""
    assert run(scenario).anomaly is None


def test_every_operation_is_checked() -> None:
    """No operation of the schema floor is left out, and names tell scenarios apart."""
    assert {operation.name for operation in OPERATIONS} <= {scenario.operation.name for scenario in BASIC}
    assert len(BY_NAME) == len(CORRECT)


def in_document(name: str, text: str) -> bool:
    return f"<!-- begin {name} -->\n{text}\n<!-- end {name} -->" in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.more
def test_all_within_two_minutes() -> None:
    """No anomaly in any state of any scenario, each version published in some state; the document has the numbers."""
    started = time.process_time()
    results = {scenario.name: run(scenario) for scenario in CORRECT}
    took = time.process_time() - started

    assert {name: result for name, result in results.items() if result.anomaly is not None} == {}
    for scenario in CORRECT:
        assert results[scenario.name].versions == len(track(scenario.operation).steps), scenario.name
    assert in_document("correct", render_correct(results))
    assert took < SECONDS_MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", ["needed", "safe"])
def test_document(name: str) -> None:
    """The tables of the document are what the checker finds today."""
    assert in_document(name, BLOCKS[name]())


def test_leaving_out() -> None:
    """A version that is left out hands its work to the one before, and the operation has one version less."""
    whole = BY_NAME["add index"]
    shorter = without(whole, 3).operation

    assert [step.job for step in shorter.steps] == [
        step.job for at, step in enumerate(whole.operation.steps) if at != 3
    ]
    assert shorter.steps[2].on == ("index",)
