"""The recorded shop posted to a webhook: each change comes, those of one key in commit order."""

from collections import Counter
from pathlib import Path

import pytest

from tests.counts import some
from tests.recorded import partitions_of
from tests.replay.test_database import WORKLOAD, truths
from tests.replay.test_history import PROTOCOLS
from tests.replay.test_redis import landed, told
from tests.sink.webhook.receiver import receiving
from tidegate.changelog.source import ChangelogSource
from tidegate.codec import decode
from tidegate.codec.neutral import event_object
from tidegate.codec.options import DecodeOptions
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.model.event import Resolved
from tidegate.sink.webhook import WebhookSink
from tidegate.sink.webhook_options import WebhookOptions
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("protocol", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_the_shop_is_posted(tmp_path: Path, protocol: str) -> None:
    """By their ids the events are the changes of the topic, and of each key they come in order, though a run ends amid
    them and many are on their way at a time."""
    options = DecodeOptions(protocol=PROTOCOLS[protocol])
    frames = [frame for some in partitions_of(WORKLOAD / protocol).values() for frame in some]
    sent = [event for frame in frames for event in decode(frame.key, frame.value, options)]
    moments = [truth["ts"] for truth in truths()][: some(4, 12)]
    happened = {
        told(event_object(one)) for one in sent if not isinstance(one, Resolved) and (one.commit_ts or 0) <= moments[-1]
    }
    source = landed(tmp_path / "home", protocol)
    with receiving() as hook:
        for until in (moments[len(moments) // 2], moments[-1]):
            sink = WebhookSink(WebhookOptions("f", hook.url), DirectoryCheckpoints(tmp_path / "state", "f"))
            run_here(ChangelogSource(source), sink, until=until)
        first = {event["id"]: event for event in reversed(hook.events)}

    assert {told(event["data"]) for event in first.values()} == happened
    keyed = [event for event in reversed(first.values()) if "partitionkey" in event]
    assert [text for text, times in Counter(told(one["data"]) for one in keyed).items() if times > 1] == []
    last: dict[tuple[str, str], int] = {}
    for event in keyed:
        key, ts = (event["subject"], event["partitionkey"]), int(event["committs"])
        assert ts >= last.get(key, 0), event
        last[key] = ts
    assert len(last) > 100
