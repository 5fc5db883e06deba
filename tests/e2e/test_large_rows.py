"""Rows that were too large for a message, all the way from a topic into a lake."""

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from click.testing import Result

from tests.codec.encode_rows import TABLE, TS, Claims, encoder, insert, update
from tests.e2e.rig import Topic, cli
from tests.mariadb import QUOTED, running_server
from tidegate.model.event import Resolved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

LONG = "ä" * 2000


def fed(bootstrap: str, name: str, store: Claims, **settings: object) -> Topic:
    """A topic of a small row, a large one, and an update of the small one that makes it large."""
    writer = encoder("open-protocol", store, max_batch_size=1, max_message_bytes=900, **settings)
    events = (insert(1, "small"), insert(2, LONG), update("small", LONG), Resolved(TS))
    made = [m for e in events for m in writer.append(e, None if isinstance(e, Resolved) else TABLE)]
    return Topic.fed(bootstrap, name, "open", [[(m.key or b"", m.value) for m in made]])


def run(topic: Topic, lake: Path, **source: object) -> Result:
    """The feed, up to the last watermark."""
    return cli("run", "--source-uri", topic.uri(**source), "--sink-uri", f"delta://{lake}", "--until", str(TS))


def test_claim_checks(bootstrap: str, tmp_path: Path, spark: "SparkSession") -> None:
    """Workers fetch the files, and the lake has the rows whole."""
    store, files = Claims(), tmp_path / "claims"
    files.mkdir()
    given = {"large_message_handle_option": "claim-check", "claim_check_storage_uri": files.as_uri()}
    topic = fed(bootstrap, "large-claims", store, **given)
    for name, body in store.files.items():
        (files / name).write_bytes(body)

    done = run(topic, tmp_path / "lake", claim_check_storage_uri=quote(files.as_uri(), safe=""))
    shown = cli("lake", "read", str(tmp_path / "lake"), "s.t", "--format", "json")

    assert done.exit_code == 0, done.stderr
    assert len(store.files) == 2
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sorted((row["id"], row["a"]) for row in rows) == [(1, LONG), (2, LONG)]


def test_an_upstream_that_is_none(bootstrap: str, tmp_path: Path) -> None:
    """Workers reach the database; that it is no TiDB stops the feed with one clear error, which shows no password."""
    topic = fed(bootstrap, "large-keys", Claims(), large_message_handle_option="handle-key-only")
    with running_server(tmp_path) as server:
        done = run(topic, tmp_path / "lake", large_message_upstream_uri=quote(server.uri, safe=""))

    assert done.exit_code == 1
    assert "CDC:ErrInvalidReplicaConfig" in done.stderr
    assert "1193" in done.stderr
    assert "large-message-upstream-uri must be the TiDB of the changefeed" in done.stderr
    assert QUOTED not in done.stderr
