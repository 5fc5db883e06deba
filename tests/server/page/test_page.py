"""The page in a real browser, over changefeeds that run: what it shows, what can be done, and for everybody."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.failpoint import armed
from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome, until
from tests.server.page.browser import Visitor, picture, violations, visiting
from tidegate.config.registry import SINKS
from tidegate.server.entrance import with_user
from tidegate.server.record import FeedId
from tidegate.server.server import Server
from tidegate_upstream.tidb.listener import Upstream

pytestmark = pytest.mark.slow

VIEWS = ("tables", "partitions", "ddls", "schema", "changes", "letters", "snapshots", "timeline", "settings")
GATE = "tests.server.page.gate"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with work and online DDLs behind it."""
    place = ServerHome(tmp_path_factory.mktemp("page"))
    for sql in (
        "CREATE TABLE shop (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x')",
        "INSERT INTO shop VALUES (1, 'one'), (2, '<b>two</b>')",
        "ALTER TABLE shop ADD COLUMN price INT",
        "UPDATE shop SET price = 5 WHERE id = 2",
    ):
        place.upstream.run(sql)
    place.work(20)
    return place


@pytest.fixture(scope="module")
def serving(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server with a changefeed of the log, one into a lake, one that is paused and one that has failed."""
    with served(place, callback_modules=["tests.e2e.collected", "tests.server.sinks", GATE]) as (server, client):
        sinks = {
            "orders": f"delta://{place.home / 'lake'}",
            "audit": place.sink("audit"),
            "archive": place.sink("archive"),
            "search": "callback://tests.server.sinks/refusing",
        }
        for name, sink in sinks.items():
            made = client.post("/changefeeds", {"changefeed_id": name, "sink_uri": sink, "start_ts": 1})
            assert made.status == 200, made.text
        end = place.work(2)
        for name in ("orders", "audit", "archive"):
            until(lambda name=name: server.changefeeds.get(FeedId("default", name)).checkpoint_ts >= end)
        assert client.post("/changefeeds/archive/pause").status == 200
        until(lambda: server.changefeeds.get(FeedId("default", "search")).state == "failed")
        yield server, client


@pytest.fixture
def visitor(browser: Browser, serving: tuple[Server, Client]) -> Iterator[Visitor]:
    """Somebody at the page."""
    with visiting(browser, serving[1].address) as visitor:
        yield visitor


def row(page: Page, name: str):
    """The row of a table that is named so."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def test_at_a_glance(visitor: Visitor, place: ServerHome) -> None:
    """The worst comes first with its reason; one that is paused shows how old its checkpoint is; source and sink have
    their names."""
    place.work(1)
    page = visitor.go("/")

    names = page.get_by_role("table", name="Changefeeds, those in trouble").get_by_role("rowheader").all_inner_texts()
    assert names == ["search", "audit", "orders", "archive"]
    expect(row(page, "search")).to_contain_text("✕ failed")
    expect(row(page, "search")).to_contain_text("there is no room")
    cells = row(page, "archive").get_by_role("cell").all_inner_texts()
    assert "‖ paused" in cells
    assert re.fullmatch(r"[\d.]+ \w+", cells[3]), "the age of the checkpoint"
    expect(row(page, "orders")).to_contain_text(re.compile(r"tidb \S+/log →\s*delta \S+/lake"))
    picture(page, "server-page")

    page.get_by_role("button", name="✕ failed").click()
    expect(page.get_by_role("rowheader", name="search")).to_be_visible()
    expect(page.get_by_role("rowheader", name="orders")).to_have_count(0)


def test_one_changefeed(visitor: Visitor) -> None:
    """A failed one tells its code, text, since when, and its ways out as buttons; its DDLs, rows and definitions are
    shown as text, whatever stands in them."""
    page = visitor.go("/?feed=default/search")
    wrong = page.get_by_role("region", name="Why it does not run well")
    expect(wrong).to_contain_text("there is no room")
    expect(wrong.get_by_role("button", name="Resume…")).to_be_visible()
    expect(page.get_by_role("definition").filter(has_text="CDC:Err")).to_be_visible()

    page = visitor.go("/?feed=default/audit&view=ddls")
    added = page.get_by_role("row").filter(has_text="ADD COLUMN `price`")
    expect(added).to_contain_text("done")
    expect(added).to_contain_text("delete-only")
    expect(added).to_contain_text("write-reorg")

    page.get_by_role("tab", name="Schema").click()
    page.get_by_label("Table", exact=True).fill("test.shop")
    page.get_by_label("Table", exact=True).press("Enter")
    page.get_by_label("As of").focus()
    expect(page.get_by_role("rowheader", name="price")).to_be_visible()
    assert page.url.endswith("view=schema&table=test.shop")

    page = visitor.go("/?feed=default/audit&view=changes&table=test.shop")
    expect(page.get_by_role("row").filter(has_text="name=<b>two</b>, price=5")).to_contain_text("price=NULL")
    page = visitor.go("/?feed=default/orders&view=snapshots")
    expect(page.get_by_role("table", name="Snapshots").get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("img", name="Time by phase since the run started")).to_be_visible()


def test_what_comes_is_seen(visitor: Visitor, place: ServerHome) -> None:
    """A change that is made while somebody looks appears without a click, and nothing that stands is drawn anew."""
    page = visitor.go("/?feed=default/audit&view=changes&table=test.shop")
    page.get_by_role("button", name="Theme").focus()
    first = page.get_by_role("row").filter(has_text="price=5").element_handle()
    place.upstream.run("INSERT INTO shop VALUES (77, 'new', 1)")
    place.work(0)

    expect(page.get_by_role("row").filter(has_text="id=77")).to_be_visible()
    assert first.evaluate("node => node.isConnected")
    expect(page.get_by_role("button", name="Theme")).to_be_focused()
    expect(page.locator("#age")).to_contain_text("updated")


def test_two_browsers(browser: Browser, serving: tuple[Server, Client], visitor: Visitor) -> None:
    """What one person does after being asked, another one sees within seconds, with who did it; cancelling does
    nothing."""
    page = visitor.go("/?feed=default/audit")
    with visiting(browser, serving[1].address) as other:
        seen = other.go("/?feed=default/audit&view=timeline")
        page.get_by_role("button", name="Pause…").click()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Pause…")).to_be_focused()
        assert serving[0].changefeeds.get(FeedId("default", "audit")).state == "normal"

        page.get_by_role("button", name="Pause…").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(page.locator("p.state")).to_have_text("‖ paused")
        expect(seen.locator("p.state")).to_have_text("‖ paused")
        expect(seen.get_by_role("row").filter(has_text="pause").filter(has_text="anonymous").first).to_be_visible()
        expect(seen.get_by_text("Checkpoint lag", exact=True)).to_be_hidden()

        seen.get_by_role("button", name="Resume…").click()
        seen.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(page.locator("p.state")).to_have_text("● normal")

        expect(page.get_by_role("button", name="Cancel load…")).to_be_hidden()
        page.get_by_role("button", name="Load…", exact=True).click()
        expect(page.get_by_role("dialog").get_by_label("Tables")).to_be_editable()
        page.keyboard.press("Escape")


@pytest.fixture(scope="module")
def database(place: ServerHome) -> Iterator[str]:
    """The address of the upstream, whose cluster ends with its ports."""
    with Upstream(place.upstream.cluster) as sql:
        yield f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"


@pytest.mark.more
def test_a_load(browser: Browser, place: ServerHome, serving: tuple[Server, Client], database: str) -> None:
    """Started, paused, resumed and cancelled by its buttons, a load is as the page shows it; one that waits for its
    database can be cancelled, too, and another one loads all."""
    feeds, name, go = serving[0].changefeeds, FeedId("default", "loads"), threading.Event()

    def hold() -> None:
        """Wait amid a load of this changefeed until its run is stopped."""
        run = feeds._feed(name).run if threading.current_thread().name == str(name) else None
        while run and run.progress and run.progress.load and not (go.is_set() or run._stop.wait(0.02)):
            pass

    begun = place.work()
    made = {"changefeed_id": name.name, "sink_uri": place.sink("loads"), "start_ts": begun}
    with visiting(browser, serving[1].address) as visitor:
        assert serving[1].post("/changefeeds", made).status == 200
        page = visitor.go("/?feed=default/loads")
        state, shown = page.locator("p.state"), page.get_by_role("definition")

        def press(button: str, verb: str, database: str = "") -> None:
            page.get_by_role("button", name=button, exact=True).click()
            dialog = page.get_by_role("dialog")
            if database:
                dialog.get_by_label("Database").fill(database)
            dialog.get_by_role("button", name=verb, exact=True).click()
            expect(dialog).to_have_count(0)

        with armed({"round/planned": hold}):
            press("Load…", "Load", database)
            until(lambda: place.work(1) and (run := feeds.get(name).progress) and run.load)
            expect(shown.filter(has_text="loading test.")).to_be_visible()
            expect(page.get_by_role("button", name="Load…", exact=True)).to_be_hidden()
            press("Pause…", "Pause")
            expect(state).to_have_text("‖ paused")
            press("Resume…", "Resume")
            expect(state).to_have_text("● normal")
            expect(shown.filter(has_text="loading test.")).to_be_visible()
            press("Cancel load…", "Cancel the load")
            expect(page.get_by_role("region", name="Why it does not run well")).to_contain_text("was cancelled")
            expect(state).to_have_text("‖ paused")
            go.set()
        press("Load…", "Load", "mysql://root@127.0.0.1:1/?enable-tls=false&timeout=1s")
        expect(page.get_by_role("button", name="Load…", exact=True)).to_be_visible()
        press("Cancel load…", "Cancel the load")
        until(lambda: feeds.get(name).state == "stopped")
        press("Load…", "Load", database)
        until(lambda: place.work(1) and (run := feeds.get(name).progress) and run.load and run.load.is_done)
        expect(shown.filter(has_text=re.compile(r"loaded \d+ tables"))).to_be_visible()
        expect(page.get_by_role("button", name="Cancel load…", exact=True)).to_be_hidden()
    assert serving[1].delete("/changefeeds/loads").status == 200


def test_tables_beside_the_feed(
    browser: Browser, place: ServerHome, serving: tuple[Server, Client], database: str
) -> None:
    """Asked for in dialogs, they are loaded beside a changefeed, and the page shows how far, and the end."""
    feeds, name, go = serving[0].changefeeds, FeedId("default", "beside"), threading.Event()
    made = {"changefeed_id": name.name, "sink_uri": f"delta://{place.home / name.name}", "start_ts": place.work()}
    with visiting(browser, serving[1].address) as visitor, armed({"load/rows-read": lambda: go.wait(60) and None}):
        assert serving[1].post("/changefeeds", made).status == 200
        until(lambda: place.work(1) and feeds.get(name).checkpoint_ts > made["start_ts"])
        page = visitor.go("/?feed=default/beside")
        for verb, given in (("Reload", database), ("Add", "")):
            go.clear()
            page.get_by_role("button", name=f"{verb} tables…", exact=True).click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Database").fill(given)
            dialog.get_by_label("Tables").fill("test.shop")
            dialog.get_by_role("button", name=verb, exact=True).click()
            expect(dialog).to_have_count(0)
            until(lambda: (run := feeds.get(name).progress) and run.reload and run.reload.load, wait_s=120)
            shown = page.get_by_role("definition").filter(has_text="reload of test.shop at")
            expect(shown).to_contain_text("loading test.shop, 0 of 1 chunks")
            go.set()
            until(lambda: place.work(1) and feeds.get(name).progress.reload.state == "done", wait_s=120)
            expect(shown).to_contain_text(": done")
    assert serving[1].delete("/changefeeds/beside").status == 200


def test_a_ddl_in_flight(browser: Browser, place: ServerHome, serving: tuple[Server, Client]) -> None:
    """A DDL is shown as being done while the sink does it, the next one as waiting, and both as done then."""
    home = place.home / "sinks" / "gate"
    made = {"changefeed_id": "gate", "sink_uri": f"callback://{GATE}/into?home={home}"}
    assert serving[1].post("/changefeeds", made).status == 200
    for column in ("first", "second"):
        place.upstream.run(f"ALTER TABLE shop ADD COLUMN {column} INT")
    place.work(0)
    with visiting(browser, serving[1].address) as visitor:
        page = visitor.go("/?feed=default/gate&view=ddls")
        first, second = (page.get_by_role("row").filter(has_text=f"`{name}`") for name in ("first", "second"))
        expect(first).to_contain_text("running")
        expect(second).to_contain_text("waiting")
        expect(page.get_by_role("heading", name="DDL in flight")).to_be_visible()
        expect(page.locator(".laggard")).to_contain_text("a DDL is being done")
        picture(page.get_by_role("region", name="Details"), "server-page-ddl")
        home.mkdir(parents=True, exist_ok=True)
        (home / "go").touch()
        expect(first).not_to_contain_text("running")
        expect(second).to_contain_text("done")
        expect(page.get_by_role("heading", name="DDL in flight")).to_be_hidden()
    assert serving[1].delete("/changefeeds/gate").status == 200


def test_a_parked_table(browser: Browser, place: ServerHome, serving: tuple[Server, Client]) -> None:
    """A table whose DDL the lake refuses is named with the reason, while the others go on; mended, it is let go on from
    the page."""
    server, client = serving
    lake, feed = f"delta://{place.home / 'strict'}?table-error=park&schema-change=", FeedId("default", "strict")
    place.upstream.run("CREATE TABLE parked (id INT PRIMARY KEY)")
    place.upstream.run("INSERT INTO parked VALUES (1)")
    place.work(0)
    made = {
        "changefeed_id": "strict",
        "sink_uri": f"{lake}exception",
        "replica_config": {"filter": {"rules": ["test.parked"]}},
    }
    assert client.post("/changefeeds", {**made, "start_ts": 1}).status == 200
    until(lambda: server.changefeeds.get(feed).checkpoint_ts >= place.upstream.writer.low)
    place.upstream.run("ALTER TABLE parked ADD COLUMN note INT")
    place.upstream.run("INSERT INTO parked VALUES (2, 2)")
    place.work(0)
    until(lambda: (progress := server.changefeeds.get(feed).progress) is not None and progress.parked)
    with visiting(browser, client.address) as visitor:
        page = visitor.go("/?feed=default/strict")
        expect(page.locator(".laggard")).to_contain_text("table test.parked is parked")
        expect(row(page, "test.parked")).to_contain_text("schema-change")
        assert violations(page) == []
        assert client.post("/changefeeds/strict/pause").status == 200
        assert client.put("/changefeeds/strict", {"sink_uri": f"{lake}evolve"}).status == 200
        assert client.post("/changefeeds/strict/resume").status == 200
        page.get_by_role("button", name="Resume table…").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume table").click()
        expect(page.locator(".laggard")).to_be_hidden()
        expect(row(page, "test.parked")).to_contain_text("follows")
    assert client.delete("/changefeeds/strict").status == 200


def test_edit_and_resume(browser: Browser, place: ServerHome, serving: tuple[Server, Client]) -> None:
    """A failure that advises a parameter offers to go on with it, filled in; one that runs says that it must be paused
    first; wrong settings stay in the dialog, and what is shown masked stays as it was."""
    server, client = serving
    feed, lake = FeedId("default", "mended"), f"delta://{place.home / 'mended'}?schema-change="
    place.upstream.run("CREATE TABLE mended (id INT PRIMARY KEY)")
    made = {
        "changefeed_id": feed.name,
        "sink_uri": f"{lake}exception",
        "start_ts": place.work(0),
        "replica_config": {"filter": {"rules": ["test.mended"]}, "sink": {"kafka_config": {"sasl_password": "geheim"}}},
    }
    assert client.post("/changefeeds", made).status == 200
    with visiting(browser, client.address, refusals=True) as visitor:
        page = visitor.go(f"/?feed={feed.name}")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Edit…", exact=True).click()
        expect(dialog).to_contain_text("Only a paused or failed changefeed can be changed")
        page.keyboard.press("Escape")

        place.upstream.run("ALTER TABLE mended ADD COLUMN note INT")
        place.work(0)
        page.get_by_role("button", name="Edit and resume with schema-change=evolve…").click()
        expect(dialog.get_by_label("Sink URI")).to_have_value(f"{lake}evolve")
        assert violations(page) == []
        settings = dialog.get_by_label("Settings")
        right = settings.input_value()
        for wrong in ("{", '{"filter": {"rules": 5}}', '{"filter": {"rules": ["test.["]}}'):
            settings.fill(wrong)
            dialog.get_by_role("button", name="Save").click()
            expect(settings).to_have_attribute("aria-invalid", "true")
        settings.fill(right.replace("test.mended", "test.mend*"))
        dialog.get_by_role("button", name="Save").click()
        expect(page.locator("p.state")).to_have_text("● normal")
        record = server.changefeeds.get(feed).record
        assert record.sink_uri == f"{lake}evolve"
        assert record.config["filter"]["rules"] == ["test.mend*"]
        assert record.config["sink"]["kafka-config"]["sasl-password"] == "geheim"
    assert client.delete(f"/changefeeds/{feed.name}").status == 200


def test_a_new_changefeed(browser: Browser, place: ServerHome, serving: tuple[Server, Client]) -> None:
    """The form has an example of each kind of sink, tells beside the field what is wrong, shows a time as the TSO that
    it is and which tables would be carried, and makes the changefeed."""
    with visiting(browser, serving[1].address, refusals=True) as visitor:
        page = visitor.go("/?new")
        page.get_by_label("Name").fill("made-here")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_label("Sink URI")).to_have_attribute("aria-invalid", "true")
        for kind, example in (("kafka", SINKS["kafka"].example), ("mysql", SINKS["mysql"].example)):
            page.get_by_label("Kind of sink").select_option(kind)
            expect(page.get_by_label("Sink URI")).to_have_value(example)
        assert page.get_by_label("Kind of sink").get_by_role("option").count() == len(SINKS) + 1
        page.get_by_label("Sink URI").fill("kafka://h/t?protocol=morse")
        page.get_by_role("button", name="Check").click()
        wrong = page.locator("p", has=page.get_by_role("alert").filter(has_text="morse"))
        expect(wrong.get_by_label("Sink URI")).to_be_focused()
        assert violations(page) == []
        page.get_by_label("Sink URI").fill("redis://127.0.0.1:1")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_role("alert").filter(has_text="127.0.0.1:1")).to_be_visible()

        page.get_by_label("Sink URI").fill(place.sink("made-here"))
        page.get_by_label("Start ts").fill("tomorrow")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_label("Start ts")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("Sink URI")).not_to_have_attribute("aria-invalid", "true")
        page.get_by_label("Start ts").fill("2020-01-31 10:00:01")
        expect(page.get_by_text(f"2020-01-31 10:00:01 is TSO {1580464801000 << 18}")).to_be_visible()
        page.get_by_label("Start ts").fill("")
        page.get_by_label("Filter rules").fill("test.shop")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_role("status").filter(has_text="1 table")).to_contain_text("test.shop")
        expect(page.get_by_role("status").filter(has_text="1 table")).to_contain_text(
            "The sink is tried once the changefeed is created"
        )
        page.get_by_role("button", name="Create…").click()
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", level=1, name="made-here")).to_be_focused()

        page.get_by_role("button", name="Remove…").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.get_by_role("heading", level=1, name="Changefeeds")).to_be_focused()
    assert serving[1].get("/changefeeds/made-here").status == 400


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.more)])
def test_for_everybody(browser: Browser, serving: tuple[Server, Client], theme: str) -> None:
    """Each view is whole for who hears it and for who sees little of it, in both themes, dialogs too."""
    with visiting(browser, serving[1].address, color_scheme=theme) as visitor:
        for path in ("/", "/?new", "/?feed=default/search", *(f"/?feed=default/orders&view={view}" for view in VIEWS)):
            assert violations(visitor.go(path)) == [], path
        page = visitor.go("/?feed=default/orders&view=schema&table=test.shop")
        page.get_by_role("button", name="Pause…").click()
        assert violations(page) == []
        if theme == "dark":
            page.keyboard.press("Escape")
            picture(page, "server-page-dark")


def test_by_keyboard(visitor: Visitor) -> None:
    """The content is one key away, tabs follow the arrows, and the way back is the browser's own."""
    page = visitor.go("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("link", name="orders").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="orders")).to_be_focused()
    page.get_by_role("tab", name="Tables").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Partitions")).to_be_focused()
    assert "view=partitions" in page.url
    page.go_back()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Changefeeds")).to_be_visible()


def test_themes(visitor: Visitor) -> None:
    """The switch overrides the system's theme, and is remembered."""
    page = visitor.go("/")
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) != light
    visitor.go("/")
    assert page.evaluate(ground) != light
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_without_rights(browser: Browser, place: ServerHome, tmp_path: Path) -> None:
    """Who may only read sees everything; an action says that it is refused and why, and does nothing."""
    users = tmp_path / "users"
    users.write_text(with_user(with_user("", "ann", "secret-1"), "bob", "secret-2"))
    users.chmod(0o600)
    security = {"users-file": str(users), "client-user-required": True, "client-allowed-user": ["ann"]}
    with served(place, data_dir=str(tmp_path / "data"), security=security) as (server, client):
        server.changefeeds.create(place.wish("read-1"), "ann")
        bob = {"username": "bob", "password": "secret-2"}
        with visiting(browser, client.address, refusals=True, http_credentials=bob) as visitor:
            page = visitor.go("/?feed=default/read-1")
            page.get_by_role("button", name="Pause…").click()
            expect(page.get_by_role("dialog")).to_contain_text("Done as bob")
            page.get_by_role("dialog").get_by_role("button", name="Pause").click()
            expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("You may not do this")
        assert server.changefeeds.get(FeedId("default", "read-1")).state == "normal"


def test_the_token_comes_by_the_address(browser: Browser, serving: tuple[Server, Client]) -> None:
    """Without the token everything is shown and an action is refused; the address that the server prints brings it,
    also into a page that is open, and it stays in no address."""
    server, feed = serving[0], FeedId("default", "audit")
    with visiting(browser, serving[1].address, refusals=True) as visitor:
        brought, visitor.token = visitor.token, ""
        page = visitor.go("/?feed=default/audit")
        for state in ("normal", "stopped"):
            page.get_by_role("button", name="Pause…").click()
            page.get_by_role("dialog").get_by_role("button", name="Pause").click()
            if state == "stopped":
                expect(page.locator("p.state")).to_have_text("‖ paused")
            else:
                expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("You may not do this")
                page.keyboard.press("Escape")
                page.goto(f"{page.url}{brought}")
                expect(page).to_have_url(f"http://{serving[1].address}/?feed=default/audit")
            assert server.changefeeds.get(feed).state == state
    server.changefeeds.resume(feed, "")


def test_when_the_server_is_gone(browser: Browser, place: ServerHome, tmp_path: Path) -> None:
    """What was known stays on the page, which says that nobody answers."""
    with served(place, data_dir=str(tmp_path / "data")) as (server, client):
        server.changefeeds.create(place.wish("gone-1"), "ann")
        visitor = Visitor(browser, client.address)
        page = visitor.go("/")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.get_by_role("rowheader", name="gone-1")).to_be_visible()
    visitor._context.close()
