"""The documents speak of things that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tidegate.cli.main import main
from tidegate.server.metrics import COUNTERS, GAUGES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`tidegate ([a-z][^`]*)`")
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/)?tidegate (.+?)(?:\s+[#|].*)?$")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Every relative link in a page names a file of the project, and a heading that is there."""
    broken = []
    for target, heading in LINK.findall(page.read_text()):
        path = page.parent / target if target else page
        if not path.exists() or (heading and path.suffix == ".md" and heading not in anchors(path)):
            broken.append(f"{target}#{heading}")

    assert broken == []


def anchors(page: Path) -> set[str]:
    """What a link names the headings of a page by."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def commands() -> list[str]:
    text = "\n".join(page.read_text() for page in PAGES).replace("\\\n", " ")
    told = {found[1] for line in text.splitlines() if (found := COMMAND.match(line))}
    return sorted(told | {" ".join(found.split()) for found in INLINE.findall(text)})


@pytest.mark.parametrize("line", commands())
def test_commands_of_the_pages_exist(line):
    """Every command in a page, with its subcommands and options, is one that the tool has."""
    words = shlex.split(line.partition(" -- ")[0])  # behind it stands somebody else's command
    command: click.Command = main
    context = click.Context(main)
    while words and words[0][0] != "-" and isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    options = {"--help", *(name for parameter in command.params for name in parameter.opts)}
    assert {word.strip("[]") for word in words if word.startswith(("-", "[-"))} <= options


def test_make_targets_of_the_readme_exist():
    """`make demo` and `make test` are what the README says they are."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text())) <= targets


def test_metrics_of_a_load_exist():
    """Each metric of a full load that the server's page names, and the page names each."""
    (said,) = re.findall(r"has Debezium's metrics:(.*?)\n\n", (ROOT / "docs" / "server.md").read_text(), re.DOTALL)
    named = {f"tidegate_snapshot{name}" for name in re.findall(r"`(?:tidegate_snapshot)?(_[a-z_]+)`", said)}
    chunks = {name.replace("_table_", "_chunk_") for name in named}
    made = {gauge.name for gauge in GAUGES} | {f"{counter.name}_total" for counter in COUNTERS}

    assert named | chunks == {name for name in made if name.startswith("tidegate_snapshot_")}


def test_decisions_are_numbered():
    """Each decision has a number of its own, in its file's name and its title, and none is missing."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    assert numbers == list(range(numbers[0], numbers[0] + len(pages)))
    assert [
        page.name
        for page, number in zip(pages, numbers, strict=True)
        if not page.read_text().startswith(f"# {number}. ")
    ] == []
