"""A real Chromium without a screen, and what every page in it keeps: no error in its console, no foreign request."""

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tidegate.server.config import found_token

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
WAIT_MS = 45_000
COLOURS = 96
IMAGES = Path(__file__).parents[3] / "docs" / "images"
PLACELESS = r"""() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    const told = text.data.replace(/\/(?:dev\/shm|tmp)(?:\/[\w-]+)*?\/[a-z_]+\d+(?=[/\s])/g, "/srv")
      .replace(/\b[a-z_]+0\/(?=lake|log)/g, "srv/");
    if (told !== text.data) text.data = told;
  }
}"""
"""Pictures show no directory of the test that took them."""
REFUSED = "Failed to load resource: the server responded with a status of "
"""What Chromium itself says of an answer that is a refusal, which a page may well get."""


def chromium() -> str:
    """The path of the browser; without one the test is skipped, where CI runs it fails."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        text = "no Chromium on this machine; Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("TIDEGATE_CI") else pytest.skip)(text)
    return str(found)


@contextmanager
def running() -> Iterator[Browser]:
    """A browser."""
    program = chromium()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


class Visitor:
    """One person at a page of a server: a browser context of their own."""

    def __init__(self, browser: Browser, address: str, **context: object) -> None:
        given = {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light", "timezone_id": "UTC"} | context
        self._context = browser.new_context(**given)  # type: ignore[arg-type]
        self.address = address
        token = found_token(f"http://{address}")
        self.token = f"#token={token}" if token else ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def go(self, path: str) -> Page:
        """The page at an address, with its first answer shown."""
        self.page.goto(f"http://{self.address}{path}{self.token}")
        self.token = ""  # kept by the page from now on
        self.page.wait_for_selector("body[data-loaded]")
        return self.page

    def end(self, *, refusals: bool = False) -> None:
        """Leave; nothing has gone wrong, and nobody else was asked."""
        self._context.close()
        assert [one for one in self.errors if not (refusals and one.startswith(REFUSED))] == []
        assert [url for url in self.requests if not url.startswith(f"http://{self.address}/")] == []


@contextmanager
def visiting(browser: Browser, address: str, *, refusals: bool = False, **context: object) -> Iterator[Visitor]:
    """Somebody at a server's page."""
    visitor = Visitor(browser, address, **context)
    try:
        yield visitor
    except BaseException:
        visitor._context.close()
        raise
    visitor.end(refusals=refusals)


def is_above_the_fold(page: Page) -> bool:
    """Whether the tabs of a changefeed are seen without scrolling."""
    tabs = page.get_by_role("tablist").bounding_box()
    assert page.viewport_size is not None
    return tabs is not None and tabs["y"] + tabs["height"] < page.viewport_size["height"]


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def violations(page: Page) -> list[str]:
    """What axe finds that keeps people out: its serious and critical violations, by rule and place."""
    page.evaluate(_axe())
    found = page.evaluate("async () => (await axe.run({resultTypes: ['violations']})).violations")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]


def picture(shown: Page | Locator, name: str) -> None:
    """Take a picture of a page or a part of it for the documentation, where UPDATE=1 asks for it."""
    if os.environ.get("UPDATE"):
        IMAGES.mkdir(exist_ok=True)
        (shown.page if isinstance(shown, Locator) else shown).evaluate(PLACELESS)
        taken = Image.open(io.BytesIO(shown.screenshot(animations="disabled"))).convert("RGB")
        taken.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
