"""Events reach a real HTTP server: in order, once more rather than never, signed, and refused ones kept."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.sink.webhook.receiver import Call, Receiver, Reply, receiving
from tidegate.config.load import load
from tidegate.config.registry import sink_of
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.ports import Sink
from tidegate.engine.progress import Progress
from tidegate.model.errors import SinkError, SinkRefused, UriInvalid
from tidegate.model.event import Ddl, Delete, Insert, Resolved, Update
from tidegate.model.tso import time_of
from tidegate.sink import webhook as module
from tidegate.sink.webhook import EventMaker, WebhookSink, in_lanes
from tidegate.sink.webhook_options import WebhookOptions
from tidegate.testing.contract import ReadBack, SinkContract, stories
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[3] / "examples" / "webhook_receiver.py"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver, for senders that do not wait long."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    with receiving() as found:
        yield found


def sink(hook: Receiver, home: Path, **more: object) -> WebhookSink:
    """A sink that keeps its checkpoint in `home`."""
    options = WebhookOptions("feed", hook.url, **more)  # type: ignore[arg-type]
    return WebhookSink(options, DirectoryCheckpoints(home, "feed"))


def live(hook: Receiver, home: Path, story: Script, **more: object) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), sink(hook, home, **more), until=story.ts)


class TestWebhook(SinkContract):
    """A receiver that takes all but a poisonous note."""

    run = staticmethod(run_here)
    poison = ("note", "poison")
    hook: Receiver

    @pytest.fixture(autouse=True)
    def _hook(self, hook: Receiver) -> None:
        hook.rule = lambda call: (422, "poison") if '"poison"' in json.dumps(call.events) else (200, "ok")
        type(self).hook = hook

    def sink(self, home: Path) -> Sink:
        """A sink that posts events in one lane, so that the receiver's order is that of the changes."""
        return sink(self.hook, home, concurrency=1, batch_events=3, resolved=True)

    def read(self, home: Path) -> ReadBack:  # noqa: ARG002  the receiver keeps them
        """What the receiver took."""
        return ReadBack(log={"hook": self.hook.changes()})


def test_envelopes(hook: Receiver, tmp_path: Path) -> None:
    """Rows, DDLs and resolved timestamps come as CloudEvents, in batches or each alone, under the address's own
    parameters."""
    story = stories.shop()
    hook.url += "?shop=7"
    live(hook, tmp_path / "a", story, batch_events=2, resolved=True)
    kinds = {event["type"].removeprefix("tidegate.") for event in hook.events}
    assert kinds == {"row.insert", "row.update", "row.delete", "ddl", "resolved"}
    assert {call.path for call in hook.calls} == {"/hook?shop=7"}
    assert {call.headers["content-type"] for call in hook.calls} == {
        "application/cloudevents-batch+json; charset=utf-8"
    }
    assert max(len(call.events) for call in hook.calls) == 2
    first = next(event for event in hook.events if event.get("partitionkey") == "0")
    commit_ts = first["data"]["commit_ts"]
    assert {**first, "data": ""} == {
        "specversion": "1.0",
        "id": first["id"],
        "source": "/tidegate/feed",
        "type": "tidegate.row.insert",
        "subject": "shop.accounts",
        "time": time_of(commit_ts).replace(" UTC", "Z").replace(" ", "T"),
        "committs": str(commit_ts),
        "partitionkey": "0",
        "datacontenttype": "application/json",
        "data": "",
    }
    hook.calls.clear()
    live(hook, tmp_path / "b", story, batch_events=1)
    assert {len(call.events) for call in hook.calls} == {1}
    assert {call.headers["content-type"] for call in hook.calls} == {"application/cloudevents+json; charset=utf-8"}


def test_ids(hook: Receiver, tmp_path: Path) -> None:
    """An event that comes again has its id; others have others, twins of a table without a key among them."""
    story = stories.shop()
    story.commit(*(put("shop.visits", at=1, page="twin") for _ in range(3)))
    story.resolve()
    live(hook, tmp_path / "a", story)
    once = [event["id"] for event in hook.events]
    assert len(set(once)) == len(once)
    live(hook, tmp_path / "b", story)
    assert {event["id"] for event in hook.events} == set(once)


def test_signed(hook: Receiver, tmp_path: Path) -> None:
    """Calls carry the token, and a signature that the receiver can check; a wrong secret is told, and waits."""
    hook.secret = b"a secret"
    live(hook, tmp_path / "a", stories.shop(), secret=b"a secret", token="a-token")
    assert hook.events
    assert {call.headers["authorization"] for call in hook.calls} == {"Bearer a-token"}
    with pytest.raises(SinkError, match="401, authentication failed: check token-file and secret-file"):
        live(hook, tmp_path / "b", stories.shop(), secret=b"another")


def test_order_of_each_key(hook: Receiver, tmp_path: Path) -> None:
    """With many lanes calls go side by side, and the events of each key come in their order, those of a row that gets
    another key among them."""
    story = Script()
    story.ddl("s", "CREATE DATABASE s")
    story.ddl("s.t", "CREATE TABLE s.t (id INT PRIMARY KEY, v INT)")
    for number in range(300):
        story.commit(put("s.t", id=number % 7, v=number))
        if number % 90 == 89:
            story.commit(remove("s.t", id=number % 7), put("s.t", id=number % 7, v=-number))
    story.resolve()
    live(hook, tmp_path, story, concurrency=8, batch_events=5)
    for key in range(7):
        seen = [int(event["committs"]) for event in hook.events if event.get("partitionkey") == str(key)]
        assert seen == sorted(seen)
    assert len({event["id"] for event in hook.events}) == len(hook.events)


def test_a_row_that_gets_another_key() -> None:
    """An UPDATE of the key stands alone between the stretches before and behind it."""
    fields = stories.shop().rows(1 << 62)[0].fields[:1]
    common = {"schema": "s", "table": "t", "fields": fields, "pk_names": (fields[0].name,), "commit_ts": 5}
    rows = [
        Insert(after=(1,), **common),  # type: ignore[arg-type]
        Update(before=(1,), after=(2,), **common),  # type: ignore[arg-type]
        Delete(before=(2,), **common),  # type: ignore[arg-type]
    ]
    found = list(in_lanes(EventMaker("f").rows(rows), 4))
    assert [[event.moves for lane in stretch for event in lane] for stretch in found] == [[False], [True], [False]]


def test_a_key_that_flags_tell() -> None:
    """A row of Open Protocol tells its key by flags alone: it has a partition key, and the id that it had when it comes
    again."""
    row = msgspec.structs.replace(stories.bare_deletes().rows(1 << 62)[0], pk_names=None)
    first, again = EventMaker("f").rows([row, row])
    assert (first.key, first.id) == ("1", again.id)
    assert msgspec.json.decode(first.body)["partitionkey"] == "1"


def test_many_events_come_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that wait for a call are bounded in bytes, and their order is kept."""
    monkeypatch.setattr(module, "STRETCH_BYTES", 500)
    rows = stories.bare_deletes().rows(1 << 62)
    events = list(EventMaker("f").rows(rows))
    found = [event for stretch in in_lanes(events, 1) for lane in stretch for event in lane]
    assert found == events
    assert max(sum(len(event.body) for lane in stretch for event in lane) for stretch in in_lanes(events, 1)) < 1500


def test_waiting(hook: Receiver, tmp_path: Path) -> None:
    """Answers that may pass are waited out, as long as the receiver says; no event is lost and none comes twice."""
    hook.queue.extend([(503, "busy"), (429, "slowly"), (500, "oh"), (408, "late")])
    story = stories.shop()
    live(hook, tmp_path, story)
    ids = [event["id"] for event in hook.events]
    assert len(ids) == len(set(ids)) == len(story.rows(story.ts)) + len(story.ddls(story.ts))
    hook.retry_after = "1"
    hook.queue.append((429, "slowly"))
    begun_s = time.monotonic()
    live(hook, tmp_path / "other", story)
    assert time.monotonic() - begun_s >= 1


def test_a_receiver_that_is_away(hook: Receiver, tmp_path: Path) -> None:
    """A receiver that does not answer is told with its address; so is one that sends us on, or knows no such path."""
    story = stories.shop()
    for status, words in ((404, "no such URL"), (307, "it redirects")):
        hook.queue.extend([(status, "no")] * 20)
        with pytest.raises(SinkError, match=words):
            live(hook, tmp_path / str(status), story)
        hook.queue.clear()
    with receiving() as gone:
        pass
    with pytest.raises(SinkError, match=f"{gone.url.removesuffix('/hook')}: no answer"):
        live(gone, tmp_path / "gone", story)


def test_an_outage(hook: Receiver, tmp_path: Path) -> None:
    """A receiver that goes amid a feed, with an event whose answer never came, and is back at its port later, gets all
    events in their order: the feed warns, waits, and goes on; what comes again has its id."""
    story, states = stories.shop(), list[str]()

    def leave(_: Call) -> Reply:
        if len(hook.calls) == 2 and "warning" not in states:
            hook.close()
        return 204, ""

    def report(progress: Progress) -> None:
        states.append(progress.state)
        if progress.state == "warning" and not hook.is_open:
            hook.open()

    hook.rule = leave
    made = sink(hook, tmp_path, concurrency=1, batch_events=2, retries=1)
    run_here(ScriptedSource(story), made, until=story.ts, report=report)
    assert "warning" in states
    assert states[-1] == "finished"
    ids = [event["id"] for event in hook.events]
    assert len(set(ids)) == len(story.rows(story.ts)) + len(story.ddls(story.ts)) < len(ids)
    seen = [int(event["committs"]) for event in hook.events if event.get("subject") == "shop.accounts"]
    first = [ts for number, ts in enumerate(seen) if ts not in seen[:number]]
    assert first == sorted(first)


def test_dead_letters(hook: Receiver, tmp_path: Path) -> None:
    """An event that is refused ends the feed with table and id; kept aside it is a file with the answer, and the
    others of its call arrive."""
    story = stories.shop()
    hook.rule = lambda call: (422, "no cheese") if "käse" in json.dumps(call.events, ensure_ascii=False) else (200, "")
    with pytest.raises(SinkRefused, match="422: no cheese") as told:
        live(hook, tmp_path / "a", story)
    assert (told.value.where.table, told.value.code) == ("shop.orders", "CDC:ErrSinkRefused")

    hook.calls.clear()
    live(hook, tmp_path / "b", story, dead_letter="keep", dead_letters=str(tmp_path / "letters"))
    kept = [json.loads(path.read_text()) for path in (tmp_path / "letters").iterdir()]
    assert {letter["status"] for letter in kept} == {422}
    assert all("käse" in json.dumps(letter["event"], ensure_ascii=False) for letter in kept)
    rows = [event for event in hook.changes() if not isinstance(event, Ddl | Resolved)]
    assert len(rows) + len(kept) == len(story.rows(story.ts))


def test_addresses(tmp_path: Path) -> None:
    """Parameters of ours leave the address, the receiver's stay; secrets come from files and are shown nowhere."""
    secret = tmp_path / "secret"
    secret.write_text("top-word\n")
    config = load(
        source_uri="kafka://h/t?protocol=open-protocol",
        sink_uri=f"https://h.example/a?x=1&batch-size=7&secret-file={secret}&y=%26",
        state_dir=tmp_path,
    )
    sink = sink_of(config)
    assert isinstance(sink, WebhookSink)
    options = sink._options
    assert (options.url, options.batch_events, options.secret) == ("https://h.example/a?x=1&y=%26", 7, b"top-word")
    assert "top-word" not in repr(options) + repr(config)
    assert config.warnings == ()
    with pytest.raises(UriInvalid, match="token-file"):
        load(source_uri="kafka://h/t?protocol=open-protocol", sink_uri="https://me:pw@h/a", state_dir=tmp_path)


def test_the_example(tmp_path: Path) -> None:
    """The receiver among the examples prints each event once, however often it comes, and none that is not signed."""
    (tmp_path / "secret").write_text("word\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, str(EXAMPLE), str(port), str(tmp_path / "secret")]
    story, url = stories.shop(), f"http://127.0.0.1:{port}/orders"
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            made = {
                home: WebhookSink(
                    WebhookOptions("feed", url, secret=secret, retries=8), DirectoryCheckpoints(tmp_path / home, "feed")
                )
                for home, secret in (("a", b"word"), ("b", b"word"), ("c", b"other"))
            }
            run_here(ScriptedSource(story), made["a"], until=story.ts)
            run_here(ScriptedSource(story), made["b"], until=story.ts)
            with pytest.raises(SinkError, match="401"):
                run_here(ScriptedSource(story), made["c"], until=story.ts)
        finally:
            process.terminate()
        printed = process.communicate(timeout=10)[0].splitlines()
    assert len(printed) == len(story.rows(story.ts)) + len(story.ddls(story.ts))
    assert sum("tidegate.ddl" in line for line in printed) == len(story.ddls(story.ts))
