"""The runbook: what each error code means and what to do about it, from the classes of errors.

docs/runbook.md is this as a page; messages of commands and the server's page link into it.
"""

import html as markup
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.model.errors import Retry, TidegateError

PAGE = "docs/runbook.md"
_RULES = {
    Retry.NEVER: "The changefeed is `failed`, its target complete up to its checkpoint. Other changefeeds go on.",
    Retry.LATER: "The changefeed is in `warning` and tries again after growing pauses; nothing is lost. It is `failed` "
    "after `changefeed-error-stuck-duration`.",
}


_HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8" /><meta name="viewport" content="width=device-width, initial-scale=1" />
<title>Runbook - Tidegate</title><link rel="icon" href="/page/icon.svg" type="image/svg+xml" />
<link rel="stylesheet" href="/page/style.css" /></head>
<body><header><a class="brand" href="/"><img src="/page/icon.svg" alt="" width="24" height="24" />Tidegate</a></header>
<main class="runbook"><h1>Runbook</h1>
{}
</main></body></html>
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A section of the runbook: texts in Markdown."""

    code: str
    meaning: str
    retry: str
    meanwhile: str
    remedy: str

    def parts(self) -> list[tuple[str, str]]:
        """Return the section's terms and texts."""
        return [
            ("Meaning", self.meaning),
            ("Retried", self.retry),
            ("Meanwhile", self.meanwhile),
            ("What to do", self.remedy),
        ]


def anchor(code: str) -> str:
    """Return the anchor of a code's section.

    >>> anchor("CDC:ErrPoisonMessage")
    'cdc-errpoisonmessage'"""
    return re.sub(r"[^a-z0-9]+", "-", code.lower())


def link(code: str) -> str:
    """Return where a code is explained, for messages."""
    return f"{PAGE}#{anchor(code)}"


def markdown() -> str:
    """Return the sections as Markdown; the heading of each has the code's anchor."""
    sections = (
        f"### {entry.code.replace(':', ' ')}\n\n" + "".join(f"- **{term}**: {text}\n" for term, text in entry.parts())
        for entry in entries()
    )
    return "\n".join(sections)


def html() -> str:
    """Return a page with the sections of the codes that this process declares."""
    sections = (
        f'<section id="{anchor(entry.code)}"><h2>{entry.code}</h2><dl class="facts">'
        + "".join(f"<div><dt>{term}</dt><dd>{_shown(text)}</dd></div>" for term, text in entry.parts())
        + "</dl></section>"
        for entry in entries()
    )
    return _HTML.format("\n".join(sections))


def _shown(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", markup.escape(text))


def entries() -> list[Entry]:
    """Return an entry for each code that an imported module declares, by code. Codes of the embedded TiDB are TiDB's
    own, and have none."""
    kinds: dict[str, list[type[TidegateError]]] = {}
    for kind in _kinds(TidegateError):
        if "code" in vars(kind) and kind.code.partition(":")[0] in {"CDC", kind.code}:
            kinds.setdefault(kind.code, []).append(kind)
    return [_entry(code, own) for code, own in sorted(kinds.items())]


def _entry(code: str, kinds: list[type[TidegateError]]) -> Entry:
    """Return the entry of a code; kinds that share one tell what they mean one after the other."""
    meanings = dict.fromkeys(" ".join((inspect.getdoc(kind) or "").split()) for kind in kinds)
    retries = sorted({kind.retry.value for kind in kinds})
    meanwhile = dict.fromkeys(kind.meanwhile or _RULES[kind.retry] for kind in kinds)
    remedies = dict.fromkeys(kind.remedy for kind in kinds if kind.remedy)
    return Entry(code, " ".join(meanings), " or ".join(retries), " ".join(meanwhile), " ".join(remedies))


def _kinds(kind: type[TidegateError]) -> Iterator[type[TidegateError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _kinds(below)
