"""The site of the documentation: its navigation, and the script that builds it."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    """The script."""
    spec = importlib.util.spec_from_file_location("tidegate_site", ROOT / "ops" / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(entries):
    """The pages of a navigation."""
    for entry in entries:
        for page in entry.values():
            yield from leaves(page) if isinstance(page, list) else [page]


def test_each_page_is_in_the_navigation_once(site):
    """No page of the documentation can be reached by search alone."""
    shown = [page for page in leaves(site.navigation()) if page != "docs/README.md"]

    assert sorted(shown) == sorted(str(page.relative_to(ROOT)) for page in site.pages() if page != site.CONTENTS)


def test_a_built_link_without_a_page_or_a_heading_is_found(site, tmp_path):
    """Links of built pages to files, folders and headings are checked."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "index.html").write_text('<h2 id="modes">Modes</h2>')
    links = ["lake/", "lake/#modes", "#top", "https://example/", "lake/#keys", "search/", "#end"]
    (tmp_path / "index.html").write_text('<p id="top">' + "".join(f'<a href="{link}">x</a>' for link in links))

    told = site.broken(tmp_path)

    assert [re.search(r": (\S+) leads", line)[1] for line in told] == ["lake/#keys", "search/", "#end"]


def test_versions_stay_when_one_is_added(site, tmp_path, monkeypatch):
    """A directory of versions gets the one that is built; an earlier one stays, and is the latest no more."""
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").write_text("new")
    monkeypatch.setattr(site, "BUILD", tmp_path)
    into = tmp_path / "versions"
    into.mkdir()
    (into / "versions.json").write_text('[{"version": "0.0", "title": "0.0", "aliases": ["latest"]}]')

    for _ in range(2):
        at = site.publish(into)

    listed = site.json.loads((into / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in listed] == [(at.name, ["latest"]), ("0.0", [])]
    assert (at / "index.html").read_text() == "new"
    assert f"../{at.name}/" in (into / "latest" / "index.html").read_text()
