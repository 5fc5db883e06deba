"""What the checker finds, as text for people: traces, the table of what holds, and which versions could be left out.

    add index in one step                     the heading in the document, an item of `shortcuts.SHORTCUTS`
    v0 none > v1 public                       its versions
    1  node A  inserts k1 (a=0)               who does what
    2  owner   publishes v1 public
    3  node A  loads v1 public
    => integrity, for node A at v1 public: index has no entry of k1
       stored: k1 (a=0)

The blocks of `docs/online-schema-change.md` between `<!-- begin NAME -->` and `<!-- end NAME -->` are these texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from tests.upstream.model_checker.checker.correct import BASIC, CAREFUL, CORRECT
from tests.upstream.model_checker.checker.pairs import KINDS, PAIRS, STATES
from tests.upstream.model_checker.checker.scenario import Scenario, run, run_mixed
from tests.upstream.model_checker.checker.search import Result
from tests.upstream.model_checker.checker.shortcuts import SAFE, SHORTCUTS
from tidegate.model.errors import ConfigError
from tidegate_upstream.f1 import Operation, Work

__all__ = ["BLOCKS", "fill", "render_correct", "render_trace", "without"]


def render_versions(operation: Operation) -> list[str]:
    """The versions in one line for one role, else a table with a line for each version."""
    roles = operation.roles
    if len(roles) == 1:
        return [" > ".join(f"v{at} {step.states[0].label}" for at, step in enumerate(operation.steps))]
    cells = [["", *(role.name for role in roles)]]
    cells += [[f"v{at}", *(state.label for state in step.states)] for at, step in enumerate(operation.steps)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(roles) + 1)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def render_trace(operation: Operation, result: Result) -> str:
    """The versions, the steps of the shortest counterexample, and what is broken at its end."""
    assert result.anomaly is not None, operation.name
    lines = render_versions(operation)
    for number, (who, what) in enumerate(result.trace, 1):
        lines.append(f"{number:<3}{who:<8}{what}")
    lines.append(f"=> {result.anomaly.kind.value}, for {result.seen_by}: {result.anomaly.what}")
    lines.append(f"   stored: {result.data}")
    return "\n".join(lines)


def _shortcuts() -> str:
    parts = []
    for shortcut in SHORTCUTS:
        result = run(shortcut.scenario)
        trace = render_trace(shortcut.scenario.operation, result)
        heading = shortcut.name[0].upper() + shortcut.name[1:]
        parts.append(f"### {heading}\n\n{shortcut.why}\n\n```\n{trace}\n```")
    return "\n\n".join(parts)


def _cell(result: Result | None) -> str:
    """How many states there are without an anomaly, else the kind of the first one."""
    if result is None:
        return "-"
    return f"{result.states:,}" if result.anomaly is None else f"**{result.anomaly.kind.value}**"


def _pairs() -> str:
    lines = [f"| alive together | {' | '.join(kind.value for kind in KINDS)} |", "| --- |" + " --- |" * len(KINDS)]
    for one, other in combinations(STATES, 2):
        cells = []
        for kind in KINDS:
            both = [pair for pair in PAIRS if pair.kind is kind and {pair.old, pair.new} == {one, other}]
            found = {result.anomaly.kind.value for pair in both if (result := run_mixed(pair.scenario)).anomaly}
            cells.append(", ".join(sorted(found)) or "fine")
        lines.append(f"| {one.label}, {other.label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _safe() -> str:
    lines = ["| shortcut | versions | states |", "| --- | --- | ---: |"]
    for item in SAFE:
        path = " > ".join(step.states[0].label for step in item.operation.steps)
        lines.append(f"| {item.name} | {path} | {_cell(run(item))} |")
    return "\n".join(lines)


def render_correct(results: Mapping[str, Result]) -> str:
    """A table of the results of CORRECT by name: a line for each operation, a column for each way to be careful."""
    kinds = ("", *CAREFUL)
    lines = [f"| operation | versions | at once | {' | '.join(CAREFUL)} |", "| --- |" + " ---: |" * (len(kinds) + 1)]
    for item in CORRECT:
        if not item.name.endswith(CAREFUL):
            cells = [_cell(results.get(f"{item.name}, {kind}" if kind else item.name)) for kind in kinds]
            lines.append(f"| {item.name} | {len(item.operation.steps)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _correct() -> str:
    return render_correct({item.name: run(item) for item in CORRECT})


def without(scenario: Scenario, at: int) -> Scenario:
    """The scenario with version `at` left out, its work done one version earlier, and no way back."""
    operation = scenario.operation
    steps = list(operation.steps)
    gone = steps.pop(at)
    if gone.work is not Work.NOTHING:
        steps[at - 1] = replace(steps[at - 1], work=gone.work, on=gone.on)
    done = operation.done - 1 if at <= operation.done else operation.done
    shorter = replace(operation, steps=tuple(steps), revertible=0, back=((),), done=done)
    return replace(scenario, name=f"{scenario.name} without v{at}", operation=shorter)


def _needed() -> str:
    lines = ["| operation | needs | could do without one of |", "| --- | --- | --- |"]
    for item in BASIC:
        needs, spares = [], []
        for at, step in enumerate(item.operation.steps[1:-1], 1):
            name = f"v{at} {step.states[0].label}" if len(item.operation.roles) == 1 else f"v{at}"
            found = run(without(item, at)).anomaly
            if found is None:
                spares.append(name)
            else:
                needs.append(f"{name} ({found.kind.value})")
        if needs or spares:
            lines.append(f"| {item.name} | {', '.join(needs) or '-'} | {', '.join(spares) or '-'} |")
    return "\n".join(lines)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "correct": _correct,
    "needed": _needed,
    "pairs": _pairs,
    "safe": _safe,
    "shortcuts": _shortcuts,
}
"""Name -> the text of that block, computed anew (seconds)."""


def fill(document: str, blocks: Mapping[str, str]) -> str:
    """The document with the text between the marks of each of `blocks` replaced; raises ConfigError without marks."""
    for name, text in blocks.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, first, rest = document.partition(begin)
        _, last, after = rest.partition(end)
        if not first or not last:
            raise ConfigError(f"the document has no lines {begin.strip()} and {end}; add them")
        document = f"{before}{begin}{text}\n{end}{after}"
    return document
