"""A hundred changefeeds of two hundred tables: the page draws what is looked at, and asks once."""

from collections import Counter
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tests.server.page.browser import is_above_the_fold, violations, visiting
from tests.server.page.many import REASON, show_many

pytestmark = pytest.mark.slow

FEEDS, TABLES = 100, 200
NODES = "() => document.querySelectorAll('*').length"
HEIGHTS = "() => [...new Set([...document.querySelectorAll('.glance tbody tr')].map((row) => row.offsetHeight))]"
BROKEN = "() => [...document.querySelectorAll('th a')].filter((name) => name.getClientRects().length > 1).length"
"""Links of names that stand on several lines."""
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


def test_a_glance(browser: Browser, client: Client) -> None:
    """Rows are equally high whatever went wrong, the whole reason is their tooltip, and the search says that it has
    found nothing; the tabs of a failed changefeed are seen without scrolling."""
    with visiting(browser, client.address, viewport={"width": 1280, "height": 800}) as visitor:
        page = visitor.go("/")
        assert page.evaluate(HEIGHTS) == [page.evaluate(HEIGHTS)[0]]
        assert page.evaluate(HEIGHTS)[0] < 60
        expect(page.get_by_title(REASON).first).to_be_visible()
        expect(page.get_by_text("kafka shop → kafka shop-out-1", exact=True)).to_be_visible()
        page.get_by_label("Find").fill("no such thing")
        expect(page.get_by_text("No hit for “no such thing” in 100 rows.")).to_be_visible()
        assert is_above_the_fold(visitor.go("/?feed=feed-004"))


def test_what_is_wrong(browser: Browser, client: Client) -> None:
    """A warning looks and is called otherwise than a failure, and is told once; of a changefeed that does not exist
    the page says so, with the way back."""
    with visiting(browser, client.address, refusals=True) as visitor:
        ground = {}
        for name, title in (("feed-004", "What is wrong"), ("feed-003", "What it waits for")):
            page = visitor.go(f"/?feed={name}")
            wrong = page.get_by_role("region", name="Why it does not run well")
            expect(wrong.get_by_role("heading", name=title)).to_be_visible()
            ground[name] = wrong.evaluate("node => getComputedStyle(node).backgroundColor")
        assert ground["feed-004"] != ground["feed-003"]
        expect(page.get_by_text(REASON)).to_have_count(1)

        page = visitor.go("/?feed=feed-777")
        expect(page.get_by_text("This server has no changefeed default/feed-777")).to_be_visible()
        expect(page.get_by_role("tablist")).to_be_hidden()
        expect(page.get_by_role("alert")).to_be_hidden()
        assert violations(page) == []
        page.get_by_role("link", name="All changefeeds").click()
        expect(page.get_by_role("heading", level=1, name="Changefeeds")).to_be_focused()


def test_a_load_is_a_bar(browser: Browser, client: Client) -> None:
    """A load that runs is a bar of its chunks, with tables and the time left; bytes a second have a unit, and so has
    what retention leaves of the topics."""
    with visiting(browser, client.address) as visitor:
        page = visitor.go("/?feed=feed-001")
        bar = page.get_by_role("progressbar", name="Full load")
        assert bar.evaluate("bar => [bar.value, bar.max]") == [2, 8]
        expect(page.get_by_role("definition").filter(has_text="1 of 3 tables")).to_contain_text("about 9 min left")
        expect(page.get_by_role("definition").filter(has_text="3.5 MiB")).to_be_visible()
        page = visitor.go("/?feed=feed-000")
        expect(page.get_by_role("definition").filter(has_text="3.5 MiB")).to_be_visible()
        expect(page.get_by_role("progressbar")).to_be_hidden()
        expect(page.locator("dl > div").filter(has_text="History left")).to_contain_text("6 h")


def test_a_server_that_hangs(browser: Browser, client: Client) -> None:
    """A request without an answer is told after some seconds, and the data is marked as old until there is one."""
    with visiting(browser, client.address) as visitor:
        visitor.page.clock.install()
        page = visitor.go("/")
        held: list[Route] = []
        page.route("**/overview", lambda route: held.append(route))  # noqa: PLW0108  playwright marks what it calls
        page.clock.run_for(6000)
        expect(page.get_by_role("alert")).to_be_hidden()
        page.clock.run_for(4000)
        expect(page.get_by_role("alert")).to_contain_text("Waiting for the server since")
        expect(page.locator("body[data-old]")).to_have_count(1)
        held[0].continue_()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("body[data-old]")).to_have_count(0)


def test_a_narrow_window(browser: Browser, client: Client) -> None:
    """A telephone shows the same, without a page that is wider than it, and names are whole."""
    with visiting(browser, client.address, viewport={"width": 375, "height": 800}) as visitor:
        for path in ("/", "/?feed=default/feed-004", "/?feed=default/feed-000&view=settings", "/?new"):
            page = visitor.go(path)
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path
            assert page.evaluate(BROKEN) == 0, path
