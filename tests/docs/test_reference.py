"""docs/reference.md: the public names, from their docstrings; `UPDATE=1` writes it anew."""

import doctest
import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.engine.test_chain import Upstream
from tidegate import codec

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
HEAD = """# Python API

The names that programs use, from their docstrings; other names may change in any release. Examples run as they stand
here, one after the other, with a session `spark`, a function `write`, and the change log of a TiDB in `/srv/log`; those
of the codec behind `from tidegate.codec import *`. A name that starts with a capital letter is a class.
"""
HEAVY = re.compile(r"\bspark\b|/srv\b")
NAMES = {
    "Changefeeds, lakes and Spark": (
        *(f"tidegate.{name}" for name in ("Changefeed", "lake", "sinks.callback")),
        "tidegate.lakes.live.Live",
        *(f"tidegate.{name}" for name in ("register", "net_changes", "decode")),
        "tidegate.spark.session.session",
        "tidegate.model.errors.TidegateError",
    ),
    "Codec, without Spark": tuple(f"tidegate.codec.{name}" for name in codec.__all__),
}
METHODS = {
    "Changefeed": ("run",),
    "lake": ("at", "live", "tables", "definition", "table", "sql", "arrow", "count", "location", "history", "moves"),
    "Live": ("tables", "table", "sql", "arrow", "close"),
    "BatchEncoder": ("append", "flush"),
    "Sniffed": ("get", "decode_options"),
}
TOLD = re.compile(r"^    (\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)
SECTION = re.compile(r"^(Parameters|Raises (?P<error>\w+)):(?P<text>.*(?:\n(?!\n|>>>).*)*)\n*", re.MULTILINE)
EVENT = "Insert | Update | Delete | Ddl | Resolved"


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def shown(annotation: Any) -> str:
    """A type as people write it."""
    text = inspect.formatannotation(annotation).replace("'", "")
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).replace(EVENT, "Event")


def signature(thing: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(thing)
    except ValueError:
        return None


def parameters(thing: Any) -> list[inspect.Parameter]:
    known = signature(thing)
    return [one for one in known.parameters.values() if one.name != "self"] if known else []


def meanings(thing: Any) -> dict[str, str]:
    """What the docstring says of each parameter."""
    (told,) = [one["text"] for one in SECTION.finditer(inspect.getdoc(thing) or "") if not one["error"]] or [""]
    return {name: one_line(text) for name, text in TOLD.findall(told)}


def described(name: str, thing: Any, level: str) -> Iterator[str]:
    """The part of the page of one name."""
    known, told, doc = signature(thing), meanings(thing), inspect.getdoc(thing) or ""
    prose, _, examples = doc.partition(">>> ")
    yield f"{level} `{name}`\n"
    yield SECTION.sub("", prose).strip() + "\n"
    if of := parameters(thing):
        yield f"| {'field' if not told and inspect.isclass(thing) else 'parameter'} | type | default | |"
        yield "| --- | --- | --- | --- |"
        for one in of:
            kind, default = shown(one.annotation), one.default
            value = "" if default is one.empty else "a function" if callable(default) else repr(default)
            options = one.kind is one.VAR_KEYWORD
            cells = f"`{'**' if options else ''}{one.name}`", f"`{one_line(kind)}`", f"`{value}`" if value else ""
            yield f"| {' | '.join(cells)} | {told.get(one.name, '')} |"
        yield ""
    if known and not inspect.isclass(thing) and shown(known.return_annotation) not in {"None", "Any"}:
        yield f"Returns `{shown(known.return_annotation)}`.\n"
    for one in SECTION.finditer(prose):
        if one["error"]:
            yield f"Raises `{one['error']}`: {' '.join(one['text'].split()).rstrip('.')}.\n"
    if examples:
        yield f"```python\n>>> {examples.strip()}\n```\n"
    for method in METHODS.get(name.rpartition(".")[2], ()):
        yield from described(f"{name}.{method}", getattr(thing, method), level + "#")


def page() -> str:
    parts = [HEAD]
    for title, names in NAMES.items():
        parts += [f"## {title}\n", *(part for name in names for part in described(name, found(name), "###"))]
    return "\n".join(parts).rstrip("\n") + "\n"


def test_the_page_is_current():
    """It says what the docstrings say."""
    if os.environ.get("UPDATE"):
        PAGE.write_text(page())

    assert PAGE.read_text() == page()


def test_each_public_name_is_on_the_page():
    """What the package and its codec offer is described, each parameter of a function, too."""
    names = [name for group in NAMES.values() for name in group]
    offered = {f"tidegate.{name}" for name in tidegate.__all__} - {"tidegate.__version__", "tidegate.sinks"}
    functions = [thing for name in names if inspect.isfunction(thing := found(name)) or meanings(thing)]
    silent = {f"{thing.__qualname__}: {one.name}" for thing in functions for one in parameters(thing)} - {
        f"{thing.__qualname__}: {name}" for thing in functions for name in meanings(thing)
    }

    assert offered <= set(names)
    assert len(names) == len(set(names)) == 25
    assert silent == set()
    assert [name for name in names if ">>> " not in (found(name).__doc__ or "")] == []


def ran(text: str, names: dict[str, Any]) -> int:
    """How many examples a text has; each must print what stands below it."""
    examples = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=told.append, clear_globs=False)
    assert result.failed == 0, "".join(told)
    return result.attempted


def test_the_examples_of_the_codec_run():
    """Each that reads no lake runs by itself, behind `from tidegate.codec import *` alone."""
    offered = {name: getattr(codec, name) for name in codec.__all__}
    docs = [doc for thing in offered.values() if not HEAVY.search(doc := inspect.getdoc(thing) or "")]

    assert len(docs) == 14
    assert all(ran(doc, dict(offered)) for doc in docs)


def write(batch: Any) -> None:
    """A sink that forgets."""


@pytest.mark.slow
@pytest.mark.more
def test_the_examples_run(spark, tmp_path):
    """Each example prints what the page says, on the changes of one TiDB."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run("DROP TABLE a, b, c")
    upstream.run("CREATE DATABASE shop")
    upstream.run("CREATE TABLE shop.orders (id INT PRIMARY KEY, item TEXT)")
    upstream.run("INSERT INTO shop.orders VALUES (1, 'tea'), (2, 'milk')")
    upstream.writer.write(empty=True)
    names = {name: getattr(codec, name) for name in codec.__all__}
    text = re.sub(r"/srv\b", str(tmp_path), PAGE.read_text().replace("\n```\n", "\n\n"))

    assert ran(text, {**names, "tidegate": tidegate, "spark": spark, "write": write}) >= 50
