"""Build the site of the documentation: `make docs` calls it.

    README.md, docs/, ...  ──copied──►  build/site/source  ──zensical──►  build/site/html/0.1/    the pages
    docs/README.md         ──its links──►  navigation                     build/site/html/latest/ leads there
                                                                          build/site/html/versions.json

The site mirrors the repository, so a link means the same in both; files that a page links to are copied beside it. The
page's version selector reads versions.json, in mike's form. Into a directory with earlier versions (`--into DIR`), the
version is added, and they stay. A warning, and a link without a page or a heading, fail the build.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "site"
CONTENTS = ROOT / "docs" / "README.md"
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
ENTRY = re.compile(r"^## (?P<section>.+)$|^\| \[(?P<title>[^\]]+)\]\((?P<page>[^)#\s]+\.md)\)", re.MULTILINE)
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "(\d+\.\d+)', re.MULTILINE)
REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'


def pages() -> list[Path]:
    """Return every page of the site."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def title(page: Path) -> str:
    """Return the first heading of a page, without marks."""
    found = TITLE.search(page.read_text())
    return found[1].replace("`", "") if found else page.stem


def navigation() -> list[dict[str, object]]:
    """Return the sections of the contents; an entry that names a README stands for the pages beside it, too."""
    sections: list[dict[str, object]] = [{"Tidegate": "README.md"}]
    entries: list[dict[str, object]] = []
    for found in ENTRY.finditer(CONTENTS.read_text()):
        if found["section"]:
            entries = []
            sections.append({found["section"]: entries})
            continue
        page = (CONTENTS.parent / found["page"]).resolve()
        name = found["title"][0].upper() + found["title"][1:]
        if page.name != "README.md":
            entries.append({name: str(page.relative_to(ROOT))})
            continue
        beside = [page, *sorted(other for other in page.parent.glob("*.md") if other != page)]
        entries.append({name: [{title(one): str(one.relative_to(ROOT))} for one in beside]})
    return sections


def stage() -> None:
    """Copy the pages, and the files that they link to."""
    shutil.rmtree(BUILD / "source", ignore_errors=True)
    linked = {(page.parent / target).resolve() for page in pages() for target in LINK.findall(page.read_text())}
    for file in {*pages(), *(path for path in linked if path.is_file())}:
        copy = BUILD / "source" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    config = (ROOT / "ops" / "docs" / "zensical.toml").read_text()
    sections = json.dumps(navigation(), ensure_ascii=False)  # JSON but for its colons between a name and a value
    nav = re.sub(r'("(?:[^"\\]|\\.)*"): ', r"\1 = ", sections)
    (BUILD / "zensical.toml").write_text(config.replace("[project]\n", f"[project]\nnav = {nav}\n", 1))


class Links(HTMLParser):
    """The links of a built page, and what a link may name in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.names: set[str | None] = set()
        self.links: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.names.update(value for name, value in attrs if name in {"id", "name"})
        self.links += [value for name, value in attrs if name in {"href", "src"} and value]


def broken(html: Path) -> list[str]:
    """Return the links of built pages that lead nowhere."""
    built = {page: Links(page) for page in html.rglob("*.html") if page.name != "404.html"}
    found = []
    for page, links in built.items():
        for link in links.links:
            parts = urlsplit(link)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            named = not parts.fragment or target not in built or unquote(parts.fragment) in built[target].names
            if not (parts.scheme or parts.netloc or (target.exists() and named)):
                found.append(f"{page.relative_to(html)}: {link} leads nowhere")
    return found


def publish(into: Path) -> Path:
    """Put the pages among the versions of `into`, and return where they are."""
    found = VERSION.search((ROOT / "src" / "tidegate" / "__init__.py").read_text())
    assert found
    version = found[1]
    shutil.rmtree(into / version, ignore_errors=True)
    shutil.copytree(BUILD / "html", into / version)
    listed = into / "versions.json"
    others = json.loads(listed.read_text()) if listed.exists() else []
    kept = [{**other, "aliases": []} for other in others if other["version"] != version]
    listed.write_text(
        json.dumps([{"version": version, "title": version, "aliases": ["latest"]}, *kept], indent=1) + "\n"
    )
    (into / "latest").mkdir(exist_ok=True)
    (into / "latest" / "index.html").write_text(REDIRECT.format(f"../{version}/"))
    (into / "index.html").write_text(REDIRECT.format(f"{version}/"))
    return into / version


def main() -> int:
    """Build the site, and end with 1 if something is wrong with a page."""
    parser = argparse.ArgumentParser(description="Build the site of the documentation.")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build" / "site" / "versions", help="where versions are kept"
    )
    into = parser.parse_args().into
    stage()
    zensical = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    built = subprocess.run(zensical, cwd=BUILD, check=False)
    nowhere = broken(BUILD / "html") if built.returncode == 0 else []
    print(*nowhere, sep="\n", end="\n" if nowhere else "", file=sys.stderr)
    if built.returncode or nowhere:
        return 1
    print(f"{publish(into)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
