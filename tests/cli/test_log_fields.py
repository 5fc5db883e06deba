"""Records of a changefeed tell in fields what they are about, one line each."""

import json
import logging
from pathlib import Path

import pytest

from tests.engine.test_trace import run as one_run
from tests.server.kit import ServerHome
from tidegate.cli import options
from tidegate.engine.log_fields import context, fields, fields_of
from tidegate.model.errors import PoisonMessage
from tidegate.objectstore.threads import ContextPool, begin_thread

LOG = logging.getLogger("tidegate.source.test")


@pytest.fixture
def lines(tmp_path: Path):
    """Log into a file as JSON; a function that reads its entries."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    options.configure(level=logging.DEBUG, json=True, file=str(tmp_path / "log"))
    yield lambda: [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    for handler in before[1]:
        root.addHandler(handler)


def test_an_error_tells_its_place(lines) -> None:
    """Code, table, ts and position of an error, whether it is an argument or the trace; and those of the context."""
    error = PoisonMessage("no JSON").at(topic="t", partition=1, offset=0, table="s.t", commit_ts=45)
    where = {"code": "CDC:ErrPoisonMessage", "topic": "t", "partition": 1, "offset": 0, "table": "s.t", "commit_ts": 45}
    with fields(changefeed="default/a"), fields(round=46):
        LOG.warning("refused: %s", error)
    try:
        raise error
    except PoisonMessage:
        LOG.exception("refused\nin two lines")
    first, second = lines()
    assert first.items() >= {"changefeed": "default/a", "round": 46, "message": "refused: no JSON", **where}.items()
    assert second.items() >= where.items()
    assert "changefeed" not in second


def test_what_a_feed_logs(lines, tmp_path: Path) -> None:
    """A feed logs its start, DDLs and rounds, each with the changefeed, and those of a round with its target ts."""
    one_run(ServerHome(tmp_path / "place"))
    own = [line for line in lines() if line["logger"] == "tidegate.engine.loop"]
    assert own[0]["message"].startswith("the changefeed begins at ts ")
    assert {line.get("changefeed") for line in own} == {"one"}
    ddls = [line for line in own if line["message"].startswith("DDL at ts ")]
    rounds = {line["round"] for line in own if " rows, " in line["message"]}
    assert ddls
    assert {line["round"] for line in ddls} <= rounds


def test_fields_in_text() -> None:
    """As name=value behind the words; nothing where nothing is known."""
    record = logging.makeLogRecord({"name": "tidegate.x", "msg": "gone", "levelname": "INFO"})
    assert fields_of(record) == {}
    assert options._Text().format(record).endswith("tidegate.x: gone")
    with fields(round=7):
        assert options._Text().format(record).endswith("tidegate.x: gone [round=7]")


def test_fields_of_threads() -> None:
    """Work of pools and threads has the fields of whoever began it, at that moment."""
    seen: list[object] = []
    with fields(changefeed="default/a"), ContextPool(1) as pool:
        for number in (1, 2):
            with fields(round=number):
                seen += [pool.submit(context).result(), *pool.map(lambda _: context(), [0])]
        begin_thread(lambda: seen.append(context()), "beside").join(10)
    rounds = [{"changefeed": "default/a", "round": number} for number in (1, 1, 2, 2)]
    assert seen == [*rounds, {"changefeed": "default/a"}]
    assert context() == {}
