"""How soon the page of a server shows 100 changefeeds of 200 tables, and how long a refresh keeps the browser busy.

    python benchmarks/server_page.py [FEEDS] [TABLES]

Needs Chromium.  `shown` is from the request of the page to its last element drawn, files and answers included.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server.http_kit import served
from tests.server.kit import ServerHome
from tests.server.page.browser import NAMES, Visitor, running
from tests.server.page.many import show_many

FEEDS, TABLES = (int(number) for number in (*sys.argv[1:], *("100", "200")[len(sys.argv[1:]) :]))
ROUNDS = 7
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"
WATCH = """() => { window.busy = 0; new PerformanceObserver((list) =>
  list.getEntries().forEach((one) => (window.busy += one.duration))).observe({type: 'longtask'}); }"""


def main() -> None:
    """Print the times of each view."""
    if not any(map(shutil.which, NAMES)):
        print("no Chromium on this machine")
        return
    with (
        tempfile.TemporaryDirectory() as home,
        served(ServerHome(Path(home))) as (server, client),
        running() as browser,
    ):
        show_many(server, FEEDS, TABLES)
        print(f"{FEEDS} changefeeds, {TABLES} tables each")
        for path in ("/", "/?feed=default/feed-000", "/?feed=default/feed-000&view=partitions"):
            shown_s, refreshed = [], []
            for _ in range(ROUNDS):
                visitor = Visitor(browser, client.address)
                page = visitor.go(path)
                shown_s.append(page.evaluate(DRAWN))
                page.evaluate(WATCH)
                loaded = int(page.locator("body").get_attribute("data-loaded") or 0)
                page.wait_for_function(f"() => Number(document.body.dataset.loaded) > {loaded}")
                refreshed.append(page.evaluate("() => window.busy"))
                visitor.end()
            print(
                f"{path:<45} shown in {statistics.median(shown_s):5.0f} ms (worst {max(shown_s):5.0f}), "
                f"a refresh blocks for {max(refreshed):3.0f} ms"
            )


if __name__ == "__main__":
    main()
