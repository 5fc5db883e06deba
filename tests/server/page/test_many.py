"""A hundred changefeeds of two hundred tables: the page draws what is looked at, and asks once."""

from collections import Counter
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tests.server.page.browser import violations, visiting
from tests.server.page.many import show_many

pytestmark = pytest.mark.slow

FEEDS, TABLES = 100, 200
NODES = "() => document.querySelectorAll('*').length"
WATCH = """() => {
  window.made = 0;
  new MutationObserver((found) => found.forEach((one) => (window.made += one.addedNodes.length)))
    .observe(document.body, {childList: true, subtree: true});
}"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server with many changefeeds."""
    with served(ServerHome(tmp_path_factory.mktemp("many"))) as (server, client):
        show_many(server, FEEDS, TABLES)
        yield client


def test_many(browser: Browser, client: Client) -> None:
    """The overview has one row a changefeed and asks for two answers; one changefeed has a page of its tables; a
    refresh makes no new elements; what is searched for is found on any page."""
    with visiting(browser, client.address) as visitor:
        page = visitor.go("/")
        feeds = page.get_by_role("table", name="Changefeeds, those in trouble")
        assert feeds.get_by_role("rowheader").count() == FEEDS
        assert page.evaluate(NODES) < 20 * FEEDS
        asked = Counter(url.partition("/api/")[2] for url in visitor.requests if "/api/" in url)
        assert asked == {"tidegate/v1/overview": 1, "tidegate/v1/operations": 1}

        page = visitor.go("/?feed=default/feed-000")
        tables = page.get_by_role("table", name="Tables with changes")
        assert tables.get_by_role("rowheader").count() == 50
        assert page.evaluate(NODES) < 1000
        loaded = int(page.locator("body").get_attribute("data-loaded") or 0)
        page.evaluate(WATCH)
        page.wait_for_function(f"() => Number(document.body.dataset.loaded) > {loaded}")
        assert page.evaluate("() => window.made") < 120, "axes and texts alone"

        page.get_by_role("button", name="Next").click()
        expect(tables.get_by_role("rowheader").first).to_have_text("shop.table_0149")
        page.get_by_label("Find a table").fill("table_0007")
        expect(tables.get_by_role("rowheader")).to_have_text(["shop.table_0007"])
        page.get_by_role("tab", name="Partitions").click()
        expect(page.get_by_role("table", name="Partitions").get_by_role("rowheader")).to_have_count(50)
        assert violations(page) == []


def test_a_narrow_window(browser: Browser, client: Client) -> None:
    """A telephone shows the same, without a page that is wider than it."""
    with visiting(browser, client.address, viewport={"width": 390, "height": 800}) as visitor:
        for path in ("/", "/?feed=default/feed-004", "/?feed=default/feed-000&view=settings", "/?new"):
            page = visitor.go(path)
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path
