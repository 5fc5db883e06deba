"""Which texts are matched by which engine: what a user or a client gives as a pattern never goes to Python's, which may
take for ever."""

import ast
from pathlib import Path
from typing import Final

from tests.house.test_house import ROOT, tree_of

SOURCES: Final = sorted((ROOT / "src" / "tidegate").rglob("*.py"))
CALLS: Final = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "finditer", "findall"}
MADE: Final = {
    "codec/csv.py": "a separator and a quote of the configuration, escaped",
    "codec/go.py": "the characters of a table of ours",
    "codec/jsontext.py": "bytes of ours",
    "expr/tokens.py": "the two forms of strings, and a quote",
}
"""Files with expressions of Python's that are put together, and of what."""
ENGINE: Final = "model/pattern.py"
"""The one file that makes expressions of texts that users and clients give."""


def name_of(path: Path) -> str:
    """A file below the package."""
    return path.relative_to(ROOT / "src" / "tidegate").as_posix()


def is_fixed(pattern: ast.expr) -> bool:
    """Whether a pattern stands in the code, be it in parts that are constants by their names."""
    match pattern:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.BinOp(left=left, right=right):
            return is_fixed(left) and is_fixed(right)
        case ast.JoinedStr(values=values):
            return all(is_fixed(one) for one in values)
        case ast.FormattedValue(value=value):
            return is_fixed(value)
    return False


def made(tree: ast.AST) -> list[str]:
    """The calls of `re` whose pattern does not stand in the code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    matching = [call for call in calls if call.func.attr in CALLS]  # type: ignore[attr-defined]
    ours = [call for call in matching if ast.unparse(call.func).partition(".")[0] == "re"]
    return [ast.unparse(call) for call in ours if not (call.args and is_fixed(call.args[0]))]


def test_no_text_of_others_is_an_expression_of_python() -> None:
    """Expressions are fixed in the code, or put together of what the list says."""
    found = {name_of(path): made(tree_of(path)) for path in SOURCES}
    assert {name for name, calls in found.items() if calls} == set(MADE)


def test_other_engines_have_one_place() -> None:
    """Wildcards of files, other engines, and names taken out of `re` so that the list would not see them."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import) and {one.name for one in node.names} & {"re2", "fnmatch", "regex"}:
                found.add((name_of(path), ast.unparse(node)))
            if isinstance(node, ast.ImportFrom) and node.module in {"re", "re2", "fnmatch", "regex"}:
                found.add((name_of(path), ast.unparse(node)))
    assert found == {(ENGINE, "import re2")}


def test_the_list_sees_what_it_is_for() -> None:
    """A pattern that is given is found in each way of writing it; fixed ones are not."""
    given = ["re.compile(text)", "re.search(f'{text}+', name)", "re.sub('a' + rule.text, '', name)", "re.compile()"]
    fixed = ["re.compile('a')", "re.search(f'{_WORDS}+', name)", "re.sub('a' + 'b', '', name)", "other.compile(text)"]
    assert [bool(made(ast.parse(one))) for one in given] == [True] * len(given)
    assert [bool(made(ast.parse(one))) for one in fixed] == [False] * len(fixed)
