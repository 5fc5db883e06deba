"""A changefeed of a real topic fails on a message that nobody can read, and is mended from the page."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.rig import Topic, differences, moment_ts, recorded
from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome, until
from tests.server.page.browser import is_above_the_fold, picture, violations, visiting
from tests.source.kit import open_message, resolved
from tidegate.model.tso import compose
from tidegate.server.record import FeedId
from tidegate.server.server import Server
from tidegate_upstream.demo.recorded import Frame

pytestmark = pytest.mark.slow

MOMENT = 3
JUNK = b'{"id":0,"database":"shop","table":"orders","type":"INSERT","data":[{"id":"7041"'
WAIT_S = 60.0


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """A server."""
    with served(ServerHome(tmp_path_factory.mktemp("mending"))) as found:
        yield found


def begun(serving: tuple[Server, Client], name: str, topic: Topic, lake: Path) -> FeedId:
    """A changefeed from a topic into a lake."""
    body = {"changefeed_id": name, "sink_uri": f"delta://{lake}", "source_uri": topic.uri()}
    made = serving[1].post("/changefeeds", body)
    assert made.status == 200, made.text
    return FeedId("default", name)


def poisoned(bootstrap: str, name: str, *, instead: bool) -> tuple[Topic, int, bytes]:
    """A topic with a message that is no JSON among its messages, or in the place of one; its offset and what was
    there."""
    partitions: list[list[Frame]] = [list(messages) for messages in recorded("canal", MOMENT)]
    at = next(at for at, (_, value) in enumerate(partitions[1]) if at > 50 and b'"type":"INSERT"' in value)
    right = partitions[1][at][1]
    partitions[1][at : at + int(instead)] = [(b"", JUNK)]
    return Topic.fed(bootstrap, name, "canal", partitions), at, right


def mended(serving: tuple[Server, Client], page: Page, feed: FeedId, lake: Path) -> None:
    """It goes on, as the page says, and the lake is what the topic tells."""
    expect(page.locator("p.state")).to_have_text("● normal")
    until(lambda: serving[0].changefeeds.get(feed).checkpoint_ts >= moment_ts(MOMENT), wait_s=WAIT_S)
    assert serving[0].changefeeds.get(feed).state == "normal"
    assert differences(lake, "--at", str(MOMENT)) == {}


def test_skip(bootstrap: str, browser: Browser, serving: tuple[Server, Client], tmp_path: Path) -> None:
    """The page names code and place of the message, above the tabs on a small screen, and its bytes where asked;
    skipped from there, it is a dead letter, all else arrives, and who did it is noted."""
    topic, at, _ = poisoned(bootstrap, "page-skip", instead=False)
    feed = begun(serving, "shop", topic, tmp_path / "lake")
    until(lambda: serving[0].changefeeds.get(feed).state == "failed", wait_s=WAIT_S)
    with visiting(browser, serving[1].address, viewport={"width": 1280, "height": 800}) as visitor:
        page = visitor.go("/?feed=default/shop")
        wrong = page.get_by_role("region", name="Why it does not run well")
        expect(wrong).to_contain_text(f"{topic.name}/1/{at}")
        expect(wrong).to_contain_text("CDC:Err")
        assert is_above_the_fold(page)
        picture(page, "server-page-failed")
        wrong.get_by_text("Bytes of the message").click()
        expect(wrong.get_by_label("Value: ")).to_contain_text('{"id":0,"databas')
        assert violations(page) == []
        wrong.get_by_role("link", name="CDC:ErrPoisonMessage").click()
        expect(page.locator(":target")).to_contain_text("dlq skip")
        assert violations(page) == []
        page.go_back()

        wrong.get_by_role("button", name="Skip this message…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"{topic.name}/1/{at}")
        assert violations(page) == []
        dialog.get_by_role("button", name="Skip and resume").click()
        mended(serving, page, feed, tmp_path / "lake")
        expect(wrong).to_be_hidden()

        page.get_by_role("tab", name="Dead letters").click()
        letter = page.get_by_role("row").filter(has_text=f"{topic.name}/1/{at}")
        expect(letter).to_contain_text("dead")
        letter.get_by_role("button", name="Show…").click()
        expect(page.get_by_label("Value: ")).to_contain_text('{"id":0,"databas')
        page.get_by_role("tab", name="Timeline").click()
        done = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="skip"))
        expect(done).to_contain_text("anonymous")


def test_replay(bootstrap: str, browser: Browser, serving: tuple[Server, Client], tmp_path: Path) -> None:
    """Other bytes given on the page are read in the message's place; bytes that cannot be read either are refused in
    the dialog, which stays."""
    topic, at, right = poisoned(bootstrap, "page-replay", instead=True)
    feed = begun(serving, "replayed", topic, tmp_path / "lake")
    until(lambda: serving[0].changefeeds.get(feed).state == "failed", wait_s=WAIT_S)
    with visiting(browser, serving[1].address, refusals=True) as visitor:
        page = visitor.go("/?feed=default/replayed")
        page.get_by_role("button", name="Replay with other bytes…").click()
        dialog = page.get_by_role("dialog")
        value = dialog.get_by_label("Value")
        expect(value).to_have_value(JUNK.decode())
        value.fill("{}")
        dialog.get_by_role("button", name="Replay and resume").click()
        expect(dialog.get_by_role("alert")).to_contain_text(f"partition 1 offset {at}")
        value.fill(right.decode())
        dialog.get_by_role("button", name="Replay and resume").click()
        mended(serving, page, feed, tmp_path / "lake")
        page.get_by_role("tab", name="Dead letters").click()
        expect(page.get_by_text("No dead letters.")).to_be_visible()


def test_a_silent_partition(bootstrap: str, browser: Browser, serving: tuple[Server, Client], tmp_path: Path) -> None:
    """The partition that brings no resolved ts is named, with what waits for it, and stands first in the list; it is
    no longer named when it speaks."""
    now_ms = time.time_ns() // 1_000_000

    def resolving(ago_s: int) -> list[Frame]:
        message = open_message(0, resolved(compose(now_ms - ago_s * 1000)))
        return [(message.key or b"", message.value or b"")]

    topic = Topic.fed(bootstrap, "page-silent", "open", [resolving(1), resolving(60), resolving(0)])
    feed = begun(serving, "silent", topic, tmp_path / "lake")
    until(lambda: serving[0].changefeeds.get(feed).resolved_ts >= compose(now_ms - 60_000), wait_s=WAIT_S)
    with visiting(browser, serving[1].address) as visitor:
        page = visitor.go("/?feed=default/silent&view=partitions")
        said = "topic page-silent partition 1 has brought no resolved ts since"
        expect(page.locator(".laggard")).to_contain_text(said, timeout=20_000)
        first = page.get_by_role("table", name="Partitions").get_by_role("rowheader").first
        expect(first).to_have_text("page-silent/1")
        picture(page, "server-page-partition")
        topic.send([[], resolving(0), []])
        expect(page.locator(".laggard")).to_be_hidden(timeout=20_000)
