"""The files of the page: small, explained, without anything inline or from elsewhere."""

import re

from tidegate.server.dashboard import HOME, KINDS, assets

LINES = 400
BYTES = 110_000


def test_files() -> None:
    """Each file is of a kind that is served, short, and a script says first what it is."""
    names = {path.name for path in HOME.iterdir() if path.is_file()}
    assert names == set(assets())
    assert sum(len(asset.body) for asset in assets().values()) < BYTES
    for name, asset in assets().items():
        text = asset.body.decode()
        assert len(text.splitlines()) <= LINES, name
        assert not name.endswith(".js") or text.startswith("/**\n * "), name
        assert any(name.endswith(kind) for kind in KINDS)


def test_nothing_inline_or_foreign() -> None:
    """No script, style or listener stands in the page itself, no text becomes HTML, and no address leads elsewhere."""
    html = assets()["index.html"].body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", html)
    for name, asset in assets().items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )


def test_every_module_is_loaded_at_once() -> None:
    """The page names all its modules, so that a browser asks for them side by side."""
    html = assets()["index.html"].body.decode()
    scripts = {name for name in assets() if name.endswith(".js")}
    assert {name.rpartition("/")[2] for name in re.findall(r'(?:href|src)="([^"]+\.js)"', html)} == scripts
