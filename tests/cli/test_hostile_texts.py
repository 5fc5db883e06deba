"""Texts of strangers and secrets of ours, wherever people read them."""

import io
import json
import logging
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import options as our_logging
from tidegate.cli.main import main
from tidegate.cli.output import echo, echo_json
from tidegate.config.status import StatusFile
from tidegate.engine.display import FeedPanel
from tidegate.engine.panel import draw
from tidegate.engine.progress import Progress, TableProgress, json_lines, line, lines
from tidegate.model.errors import SchemaError

EVIL = "t\x1b]0;x\x07\x9b2J\u202e\r\nerror CDC:ErrForged: all is lost"
ADDRESS = "kafka://bob:S3cr/et@h:9092/t?sasl-password=hush"
PROGRESS = Progress(
    phase="running",
    tables=(TableProgress(f"shop.{EVIL}[/]", 1),),
    ddl=f"DROP TABLE `{EVIL}`",
    warnings=(f"table {EVIL} is new",),
)


def is_tame(text: str) -> bool:
    """Whether a text holds lines that a terminal shows as they are, none of them forged."""
    shown = all(char.isprintable() or char == "\n" for char in text)
    return shown and not any(one.startswith("error CDC:ErrForged") for one in text.splitlines())


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """A line shows what a terminal would obey as escapes, and no password."""
    echo(f"table {EVIL} of {ADDRESS} stays", err=True)
    told = capsys.readouterr().err
    assert is_tame(told)
    assert r"t\x1b]0;x\x07\x9b2J\u202e\r\nerror" in told
    assert "kafka://bob:xxxxx@h:9092/t?sasl-password=xxxxx stays" in told


def test_progress() -> None:
    """The panel and the lines of a feed escape names, DDLs and warnings, and markup in a name is text."""
    out, feed = io.StringIO(), FeedPanel(f"shop {EVIL}", ADDRESS, EVIL)
    with lines(out) as show:
        show(PROGRESS)
    feed.show(PROGRESS)
    panel = "\n".join(line.plain for line in draw(feed.panel(now_ms=0), 300, 40))
    assert "shop.t" in panel
    assert "[/]" in panel
    for text in (out.getvalue(), panel, line(PROGRESS)):
        assert is_tame(text)
        assert "\\x1b" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_log(*, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is one line, the lines of its trace are indented, and neither shows a password."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        our_logging.configure(json=as_json)
        odd = SchemaError(f"{EVIL} at {ADDRESS} is odd")
        logging.getLogger("tidegate.test").error("table %s of %s", EVIL, ADDRESS, exc_info=odd)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    told = out.getvalue()
    assert "S3cr" not in told
    assert "hush" not in told
    if as_json:
        assert json.loads(told)["message"].startswith("table t\x1b")
    else:
        assert is_tame(told)


def test_bytes_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not UTF-8 is told and kept like others, in lines, JSON and status, and ends nothing."""
    odd = Progress(phase="running", warnings=("table s\udcff.t is new",))
    StatusFile(str(tmp_path), "feed", "feed", source="s", sink="t").save(odd)
    assert b"s\\udcff.t" in (tmp_path / "feed.state.json").read_bytes()
    echo("table s\udcff.t")
    echo_json({"table": "s\udcff.t"})
    with json_lines(sys.stdout) as show:
        show(odd)
    told = capsys.readouterr().out
    assert is_tame(told)
    assert told.count(r"s\udcff.t") == 3


def test_errors_of_the_command() -> None:
    """The line of an error escapes what it quotes."""
    done = CliRunner().invoke(main, ["status", f"/nowhere/{EVIL}", "-c", EVIL])
    assert done.exit_code == 1
    assert "\\x1b" in done.stderr
    assert is_tame(done.stderr)
