"""Take the pictures of the demo, which `make pictures` renews: its panel on a terminal, and its server's page.

    tmux, 120 x 40 ── tidegate demo ──► capture-pane ── rich ──► HTML ──► Chromium ──► docs/images/demo*.png
                        └ page: http://127.0.0.1:PORT/#token=.. ────────────┘

It runs the demo once, which takes some minutes; tmux and Chromium must be installed.
"""

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT = 120, 40
COLORS: Final = 96
LIMIT_S: Final = 900.0
HTML: Final = """<body style="margin: 0; display: inline-block; background: {background}; color: {foreground}">
<pre style="margin: 14px; font: 14px/17px 'DejaVu Sans Mono', monospace">{code}</pre>"""
SIGNS: Final = {
    "demo-work": re.compile(r"· work ·(?s:.)*open lake +[\d,]*[1-9](?s:.)*DDL in flight"),
    "demo-compare": re.compile(r"· compare ·(?s:.)*\n(compared .* (2\d|30) of )"),
}


@contextmanager
def terminal(home: str) -> Iterator[list[str]]:
    """Run the demo in a terminal; yield the start of tmux's commands to it."""
    tmux = [shutil.which("tmux") or "tmux", "-L", f"tidegate-{Path(home).name}"]
    demo = f"{sys.executable} -m tidegate demo --seconds 60 --dir {home}; sleep 60"
    size = ("-x", str(WIDTH), "-y", str(HEIGHT))
    subprocess.run(
        [*tmux, "-f", "/dev/null", "new-session", "-d", *size, demo, ";", "set", "status", "off"], check=True
    )
    try:
        yield tmux
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def save(picture: bytes, name: str) -> None:
    """Write a picture with few colors."""
    taken = Image.open(io.BytesIO(picture)).convert("RGB")
    taken.quantize(COLORS, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)


def draw(browser: Browser, screen: str, name: str) -> None:
    """Take a picture of what a terminal shows."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(screen))
    with browser.new_page(viewport={"width": 1100, "height": 720}) as page:
        page.set_content(console.export_html(theme=DIMMED_MONOKAI, inline_styles=True, code_format=HTML))
        save(page.locator("body").screenshot(), name)


def visit(browser: Browser, address: str, name: str) -> None:
    """Take a picture of the server's page."""
    with browser.new_page(viewport={"width": 1280, "height": 480}) as page:
        page.goto(address)
        page.wait_for_selector("body[data-loaded]")
        save(page.screenshot(animations="disabled"), name)


def main() -> int:
    """Take all of them."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    left, until_s = dict(SIGNS), time.monotonic() + LIMIT_S
    with (
        TemporaryDirectory(prefix="demo-") as home,
        sync_playwright() as playwright,
        terminal(home) as tmux,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        while left and time.monotonic() < until_s:
            time.sleep(0.2)
            screen = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True
            ).stdout
            plain = Text.from_ansi(screen).plain
            for name in [name for name, sign in left.items() if sign.search(plain)]:
                draw(browser, re.sub(r"#token=[\w-]+", "#token=...", screen.replace(home, "/srv/demo")), name)
                del left[name]
                if name == "demo-work" and (address := re.search(r"page: (\S+)", plain)):
                    visit(browser, address[1], "demo-page")
        browser.close()
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
