"""docs/runbook.md has a section for each error code and each alert. UPDATE=1 writes those of the codes anew."""

import importlib
import os
import pkgutil
import re
from pathlib import Path

import click
import pytest

import tidegate
from tidegate.cli.main import main
from tidegate.model import runbook
from tidegate.model.runbook import anchor, entries

ROOT = Path(__file__).parents[2]
PAGE = ROOT / runbook.PAGE
RULES = ROOT / "ops" / "prometheus" / "tidegate.rules.yml"
MARKED = re.compile(r"(?<=<!-- codes -->\n).*?(?=<!-- end -->\n)", re.DOTALL)
COMMAND = re.compile(r"`tidegate ((?:[a-z]+ ?)+)")


@pytest.fixture(scope="module", autouse=True)
def everything() -> None:
    """All modules, since each may declare codes."""
    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def headings() -> set[str]:
    """The anchors of the page."""
    return {anchor(title) for title in re.findall(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)}


def test_each_code_has_a_section() -> None:
    """As the classes of errors tell it, by code; none is without a remedy."""
    assert [entry.code for entry in entries() if not (entry.remedy and entry.meanwhile and entry.meaning)] == []
    text = PAGE.read_text()
    page = MARKED.sub(lambda _: "\n" + runbook.markdown() + "\n", text)
    if os.environ.get("UPDATE"):
        PAGE.write_text(page)
    assert text == page or os.environ.get("UPDATE"), "UPDATE=1 writes the sections anew"
    assert {anchor(entry.code) for entry in entries()} <= headings()


def test_each_alert_has_a_section() -> None:
    """An alert names the section of its own name."""
    rules = re.findall(r"alert: (\w+)\n.*?runbook: (\S+)\n", RULES.read_text(), re.DOTALL)
    assert len(rules) == RULES.read_text().count("alert:")
    assert [link for name, link in rules if link != runbook.link(name)] == []
    assert {anchor(name) for name, _ in rules} <= headings()


def test_commands_exist() -> None:
    """What a remedy tells to run is a command."""
    wrong = []
    for text in COMMAND.findall(PAGE.read_text()):
        command: click.Command | None = main
        context = click.Context(main)
        for word in text.split():
            if not isinstance(command, click.Group):
                break
            command = command.get_command(context, word)
        if command is None:
            wrong.append(text)
    assert wrong == []
    assert "tidegate dlq skip" in PAGE.read_text()
