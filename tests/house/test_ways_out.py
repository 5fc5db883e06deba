"""Errors tell people what to do: each way out that they name is taken by a test."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.ways_out import WAYS_OUT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tidegate"
PLACES = re.compile(r"(changelog|engine|sink|source)/|schema/[a-z]+\.py")
"""What a running feed raises."""
AT_ONCE = frozenset(
    {"ConfigError", "EnvironmentFault", "UriInvalid", "SinkConfigInvalid", "FilterRuleInvalid", "PartitionNumInvalid"}
    | {"TopicExpressionInvalid", "ExpressionParseFailed"}
)
"""Refused before anything runs, with the words of the right configuration: tests/config/test_config_errors.py."""
VERBS = re.compile(
    r"(?:[;:.,(] |\b(?:or|and|to) |^)"
    r"(add|ask|begin|bring|change|choose|compare|delete|do|drop|exclude|give|go|keep|leave|let|make|mend|name|point|put"
    r"|raise|rename|replay|restore|resume|run|set|skip|start|stop|subscribe|touch|update|use|write)"
    r"\b(?! (?:is|are|was|were|has|had|of)\b)",
    re.IGNORECASE,
)


@cache
def trees() -> dict[str, ast.Module]:
    """The modules of the package."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def errors() -> frozenset[str]:
    """The classes of errors that end or stop a feed."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found, before = {"TidegateError"}, 0
    while len(found) > before:
        before = len(found)
        found |= {name for name, its in bases.items() if its & found}
    return frozenset(found - AT_ONCE)


def raised(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The function and the text of each error that is made below `node`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from raised(child, (*names, child.name))
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in errors():
            parts = (part for argument in child.args for part in ast.walk(argument))
            yield ".".join(names), " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        yield from raised(child, names)


def test_every_way_out_is_taken() -> None:
    """An error that tells people to do something stands in tests/house/ways_out.py with the tests that do it; so does
    nothing else."""
    named = {
        f"{path}::{function}"
        for path, tree in trees().items()
        if PLACES.match(path)
        for function, text in raised(tree)
        if VERBS.search(text)
    }

    assert named - WAYS_OUT.keys() == set(), "name the test that takes the way out in ways_out.py"
    assert WAYS_OUT.keys() - named == set(), "no error there names a way out any more"


def test_the_tests_are_there() -> None:
    """Each test that is named is one."""
    missing = []
    for test in {test for tests in WAYS_OUT.values() for test in tests}:
        path, _, name = test.partition("::")
        file = ROOT / "tests" / path
        if not file.exists() or f"\ndef {name}(" not in file.read_text():
            missing.append(test)

    assert sorted(missing) == []
