"""Every tempting shortcut leads to an anomaly of the kind that one expects, by a shortest way that can be read."""

from pathlib import Path

import click.testing
import pytest

from tests.upstream.model_checker.checker.__main__ import main
from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.report import BLOCKS, fill, render_trace
from tests.upstream.model_checker.checker.scenario import Shortcut, run
from tests.upstream.model_checker.checker.shortcuts import SHORTCUTS
from tidegate.model.errors import ConfigError

DOCUMENT = Path(__file__).parents[3] / "docs" / "online-schema-change.md"
LENGTHS = {
    "add index in one step": 3,
    "add index without delete-only": 3,
    "add index without write-only": 8,
    "drop index in one step": 3,
    "drop index without write-only": 3,
    "add column in one step": 4,
    "drop column in one step": 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda shortcut: shortcut.name)
def test_is_found(shortcut: Shortcut) -> None:
    """The checker finds the anomaly, and finds the same one each time."""
    result = run(shortcut.scenario)

    assert result.anomaly is not None
    assert result.anomaly.kind is shortcut.kind
    assert result.trace
    assert run(shortcut.scenario) == result


def test_lengths() -> None:
    """The shortest ways are as short as they can be: counted by hand."""
    found = {shortcut.name: len(run(shortcut.scenario).trace) for shortcut in SHORTCUTS if shortcut.name in LENGTHS}

    assert found == LENGTHS


@pytest.mark.slow
def test_all_kinds() -> None:
    """Orphans and integrity anomalies both occur, missing values, duplicates and dangling entries among them."""
    whats = " / ".join(str(result.anomaly) for shortcut in SHORTCUTS if (result := run(shortcut.scenario)))

    assert {shortcut.kind for shortcut in SHORTCUTS} == set(AnomalyKind)
    for what in (
        "has no value of",
        "two rows with value",
        "has no entry of",
        "no such index",
        "has another value",
        "breaks",
    ):
        assert what in whats, what


def test_trace_reads() -> None:
    """A trace names the versions, who does what, and who sees which anomaly in which data."""
    shortcut = next(shortcut for shortcut in SHORTCUTS if shortcut.name == "add index without delete-only")

    assert render_trace(shortcut.scenario.operation, run(shortcut.scenario)).splitlines() == [
        "v0 none > v1 write-only > v2 public",
        "1  owner   publishes v1 write-only",
        "2  node A  loads v1 write-only",
        "3  node A  inserts k1 (a=0)",
        "=> orphan, for node B at v0 none: index has the entry 0 of k1, and the schema no such index",
        "   stored: k1 (a=0); index {0->k1}",
    ]


@pytest.mark.slow
def test_document() -> None:
    """The traces of the document are those that the checker finds today."""
    text = f"<!-- begin shortcuts -->\n{BLOCKS['shortcuts']()}\n<!-- end shortcuts -->"

    assert text in DOCUMENT.read_text(encoding="utf-8")


def test_fill() -> None:
    """Only the text between a block's marks is replaced; a document without them is refused."""
    document = "a\n<!-- begin x -->\nold\nolder\n<!-- end x -->\nz\n"

    assert fill(document, {"x": "new"}) == "a\n<!-- begin x -->\nnew\n<!-- end x -->\nz\n"
    with pytest.raises(ConfigError, match="begin y"):
        fill(document, {"y": "new"})


def test_command() -> None:
    """`--only` prints the traces of the shortcuts that are meant."""
    ran = click.testing.CliRunner().invoke(main, ["--only", "drop foreign key"])

    assert ran.exit_code == 0
    assert ran.output.startswith("drop foreign key in one step\nv0 public > v1 none\n")
