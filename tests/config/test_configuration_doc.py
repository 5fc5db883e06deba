"""docs/configuration.md lists what the registry knows: each parameter, key and refusal. UPDATE=1 writes the tables."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidegate.config.entry import FOR_SOME_SINKS, NO_START_TS, NOWHERE, RefusedKey, SinkEntry, SourceEntry, refusal
from tidegate.config.load import KEYS, KINDS
from tidegate.config.registry import SINKS, SOURCES

DOC = Path(__file__).parents[2] / "docs" / "configuration.md"
PARAMETER_WORDS = {"required", "PLAIN with a user", "one a core", "3, all"}
KEY_WORDS = {"required", "none", "from source and sink"}
WAYS: list[tuple[str, SourceEntry | SinkEntry]] = [
    *((f"from `{entry.scheme}://`", entry) for entry in SOURCES.values()),
    *((f"into `{entry.scheme}://`", entry) for entry in SINKS.values()),
]


def quoted(text: str, *, of_key: bool = False) -> str:
    """A default as code, unless it is a word about one."""
    words = KEY_WORDS if of_key else PARAMETER_WORDS
    return f"`{text}`" if text and text not in words else text


def tables() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """(heading, header and rows) of every table."""
    for way, entry in WAYS:
        acting = [(f"`{n}`", quoted(p.default), p.about) for n, p in entry.params.items() if p.field]
        yield f"### Parameters {way}", [("parameter", "default", "meaning"), *acting]
        idle = [(f"`{n}`", p.about) for n, p in entry.params.items() if p.field is None]
        if idle:
            yield f"### Parameters without effect {way}", [("parameter", "why nothing is to be done"), *idle]
    plain = {path: key for path, key in KEYS.items() if key.kind != "param"}
    places = {
        path: "always" if key.acts else ", ".join(way for way, entry in WAYS if path in entry.keys)
        for path, key in plain.items()
    }
    kinds = {path: re.sub("^an? ", "", KINDS[key.kind][0]) for path, key in plain.items()}
    refused = {**NOWHERE, **{path: each for _, entry in WAYS for path, each in entry.refused.items()}}
    yield "## Keys that act", [
        ("key", "type", "default", "acts", "meaning"),
        *((f"`{path}`", kinds[path], quoted(plain[path].default, of_key=True), place, plain[path].about)
          for path, place in places.items() if place),
    ]  # fmt: skip
    yield (
        "## Keys accepted without effect",
        [
            ("key", "type", "what it is"),
            *(
                (f"`{path}`", kinds[path], plain[path].about)
                for path, place in places.items()
                if not place and refusal(path, refused) is None
            ),
        ],
    )
    yield "## Keys that are refused", [
        ("key", "where", "why"),
        *((f"`{path}`", "everywhere", each.why) for path, each in NOWHERE.items()),
        *(("`filter.ignore-txn-start-ts`", f"from `{entry.scheme}://`", NO_START_TS.why)
          for entry in SOURCES.values() if not entry.tells_start_ts),
        *((f"`{path}{'*' if path.endswith('.') else ''}`", f"into others than {accepting(path)}", each.why)
          for path, each in FOR_SOME_SINKS.items()),
        *((f"`{path}{'*' if path.endswith(('.', '-')) else ''}`", way, each.why)
          for way, entry in WAYS for path, each in own_refusals(entry).items()),
    ]  # fmt: skip


def own_refusals(entry: SourceEntry | SinkEntry) -> Mapping[str, RefusedKey]:
    """What one source or sink refuses for a reason of its own."""
    return entry.refuses if isinstance(entry, SinkEntry) else entry.refused


def accepting(path: str) -> str:
    """The sinks that do not refuse a key that others refuse."""
    return " and ".join(f"`{entry.scheme}://`" for entry in SINKS.values() if path not in entry.refused)


def rendered(rows: list[tuple[str, ...]]) -> str:
    """A table as Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"| {' | '.join('---' for _ in rows[0])} |", *lines[1:]])


@pytest.mark.parametrize(("heading", "rows"), [pytest.param(*each, id=each[0].strip("# ")) for each in tables()])
def test_tables(heading: str, rows: list[tuple[str, ...]]) -> None:
    """The first table under a heading is the one that the registry makes."""
    text = DOC.read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^{re.escape(heading)}\n.*?(^\|.*?)(?=\n\n|\Z)", text)
    assert found is not None, heading
    if os.environ.get("UPDATE"):
        before, after = text[: found.start(1)], text[found.end(1) :].rstrip("\n")
        DOC.write_text(f"{before}{rendered(rows)}{after}\n", encoding="utf-8")
        return

    assert found[1].rstrip("\n").splitlines() == rendered(rows).splitlines()


def test_examples_are_shown() -> None:
    """Each source and each sink has a section with its example's scheme."""
    text = DOC.read_text(encoding="utf-8")
    for way, entry in WAYS:
        section = text.split(f"\n## {way[0].upper()}{way[1:]}\n", 1)[1].split("\n## ", 1)[0]
        assert f"{entry.scheme}://" in section
